//! A log of observations → its recording, again: without root, on any machine.
//!
//! The estimator gets the observations in the order of the log, and names as the log answers. It reads
//! nothing else. So the recording is the one that was made live, byte for byte, if the same version
//! makes it.

use std::io::BufRead;

use thiserror::Error;
use wallscope_model::{Loss, Recording, WaitSeen};
use wallscope_observe::{Begin, Counter, End, LeftOut, LogReader, Mark, Observation, Symbols};
use zerocopy::FromBytes;

use super::{
    answers::Answers,
    assemble::{Assembled, Looks},
    estimator::Estimator,
};
use crate::event::{Dump, SampleEvent, Turn, kind};

/// Longest from one moment of a log to what comes after it, ns: an hour, where ticks come each second. Time
/// slices take memory, so a log that claims otherwise is not followed.
const MAX_GAP_NS: u64 = 3_600_000_000_000;
/// Shortest first slice, ns: collectors begin with 50 ms at least.
const MIN_SLICE_NS: u64 = 10_000_000;

/// A recording that was rebuilt.
pub struct Replayed {
    /// The recording, with names; idle waits are not marked yet.
    pub recording: Recording,
    /// What was seen of connections in the waits of each sample, by index.
    pub seen: Vec<WaitSeen>,
    /// Notes for the domain, to be added once idle waits are marked.
    pub notes: Vec<String>,
}

/// Why a log gives no recording.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ReplayError {
    /// It has no beginning.
    #[error("the log has no beginning: nothing can be made of it")]
    NoBegin,
    /// It has no end.
    #[error(
        "the log ends early, after {frames} whole frames: {why}; names and totals stand at its end, \
         so that no recording can be made of it"
    )]
    EndsEarly {
        /// Frames that were whole.
        frames: u32,
        /// Why there are no more.
        why: String,
    },
    /// Its times cannot be.
    #[error("its times cannot be: {what}")]
    Implausible {
        /// What contradicts what.
        what: &'static str,
    },
}

/// The latest moment of a log so far.
struct Latest(u64);

impl Latest {
    /// Whether an observation can come after that moment.
    fn allows(&mut self, observation: &Observation<'_>) -> bool {
        let limit = self.0.saturating_add(MAX_GAP_NS);
        let time = match observation {
            Observation::Mark(mark) => {
                let (Mark::Released { time, .. } | Mark::Tick { time } | Mark::End { time }) = mark;
                if *time <= limit {
                    self.0 = self.0.max(*time);
                }
                Some(*time)
            }
            Observation::Books(bytes) | Observation::LastBooks(bytes) => books(bytes),
            Observation::Event(bytes) => match bytes.get(..4).and_then(|b| b.try_into().ok()) {
                Some(first) if u32::from_ne_bytes(first) == kind::EXIT => books(bytes),
                Some(first) if u32::from_ne_bytes(first) == kind::SAMPLE => {
                    let sample = SampleEvent::read_from_prefix(bytes).ok();
                    sample.map(|(s, _)| s.end.max(s.begin))
                }
                _ => None,
            },
            Observation::Turn(bytes) => Turn::read_from_prefix(bytes).ok().map(|(t, _)| t.time),
            _ => None,
        };
        time.is_none_or(|time| time <= limit)
    }
}

fn books(bytes: &[u8]) -> Option<u64> {
    Dump::read_from_prefix(bytes).ok().map(|(d, _)| d.now)
}

/// Rebuilds the recording of a log.
///
/// # Errors
/// The log is not whole, or its times cannot be.
pub fn replay<R: BufRead>(log: &mut LogReader<R>) -> Result<Replayed, ReplayError> {
    let begin = match log.next() {
        Some(Observation::Begin(begin)) => begin,
        Some(_) => return Err(ReplayError::NoBegin),
        // The end says why.
        None => Begin::default(),
    };
    let implausible = |what| ReplayError::Implausible { what };
    if begin.slice_ns < MIN_SLICE_NS && begin != Begin::default() {
        return Err(implausible("time slices shorter than 10 ms"));
    }
    let mut latest = Latest(begin.start_ns);
    let mut estimator = Estimator::new(&begin);
    let (mut answers, mut symbols) = (Answers::default(), Symbols::default());
    let (mut notes, mut late_losses) = (Vec::new(), Vec::new());
    while let Some(observation) = log.next() {
        if !latest.allows(&observation) {
            return Err(implausible("an hour and more between two observations"));
        }
        match &observation {
            Observation::Note(note) => notes.push(note.to_string()),
            Observation::Loss(loss) if loss.by == Counter::Symboliser => late_losses.push(Loss {
                cause: loss.cause.clone(),
                count: loss.count,
            }),
            _ => {}
        }
        estimator.observe(&observation);
        answers.observe(&observation);
        symbols.observe(&observation);
    }
    let left_out = match log.end() {
        Some(End::Whole(left_out)) => *left_out,
        Some(End::Early { frames, why }) => {
            return Err(ReplayError::EndsEarly {
                frames: *frames,
                why: why.clone(),
            });
        }
        None => LeftOut::default(),
    };
    let Assembled {
        mut recording,
        seen,
        ..
    } = estimator.finish(answers.names(), Looks::None);
    let strangers = symbols.apply(&mut recording);
    recording.losses.extend(late_losses);
    recording
        .losses
        .extend(missing(left_out, &answers, strangers));
    Ok(Replayed {
        recording,
        seen,
        notes,
    })
}

/// What the log lacks for the recording as it was.
fn missing(left_out: LeftOut, answers: &Answers, strangers: u64) -> impl Iterator<Item = Loss> {
    let all = [
        (
            "waker left out of the observation log, which grew to its bound",
            left_out.wakes,
        ),
        (
            "sample left out of the observation log, which grew to its bound",
            left_out.samples,
        ),
        (
            "observation too large for the observation log",
            left_out.too_large,
        ),
        (
            "name that the observation log does not have",
            answers.missing(),
        ),
        ("symbol in the observation log without a frame", strangers),
    ];
    all.into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(cause, count)| Loss {
            cause: cause.into(),
            count,
        })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use wallscope_observe::{LogFile, LogWriter};

    use super::*;

    fn log_of(all: &[Observation<'_>]) -> LogReader<Cursor<Vec<u8>>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let file = LogFile::create(&path).unwrap();
        let mut writer = LogWriter::begin(file, "wallscope", LogFile::BOUND);
        all.iter().for_each(|o| writer.append(o));
        writer.close().unwrap();
        LogReader::new(Cursor::new(std::fs::read(&path).unwrap())).unwrap()
    }

    fn begin() -> Observation<'static> {
        Observation::Begin(Begin {
            start_ns: 1 << 40,
            slice_ns: 50_000_000,
            ..Begin::default()
        })
    }

    #[test]
    fn a_log_of_nothing_gives_an_empty_recording() {
        let end = Observation::Mark(Mark::End {
            time: (1 << 40) + 7,
        });
        let replayed = replay(&mut log_of(&[begin(), end])).ok().unwrap();
        assert_eq!(replayed.recording.window.length_ns(), 7);
        assert!(replayed.recording.losses.is_empty());
    }

    #[test]
    fn times_that_cannot_be_are_refused() {
        let far = Observation::Mark(Mark::Tick { time: 1 << 50 });
        let why = |all: &[Observation<'_>]| replay(&mut log_of(all)).err();
        assert!(matches!(
            why(&[begin(), far]),
            Some(ReplayError::Implausible { .. })
        ));
        assert_eq!(
            why(&[Observation::Mark(Mark::Tick { time: 1 })]),
            Some(ReplayError::NoBegin)
        );
        let short = Observation::Begin(Begin {
            slice_ns: 1,
            ..Begin::default()
        });
        assert!(matches!(
            why(&[short]),
            Some(ReplayError::Implausible { .. })
        ));
    }
}
