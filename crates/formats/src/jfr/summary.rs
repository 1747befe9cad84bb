//! Samples → the recording, with everything that was left out named.

use std::collections::BTreeMap;

use wallscope_model::{EventSource, Limit, Loss, Unit};

use super::super::import::About;
use super::super::{Read, ReadError};
use super::catalog;
use super::samples::{Choice, Samples};

impl Samples {
    /// The recording.
    ///
    /// # Errors
    /// [`ReadError::NoValues`], [`ReadError::NoSuchValue`].
    pub(super) fn finish(mut self, mut warnings: Vec<String>) -> Result<Read, ReadError> {
        let mut unit = match &self.choice {
            Choice::Time | Choice::Cpu | Choice::Wall => Unit::Nanoseconds,
            Choice::Allocation => Unit::Bytes,
            Choice::Event(name) => Unit::Count(name.clone()),
        };
        if !self.weightless.is_empty() {
            let names = list(&self.sources.weightless);
            if self.to.is_empty() {
                unit = Unit::Count(self.add_weightless()?);
                warnings.push(format!(
                    "the time that samples stand for is not in the file: they are counted, {names}"
                ));
            } else {
                warnings.push(format!(
                    "the time that some samples stand for is not in the file: they are no time and \
                     were left out, {names}; --value EVENT counts one of them"
                ));
            }
        }
        warnings.extend(self.warnings());
        if self.to.is_empty() {
            return Err(self.nothing());
        }
        let about = self.about(unit);
        let (samples, bytes) = (self.lost_samples, self.lost_bytes);
        let mut recording = self.to.finish(about);
        let losses = [
            ("CPU-time samples that the JDK could not keep", samples),
            ("bytes of events that the JDK could not keep", bytes),
        ];
        for (cause, count) in losses.into_iter().filter(|(_, n)| *n > 0) {
            recording.losses.push(Loss {
                cause: cause.to_string(),
                count,
            });
        }
        Ok(Read::named(recording, warnings))
    }

    /// The error of a file without any sample.
    fn nothing(&self) -> ReadError {
        let have = |asked: &str| {
            let events = self
                .seen
                .iter()
                .filter(|(name, _)| !catalog::is_setting(name));
            let events: Vec<String> = events
                .map(|(name, (n, _))| format!("{name} ({n})"))
                .collect();
            ReadError::NoSuchValue {
                asked: asked.to_string(),
                have: events.join(", "),
            }
        };
        match &self.choice {
            Choice::Time => ReadError::NoValues,
            Choice::Cpu => have("cpu"),
            Choice::Wall => have("wall"),
            Choice::Allocation => have("allocation"),
            Choice::Event(asked) => have(asked),
        }
    }

    /// Warnings about events that were left out, or that two recorders have.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.damaged > 0 {
            warnings.push(format!(
                "{} events are damaged, and were left out",
                self.damaged
            ));
        }
        if !self.choice.is_time() {
            if !self.covered.is_empty() {
                warnings.push(format!(
                    "left out, as other events count the same allocations: {}",
                    list(&self.covered)
                ));
            }
            return warnings;
        }
        if !self.covered.is_empty() {
            warnings.push(format!(
                "left out, as other samples of the same process hold this time: {}",
                list(&self.covered)
            ));
        }
        let known = |name: &str| {
            let s = &self.sources;
            let elsewhere = s.weightless.contains_key(name) || self.covered.contains_key(name);
            s.read.contains_key(name) || elsewhere
        };
        let samples: BTreeMap<String, u64> = (self.seen.iter())
            .filter(|(name, _)| catalog::is_sample(name) && !known(name))
            .map(|(name, (n, _))| (name.clone(), *n))
            .collect();
        if !samples.is_empty() && self.choice == Choice::Time {
            warnings.push(format!(
                "left out, as they have no weight: {}; --value EVENT counts one of them",
                list(&samples)
            ));
        }
        if self.choice == Choice::Time && self.sources.both {
            warnings.push(
                "it has CPU samples and wall-clock samples, and both are read: time of running \
                 threads is on-CPU by the first and again unknown by the second; --value cpu or \
                 --value wall reads one of them"
                    .to_string(),
            );
        }
        warnings
    }

    fn about(&self, unit: Unit) -> About {
        let s = &self.sources;
        let values = match &self.choice {
            Choice::Allocation => "weights of allocations".to_string(),
            Choice::Event(name) => format!("events {name}"),
            _ => {
                let parts = [
                    (s.cpu, "execution samples"),
                    (s.wall, "wall-clock samples"),
                    (s.waits, "lengths of waiting"),
                ];
                let parts: Vec<&str> = (parts.iter()).filter(|(is, _)| *is).map(|p| p.1).collect();
                parts.join(", and ")
            }
        };
        About {
            tool: "Java Flight Recorder".to_string(),
            format: "a Java flight recording".to_string(),
            values,
            unit,
            limits: self.limits(),
            notes: self.notes(),
            events: self.events(),
            ..About::default()
        }
    }

    fn limits(&self) -> Vec<Limit> {
        let s = &self.sources;
        let mut limits = Vec::new();
        let mut limit = |is: bool, what: &str, remedy: &str| {
            if is && self.choice.is_time() {
                limits.push(Limit {
                    what: what.to_string(),
                    remedy: remedy.to_string(),
                });
            }
        };
        limit(
            s.waits || s.jdk_execution,
            "waiting shorter than the recorder's threshold (10 or 20 ms by default) is not in the \
             file, and native code is not sampled as computing",
            "record with wallscope, or lower the thresholds",
        );
        limit(
            s.jdk_execution,
            "the JDK samples at most a few threads at each tick: with many busy ones their time \
             comes out too small",
            "record with wallscope",
        );
        limit(
            s.datadog_wall,
            "Datadog's profiler samples some of the threads at each tick: with many threads their \
             time comes out too small",
            "record with wallscope",
        );
        limits
    }

    /// Notes about the values that may be requested, and about events with a length that are no wait.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.seen.keys().any(|n| catalog::allocation(n).is_some()) {
            notes.push("the file holds allocations too: --value allocation".to_string());
        }
        let others: Vec<String> = (self.seen.iter())
            .filter(|(name, (_, timed))| *timed && !catalog::is_setting(name))
            .filter(|(name, _)| catalog::wait(name).is_none() && !catalog::is_sample(name))
            .map(|(name, (n, _))| format!("{name} ({n})"))
            .collect();
        if !others.is_empty() && self.choice.is_time() {
            notes.push(format!(
                "events with a length that are not read as time of a thread: {}; --value EVENT \
                 counts one of them",
                others.join(", ")
            ));
        }
        notes
    }

    fn events(&self) -> Vec<EventSource> {
        let event = |(event, interval): (&String, &u64)| EventSource {
            what: "stacks".to_string(),
            event: event.clone(),
            rate: format!("every {} µs", interval / 1000),
        };
        self.sources.read.iter().map(event).collect()
    }
}

/// Names of events with their numbers.
fn list(events: &BTreeMap<String, u64>) -> String {
    let words: Vec<String> = events
        .iter()
        .map(|(name, n)| format!("{name} ({n})"))
        .collect();
    words.join(", ")
}
