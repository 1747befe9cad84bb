//! What events by name write into their rings -> stacks and counts.

use perf_event_open_sys::bindings as b;
use rustc_hash::FxHashMap;
use wallscope_model::{Part, State, WaitSeen};

use super::super::{Record, Running, record};
use crate::backend::proc::{
    poller::Looker,
    samples::{Look, Weight},
};

/// A stack at an event.
#[derive(Debug)]
pub struct Hit {
    /// Number of the event.
    event: usize,
    /// The kernel's number of the one that was opened or inherited, and whether it was opened. Threads
    /// that have inherited the same exchange them: it tells nothing of who runs.
    stream: u64,
    opened: bool,
    /// The thread as it was.
    running: Running,
}

/// What a thread that has ended had counted.
#[derive(Debug)]
pub struct Counted {
    event: usize,
    pid: u32,
    tid: u32,
    hits: u64,
}

/// Reads one record: its time and what it says. `ids`: numbers of what was opened -> the event.
pub fn parse(
    kind: u32,
    misc: u16,
    body: &[u8],
    ids: &FxHashMap<u64, usize>,
) -> Option<(u64, Record)> {
    let word = |at: usize| Some(u64::from_ne_bytes(body.get(at..at + 8)?.try_into().ok()?));
    let who = word(0)?;
    let (pid, tid) = (who as u32, (who >> 32) as u32);
    match kind {
        b::PERF_RECORD_SAMPLE => {
            let (time, id, stream) = (word(8)?, word(16)?, word(24)?);
            let (registers, stack) = record::user_part(body, 32)?;
            let hit = Hit {
                event: *ids.get(&id)?,
                stream,
                opened: ids.contains_key(&stream),
                running: Running {
                    pid,
                    tid,
                    period_ns: 0,
                    cpu: None,
                    user_mode: record::is_user_mode(misc),
                    registers,
                    stack,
                    below: Vec::new(),
                    managed: None,
                    moved: None,
                    late: false,
                },
            };
            Some((time, Record::Hit(Box::new(hit))))
        }
        b::PERF_RECORD_READ => {
            // Behind the count: the thread once more, time, number.
            let (hits, time, id) = (word(8)?, word(24)?, word(32)?);
            let counted = Counted {
                event: *ids.get(&id)?,
                pid,
                tid,
                hits,
            };
            Some((time, Record::Counted(counted)))
        }
        b::PERF_RECORD_LOST => match record::parse(kind, misc, body) {
            Some((time, Record::Lost(n))) => Some((time, Record::Lost(n))),
            _ => None,
        },
        _ => None,
    }
}

impl Looker {
    /// Takes a stack at an event. `since`: when threads were listed last.
    pub fn hit(&mut self, hit: &Hit, time: u64, since: u64, now: u64) {
        let Hit {
            event,
            stream,
            opened,
            running,
        } = hit;
        if self.hits.as_ref().is_none_or(|h| time < h.begun_ns) {
            return;
        }
        let Some(index) = self.watch.heard_of(running.pid, running.tid, since, now) else {
            self.tally.strangers += 1;
            return;
        };
        let (frames, end) = self.stack_of(running, time, now);
        let whose = self.processes.whose(running.pid, time, &frames);
        let Some(hits) = &mut self.hits else { return };
        let event = &mut hits.events[*event];
        let gap = event.gap_of(*stream, *opened, time);
        event.stacks += 1;
        *event.sampled.entry(index).or_default() += gap;
        let stack = event.samples.stack(whose, frames, Box::default(), end);
        let look = Look {
            thread: index as u32,
            stack,
            state: State::OnCpu,
            reason: None,
            part: Some(if running.user_mode {
                Part::User
            } else {
                Part::Kernel
            }),
            begin: time,
            end: time,
            ns: gap,
            weight: Weight::Own,
            seen: WaitSeen::default(),
        };
        event.samples.add(self.grid, &look);
    }

    /// Takes what a thread that ended had counted.
    pub fn counted(&mut self, counted: &Counted, time: u64) {
        let Some(index) = self.watch.find_ended(counted.pid, counted.tid) else {
            return;
        };
        if let Some(hits) = self.hits.as_mut().filter(|h| time >= h.begun_ns) {
            let told = &mut hits.events[counted.event].told;
            *told.entry(index).or_default() += counted.hits;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_at_an_end_is_read_whole_or_not_at_all() {
        let mut body = Vec::new();
        let who = (8u64 << 32) | 7;
        for word in [who, 1234, who, 99, 5, 6] {
            body.extend(word.to_ne_bytes());
        }
        let ids = FxHashMap::from_iter([(5, 2)]);
        let read = |body: &[u8]| parse(b::PERF_RECORD_READ, 0, body, &ids);
        let Some((99, Record::Counted(c))) = read(&body) else {
            panic!("a count");
        };
        assert_eq!((c.event, c.pid, c.tid, c.hits), (2, 7, 8, 1234));
        for len in 0..40 {
            assert!(read(&body[..len]).is_none(), "length {len}");
        }
        let strange = FxHashMap::from_iter([(4, 2)]);
        assert!(parse(b::PERF_RECORD_READ, 0, &body, &strange).is_none());
    }
}
