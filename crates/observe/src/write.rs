//! The log while it grows.
//!
//! Observations are collected and written at least every half second or 256 KiB, without fsync: the
//! page cache survives the end of this process for any reason, and syncing would disturb the disk
//! under measurement. When the log is closed it is compressed and synced.
//!
//! A log has a bound. From half of it on wakers are left out, from three quarters on samples too; threads'
//! counters are never left out. The log's last observation counts the observations that were left out. If
//! the disk is full, or writing fails, the log ends there and the recording goes on. A spool of polls and
//! switches ends at its bound too.

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use zstd_safe::{CCtx, InBuffer, OutBuffer, zstd_sys::ZSTD_EndDirective};

use crate::{
    frame::{self, MAX_PAYLOAD},
    header::Header,
    lock,
    memory::StackMemory,
    observation::{Importance, LeftOut, Observation},
    words::{self, Words},
};

/// Maximum time for which an observation stays in memory, if [`LogWriter::flush_if_due`] is called often enough.
const FLUSH_AFTER: Duration = Duration::from_millis(500);
/// Level of compression when a log is closed.
const LEVEL: i32 = 3;
/// Bytes compressed at a time.
const STEP: usize = 256 << 10;

/// A file that is open for a log, and nothing is in it yet.
#[derive(Clone, Debug)]
pub struct LogFile {
    file: Arc<File>,
    path: PathBuf,
    purpose: Purpose,
    memory: bool,
}

/// The reason for which a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The user asked for it.
    Kept,
    /// It serves if the recorder does not end in order ([`crate::Spool`]).
    Spool,
}

impl LogFile {
    /// Default bound of a log, bytes.
    pub const BOUND: u64 = 1 << 30;

    /// Creates the file with mode 0600, or empties the one that is there and gives it that mode.
    ///
    /// # Errors
    /// It cannot be made or written there, or is no regular file.
    #[expect(
        clippy::disallowed_methods,
        reason = "the user names the log, to be written"
    )]
    pub fn create(path: &Path) -> io::Result<LogFile> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            // Neither waits for the reader of a FIFO.
            .custom_flags(O_NONBLOCK)
            .open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a log needs a regular file",
            ));
        }
        lock::hold(&file);
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.set_len(0)?;
        Ok(LogFile {
            file: Arc::new(file),
            path: path.into(),
            purpose: Purpose::Kept,
            memory: false,
        })
    }

    /// The new file `file`, which is at `path`, for a spool.
    pub(crate) fn spool(file: File, path: &Path) -> LogFile {
        LogFile {
            file: Arc::new(file),
            path: path.into(),
            purpose: Purpose::Spool,
            memory: false,
        }
    }

    /// Stack memory is kept too ([`LogWriter::keep_memory`]).
    pub fn with_memory(self) -> LogFile {
        LogFile {
            memory: true,
            ..self
        }
    }

    /// The file, to change its owner.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// `O_NONBLOCK` of Linux.
const O_NONBLOCK: i32 = 0o4000;

/// A log that grows.
pub struct LogWriter {
    log: LogFile,
    header: Header,
    bound: u64,
    /// Bytes written.
    written: u64,
    sequence: u32,
    payload: Vec<u8>,
    words: Words,
    flushed: Instant,
    left_out: LeftOut,
    /// The counts of `left_out` that the log contains so far.
    told: LeftOut,
    /// Reason for which the log ended before the recording.
    failed: Option<String>,
}

/// A log that was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Its size, bytes.
    pub bytes: u64,
    /// Observations that are not in it.
    pub left_out: LeftOut,
}

impl LogWriter {
    /// Begins a log of `tool` in an empty file. It keeps to `bound` bytes, except for observations that are never left
    /// out.
    ///
    /// ```
    /// use wallscope_observe::{End, LogFile, LogReader, LogWriter, Mark, Observation};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("log");
    /// let mut log = LogWriter::begin(LogFile::create(&path)?, "example 1.0", LogFile::BOUND);
    /// log.append(&Observation::Mark(Mark::Tick { time: 5 }));
    /// log.close()?;
    ///
    /// let mut read = LogReader::open(&path)?;
    /// assert_eq!(read.header().tool, "example 1.0");
    /// assert_eq!(read.next(), Some(Observation::Mark(Mark::Tick { time: 5 })));
    /// assert_eq!(read.next(), None);
    /// assert!(matches!(read.end(), Some(End::Whole(left_out)) if left_out.is_empty()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begin(log: LogFile, tool: &str, bound: u64) -> LogWriter {
        let header = Header {
            memory: log.memory,
            ..Header::new(tool)
        };
        let mut writer = LogWriter {
            log,
            bound,
            written: 0,
            sequence: 0,
            payload: Vec::new(),
            words: Words::default(),
            flushed: Instant::now(),
            left_out: LeftOut::default(),
            told: LeftOut::default(),
            failed: None,
            header,
        };
        let text = writer.header.text();
        writer.write(text.as_bytes());
        writer
    }

    /// Appends an observation.
    pub fn append(&mut self, observation: &Observation<'_>) {
        if self.failed.is_some() {
            return;
        }
        let size = self.written + self.payload.len() as u64;
        match observation.importance() {
            Importance::Wake if size >= self.bound / 2 => {
                self.left_out.wakes += 1;
                return;
            }
            Importance::Sample if size >= self.bound / 4 * 3 => {
                self.left_out.samples += 1;
                return;
            }
            Importance::Event if size >= self.bound && self.log.purpose == Purpose::Spool => {
                self.flush();
                self.ends("its bound");
                return;
            }
            _ => {}
        }
        if observation.record().is_some_and(|r| !words::fits(r)) {
            self.left_out.too_large += 1;
            return;
        }
        let before = self.payload.len();
        observation.put(&mut self.words, &mut self.payload);
        if self.payload.len() <= MAX_PAYLOAD {
            return;
        }
        // It begins the next frame instead.
        self.payload.truncate(before);
        self.flush();
        observation.put(&mut self.words, &mut self.payload);
        if self.payload.len() > MAX_PAYLOAD {
            self.payload.clear();
            self.words.clear();
            self.left_out.too_large += 1;
        }
    }

    /// Appends stack memory, if this log keeps it.
    pub fn keep_memory(&mut self, memory: impl FnOnce() -> StackMemory) {
        if self.log.memory && self.failed.is_none() {
            self.append(&Observation::StackMemory(Box::new(memory())));
        }
    }

    /// Writes the observations in memory if the last write was half a second ago or more.
    pub fn flush_if_due(&mut self) {
        if self.flushed.elapsed() < FLUSH_AFTER {
            return;
        }
        if self.told != self.left_out {
            self.told = self.left_out;
            self.append(&Observation::LeftOut(self.told));
        }
        self.flush();
    }

    /// Writes the observations in memory.
    pub fn flush(&mut self) {
        self.flushed = Instant::now();
        self.words.clear();
        if self.payload.is_empty() {
            return;
        }
        let frame = frame::put(self.sequence, &self.payload);
        self.payload.clear();
        self.sequence += 1;
        self.write(&frame);
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.failed.is_some() {
            return;
        }
        let mut file = &*self.log.file;
        match file.write_all(bytes) {
            Ok(()) => self.written += bytes.len() as u64,
            Err(e) => {
                // Up to here the log is whole, and a reader says that it has no end.
                let _ = file.set_len(self.written);
                self.ends(&e.to_string());
            }
        }
    }

    /// Nothing more is written, for this reason.
    fn ends(&mut self, why: &str) {
        let (path, bytes) = (self.log.path.display(), self.written);
        self.failed = Some(match self.log.purpose {
            Purpose::Kept => {
                format!("the observation log '{path}' ends after {bytes} bytes: {why}")
            }
            Purpose::Spool => format!(
                "the spool '{path}' ends after {bytes} bytes ({why}): had the recorder not ended in order, \
                 nothing after that could have been recovered"
            ),
        });
    }

    /// Its file's path.
    pub fn path(&self) -> &Path {
        &self.log.path
    }

    /// The reason for which it is written.
    pub fn purpose(&self) -> Purpose {
        self.log.purpose
    }

    /// Why the log ended before the recording, if it did.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Ends, compresses and syncs the log.
    ///
    /// # Errors
    /// The reason for which the log ended early. The part written by then stays.
    pub fn close(mut self) -> Result<Closed, String> {
        self.append(&Observation::Closed(self.left_out));
        self.flush();
        if let Some(why) = self.failed {
            return Err(why);
        }
        let path = self.log.path.clone();
        let bytes = self.compress().map_err(|e| {
            format!(
                "the observation log '{}' is whole, but could not be compressed: {e}",
                path.display()
            )
        })?;
        Ok(Closed {
            bytes,
            left_out: self.left_out,
        })
    }

    /// Replaces the log by a compressed one; its size.
    fn compress(&self) -> io::Result<u64> {
        let path = &self.log.path;
        let folder = match path.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        // Temporary files have mode 0600.
        let mut to = tempfile::NamedTempFile::new_in(folder)?;
        let header = Header {
            compressed: true,
            ..self.header.clone()
        };
        let owner = self.log.file.metadata()?;
        if to.as_file().metadata()?.uid() != owner.uid() {
            fchown(to.as_file(), Some(owner.uid()), Some(owner.gid()))?;
        }
        to.write_all(header.text().as_bytes())?;
        let mut from = &*self.log.file;
        from.seek(SeekFrom::Start(self.header.text().len() as u64))?;
        compress(&mut from, to.as_file_mut())?;
        to.as_file().sync_all()?;
        let size = to.as_file().metadata()?.len();
        to.persist(path).map_err(|e| e.error)?;
        Ok(size)
    }
}

/// Compresses all that is left in `from` to `to`, with a checksum at the end.
fn compress(from: &mut &File, to: &mut File) -> io::Result<()> {
    let failed = |code| io::Error::other(zstd_safe::get_error_name(code));
    let mut context = CCtx::create();
    for parameter in [
        zstd_safe::CParameter::CompressionLevel(LEVEL),
        zstd_safe::CParameter::ChecksumFlag(true),
    ] {
        context.set_parameter(parameter).map_err(failed)?;
    }
    let (mut plain, mut packed) = (vec![0; STEP], vec![0; STEP]);
    loop {
        let n = from.read(&mut plain)?;
        let directive = if n == 0 {
            ZSTD_EndDirective::ZSTD_e_end
        } else {
            ZSTD_EndDirective::ZSTD_e_continue
        };
        let mut input = InBuffer::around(&plain[..n]);
        loop {
            let mut output = OutBuffer::around(&mut packed[..]);
            let left = context
                .compress_stream2(&mut output, &mut input, directive)
                .map_err(failed)?;
            to.write_all(output.as_slice())?;
            let done = if n == 0 { left == 0 } else { input.pos() == n };
            if done {
                break;
            }
        }
        if n == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogReader, Switch, SwitchStep, facts::Mark};

    #[test]
    fn a_spool_of_switches_ends_at_its_bound_and_keeps_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.spool");
        let file = File::create_new(&path).unwrap();
        let bound = 1 << 20;
        let mut writer = LogWriter::begin(LogFile::spool(file, &path), "wallscope 0", bound);
        for time in 0..1_000_000 {
            let step = SwitchStep::In;
            writer.append(&Observation::Switch(Switch {
                thread: 0,
                time,
                step,
            }));
        }
        let size = path.metadata().unwrap().len();
        assert!((bound..bound + 2 * MAX_PAYLOAD as u64).contains(&size));
        let why = writer.failed().unwrap_or_default();
        assert!(why.contains("its bound"), "{why}");
        let mut reader = LogReader::open(&path).unwrap();
        let mut next = 0;
        while let Some(Observation::Switch(switch)) = reader.next() {
            assert_eq!(switch.time, next);
            next += 1;
        }
        assert!(next > 100_000, "{next}");
    }

    #[test]
    fn a_log_that_cannot_be_written_ends_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, "").unwrap();
        // Each write fails, as on a full disk.
        let log = LogFile {
            file: Arc::new(File::open(&path).unwrap()),
            path,
            purpose: Purpose::Kept,
            memory: false,
        };
        let mut writer = LogWriter::begin(log, "wallscope 0", LogFile::BOUND);
        for time in 0..1000 {
            writer.append(&Observation::Mark(Mark::Tick { time }));
        }
        assert!(
            writer
                .failed()
                .is_some_and(|w| w.contains("ends after 0 bytes"))
        );
        assert!(writer.payload.is_empty());
        assert!(writer.close().is_err());
    }
}
