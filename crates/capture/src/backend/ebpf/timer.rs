//! The on-CPU timer: one perf event a CPU, with our program behind it.
//!
//! Hardware cycles where the CPU has a usable PMU: its interrupts reach code that runs with
//! interrupts off. Otherwise the kernel's software clock, with samples that pile up where interrupts
//! are switched on again; the domain says which.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use perf_event_open_sys::{self as perf, bindings as b};

use crate::{
    Error,
    backend::perf_event::open_on_cpu,
    clock,
    period_jitter::{self, PeriodJitter},
};

/// Fewest samples at one distance: a change of the distance loses the rest of the present one.
const SAME: u64 = 32;
/// Factor on [`SAME`] if we wake up for that change alone: a wake-up costs as much as ten samples.
const WOKEN: u64 = 2;
/// Samples a second from which on 0.25 ms is no small part of the distance between two of them.
const OFTEN: u32 = 200;

/// The timers of all CPUs.
pub struct Timer {
    /// One descriptor a CPU.
    pub events: Vec<OwnedFd>,
    /// Whether it is a hardware event.
    pub hardware: bool,
    hz: u32,
    uneven: PeriodJitter,
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
            return Ok(Timer::of(events, hz, true));
        }
        let events = open_all(false).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => Error::NotPermitted {
                what: "on-CPU timer (perf_event_open, cpu-clock on every CPU)".into(),
                why: source.to_string(),
                remedy:
                    "run as root, or with CAP_PERFMON and kernel.perf_event_paranoid at 2 or below"
                        .into(),
            },
            _ => Error::io("cannot open the on-CPU timer", source),
        })?;
        Ok(Timer::of(events, hz, false))
    }

    fn of(events: Vec<OwnedFd>, hz: u32, hardware: bool) -> Timer {
        Timer {
            events,
            hardware,
            hz,
            uneven: PeriodJitter::seeded(clock::now()),
        }
    }

    /// No timer: nothing is sampled on a CPU.
    pub fn none() -> Timer {
        Timer::of(Vec::new(), 1, false)
    }

    /// The event in words.
    pub fn describe(&self) -> &'static str {
        if self.hardware {
            "cycles (hardware)"
        } else {
            "cpu-clock (software)"
        }
    }

    /// Changes the rate of all timers. Returns the time that a sample stands for from now on, ns.
    pub fn set_rate(&mut self, hz: u32) -> u64 {
        self.hz = hz;
        let distance = period_ns(hz);
        self.tell(if self.hardware { hz.into() } else { distance });
        distance
    }

    /// Gives the samples of the software clock another random distance: see [`crate::period_jitter`]. Samples by
    /// cycles have jitter anyway, because the kernel steers their rate. Each call begins a distance anew, so calls
    /// should be rare. Returns the time that a sample stands for from now on, ns.
    pub fn vary(&mut self) -> u64 {
        let mean = period_ns(self.hz);
        if self.hardware {
            return mean;
        }
        let distance = self.uneven.of(mean, period_jitter::SAMPLE_JITTER_DIVISOR);
        self.tell(distance);
        distance
    }

    /// The least time between two calls of [`Timer::vary`], ns.
    pub fn steady_ns(&self) -> u64 {
        SAME * period_ns(self.hz)
    }

    /// How often to wake up for [`Timer::vary`] alone, ns; `None`: not at all. A timer by which a thread sleeps is
    /// served together with one of ours that is due just before: then both are in step, for as long as few sleeps fit
    /// between two samples.
    pub fn vary_every(&self) -> Option<u64> {
        let few = !self.hardware && !self.events.is_empty() && self.hz >= OFTEN;
        few.then(|| WOKEN * self.steady_ns())
    }

    fn tell(&self, value: u64) {
        for event in &self.events {
            // SAFETY: the ioctl reads one u64 that outlives the call. A refusal leaves the old
            // rate in force; totals do not depend on it.
            unsafe { perf::ioctls::PERIOD(event.as_raw_fd(), &raw const value as u64) };
        }
    }
}

/// From one sample to the next at `hz` samples a second, ns.
fn period_ns(hz: u32) -> u64 {
    1_000_000_000 / u64::from(hz.max(1))
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
        // A sample that comes due beside an idle task is looked up when a thread gets the CPU (`bpf/sampler.h`).
        attr.set_exclude_idle(1);
        attr.__bindgen_anon_1.sample_period = period_ns(hz);
    }
    open_on_cpu(cpu, attr)
}
