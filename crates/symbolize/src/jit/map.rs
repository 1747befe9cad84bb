//! A perf map, read as it grows.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use wallscope_binfmt::mapped::open_regular;
use wallscope_binfmt::perf_map::{Line, parse_line};
use wallscope_procfs::process::inner_pid;

use super::{Book, Now};
use crate::TargetRoot;

/// The longest line that is read; more of it is dropped.
const MAX_LINE: usize = 16 << 10;
/// What is read at once, bytes.
const CHUNK: usize = 64 << 10;
/// Most bytes of one map that are read.
const MOST_READ: u64 = 1 << 30;

/// A perf map that is being followed.
///
/// Its lines have no times: what is there at the first reading counts as having been there always, and
/// what comes later as spread evenly over the time until the file was last written to.
pub struct PerfMap {
    file: File,
    offset: u64,
    read: u64,
    /// A line that has no end yet.
    rest: Vec<u8>,
    /// The rest of a line is dropped.
    skipping: bool,
    /// When it was read to its end; 0: never.
    seen: u64,
    /// Lines that are no entry.
    pub junk: u64,
}

impl PerfMap {
    /// The perf map of `pid`: the one in the `/tmp` that it sees in `root`, where it is named by the id
    /// the process knows itself by, else the one in ours.
    pub fn find(pid: u32, root: Option<&TargetRoot>) -> Option<File> {
        let inner = inner_pid(pid).unwrap_or(pid);
        let path = |pid: u32| format!("/tmp/perf-{pid}.map");
        root.and_then(|r| r.open_file(path(inner).as_ref()).ok())
            .or_else(|| open_regular(path(pid).as_ref()).ok())
    }

    /// Begins with the first line of `file`.
    pub fn new(file: File) -> PerfMap {
        PerfMap {
            file,
            offset: 0,
            read: 0,
            rest: Vec::new(),
            skipping: false,
            seen: 0,
            junk: 0,
        }
    }

    /// Enters what has come into `book`, from at most `most` bytes. Whether there is more.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn follow(&mut self, book: &mut Book, now: Now, most: usize) -> io::Result<bool> {
        let meta = self.file.metadata()?;
        if meta.len() < self.offset {
            // Begun anew.
            (self.offset, self.skipping) = (0, false);
            self.rest.clear();
        }
        if meta.len() == self.offset || self.read >= MOST_READ {
            return Ok(false);
        }
        let written = meta.mtime() as u64 * 1_000_000_000 + meta.mtime_nsec() as u64;
        // What has come since the last reading came one after the other until the file was written last.
        let ago = now.real.saturating_sub(written);
        let span = now.monotonic.saturating_sub(ago).saturating_sub(self.seen);
        let (from, bytes) = (self.offset, meta.len() - self.offset);
        let seen = self.seen;
        let time = |at: u64| match seen {
            0 => 0,
            seen => {
                let part = u128::from((at - from).min(bytes)) * u128::from(span);
                seen + (part / u128::from(bytes)) as u64
            }
        };
        let mut chunk = vec![0u8; CHUNK];
        let mut left = most;
        while left > 0 {
            let n = self.file.read_at(&mut chunk, self.offset)?;
            if n == 0 {
                self.seen = now.monotonic;
                return Ok(false);
            }
            self.read += n as u64;
            left = left.saturating_sub(n);
            self.take(&chunk[..n], book, &time);
        }
        Ok(true)
    }

    /// Nothing more will come: what has no line break is a line, too.
    pub fn finish(&mut self, book: &mut Book) {
        let rest = std::mem::take(&mut self.rest);
        self.line(&rest, book, self.seen);
    }

    fn take(&mut self, bytes: &[u8], book: &mut Book, time: &impl Fn(u64) -> u64) {
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            self.offset += part.len() as u64;
            let ends = part.last() == Some(&b'\n');
            if !self.skipping {
                let room = MAX_LINE - self.rest.len();
                self.rest.extend(&part[..part.len().min(room)]);
                self.skipping = part.len() >= room;
                if ends || self.skipping {
                    let line = std::mem::take(&mut self.rest);
                    self.line(&line, book, time(self.offset));
                }
            }
            self.skipping &= !ends;
        }
    }

    fn line(&mut self, line: &[u8], book: &mut Book, time: u64) {
        match parse_line(line) {
            Line::Entry(e) => book.enter(e.start, e.size, e.name, std::iter::empty(), time),
            Line::Blank => {}
            Line::Junk => self.junk += 1,
        }
    }
}
