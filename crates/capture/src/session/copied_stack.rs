//! Stacks that were copied as they were, to be unwound later.

use wallscope_observe::{StackBytes, StackMemory};
use wallscope_unwind::native::Registers;
use zerocopy::FromBytes;

use super::mappings::MappingSnapshot;
use crate::event::{Head, RawHead, Resolve, kind};

/// Bytes of stack that a copy may have (`WS_RAW_BYTES`): the last page is copied only if all of it fits.
const BYTES: usize = 28 * 1024;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// A stack as it was.
pub struct CopiedStack {
    head: RawHead,
    bytes: Box<[u8]>,
    /// Mappings of its process; `None` until the session has set them, or if they are unknown.
    pub mappings: Option<MappingSnapshot>,
}

impl CopiedStack {
    /// Reads a `struct ws_raw`.
    pub fn parse(bytes: &[u8]) -> Option<CopiedStack> {
        let (head, rest) = RawHead::read_from_prefix(bytes).ok()?;
        let bytes = rest.get(..head.len as usize)?.into();
        Some(CopiedStack {
            head,
            bytes,
            mappings: None,
        })
    }

    /// The answer to its ticket: the stack with hash `ustack`; 0: there will be none.
    pub fn resolved(&self, ustack: u64) -> Resolve {
        Resolve {
            head: Head {
                kind: kind::RESOLVE,
                size: size_of::<Resolve>() as u32,
            },
            id: self.head.id,
            ticket: self.head.ticket,
            ustack,
            futex: 0,
        }
    }

    /// The answer to its ticket if it is not unwound.
    pub fn given_up(&self) -> Resolve {
        self.resolved(0)
    }

    /// When it was taken, ns.
    pub fn time(&self) -> u64 {
        self.head.time
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.head.pid
    }

    /// The registers that unwinding starts from.
    pub fn registers(&self) -> Registers {
        let [
            r15,
            r14,
            r13,
            r12,
            bp,
            bx,
            r11,
            r10,
            r9,
            r8,
            ax,
            cx,
            dx,
            si,
            di,
            _,
            ip,
            _,
            _,
            sp,
            _,
        ] = self.head.regs;
        Registers {
            ip,
            general: [
                ax, dx, cx, bx, si, di, bp, sp, r8, r9, r10, r11, r12, r13, r14, r15,
            ],
        }
    }

    /// Fills `to` with instructions from `address` on, and returns the number of bytes. Bytes at the pc are as they
    /// were at the time of the copy, since run-time code may have been replaced. Others are as `read_now` finds them.
    pub fn read_code(
        &self,
        address: u64,
        to: &mut [u8],
        read_now: impl Fn(&mut [u8]) -> usize,
    ) -> usize {
        let n = read_now(to);
        let pc = self.registers().ip & !7;
        let mut there = n;
        for (at, word) in (pc..).step_by(8).zip(self.head.code) {
            let Some(from) = at.checked_sub(address).map(|from| from as usize) else {
                continue;
            };
            if word != 0 && from <= there && from + 8 <= to.len() {
                to[from..from + 8].copy_from_slice(&word.to_ne_bytes());
                there = there.max(from + 8);
            }
        }
        there
    }

    /// The copy as a log holds it.
    pub fn memory(&self) -> StackMemory {
        let registers = self.registers();
        StackMemory {
            time: self.head.time,
            pid: self.head.pid,
            tid: 0,
            ticket: self.head.ticket,
            pc: registers.ip,
            registers: registers.general,
            start: self.head.start,
            holes: self.head.holes,
            bytes: StackBytes(self.bytes.to_vec()),
        }
    }

    /// Whether the copy has the maximum length and `address` lies above it.
    pub fn is_beyond(&self, address: u64) -> bool {
        let end = self.head.start.saturating_add(self.bytes.len() as u64);
        self.bytes.len() > BYTES - PAGE as usize && address >= end
    }

    /// Copies memory from `address` on, up to a page that could not be read.
    pub fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let start = self.head.start;
        let Some(from) = address
            .checked_sub(start)
            .and_then(|at| self.bytes.get(at as usize..))
        else {
            return 0;
        };
        let whole = (address / PAGE..).take_while(|page| {
            let index = page - start / PAGE;
            index < 64 && self.head.holes >> index & 1 == 0
        });
        let pages = whole.take(to.len() / PAGE as usize + 2).count() as u64;
        let there = (pages * PAGE).saturating_sub(address % PAGE) as usize;
        let n = from.len().min(to.len()).min(there);
        to[..n].copy_from_slice(&from[..n]);
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn code_at_the_pc_is_that_of_the_copy() {
        let mut head = RawHead::new_zeroed();
        head.regs[16] = 0x1013;
        head.code = [u64::from_ne_bytes([1; 8]), u64::from_ne_bytes([2; 8])];
        let raw = |head| CopiedStack {
            head,
            bytes: Box::default(),
            mappings: None,
        };
        let mut to = [0; 40];
        let new = |to: &mut [u8]| {
            to.fill(9);
            to.len()
        };
        assert_eq!(raw(head).read_code(0x1008, &mut to, new), 40);
        assert_eq!(to[8..16], [1; 8]);
        assert_eq!(to[16..24], [2; 8]);
        assert!(to[..8].iter().chain(&to[24..]).all(|byte| *byte == 9));
        // The process is gone. Only these bytes are left, and only from their beginning on.
        let gone = |_: &mut [u8]| 0;
        assert_eq!(raw(head).read_code(0x1010, &mut to, gone), 16);
        assert_eq!(raw(head).read_code(0x1018, &mut to, gone), 8);
        assert_eq!(raw(head).read_code(0x1008, &mut to, gone), 0);
        assert_eq!(raw(head).read_code(0x1020, &mut to, gone), 0);
        head.code = [0; 2];
        assert_eq!(raw(head).read_code(0x1010, &mut to, gone), 0);
    }

    #[test]
    fn a_page_that_could_not_be_read_is_not_taken_for_zeros() {
        let start = 0x7fff_0000_0f00;
        let mut head = RawHead::new_zeroed();
        head.start = start;
        // The end of a page, one that is missing, and one that is there.
        head.holes = 0b10;
        let bytes: Vec<u8> = (0..0x100 + 0x2000).map(|i| i as u8).collect();
        let raw = CopiedStack {
            head,
            bytes: bytes.clone().into(),
            mappings: None,
        };
        let read = |at: u64, length: usize| {
            let mut to = vec![0; length];
            let n = raw.read(start + at, &mut to);
            assert_eq!(to[..n], bytes[at as usize..][..n]);
            n
        };
        assert_eq!(read(0, 64), 64);
        assert_eq!(read(0, 4096), 0x100);
        assert_eq!(read(0xf8, 64), 8);
        assert_eq!(read(0x100, 64), 0);
        assert_eq!(read(0x10f8, 64), 0);
        assert_eq!(read(0x1100, 4096), 4096);
        assert_eq!(read(0x20f8, 64), 8);
        assert_eq!(read(0x2100, 64), 0);
        assert_eq!(raw.read(start - 8, &mut [0; 8]), 0);
        // Shorter than it might be: there was no more.
        assert!(!raw.is_beyond(start + 0x2100));
        let whole = CopiedStack {
            head,
            bytes: vec![0; BYTES - 0x700].into(),
            mappings: None,
        };
        let end = start + (BYTES - 0x700) as u64;
        assert!(whole.is_beyond(end) && !whole.is_beyond(end - 8));
    }
}
