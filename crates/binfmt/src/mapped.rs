//! A file mapped into memory, safe even if another process truncates it meanwhile.
//!
//! An access to a mapped page that the file no longer has raises SIGBUS. It would end this process,
//! and the recording would be lost: a rebuild over a running program's binary is enough. So the
//! first mapping installs a SIGBUS handler. For an address within one of our mappings it puts a
//! page of zeros there and lets the reader go on: parsers take zeros as they take any hostile
//! bytes. Any other SIGBUS goes to the handler that was there before.
//!
//! At most [`MAX_GUARDED`] mappings are guarded at a time; further ones work, unguarded.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::Mmap;

/// Maximum mappings that are guarded at a time.
pub const MAX_GUARDED: usize = 1024;

/// A guarded mapping: its address and, once that is set, its length. Both 0: free.
struct Slot {
    start: AtomicUsize,
    len: AtomicUsize,
}

static GUARDED: [Slot; MAX_GUARDED] = [const {
    Slot {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
    }
}; MAX_GUARDED];

/// The action of SIGBUS before our handler.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE_SIZE: AtomicUsize = AtomicUsize::new(4096);

/// A regular file's bytes, mapped privately and read-only. The kernel loads pages when they are
/// read and can drop them at any time, so a file of any size costs little memory.
#[derive(Debug)]
pub struct MappedFile {
    map: Mmap,
    slot: Option<usize>,
}

impl MappedFile {
    /// Maps all of `file`.
    ///
    /// ```
    /// use wallscope_binfmt::mapped::MappedFile;
    ///
    /// let map = MappedFile::map(&std::fs::File::open("/proc/self/exe")?)?;
    /// assert!(map.starts_with(b"\x7fELF"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if it is not a regular file or is empty; otherwise the error of `mmap`.
    pub fn map(file: &File) -> io::Result<MappedFile> {
        let meta = file.metadata()?;
        if !meta.is_file() || meta.len() == 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file with content",
            ));
        }
        install_handler();
        // SAFETY: the mapping is private and read-only and lives as long as `self`. If another process
        // writes to the file in place, bytes change under the parsers, which treat each of them as
        // hostile and hold no validated copy. If the file is truncated, the handler above turns the
        // lost pages into zeros.
        let map = unsafe { Mmap::map(file)? };
        let slot = claim_slot(map.as_ptr() as usize, map.len());
        Ok(MappedFile { map, slot })
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            GUARDED[slot].len.store(0, Ordering::SeqCst);
            GUARDED[slot].start.store(0, Ordering::SeqCst);
        }
    }
}

fn claim_slot(start: usize, len: usize) -> Option<usize> {
    GUARDED.iter().position(|slot| {
        let free = slot
            .start
            .compare_exchange(0, start, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if free {
            slot.len.store(len, Ordering::SeqCst);
        }
        free
    })
}

fn install_handler() {
    PREVIOUS.get_or_init(|| {
        PAGE_SIZE.store(rustix::param::page_size(), Ordering::SeqCst);
        let mut old = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: both structures are valid, zeroed first as the C interface expects, and the
        // handler has the signature that SA_SIGINFO asks for and calls only functions that are allowed there.
        // Should the call fail, `old` stays zeroed, which is the default action.
        unsafe {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &raw const action, old.as_mut_ptr());
            old.assume_init()
        }
    });
}

extern "C" fn on_bus_error(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo, and sets its address field for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    let page = PAGE_SIZE.load(Ordering::SeqCst);
    let ours = GUARDED.iter().any(|slot| {
        let start = slot.start.load(Ordering::SeqCst);
        let len = slot.len.load(Ordering::SeqCst);
        // The last page is mapped whole.
        start != 0 && address >= start && address - start < len.next_multiple_of(page)
    });
    if ours {
        let at = (address & !(page - 1)) as *mut libc::c_void;
        // SAFETY: the page belongs to a private read-only mapping of ours, which a slot proves to
        // be still there: replacing it by zeros invalidates no other memory. `mmap` is a plain
        // system call, fit for a signal handler.
        let replaced = unsafe {
            libc::mmap(
                at,
                page,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if replaced != libc::MAP_FAILED {
            return;
        }
    }
    pass_on(signal, info, context);
}

/// Passes a SIGBUS that is not ours to the handler that was installed before ours.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if let Some(old) = PREVIOUS.get()
        && old.sa_sigaction != libc::SIG_DFL
        && old.sa_sigaction != libc::SIG_IGN
    {
        // SAFETY: the address was registered as a handler for this signal, with the signature its
        // flags say.
        unsafe {
            if old.sa_flags & libc::SA_SIGINFO != 0 {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(old.sa_sigaction);
                handler(signal, info, context);
            } else {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(old.sa_sigaction);
                handler(signal);
            }
        }
        return;
    }
    // SAFETY: restoring the default action; the faulting instruction runs again and ends us as it
    // would have without this module.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_cut_short_reads_as_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![7u8; 5 * 4096 + 100]).unwrap();
        let map = MappedFile::map(&File::open(&path).unwrap()).unwrap();
        assert_eq!(map[4096], 7);
        let writer = File::options().write(true).open(&path).unwrap();
        writer.set_len(0).unwrap();
        assert!(map.iter().all(|b| *b == 0));
        drop(map);
        std::fs::write(&path, [9u8; 10]).unwrap();
        assert_eq!(
            &MappedFile::map(&File::open(&path).unwrap()).unwrap()[..],
            [9u8; 10]
        );
    }

    #[test]
    fn a_directory_or_an_empty_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty");
        std::fs::write(&empty, b"").unwrap();
        for path in [dir.path(), &empty] {
            let error = MappedFile::map(&File::open(path).unwrap()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path:?}");
        }
    }
}
