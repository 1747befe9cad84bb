//! Records that events by name write into their rings.

use perf_event_open_sys::bindings as b;
use rustc_hash::FxHashMap;

use crate::backend::perf::{
    Record, Running,
    record::{self, EventCount, EventSample},
};

/// Reads one record: its time and its content. `ids`: the kernel's number of an opened event -> the event.
pub fn parse(
    kind: u32,
    misc: u16,
    body: &[u8],
    ids: &FxHashMap<u64, usize>,
) -> Option<(u64, Record)> {
    let word = |at: usize| Some(u64::from_ne_bytes(body.get(at..at + 8)?.try_into().ok()?));
    let thread_word = word(0)?;
    let (pid, tid) = (thread_word as u32, (thread_word >> 32) as u32);
    match kind {
        b::PERF_RECORD_SAMPLE => {
            let (time, id, stream) = (word(8)?, word(16)?, word(24)?);
            let (registers, stack) = record::user_part(body, 32)?;
            let hit = EventSample {
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
                    first: None,
                    late: false,
                },
            };
            Some((time, Record::Hit(Box::new(hit))))
        }
        b::PERF_RECORD_READ => {
            // Behind the count: the thread once more, time, number.
            let (hits, time, id) = (word(8)?, word(24)?, word(32)?);
            let counted = EventCount {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_at_an_end_is_read_whole_or_not_at_all() {
        let mut body = Vec::new();
        let thread_word = (8u64 << 32) | 7;
        for word in [thread_word, 1234, thread_word, 99, 5, 6] {
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
