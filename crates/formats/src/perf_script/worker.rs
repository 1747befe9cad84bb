//! One worker: a piece of the text → records, and the lines and stacks that are new to the worker.
//!
//! Lines, stacks and names get numbers of the worker's own, which the assembler translates. The innermost
//! frame differs from sample to sample, but its callers repeat. So a stack is looked up in parts: its
//! innermost frames, and all their callers. Only a new part is parsed, and the offset within a function is
//! not kept.

use std::hash::BuildHasher;
use std::ops::Range;

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::header::{self, Switch};
use super::{frame, lines};

/// A record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Numbers of names.
    pub comm: u32,
    pub event: u32,
    pub pid: u32,
    pub tid: u32,
    pub cpu: Option<u32>,
    pub time: Option<u64>,
    pub period: Option<u64>,
    /// Number of its stack.
    pub stack: u32,
    pub switch: Option<Switch>,
}

/// The records of a piece, and the names, lines and stacks in it that are new.
#[derive(Default)]
pub(super) struct Parsed {
    /// Whether the worker has forgotten all before: numbers begin anew.
    pub anew: bool,
    pub records: Vec<Record>,
    /// Names, lines and stacks met for the first time, in the order of their numbers.
    pub names: Vec<Box<[u8]>>,
    pub lines: Vec<Box<[u8]>>,
    /// Stacks as numbers of lines, leaf first: their lengths, and all of them one after the other.
    pub lengths: Vec<u32>,
    pub stacks: Vec<u32>,
    /// Lines that are neither a header nor a frame.
    pub junk: u64,
}

/// Texts seen before, and their numbers. A hash of 64 bits finds them; the bytes decide.
#[derive(Default)]
struct Known {
    of: FxHashMap<u64, (usize, u32, u32)>,
    bytes: Vec<u8>,
    next: u32,
}

impl Known {
    /// The number of `text`, and whether it is new.
    fn number(&mut self, text: &[u8]) -> (u32, bool) {
        let mut hash = FxBuildHasher.hash_one(text);
        loop {
            match self.of.get(&hash) {
                Some((at, len, number)) => {
                    if &self.bytes[*at..*at + *len as usize] == text {
                        return (*number, false);
                    }
                    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
                }
                None => {
                    let (at, number) = (self.bytes.len(), self.next);
                    self.next += 1;
                    self.bytes.extend_from_slice(text);
                    self.of.insert(hash, (at, text.len() as u32, number));
                    return (number, true);
                }
            }
        }
    }

    /// Its size in memory, about, bytes.
    fn size(&self) -> usize {
        self.bytes.len() + 64 * self.of.len()
    }
}

/// A part of a stack by its bytes: their hash of 64 bits and their number. In a file of ten million
/// different parts, the probability that two are taken for one is one in several hundred thousand.
type Fingerprint = (u64, usize);

fn fingerprint(text: &[u8]) -> Fingerprint {
    (FxBuildHasher.hash_one(text), text.len())
}

/// A stack's parts: the innermost frame, further frames of the kernel, the program's innermost frame,
/// its callers. Those that it does not have are empty.
type Parts<T> = [T; 4];

/// Divides a stack into its parts.
fn parts(body: &[u8]) -> Parts<&[u8]> {
    // The end of the first frame, with the functions inlined into it.
    let frame = |from: usize| {
        let mut at = from;
        loop {
            let rest = &body[at..];
            let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            at += length + 1;
            if at >= body.len() || !rest[..length].ends_with(b"(inlined)") {
                return at.min(body.len());
            }
        }
    };
    let is_kernel = |at: usize| {
        let line = body[at..].trim_ascii_start();
        line.starts_with(b"ffff") && line.get(16) == Some(&b' ')
    };
    let first = frame(0);
    if !is_kernel(0) {
        return [&body[..first], &[], &[], &body[first..]];
    }
    let mut user = first;
    while user < body.len() && is_kernel(user) {
        user = frame(user);
    }
    let callers = if user < body.len() { frame(user) } else { user };
    [
        &body[..first],
        &body[first..user],
        &body[user..callers],
        &body[callers..],
    ]
}

/// A worker, with the lines and stacks of all pieces so far.
#[derive(Default)]
pub(super) struct Worker {
    room: usize,
    names: Known,
    lines: Known,
    parts: FxHashMap<Fingerprint, u32>,
    /// The lines of each part, and all of them one after the other.
    ranges: Vec<Range<usize>>,
    frames: Vec<u32>,
    /// The parts of a line that are kept.
    key: Vec<u8>,
    /// Stacks by the numbers of their parts.
    stacks: FxHashMap<Parts<u32>, u32>,
}

impl Worker {
    /// A worker that may use about `room` bytes.
    pub(super) fn new(room: usize) -> Worker {
        Worker {
            room,
            ..Worker::default()
        }
    }

    /// Its size in memory, about, bytes.
    fn size(&self) -> usize {
        self.names.size()
            + self.lines.size()
            + 64 * self.parts.len()
            + 4 * self.frames.len()
            + 48 * self.stacks.len()
    }

    fn name(&mut self, text: &[u8], to: &mut Parsed) -> u32 {
        let (number, new) = self.names.number(text);
        if new {
            to.names.push(text.into());
        }
        number
    }

    /// The number of a part of a stack.
    fn part(&mut self, part: &[u8], to: &mut Parsed) -> u32 {
        let next = self.parts.len() as u32;
        let number = *self.parts.entry(fingerprint(part)).or_insert(next);
        if number == next {
            let before = self.frames.len();
            for line in part.split(|c| *c == b'\n') {
                let line = line.trim_ascii_end();
                if line.is_empty() || frame::is_source_line(line) {
                    continue;
                }
                if !lines::is_frame(line) {
                    to.junk += 1;
                    continue;
                }
                self.key.clear();
                frame::without_place(line, &mut self.key);
                let (number, new) = self.lines.number(&self.key);
                if new {
                    to.lines.push(line.into());
                }
                self.frames.push(number);
            }
            self.ranges.push(before..self.frames.len());
        }
        number
    }

    /// The number of a stack given by its lines, which may be none.
    fn stack(&mut self, body: &[u8], to: &mut Parsed) -> u32 {
        let key = parts(body).map(|part| self.part(part, to));
        let next = self.stacks.len() as u32;
        let number = *self.stacks.entry(key).or_insert(next);
        if number == next {
            let before = to.stacks.len();
            for part in key {
                let lines = self.ranges[part as usize].clone();
                to.stacks.extend_from_slice(&self.frames[lines]);
            }
            to.lengths.push((to.stacks.len() - before) as u32);
        }
        number
    }

    /// Parses a piece.
    pub(super) fn parse(&mut self, text: &[u8]) -> Parsed {
        let mut to = Parsed::default();
        if self.size() > self.room {
            *self = Worker::new(self.room);
            to.anew = true;
        }
        let mut rest = text;
        while !rest.is_empty() {
            let end = match lines::begins_stack(rest) {
                // A stack without a header.
                true => None,
                false => Some(memchr::memchr(b'\n', rest).unwrap_or(rest.len())),
            };
            let (head, after) = match end {
                Some(end) => (&rest[..end], rest.get(end + 1..).unwrap_or_default()),
                None => (&b""[..], rest),
            };
            let mut body = &b""[..];
            rest = after;
            if lines::begins_stack(after) {
                let end = lines::stack_end(after);
                body = &after[..end];
                rest = after.get(end + 1..).unwrap_or_default();
            }
            let empty = body.is_empty() && head.trim_ascii().is_empty();
            if empty || head.starts_with(b"#") || header::is_sideband(head) {
                continue;
            }
            let header = match body.is_empty() {
                true => header::parse(head),
                false => header::parse_any(head),
            };
            let Some(h) = header else {
                to.junk += 1;
                continue;
            };
            let switch = if h.event.ends_with(b"sched_switch") {
                header::switch(h.rest)
            } else {
                None
            };
            let alone = body.is_empty() && switch.is_none();
            // A record without a stack has its one frame on the same line.
            let own = alone.then(|| header::own_frame(h.rest));
            let own = own.filter(|f| frame::parse(f).is_some_and(|f| f.address.is_some()));
            let stack = match own {
                Some(frame) => self.stack(&[b"\t", frame].concat(), &mut to),
                None => self.stack(frame::without_fields(body), &mut to),
            };
            let comm = self.name(h.comm, &mut to);
            let event = self.name(h.event, &mut to);
            to.records.push(Record {
                comm,
                event,
                pid: h.pid,
                tid: h.tid,
                cpu: h.cpu,
                time: h.time,
                period: h.period,
                stack,
                switch,
            });
        }
        to
    }
}
