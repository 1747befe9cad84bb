//! The text of `perf script` → recording.
//!
//! Known is the text of perf 3.12 to 7: records with a header of any of perf's fields (`-F`), or none, and
//! frames indented by tabs or spaces, with either kind of line ends, with or without empty lines.
//!
//! A record is a header (thread, CPU, time, period, event) and a line a frame, leaf first. Software
//! clocks (`cpu-clock`, `task-clock`) count nanoseconds on a CPU; `sched:sched_switch` gives the time
//! from a thread's switch out to its next switch in ([`super::switches`]); `offcpu-time` gives the time of
//! a wait. All other events count themselves. Only one of these is read: the first one, unless events that
//! are time are among the first. Samples without a period are counted.
//!
//! Workers on all CPUs parse pieces of the text ([`worker`]). A worker recognises lines and parts of
//! stacks that it has seen by their bytes, so a repeated stack costs little more than finding its end.
//! The assembler joins their results in the order of the file.

mod assembler;
mod frame;
mod header;
mod lines;
mod worker;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::source::Source;
use super::{Options, Read, ReadError};
use assembler::Assembler;
use worker::{Parsed, Worker};

pub(super) use lines::detect;

/// Bytes of text that a worker gets at once.
const PIECE_BYTES: usize = 2 << 20;
/// Maximum bytes of a record; a text with a longer one has another format.
const MAX_RECORD_BYTES: usize = 64 << 20;

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
    let mut assembler = Assembler::new(workers, memory, options.value.clone());
    if lines::holds_time(source.head()) {
        assembler.expect_times();
    }
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
        let join = |lane: usize, assembler: &mut Assembler, spare: &mut Vec<Text>| {
            let Ok((parsed, text)) = lanes[lane].1.recv() else {
                return Err(ReadError::damaged("a record that cannot be parsed"));
            };
            spare.push(text);
            assembler.add(lane, &parsed)
        };
        loop {
            let mut text = spare.pop().unwrap_or_default();
            let whole = fill(source, &mut text, &mut left)?;
            if text.used > 0 {
                if sent - joined >= workers * 2 {
                    join(joined % workers, &mut assembler, &mut spare)?;
                    joined += 1;
                }
                if lanes[sent % workers].0.send(text).is_err() {
                    return Err(ReadError::damaged("a record that cannot be parsed"));
                }
                sent += 1;
            }
            if whole {
                break;
            }
        }
        while joined < sent {
            join(joined % workers, &mut assembler, &mut spare)?;
            joined += 1;
        }
        Ok(())
    })?;
    if source.cut() {
        assembler.note_cut();
    }
    assembler.finish()
}

/// Fills `text` with the bytes in `left` and further ones, up to the end of the last whole record of
/// about a piece; the rest goes to `left`. Returns whether the file has ended.
fn fill(source: &mut Source, text: &mut Text, left: &mut Vec<u8>) -> Result<bool, ReadError> {
    let mut size = PIECE_BYTES;
    text.used = left.len();
    loop {
        let want = size.max(text.used + PIECE_BYTES / 2);
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
        match lines::records_end(text.bytes()) {
            0 if text.used > MAX_RECORD_BYTES => {
                return Err(ReadError::damaged("a record of more than 64 MiB"));
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
