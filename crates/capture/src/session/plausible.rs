//! Bounds for the content of a log.
//!
//! A log may be damaged or forged. The memory of the estimator grows with the time that it is told of, and its sums
//! with the numbers. So times may not jump, and no figure of a thread may exceed the time that there was for it.

use wallscope_observe::{
    Begin, CounterReading, HitsOfEnded, Mark, Observation, OpenWait, PolledThread, Rebased,
    RecordsBegin, Switch,
};
use zerocopy::FromBytes;

use crate::event::{Dump, SampleEvent, SocketRecord, Turn, kind};

/// Longest time from one observation of a log to the next, ns: an hour, where ticks come each second.
const MAX_GAP_NS: u64 = 3_600_000_000_000;
/// Longest recording, ns: 104 days.
const MAX_WINDOW_NS: u64 = 1 << 53;
/// Shortest first slice, ns: collectors begin with 50 ms at least.
const MIN_SLICE_NS: u64 = 10_000_000;
/// Contradiction in a log that counts more of an event than there can be.
const TOO_MANY_HITS: &str = "more hits of an event than there can be";
/// Latest start, ns since the machine's.
const MAX_START_NS: u64 = 1 << 62;

/// The moments of a log so far.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    start: u64,
    latest: u64,
}

impl Times {
    /// The moments of a log that begins with `begin`.
    ///
    /// # Errors
    /// It cannot begin so; this says why.
    pub fn new(begin: &Begin) -> Result<Times, &'static str> {
        if begin.slice_ns < MIN_SLICE_NS {
            return Err("time slices shorter than 10 ms");
        }
        if begin.start_ns > MAX_START_NS || begin.start_unix_ns > u64::MAX - MAX_WINDOW_NS {
            return Err("a start far in the future");
        }
        Ok(Times {
            start: begin.start_ns,
            latest: begin.start_ns,
        })
    }

    /// Takes an observation.
    ///
    /// # Errors
    /// It cannot come here; this says why.
    pub fn take(&mut self, observation: &Observation<'_>) -> Result<(), &'static str> {
        let limit = (self.latest + MAX_GAP_NS).min(self.start + MAX_WINDOW_NS);
        let within = |time: u64| match time <= limit {
            true => Ok(()),
            false => Err("an hour and more between two observations"),
        };
        let longest = limit - self.start;
        match observation {
            Observation::Mark(mark) => {
                let (Mark::Released { time, .. }
                | Mark::Tick { time }
                | Mark::End { time }
                | Mark::Figures { time }
                | Mark::Drained { time }
                | Mark::RecordsLost { time }) = mark;
                within(*time)?;
                self.latest = self.latest.max(*time);
                Ok(())
            }
            Observation::Books(bytes)
            | Observation::LastBooks(bytes)
            | Observation::FirstBooks(bytes) => within(books(bytes, longest)?),
            Observation::Event(bytes) => {
                let first = bytes.get(..4).and_then(|b| b.try_into().ok());
                match first.map(u32::from_ne_bytes) {
                    Some(kind::EXIT) => within(books(bytes, longest)?),
                    Some(kind::SAMPLE) => within(sample(bytes, longest)?),
                    Some(kind::SOCKET) => socket(bytes.get(8..).unwrap_or_default()),
                    _ => Ok(()),
                }
            }
            Observation::Turn(bytes) => {
                let turn = Turn::read_from_prefix(bytes).ok();
                within(turn.map_or(0, |(t, _)| t.time))
            }
            Observation::Socket(bytes) => socket(bytes),
            Observation::PolledThread(PolledThread { begin, .. })
            | Observation::Rebased(Rebased { begin, .. }) => within(begin.time),
            Observation::ThreadPoll(poll) => within(poll.time),
            Observation::StoppedThread(stop) => within(stop.time.max(stop.poll.end)),
            Observation::EndedThread(ended) => within(ended.time),
            Observation::RecordsBegin(RecordsBegin { time, .. })
            | Observation::Switch(Switch { time, .. })
            | Observation::CounterReading(CounterReading { time, .. })
            | Observation::OpenWait(OpenWait { begin: time, .. }) => within(*time),
            Observation::RunningSample(s) if s.ns > longest => {
                Err("more time in a sample than there was")
            }
            Observation::RunningSample(s) => within(s.time),
            Observation::WaitProbe(p) => within(p.at.max(p.call.until).max(p.until).max(p.copied)),
            Observation::QueuedPoll(q) => within(q.at.max(q.read).max(q.begin)),
            Observation::EventStack(s) if s.hits > MAX_WINDOW_NS => Err(TOO_MANY_HITS),
            Observation::EventStack(s) => within(s.time),
            Observation::HitsOfEnded(HitsOfEnded { hits, .. }) if *hits > MAX_WINDOW_NS => {
                Err(TOO_MANY_HITS)
            }
            Observation::LockWaits(w) if w.total_ns > longest || w.count > longest => {
                Err("more time in waits for a lock than there was")
            }
            Observation::EventHits(h) if h.hits > MAX_WINDOW_NS => Err(TOO_MANY_HITS),
            _ => Ok(()),
        }
    }
}

/// Returns the time at which the figures of a thread were copied.
fn books(bytes: &[u8], longest: u64) -> Result<u64, &'static str> {
    // The estimator counts a record that is too short.
    let Ok((d, _)) = Dump::read_from_prefix(bytes) else {
        return Ok(0);
    };
    let a = &d.acc;
    // The kernel's own counters only audit these sums, and may be off.
    let sums = [
        a.on_cpu, a.irq, a.stolen, a.limbo, a.repaired, d.stretch, d.block,
    ];
    let all = [&sums[..], &a.runnable, &a.blocked].concat();
    if all.iter().any(|ns| *ns > longest) {
        return Err("more time in a thread's books than there was");
    }
    Ok(d.now.max(d.birth).max(d.since))
}

/// When a sample's interval ended.
fn sample(bytes: &[u8], longest: u64) -> Result<u64, &'static str> {
    let Ok((s, _)) = SampleEvent::read_from_prefix(bytes) else {
        return Ok(0);
    };
    match s.ns <= longest {
        // A sent request has its connection in the place of the begin.
        true => Ok(s.end),
        false => Err("more time in a sample than there was"),
    }
}

fn socket(bytes: &[u8]) -> Result<(), &'static str> {
    let record = SocketRecord::read_from_prefix(bytes).ok();
    match record.is_none_or(|(s, _)| s.in_flight <= MAX_WINDOW_NS) {
        true => Ok(()),
        false => Err("more time on a connection than there can be"),
    }
}

#[cfg(test)]
#[path = "plausible_tests.rs"]
mod tests;
