//! Rows of Go code, from the pclntab that Go programs carry for their own tracebacks.
//!
//! The table gives the stack pointer's offset for each instruction. So no frame pointer is needed,
//! and stacks are correct in a function's first instructions too. The runtime switches between
//! stacks. The functions that do so are found by name, and the switch in them by its instructions:
//!
//! * `systemstack`, `morestack` and `asmcgocall` leave a goroutine's stack for the thread's own.
//!   The goroutine holds the old registers, and the thread leads to the goroutine (`KIND_GO`). If
//!   the thread cannot be read, `asmcgocall`'s frame or the register of the current goroutine leads
//!   there (`unwind_host.c`).
//! * `mcall` leaves a goroutine for good: the scheduler's work begins there.
//! * Above `cgocallback`, where C calls Go, is the Go function that had called C. Between them is
//!   the start of `systemstack_switch`, at which the goroutine claims to have stopped. The lookup
//!   rule for return addresses names it after the function before it, `mcall`.
//! * Calls into the vDSO keep the goroutine's stack pointer in `r12`.
//!
//! Around `clone` with the parent's memory (`syscall.rawVforkSyscall`), a register holds the return
//! address. The table says that more than the frame was popped, and the instructions say into which
//! register.
//!
//! Other runtime code that sets the stack pointer is not followed (`BadRule`). C frames between a
//! callback into Go and the Go function that had called C are missing, as in Go's own tracebacks.

use object::read::ReadRef;
use wallscope_binfmt::gopclntab::{GoFile, GoFunction, Pclntab, Stretch};

use crate::native::abi::{
    End, KIND_DEREF, KIND_GO, KIND_OTHER, KIND_REG, KIND_SPAWN, RA_IN_REG, Rule,
};
use crate::native::cfi::{FunctionRows, SectionRows};
use crate::native::image::{Image, MAX_CFI};
use crate::native::rules::{RuleRow, RuleSet};

/// Maximum bytes of instructions that are examined in one function.
const MAX_FUNCTION_BYTES: u64 = 1 << 16;

const RSP: u8 = 7;
const R12: u8 = 12;

impl<'d, R: ReadRef<'d>> GoFile<'d> for Image<'d, R> {
    fn section(&self, name: &str) -> Option<(u64, &'d [u8])> {
        let kept = self.kept.iter().find(|s| s.name == name)?;
        let size = kept.size.min(MAX_CFI);
        Some((kept.address, self.bytes(kept.offset, size)?))
    }

    fn is_code(&self, address: u64) -> bool {
        self.offset_of(address).is_some()
    }
}

/// Adds the rows of all Go functions of `image`; returns whether there were any.
pub(crate) fn read<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    rows: &mut SectionRows,
    rules: &mut RuleSet,
) -> bool {
    let Some(table) = Pclntab::find(image) else {
        return false;
    };
    let before = rows.ranges.len();
    let code = |f: &GoFunction<'_, 'd>| {
        let (offset, _) = image.offset_of(f.entry)?;
        image.bytes(offset, (f.end - f.entry).min(MAX_FUNCTION_BYTES))
    };
    let cross = table
        .functions()
        .find(|f| f.name() == b"runtime.systemstack")
        .and_then(|f| GoroutineSwitch::of(code(&f)?, image.tls_size));
    let left = table
        .functions()
        .find(|f| f.name() == b"runtime.asmcgocall")
        .map_or(0, |f| {
            frame_bytes_at_switch(&f, code(&f).unwrap_or_default())
        });
    // Real tables have fewer ranges than bytes; a hostile one could share ranges between functions.
    let mut budget = table.bytes().len();
    for function in table.functions() {
        let Some((offset, room)) = image.offset_of(function.entry) else {
            continue;
        };
        let end = offset.saturating_add(room.min(function.end - function.entry));
        let (Ok(start), Ok(end)) = (u32::try_from(offset), u32::try_from(end)) else {
            continue;
        };
        // Read the instructions only where they matter: there are many functions.
        let code = || code(&function).unwrap_or_default();
        let mut out = FunctionWriter {
            rows,
            rules,
            code: &code,
            budget: &mut budget,
            first: 0,
            start,
            end,
        };
        out.function(&function, cross, left);
    }
    rows.ranges.len() > before
}

/// Offsets by which the runtime returns to a goroutine's stack, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GoroutineSwitch {
    /// From the thread's TLS base to its current goroutine (g).
    tls: i32,
    /// From a goroutine to its thread (m).
    m: i16,
    /// From a thread to the goroutine that it serves.
    current: i16,
    /// From a goroutine to its saved stack pointer; the instruction pointer follows.
    sp: i16,
}

impl GoroutineSwitch {
    /// Reads the offsets from the end of `systemstack` (`code`), which follows TLS → g → m →
    /// current goroutine → stack pointer.
    fn of(code: &[u8], tls_size: u64) -> Option<GoroutineSwitch> {
        let call = find(code, &[0xff, 0xd7])?;
        let mut at = call + 2;
        let mut next = |wanted: &dyn Fn(Load) -> bool| {
            while at < code.len() {
                match load(&code[at..]) {
                    Some((found, length)) => {
                        at += length;
                        if wanted(found) {
                            return Some(found);
                        }
                    }
                    None => at += 1,
                }
            }
            None
        };
        let g = next(&|l| l.tls)?;
        // In position-independent code the TLS offset comes from a table that the loader fills. It
        // is the only TLS variable unless C code has some.
        let tls = match g.base {
            None => g.offset,
            Some(_) if tls_size == 8 => -8,
            Some(_) => return None,
        };
        let m = next(&|l| !l.tls && l.base == Some(g.to))?;
        let current = next(&|l| !l.tls && l.base == Some(m.to))?;
        let sp = next(&|l| !l.tls && l.base == Some(current.to) && l.to == RSP)?;
        let small = |offset: i32| i16::try_from(offset).ok().filter(|o| *o >= 0 && o % 8 == 0);
        (tls % 8 == 0).then_some(GoroutineSwitch {
            tls,
            m: small(m.offset)?,
            current: small(current.offset)?,
            sp: small(sp.offset)?,
        })
    }

    /// The rule for a switch. `depth`: distance from the saved stack pointer up to the return
    /// address; `None`: the goroutine holds that address. `kept`: distance from the stack pointer
    /// up to the saved goroutine; 0: none.
    fn row(self, depth: Option<i32>, kept: i16) -> RuleRow {
        let Ok(end) = i16::try_from(depth.map_or(0, |d| d.saturating_add(8))) else {
            return RuleRow::End(End::BadRule);
        };
        RuleRow::Rule(Rule {
            kind: KIND_GO,
            cfa_off: self.tls,
            slot: [self.m, self.current, self.sp, end, kept, 0],
            ..Rule::default()
        })
    }
}

/// `mov offset(base), to`, 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Load {
    to: u8,
    /// `None`: an absolute address.
    base: Option<u8>,
    offset: i32,
    tls: bool,
}

/// Decodes the load at the start of `code`; also returns its length.
fn load(code: &[u8]) -> Option<(Load, usize)> {
    let tls = code.first() == Some(&0x64);
    let code = if tls { &code[1..] } else { code };
    let [rex, 0x8b, modrm, rest @ ..] = code else {
        return None;
    };
    if rex & 0xf8 != 0x48 {
        return None;
    }
    let to = modrm >> 3 & 7 | (rex & 4) << 1;
    let base = modrm & 7 | (rex & 1) << 3;
    let long = |at: usize| Some(i32::from_le_bytes(rest.get(at..at + 4)?.try_into().ok()?));
    let (base, offset, length) = match (modrm >> 6, modrm & 7) {
        (0, 4) if rest.first() == Some(&0x25) => (None, long(1)?, 8),
        (0, 4 | 5) | (_, 4) => return None,
        (0, _) => (Some(base), 0, 3),
        (1, _) => (Some(base), i32::from(*rest.first()? as i8), 4),
        (2, _) => (Some(base), long(0)?, 7),
        _ => return None,
    };
    let load = Load {
        to,
        base,
        offset,
        tls,
    };
    Some((
        Load {
            to: dwarf_number(load.to),
            base: load.base.map(dwarf_number),
            ..load
        },
        length + usize::from(tls),
    ))
}

/// Converts a register's machine number to its DWARF number; the order differs below 8.
fn dwarf_number(register: u8) -> u8 {
    const DWARF: [u8; 8] = [0, 2, 1, 3, 7, 6, 4, 5];
    DWARF
        .get(usize::from(register))
        .copied()
        .unwrap_or(register)
}

/// The register that `before` ends by popping, and `within` by pushing.
fn popped_and_pushed(before: &[u8], within: &[u8]) -> Option<u8> {
    let last = |code: &[u8], operation: u8, register: u8| {
        let byte = operation + (register & 7);
        match register < 8 {
            true => code.ends_with(&[byte]),
            false => code.ends_with(&[0x41, byte]),
        }
    };
    // Try the longer encoding first, as it ends like a shorter one.
    let mut all = (0..16).rev();
    all.find(|register| last(before, 0x58, *register) && last(within, 0x50, *register))
}

fn find(code: &[u8], what: &[u8]) -> Option<usize> {
    code.windows(what.len()).position(|w| w == what)
}

/// The offset after the first instruction that sets the stack pointer from a register or from
/// memory.
fn stack_switch_end(code: &[u8]) -> Option<usize> {
    (0..code.len()).find_map(|at| match code[at..] {
        // mov %reg, %rsp
        [0x48 | 0x4c, 0x89, modrm, ..] if modrm & 0xc7 == 0xc4 => Some(at + 3),
        // mov offset(%reg), %rsp
        [0x48 | 0x49, 0x8b, modrm, ..] if modrm & 0xf8 == 0x60 && modrm & 7 != 4 => Some(at + 4),
        _ => None,
    })
}

/// Bytes of `f`'s frame where it switches stacks: 0 in old versions; from Go 1.21 on such functions
/// save their caller's frame pointer.
fn frame_bytes_at_switch(f: &GoFunction<'_, '_>, code: &[u8]) -> i32 {
    let Some(at) = stack_switch_end(code) else {
        return 0;
    };
    let before = f.entry + at as u64 - 1;
    let stretch = f.depths().find(|s| s.end > before);
    stretch.map_or(0, |s| s.value).max(0)
}

/// Distance from the stack pointer up to the goroutine that `asmcgocall` saves, bytes; 0: not
/// found.
fn saved_goroutine_offset(code: &[u8]) -> i16 {
    let from = stack_switch_end(code).unwrap_or(code.len());
    // mov %rdi, …(%rsp), before the register is used for something else
    let at = find(&code[from..], &[0x48, 0x89, 0x7c, 0x24]).map(|at| from + at + 4);
    let offset = at.and_then(|at| code.get(at)).map_or(0, |o| *o as i8);
    i16::from(offset) * i16::from(offset > 0 && offset % 8 == 0)
}

/// The offset after the instruction that saves the stack pointer (`rdx` in `asmcgocall`), and the
/// distance from the new stack pointer up to the slot, bytes.
fn saved_stack_slot(code: &[u8]) -> Option<(usize, i8)> {
    (0..code.len()).find_map(|at| match code[at..] {
        // mov %rdx, (%rsp); mov %rdx, …(%rsp)
        [0x48, 0x89, 0x14, 0x24, ..] => Some((at + 4, 0)),
        [0x48, 0x89, 0x54, 0x24, offset, ..] => Some((at + 5, offset as i8)),
        _ => None,
    })
}

/// Writer of one function's rows.
struct FunctionWriter<'r, 'd> {
    rows: &'r mut SectionRows,
    rules: &'r mut RuleSet,
    /// Reads the function's instructions.
    code: &'r dyn Fn() -> &'d [u8],
    budget: &'r mut usize,
    first: usize,
    /// The function's offsets in the file.
    start: u32,
    end: u32,
}

impl FunctionWriter<'_, '_> {
    /// Adds the rows of `f`. `left`: bytes of the frame that `asmcgocall` leaves on the goroutine's
    /// stack.
    fn function(&mut self, f: &GoFunction<'_, '_>, cross: Option<GoroutineSwitch>, left: i32) {
        self.first = self.rows.rows.len();
        let goroutine_switch = |depth, kept| match cross {
            Some(goroutine_switch) => goroutine_switch.row(depth, kept),
            None => RuleRow::End(End::BadRule),
        };
        match f.name() {
            b"runtime.sigtramp" => self.depths(f, 0..usize::MAX),
            // A handler's return address is looked up one byte earlier.
            name if name.starts_with(b"runtime.sigreturn") => {
                self.start -= u32::from(self.start > 0);
                self.row(0, RuleRow::Signal);
            }
            // A goroutine that called C claims to have stopped here, and this address is on its
            // stack. Where C calls Go, Go returns here, looked up one byte earlier.
            b"runtime.systemstack_switch" => {
                self.start -= u32::from(self.start > 0);
                self.row(0, at_depth(RSP, left));
            }
            name if f.is_top() || name.starts_with(b"_rt0_") => {
                self.row(0, RuleRow::End(End::Root))
            }
            b"runtime.clone" => self.row(0, spawn()),
            b"runtime.mcall" => self.switched(f, RuleRow::End(End::Root)),
            b"runtime.systemstack" => {
                let code = (self.code)();
                self.switched(f, goroutine_switch(Some(frame_bytes_at_switch(f, code)), 0));
                // And back, after the call.
                let at = stack_switch_end(code).unwrap_or(code.len());
                if let Some(back) = stack_switch_end(&code[at..]) {
                    self.depths(f, at + back..usize::MAX);
                }
            }
            b"runtime.morestack" => self.switched(f, goroutine_switch(None, 0)),
            b"runtime.asmcgocall" => {
                self.switched(
                    f,
                    goroutine_switch(Some(left), saved_goroutine_offset((self.code)())),
                );
                self.on_own_stack(f, left);
            }
            b"runtime.cgocallback" => self.depths(f, 0..usize::MAX),
            _ if f.moves_stack() => match find((self.code)(), &[0x49, 0x89, 0xe4]) {
                Some(at) => self.vdso_call(f, at + 3),
                None => self.switched(f, RuleRow::End(End::BadRule)),
            },
            _ => self.depths(f, 0..usize::MAX),
        }
        let count = (self.rows.rows.len() - self.first) as u32;
        if count > 0 && self.start < self.end {
            self.rows.ranges.push(FunctionRows {
                start: self.start,
                end: self.end,
                first: self.first as u32,
                count,
            });
        }
    }

    /// Applies `row` from `at` bytes into the function on.
    fn row(&mut self, at: usize, row: RuleRow) {
        let Ok(at) = u32::try_from(at) else { return };
        let Some(offset) = self.start.checked_add(at).filter(|o| *o < self.end) else {
            return;
        };
        let id = self.rules.id(row);
        match self.rows.rows[self.first..].last_mut() {
            Some(last) if last.0 == offset => last.1 = id,
            _ => self.rows.rows.push((offset, id)),
        }
    }

    /// Adds the table's rows for the part `within` of the function.
    fn depths(&mut self, f: &GoFunction<'_, '_>, within: std::ops::Range<usize>) {
        for stretch in f.depths() {
            if *self.budget == 0 {
                return;
            }
            *self.budget -= 1;
            let start = (stretch.start - f.entry) as usize;
            let end = (stretch.end - f.entry) as usize;
            if start < within.end && end > within.start {
                let popped = (stretch.value == -8).then(|| self.popped(f, stretch));
                let row = popped.flatten();
                let row = row.unwrap_or_else(|| at_depth(RSP, stretch.value));
                self.row(start.max(within.start), row);
            }
        }
    }

    /// The row of a range in which the return address is popped: the register that receives it, if
    /// the range ends by pushing that register again.
    fn popped(&self, f: &GoFunction<'_, '_>, stretch: Stretch) -> Option<RuleRow> {
        let (before, rest) = (self.code)().split_at_checked((stretch.start - f.entry) as usize)?;
        let within = rest.get(..(stretch.end - stretch.start) as usize)?;
        let reg = popped_and_pushed(before, within)?;
        Some(RuleRow::Rule(Rule {
            kind: KIND_REG,
            reg: RSP,
            ra: RA_IN_REG | dwarf_number(reg),
            ..Rule::default()
        }))
    }

    /// Adds the table's rows up to the stack switch, then `after`.
    fn switched(&mut self, f: &GoFunction<'_, '_>, after: RuleRow) {
        match stack_switch_end((self.code)()) {
            Some(at) => {
                self.depths(f, 0..at);
                self.row(at, after);
            }
            None => self.row(0, RuleRow::End(End::BadRule)),
        }
    }

    /// The end of `asmcgocall`, for callers that are already on the thread's stack. It saves the
    /// stack pointer in its frame; the frame above has `deep` bytes.
    fn on_own_stack(&mut self, f: &GoFunction<'_, '_>, deep: i32) {
        let code = (self.code)();
        let from = stack_switch_end(code).unwrap_or(code.len());
        let Some(other) = find(&code[from..], &[0xc3]).map(|at| from + at + 1) else {
            return;
        };
        self.depths(f, other..usize::MAX);
        let Some((kept, offset)) = saved_stack_slot(&code[other..]) else {
            return;
        };
        let kept = other + kept;
        let RuleRow::Rule(above) = at_depth(RSP, deep) else {
            return;
        };
        let row = RuleRow::Rule(Rule {
            kind: KIND_DEREF,
            cfa_off: offset.into(),
            cfa_add: above.cfa_off as i16,
            ..above
        });
        self.row(kept, row);
        if let Some(back) = stack_switch_end(&code[kept..]) {
            self.depths(f, kept + back..usize::MAX);
        }
    }

    /// A call into the vDSO: `r12` holds the stack pointer from `from` on until it is restored. The
    /// same holds for code after the return, which jumps back before the restore.
    fn vdso_call(&mut self, f: &GoFunction<'_, '_>, from: usize) {
        let code = (self.code)();
        let depth = f
            .depths()
            .find(|s| s.end > f.entry + from as u64)
            .map_or(0, |s| s.value);
        let row = at_depth(R12, depth);
        self.depths(f, 0..from);
        self.row(from, row);
        let rest = code.get(from..).unwrap_or_default();
        // mov %r12, %rsp
        let Some(back) = find(rest, &[0x4c, 0x89, 0xe4]).map(|at| from + at + 3) else {
            return;
        };
        self.depths(f, back..usize::MAX);
        if let Some(ret) = find(&code[back..], &[0xc3]).map(|at| back + at + 1)
            && code[ret..].iter().any(|b| *b != 0xcc)
        {
            self.row(ret, row);
        }
    }
}

/// The rule for a frame that begins `depth` bytes and a return address above `reg`.
fn at_depth(reg: u8, depth: i32) -> RuleRow {
    if !(0..1 << 30).contains(&depth) {
        return RuleRow::End(End::BadRule);
    }
    RuleRow::Rule(Rule {
        kind: if reg == RSP { KIND_REG } else { KIND_OTHER },
        reg,
        cfa_off: depth + 8,
        // Functions with a frame save their caller's frame pointer at its top.
        saved: u8::from(depth >= 8) << 1,
        slot: [0, if depth >= 8 { -2 } else { 0 }, 0, 0, 0, 0],
        ..Rule::default()
    })
}

/// The system call that creates a thread: the new thread has no caller.
fn spawn() -> RuleRow {
    RuleRow::Rule(Rule {
        kind: KIND_SPAWN,
        reg: RSP,
        cfa_off: 8,
        ..Rule::default()
    })
}

#[cfg(test)]
#[path = "go_tests.rs"]
mod tests;
