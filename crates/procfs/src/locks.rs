//! Locks on files and their holders, from `/proc/locks`.
//!
//! Includes locks of threads and processes (`fcntl`, `flock`) and of open files (`F_OFD_SETLK`, without a
//! holder), not leases.

/// A file, as the kernel counts: device (major, minor) and inode.
pub type FileId = (u32, u32, u64);

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The holding process; 0 if the kernel does not report it.
    pub pid: u32,
    /// The locked file.
    pub file: FileId,
    /// No other process may hold a lock on the file at the same time.
    pub exclusive: bool,
}

/// The held locks in a text like `/proc/locks`. Lines of waiters and malformed lines are left out.
pub fn parse(text: &str) -> Vec<Held> {
    text.lines().filter_map(line).collect()
}

/// `1: POSIX  ADVISORY  WRITE 1234 fe:00:262146 0 EOF`; the second word of a waiter's line is `->`.
fn line(line: &str) -> Option<Held> {
    let mut words = line.split_ascii_whitespace().skip(1);
    if !matches!(words.next()?, "POSIX" | "FLOCK" | "OFDLCK") {
        return None;
    }
    let exclusive = words.nth(1)? == "WRITE";
    let pid = words.next()?.parse::<i64>().ok()?;
    let mut file = words.next()?.split(':');
    let major = u32::from_str_radix(file.next()?, 16).ok()?;
    let minor = u32::from_str_radix(file.next()?, 16).ok()?;
    let inode = file.next()?.parse().ok()?;
    Some(Held {
        pid: u32::try_from(pid).unwrap_or(0),
        file: (major, minor, inode),
        exclusive,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_line_tells_of_a_lock_that_is_held() {
        let text = "1: POSIX  ADVISORY  WRITE 1234 fe:0a:262146 0 EOF\n\
                    1: -> POSIX  ADVISORY  WRITE 99 fe:0a:262146 0 EOF\n\
                    2: FLOCK  ADVISORY  READ  77 00:1f:5 0 EOF\n\
                    3: OFDLCK ADVISORY  WRITE -1 fe:00:6 120 121\n\
                    4: LEASE  ACTIVE    READ 5 fe:00:7 0 EOF\n\
                    5: POSIX  ADVISORY  WRITE x fe:00:6 0 EOF\n6:\n";
        let of = |pid, file, exclusive| Held {
            pid,
            file,
            exclusive,
        };
        assert_eq!(
            parse(text),
            [
                of(1234, (0xfe, 10, 262_146), true),
                of(77, (0, 0x1f, 5), false),
                of(0, (0xfe, 0, 6), true),
            ]
        );
    }

    #[test]
    fn a_lock_of_our_own_is_there() {
        let file = tempfile::tempfile().unwrap();
        let inode = file.metadata().unwrap().ino();
        // SAFETY: an open descriptor.
        assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
        let found = parse(&std::fs::read_to_string("/proc/locks").unwrap());
        let own = |h: &&Held| h.pid == std::process::id() && h.file.2 == inode;
        assert!(
            found.iter().find(own).is_some_and(|h| h.exclusive),
            "{found:?}"
        );
    }
}
