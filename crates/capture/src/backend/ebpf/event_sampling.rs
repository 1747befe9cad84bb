//! Stacks at events that the user names (`bpf/event_sampling.h`): opening and attaching them.
//!
//! Software events and tracepoints report each occurrence, and each is counted. Hardware counters interrupt after a
//! period of their own, with the best precision that the CPU has unless the user asks for another.

use std::{
    io,
    os::fd::{FromRawFd, IntoRawFd, OwnedFd},
    time::Duration,
};

use libbpf_rs::{MapCore, MapFlags, PerfEventOpts, TracepointCategory, TracepointOpts};
use perf_event_open_sys::{self as perf, bindings as b};
use wallscope_model::EventSource;

use super::Programs;
use crate::{
    Error,
    counter::{EventSpec, Source, why},
};

/// Most events of a recording (`WS_EVENTS`).
pub const MAX_EVENTS: usize = 16;
/// Flag in a program's cookie: the program runs once per period of a counter (`WS_BY_PERIOD`).
const BY_PERIOD: u64 = 1 << 32;
/// Stretch of time for which the budget of stacks is set (`WS_EVENT_WINDOW`).
const WINDOW: Duration = Duration::from_millis(100);

/// An event with a stack at some of its occurrences.
pub struct SampledEvent {
    /// The event.
    pub spec: EventSpec,
    /// One descriptor a CPU; none for tracepoints.
    events: Vec<OwnedFd>,
    /// Occurrences per stack, if the user sets that.
    gap: Option<u64>,
    /// For hardware: interrupts a second.
    hz: u32,
}

impl SampledEvent {
    /// Opens `spec` on each of `cpus`, still silent.
    ///
    /// # Errors
    /// Why it cannot be had here, in words.
    pub fn open(
        spec: &EventSpec,
        cpus: &[u32],
        hz: u32,
        gap: Option<u64>,
    ) -> Result<SampledEvent, String> {
        let mut tap = SampledEvent {
            spec: spec.clone(),
            events: Vec::new(),
            gap,
            hz,
        };
        if spec.source == Source::Tracepoint {
            return Ok(tap);
        }
        // Without a choice by the user, the highest precision that the CPU has.
        let most = match (spec.source, spec.precise) {
            (Source::Hardware, 0) => 2,
            (_, asked) => asked,
        };
        let mut last = None;
        for precise in (spec.precise..=most).rev() {
            tap.spec.precise = precise;
            match tap.open_all(cpus) {
                Ok(events) => {
                    tap.events = events;
                    return Ok(tap);
                }
                Err(e) => last = Some(e),
            }
        }
        Err(last.map_or_else(String::new, |e| why(spec, &e)))
    }

    fn open_all(&self, cpus: &[u32]) -> io::Result<Vec<OwnedFd>> {
        let mut events = Vec::with_capacity(cpus.len());
        for cpu in cpus {
            let mut a = self.spec.attributes();
            a.set_disabled(1);
            match (self.by_period(), self.gap) {
                (false, _) => a.__bindgen_anon_1.sample_period = 1,
                (true, Some(gap)) => a.__bindgen_anon_1.sample_period = gap,
                (true, None) => {
                    a.set_freq(1);
                    a.__bindgen_anon_1.sample_freq = u64::from(self.hz);
                }
            }
            let flags = u64::from(b::PERF_FLAG_FD_CLOEXEC);
            // SAFETY: the attributes are whole and outlive the call, which only reads them.
            let fd = unsafe { perf::perf_event_open(&mut a, -1, *cpu as i32, -1, flags) };
            if fd < 0 {
                let e = io::Error::last_os_error();
                // The CPU has gone offline.
                if e.raw_os_error() == Some(libc::ENODEV) && !events.is_empty() {
                    continue;
                }
                return Err(e);
            }
            // SAFETY: the call has just returned this descriptor to us alone.
            events.push(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Ok(events)
    }

    fn by_period(&self) -> bool {
        self.spec.source == Source::Hardware
    }

    /// Whether each occurrence is counted.
    pub fn is_counted(&self) -> bool {
        !self.by_period()
    }

    /// For the domain.
    pub fn describe(&self) -> EventSource {
        let precise = match (self.by_period(), self.spec.precise) {
            (false, _) => "",
            (true, 0) => ", not precise: the stack is that of the interrupt, which comes later",
            (true, _) => ", precise",
        };
        let rate = match (self.by_period(), self.gap) {
            (true, None) => format!("{} Hz on each CPU", self.hz),
            (true, Some(gap)) => format!("a stack every {gap} hits on each CPU"),
            (false, Some(gap)) => format!("each hit counted, a stack every {gap} in the mean"),
            (false, None) => {
                "each hit counted, stacks as often as their budget of CPU time allows".into()
            }
        };
        EventSource {
            what: format!("stacks at {}", self.spec.name),
            event: match self.spec.source {
                Source::Software => "a software event".into(),
                Source::Hardware => "a hardware counter".into(),
                Source::Tracepoint => "a tracepoint".into(),
            },
            rate: format!("{rate}{precise}"),
        }
    }
}

impl Programs {
    /// Sets the budget of stacks at events: `share` of one CPU for all `cpus` and `taps` together.
    pub fn set_event_pace(&mut self, taps: &[SampledEvent], share: f64, cpus: usize) {
        let gap = taps.iter().find_map(|t| t.gap).unwrap_or(0);
        let all = WINDOW.as_nanos() as f64 * share;
        if let Some(state) = self.skel.maps.bss_data.as_deref_mut() {
            state.set_event_gap = gap;
            state.set_event_budget = (all / (taps.len() * cpus).max(1) as f64) as u64;
        }
    }

    /// Attaches the events; each is known by its place in `taps`.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub fn attach_taps(&mut self, taps: Vec<SampledEvent>) -> Result<Vec<SampledEvent>, Error> {
        let failed = |name: &str| Error::bpf(format!("cannot take stacks at {name}"));
        let mut silent = Vec::with_capacity(taps.len());
        for (number, mut tap) in taps.into_iter().enumerate() {
            let cookie = number as u64 | if tap.by_period() { BY_PERIOD } else { 0 };
            let name = tap.spec.name.clone();
            for event in std::mem::take(&mut tap.events) {
                let opts = PerfEventOpts {
                    cookie,
                    ..PerfEventOpts::default()
                };
                // The link closes the descriptor in the end.
                let link = (self.skel.progs.ws_event)
                    .attach_perf_event_with_opts(event.into_raw_fd(), opts)
                    .map_err(failed(&name))?;
                self.links.push(("event".into(), link));
            }
            if tap.spec.source == Source::Tracepoint {
                let (category, point) = name.split_once(':').unwrap_or((&name, ""));
                let opts = TracepointOpts {
                    cookie,
                    ..TracepointOpts::default()
                };
                let category = TracepointCategory::Custom(category.into());
                let link = (self.skel.progs.ws_event_point)
                    .attach_tracepoint_with_opts(category, point, opts)
                    .map_err(failed(&name))?;
                self.links.push(("event".into(), link));
            }
            silent.push(tap);
        }
        Ok(silent)
    }

    /// Counts so far: (id of the thread's record, number of the event, occurrences).
    pub fn hits(&self) -> Vec<(u64, usize, u64)> {
        let map = &self.skel.maps.event_hits;
        let word = |bytes: &[u8], at: usize| {
            let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_ne_bytes(bytes))
        };
        map.keys()
            .filter_map(|key| {
                let value = map.lookup(&key, MapFlags::ANY).ok()??;
                Some((word(&key, 0)?, word(&key, 8)? as usize, word(&value, 0)?))
            })
            .collect()
    }
}
