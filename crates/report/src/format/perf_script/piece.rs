//! One worker's part: a piece of the text → records, and the lines and stacks that are new to it.
//!
//! Lines, stacks and names get numbers of the worker's own, which the joiner translates. A stack
//! is looked up by all its bytes first; only where it is new is it taken apart.

use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::line::{self, Switch};

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

/// What a piece held, and what of it was new.
#[derive(Default)]
pub(super) struct Parsed {
    pub records: Vec<Record>,
    /// Names, lines and stacks met for the first time, in the order of their numbers.
    pub names: Vec<Box<[u8]>>,
    pub lines: Vec<Box<[u8]>>,
    /// Stacks as numbers of lines, leaf first: their lengths, and all of them one after the other.
    pub lengths: Vec<u32>,
    pub stacks: Vec<u32>,
    /// Lines that are neither.
    pub junk: u64,
}

/// Bytes that were met before, and their numbers. A hash of 64 bits finds them; the bytes decide.
struct Known {
    of: FxHashMap<u64, (usize, u32, u32)>,
    bytes: Vec<u8>,
    next: u32,
    room: usize,
}

impl Known {
    fn new(room: usize) -> Known {
        Known {
            of: FxHashMap::default(),
            bytes: Vec::new(),
            next: 0,
            room,
        }
    }

    /// The number of `text`, and whether it is new. Where memory ends, all further ones are new.
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
                    let number = self.next;
                    self.next += 1;
                    if self.bytes.len() + text.len() + 64 * self.of.len() < self.room {
                        let at = self.bytes.len();
                        self.bytes.extend_from_slice(text);
                        self.of.insert(hash, (at, text.len() as u32, number));
                    }
                    return (number, true);
                }
            }
        }
    }
}

/// What a worker remembers from piece to piece.
pub(super) struct Worker {
    names: Known,
    lines: Known,
    stacks: Known,
    none: Option<u32>,
}

impl Worker {
    /// A worker that may use so many bytes.
    pub(super) fn new(memory: u64) -> Worker {
        let room = usize::try_from(memory).unwrap_or(usize::MAX);
        Worker {
            names: Known::new(room / 8),
            lines: Known::new(room / 3),
            stacks: Known::new(room / 2),
            none: None,
        }
    }

    fn name(&mut self, text: &[u8], to: &mut Parsed) -> u32 {
        let (number, new) = self.names.number(text);
        if new {
            to.names.push(text.into());
        }
        number
    }

    /// The number of a stack given by its lines.
    fn stack(&mut self, body: &[u8], to: &mut Parsed) -> u32 {
        let (number, new) = self.stacks.number(body);
        if new {
            let before = to.stacks.len();
            for line in body.split(|c| *c == b'\n') {
                if line.is_empty() {
                    continue;
                }
                if !line::is_frame(line) {
                    to.junk += 1;
                    continue;
                }
                let (number, new) = self.lines.number(line);
                if new {
                    to.lines.push(line.into());
                }
                to.stacks.push(number);
            }
            to.lengths.push((to.stacks.len() - before) as u32);
        }
        number
    }

    /// The number of the stack without frames.
    fn no_stack(&mut self, to: &mut Parsed) -> u32 {
        if let Some(number) = self.none {
            return number;
        }
        let number = self.stacks.next;
        self.stacks.next += 1;
        self.none = Some(number);
        to.lengths.push(0);
        number
    }

    /// Takes a piece apart.
    pub(super) fn parse(&mut self, text: &[u8]) -> Parsed {
        let mut to = Parsed::default();
        let mut rest = text;
        while !rest.is_empty() {
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let (head, after) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
            let mut body = &b""[..];
            rest = after;
            if line::is_frame(after) {
                let end = memchr::memmem::find(after, b"\n\n").unwrap_or(after.len());
                body = &after[..end];
                rest = after.get(end + 1..).unwrap_or_default();
            }
            if head.is_empty() || head.starts_with(b"#") {
                continue;
            }
            let Some(h) = line::header(head) else {
                to.junk += 1;
                continue;
            };
            let switch = if h.event.ends_with(b"sched_switch") {
                line::switch(h.rest)
            } else {
                None
            };
            let stack = if !body.is_empty() {
                self.stack(body, &mut to)
            } else if switch.is_none() && line::frame(h.rest).is_some_and(|f| f.address.is_some()) {
                // A record without a stack has its one frame on the same line.
                let line = [b"\t", h.rest].concat();
                self.stack(&line, &mut to)
            } else {
                self.no_stack(&mut to)
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
