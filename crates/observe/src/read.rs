//! The log as a sequence of observations, up to its end or to the first damage.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use thiserror::Error;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::{
    frame::{self, Fault},
    header::{Header, VERSION},
    observation::{LeftOut, Observation},
    wire::{Input, Malformed},
    words::Words,
};

/// Largest window that a compressed log may ask for, as a power of two: 8 MiB.
const MAX_WINDOW: u32 = 23;
/// Bytes read, and decompressed, at a time.
const STEP: usize = 128 << 10;
/// Maximum bytes of a decompressed log, in addition to a multiple of its compressed size. Logs of idle
/// machines become 30 times as large (measured).
const MAX_PLAIN: u64 = 64 << 20;
const MAX_RATIO: u64 = 256;

/// Why a file is not read as a log.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It cannot be read.
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("it is no log of observations (`wallscope record --keep-log` makes them)")]
    NotALog,
    /// Another version wrote it.
    #[error("its version is {found} ({tool} wrote it); this wallscope reads version {VERSION}")]
    Version {
        /// The log's version.
        found: u32,
        /// The program that wrote it.
        tool: String,
    },
}

/// How a log ended for its reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It is whole, except for observations that were left out when it was written.
    Whole(LeftOut),
    /// It has no end, or is damaged.
    Early {
        /// Frames that were whole.
        frames: u32,
        /// Why there are no more, in words.
        why: String,
    },
}

/// Reads a log.
pub struct LogReader<R: BufRead = BufReader<File>> {
    header: Header,
    from: Source<R>,
    /// The present frame, the number of bytes read of it, and the number of the next frame.
    payload: Vec<u8>,
    at: usize,
    sequence: u32,
    words: Words,
    record: Vec<u8>,
    end: Option<End>,
}

enum Source<R> {
    Plain(R),
    Packed(Box<Unpacker<R>>),
}

impl LogReader {
    /// Opens a file.
    ///
    /// # Errors
    /// It is no log that this version reads.
    #[expect(clippy::disallowed_methods, reason = "the user names the log")]
    pub fn open(path: &Path) -> Result<LogReader, OpenError> {
        LogReader::new(BufReader::with_capacity(STEP, File::open(path)?))
    }
}

impl<R: BufRead> LogReader<R> {
    /// Reads the header of a log.
    ///
    /// # Errors
    /// It is no log that this version reads.
    pub fn new(mut from: R) -> Result<LogReader<R>, OpenError> {
        let header = Header::read(&mut from)?.ok_or(OpenError::NotALog)?;
        if header.version != VERSION {
            return Err(OpenError::Version {
                found: header.version,
                tool: header.tool,
            });
        }
        let from = match header.compressed {
            true => Source::Packed(Box::new(Unpacker::new(from)?)),
            false => Source::Plain(from),
        };
        Ok(LogReader {
            header,
            from,
            payload: Vec::new(),
            at: 0,
            sequence: 0,
            words: Words::default(),
            record: Vec::new(),
            end: None,
        })
    }

    /// The header of the log.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next observation; `None`: there are no more, and [`LogReader::end`] says why.
    #[expect(
        clippy::should_implement_trait,
        reason = "an observation borrows from its reader, which an iterator's item cannot"
    )]
    pub fn next(&mut self) -> Option<Observation<'_>> {
        while self.end.is_none() && self.at == self.payload.len() {
            self.next_frame();
        }
        if self.end.is_some() {
            return None;
        }
        let mut input = Input(&self.payload[self.at..]);
        let got = Observation::get(&mut self.words, &mut input, &mut self.record);
        self.at = self.payload.len() - input.left();
        match got {
            Ok(Observation::Closed(left_out)) => {
                self.end = Some(End::Whole(left_out));
                None
            }
            Ok(observation) => Some(observation),
            Err(why) => {
                self.end = Some(
                    self.sequence
                        .checked_sub(1)
                        .map_or_else(|| early(0, &why), |frame| early(frame, &why)),
                );
                None
            }
        }
    }

    /// How the log ended, once [`LogReader::next`] has given `None`.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    fn next_frame(&mut self) {
        self.words.clear();
        self.at = 0;
        let read = match &mut self.from {
            Source::Plain(from) => frame::get(from, self.sequence, &mut self.payload),
            Source::Packed(from) => frame::get(from, self.sequence, &mut self.payload),
        };
        let why = match read {
            Ok(true) => {
                self.sequence += 1;
                return;
            }
            Ok(false) => "the recording did not end the log".into(),
            Err(Fault::Cut) => "it is cut short within a frame".into(),
            Err(Fault::Long(n)) => format!("a frame claims {n} bytes"),
            Err(Fault::Checksum) => "the checksum of a frame is wrong".into(),
            Err(Fault::Order(n)) => {
                format!("frame {n} stands in the place of frame {}", self.sequence)
            }
            Err(Fault::Io(e)) => e.to_string(),
        };
        self.payload.clear();
        self.end = Some(End::Early {
            frames: self.sequence,
            why,
        });
    }
}

fn early(frames: u32, why: &Malformed) -> End {
    End::Early {
        frames,
        why: why.to_string(),
    }
}

/// Decompresses while it is read.
struct Unpacker<R> {
    from: R,
    context: DCtx<'static>,
    plain: Vec<u8>,
    /// Number of bytes of `plain` that are filled, and that were read.
    filled: usize,
    at: usize,
    /// Bytes taken and given so far.
    taken: u64,
    given: u64,
    /// The stream has ended.
    over: bool,
}

impl<R: BufRead> Unpacker<R> {
    fn new(from: R) -> io::Result<Unpacker<R>> {
        let mut context = DCtx::create();
        let limited = context.set_parameter(DParameter::WindowLogMax(MAX_WINDOW));
        limited.map_err(|code| io::Error::other(zstd_safe::get_error_name(code)))?;
        Ok(Unpacker {
            from,
            context,
            plain: vec![0; STEP],
            filled: 0,
            at: 0,
            taken: 0,
            given: 0,
            over: false,
        })
    }

    /// Decompresses the next bytes; `plain` stays empty if the stream is over.
    fn refill(&mut self) -> io::Result<()> {
        (self.filled, self.at) = (0, 0);
        while self.filled == 0 && !self.over {
            let packed = self.from.fill_buf()?;
            let cut = packed.is_empty();
            let mut input = InBuffer::around(packed);
            let mut output = OutBuffer::around(&mut self.plain[..]);
            let left = self.context.decompress_stream(&mut output, &mut input);
            let left = left.map_err(|code| {
                let name = zstd_safe::get_error_name(code);
                io::Error::other(format!("its compressed bytes are damaged: {name}"))
            })?;
            self.filled = output.as_slice().len();
            let used = input.pos();
            self.from.consume(used);
            self.over = left == 0;
            self.taken += used as u64;
            self.given += self.filled as u64;
            if self.given > MAX_PLAIN + MAX_RATIO * self.taken {
                return Err(io::Error::other("its compressed bytes become too many"));
            }
            if cut && self.filled == 0 && !self.over {
                return Err(io::Error::other("its compressed bytes are cut short"));
            }
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Unpacker<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.at == self.filled {
            self.refill()?;
        }
        let n = to.len().min(self.filled - self.at);
        to[..n].copy_from_slice(&self.plain[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}
