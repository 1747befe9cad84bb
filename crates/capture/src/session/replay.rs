//! A log of observations → its recording, again: without root, on any machine.
//!
//! The estimator gets the observations in the order of the log, and names as the log answers. It reads
//! nothing else. So the recording is the one that was made live, byte for byte, if the same version
//! makes it.

use std::io::BufRead;

use thiserror::Error;
use wallscope_model::{Loss, Recording, WaitSeen};
use wallscope_observe::{Begin, Counter, End, LeftOut, LogReader, Observation, Symbols};

use super::{
    answers::Answers,
    assemble::{Assembled, Looks},
    estimator::Estimator,
    naming::Names,
    plausible::Times,
};
use crate::backend::proc::estimator::PollEstimator;

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
    /// It is damaged before its first whole frame.
    #[error("the log ends early, before its beginning was whole: {why}")]
    NoWholeFrame {
        /// The damage.
        why: String,
    },
    /// It has no end.
    #[error(
        "the log ends early, after {frames} whole frames: {why}; `wallscope recover LOG -o FILE` makes a \
         recording of what is there"
    )]
    EndsEarly {
        /// Frames that were whole.
        frames: u32,
        /// Why there are no more.
        why: String,
    },
    /// It has no whole time slice.
    #[error("the log ends before the first time slice did: {why}; nothing can be made of it")]
    NoSlice {
        /// Why there is no more.
        why: String,
    },
    /// It has no end, and is one of the proc and perf backends.
    #[error(
        "the log ends early, after {frames} whole frames: {why}; a log of the proc and perf backends gives a \
         recording only if it is whole"
    )]
    PollsEndEarly {
        /// Frames that were whole.
        frames: u32,
        /// Why there are no more.
        why: String,
    },
    /// Its figures cannot be.
    #[error("its figures cannot be: it says {what}")]
    Implausible {
        /// The contradiction.
        what: &'static str,
    },
}

/// An estimator: observations in, a recording out.
pub(super) trait Estimate {
    /// The error for a log that ends early, after so many whole frames, for this reason.
    fn ends_early(frames: u32, why: String) -> ReplayError;

    /// Takes an observation.
    fn observe(&mut self, observation: &Observation<'_>);

    /// Makes the recording.
    fn finish(self, names: Names<'_>) -> Assembled;
}

impl Estimate for Estimator {
    fn ends_early(frames: u32, why: String) -> ReplayError {
        ReplayError::EndsEarly { frames, why }
    }

    fn observe(&mut self, observation: &Observation<'_>) {
        Estimator::observe(self, observation);
    }

    fn finish(self, names: Names<'_>) -> Assembled {
        Estimator::finish(self, names, Looks::None)
    }
}

impl Estimate for PollEstimator {
    fn ends_early(frames: u32, why: String) -> ReplayError {
        ReplayError::PollsEndEarly { frames, why }
    }

    fn observe(&mut self, observation: &Observation<'_>) {
        PollEstimator::observe(self, observation);
    }

    fn finish(self, names: Names<'_>) -> Assembled {
        PollEstimator::finish(self, names)
    }
}

/// A log on its way into the estimator.
pub(super) struct Rebuild<E> {
    pub estimator: E,
    pub answers: Answers,
    times: Times,
    symbols: Symbols,
    notes: Vec<String>,
    /// Losses of the symboliser.
    late_losses: Vec<Loss>,
}

/// Why a log has no first observation.
fn no_begin(end: Option<&End>) -> ReplayError {
    match end {
        Some(End::Early { why, .. }) => ReplayError::NoWholeFrame { why: why.clone() },
        _ => ReplayError::NoBegin,
    }
}

impl Rebuild<Estimator> {
    /// Reads the beginning of a log of the ebpf backend.
    pub fn begin<R: BufRead>(
        log: &mut LogReader<R>,
    ) -> Result<(Rebuild<Estimator>, Begin), ReplayError> {
        let begin = match log.next() {
            Some(Observation::Begin(begin)) => begin,
            Some(_) => return Err(ReplayError::NoBegin),
            None => return Err(no_begin(log.end())),
        };
        Ok((Rebuild::of(&begin, Estimator::new(&begin))?, begin))
    }
}

impl<E: Estimate> Rebuild<E> {
    fn of(begin: &Begin, estimator: E) -> Result<Rebuild<E>, ReplayError> {
        let times = Times::new(begin).map_err(|what| ReplayError::Implausible { what })?;
        Ok(Rebuild {
            estimator,
            answers: Answers::default(),
            times,
            symbols: Symbols::default(),
            notes: Vec::new(),
            late_losses: Vec::new(),
        })
    }

    /// Takes an observation.
    ///
    /// # Errors
    /// It cannot come here; this says why.
    pub fn observe(&mut self, observation: &Observation<'_>) -> Result<(), &'static str> {
        self.times.take(observation)?;
        match observation {
            Observation::Note(note) => self.notes.push(note.to_string()),
            Observation::Loss(loss) if loss.by == Counter::Symboliser => {
                self.late_losses.push(Loss {
                    cause: loss.cause.clone(),
                    count: loss.count,
                });
            }
            _ => {}
        }
        self.estimator.observe(observation);
        self.answers.observe(observation);
        self.symbols.observe(observation);
        Ok(())
    }

    /// Takes the rest of a log, and makes its recording.
    fn whole<R: BufRead>(mut self, log: &mut LogReader<R>) -> Result<Replayed, ReplayError> {
        while let Some(observation) = log.next() {
            let taken = self.observe(&observation);
            taken.map_err(|what| ReplayError::Implausible { what })?;
        }
        let left_out = match log.end() {
            Some(End::Whole(left_out)) => *left_out,
            Some(End::Early { frames, why }) => {
                return Err(E::ends_early(*frames, why.clone()));
            }
            None => LeftOut::default(),
        };
        let Assembled {
            mut recording,
            seen,
            ..
        } = self.estimator.finish(self.answers.names());
        let strangers = self.symbols.apply(&mut recording);
        recording.losses.extend(self.late_losses);
        let lacks = [
            (
                "name that the observation log does not have",
                self.answers.missing(),
            ),
            ("symbol in the observation log without a frame", strangers),
        ];
        recording.losses.extend(losses(left_out, &lacks));
        Ok(Replayed {
            recording,
            seen,
            notes: self.notes,
        })
    }
}

/// Rebuilds the recording of a log.
///
/// # Errors
/// The log is not whole, or its times cannot be.
pub fn replay<R: BufRead>(log: &mut LogReader<R>) -> Result<Replayed, ReplayError> {
    match log.next() {
        Some(Observation::Begin(begin)) => Rebuild::of(&begin, Estimator::new(&begin))?.whole(log),
        Some(Observation::PollsBegin(begin)) => {
            Rebuild::of(&begin, PollEstimator::new(&begin))?.whole(log)
        }
        Some(_) => Err(ReplayError::NoBegin),
        None => Err(no_begin(log.end())),
    }
}

/// What a log was left without, and what else it `lacks`, as losses.
pub(super) fn losses(left_out: LeftOut, lacks: &[(&str, u64)]) -> Vec<Loss> {
    let bound = [
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
    ];
    let all = bound.iter().chain(lacks);
    all.filter(|(_, count)| *count > 0)
        .map(|(cause, count)| Loss {
            cause: (*cause).into(),
            count: *count,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use wallscope_observe::{LogFile, LogWriter, Mark};

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
    fn a_log_of_polls_that_ends_early_gives_no_recording() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let file = LogFile::create(&path).unwrap();
        let mut writer = LogWriter::begin(file, "wallscope", LogFile::BOUND);
        let Observation::Begin(begins) = begin() else {
            unreachable!("it begins so")
        };
        writer.append(&Observation::PollsBegin(begins));
        writer.flush();
        let read = || LogReader::new(Cursor::new(std::fs::read(&path).unwrap())).unwrap();
        let whole = |e: Option<ReplayError>| e.unwrap().to_string().contains("only if it is whole");
        assert!(whole(replay(&mut read()).err()));
        assert!(whole(super::super::recover::extent(&mut read()).err()));
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
