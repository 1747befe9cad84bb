//! `wallscope queues FILE…`, or of a live target.

use std::path::{Path, PathBuf};

use wallscope_analysis::queueing::usl::{self, Point};
use wallscope_analysis::queues::what_if::{Question, what_if};
use wallscope_analysis::queues::{self, scaling};
use wallscope_analysis::view::{Analysis, Idle};
use wallscope_model::Recording;
use wallscope_render::queues::{Findings, Scaling, json, text};

use crate::failure::Failure;
use crate::source::{BRIEFLY, Live, OpenedRecording};
use crate::{annotate, input, output};

/// How long work waits for locks, threads, CPUs and disks, and how the waits grow with more load;
/// how much faster the work is if one function is
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wallscope queues rec.pb.gz                  arrivals, service, waits, and waits under more load
  wallscope queues -p 1234 -d 30              measure thirty seconds of a process first
  wallscope queues rec.pb.gz --faster compaction=2     were it twice as fast
  wallscope queues n1.pb.gz n8.pb.gz n32.pb.gz         throughput over load, and where it peaks
  wallscope queues --at 1=950 --at 8=5100 --at 16=6900 --at 32=6100

With record --timeline single jobs are measured; without it, sums give means, and what-if gives bounds.
Load is the number of customers in a closed system, arrivals in an open one.")]
pub struct Args {
    /// A recording; several at different loads: throughput over load is fitted, too
    #[arg(conflicts_with = "target")]
    file: Vec<PathBuf>,
    #[command(flatten)]
    reading: input::Reading,
    #[command(flatten)]
    live: Live,
    /// What if FUNCTION were TIMES as fast
    #[arg(long, value_name = "FUNCTION=TIMES", value_parser = faster)]
    faster: Vec<Question>,
    /// A load and its throughput a second, measured elsewhere; may be repeated
    #[arg(long, value_name = "N=X", value_parser = point)]
    at: Vec<Point>,
    /// As JSON (schema wallscope.queues/1)
    #[arg(long)]
    json: bool,
}

/// `FUNCTION=TIMES`; a name may hold `=`, a number not.
fn faster(text: &str) -> Result<Question, String> {
    let wrong = || format!("'{text}' is not FUNCTION=TIMES, as in compaction=2");
    let (function, times) = text.rsplit_once('=').ok_or_else(wrong)?;
    let speedup: f64 = times.parse().map_err(|_| wrong())?;
    if function.is_empty() || !(speedup > 1.0 && speedup.is_finite()) {
        return Err(format!("{}; TIMES is more than 1", wrong()));
    }
    Ok(Question {
        function: function.to_owned(),
        speedup,
    })
}

/// `N=X`.
fn point(text: &str) -> Result<Point, String> {
    let wrong = || format!("'{text}' is not N=X, a load and its throughput, as in 8=5100");
    let (load, throughput) = text.split_once('=').ok_or_else(wrong)?;
    let number = |text: &str| -> Result<f64, String> {
        let value: f64 = text.trim().parse().map_err(|_| wrong())?;
        let positive = value > 0.0 && value.is_finite();
        positive
            .then_some(value)
            .ok_or_else(|| format!("{}; both are more than 0", wrong()))
    };
    Ok(Point {
        load: number(load)?,
        throughput: number(throughput)?,
    })
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    let mut recordings: Vec<(PathBuf, Recording)> = Vec::new();
    if let Some(target) = args.live.target() {
        let OpenedRecording {
            recording, path, ..
        } = args.live.measured(target, BRIEFLY)?;
        recordings.push((path, recording));
    }
    for path in args.file {
        let recording = input::recording(&path, &args.reading)?;
        recordings.push((path, recording));
    }
    if recordings.is_empty() && (args.at.is_empty() || !args.faster.is_empty()) {
        return Err(Failure::usage(
            "queues needs a recording, or a target: -p PID, --cgroup PATH, -a, or -- CMD ARGS…",
        ));
    }
    let findings = findings(&recordings, &args.faster, &args.at)?;
    let out = match args.json {
        true => json(&findings),
        false => text(&findings, output::width()),
    };
    output::to_stdout(|w| w.write_all(out.as_bytes()))
}

fn findings(
    recordings: &[(PathBuf, Recording)],
    questions: &[Question],
    at: &[Point],
) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let mut shown = recordings.first();
    if recordings.len() > 1 || !at.is_empty() {
        let scaling = scaling(recordings, at);
        // Queues of the highest load: there they are longest.
        let load = |(path, _): &&(PathBuf, Recording)| {
            let own = scaling
                .points
                .iter()
                .find(|(source, _)| *source == called(path));
            own.map_or(0.0, |(_, point)| point.load)
        };
        shown = recordings.iter().max_by(|a, b| load(a).total_cmp(&load(b)));
        findings.scaling = Some(scaling);
    }
    let Some((path, recording)) = shown else {
        return Ok(findings);
    };
    if recordings.len() > 1 {
        findings.file = called(path);
    }
    let analysis = Analysis::new(recording, Idle::Show);
    for question in questions {
        let found = annotate::find(&analysis, &question.function)?;
        let question = Question {
            function: found.to_string(),
            ..question.clone()
        };
        findings
            .what_if
            .push(what_if(&analysis, &question).map_err(Failure::usage)?);
    }
    findings.queues = Some(queues::queues(&analysis));
    Ok(findings)
}

fn called(path: &Path) -> String {
    path.display().to_string()
}

fn scaling(recordings: &[(PathBuf, Recording)], at: &[Point]) -> Scaling {
    let mut points: Vec<(String, Point)> = Vec::new();
    let mut without = Vec::new();
    for (path, recording) in recordings {
        match scaling::point(recording) {
            Ok(point) => points.push((called(path), point)),
            Err(reason) => without.push((called(path), reason)),
        }
    }
    points.extend(at.iter().map(|point| ("--at".to_owned(), *point)));
    points.sort_by(|a, b| a.1.load.total_cmp(&b.1.load));
    let only: Vec<Point> = points.iter().map(|(_, point)| *point).collect();
    Scaling {
        fit: usl::fit(&only),
        points,
        without,
    }
}
