//! The task iterator: copies threads' ledgers while the threads run on.
//!
//! It walks all tasks of the machine. On an idle machine that costs more than anything else that is done once a
//! second. If few processes are measured and the kernel can walk a single process (6.1), each of them is walked
//! instead.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{Iter, Link, ProgramMut, libbpf_sys};
use zerocopy::FromBytes;

use crate::{
    Error,
    event::{Dump, Head, kind},
};

/// The order given to the task iterator (`set_iter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IterOrder {
    /// Make records for the targets.
    Begin = 0,
    /// Copy the ledgers of threads that changed.
    Dump = 1,
    /// Copy all ledgers and charge the intervals that are still open.
    End = 2,
    /// Copy all ledgers.
    All = 3,
}

/// A record of the task iterator about one thread.
pub enum IterRecord<'a> {
    /// Its ledger.
    Books(&'a Dump),
    /// The bytes of its `struct ws_histogram_event`.
    Histogram(&'a [u8]),
}

/// The iterator, attached.
pub(super) struct TaskIter {
    program: OwnedFd,
    all: Link,
    /// Links to single processes, by id.
    single: Vec<(u32, OwnedFd)>,
    /// The kernel knows such links.
    divisible: bool,
    buffer: Vec<u8>,
}

impl TaskIter {
    pub(super) fn new(program: &ProgramMut<'_>) -> Result<TaskIter, Error> {
        let fd = program.as_fd().try_clone_to_owned();
        Ok(TaskIter {
            program: fd.map_err(|e| Error::io("cannot keep the task iterator", e))?,
            all: (program.attach()).map_err(Error::bpf("cannot attach the task iterator"))?,
            single: Vec::new(),
            divisible: true,
            buffer: Vec::new(),
        })
    }

    /// Walks the whole machine.
    fn walk_all(&mut self) -> Result<(), Error> {
        let mut iter =
            Iter::new(&self.all).map_err(Error::bpf("cannot start the task iterator"))?;
        self.buffer.clear();
        iter.read_to_end(&mut self.buffer)
            .map_err(|e| Error::io("cannot read the task iterator", e))?;
        Ok(())
    }

    /// Walks these processes one by one; `false`: that cannot be done.
    fn walk_each(&mut self, pids: &[u32]) -> bool {
        self.single.retain(|(pid, _)| pids.contains(pid));
        self.buffer.clear();
        for pid in pids {
            let at = match self.single.iter().position(|(known, _)| known == pid) {
                Some(at) => at,
                None => match link(&self.program, *pid) {
                    Ok(link) => {
                        self.single.push((*pid, link));
                        self.single.len() - 1
                    }
                    // It has ended.
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => continue,
                    Err(_) => {
                        self.divisible = false;
                        return false;
                    }
                },
            };
            // `take` bounds the read: a read to the end would ask for a size, which such a file does not have.
            let read = iterate(&self.single[at].1)
                .and_then(|file| file.take(u64::MAX).read_to_end(&mut self.buffer));
            if read.is_err() {
                return false;
            }
        }
        true
    }

    /// Walks all tasks, or the processes `only`, if they are given and the kernel can do that. `dump` gets the
    /// ledger of each thread, and at the end the bytes of its histograms.
    ///
    /// # Errors
    /// The iterator cannot be read.
    pub(super) fn walk(
        &mut self,
        only: Option<&[u32]>,
        mut dump: impl FnMut(IterRecord<'_>),
    ) -> Result<(), Error> {
        let only = only.filter(|_| self.divisible);
        if !only.is_some_and(|pids| self.walk_each(pids)) {
            self.walk_all()?;
        }
        let mut rest = &self.buffer[..];
        while let Ok((head, _)) = Head::read_from_prefix(rest) {
            let Some((bytes, after)) = rest.split_at_checked(head.size as usize) else {
                break;
            };
            rest = after;
            if head.kind == kind::HISTOGRAM {
                dump(IterRecord::Histogram(bytes));
            } else if let Ok(d) = Dump::read_from_bytes(bytes) {
                dump(IterRecord::Books(&d));
            } else {
                break;
            }
        }
        Ok(())
    }
}

/// A link of the iterator `program` to the process `pid` alone.
fn link(program: &OwnedFd, pid: u32) -> io::Result<OwnedFd> {
    let mut info = libbpf_sys::bpf_iter_link_info {
        task: libbpf_sys::bpf_iter_link_info__bindgen_ty_3 {
            pid,
            ..Default::default()
        },
    };
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as _,
        iter_info: &raw mut info,
        iter_info_len: size_of::<libbpf_sys::bpf_iter_link_info>() as u32,
        ..Default::default()
    };
    // SAFETY: `options` and the structs that it points to live through the call, with the sizes they state.
    let fd = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            0,
            libbpf_sys::BPF_TRACE_ITER,
            &raw const options,
        )
    };
    owned(fd)
}

/// One walk of a link.
fn iterate(link: &OwnedFd) -> io::Result<File> {
    // SAFETY: takes a descriptor and no memory of ours.
    owned(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) }).map(File::from)
}

/// A new descriptor of libbpf's, or its error, which it gives as a negative number.
fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: it was just made for us, and nothing else holds it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
