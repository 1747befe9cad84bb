//! `struct perf_event_attr`: the options of an event, which decide the layout of its records.

use super::super::ReadError;
use super::order::Order;

/// Bits of `sample_type`: the fields of a sample.
pub(super) mod sample {
    pub const IP: u64 = 1 << 0;
    pub const TID: u64 = 1 << 1;
    pub const TIME: u64 = 1 << 2;
    pub const ADDR: u64 = 1 << 3;
    pub const READ: u64 = 1 << 4;
    pub const CALLCHAIN: u64 = 1 << 5;
    pub const ID: u64 = 1 << 6;
    pub const CPU: u64 = 1 << 7;
    pub const PERIOD: u64 = 1 << 8;
    pub const STREAM_ID: u64 = 1 << 9;
    pub const RAW: u64 = 1 << 10;
    pub const BRANCH_STACK: u64 = 1 << 11;
    pub const REGS_USER: u64 = 1 << 12;
    pub const STACK_USER: u64 = 1 << 13;
    pub const WEIGHT: u64 = 1 << 14;
    pub const DATA_SRC: u64 = 1 << 15;
    pub const IDENTIFIER: u64 = 1 << 16;
    pub const TRANSACTION: u64 = 1 << 17;
    pub const REGS_INTR: u64 = 1 << 18;
    pub const PHYS_ADDR: u64 = 1 << 19;
    pub const AUX: u64 = 1 << 20;
    pub const CGROUP: u64 = 1 << 21;
    pub const DATA_PAGE_SIZE: u64 = 1 << 22;
    pub const CODE_PAGE_SIZE: u64 = 1 << 23;
    pub const WEIGHT_STRUCT: u64 = 1 << 24;
    /// Fields with a known place and size: those of Linux 6.19.
    pub const KNOWN: u64 = (1 << 25) - 1;
}

/// Bits of `read_format`: the parts of a counter's reading.
pub(super) mod reading {
    pub const TIME_ENABLED: u64 = 1 << 0;
    pub const TIME_RUNNING: u64 = 1 << 1;
    pub const ID: u64 = 1 << 2;
    pub const GROUP: u64 = 1 << 3;
    pub const LOST: u64 = 1 << 4;
    /// Parts with a known place and size: those of Linux 6.19.
    pub const KNOWN: u64 = (1 << 5) - 1;
}

/// One-bit options.
pub(super) mod flag {
    pub const INHERIT: u64 = 1 << 1;
    pub const FREQUENCY: u64 = 1 << 10;
    pub const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub const CONTEXT_SWITCH: u64 = 1 << 26;
}

/// Bits of `branch_sample_type`.
pub(super) mod branch {
    /// The branches are calls that have not returned: a call stack.
    pub const CALL_STACK: u64 = 1 << 11;
    pub const HW_INDEX: u64 = 1 << 17;
    pub const COUNTERS: u64 = 1 << 19;
    /// Bits with a known effect on the layout: those of Linux 6.19.
    pub const KNOWN: u64 = (1 << 20) - 1;
}

/// Values of `type`.
pub(super) mod kind {
    pub const HARDWARE: u32 = 0;
    pub const SOFTWARE: u32 = 1;
    pub const TRACEPOINT: u32 = 2;
    pub const HARDWARE_CACHE: u32 = 3;
}

/// Sampling period or frequency of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rate {
    /// The event is counted, not sampled.
    None,
    /// A sample after each period of this many events.
    Period(u64),
    /// This many samples a second; the kernel adapts the period.
    Frequency(u64),
}

/// The options of an event that matter to a reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attribute {
    pub kind: u32,
    pub config: u64,
    pub rate: Rate,
    pub sample: u64,
    pub reading: u64,
    pub flags: u64,
    pub branch: u64,
    /// Registers of user space that samples hold, one bit each.
    pub user_registers: u64,
    pub interrupt_registers: u64,
}

impl Attribute {
    /// Bytes of the structure's first version, with which every later version begins.
    pub(super) const MIN_SIZE: usize = 64;

    /// Parses the structure at the beginning of `bytes`; returns its size too.
    pub(super) fn parse(bytes: &[u8], order: Order) -> Option<(Attribute, usize)> {
        let size = match order.int(bytes, 4)? as usize {
            0 => Attribute::MIN_SIZE,
            size => size,
        };
        let own = bytes.get(..size).filter(|_| size >= Attribute::MIN_SIZE)?;
        let later = |at: usize| order.long(own, at).unwrap_or(0);
        let (period, flags) = (order.long(own, 16)?, order.bit_fields(own, 40)?);
        let attribute = Attribute {
            kind: order.int(own, 0)?,
            config: order.long(own, 8)?,
            rate: match period {
                0 => Rate::None,
                n if flags & flag::FREQUENCY != 0 => Rate::Frequency(n),
                n => Rate::Period(n),
            },
            sample: order.long(own, 24)?,
            reading: order.long(own, 32)?,
            flags,
            branch: later(72),
            user_registers: later(80),
            interrupt_registers: later(96),
        };
        Some((attribute, size))
    }

    /// Whether samples have all of these fields.
    pub(super) fn has(&self, fields: u64) -> bool {
        self.sample & fields == fields
    }

    /// Checks that every field has a known place and size.
    ///
    /// # Errors
    /// [`ReadError::UnknownLayout`] where a newer kernel added one.
    pub(super) fn check(&self) -> Result<(), ReadError> {
        let unknown = [
            ("sample_type", self.sample & !sample::KNOWN),
            (
                "read_format",
                match self.has(sample::READ) {
                    true => self.reading & !reading::KNOWN,
                    false => 0,
                },
            ),
            (
                "branch_sample_type",
                match self.has(sample::BRANCH_STACK) {
                    true => self.branch & !branch::KNOWN,
                    false => 0,
                },
            ),
        ];
        match unknown.iter().find(|(_, bits)| *bits != 0) {
            None => Ok(()),
            Some((field, bits)) => Err(ReadError::UnknownLayout {
                what: format!("its samples have further fields ({field} {bits:#x})"),
            }),
        }
    }

    /// Bytes from the beginning of a sample's body to the identifier of its event.
    pub(super) fn id_in_sample(&self) -> Option<usize> {
        if self.has(sample::IDENTIFIER) {
            return Some(0);
        }
        let before = [sample::IP, sample::TID, sample::TIME, sample::ADDR];
        self.has(sample::ID).then(|| 8 * self.count(&before))
    }

    /// Bytes from the identifier of its event to the end of a record that is no sample.
    pub(super) fn id_in_trailer(&self) -> Option<usize> {
        if !self.has_trailer() {
            return None;
        }
        if self.has(sample::IDENTIFIER) {
            return Some(8);
        }
        let after = [sample::ID, sample::STREAM_ID, sample::CPU];
        self.has(sample::ID).then(|| 8 * self.count(&after))
    }

    /// Whether records that are no samples end with the identity of a sample.
    pub(super) fn has_trailer(&self) -> bool {
        self.flags & flag::SAMPLE_ID_ALL != 0
    }

    /// Number of these fields that samples have.
    pub(super) fn count(&self, fields: &[u64]) -> usize {
        fields.iter().filter(|f| self.has(**f)).count()
    }
}
