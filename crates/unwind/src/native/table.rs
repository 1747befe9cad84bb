//! One file's unwind table: for every byte of its code, how to leave the frame that executes it.
//!
//! Built from `.eh_frame`, or `.debug_frame` where that is missing; of Go code from its own table
//! (`go.rs`). Rows are keyed by *offset in the file* (pc − start of the mapping + its offset), so that
//! a table serves every process and every load address as it is. Code that no function description
//! covers has rows of its own that say so; nothing is inherited across a gap. Code without a description
//! is told by its own instructions (`conduct.rs`), but for what is recognised as it is:
//!
//! * the entry point of the file (`_start` of C libraries that describe nothing): it has no
//!   caller by definition, so it is the root, but only its bytes up to its first call;
//! * the code that signal handlers return to, by its two instructions (`rt_sigreturn`), in gaps;
//! * the functions that V8 brings along, by the names that it exports;
//! * linkage stubs that do nothing but jump (those of static programs have no description).
//!
//! Rows are grouped in blocks of 4 KiB of the file, so that a search is short. The encoding is
//! described in `bpf/unwind_abi.h`. It does not read what a file says about exceptions, personality
//! or language.

use crate::native::abi::{End, KIND_REG, KIND_SPAWN, Rule};
use crate::native::cfi::{self, Range, Rows};
use crate::native::conduct::{self, Stretch};
use crate::native::contexts;
use crate::native::go;
use crate::native::image::{Identity, Image, ImageError, Pread};
use crate::native::rules::{Row, RuleSet};
use gimli::LittleEndian;
use object::read::{ReadCache, ReadRef};
use std::fs::File;

const BLOCK_SHIFT: u32 = 12;

/// How code of a file is unwound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// By this table.
    Table(Table),
    /// By frame pointer: its compiler keeps them (Go, of a version whose own table is not known), or
    /// it is not a program file but a cache of code made at run time.
    FramePointers,
    /// Not at all: it has no unwind information, and nothing says that it keeps frame pointers.
    Nothing,
}

/// How code of a file is unwound that nothing describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Undescribed {
    /// By what its instructions do.
    Followed,
    /// By frame pointers, as most of its functions begin by making one.
    FramePointers,
}

/// The encoded table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    words: Vec<u64>,
    rows: usize,
    undescribed: Option<Undescribed>,
}

/// What a file turned out to be.
pub(crate) struct Parsed {
    pub code: Code,
    pub identity: Option<Identity>,
}

impl Table {
    /// Encodes rows that are sorted by offset without repetition, each (file offset, rule id).
    fn encode(rows: &[(u32, u32)]) -> Table {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Table::default();
        };
        let first_block = first.0 >> BLOCK_SHIFT;
        let blocks = (last.0 >> BLOCK_SHIFT) - first_block + 1;
        let index_words = 1 + (blocks >> 1) as usize;
        let mut words = vec![0u64; 1 + index_words];
        words.reserve_exact(rows.len());
        words[0] = (blocks as u64) << 32 | first_block as u64;
        let mut set = |block: u32, row: usize| {
            words[1 + (block >> 1) as usize] |= (row as u64) << (32 * (block & 1));
        };
        let mut next = 0;
        for (i, (offset, _)) in rows.iter().enumerate() {
            while next <= (offset >> BLOCK_SHIFT) - first_block {
                set(next, i);
                next += 1;
            }
        }
        set(blocks, rows.len());
        words.extend(rows.iter().map(|(o, r)| (*o as u64) << 32 | *r as u64));
        Table {
            words,
            rows: rows.len(),
            undescribed: None,
        }
    }

    /// How code is unwound that nothing describes, if there is much of it (16 KiB and more).
    pub fn undescribed(&self) -> Option<Undescribed> {
        self.undescribed
    }

    /// The words that go into the kernel.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// (file offset, rule id), sorted.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (self.row_words().iter()).map(|w| ((w >> 32) as u32, *w as u32))
    }

    /// The same as they are kept: offset << 32 | rule id.
    pub(crate) fn row_words(&self) -> &[u64] {
        &self.words[self.words.len() - self.rows..]
    }
}

/// Builds the table of an open ELF file.
///
/// # Errors
/// [`ImageError`] for files that are not x86-64 ELF or whose headers are damaged.
pub fn from_file(file: &File, rules: &mut RuleSet) -> Result<Code, ImageError> {
    let cache = ReadCache::new(Pread::new(file));
    parse(&cache, rules, |_| false).map(|p| p.code)
}

/// Builds the table of an ELF image in memory, such as the vdso.
///
/// # Errors
/// As [`from_file`].
pub fn from_bytes(bytes: &[u8], rules: &mut RuleSet) -> Result<Code, ImageError> {
    parse(bytes, rules, |_| false).map(|p| p.code)
}

/// As [`from_file`], but leaves the table out where `known` says that this identity has one.
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
            code: Code::Nothing,
            identity,
        });
    }
    let bases = |section: u64| {
        gimli::BaseAddresses::default()
            .set_eh_frame(section)
            .set_text(image.text)
            .set_got(image.got)
    };
    let mut rows = Rows::default();
    if let Some(cfi) = &image.eh_frame {
        let mut section = gimli::EhFrame::new(&cfi.data, LittleEndian);
        section.set_address_size(8);
        rows = cfi::read(&section, &bases(cfi.address), |a| image.offset_of(a), rules);
    }
    if image.go && !go::read(&image, &mut rows, rules) {
        // A table of a kind that is not known: its compiler keeps frame pointers too.
        return Ok(Parsed {
            code: Code::FramePointers,
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
    contexts::mend(&image, &mut rows, rules);
    rows.ranges.sort_by_key(|r| r.start);
    recognise(&image, &mut rows, rules);
    let undescribed = match image.go {
        true => None,
        false => undescribed(&image, &mut rows, rules),
    };
    if rows.ranges.is_empty() {
        return Ok(Parsed {
            code: Code::Nothing,
            identity,
        });
    }
    let merged = merge(&rows);
    drop(rows);
    let table = Table {
        undescribed,
        ..Table::encode(&merged)
    };
    Ok(Parsed {
        code: Code::Table(table),
        identity,
    })
}

/// Joins all functions to one list of rows without overlaps, gaps made explicit.
fn merge(input: &Rows) -> Vec<(u32, u32)> {
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

/// Adds what is known about code without a description. `rows.ranges` is sorted, before and after.
fn recognise<'d, R: ReadRef<'d>>(image: &Image<'d, R>, rows: &mut Rows, rules: &mut RuleSet) {
    let mut found = Vec::new();
    if let Some((start, end)) = entry_code(image, &rows.ranges) {
        found.push((start, end, Row::End(End::Root)));
    }
    for (address, size) in &image.stubs {
        if let Some((start, end)) = jumps(image, *address, *size, &rows.ranges) {
            let row = Row::Rule(Rule {
                kind: KIND_REG,
                reg: 7,
                cfa_off: 8,
                ..Rule::default()
            });
            found.push((start, end, row));
        }
    }
    for (start, end) in spawns(image, &rows.ranges) {
        let row = Row::Rule(Rule {
            kind: KIND_SPAWN,
            reg: 7,
            cfa_off: 8,
            ..Rule::default()
        });
        found.push((start, end, row));
    }
    for at in sigreturn_ends(image, &rows.ranges) {
        found.push((at, at + 1, Row::Signal));
    }
    const MOST: usize = 4 << 20;
    let all = gaps(image, &rows.ranges, MOST);
    for (start, end) in fibers(image, &all) {
        found.push((start, end, Row::End(End::Root)));
    }
    if let Some(code) = builtins(image, &all) {
        let told = conduct::builtins(&code, image.functions(), rules);
        push_followed(rows, &code, told);
    }
    for (start, end) in all {
        if let Some(at) = sigreturn(image, start, end) {
            found.push((at.0, at.1, Row::Signal));
        }
    }
    for (start, end, row) in found {
        rows.push_single(start, end, rules.id(row));
    }
    rows.ranges.sort_by_key(|r| r.start);
}

/// The bytes of the entry point up to and including its first call, if nothing describes them.
fn entry_code<'d, R: ReadRef<'d>>(image: &Image<'d, R>, ranges: &[Range]) -> Option<(u32, u32)> {
    const LONGEST: u64 = 64;
    if image.entry == 0 {
        return None;
    }
    let (offset, room) = image.offset_of(image.entry)?;
    let start = u32::try_from(offset).ok()?;
    let after = ranges.partition_point(|r| r.start <= start);
    if after > 0 && start < ranges[after - 1].end {
        return None;
    }
    let mut room = room.min(LONGEST);
    if let Some(next) = ranges.get(after) {
        room = room.min((next.start - start) as u64);
    }
    let code = image.bytes(offset, room)?;
    let end = (0..code.len()).find_map(|i| match code[i..] {
        // call rel32 that stays within the code
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

/// The few instructions from the system call of `clone` to where the two threads part. C libraries
/// leave them without a description, as nothing said could be true for both.
fn spawns<'d, R: ReadRef<'d>>(image: &Image<'d, R>, ranges: &[Range]) -> Vec<(u32, u32)> {
    const LONGEST: u32 = 24;
    /// `syscall; test %rax,%rax`
    const CODE: [u8; 5] = [0x0f, 0x05, 0x48, 0x85, 0xc0];
    ranges
        .windows(2)
        .map(|pair| (pair[0].end, pair[1].start))
        // Padding between functions ends at a multiple of 16.
        .filter(|(start, end)| start < end && end - start <= LONGEST && end % 16 != 0)
        .filter(|(start, _)| {
            image
                .bytes(u64::from(*start), 5)
                .is_some_and(|b| *b == CODE)
        })
        .collect()
}

/// Where stacks of fibers begin that were made by Boost's assembler (`make_fcontext`, in Boost.Context itself,
/// PHP, and what else was built with it): a jump to the fiber's function, whose return leads to `_exit`.
fn fibers<'d, R: ReadRef<'d>>(image: &Image<'d, R>, gaps: &[(u32, u32)]) -> Vec<(u32, u32)> {
    /// `push %rbp; jmp *%rbx`
    const BEGIN: &[u8] = &[0x55, 0xff, 0xe3];
    /// `endbr64`, where it was built to check the targets of jumps.
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

/// Where a thread stands inside the system call that ends a signal handler: just behind the code
/// that C libraries describe, as nothing ever returns there.
fn sigreturn_ends<'d, R: ReadRef<'d>>(image: &Image<'d, R>, ranges: &[Range]) -> Vec<u32> {
    const LONGEST: u32 = 16;
    /// `mov $15,%rax; syscall`
    const CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    ranges
        .windows(2)
        .filter(|pair| pair[0].end < pair[1].start && pair[0].end - pair[0].start <= LONGEST)
        .map(|pair| pair[0].end)
        .filter(|end| {
            let code = end
                .checked_sub(9)
                .and_then(|at| image.bytes(u64::from(at), 9));
            code.is_some_and(|b| *b == CODE)
        })
        .collect()
}

/// The leading part of a section of stubs that consists of `jmp *disp32(%rip)` and padding, if
/// nothing describes the section.
fn jumps<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    address: u64,
    size: u64,
    ranges: &[Range],
) -> Option<(u32, u32)> {
    const MOST: u64 = 1 << 20;
    let (offset, room) = image.offset_of(address)?;
    let start = u32::try_from(offset).ok()?;
    let code = image.bytes(offset, size.min(room).min(MOST))?;
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
        // What fills up a stub of 8 or 16 bytes.
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

/// Adds what the instructions of the remaining code tell. `rows.ranges` is sorted, before and after.
fn undescribed<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    rows: &mut Rows,
    rules: &mut RuleSet,
) -> Option<Undescribed> {
    const MUCH: usize = 16 << 10;
    let all = gaps(image, &rows.ranges, usize::MAX);
    let total: usize = (all.iter())
        .map(|(start, end)| (end - start) as usize)
        .sum();
    let much = |how| (total >= MUCH).then_some(how);
    let wide: Vec<(u64, u64)> = (all.iter())
        .map(|(start, end)| (u64::from(*start), u64::from(*end)))
        .collect();
    if conduct::keeps_frame_pointers(&wide, |at, len| image.bytes(at, len)) {
        for (start, end) in &all {
            rows.push_single(*start, *end, rules.id(Row::FramePointer));
        }
        rows.ranges.sort_by_key(|r| r.start);
        return much(Undescribed::FramePointers);
    }
    if total > conduct::MOST {
        return None;
    }
    let code: Vec<Stretch<'_>> = (all.iter())
        .filter_map(|(start, end)| {
            Some(Stretch {
                address: image.address_of(u64::from(*start))?,
                offset: *start,
                bytes: image.bytes(u64::from(*start), u64::from(end - start))?,
            })
        })
        .collect();
    let followed = conduct::follow(&code, image.functions(), rules);
    for (stretch, told) in code.iter().zip(followed) {
        push_followed(rows, stretch, told);
    }
    rows.ranges.sort_by_key(|r| r.start);
    much(Undescribed::Followed)
}

/// Adds what the instructions of a stretch told.
fn push_followed(rows: &mut Rows, stretch: &Stretch<'_>, told: Vec<(u32, u32)>) {
    rows.ranges.push(Range {
        start: stretch.offset,
        end: stretch.offset + stretch.bytes.len() as u32,
        first: rows.rows.len() as u32,
        count: told.len() as u32,
    });
    rows.rows.extend(told);
}

/// Stretches of code between descriptions that are longer than padding, so many bytes of them at most.
fn gaps<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    ranges: &[Range],
    most: usize,
) -> Vec<(u32, u32)> {
    const SHORTEST: u32 = 25;
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
            if b.saturating_sub(a) >= SHORTEST && left >= (b - a) as usize {
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

/// V8's own functions that it made when it was built: one large stretch without descriptions.
fn builtins<'d, R: ReadRef<'d>>(image: &Image<'d, R>, gaps: &[(u32, u32)]) -> Option<Stretch<'d>> {
    const LEAST: u32 = 256 << 10;
    const NAME: &[u8] = b"\0v8dbg_";
    let (start, end) = *gaps.iter().max_by_key(|(start, end)| end - start)?;
    if end - start < LEAST {
        return None;
    }
    let names = image.kept.iter().find(|s| s.name == ".dynstr")?;
    let names = image.bytes(names.offset, names.size)?;
    if !names.windows(NAME.len()).any(|w| w == NAME) {
        return None;
    }
    Some(Stretch {
        address: image.address_of(u64::from(start))?,
        offset: start,
        bytes: image.bytes(u64::from(start), u64::from(end - start))?,
    })
}

/// `mov $15, %eax; syscall` between two offsets, one byte more in front: what returns there is
/// looked up at the byte before.
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
