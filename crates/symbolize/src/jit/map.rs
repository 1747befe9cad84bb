//! Follows a perf map as it grows.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

use wallscope_binfmt::perf_map::{Line, parse_line};
use wallscope_procfs::process::inner_pid;
use wallscope_procfs::target_file::{Purpose, Refusal, TargetPath, TargetRoot};

use super::{ClockReading, CodeHistory, NewCode};

/// Maximum bytes of a line; the rest is dropped.
const MAX_LINE: usize = 16 << 10;
/// Bytes per read.
const CHUNK_BYTES: usize = 64 << 10;
/// Maximum bytes of one map that are read.
const MAX_MAP_BYTES: u64 = 1 << 30;

/// A perf map that is being followed.
///
/// Its lines have no times. Lines present at the first reading count as always present. Later lines
/// count as spread evenly over the time until the file's last write.
pub struct PerfMap {
    file: File,
    offset: u64,
    read: u64,
    /// A line that has no end yet.
    rest: Vec<u8>,
    /// The rest of the present line is dropped.
    skipping: bool,
    /// Time of the last complete reading, ns of CLOCK_MONOTONIC; 0: never.
    seen: u64,
    /// Number of lines that are no entries.
    pub junk: u64,
}

impl PerfMap {
    /// The perf map of `pid`: the file in the `/tmp` of `root`, the root of its target, named by the id
    /// of the process in its own pid namespace. Otherwise the file in this process's `/tmp`, opened with the
    /// target's rights. `None`: there is none.
    ///
    /// # Errors
    /// The reason for which a perf map that exists is not read.
    pub fn find(pid: u32, root: &TargetRoot) -> Result<Option<File>, Refusal> {
        let inner = inner_pid(pid).unwrap_or(pid);
        let open = |root: &TargetRoot, pid| {
            let path = TargetPath::new(format!("/tmp/perf-{pid}.map"));
            match root.open(&path, Purpose::RuntimeNames) {
                Err(refusal) if refusal.is_absent() => Ok(None),
                found => found.map(Some),
            }
        };
        if let Some(found) = open(root, inner)? {
            return Ok(Some(found));
        }
        open(&root.host()?, pid)
    }

    /// Starts with the first line of `file`.
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

    /// Enters new lines into `history`, from at most `most` bytes. Returns whether there are more.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn follow(
        &mut self,
        history: &mut CodeHistory,
        now: ClockReading,
        most: usize,
    ) -> io::Result<bool> {
        let meta = self.file.metadata()?;
        if meta.len() < self.offset {
            // The file was started anew.
            (self.offset, self.skipping) = (0, false);
            self.rest.clear();
        }
        if meta.len() == self.offset || self.read >= MAX_MAP_BYTES {
            return Ok(false);
        }
        let written = meta.mtime() as u64 * 1_000_000_000 + meta.mtime_nsec() as u64;
        // The new lines came one after the other, from the last reading until the file's last
        // write.
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
        let mut chunk = vec![0u8; CHUNK_BYTES];
        let mut left = most;
        while left > 0 {
            let n = self.file.read_at(&mut chunk, self.offset)?;
            if n == 0 {
                self.seen = now.monotonic;
                return Ok(false);
            }
            self.read += n as u64;
            left = left.saturating_sub(n);
            self.take(&chunk[..n], history, &time);
        }
        Ok(true)
    }

    /// Enters the last line even if it lacks a line break: no more data will come.
    pub fn finish(&mut self, history: &mut CodeHistory) {
        let rest = std::mem::take(&mut self.rest);
        self.line(&rest, history, self.seen);
    }

    fn take(&mut self, bytes: &[u8], history: &mut CodeHistory, time: &impl Fn(u64) -> u64) {
        for part in bytes.split_inclusive(|b| *b == b'\n') {
            self.offset += part.len() as u64;
            let ends = part.last() == Some(&b'\n');
            if !self.skipping {
                let room = MAX_LINE - self.rest.len();
                self.rest.extend(&part[..part.len().min(room)]);
                self.skipping = part.len() >= room;
                if ends || self.skipping {
                    let line = std::mem::take(&mut self.rest);
                    self.line(&line, history, time(self.offset));
                }
            }
            self.skipping &= !ends;
        }
    }

    fn line(&mut self, line: &[u8], history: &mut CodeHistory, time: u64) {
        match parse_line(line) {
            Line::Entry(e) => {
                let code = NewCode {
                    start: e.start,
                    size: e.size,
                    name: e.name,
                    time,
                };
                history.enter(code, std::iter::empty());
            }
            Line::Blank => {}
            Line::Junk => self.junk += 1,
        }
    }
}
