//! Rebuilds the recording of a log of observations, without root and on any machine.
//!
//! The estimator gets the observations in the order of the log, and the names that the log answers. It reads nothing
//! else. So the recording equals the live one, byte for byte, if one version makes both.

use std::io::BufRead;

use thiserror::Error;
use wallscope_model::{Loss, Recording, WaitSeen};
use wallscope_observe::{Begin, Counter, End, LeftOut, LogReader, Observation, Symbols};

use super::{
    answers::Answers,
    assemble::{Assembled, Snapshots},
    estimator::Estimator,
    naming::Names,
    plausible::Times,
};
use crate::backend::proc::estimator::PollEstimator;

/// A recording that was rebuilt.
pub struct Replayed {
    /// The recording, with names; idle waits are not marked yet.
    pub recording: Recording,
    /// Connections seen in the waits of each sample, by the index of the sample.
    pub seen: Vec<WaitSeen>,
    /// Notes for the domain, to be added once idle waits are marked.
    pub notes: Vec<String>,
}

/// Reason that a log gives no recording.
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
    /// Its figures cannot be.
    #[error("its figures cannot be: it says {what}")]
    Implausible {
        /// The contradiction.
        what: &'static str,
    },
}

/// An estimator: observations in, a recording out.
pub(super) trait Estimate {
    /// An estimator without observations.
    fn begin(begin: &Begin) -> Self;

    /// Takes an observation.
    fn observe(&mut self, observation: &Observation<'_>);

    /// The recorder ended at `end_ns` without last figures, unless the end was observed before.
    fn ends_early(&mut self, begin: &Begin, end_ns: u64);

    /// Makes the recording.
    fn finish(self, names: Names<'_>) -> Assembled;
}

impl Estimate for Estimator {
    fn begin(begin: &Begin) -> Estimator {
        Estimator::new(begin)
    }

    fn observe(&mut self, observation: &Observation<'_>) {
        Estimator::observe(self, observation);
    }

    fn ends_early(&mut self, begin: &Begin, end_ns: u64) {
        if self.facts.end_ns.is_none() {
            Estimator::ends_early(self, end_ns, begin.off_cpu_period_ns);
        }
    }

    fn finish(self, names: Names<'_>) -> Assembled {
        Estimator::finish(self, names, Snapshots::None)
    }
}

impl Estimate for PollEstimator {
    fn begin(begin: &Begin) -> PollEstimator {
        PollEstimator::new(begin)
    }

    fn observe(&mut self, observation: &Observation<'_>) {
        PollEstimator::observe(self, observation);
    }

    fn ends_early(&mut self, _begin: &Begin, end_ns: u64) {
        PollEstimator::ends_early(self, end_ns);
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

/// The first observation of a log, which tells the estimator that it is for.
pub(super) enum FirstObservation {
    /// It is of the ebpf backend.
    Ebpf(Begin),
    /// It is of the proc or perf backend.
    Polls(Begin),
}

impl FirstObservation {
    /// Reads it.
    pub fn read<R: BufRead>(log: &mut LogReader<R>) -> Result<FirstObservation, ReplayError> {
        match log.next() {
            Some(Observation::Begin(begin)) => Ok(FirstObservation::Ebpf(begin)),
            Some(Observation::PollsBegin(begin)) => Ok(FirstObservation::Polls(begin)),
            Some(_) => Err(ReplayError::NoBegin),
            None => Err(match log.end() {
                Some(End::Early { why, .. }) => ReplayError::NoWholeFrame { why: why.clone() },
                _ => ReplayError::NoBegin,
            }),
        }
    }

    /// What the recorder says of the recording as it begins.
    pub fn facts(&self) -> &Begin {
        match self {
            FirstObservation::Ebpf(begin) | FirstObservation::Polls(begin) => begin,
        }
    }
}

impl<E: Estimate> Rebuild<E> {
    /// The rebuild of a log that begins with `begin`.
    pub fn of(begin: &Begin) -> Result<Rebuild<E>, ReplayError> {
        let times = Times::new(begin).map_err(|what| ReplayError::Implausible { what })?;
        Ok(Rebuild {
            estimator: E::begin(begin),
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
                let (frames, why) = (*frames, why.clone());
                return Err(ReplayError::EndsEarly { frames, why });
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
    match FirstObservation::read(log)? {
        FirstObservation::Ebpf(begin) => Rebuild::<Estimator>::of(&begin)?.whole(log),
        FirstObservation::Polls(begin) => Rebuild::<PollEstimator>::of(&begin)?.whole(log),
    }
}

/// Rebuilds the recording of a log without following its waits, which tells the cost of following them. Only logs
/// of the eBPF tier have waits to follow.
///
/// # Errors
/// As [`replay`].
pub fn replay_without_blame<R: BufRead>(log: &mut LogReader<R>) -> Result<Replayed, ReplayError> {
    match FirstObservation::read(log)? {
        FirstObservation::Ebpf(begin) => {
            let mut rebuild = Rebuild::<Estimator>::of(&begin)?;
            rebuild.estimator.follows_waits = false;
            rebuild.whole(log)
        }
        FirstObservation::Polls(begin) => Rebuild::<PollEstimator>::of(&begin)?.whole(log),
    }
}

/// Losses of a log: observations that were left out of it, and other gaps (`lacks`).
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
