//! `/proc/PID/maps`: the mappings of a process and their addresses.

use crate::kernel_file;
use std::io;
use std::ops::Range;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Readable.
    pub read: bool,
    /// Writable.
    pub write: bool,
    /// Executable.
    pub execute: bool,
    /// Shared with other processes rather than private.
    pub shared: bool,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Major and minor number of the file's device.
    pub device: (u32, u32),
    /// Inode of the file, 0 for anonymous memory.
    pub inode: u64,
    /// Path as the process sees it, `[heap]` and the like, or empty; without ` (deleted)`.
    pub path: String,
    /// Whether the file no longer has that name.
    pub deleted: bool,
    /// Whether the process copied this part of the file to anonymous memory, as programs do that want
    /// their code on large pages. The other fields name the part of the file.
    pub moved: bool,
}

impl Mapping {
    /// Whether it is a mapped file rather than anonymous or special memory.
    pub fn is_file(&self) -> bool {
        self.inode != 0 && self.path.starts_with('/')
    }

    /// Whether it is the vDSO.
    pub fn is_vdso(&self) -> bool {
        self.path == "[vdso]"
    }

    /// Whether it is code in anonymous memory that the process does not write to any more.
    pub fn is_anonymous_code(&self) -> bool {
        let no_file = self.inode == 0 && self.path.is_empty();
        let large_pages = self.path.starts_with("/anon_hugepage");
        self.execute && !self.write && (no_file || large_pages)
    }

    /// Whether it may be code that the process copied from a file to its own place in memory.
    fn may_be_moved(&self) -> bool {
        let shared_memory = self.execute && !self.write && is_memory(&self.path);
        self.is_anonymous_code() || shared_memory
    }

    /// Name under `/proc/PID/map_files/` that opens the mapped file even after its deletion.
    pub fn map_file_name(&self) -> String {
        format!("{:x}-{:x}", self.start, self.end)
    }
}

/// Whether a path names shared memory and not a file on a disk. Some runtimes map the code that they make there.
/// The caller must recognise the rare program that was *started* from there by its ELF header.
pub fn is_memory(path: &str) -> bool {
    let names = ["/memfd:", "/dev/zero", "/SYSV", "//anon", "/anon_hugepage"];
    names.iter().any(|name| path.starts_with(name))
}

/// Parses one line; `None` where it is not a mapping.
///
/// ```
/// use wallscope_procfs::maps::parse_line;
///
/// let line = "7f12c000-7f12d000 r-xp 00001000 08:01 42   /usr/lib/libc.so.6 (deleted)";
/// let mapping = parse_line(line).expect("a mapping");
/// assert_eq!((mapping.offset, mapping.inode), (0x1000, 42));
/// assert!(mapping.execute && mapping.deleted && mapping.is_file());
/// assert_eq!(mapping.path, "/usr/lib/libc.so.6");
/// ```
pub fn parse_line(line: &str) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let (perms, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let (device, rest) = rest.split_once(' ')?;
    let (inode, path) = match rest.split_once(' ') {
        Some((inode, path)) => (inode, path.trim_start_matches(' ')),
        None => (rest, ""),
    };
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let perms: &[u8; 4] = perms.as_bytes().try_into().ok()?;
    let hex = |s: &str| u64::from_str_radix(s, 16).ok();
    // The kernel writes a line break in a name as `\012` and nothing else specially.
    let path = path.replace("\\012", "\n");
    let (path, deleted) = match path.strip_suffix(" (deleted)") {
        Some(p) => (p.to_owned(), true),
        None => (path, false),
    };
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        read: perms[0] == b'r',
        write: perms[1] == b'w',
        execute: perms[2] == b'x',
        shared: perms[3] == b's',
        offset: hex(offset)?,
        device: (
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        ),
        inode: inode.parse().ok()?,
        path,
        deleted,
        moved: false,
    })
}

/// Parses all of a `maps` file; lines that are no mapping are left out. Code that the process moved
/// to anonymous memory is named by its original file ([`Mapping::moved`]).
pub fn parse(text: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = text.lines().filter_map(parse_line).collect();
    name_moved_code(&mut mappings);
    mappings
}

/// Names the file of executable memory that fills a gap in the mappings of one file.
fn name_moved_code(mappings: &mut [Mapping]) {
    let mut next = 0;
    while next < mappings.len() {
        let start = next;
        while next < mappings.len()
            && mappings[next].may_be_moved()
            && (next == start || mappings[next - 1].end == mappings[next].start)
        {
            next += 1;
        }
        if start == next {
            next += 1;
        } else if let Some((file, offset)) = file_around(mappings, start..next) {
            let first = mappings[start].start;
            for part in &mut mappings[start..next] {
                part.offset = offset + (part.start - first);
                part.device = file.device;
                part.inode = file.inode;
                part.path.clone_from(&file.path);
                part.deleted = file.deleted;
                part.moved = true;
            }
        }
    }
}

/// The mapping behind `gap` and the offset in its file of the bytes of `gap`, if exactly these bytes are missing
/// before it. Either the part before them is mapped in front of `gap`, or the file's code begins with them.
fn file_around(mappings: &[Mapping], gap: Range<usize>) -> Option<(Mapping, u64)> {
    let (first, last) = (&mappings[gap.start], &mappings[gap.end - 1]);
    let after = mappings.get(gap.end)?;
    if !after.is_file() || is_memory(&after.path) || last.end != after.start {
        return None;
    }
    let offset = after.offset.checked_sub(after.start - first.start)?;
    let before = gap.start.checked_sub(1).map(|at| &mappings[at]);
    let before = before.filter(|b| (b.device, b.inode) == (after.device, after.inode));
    let fits = match before {
        Some(b) => b.end == first.start && b.offset.checked_add(b.end - b.start) == Some(offset),
        None => offset == 0 && after.execute,
    };
    fits.then(|| (after.clone(), offset))
}

/// The mappings of a process.
///
/// ```
/// use wallscope_procfs::maps;
///
/// let own = maps::read(std::process::id())?;
/// let here = maps::read as fn(u32) -> _ as usize as u64;
/// let code = own.iter().find(|m| (m.start..m.end).contains(&here));
/// assert!(code.is_some_and(|m| m.execute));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The error of reading `/proc/PID/maps`: `NotFound` if there is no such process,
/// `PermissionDenied` if it may not be inspected.
pub fn read(pid: u32) -> io::Result<Vec<Mapping>> {
    let bytes = kernel_file::read(format!("/proc/{pid}/maps"))?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_read() {
        let m = parse_line(
            "7f1c2c5d7000-7f1c2c72c000 r-xp 00026000 fe:00 1051         /usr/lib/a b (x).so",
        )
        .unwrap();
        assert_eq!((m.start, m.end), (0x7f1c_2c5d_7000, 0x7f1c_2c72_c000));
        assert!(m.read && !m.write && m.execute && !m.shared);
        assert_eq!((m.offset, m.device, m.inode), (0x26000, (0xfe, 0), 1051));
        assert_eq!(m.path, "/usr/lib/a b (x).so");
        assert!(m.is_file() && !m.deleted && !is_memory(&m.path));
        assert_eq!(m.map_file_name(), "7f1c2c5d7000-7f1c2c72c000");
    }

    #[test]
    fn deleted_anonymous_and_special_mappings() {
        let deleted = parse_line("1000-2000 r-xp 00000000 08:01 7 /tmp/x (deleted)").unwrap();
        assert!(deleted.deleted && deleted.is_file());
        assert_eq!(deleted.path, "/tmp/x");
        let anonymous = parse_line("1000-2000 rwxp 00000000 00:00 0 ").unwrap();
        assert!(!anonymous.is_file());
        let vdso = parse_line("1000-2000 r-xp 00000000 00:00 0     [vdso]").unwrap();
        assert!(vdso.is_vdso());
        let memfd = parse_line("1000-2000 r-xs 00000000 00:01 99 /memfd:jit (deleted)").unwrap();
        assert!(is_memory(&memfd.path));
        let line_break = parse_line("1000-2000 r--p 00000000 08:01 7 /tmp/a\\012b").unwrap();
        assert_eq!(line_break.path, "/tmp/a\nb");
    }

    #[test]
    fn code_that_was_moved_to_anonymous_memory_is_named_by_its_file() {
        let node = "\
            00400000-00b6f000 r--p 00000000 fe:00 9 /usr/bin/node\n\
            00b72000-00c00000 r-xp 00772000 fe:00 9 /usr/bin/node\n\
            00c00000-02200000 r-xp 00000000 00:00 0 \n\
            02200000-02400000 r-xp 00000000 00:0f 77 /anon_hugepage (deleted)\n\
            02400000-025fe000 r-xp 02000000 fe:00 9 /usr/bin/node\n\
            025fe000-02600000 r-xp 00000000 00:00 0 \n";
        let all = parse(&node.replace("            ", ""));
        let moved: Vec<_> = all.iter().filter(|m| m.moved).collect();
        assert_eq!(moved.len(), 2);
        for m in moved {
            assert_eq!((m.inode, &*m.path), (9, "/usr/bin/node"));
            assert_eq!(m.offset, 0x77_2000 + (m.start - 0xb7_2000));
            assert!(m.is_file() && !m.deleted);
        }
        // Nothing follows the last one; the code may be of any origin.
        assert!(!all[5].is_file());
    }

    #[test]
    fn anonymous_code_beside_other_mappings_stays_anonymous() {
        let code = "2000-3000 r-xp 00000000 00:00 0 \n";
        let around = [
            // Another file, an offset that does not fit, a hole, writable code, none before it.
            (
                "1000-2000 r--p 00000000 08:01 7 /a\n",
                "3000-4000 r--p 00002000 08:01 8 /b\n",
            ),
            (
                "1000-2000 r--p 00000000 08:01 7 /a\n",
                "3000-4000 r--p 00001000 08:01 7 /a\n",
            ),
            (
                "1000-1800 r--p 00000000 08:01 7 /a\n",
                "3000-4000 r--p 00002000 08:01 7 /a\n",
            ),
            (
                "1000-2000 r--p 00000000 08:01 7 /a\n",
                "4000-5000 r--p 00003000 08:01 7 /a\n",
            ),
            ("", "3000-4000 r--p 00002000 08:01 7 /a\n"),
        ];
        for (before, after) in around {
            let text = format!("{before}{code}{after}");
            assert!(parse(&text).iter().all(|m| !m.moved), "{text}");
        }
        let (before, after) = (around[0].0, "3000-4000 r--p 00002000 08:01 7 /a\n");
        assert!(parse(&format!("{before}{code}{after}"))[1].moved);
        let writable = code.replace("r-xp", "rwxp");
        assert!(!parse(&format!("{before}{writable}{after}"))[1].moved);
    }

    #[test]
    fn code_that_was_moved_to_shared_memory_is_named_by_its_file() {
        let (before, after) = (
            "1000-2000 r--p 00000000 08:01 7 /a\n",
            "3000-4000 r--p 00002000 08:01 7 /a\n",
        );
        let memory = "2000-3000 r-xp 00000000 00:01 9 /memfd:text (deleted)\n";
        let moved = &parse(&format!("{before}{memory}{after}"))[1];
        assert!(moved.moved && !moved.deleted);
        assert_eq!((moved.inode, moved.offset, &*moved.path), (7, 0x1000, "/a"));
        let other = "2000-3000 r-xp 00000000 08:01 9 /b\n";
        assert!(!parse(&format!("{before}{other}{after}"))[1].moved);
    }

    #[test]
    fn a_file_may_begin_with_the_moved_code() {
        let code = "400000-600000 r-xp 00000000 00:00 0 \n";
        let rest = "600000-602000 r-xp 00200000 08:01 7 /a\n";
        let moved = &parse(&format!("{code}{rest}"))[0];
        assert!(moved.moved);
        assert_eq!((moved.inode, moved.offset), (7, 0));
        // Memory in front of a mapped part of a data file, and in a gap of a library, is not the file's.
        let data = "600000-602000 r--p 00200000 08:01 7 /a\n";
        assert!(!parse(&format!("{code}{data}"))[0].moved);
        let begin = "200000-400000 r--p 00000000 08:01 7 /a\n";
        assert!(!parse(&format!("{begin}{code}{rest}"))[1].moved);
    }

    #[test]
    fn what_is_no_mapping_is_left_out() {
        let text = "garbage\n\n1000-2000 r-xp 0 08:01 7 /x\n1000 r-xp\nzz-yy r-xp 0 08:01 7 /x\n";
        assert_eq!(parse(text).len(), 1);
    }

    #[test]
    fn own_mappings_hold_this_very_function() {
        let here = own_mappings_hold_this_very_function as fn() as usize as u64;
        let maps = read(std::process::id()).unwrap();
        let m = maps.iter().find(|m| (m.start..m.end).contains(&here));
        assert!(m.is_some_and(|m| m.execute && m.is_file()));
    }
}
