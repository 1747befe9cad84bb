//! The text at the top of a log, for people and for readers: `head -n 6 LOG` shows it.

use std::io::{self, BufRead, Read};

/// Version of the encoding. It grows with each change that an older reader would misread.
pub const VERSION: u32 = 4;

/// The first words of every log.
const MAGIC: &str = "wallscope observation log";
/// Maximum bytes of a header.
const MAX_HEADER: u64 = 4096;
/// Contents of every log, for people.
const CONTENTS: &str = "thread times; stacks as addresses; names of functions, files, processes, \
                        locks and network peers; command lines; counters of the host";

/// Facts about a log, at its top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the encoding.
    pub version: u32,
    /// The program that wrote it, with its version.
    pub tool: String,
    /// All bytes after the header are one zstd stream.
    pub compressed: bool,
    /// It holds stack memory.
    pub memory: bool,
}

impl Header {
    /// The header of a new log of `tool`.
    pub fn new(tool: &str) -> Header {
        Header {
            version: VERSION,
            tool: tool.lines().next().unwrap_or_default().into(),
            compressed: false,
            memory: false,
        }
    }

    /// The text, with the empty line that ends it.
    pub fn text(&self) -> String {
        let compression = if self.compressed { "zstd" } else { "none" };
        let memory = if self.memory { "yes" } else { "no" };
        format!(
            "{MAGIC}\nversion: {}\ntool: {}\ncompression: {compression}\ncontains: {CONTENTS}\n\
             stack memory: {memory}\n\n",
            self.version, self.tool
        )
    }

    /// Reads a header, and nothing after it. `None`: the bytes are no log of observations.
    ///
    /// # Errors
    /// The bytes cannot be read.
    pub fn read(from: &mut impl BufRead) -> io::Result<Option<Header>> {
        let mut limited = from.take(MAX_HEADER);
        let mut line = || {
            let mut text = Vec::new();
            limited.read_until(b'\n', &mut text)?;
            // A line without a line break is truncated.
            let whole = text.pop() == Some(b'\n');
            let text = String::from_utf8(text).ok().filter(|_| whole);
            Ok::<_, io::Error>(text)
        };
        if line()?.as_deref() != Some(MAGIC) {
            return Ok(None);
        }
        let mut header = Header {
            version: 0,
            tool: String::new(),
            compressed: false,
            memory: false,
        };
        loop {
            let Some(text) = line()? else {
                return Ok(None);
            };
            if text.is_empty() {
                return Ok((header.version > 0).then_some(header));
            }
            // Lines with other names are for people.
            match text.split_once(": ") {
                Some(("version", number)) => header.version = number.parse().unwrap_or(0),
                Some(("tool", tool)) => header.tool = tool.into(),
                Some(("compression", how)) => header.compressed = how == "zstd",
                Some(("stack memory", kept)) => header.memory = kept == "yes",
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_and_nothing_after_it() {
        let header = Header::new("wallscope 1.2.3");
        let bytes = [header.text().as_bytes(), b"rest"].concat();
        let mut from = &bytes[..];
        assert_eq!(Header::read(&mut from).unwrap(), Some(header));
        assert_eq!(from, b"rest");
    }

    #[test]
    fn other_files_are_no_logs() {
        let whole = Header::new("wallscope").text();
        for cut in 0..whole.len() {
            assert_eq!(
                Header::read(&mut &whole.as_bytes()[..cut]).unwrap(),
                None,
                "{cut}"
            );
        }
        assert_eq!(Header::read(&mut &b"\x1f\x8b\x08"[..]).unwrap(), None);
        let endless = format!("{MAGIC}\n{}", "x".repeat(10_000));
        assert_eq!(Header::read(&mut endless.as_bytes()).unwrap(), None);
    }
}
