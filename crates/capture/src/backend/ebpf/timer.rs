//! The on-CPU timer: one perf event a CPU, with our program behind it.
//!
//! Hardware cycles where the CPU has a usable PMU: its interrupts reach code that runs with
//! interrupts off. Otherwise the kernel's software clock, whose samples pile up where interrupts
//! are switched on again; the domain says which.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use perf_event_open_sys::{self as perf, bindings as b};

use crate::Error;

/// The timers of all CPUs.
pub struct Timer {
    /// One descriptor a CPU.
    pub events: Vec<OwnedFd>,
    /// Whether it is a hardware event.
    pub hardware: bool,
}

impl Timer {
    /// Opens the best timer the host has at `hz` samples a second on each of `cpus`.
    ///
    /// # Errors
    /// The kernel refuses even the software clock.
    pub fn open(cpus: &[u32], hz: u32) -> Result<Timer, Error> {
        let open_all = |hardware: bool| -> io::Result<Vec<OwnedFd>> {
            cpus.iter()
                .filter_map(|cpu| open(*cpu, hz, hardware).transpose())
                .collect()
        };
        if let Ok(events) = open_all(true) {
            return Ok(Timer {
                events,
                hardware: true,
            });
        }
        let events = open_all(false).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => Error::NotPermitted {
                what: "on-CPU timer (perf_event_open, cpu-clock on every CPU)".into(),
                why: source.to_string(),
                remedy: "run as root, or with CAP_PERFMON".into(),
            },
            _ => Error::io("cannot open the on-CPU timer", source),
        })?;
        Ok(Timer {
            events,
            hardware: false,
        })
    }

    /// No timer: nothing is sampled on a CPU.
    pub fn none() -> Timer {
        Timer {
            events: Vec::new(),
            hardware: false,
        }
    }

    /// The event in words.
    pub fn describe(&self) -> &'static str {
        if self.hardware {
            "cycles (hardware)"
        } else {
            "cpu-clock (software)"
        }
    }

    /// Changes the rate of all timers.
    pub fn set_rate(&self, hz: u32) {
        let value = if self.hardware {
            u64::from(hz)
        } else {
            1_000_000_000 / u64::from(hz.max(1))
        };
        for event in &self.events {
            // SAFETY: the ioctl reads one u64 that outlives the call. A refusal leaves the old
            // rate in force, which the samples' own weight then still states.
            unsafe { perf::ioctls::PERIOD(event.as_raw_fd(), &raw const value as u64) };
        }
    }
}

/// One timer; `None` where the CPU has gone offline.
fn open(cpu: u32, hz: u32, hardware: bool) -> io::Result<Option<OwnedFd>> {
    let mut attr = b::perf_event_attr {
        size: size_of::<b::perf_event_attr>() as u32,
        ..Default::default()
    };
    if hardware {
        attr.type_ = b::PERF_TYPE_HARDWARE;
        attr.config = u64::from(b::PERF_COUNT_HW_CPU_CYCLES);
        attr.set_freq(1);
        attr.__bindgen_anon_1.sample_freq = u64::from(hz);
    } else {
        attr.type_ = b::PERF_TYPE_SOFTWARE;
        attr.config = u64::from(b::PERF_COUNT_SW_CPU_CLOCK);
        attr.__bindgen_anon_1.sample_period = 1_000_000_000 / u64::from(hz);
    }
    let flags = b::PERF_FLAG_FD_CLOEXEC;
    // SAFETY: the attribute is a plain value that the call only reads.
    let fd = unsafe { perf::perf_event_open(&mut attr, -1, cpu as i32, -1, u64::from(flags)) };
    if fd < 0 {
        let e = io::Error::last_os_error();
        return if e.raw_os_error() == Some(libc::ENODEV) {
            Ok(None)
        } else {
            Err(e)
        };
    }
    // SAFETY: the call has just returned this descriptor to us alone.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// CPUs that are online, from the text of `/sys/devices/system/cpu/online` (`0-3,8`).
pub fn parse_cpu_list(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(low), Ok(high)) = (low.parse::<u32>(), high.parse::<u32>()) {
            cpus.extend(low..=high.min(low.saturating_add(8191)));
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-1\n"), [0, 1]);
        assert_eq!(parse_cpu_list("0,2-3"), [0, 2, 3]);
        assert!(parse_cpu_list("").is_empty());
    }
}
