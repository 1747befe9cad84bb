//! The ring that the kernel writes a perf event's records to.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    ptr,
    sync::atomic::{AtomicU64, Ordering},
};

use perf_event_open_sys::bindings as b;

const PAGE: usize = 4096;

/// A mapped ring and the event that it belongs to.
pub(crate) struct Ring {
    base: *mut u8,
    pages: usize,
    event: OwnedFd,
}

impl Ring {
    /// Maps the ring of `event` with `most` data pages or, where the kernel grants no more, with
    /// half as many, and so on down to `fewest`. Both are powers of two.
    ///
    /// # Errors
    /// Not even `fewest` pages are granted.
    pub fn map(event: OwnedFd, most: usize, fewest: usize) -> io::Result<Ring> {
        let mut pages = most;
        loop {
            // SAFETY: a fresh shared mapping of the event's ring, at an address that the kernel chooses.
            let base = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    (pages + 1) * PAGE,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    event.as_raw_fd(),
                    0,
                )
            };
            if base != libc::MAP_FAILED {
                return Ok(Ring {
                    base: base.cast(),
                    pages,
                    event,
                });
            }
            let e = io::Error::last_os_error();
            if pages / 2 < fewest {
                return Err(e);
            }
            pages /= 2;
        }
    }

    /// The event. Its descriptor becomes readable when the ring has filled to its watermark.
    pub fn event(&self) -> &OwnedFd {
        &self.event
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        ((self.pages + 1) * PAGE) as u64
    }

    /// Takes all records: the kind of each, its `misc` word and its body. Returns the part of the ring that they
    /// filled, 0..=1.
    pub fn drain(&mut self, mut take: impl FnMut(u32, u16, &[u8])) -> f64 {
        let page = self.base.cast::<b::perf_event_mmap_page>();
        // SAFETY: the first page of the mapping is this structure; head and tail are its naturally
        // aligned u64 fields, shared with the kernel, so they are accessed atomically.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*page).data_head),
                AtomicU64::from_ptr(&raw mut (*page).data_tail),
            )
        };
        let end = head.load(Ordering::Acquire);
        let begin = tail.load(Ordering::Relaxed);
        let mut at = begin;
        let mut wrapped = Vec::new();
        while at < end {
            let mut header = [0u8; 8];
            header.copy_from_slice(self.bytes_at(at, 8, &mut wrapped));
            let [k0, k1, k2, k3, m0, m1, s0, s1] = header;
            let size = u64::from(u16::from_ne_bytes([s0, s1]));
            if size < 8 {
                break; // never written by a kernel; do not loop on it
            }
            take(
                u32::from_ne_bytes([k0, k1, k2, k3]),
                u16::from_ne_bytes([m0, m1]),
                self.bytes_at(at + 8, (size - 8) as usize, &mut wrapped),
            );
            at += size;
        }
        tail.store(end, Ordering::Release);
        end.saturating_sub(begin) as f64 / (self.pages * PAGE) as f64
    }

    /// `len` bytes from position `at` of the ring: where they lie, or in `wrapped` if they go on at
    /// the ring's beginning.
    fn bytes_at<'a>(&'a self, at: u64, len: usize, wrapped: &'a mut Vec<u8>) -> &'a [u8] {
        let size = self.pages * PAGE;
        let start = at as usize % size;
        let first = len.min(size - start);
        // SAFETY: both pieces lie within the data pages behind the first page; the kernel does not
        // write there again before the tail is moved, which needs `self` back.
        let (head, rest) = unsafe {
            let data = self.base.add(PAGE);
            (
                std::slice::from_raw_parts(data.add(start), first),
                std::slice::from_raw_parts(data, len - first),
            )
        };
        if rest.is_empty() {
            return head;
        }
        wrapped.clear();
        wrapped.extend_from_slice(head);
        wrapped.extend_from_slice(rest);
        wrapped
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`, with this length.
        unsafe { libc::munmap(self.base.cast(), (self.pages + 1) * PAGE) };
    }
}
