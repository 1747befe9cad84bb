//! Follows a jitdump as it grows.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use wallscope_binfmt::jitdump::{HEAD, HEADER, Head, Header, Problem, Record};

use super::{ClockReading, CodeHistory, NewCode};

/// Bytes per read.
const CHUNK_BYTES: usize = 64 << 10;

/// Reader of a file in pieces that are read once.
struct Window {
    file: File,
    at: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Returns `len` bytes at `at`; `None`: they do not exist (yet).
    fn get(&mut self, at: u64, len: usize) -> io::Result<Option<&[u8]>> {
        let inside = |w: &Window| {
            let from = at.checked_sub(w.at)? as usize;
            let to = from.checked_add(len)?;
            (to <= w.bytes.len()).then_some(from..to)
        };
        if inside(self).is_none() {
            self.bytes.resize(len.max(CHUNK_BYTES), 0);
            let mut n = 0;
            while n < len {
                match self.file.read_at(&mut self.bytes[n..], at + n as u64)? {
                    0 => break,
                    more => n += more,
                }
            }
            self.bytes.truncate(n);
            self.at = at;
        }
        Ok(inside(self).map(|range| &self.bytes[range]))
    }
}

/// A jitdump that is being followed.
pub struct JitDump {
    window: Window,
    header: Option<Header>,
    offset: u64,
    /// Lines of the code that is loaded next: the code's address, and its lines by address.
    lines: (u64, Vec<(u64, u32, Vec<u8>)>),
    /// Reason why it is no longer followed.
    pub problem: Option<String>,
    /// Number of records with unwinding information, which is not used.
    pub unwinding: u64,
}

impl JitDump {
    /// Starts with the header of `file`.
    pub fn new(file: File) -> JitDump {
        JitDump {
            window: Window {
                file,
                at: 0,
                bytes: Vec::new(),
            },
            header: None,
            offset: 0,
            lines: (0, Vec::new()),
            problem: None,
            unwinding: 0,
        }
    }

    /// Enters at most `most` new records into `history`. Returns whether there are more.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn follow(
        &mut self,
        history: &mut CodeHistory,
        now: ClockReading,
        most: usize,
    ) -> io::Result<bool> {
        if self.problem.is_some() {
            return Ok(false);
        }
        let written = self.window.file.metadata()?.len();
        // The buffer may lack data that was written since.
        self.window.bytes.clear();
        let Some(header) = self.header()? else {
            return Ok(false);
        };
        for _ in 0..most {
            let Some(bytes) = self.window.get(self.offset, HEAD)? else {
                return Ok(false);
            };
            let bytes = bytes.try_into().expect("as many as were asked for");
            let Some(head) = Head::parse(bytes) else {
                self.problem = Some("a record is shorter than its head".into());
                return Ok(false);
            };
            let next = self.offset + u64::from(head.size);
            // A record is read once it is complete.
            if head.size == 0 || next > written {
                return Ok(false);
            }
            let needs = head.needs();
            let (at, time) = (self.offset + HEAD as u64, head.time);
            // Times of another clock are not usable.
            let known = header.monotonic && time <= now.monotonic;
            let time = if known { time } else { now.monotonic };
            let Some(bytes) = self.window.get(at, needs)? else {
                return Ok(false);
            };
            match Record::parse(&head, bytes) {
                Some(Record::Load {
                    address,
                    size,
                    name,
                }) => {
                    let (of, lines) = &self.lines;
                    let lines = lines.iter().filter(|_| *of == address);
                    let lines = lines.map(|(at, line, file)| (*at, *line, &file[..]));
                    let code = NewCode {
                        start: address,
                        size,
                        name,
                        time,
                    };
                    history.enter(code, lines);
                    self.lines.1.clear();
                }
                Some(Record::Move { from, to, size }) => history.move_code(from, to, size, time),
                Some(Record::Lines { address, lines }) => {
                    let lines = lines.map(|l| (l.address, l.line, l.file.to_vec()));
                    self.lines = (address, lines.collect());
                }
                Some(Record::Unwinding) => self.unwinding += 1,
                Some(Record::Other) => {}
                None => {
                    self.problem = Some("a record makes no sense".into());
                    return Ok(false);
                }
            }
            self.offset = next;
        }
        Ok(true)
    }

    fn header(&mut self) -> io::Result<Option<Header>> {
        if self.header.is_none()
            && let Some(bytes) = self.window.get(0, HEADER)?
        {
            let bytes = bytes.try_into().expect("as many as were asked for");
            match Header::parse(bytes) {
                Ok(header) => {
                    self.offset = header.size;
                    self.header = Some(header);
                }
                // The file was created but not written yet.
                Err(Problem::Other) if bytes == &[0; HEADER] => {}
                Err(problem) => self.problem = Some(problem.to_string()),
            }
        }
        Ok(self.header)
    }
}
