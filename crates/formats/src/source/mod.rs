//! The bytes of a file on their way to a reader: compressed or not, whole or as a stream.
//!
//! A reader is chosen by the first [`HEAD`] bytes. Gzip is unpacked on the way, never beyond the
//! bounds. Text in UTF-16 with a byte order mark becomes UTF-8. A file that ends within its
//! compressed data is read up to there, and [`Source::cut`] says so.

mod utf16;

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use super::{Bounds, ReadError};
use utf16::Utf16;

/// Bytes of a file from which its format is recognised.
pub(super) const HEAD: usize = 64 * 1024;

/// A file being read.
pub(super) struct Source<'a> {
    head: Vec<u8>,
    /// Number of bytes of the head that were read.
    given: usize,
    rest: Box<dyn Read + Send + 'a>,
    bounds: Bounds,
    read: u64,
    /// Maximum bytes that decompression may give to a reader that streams. Readers bound the memory that
    /// they keep themselves.
    most: u64,
    cut: bool,
    followed: bool,
}

/// Multiple of [`Bounds::decompressed`] that may pass through a reader that does not hold it.
const STREAMED: u64 = 16;

impl<'a> Source<'a> {
    /// Reads the head of `input` and detects its compression.
    pub(super) fn new(input: impl Read + Send + 'a, bounds: Bounds) -> Result<Self, ReadError> {
        let mut buffered = BufReader::with_capacity(HEAD, input);
        let start = buffered.fill_buf().map_err(io_error)?;
        if start.is_empty() {
            return Err(ReadError::Empty);
        }
        let compressed = start.starts_with(&[0x1f, 0x8b]);
        let rest: Box<dyn Read + Send + 'a> = if compressed {
            Box::new(MultiGzDecoder::new(buffered))
        } else {
            Box::new(buffered)
        };
        let mut source = Source {
            head: Vec::new(),
            given: 0,
            rest,
            bounds,
            read: 0,
            most: if compressed {
                bounds.decompressed.saturating_mul(STREAMED)
            } else {
                u64::MAX
            },
            cut: false,
            followed: false,
        };
        let mut head = source.first()?;
        if let Some(order) = utf16::order(&head) {
            let raw = io::Cursor::new(head)
                .chain(std::mem::replace(&mut source.rest, Box::new(io::empty())));
            source.rest = Box::new(Utf16::new(raw, order));
            source.read = 0;
            head = source.first()?;
        }
        // A byte order mark is no part of the text.
        if head.starts_with(b"\xef\xbb\xbf") {
            head.drain(..3);
        }
        if head.is_empty() {
            return Err(if source.cut {
                ReadError::Truncated
            } else {
                ReadError::Empty
            });
        }
        source.head = head;
        Ok(source)
    }

    /// The first bytes, at most [`HEAD`].
    fn first(&mut self) -> Result<Vec<u8>, ReadError> {
        let mut head = vec![0; HEAD];
        let mut have = 0;
        while have < HEAD {
            match self.take(&mut head[have..])? {
                0 => break,
                n => have += n,
            }
        }
        head.truncate(have);
        Ok(head)
    }

    /// The head of the file, whether or not it has been read since.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Records that the reader found the file truncated.
    pub(super) fn set_cut(&mut self) {
        self.cut = true;
    }

    /// Whether the file is truncated, or the checksum of its compressed data is wrong.
    pub(super) fn cut(&self) -> bool {
        self.cut
    }

    /// Whether something follows the compressed data.
    pub(super) fn followed(&self) -> bool {
        self.followed
    }

    /// The limits on memory.
    pub(super) fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// The next bytes, 0 at the end.
    fn take(&mut self, to: &mut [u8]) -> Result<usize, ReadError> {
        let n = match self.rest.read(to) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return self.take(to),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                self.cut = true;
                0
            }
            // Bytes after whole data, or data with a wrong checksum.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput && self.read > 0 => {
                self.followed = e.to_string() == "invalid gzip header";
                self.cut = !self.followed;
                0
            }
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                return Err(ReadError::Damaged {
                    what: format!("its compressed data: {e}"),
                });
            }
            Err(e) => return Err(io_error(e)),
        };
        self.read += n as u64;
        if self.read > self.most {
            return Err(too_large(self.most));
        }
        Ok(n)
    }

    /// Fills `to`. Returns fewer bytes only at the end of the file.
    pub(super) fn fill(&mut self, to: &mut [u8]) -> Result<usize, ReadError> {
        let from_head = (self.head.len() - self.given).min(to.len());
        to[..from_head].copy_from_slice(&self.head[self.given..][..from_head]);
        self.given += from_head;
        let mut have = from_head;
        while have < to.len() {
            match self.take(&mut to[have..])? {
                0 => break,
                n => have += n,
            }
        }
        Ok(have)
    }

    /// All bytes of the file.
    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, ReadError> {
        let mut out = self.head[self.given..].to_vec();
        self.given = self.head.len();
        let mut have = out.len();
        loop {
            out.resize((have * 2).max(HEAD), 0);
            let room = out.len() - have;
            let n = self.fill(&mut out[have..])?;
            have += n;
            if have as u64 > self.bounds.decompressed {
                return Err(too_large(self.bounds.decompressed));
            }
            if n < room {
                out.truncate(have);
                return Ok(out);
            }
        }
    }
}

fn too_large(limit: u64) -> ReadError {
    ReadError::TooLarge {
        what: "it holds more bytes",
        limit_mib: limit >> 20,
    }
}

fn io_error(e: io::Error) -> ReadError {
    ReadError::Damaged {
        what: format!("its bytes cannot be had: {e}"),
    }
}

/// Streams a text in pieces that end where `ends` says, and passes each to `piece`.
///
/// `ends` gets the bytes read so far and returns the number of them that are whole pieces, 0 for none. The rest at
/// the end of the file is passed as it is.
pub(super) fn pieces(
    source: &mut Source,
    size: usize,
    ends: impl Fn(&[u8]) -> usize,
    mut piece: impl FnMut(&[u8]) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut buffer = vec![0u8; size];
    let mut have = 0;
    loop {
        let n = source.fill(&mut buffer[have..])?;
        let last = n < buffer.len() - have;
        have += n;
        if last {
            if have > 0 {
                piece(&buffer[..have])?;
            }
            return Ok(());
        }
        match ends(&buffer[..have]) {
            // The piece is larger than the buffer.
            0 => buffer.resize(buffer.len() * 2, 0),
            whole => {
                piece(&buffer[..whole])?;
                buffer.copy_within(whole..have, 0);
                have -= whole;
            }
        }
    }
}

/// The end of the last whole line.
pub(super) fn lines(bytes: &[u8]) -> usize {
    memchr::memrchr(b'\n', bytes).map_or(0, |i| i + 1)
}
