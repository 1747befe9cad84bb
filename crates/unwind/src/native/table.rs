//! One file's unwind table: for every byte of its code, the rule that unwinds a frame there.
//!
//! It is built from `.eh_frame`, or from `.debug_frame` if that is missing, and for Go code from
//! the pclntab (`go.rs`). Rows are keyed by *offset in the file* (pc − start of the mapping + its
//! offset), so one table serves every process and load address. Code that no function covers has
//! rows that say so; no row extends across a gap. Rules for code without unwind information are
//! synthesised (`cfi_synthesis`), except for recognised pieces:
//!
//! * the file's entry point (`_start` of C libraries without unwind information) has no caller by
//!   definition: it is a root, up to its first call;
//! * the return trampoline of signal handlers, recognised by its two instructions (`rt_sigreturn`);
//! * V8's builtins, recognised by V8's exported names;
//! * PLT stubs that only jump (static programs do not describe theirs).
//!
//! Exception tables, personality routines and language data are not read. `packed_rows.rs` encodes a table.

use crate::native::abi::{End, KIND_REG, KIND_SPAWN, Rule};
use crate::native::cfi::{self, FunctionRows, SectionRows};
use crate::native::cfi_synthesis::{self, CodeRange};
use crate::native::go;
use crate::native::image::{Identity, Image, ImageError, Pread};
pub use crate::native::packed_rows::{FallbackMethod, Table};
use crate::native::rules::{RuleRow, RuleSet};
use crate::native::stack_switch;
use gimli::LittleEndian;
use object::read::{ReadCache, ReadRef};
use std::fs::File;

/// Method to unwind the code of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnwindMethod {
    /// By this table.
    Table(Table),
    /// By frame pointer: the compiler keeps them (Go with an unknown pclntab version), or the file
    /// is a cache of run-time code.
    FramePointers,
    /// None: the file has no unwind information, and nothing shows that it keeps frame pointers.
    Nothing,
}

/// Result of parsing a file.
pub(crate) struct Parsed {
    pub code: UnwindMethod,
    pub identity: Option<Identity>,
}

/// Builds the table of an open ELF file.
///
/// ```
/// use wallscope_unwind::native::{End, RuleSet, UnwindMethod, table};
///
/// let mut rules = RuleSet::new(1 << 20);
/// let program = std::fs::File::open("/proc/self/exe")?;
/// let UnwindMethod::Table(table) = table::from_file(&program, &mut rules)? else {
///     panic!("this program has unwind information");
/// };
/// assert!(table.rows() > 1_000);
/// // Its entry point says that it has no caller.
/// assert!(table.iter().any(|(_, rule)| rule == End::Root as u32));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ImageError`] for files that are not x86-64 ELF or have damaged headers.
pub fn from_file(file: &File, rules: &mut RuleSet) -> Result<UnwindMethod, ImageError> {
    let cache = ReadCache::new(Pread::new(file));
    parse(&cache, rules, |_| false).map(|p| p.code)
}

/// Builds the table of an ELF image in memory, such as the vdso.
///
/// # Errors
/// As [`from_file`].
pub fn from_bytes(bytes: &[u8], rules: &mut RuleSet) -> Result<UnwindMethod, ImageError> {
    parse(bytes, rules, |_| false).map(|p| p.code)
}

/// Parses an open ELF file, but builds no table if `known` says that this identity has one.
pub(crate) fn parse_file(
    file: &File,
    rules: &mut RuleSet,
    known: impl Fn(&Identity) -> bool,
) -> Result<Parsed, ImageError> {
    let cache = ReadCache::new(Pread::new(file));
    parse(&cache, rules, known)
}

pub(crate) fn parse<'d, R: ReadRef<'d>>(
    data: R,
    rules: &mut RuleSet,
    known: impl Fn(&Identity) -> bool,
) -> Result<Parsed, ImageError> {
    let (image, identity) = Image::parse(data)?;
    if identity.as_ref().is_some_and(known) {
        return Ok(Parsed {
            code: UnwindMethod::Nothing,
            identity,
        });
    }
    let bases = |section: u64| {
        gimli::BaseAddresses::default()
            .set_eh_frame(section)
            .set_text(image.text)
            .set_got(image.got)
    };
    let mut rows = SectionRows::default();
    if let Some(cfi) = &image.eh_frame {
        let mut section = gimli::EhFrame::new(&cfi.data, LittleEndian);
        section.set_address_size(8);
        rows = cfi::read(&section, &bases(cfi.address), |a| image.offset_of(a), rules);
    }
    if image.go && !go::read(&image, &mut rows, rules) {
        // An unknown version of the table: Go keeps frame pointers too.
        return Ok(Parsed {
            code: UnwindMethod::FramePointers,
            identity,
        });
    }
    if rows.ranges.is_empty()
        && let Some(cfi) = &image.debug_frame
    {
        let mut section = gimli::DebugFrame::new(&cfi.data, LittleEndian);
        section.set_address_size(8);
        rows = cfi::read(&section, &bases(cfi.address), |a| image.offset_of(a), rules);
    }
    stack_switch::remove_wrong_rules(&image, &mut rows, rules);
    rows.ranges.sort_by_key(|r| r.start);
    recognise(&image, &mut rows, rules);
    let fallback = match image.go {
        true => None,
        false => fallback(&image, &mut rows, rules),
    };
    if rows.ranges.is_empty() {
        return Ok(Parsed {
            code: UnwindMethod::Nothing,
            identity,
        });
    }
    let merged = merge(&rows);
    drop(rows);
    let table = Table::encode(&merged, fallback);
    Ok(Parsed {
        code: UnwindMethod::Table(table),
        identity,
    })
}

/// Merges all functions into one list of rows without overlaps; gaps get rows.
fn merge(input: &SectionRows) -> Vec<(u32, u32)> {
    const GAP: u32 = End::NoInfo as u32;
    let mut out: Vec<(u32, u32)> = Vec::with_capacity(input.rows.len() + input.ranges.len() / 2);
    let mut push = |row: (u32, u32)| match out.last_mut() {
        Some(last) if last.0 == row.0 => *last = row,
        Some(last) if last.1 == row.1 => {}
        _ => out.push(row),
    };
    let mut covered = None;
    for (i, range) in input.ranges.iter().enumerate() {
        if let Some(end) = covered
            && end < range.start
        {
            push((end, GAP));
        }
        let limit = match input.ranges.get(i + 1) {
            Some(next) => range.end.min(next.start),
            None => range.end,
        };
        let rows = &input.rows[range.first as usize..(range.first + range.count) as usize];
        for row in rows.iter().take_while(|r| r.0 < limit) {
            push(*row);
        }
        covered = Some(limit.max(covered.unwrap_or(0)));
    }
    if let Some(end) = covered {
        push((end, GAP));
    }
    out
}

/// Adds rules for recognised code without unwind information. `rows.ranges` is sorted, before and
/// after.
fn recognise<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    rows: &mut SectionRows,
    rules: &mut RuleSet,
) {
    let mut found = Vec::new();
    if let Some((start, end)) = entry_code(image, &rows.ranges) {
        found.push((start, end, RuleRow::End(End::Root)));
    }
    for (address, size) in &image.stubs {
        if let Some((start, end)) = plt_jumps(image, *address, *size, &rows.ranges) {
            let row = RuleRow::Rule(Rule {
                kind: KIND_REG,
                reg: 7,
                cfa_off: 8,
                ..Rule::default()
            });
            found.push((start, end, row));
        }
    }
    for (start, end) in clone_gaps(image, &rows.ranges) {
        let row = RuleRow::Rule(Rule {
            kind: KIND_SPAWN,
            reg: 7,
            cfa_off: 8,
            ..Rule::default()
        });
        found.push((start, end, row));
    }
    for at in sigreturn_ends(image, &rows.ranges) {
        found.push((at, at + 1, RuleRow::Signal));
    }
    const MAX_CODE_BYTES: usize = 4 << 20;
    let all = gaps(image, &rows.ranges, MAX_CODE_BYTES);
    for (start, end) in fiber_roots(image, &all) {
        found.push((start, end, RuleRow::End(End::Root)));
    }
    if let Some(code) = builtins(image, &all) {
        let synthesised = cfi_synthesis::synthesise_builtins(&code, image.functions(), rules);
        push_synthesised(rows, &code, synthesised);
    }
    for (start, end) in all {
        if let Some(at) = sigreturn(image, start, end) {
            found.push((at.0, at.1, RuleRow::Signal));
        }
    }
    for (start, end, row) in found {
        rows.push_single(start, end, rules.id(row));
    }
    rows.ranges.sort_by_key(|r| r.start);
}

/// The bytes of the entry point up to and including its first call, if it has no unwind
/// information.
fn entry_code<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    ranges: &[FunctionRows],
) -> Option<(u32, u32)> {
    const MAX_ENTRY_BYTES: u64 = 64;
    if image.entry == 0 {
        return None;
    }
    let (offset, room) = image.offset_of(image.entry)?;
    let start = u32::try_from(offset).ok()?;
    let after = ranges.partition_point(|r| r.start <= start);
    if after > 0 && start < ranges[after - 1].end {
        return None;
    }
    let mut room = room.min(MAX_ENTRY_BYTES);
    if let Some(next) = ranges.get(after) {
        room = room.min((next.start - start) as u64);
    }
    let code = image.bytes(offset, room)?;
    let end = (0..code.len()).find_map(|i| match code[i..] {
        // call rel32 to an address in the code
        [0xe8, a, b, c, d, ..] => {
            let next = image.entry + i as u64 + 5;
            let target = next.wrapping_add(i32::from_le_bytes([a, b, c, d]) as i64 as u64);
            image.offset_of(target).map(|_| i + 5)
        }
        // call *disp32(%rip)
        [0xff, 0x15, _, _, _, _, ..] => Some(i + 6),
        _ => None,
    })?;
    Some((start, start + end as u32))
}

/// The few instructions from the system call of `clone` to the branch between both threads. C
/// libraries give them no unwind information, as no rule holds for both threads.
fn clone_gaps<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    ranges: &[FunctionRows],
) -> Vec<(u32, u32)> {
    const MAX_GAP_BYTES: u32 = 24;
    /// `syscall; test %rax,%rax`
    const CODE: [u8; 5] = [0x0f, 0x05, 0x48, 0x85, 0xc0];
    ranges
        .windows(2)
        .map(|pair| (pair[0].end, pair[1].start))
        // Padding between functions ends at a multiple of 16.
        .filter(|(start, end)| start < end && end - start <= MAX_GAP_BYTES && end % 16 != 0)
        .filter(|(start, _)| {
            image
                .bytes(u64::from(*start), 5)
                .is_some_and(|b| *b == CODE)
        })
        .collect()
}

/// Roots of fiber stacks made by Boost's assembler (`make_fcontext`, in Boost.Context, PHP and
/// others): a jump to the fiber's function, which returns to a call of `_exit`.
fn fiber_roots<'d, R: ReadRef<'d>>(image: &Image<'d, R>, gaps: &[(u32, u32)]) -> Vec<(u32, u32)> {
    /// `push %rbp; jmp *%rbx`
    const BEGIN: &[u8] = &[0x55, 0xff, 0xe3];
    /// `endbr64`, where indirect branch targets are checked.
    const TARGET: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    /// `xor %rdi,%rdi; call`
    const END: &[u8] = &[0x48, 0x31, 0xff, 0xe8];
    let mut found = Vec::new();
    for (start, end) in gaps {
        let Some(code) = image.bytes(u64::from(*start), u64::from(end - start)) else {
            continue;
        };
        for at in memchr::memmem::find_iter(code, BEGIN) {
            let then = &code[at + BEGIN.len()..];
            let exit = then.strip_prefix(TARGET).unwrap_or(then);
            if exit.starts_with(END) {
                let length = BEGIN.len() + then.len() - exit.len() + END.len() + 4;
                let first = start + at as u32;
                found.push((first, (first + length as u32).min(*end)));
            }
        }
    }
    found
}

/// The address at which a thread stands inside `rt_sigreturn`: just after the described code, as
/// nothing returns there.
fn sigreturn_ends<'d, R: ReadRef<'d>>(image: &Image<'d, R>, ranges: &[FunctionRows]) -> Vec<u32> {
    const MAX_TRAMPOLINE_BYTES: u32 = 16;
    /// `mov $15,%rax; syscall`
    const CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    ranges
        .windows(2)
        .filter(|pair| {
            pair[0].end < pair[1].start && pair[0].end - pair[0].start <= MAX_TRAMPOLINE_BYTES
        })
        .map(|pair| pair[0].end)
        .filter(|end| {
            let code = end
                .checked_sub(9)
                .and_then(|at| image.bytes(u64::from(at), 9));
            code.is_some_and(|b| *b == CODE)
        })
        .collect()
}

/// The start of a PLT section that consists of `jmp *disp32(%rip)` and padding, if it has no unwind
/// information.
fn plt_jumps<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    address: u64,
    size: u64,
    ranges: &[FunctionRows],
) -> Option<(u32, u32)> {
    const MAX_SECTION_BYTES: u64 = 1 << 20;
    let (offset, room) = image.offset_of(address)?;
    let start = u32::try_from(offset).ok()?;
    let code = image.bytes(offset, size.min(room).min(MAX_SECTION_BYTES))?;
    let limit = start.checked_add(code.len() as u32)?;
    let next = ranges.partition_point(|r| r.end <= start);
    if ranges.get(next).is_some_and(|r| r.start < limit) {
        return None;
    }
    let mut at = 0;
    loop {
        let rest = code.get(at..)?;
        let rest = rest.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(rest);
        let rest = rest.strip_prefix(&[0xf2]).unwrap_or(rest);
        if rest.len() < 6 || rest[..2] != [0xff, 0x25] {
            break;
        }
        at = code.len() - rest.len() + 6;
        // Padding of a stub to 8 or 16 bytes.
        const FILL: [&[u8]; 5] = [
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0x00],
            &[0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0xcc],
        ];
        while let Some(fill) = FILL.iter().find(|f| code[at..].starts_with(f)) {
            at += fill.len();
        }
    }
    (at > 0).then(|| (start, start + at as u32))
}

/// Adds synthesised rules for the remaining code. `rows.ranges` is sorted, before and after.
fn fallback<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    rows: &mut SectionRows,
    rules: &mut RuleSet,
) -> Option<FallbackMethod> {
    const MIN_REPORTED_BYTES: usize = 16 << 10;
    let all = gaps(image, &rows.ranges, usize::MAX);
    let total: usize = (all.iter())
        .map(|(start, end)| (end - start) as usize)
        .sum();
    let reported = |how| (total >= MIN_REPORTED_BYTES).then_some(how);
    let wide: Vec<(u64, u64)> = (all.iter())
        .map(|(start, end)| (u64::from(*start), u64::from(*end)))
        .collect();
    if cfi_synthesis::keeps_frame_pointers(&wide, |at, len| image.bytes(at, len)) {
        for (start, end) in &all {
            rows.push_single(*start, *end, rules.id(RuleRow::FramePointer));
        }
        rows.ranges.sort_by_key(|r| r.start);
        return reported(FallbackMethod::FramePointers);
    }
    if total > cfi_synthesis::MAX_CODE_BYTES {
        return None;
    }
    let code: Vec<CodeRange<'_>> = (all.iter())
        .filter_map(|(start, end)| {
            Some(CodeRange {
                address: image.address_of(u64::from(*start))?,
                offset: *start,
                bytes: image.bytes(u64::from(*start), u64::from(end - start))?,
            })
        })
        .collect();
    let followed = cfi_synthesis::synthesise(&code, image.functions(), rules);
    for (stretch, synthesised) in code.iter().zip(followed) {
        push_synthesised(rows, stretch, synthesised);
    }
    rows.ranges.sort_by_key(|r| r.start);
    reported(FallbackMethod::Synthesised)
}

/// Adds the synthesised rules of a range.
fn push_synthesised(rows: &mut SectionRows, stretch: &CodeRange<'_>, synthesised: Vec<(u32, u32)>) {
    rows.ranges.push(FunctionRows {
        start: stretch.offset,
        end: stretch.offset + stretch.bytes.len() as u32,
        first: rows.rows.len() as u32,
        count: synthesised.len() as u32,
    });
    rows.rows.extend(synthesised);
}

/// Gaps in the unwind information that are longer than padding, up to `most` bytes in all.
fn gaps<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    ranges: &[FunctionRows],
    most: usize,
) -> Vec<(u32, u32)> {
    const MIN_GAP_BYTES: u32 = 25;
    let mut left = most;
    let mut out = Vec::new();
    for s in &image.segments {
        let (Ok(start), Ok(end)) = (
            u32::try_from(s.offset),
            u32::try_from(s.offset.saturating_add(s.size)),
        ) else {
            continue;
        };
        let mut at = start;
        let from = ranges.partition_point(|r| r.end <= start);
        let to = ranges.partition_point(|r| r.start < end);
        let mut gap = |a: u32, b: u32| {
            if b.saturating_sub(a) >= MIN_GAP_BYTES && left >= (b - a) as usize {
                left -= (b - a) as usize;
                out.push((a, b));
            }
        };
        for r in ranges.get(from..to).unwrap_or(&[]) {
            gap(at, r.start);
            at = at.max(r.end);
        }
        gap(at, end);
    }
    out
}

/// V8's builtins: one large gap in a file that exports V8's names.
fn builtins<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    gaps: &[(u32, u32)],
) -> Option<CodeRange<'d>> {
    const MIN_BUILTINS_BYTES: u32 = 256 << 10;
    const NAME: &[u8] = b"\0v8dbg_";
    let (start, end) = *gaps.iter().max_by_key(|(start, end)| end - start)?;
    if end - start < MIN_BUILTINS_BYTES {
        return None;
    }
    let names = image.kept.iter().find(|s| s.name == ".dynstr")?;
    let names = image.bytes(names.offset, names.size)?;
    if !names.windows(NAME.len()).any(|w| w == NAME) {
        return None;
    }
    Some(CodeRange {
        address: image.address_of(u64::from(start))?,
        offset: start,
        bytes: image.bytes(u64::from(start), u64::from(end - start))?,
    })
}

/// The range of `mov $15, %eax; syscall` between two offsets, extended by one byte before it: a
/// return address is looked up one byte earlier.
fn sigreturn<'d, R: ReadRef<'d>>(image: &Image<'d, R>, start: u32, end: u32) -> Option<(u32, u32)> {
    const LONG: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    const SHORT: [u8; 7] = [0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05];
    let code = image.bytes(start as u64, (end - start) as u64)?;
    let find = |what: &[u8]| {
        code.windows(what.len())
            .position(|w| w == what)
            .map(|i| (i, what.len()))
    };
    let (at, len) = find(&LONG).or_else(|| find(&SHORT))?;
    let first = (start + at as u32).saturating_sub(1).max(start);
    Some((first, start + (at + len) as u32))
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
