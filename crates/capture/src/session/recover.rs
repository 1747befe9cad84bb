//! A log that ended early → the recording up to its last time slice.
//!
//! A recorder that is killed leaves a spool without an end. Facts that can change are observed whenever they have
//! changed (`last_values.rs`, `early_names.rs`), so the observations up to the last closed slice are a recording. The
//! books of all threads are those of that moment, and threads without news have stayed as they were. Later
//! observations are passed over: they cover some threads only.
//!
//! This module uses the names in the log. The symboliser names native code: it looks for the files of the log's
//! modules and compares build ids.
//!
//! Logs of the proc and perf backends hold polls and switches in the place of books. A tick ends a round of
//! polls there, and threads go on to that moment as their last poll or switch says (`backend/proc/early_end.rs`).
//!
//! Not recovered: tasks of runtimes, the processes at the other ends of connections that began later
//! than the recording, owners of locks in waits that were under way, copied stacks that were to be
//! unwound at the end.

use std::{io::BufRead, sync::Arc};

use rustc_hash::FxHashMap;
use wallscope_model::{FrameKind, Recording, WaitSeen};
use wallscope_observe::{Begin, End, LeftOut, LogReader, Mark, NamedFrame, Observation};
use wallscope_unwind::{
    native::abi::FrameWord,
    runtime::{Role, hotspot::Item},
};

use super::{
    address_scope::AddressScope,
    answers::{Answers, frame_key, nameless},
    assemble::Assembled,
    collected_names::Kallsyms,
    estimator::Estimator,
    managed::Word,
    naming::{CodeNames, HostNames, ManagedFrame, Names},
    plausible::Times,
    replay::{Estimate, FirstObservation, Rebuild, ReplayError, losses},
    unwound::Unwinding,
};
use crate::{backend::proc::estimator::PollEstimator, event::SocketRecord};

/// Extent of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// It is whole: [`super::replay::replay`] makes its recording.
    Whole,
    /// It ends early.
    Early(EarlyEnd),
}

/// End of a log that is not whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlyEnd {
    /// Observations up to the last moment at which the books of all threads are known.
    observations: u64,
    /// That moment, ns of the recording's clock.
    end_ns: u64,
    /// When cumulative figures were observed last; `None`: they were not.
    figures_ns: Option<u64>,
    /// Boot of the kernel that was measured.
    boot: String,
    left_out: LeftOut,
    /// Reason for its end, in words.
    why: String,
}

/// Finds out how far a log goes.
///
/// # Errors
/// It has no beginning, or no whole time slice.
pub fn extent<R: BufRead>(log: &mut LogReader<R>) -> Result<Extent, ReplayError> {
    let first = FirstObservation::read(log).map_err(|_| ReplayError::NoBegin)?;
    let begin = first.facts();
    let implausible = |what| ReplayError::Implausible { what };
    let mut times = Times::new(begin).map_err(implausible)?;
    let mut early = EarlyEnd {
        boot: begin.boot.clone(),
        ..EarlyEnd::default()
    };
    let (mut n, mut is_over) = (0, false);
    let mut why = None;
    while let Some(observation) = log.next() {
        if let Err(what) = times.take(&observation) {
            why = Some(format!("it says {what}"));
            break;
        }
        n += 1;
        match observation {
            Observation::Mark(Mark::Tick { time }) if !is_over => early.end_ns = time,
            Observation::Mark(Mark::Figures { time }) => early.figures_ns = Some(time),
            Observation::Mark(Mark::End { time }) => {
                // Observations from here on belong to this moment.
                (early.end_ns, is_over) = (time, true);
            }
            Observation::LeftOut(left_out) => early.left_out = left_out,
            _ => {}
        }
        let is_mark = matches!(
            observation,
            Observation::Mark(Mark::Tick { .. } | Mark::Figures { .. })
        );
        if is_mark || is_over {
            early.observations = n;
        }
    }
    let why = why.unwrap_or_else(|| match log.end() {
        Some(End::Early { why, .. }) => why.clone(),
        _ => String::new(),
    });
    if matches!(log.end(), Some(End::Whole(_))) {
        return Ok(Extent::Whole);
    }
    if early.end_ns == 0 {
        return Err(ReplayError::NoSlice { why });
    }
    Ok(Extent::Early(EarlyEnd { why, ..early }))
}

/// Whether the kernel that runs here is the one that was measured, in its present boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameKernel {
    /// It is, so addresses of its code have kept their meaning.
    Yes,
    /// It is not, or that is unknown.
    No,
}

/// A recording that was recovered.
pub struct Recovered {
    /// The recording. The symboliser has not named its frames yet.
    pub recording: Recording,
    /// Connections seen in the waits of each sample, by the index of the sample.
    pub seen: Vec<WaitSeen>,
    /// Whether the running kernel can name the kernel's frames.
    pub kernel: SameKernel,
    /// Age of the cumulative figures at the recording's end, ns; `None`: there are none.
    pub figures_age_ns: Option<u64>,
    /// Reason for the end of the log, in words.
    pub why: String,
}

/// Makes the recording of a log that ends early, up to `early`. `boot`: the present boot of the kernel,
/// empty where it is not known.
///
/// # Errors
/// The log is not the one in which `early` was found.
pub fn recover<R: BufRead>(
    log: &mut LogReader<R>,
    early: &EarlyEnd,
    boot: &str,
) -> Result<Recovered, ReplayError> {
    match FirstObservation::read(log)? {
        FirstObservation::Ebpf(begin) => recover_by::<Estimator, R>(log, early, (&begin, boot)),
        FirstObservation::Polls(begin) => {
            recover_by::<PollEstimator, R>(log, early, (&begin, boot))
        }
    }
}

/// Makes the recording of a log that begins with `begin`, by the estimator of its backend.
fn recover_by<E: Estimate, R: BufRead>(
    log: &mut LogReader<R>,
    early: &EarlyEnd,
    (begin, boot): (&Begin, &str),
) -> Result<Recovered, ReplayError> {
    let implausible = |what| ReplayError::Implausible { what };
    let mut rebuild = Rebuild::<E>::of(begin)?;
    for _ in 0..early.observations {
        let Some(observation) = log.next() else {
            return Err(implausible("less than it did a moment ago"));
        };
        let taken = match observation {
            Observation::FirstBooks(bytes) => rebuild.observe(&Observation::Books(bytes)),
            other => rebuild.observe(&other),
        };
        taken.map_err(implausible)?;
    }
    let kernel = match !boot.is_empty() && boot == begin.boot {
        true => SameKernel::Yes,
        false => SameKernel::No,
    };
    let Rebuild {
        mut estimator,
        answers,
        ..
    } = rebuild;
    estimator.ends_early(begin, early.end_ns);
    let names = EarlyAnswers::new(&answers, kernel);
    let Assembled {
        mut recording,
        seen,
        ..
    } = estimator.finish(names.names());
    let lacks = [(
        "name of code that the spool does not have",
        names.answers.missing(),
    )];
    recording.losses.extend(losses(early.left_out, &lacks));
    let figures = early
        .figures_ns
        .map(|time| early.end_ns.saturating_sub(time));
    Ok(Recovered {
        recording,
        seen,
        kernel,
        figures_age_ns: figures,
        why: early.why.clone(),
    })
}

/// Answers of a log that ended before it asked.
struct EarlyAnswers<'a> {
    answers: &'a Answers,
    /// Frames by process and words, as they were named last.
    latest: FxHashMap<(u32, bool, [u64; 4]), &'a NamedFrame>,
    kernel: SameKernel,
}

impl<'a> EarlyAnswers<'a> {
    fn new(answers: &'a Answers, kernel: SameKernel) -> EarlyAnswers<'a> {
        let mut all: Vec<_> = answers.frames().collect();
        all.sort_unstable_by_key(|(key, _)| key.code);
        let latest = all.into_iter();
        EarlyAnswers {
            answers,
            latest: latest
                .map(|(key, frame)| ((key.pid, key.late, key.words), frame))
                .collect(),
            kernel,
        }
    }

    fn names(&self) -> Names<'_> {
        Names {
            code: self,
            host: self,
        }
    }
}

impl CodeNames for EarlyAnswers<'_> {
    fn frame(&self, item: Item, unwinding: Unwinding, scope: AddressScope) -> NamedFrame {
        let key = frame_key(item, unwinding, scope);
        if let Some(found) = self.answers.known_frame(item, &key) {
            return found;
        }
        // Stacks of wakers are named as code was last.
        match self.latest.get(&(key.pid, key.late, key.words)) {
            Some(frame) => (*frame).clone(),
            None => {
                self.answers.miss();
                nameless(FrameKind::Native, key.words[1])
            }
        }
    }

    fn managed(&self, pid: u32, word: Word) -> ManagedFrame {
        self.answers.managed(pid, word)
    }

    fn roles(&self, pid: u32, frames: &[FrameWord]) -> Vec<Role> {
        self.answers.roles(pid, frames)
    }

    fn program(&self, pid: u32, former: u32) -> Option<Arc<str>> {
        // Only processes that have run several have answers.
        self.answers.known_program(pid, former)
    }

    fn maker(&self, pid: u32) -> Option<(String, String)> {
        self.answers.known_maker(pid)
    }
}

impl HostNames for EarlyAnswers<'_> {
    fn kernel_functions(&self, stacks: &FxHashMap<u64, Box<[u64]>>) -> FxHashMap<u64, Arc<str>> {
        match self.kernel {
            SameKernel::Yes => Kallsyms::default().functions(stacks),
            SameKernel::No => FxHashMap::default(),
        }
    }

    fn other_end(&self, socket: &SocketRecord) -> Option<(u32, String)> {
        self.answers.known_other_end(socket.cookie)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use wallscope_observe::{CodeMaker, LogFile, LogWriter, OtherEnd, ProgramName};
    use zerocopy::FromZeros;

    use super::*;

    /// Extent of a log of `all` that was not closed.
    fn extent_of(all: &[Observation<'_>]) -> Extent {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let file = LogFile::create(&path).unwrap();
        let mut writer = LogWriter::begin(file, "test", LogFile::BOUND);
        for observation in all {
            writer.append(observation);
            writer.flush();
        }
        let bytes = std::fs::read(&path).unwrap();
        extent(&mut LogReader::new(Cursor::new(bytes)).unwrap()).unwrap()
    }

    #[test]
    fn nothing_after_the_end_moves_the_end_of_a_log() {
        let start = 1 << 40;
        let begin = Observation::Begin(Begin {
            start_ns: start,
            slice_ns: 50_000_000,
            ..Begin::default()
        });
        let left_out = LeftOut {
            wakes: 3,
            ..LeftOut::default()
        };
        let all = [
            begin,
            Observation::Mark(Mark::Tick { time: start + 7 }),
            Observation::LeftOut(left_out),
            Observation::Mark(Mark::End { time: start + 9 }),
            Observation::Mark(Mark::Tick { time: start + 11 }),
        ];
        let Extent::Early(early) = extent_of(&all) else {
            panic!("it ends early")
        };
        assert_eq!((early.end_ns, early.left_out), (start + 9, left_out));
        let Extent::Early(early) = extent_of(&all[..2]) else {
            panic!("it ends early")
        };
        assert_eq!((early.end_ns, early.observations), (start + 7, 1));
    }

    #[test]
    fn an_early_end_asks_only_for_what_its_log_may_tell() {
        let mut answers = Answers::default();
        answers.observe(&Observation::ProgramName(ProgramName {
            pid: 5,
            former: 1,
            name: Some("make".into()),
        }));
        answers.observe(&Observation::CodeMaker(CodeMaker {
            pid: 5,
            maker: Some(("node".into(), "--perf-basic-prof".into())),
        }));
        answers.observe(&Observation::OtherEnd(OtherEnd {
            cookie: 9,
            process: Some((7, "redis".into())),
            before: false,
        }));
        let early = EarlyAnswers::new(&answers, SameKernel::No);
        let socket = |cookie| SocketRecord {
            cookie,
            ..SocketRecord::new_zeroed()
        };
        assert_eq!(early.program(5, 1).as_deref(), Some("make"));
        assert_eq!(early.program(5, 2), None);
        let node = ("node".to_string(), "--perf-basic-prof".to_string());
        assert_eq!((early.maker(5), early.maker(6)), (Some(node), None));
        assert_eq!(early.other_end(&socket(9)), Some((7, "redis".into())));
        assert_eq!(early.other_end(&socket(8)), None);
        assert!(early.kernel_functions(&FxHashMap::default()).is_empty());
        // None of these is a loss.
        assert_eq!(answers.missing(), 0);
    }
}
