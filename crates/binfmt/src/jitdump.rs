//! Jitdump: `jit-PID.dump`, in which runtimes log the code they make, with its time, lines and names.
//!
//! A header, then records: `perf`'s own format, written by V8, LLVM, .NET, PHP, wasmtime and others.
//! This module parses single records from bytes that the caller has read; a malformed record is `None`.
//! Only the byte order of this machine is read.
//!
//! Not done: the code bytes, and unwinding information (recognised, so that it can be counted).

/// Bytes of a file's header.
pub const HEADER: usize = 40;
/// Bytes of each record's head.
pub const HEAD: usize = 16;
/// Longest name that is read.
pub const MAX_NAME: usize = 4096;
/// Longest table of lines that is read, bytes.
pub const MAX_LINES: usize = 1 << 20;

const MAGIC: u32 = 0x4a69_5444;
/// Bytes of a load before its name.
const LOAD: usize = 40;
/// The flag that says that times are those of a CPU's counter.
const ARCH_TIME: u64 = 1;

/// Why a file is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// It is no jitdump.
    Other,
    /// It is of a machine with the other byte order.
    ByteOrder,
    /// It is of a version that is not known.
    Version(u32),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Problem::Other => f.write_str("it is no jitdump"),
            Problem::ByteOrder => f.write_str("it has the other byte order"),
            Problem::Version(n) => write!(f, "version {n} is not known"),
        }
    }
}

/// The parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Offset of the first record.
    pub size: u64,
    /// Whether times are those of CLOCK_MONOTONIC, ns; else of a counter that is not known here.
    pub monotonic: bool,
}

impl Header {
    /// Reads the first [`HEADER`] bytes of a file.
    ///
    /// # Errors
    /// The reason for which the file is not read.
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Header, Problem> {
        match half(bytes, 0) {
            Some(MAGIC) => {}
            Some(n) if n.swap_bytes() == MAGIC => return Err(Problem::ByteOrder),
            _ => return Err(Problem::Other),
        }
        let version = half(bytes, 4).unwrap_or(0);
        if version != 1 {
            return Err(Problem::Version(version));
        }
        let size = half(bytes, 8).map_or(0, u64::from).max(HEADER as u64);
        let flags = word(bytes, 32).unwrap_or(0);
        Ok(Header {
            size,
            monotonic: flags & ARCH_TIME == 0,
        })
    }
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    kind: u32,
    /// Bytes of the record, with its head; 0: nothing has been written there yet.
    pub size: u32,
    /// When, by the file's clock.
    pub time: u64,
}

impl Head {
    /// Parses it; `None` if the sizes make no sense. The rest of the file cannot be read then.
    pub fn parse(bytes: &[u8; HEAD]) -> Option<Head> {
        let head = Head {
            kind: half(bytes, 0)?,
            size: half(bytes, 4)?,
            time: word(bytes, 8)?,
        };
        (head.size == 0 || head.size as usize >= HEAD).then_some(head)
    }

    /// Number of bytes after the head that [`Record::parse`] needs. The record may be longer: its code is not
    /// read.
    pub fn needs(&self) -> usize {
        let rest = (self.size as usize).saturating_sub(HEAD);
        rest.min(match self.kind {
            0 => LOAD + MAX_NAME,
            1 => 48,
            2 => MAX_LINES,
            4 => 8,
            _ => 0,
        })
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Code was made.
    Load {
        /// Its first address.
        address: u64,
        /// Its bytes.
        size: u64,
        /// Its name, as the runtime wrote it.
        name: &'a [u8],
    },
    /// Code was moved.
    Move {
        /// Its old first address.
        from: u64,
        /// Its new first address.
        to: u64,
        /// Its bytes.
        size: u64,
    },
    /// The lines of the code that is loaded next at `address`.
    Lines {
        /// The code's first address.
        address: u64,
        /// Its lines.
        lines: Lines<'a>,
    },
    /// How to unwind the code that is loaded next.
    Unwinding,
    /// Any other record: the end, padding, kinds that were added later.
    Other,
}

impl<'a> Record<'a> {
    /// Parses the [`Head::needs`] bytes after `head`. `None`: they make no sense.
    pub fn parse(head: &Head, bytes: &'a [u8]) -> Option<Record<'a>> {
        Some(match head.kind {
            0 => {
                let (address, size) = (word(bytes, 16)?, word(bytes, 24)?);
                address.checked_add(size)?;
                let name = until_zero(bytes.get(LOAD..)?);
                Record::Load {
                    address,
                    size,
                    name,
                }
            }
            1 => {
                let (from, to, size) = (word(bytes, 16)?, word(bytes, 24)?, word(bytes, 32)?);
                from.checked_add(size)?;
                to.checked_add(size)?;
                Record::Move { from, to, size }
            }
            2 => Record::Lines {
                address: word(bytes, 0)?,
                lines: Lines {
                    left: word(bytes, 8)?,
                    bytes: bytes.get(16..)?,
                    file: b"",
                },
            },
            // Some runtimes write it for all their code, and leave it empty.
            4 if word(bytes, 0)? > 0 => Record::Unwinding,
            _ => Record::Other,
        })
    }
}

/// A line of code, from an address on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineEntry<'a> {
    /// The first address.
    pub address: u64,
    /// The line.
    pub line: u32,
    /// The file.
    pub file: &'a [u8],
}

/// Iterator over the lines of a piece of code. It ends early if they make no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines<'a> {
    left: u64,
    bytes: &'a [u8],
    file: &'a [u8],
}

impl<'a> Iterator for Lines<'a> {
    type Item = LineEntry<'a>;

    fn next(&mut self) -> Option<LineEntry<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (address, line) = (word(self.bytes, 0)?, half(self.bytes, 8)?);
        let name = self.bytes.get(16..)?;
        let end = name.iter().position(|b| *b == 0)?;
        self.bytes = &name[end + 1..];
        // The single byte 0xff means the name of the entry before.
        if name[..end] != [0xff] {
            self.file = &name[..end];
        }
        Some(LineEntry {
            address,
            line,
            file: self.file,
        })
    }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|b| *b == 0);
    &bytes[..end.unwrap_or(bytes.len()).min(MAX_NAME)]
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(bytes))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(magic: u32, version: u32, flags: u64) -> [u8; HEADER] {
        let mut bytes = [0u8; HEADER];
        bytes[..4].copy_from_slice(&magic.to_ne_bytes());
        bytes[4..8].copy_from_slice(&version.to_ne_bytes());
        bytes[8..12].copy_from_slice(&48u32.to_ne_bytes());
        bytes[32..].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }

    #[test]
    fn headers() {
        let known = Header {
            size: 48,
            monotonic: true,
        };
        assert_eq!(Header::parse(&header(MAGIC, 1, 0)), Ok(known));
        let counter = Header::parse(&header(MAGIC, 1, 1)).unwrap();
        assert!(!counter.monotonic);
        let parse = |magic, version| Header::parse(&header(magic, version, 0)).unwrap_err();
        assert_eq!(parse(MAGIC.swap_bytes(), 1), Problem::ByteOrder);
        assert_eq!(parse(MAGIC, 2), Problem::Version(2));
        assert_eq!(parse(0x7f45_4c46, 1), Problem::Other);
    }

    #[test]
    fn lines_share_the_name_before() {
        let mut bytes = Vec::new();
        for (address, line, name) in [(0x10u64, 3u32, &b"a.js\0"[..]), (0x18, 4, b"\xff\0")] {
            bytes.extend(address.to_ne_bytes());
            bytes.extend(line.to_ne_bytes());
            bytes.extend([0; 4]);
            bytes.extend(name);
        }
        let lines = Lines {
            left: u64::MAX,
            bytes: &bytes,
            file: b"",
        };
        let all: Vec<_> = lines.map(|p| (p.address, p.line, p.file)).collect();
        assert_eq!(all, [(0x10, 3, &b"a.js"[..]), (0x18, 4, b"a.js")]);
    }

    /// Any bytes are a record or none, never a failure.
    #[test]
    fn damaged_records_are_misses() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut bytes = [0u8; 96];
        for _ in 0..20_000 {
            for b in &mut bytes {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                *b = seed as u8;
            }
            bytes[..4].copy_from_slice(&((seed >> 8) as u32 % 6).to_ne_bytes());
            let Some(head) = Head::parse(&bytes[..HEAD].try_into().unwrap()) else {
                continue;
            };
            let rest = &bytes[HEAD..];
            let rest = &rest[..head.needs().min(rest.len())];
            if let Some(Record::Lines { lines, .. }) = Record::parse(&head, rest) {
                assert!(lines.count() < rest.len());
            }
        }
    }
}
