//! The fields of `PERF_RECORD_SAMPLE`, in the order of `perf_output_sample` in the kernel, and the
//! trailer of all other records (`sample_id_all`).

use super::attribute::{Attribute, branch, reading, sample};
use super::order::{Fields, Order, Words};

/// Registers of user space.
#[derive(Clone, Copy)]
pub(super) struct Registers<'a> {
    /// 1: of a 32-bit program, 2: of a 64-bit one.
    pub abi: u64,
    mask: u64,
    values: Words<'a>,
}

impl Registers<'_> {
    /// The register with this number.
    pub(super) fn get(&self, number: u32) -> Option<u64> {
        let bit = 1u64.checked_shl(number)?;
        if self.mask & bit == 0 {
            return None;
        }
        let before = (self.mask & (bit - 1)).count_ones();
        self.values.get(before as usize)
    }
}

/// A counter's value at a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    pub value: u64,
    /// Identifier of the event that it counts, where the format has it.
    pub id: Option<u64>,
}

/// A sample.
pub(super) struct Sample<'a> {
    pub ip: Option<u64>,
    pub pid: u32,
    pub tid: u32,
    pub time: Option<u64>,
    pub cpu: Option<u32>,
    pub period: Option<u64>,
    /// The values of its event and of the other events of its group (`PERF_SAMPLE_READ`).
    pub counters: Vec<Counter>,
    pub chain: Words<'a>,
    /// The fields of a tracepoint.
    pub raw: &'a [u8],
    /// Three words a branch, the latest branch first: from, to, flags.
    pub branches: Words<'a>,
    pub registers: Option<Registers<'a>>,
    /// Memory from the stack pointer on.
    pub stack: Option<&'a [u8]>,
}

impl<'a> Sample<'a> {
    /// Parses the body of a sample; `None` where it is not as long as its fields.
    pub(super) fn parse(body: &'a [u8], order: Order, a: &Attribute) -> Option<Sample<'a>> {
        let mut f = Fields::new(body, order);
        let long = |f: &mut Fields<'a>, bit: u64| match a.has(bit) {
            true => f.long().map(Some),
            false => Some(None),
        };
        long(&mut f, sample::IDENTIFIER)?;
        let ip = long(&mut f, sample::IP)?;
        let (pid, tid) = match a.has(sample::TID) {
            true => (f.int()?, f.int()?),
            false => (0, 0),
        };
        let time = long(&mut f, sample::TIME)?;
        for field in [sample::ADDR, sample::ID, sample::STREAM_ID] {
            long(&mut f, field)?;
        }
        let cpu = match a.has(sample::CPU) {
            true => Some((f.int()?, f.int()?).0),
            false => None,
        };
        let period = long(&mut f, sample::PERIOD)?;
        let counters = match a.has(sample::READ) {
            true => counters(&mut f, a.reading)?,
            false => Vec::new(),
        };
        let chain = match a.has(sample::CALLCHAIN) {
            true => f.long().and_then(|n| f.words(n))?,
            false => Words::empty(),
        };
        let raw = match a.has(sample::RAW) {
            true => raw(&mut f)?,
            false => &[],
        };
        let branches = match a.has(sample::BRANCH_STACK) {
            true => branches(&mut f, a.branch)?,
            false => Words::empty(),
        };
        let registers = match a.has(sample::REGS_USER) {
            true => registers(&mut f, a.user_registers)?,
            false => None,
        };
        let stack = match a.has(sample::STACK_USER) {
            true => stack(&mut f)?,
            false => None,
        };
        rest(&mut f, a)?;
        f.rest.is_empty().then_some(Sample {
            ip,
            pid,
            tid,
            time,
            cpu,
            period,
            counters,
            chain,
            raw,
            branches,
            registers,
            stack,
        })
    }

    /// A sample of `perf record --off-cpu`. Since perf 6.15 its BPF program writes the fields of the blocked
    /// thread; the sample's own fields belong to another thread.
    pub(super) fn of_bpf(self, order: Order) -> Option<Sample<'a>> {
        let mut f = Fields::new(self.raw, order);
        let (pid, tid) = (f.int()?, f.int()?);
        let period = f.long()?;
        let chain = f.long().and_then(|n| f.words(n))?;
        Some(Sample {
            ip: None,
            pid,
            tid,
            period: Some(period),
            chain,
            ..self
        })
    }

    /// The time of the sample with this body.
    pub(super) fn time(body: &[u8], order: Order, a: &Attribute) -> Option<u64> {
        let before = [sample::IDENTIFIER, sample::IP, sample::TID];
        a.has(sample::TIME)
            .then(|| order.long(body, 8 * a.count(&before)))?
    }
}

/// Skips the fields behind the stack. They are not used, but their sizes must agree.
fn rest(f: &mut Fields, a: &Attribute) -> Option<()> {
    if a.sample & (sample::WEIGHT | sample::WEIGHT_STRUCT) != 0 {
        f.long()?;
    }
    f.words(a.count(&[sample::DATA_SRC, sample::TRANSACTION]) as u64)?;
    if a.has(sample::REGS_INTR) {
        registers(f, a.interrupt_registers)?;
    }
    let single = [
        sample::PHYS_ADDR,
        sample::CGROUP,
        sample::DATA_PAGE_SIZE,
        sample::CODE_PAGE_SIZE,
    ];
    f.words(a.count(&single) as u64)?;
    if a.has(sample::AUX) {
        let size = f.long()?;
        f.bytes(size)?;
    }
    Some(())
}

/// `struct read_format`: one counter, or all of the event's group.
fn counters(f: &mut Fields, format: u64) -> Option<Vec<Counter>> {
    let has = |part: u64| format & part != 0;
    let times = u64::from(has(reading::TIME_ENABLED)) + u64::from(has(reading::TIME_RUNNING));
    let group = has(reading::GROUP);
    let n = if group { f.long()? } else { 1 };
    if group {
        f.words(times)?;
    }
    let words = 1 + u64::from(has(reading::ID)) + u64::from(has(reading::LOST));
    if n.checked_mul(8 * words)? > f.rest.len() as u64 {
        return None;
    }
    let mut counters = Vec::with_capacity(n as usize);
    for _ in 0..n {
        let value = f.long()?;
        if !group {
            f.words(times)?;
        }
        let id = match has(reading::ID) {
            true => Some(f.long()?),
            false => None,
        };
        if has(reading::LOST) {
            f.long()?;
        }
        counters.push(Counter { value, id });
    }
    Some(counters)
}

fn raw<'a>(f: &mut Fields<'a>) -> Option<&'a [u8]> {
    let size = u64::from(f.int()?);
    let raw = f.bytes(size)?;
    // The size itself has four bytes, and the kernel pads both together to eight.
    let padding = (8 - (4 + size) % 8) % 8;
    f.bytes(padding)?;
    Some(raw)
}

fn branches<'a>(f: &mut Fields<'a>, options: u64) -> Option<Words<'a>> {
    let n = f.long()?;
    if options & branch::HW_INDEX != 0 {
        f.long()?;
    }
    let branches = f.words(n.checked_mul(3)?)?;
    if options & branch::COUNTERS != 0 {
        f.words(n)?;
    }
    Some(branches)
}

fn registers<'a>(f: &mut Fields<'a>, mask: u64) -> Option<Option<Registers<'a>>> {
    let abi = f.long()?;
    if abi == 0 {
        return Some(None);
    }
    let values = f.words(u64::from(mask.count_ones()))?;
    Some(Some(Registers { abi, mask, values }))
}

fn stack<'a>(f: &mut Fields<'a>) -> Option<Option<&'a [u8]>> {
    let size = f.long()?;
    if size == 0 {
        return Some(None);
    }
    let memory = f.bytes(size)?;
    let filled = usize::try_from(f.long()?).ok()?;
    Some(Some(&memory[..filled.min(memory.len())]))
}

/// The identity that ends a record that is no sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trailer {
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    pub time: Option<u64>,
    /// Bytes of the record before it.
    pub at: usize,
}

impl Trailer {
    /// Parses the end of a record's body.
    pub(super) fn parse(body: &[u8], order: Order, a: &Attribute) -> Trailer {
        let none = Trailer {
            at: body.len(),
            ..Trailer::default()
        };
        if !a.has_trailer() {
            return none;
        }
        let fields = [
            sample::TID,
            sample::TIME,
            sample::ID,
            sample::STREAM_ID,
            sample::CPU,
            sample::IDENTIFIER,
        ];
        let Some(at) = body.len().checked_sub(8 * a.count(&fields)) else {
            return none;
        };
        let mut f = Fields::new(&body[at..], order);
        let (pid, tid) = match a.has(sample::TID) {
            true => (f.int(), f.int()),
            false => (None, None),
        };
        let time = match a.has(sample::TIME) {
            true => f.long(),
            false => None,
        };
        Trailer { pid, tid, time, at }
    }
}
