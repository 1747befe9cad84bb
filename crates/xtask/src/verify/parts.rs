//! Parts of a verification, kept as they are made: `verify --continue` takes those of a run that was interrupted.
//!
//! A file of JSON lines. The first line of each run has its date and machine, the measured binary by its SHA-256, and
//! the length. Parts of another binary or length are not taken.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wallscope_testkit::Scorecard;
use wallscope_testkit::checks::Check;
use wallscope_testkit::disturbance::Disturbance;

use super::page::Header;
use super::promise::Experiment;
use crate::Outcome;
use crate::bench::Measured;
use crate::dist::sums::sha256;

/// One line of the file.
#[derive(Deserialize, Serialize)]
#[serde(bound(deserialize = "'de: 'static"))]
enum Line {
    Run(Run),
    Benchmark(String, Measured, Duration),
    Experiment(Made, Duration),
}

/// A run: the first one, or one that continues it.
#[derive(Clone, Deserialize, Serialize)]
struct Run {
    /// UTC.
    date: String,
    /// In words.
    machine: String,
    /// SHA-256 of the measured binary, hexadecimal.
    binary: String,
    /// Seconds of a recording.
    seconds: f64,
}

/// An experiment that was made.
#[derive(Deserialize, Serialize)]
struct Made {
    name: String,
    outcome: Result<Scorecard, String>,
    disturbances: Vec<Disturbance>,
}

/// Use of the parts of an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// The run begins anew.
    Dropped,
    /// The run makes the rest.
    Taken,
}

/// The parts that are made, and the file that keeps them.
pub struct Parts {
    file: File,
    runs: Vec<Run>,
    benchmarks: BTreeMap<String, Measured>,
    experiments: BTreeMap<String, Made>,
    /// Time that all parts took.
    pub took: Duration,
}

impl Parts {
    /// Opens the file of parts at `path`, for `binary` and recordings of `seconds`. The header tells when and where
    /// this run began.
    ///
    /// # Errors
    /// The binary cannot be read, or the file cannot be written.
    pub fn open(
        path: &Path,
        earlier: Earlier,
        (binary, seconds, header): (&Path, f64, &Header),
    ) -> Outcome<Parts> {
        let run = Run {
            date: header.date.clone(),
            machine: header.machine.clone(),
            binary: sha256(&fs::read(binary)?),
            seconds,
        };
        // The names of figures are borrowed from it.
        let text: &'static str = fs::read_to_string(path).unwrap_or_default().leak();
        let lines: Vec<Line> = (text.lines())
            .map_while(|line| serde_json::from_str(line).ok())
            .collect();
        let of_this = |line: &Line| matches!(line, Line::Run(r) if r.binary == run.binary && r.seconds == seconds);
        let taken = earlier == Earlier::Taken && lines.first().is_some_and(of_this);
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        let mut parts = Parts {
            file: (OpenOptions::new().create(true).write(true))
                .append(taken)
                .truncate(!taken)
                .open(path)?,
            runs: Vec::new(),
            benchmarks: BTreeMap::new(),
            experiments: BTreeMap::new(),
            took: Duration::ZERO,
        };
        for line in lines.into_iter().filter(|_| taken) {
            match line {
                Line::Run(run) => parts.runs.push(run),
                Line::Benchmark(part, measured, took) => {
                    parts.benchmarks.insert(part, measured);
                    parts.took += took;
                }
                Line::Experiment(made, took) => {
                    parts.experiments.insert(made.name.clone(), made);
                    parts.took += took;
                }
            }
        }
        parts.runs.push(run.clone());
        parts.keep(&Line::Run(run))?;
        Ok(parts)
    }

    /// Dates at which the runs began.
    pub fn dates(&self) -> String {
        let dates: Vec<&str> = self.runs.iter().map(|run| &*run.date).collect();
        dates.join(", continued ")
    }

    /// The machines that the runs were made on, each once.
    pub fn machines(&self) -> String {
        let mut machines: Vec<&str> = self.runs.iter().map(|run| &*run.machine).collect();
        machines.dedup();
        machines.join("; then ")
    }

    /// Takes a part of the benchmark of an earlier run.
    pub fn benchmark(&mut self, part: &str) -> Option<Measured> {
        self.benchmarks.remove(part)
    }

    /// Takes an experiment of an earlier run.
    pub fn experiment(&mut self, check: &Check) -> Option<Experiment> {
        let made = self.experiments.remove(check.name)?;
        Some(Experiment {
            name: check.name,
            about: check.about,
            outcome: made.outcome,
            disturbances: made.disturbances,
        })
    }

    /// Keeps a part of the benchmark, which took so long.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_benchmark(
        &mut self,
        part: &str,
        measured: &Measured,
        took: Duration,
    ) -> Outcome<()> {
        self.took += took;
        self.keep(&Line::Benchmark(part.into(), measured.clone(), took))
    }

    /// Keeps an experiment, which took so long.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep_experiment(&mut self, experiment: &Experiment, took: Duration) -> Outcome<()> {
        self.took += took;
        let made = Made {
            name: experiment.name.into(),
            outcome: experiment.outcome.clone(),
            disturbances: experiment.disturbances.clone(),
        };
        self.keep(&Line::Experiment(made, took))
    }

    fn keep(&mut self, line: &Line) -> Outcome<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        Ok(self.file.write_all(text.as_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Figure;
    use wallscope_testkit::checks;

    #[test]
    fn a_later_run_of_the_same_binary_takes_the_parts() {
        let folder = tempfile::tempdir().unwrap();
        let (path, binary) = (folder.path().join("parts"), folder.path().join("binary"));
        fs::write(&binary, "one").unwrap();
        let open = |earlier, date: &str| {
            let header = Header {
                date: date.into(),
                machine: "a machine".into(),
                load: 0.0,
            };
            Parts::open(&path, earlier, (&binary, 10.0, &header)).unwrap()
        };
        let check = &checks::ALL[0];
        let mut card = Scorecard::default();
        card.at_most("cost", 0.5, 1.0, "%");
        let mut first = open(Earlier::Taken, "Monday");
        assert!(first.benchmark("own").is_none());
        let measured = Measured {
            comparisons: Vec::new(),
            figures: vec![Figure {
                key: "start",
                what: "start to `recording`",
                value: 0.97,
                unit: "s",
            }],
        };
        let minute = Duration::from_secs(60);
        first.keep_benchmark("own", &measured, minute).unwrap();
        let experiment = Experiment {
            name: check.name,
            about: check.about,
            outcome: Ok(card.clone()),
            disturbances: vec![Disturbance::default()],
        };
        first.keep_experiment(&experiment, minute).unwrap();

        let mut second = open(Earlier::Taken, "Tuesday");
        assert_eq!(second.dates(), "Monday, continued Tuesday");
        assert_eq!(second.machines(), "a machine");
        assert_eq!(second.took, 2 * minute);
        assert!(second.benchmark("probes").is_none());
        assert_eq!(second.benchmark("own").unwrap().figure("start"), 0.97);
        assert_eq!(second.experiment(check).unwrap().outcome, Ok(card));
        assert!(second.experiment(&checks::ALL[1]).is_none());

        fs::write(&binary, "another").unwrap();
        assert!(open(Earlier::Taken, "Wednesday").benchmark("own").is_none());

        let mut fourth = open(Earlier::Taken, "Thursday");
        fourth.keep_benchmark("own", &measured, minute).unwrap();
        assert!(open(Earlier::Dropped, "Friday").benchmark("own").is_none());
    }
}
