//! Executable mappings as they are made: the kernel's own MMAP2 and COMM records.
//!
//! One dummy perf event per CPU writes them to a ring that we map. They carry the path even if the process is gone
//! before we read them. The records of an exec come in the right order: first the new name, which voids all
//! mappings, then the new mappings.

use std::{io, os::fd::OwnedFd};

use perf_event_open_sys::bindings as b;

use wallscope_procfs::target_file::MappedAt;

use crate::backend::{perf_event::open_on_cpu, ring::Ring};

/// Pages of all rings together: 2 MiB, some 12,000 records.
const ALL_PAGES: usize = 512;
/// Fewest (200 records) and most pages of one CPU's ring. It wakes us when half full.
const PAGES: std::ops::RangeInclusive<usize> = 8..=32;
const PAGE: usize = 4096;

/// A change of a process's address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new executable mapping.
    Map(Mapping),
    /// The process runs a new program: earlier mappings are void.
    Exec {
        /// Process.
        pid: u32,
    },
    /// The ring was full; this many records are missing, of unknown processes.
    Lost(u64),
}

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Process.
    pub pid: u32,
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Device number as `makedev(major, minor)`.
    pub device: u64,
    /// Inode, 0: no file.
    pub inode: u64,
    /// Path as the target sees it, `[vdso]`, `//anon` …
    pub path: String,
}

impl Mapping {
    /// The file that is mapped.
    pub fn file(&self) -> MappedAt<'_> {
        MappedAt {
            pid: self.pid,
            start: self.start,
            end: self.end,
            device: self.device,
            inode: self.inode,
            path: &self.path,
        }
    }
}

/// The rings of all CPUs.
pub struct Sideband {
    rings: Vec<Ring>,
}

impl Sideband {
    /// Opens a ring on each CPU.
    ///
    /// # Errors
    /// The kernel refuses CPU-wide perf events.
    pub fn open(cpus: &[u32]) -> io::Result<Sideband> {
        let pages = pages(cpus.len());
        let rings: io::Result<Vec<_>> = cpus
            .iter()
            .filter_map(|cpu| open_ring(*cpu, pages).transpose())
            .collect();
        Ok(Sideband { rings: rings? })
    }

    /// Descriptors that become readable when there is something to take.
    pub fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        self.rings.iter().map(Ring::event)
    }

    /// Bytes held by the rings.
    pub fn bytes(&self) -> u64 {
        self.rings.iter().map(Ring::bytes).sum()
    }

    /// Takes everything that is there, in time order, with its time (ns on CLOCK_MONOTONIC).
    pub fn drain(&mut self) -> Vec<(u64, Change)> {
        let mut changes = Vec::new();
        for ring in &mut self.rings {
            ring.drain(|kind, misc, body| changes.extend(parse(kind, misc, body)));
        }
        changes.sort_by_key(|(time, _)| *time);
        changes
    }
}

/// Pages of each of so many rings, a power of two.
fn pages(rings: usize) -> usize {
    let share = (ALL_PAGES / rings.max(1)).clamp(*PAGES.start(), *PAGES.end());
    1 << share.ilog2()
}

fn open_ring(cpu: u32, pages: usize) -> io::Result<Option<Ring>> {
    let mut attr = b::perf_event_attr {
        size: size_of::<b::perf_event_attr>() as u32,
        type_: b::PERF_TYPE_SOFTWARE,
        config: u64::from(b::PERF_COUNT_SW_DUMMY),
        sample_type: u64::from(b::PERF_SAMPLE_TIME),
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_sample_id_all(1);
    // The ring also gets records of processes that are not measured, so it does not wake us for each record. An
    // exec of a target wakes us, and so does a stack that meets code without a table.
    attr.set_use_clockid(1);
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = (pages * PAGE / 2) as u32;
    open_on_cpu(cpu, attr)?
        .map(|event| Ring::map(event, pages, pages))
        .transpose()
}

/// One record; the time is the last word of the trailing sample id.
pub(crate) fn parse(kind: u32, misc: u16, body: &[u8]) -> Option<(u64, Change)> {
    let u32_at = |at: usize| Some(u32::from_ne_bytes(body.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(body.get(at..at + 8)?.try_into().ok()?));
    let time = u64_at(body.len().checked_sub(8)?)?;
    match kind {
        b::PERF_RECORD_MMAP2 => {
            let name = body.get(64..body.len() - 8)?;
            let len = name.iter().position(|c| *c == 0).unwrap_or(name.len());
            let (major, minor) = (u32_at(32)?, u32_at(36)?);
            Some((
                time,
                Change::Map(Mapping {
                    pid: u32_at(0)?,
                    start: u64_at(8)?,
                    end: u64_at(8)?.checked_add(u64_at(16)?)?,
                    offset: u64_at(24)?,
                    device: rustix::fs::makedev(major, minor),
                    inode: u64_at(40)?,
                    path: String::from_utf8_lossy(&name[..len]).into_owned(),
                }),
            ))
        }
        b::PERF_RECORD_COMM if u32::from(misc) & b::PERF_RECORD_MISC_COMM_EXEC != 0 => {
            Some((time, Change::Exec { pid: u32_at(0)? }))
        }
        b::PERF_RECORD_LOST => Some((time, Change::Lost(u64_at(8)?))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_share_their_memory_where_there_are_many() {
        let of = [1, 2, 16, 17, 48, 64, 256].map(pages);
        assert_eq!(of, [32, 32, 32, 16, 8, 8, 8]);
    }

    #[test]
    fn an_mmap2_record() {
        let mut body = Vec::new();
        body.extend(7u32.to_ne_bytes());
        body.extend(8u32.to_ne_bytes());
        for v in [0x1000u64, 0x2000, 0x3000] {
            body.extend(v.to_ne_bytes());
        }
        body.extend(8u32.to_ne_bytes());
        body.extend(1u32.to_ne_bytes());
        body.extend(42u64.to_ne_bytes());
        body.extend(0u64.to_ne_bytes());
        body.extend([0u8; 8]);
        body.extend(b"/lib/x.so\0\0\0\0\0\0\0");
        body.extend(99u64.to_ne_bytes());
        let (time, change) = parse(b::PERF_RECORD_MMAP2, 0, &body).unwrap();
        assert_eq!(time, 99);
        let Change::Map(m) = change else {
            panic!("{change:?}")
        };
        assert_eq!(
            (m.pid, m.start, m.end, m.offset, m.inode),
            (7, 0x1000, 0x3000, 0x3000, 42)
        );
        assert_eq!(m.path, "/lib/x.so");
    }

    #[test]
    fn short_records_are_refused() {
        for len in 0..72 {
            assert_eq!(
                parse(b::PERF_RECORD_MMAP2, 0, &vec![0; len]),
                None,
                "length {len}"
            );
        }
    }

    #[test]
    fn a_new_mapping_of_our_own_is_seen() {
        let cpus = crate::cpus::online().unwrap();
        let Ok(mut side) = Sideband::open(&cpus) else {
            println!("skipped: CPU-wide perf events are not permitted here");
            return;
        };
        // SAFETY: a fresh private mapping that nothing else refers to.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        } as u64;
        let me = std::process::id();
        let found = side.drain().into_iter().any(
            |(_, c)| matches!(c, Change::Map(m) if m.pid == me && m.start <= at && at < m.end),
        );
        assert!(found);
    }
}
