//! The text of `perf script` → recording.
//!
//! Every record is a line of who, when and what, and a line a frame, leaf first. Software clocks
//! (`cpu-clock`, `task-clock`) count nanoseconds on a CPU; `sched:sched_switch` gives the time from
//! a thread's switch out to its next switch in ([`super::switches`]); all other events count
//! themselves, and are read one event at a time: the first one, where the text does not begin with events
//! that are time among others.
//!
//! Pieces of the text are taken apart on all CPUs (`piece`): each worker knows by their bytes the lines
//! and parts of stacks that it met before, so that what comes again costs little more than finding its
//! end. What they found is joined here, in the order of the file.

mod join;
mod line;
mod piece;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::source::{self, Source};
use super::{Options, Read, ReadError};
use join::Joiner;
use piece::{Parsed, Worker};

pub(super) use join::Measures;
pub(super) use line::detect;

/// How much of the text a worker gets at once.
const PIECE: usize = 2 << 20;
/// A record longer than this is no record: the text is something else.
const MOST_RECORD: usize = 64 << 20;

/// The end of the last whole record; 0 where there is none.
fn records(bytes: &[u8]) -> usize {
    match memchr::memmem::rfind(bytes, b"\n\n") {
        Some(at) => at + 2,
        // Records without stacks are lines; a header stays with its stack.
        None if memchr::memmem::find(bytes, b"\n\t").is_none() => source::lines(bytes),
        None => 0,
    }
}

/// A piece of the text: the first `used` bytes, in a buffer that is used again.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    used: usize,
}

impl Text {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

/// A worker's ends of its two queues.
type Lane = (SyncSender<Text>, Receiver<(Parsed, Text)>);

/// Reads the text.
pub(super) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
    let workers = thread::available_parallelism()
        .map_or(1, |n| n.get())
        .min(16);
    let memory = source.bounds().memory;
    let timed = line::holds_time(source.head());
    let mut joiner = Joiner::new(workers, memory, options.value.clone(), timed);
    thread::scope(|scope| {
        let lanes: Vec<Lane> = (0..workers)
            .map(|_| {
                let (to, work) = sync_channel::<Text>(1);
                let (back, done) = sync_channel(1);
                scope.spawn(move || {
                    let room = usize::try_from(memory / 8).unwrap_or(usize::MAX);
                    let mut worker = Worker::new(room / workers);
                    for text in work {
                        let parsed = worker.parse(text.bytes());
                        if back.send((parsed, text)).is_err() {
                            return;
                        }
                    }
                });
                (to, done)
            })
            .collect();
        // Pieces go to the workers in turn and come back in the same order.
        let (mut sent, mut joined) = (0usize, 0usize);
        let mut spare: Vec<Text> = Vec::new();
        let mut left: Vec<u8> = Vec::new();
        let join = |lane: usize, joiner: &mut Joiner, spare: &mut Vec<Text>| {
            let Ok((parsed, text)) = lanes[lane].1.recv() else {
                return Err(damaged("a record that cannot be taken apart"));
            };
            spare.push(text);
            joiner.add(lane, &parsed)
        };
        loop {
            let mut text = spare.pop().unwrap_or_default();
            let whole = fill(source, &mut text, &mut left)?;
            if text.used > 0 {
                if sent - joined >= workers * 2 {
                    join(joined % workers, &mut joiner, &mut spare)?;
                    joined += 1;
                }
                if lanes[sent % workers].0.send(text).is_err() {
                    return Err(damaged("a record that cannot be taken apart"));
                }
                sent += 1;
            }
            if whole {
                break;
            }
        }
        while joined < sent {
            join(joined % workers, &mut joiner, &mut spare)?;
            joined += 1;
        }
        Ok(())
    })?;
    joiner.finish(source.cut())
}

/// Reads what was `left` and on, until `text` holds at least one whole record and about a piece; what
/// follows the last whole one is left again. Returns whether the file has ended.
fn fill(source: &mut Source, text: &mut Text, left: &mut Vec<u8>) -> Result<bool, ReadError> {
    let mut size = PIECE;
    text.used = left.len();
    loop {
        let want = size.max(text.used + PIECE / 2);
        if text.bytes.len() < want {
            text.bytes.resize(want, 0);
        }
        text.bytes[..left.len()].copy_from_slice(left);
        let n = source.fill(&mut text.bytes[text.used..want])?;
        text.used += n;
        left.clear();
        if text.used < want {
            return Ok(true);
        }
        match records(text.bytes()) {
            0 if text.used > MOST_RECORD => {
                return Err(damaged("a record of more than 64 MiB"));
            }
            0 => size *= 2,
            end => {
                left.extend_from_slice(&text.bytes[end..text.used]);
                text.used = end;
                return Ok(false);
            }
        }
    }
}

fn damaged(what: &str) -> ReadError {
    ReadError::Damaged {
        what: what.to_string(),
    }
}
