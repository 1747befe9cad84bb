//! wallscope's own figures: the delays that its user sees, and its memory.
//!
//! Delays and memory depend on the target's code: an ordinary program (a few libraries) and a compiler with a
//! library of some 150 MB are measured. The compiler waits for its source on
//! standard input, so it can be recorded from before its work to its end.

use std::fmt;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use wallscope_testkit::report::Report;
use wallscope_testkit::tool::{Options, Recorded, Recorder};
use wallscope_testkit::{Error, Tool};

use super::effort::Effort;
use super::figure::Figure;
use crate::{Outcome, installed, median};

const MIB: f64 = 1048576.0;

fn memory_mib(report: &Report) -> f64 {
    (report.cost.rss_bytes + report.cost.kernel_bytes) as f64 / MIB
}

/// Delays and memory of one recording.
#[derive(Default)]
struct Delays {
    to_live: Vec<f64>,
    to_file: Vec<f64>,
    to_report: Vec<f64>,
    memory: Vec<f64>,
}

impl Delays {
    fn take(&mut self, recorded: &Recorded, stopped: Option<Duration>) -> Result<(), Error> {
        self.to_live.push(recorded.took.to_live.as_secs_f64());
        let to_file = stopped.unwrap_or(recorded.took.to_file);
        self.to_file.push(to_file.as_secs_f64());
        let began = Instant::now();
        let report = recorded.report()?;
        self.to_report.push(began.elapsed().as_secs_f64());
        self.memory.push(memory_mib(&report));
        Ok(())
    }

    fn figures(self, names: [(&'static str, &'static str); 4]) -> Vec<Figure> {
        let values = [self.to_live, self.to_file, self.to_report, self.memory];
        let units = ["s", "s", "s", "MiB"];
        let all = names.into_iter().zip(values).zip(units);
        all.map(|(((key, what), values), unit)| Figure {
            key,
            what,
            value: median(values),
            unit,
        })
        .collect()
    }
}

fn ordinary(tool: &Tool, effort: Effort) -> Result<Vec<Figure>, Error> {
    let seconds = effort.seconds.to_string();
    let mut delays = Delays::default();
    for _ in 0..effort.repeats {
        let run = tool.measure("mix", &["--seconds", &seconds], &Options::at(99))?;
        delays.take(&run.recorded, None)?;
    }
    Ok(delays.figures([
        ("live", "start to `recording`, ordinary program"),
        ("file", "stop to file"),
        ("report", "file to report"),
        ("memory", "memory, own and in the kernel, ordinary program"),
    ]))
}

/// The compiler, waiting for its source, with its large library in place; killed when dropped.
struct Compiler(Child);

impl Drop for Compiler {
    fn drop(&mut self) {
        // Both without effect on one that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Compiler {
    fn start(folder: &std::path::Path) -> Result<Compiler, Error> {
        let rustc = installed("rustc")
            .ok_or_else(|| Error::CannotRunHere("rustc is not in PATH".into()))?;
        let child = Command::new(rustc)
            .args(["--crate-name=bench", "--crate-type=lib", "-Copt-level=3"])
            .args(["--edition=2021", "-", "--out-dir"])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| Error::Start(format!("rustc: {e}")))?;
        let mut compiler = Compiler(child);
        let maps = format!("/proc/{}/maps", compiler.0.id());
        let limit = Instant::now() + Duration::from_secs(30);
        loop {
            let text = std::fs::read_to_string(&maps).unwrap_or_default();
            if text.contains("librustc_driver") {
                return Ok(compiler);
            }
            let ended = compiler.0.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > limit {
                return Err(Error::CannotRunHere(
                    "rustc did not map librustc_driver".into(),
                ));
            }
            std::thread::yield_now();
        }
    }

    fn compile(&mut self, source: &str) -> Result<(), Error> {
        let fails = |e: std::io::Error| Error::Start(format!("rustc: {e}"));
        let mut stdin = self.0.stdin.take().expect("stdin is piped");
        stdin.write_all(source.as_bytes()).map_err(fails)?;
        drop(stdin);
        let status = self.0.wait().map_err(fails)?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::Start(format!("rustc: {status}")))
        }
    }
}

/// A source that keeps the compiler busy for some seconds.
fn source(functions: usize) -> String {
    use fmt::Write;
    let mut text = String::from("use std::collections::HashMap;\n");
    for i in 0..functions {
        let _ = write!(
            text,
            "pub fn f{i}(m: &mut HashMap<String, Vec<u64>>, x: u64) -> Option<u64> {{\n\
             let v = m.entry(format!(\"k{{}}-{i}\", x % 7)).or_default();\n\
             v.push(x ^ {i}); v.sort_unstable(); v.dedup();\n\
             v.iter().copied().filter(|y| y % {} == 0).map(|y| y.wrapping_mul({i})).max()\n}}\n",
            i + 2
        );
    }
    text
}

/// Delay of the end alone, of a recording that is over when it is told to stop.
fn ended(recorder: Recorder) -> Result<(Recorded, Duration), Error> {
    let began = Instant::now();
    let recorded = recorder.ends_with(0)?;
    Ok((recorded, began.elapsed()))
}

fn large(tool: &Tool, effort: Effort) -> Result<Vec<Figure>, Error> {
    let text = source((effort.seconds * 60.0) as usize);
    let mut delays = Delays::default();
    for _ in 0..effort.repeats.div_ceil(2) {
        let folder = tempfile::tempdir().map_err(|e| Error::Start(format!("a folder: {e}")))?;
        let mut compiler = Compiler::start(folder.path())?;
        let recorder = tool.attach(&[compiler.0.id()], &Options::at(99))?;
        compiler.compile(&text)?;
        let (recorded, stopped) = ended(recorder)?;
        delays.take(&recorded, Some(stopped))?;
    }
    Ok(delays.figures([
        (
            "live-large",
            "start to `recording`, compiler (150 MB library)",
        ),
        ("file-large", "end to file, compiler"),
        ("report-large", "file to report, compiler"),
        ("memory-large", "memory, own and in the kernel, compiler"),
    ]))
}

fn parked(tool: &Tool, effort: Effort) -> Result<Figure, Error> {
    let (few, many) = (500u32, 10_000u32);
    let seconds = (effort.seconds / 5.0).max(1.0).to_string();
    let measure = |threads: u32| -> Result<f64, Error> {
        let threads = threads.to_string();
        let flags = ["--seconds", &seconds, "--threads", &threads];
        let run = tool.measure("parked", &flags, &Options::at(99))?;
        Ok(memory_mib(&run.report))
    };
    let more = measure(many)? - measure(few)?;
    Ok(Figure {
        key: "thread",
        what: "memory for each further thread (500 to 10,000)",
        value: more * 1024.0 / f64::from(many - few),
        unit: "KiB",
    })
}

/// Own CPU time beside a thousand threads that each wake once a second, its start included, % of a core.
fn idle(tool: &Tool, effort: Effort) -> Result<Vec<Figure>, Error> {
    let seconds = (2.0 * effort.seconds).to_string();
    let flags = [
        "--threads",
        "1000",
        "--wake-ms",
        "1000",
        "--seconds",
        &seconds,
    ];
    let measure = |(key, what, backend, hz)| {
        let options = Options {
            more: vec!["--backend".into(), backend],
            ..Options::at(hz)
        };
        let run = tool.measure("parked", &flags, &options)?;
        let window = run.report.window.end_ns - run.report.window.start_ns;
        Ok(Figure {
            key,
            what,
            value: run.report.cost.own_cpu_ns as f64 * 100.0 / window as f64,
            unit: "%",
        })
    };
    let ways = [
        (
            "idle-perf",
            "own CPU, 1,000 mostly idle threads, perf",
            "perf".into(),
            99,
        ),
        (
            "idle-proc",
            "own CPU, 1,000 mostly idle threads, proc at 20 Hz",
            "proc".into(),
            20,
        ),
    ];
    ways.into_iter().map(measure).collect()
}

/// All of them.
pub(super) fn all(tool: &Tool, effort: Effort) -> Outcome<Vec<Figure>> {
    let mut figures = ordinary(tool, effort)?;
    match large(tool, effort) {
        Ok(more) => figures.extend(more),
        Err(Error::CannotRunHere(why)) => println!("left out: the large program: {why}"),
        Err(error) => return Err(error.into()),
    }
    figures.push(parked(tool, effort)?);
    figures.extend(idle(tool, effort)?);
    Ok(figures)
}
