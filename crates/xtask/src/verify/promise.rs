//! Promises. Each is judged by the worst row that any experiment has on it, or by a figure of the benchmark.

use wallscope_testkit::checks::Check;
use wallscope_testkit::disturbance::Disturbance;
use wallscope_testkit::{Row, Scorecard};

use crate::bench::Measured;

/// An experiment that was made, or the reason why it was not.
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// Its question.
    pub about: &'static str,
    /// Its rows.
    pub outcome: Result<Scorecard, String>,
    /// Disturbance each time that it was made; the last time counts.
    pub disturbances: Vec<Disturbance>,
}

impl Experiment {
    /// An experiment that the command line left out.
    pub fn left_out(check: &Check) -> Experiment {
        Experiment {
            name: check.name,
            about: check.about,
            outcome: Err(format!(
                "left out of this run; `cargo xtask verify --only {}` makes it",
                check.name
            )),
            disturbances: Vec::new(),
        }
    }
}

/// A promise.
pub struct Promise {
    /// Its name.
    pub what: &'static str,
    /// The promised limit, in words.
    pub required: &'static str,
    how: Measure,
}

/// The figure of a row that a promise limits.
#[derive(Clone, Copy)]
enum Take {
    /// The measured figure; at most this.
    AtMost(f64),
    /// The measured figure; at least this.
    AtLeast(f64),
    /// Distance from the truth; at most this, the row's sampling error, and time that the host took from the
    /// program. A row without a truth is held to its own limit.
    Off(f64),
    /// Whether the row holds by its own limit.
    Own,
    /// Distance of a share from the true one, percentage points, as [`Take::Off`]. Rows in other units (times of
    /// that view) do not count.
    Points(f64),
}

enum Measure {
    /// The worst of the rows with a name that begins with one of these, over all experiments.
    Rows(&'static [&'static str], Take),
    /// Every row of every experiment, by its own limit.
    AllRows,
    /// An own figure of the benchmark, at most this.
    Figure(&'static str, f64),
    /// Slowdown of a workload under a tool in percent, at most this.
    Slowdown(&'static str, &'static str, f64),
    /// Ratio of a workload's figure under a tool to that under none, at most this.
    Ratio(&'static str, &'static str, f64),
    /// Own CPU and kernel programs in a workload, percent of a CPU, at most this.
    Cost(&'static str, f64),
}

/// Judgement of a promise.
pub struct Judged {
    /// Its name.
    pub what: &'static str,
    /// The promised limit.
    pub required: &'static str,
    /// The measured figure.
    pub measured: String,
    /// Whether it holds.
    pub pass: bool,
}

const fn promise(what: &'static str, required: &'static str, how: Measure) -> Promise {
    Promise {
        what,
        required,
        how,
    }
}

/// All promises.
pub const PROMISES: &[Promise] = &[
    promise(
        "residue of each thread",
        "≤ 100 ppm of wall",
        Measure::Rows(&["residue, worst"], Take::AtMost(100.0)),
    ),
    promise(
        "unknown of each thread",
        "≤ 0.1 % of wall",
        Measure::Rows(&["unknown, worst"], Take::AtMost(1000.0)),
    ),
    promise(
        "on-CPU time against the kernel's counter, worst thread",
        "≤ 600 ppm of wall",
        Measure::Rows(&["on-CPU against the kernel"], Take::AtMost(600.0)),
    ),
    promise(
        "runnable time above the kernel's counter, worst thread",
        "≤ 600 ppm of wall",
        Measure::Rows(&["runnable above"], Take::AtMost(600.0)),
    ),
    promise(
        "repaired time",
        "≤ 1 % of wall",
        Measure::Rows(&["repaired"], Take::AtMost(10_000.0)),
    ),
    promise(
        "share of a named function, wall, off-CPU and run queue",
        "≤ 1 pp off, beside chance",
        Measure::Rows(&["wall ", "off-cpu ", "runq "], Take::Points(1.0)),
    ),
    promise(
        "share of a named function, on-CPU",
        "≤ 2 pp off, beside chance",
        Measure::Rows(&["on-cpu "], Take::Points(2.0)),
    ),
    promise(
        "mean signed error of each tier's shares",
        "≤ a quarter of the promise for one row",
        Measure::Rows(&["ebpf: bias", "perf: bias", "proc: bias"], Take::Own),
    ),
    promise(
        "printed intervals at 99 Hz that hold the truth",
        "≥ 93 % of ≥ 300 cases, beside chance",
        Measure::Rows(&["intervals that hold"], Take::Own),
    ),
    promise(
        "totals at 49 Hz against 997 Hz",
        "≤ 1 % apart",
        Measure::Rows(RATES, Take::Off(1.0)),
    ),
    promise(
        "stacks that reach the root, on-CPU, each truth program",
        "≥ 99.9 %",
        Measure::Rows(&["stacks that reach the root, on_cpu"], Take::AtLeast(99.9)),
    ),
    promise(
        "stacks that reach the root, blocked, each truth program",
        "≥ 99.9 %",
        Measure::Rows(
            &["stacks that reach the root, blocked"],
            Take::AtLeast(99.9),
        ),
    ),
    promise(
        "wrong but complete stacks, against glibc's backtrace()",
        "0",
        Measure::Rows(&["wrong but complete"], Take::AtMost(0.0)),
    ),
    promise(
        "the ladder's verdict names the cause (state, reason, function)",
        "≥ 97 % of ≥ 30 scenarios",
        Measure::Rows(&["verdicts right"], Take::AtLeast(97.0)),
    ),
    promise(
        "the ladder's false alarms on healthy and idle processes",
        "0",
        Measure::Rows(&["false alarms"], Take::AtMost(0.0)),
    ),
    promise(
        "CPU-bound program at 99 Hz: kernel programs and own CPU",
        "≤ 0.1 % of a core",
        Measure::Cost("fixed", 0.1),
    ),
    promise(
        "CPU-bound program at 99 Hz: slowdown",
        "≤ 1 %",
        Measure::Slowdown("fixed", EBPF, 1.0),
    ),
    promise(
        "slowdown, computing in Python, 99 Hz",
        "≤ 1 %",
        Measure::Slowdown("python", EBPF, 1.0),
    ),
    promise(
        "slowdown, computing in Java, 99 Hz",
        "≤ 1 %",
        Measure::Slowdown("java", EBPF, 1.0),
    ),
    promise(
        "slowdown, computing in Go, 99 Hz",
        "≤ 1 %",
        Measure::Slowdown("go", EBPF, 1.0),
    ),
    promise(
        "slowdown, computing in JavaScript, 99 Hz",
        "≤ 1 %",
        Measure::Slowdown("node", EBPF, 1.0),
    ),
    promise(
        "share of a function, wall and on-CPU, Python",
        "≤ 1.5 pp off, beside chance",
        Measure::Rows(&["python wall ", "python on-cpu "], Take::Off(1.5)),
    ),
    promise(
        "share of a function, wall and on-CPU, Java",
        "≤ 1.5 pp off, beside chance",
        Measure::Rows(&["java wall ", "java on-cpu "], Take::Off(1.5)),
    ),
    promise(
        "share of a function, wall and on-CPU, Go",
        "≤ 1.5 pp off, beside chance",
        Measure::Rows(&["go wall ", "go on-cpu "], Take::Off(1.5)),
    ),
    promise(
        "share of a function, on-CPU, JavaScript",
        "≤ 1.5 pp off, beside chance",
        Measure::Rows(&["node on-cpu "], Take::Off(1.5)),
    ),
    promise(
        "share of a function, wall and on-CPU, PHP",
        "≤ 1.5 pp off, beside chance",
        Measure::Rows(&["php: wall ", "php: on-cpu php"], Take::Off(1.5)),
    ),
    promise(
        "share of a function, wall and on-CPU, Ruby",
        "≤ 1.5 pp off, beside chance",
        Measure::Rows(&["ruby: wall ", "ruby: on-cpu Worker"], Take::Off(1.5)),
    ),
    promise(
        "stacks that reach the runtime's root: Python, Go, JavaScript, PHP, Ruby",
        "≥ 99 %",
        Measure::Rows(
            &[
                "python stacks that reach",
                "go stacks that reach",
                "node stacks that reach",
                "php: stacks that reach",
                "ruby: stacks that reach",
            ],
            Take::AtLeast(99.0),
        ),
    ),
    promise(
        "stacks that reach the runtime's root: Java",
        "≥ 97 %",
        Measure::Rows(&["java stacks that reach"], Take::AtLeast(97.0)),
    ),
    promise(
        "pipe ping-pong on one CPU, default settings",
        "≤ 1.35 ×",
        Measure::Ratio("pingpong", EBPF, 1.35),
    ),
    promise(
        "pipe ping-pong on one CPU, perf backend",
        "≤ 1.5 ×",
        Measure::Ratio("pingpong", PERF, 1.5),
    ),
    promise(
        "pipe ping-pong on one CPU, proc backend",
        "≤ 1.1 ×",
        Measure::Ratio("pingpong", PROC, 1.1),
    ),
    promise(
        "CPU-bound program at 99 Hz: slowdown, perf backend",
        "≤ 1 %",
        Measure::Slowdown("fixed", PERF, 1.0),
    ),
    promise(
        "CPU-bound program at 99 Hz: slowdown, proc backend",
        "≤ 1 %",
        Measure::Slowdown("fixed", PROC, 1.0),
    ),
    promise(
        "share of a named function, wall, perf backend, 99 Hz, 20 s",
        "≤ 2 pp off, beside chance",
        Measure::Rows(&["perf: wall "], Take::Points(2.0)),
    ),
    promise(
        "share of a named function, wall, proc backend that may stop, 99 Hz, 20 s",
        "≤ 3 pp off, beside chance",
        Measure::Rows(&["proc: wall "], Take::Points(3.0)),
    ),
    promise(
        "one function's entry and return at 10,000 calls/s",
        "≤ 3 % of a core",
        Measure::Figure("probe-latency", 3.0),
    ),
    promise(
        "what timing a function costs, predicted before against measured",
        "within 1.5 ×",
        Measure::Figure("predicted-latency", 1.5),
    ),
    promise(
        "what counting a function costs, predicted before against measured",
        "within 1.5 ×",
        Measure::Figure("predicted-count", 1.5),
    ),
    promise(
        "memory, ordinary target",
        "≤ 64 MiB",
        Measure::Figure("memory", 64.0),
    ),
    promise(
        "memory, 150 MB library",
        "≤ 200 MiB",
        Measure::Figure("memory-large", 200.0),
    ),
    promise(
        "memory for each further thread",
        "≤ 6 KiB",
        Measure::Figure("thread", 6.0),
    ),
    promise(
        "own CPU with 1,000 mostly idle threads, perf events",
        "≤ 2 % of a core",
        Measure::Figure("idle-perf", 2.0),
    ),
    promise(
        "own CPU with 1,000 mostly idle threads, `/proc` at 20 Hz",
        "≤ 2 % of a core",
        Measure::Figure("idle-proc", 2.0),
    ),
    promise(
        "start to `recording`, ordinary target",
        "≤ 1 s",
        Measure::Figure("live", 1.0),
    ),
    promise(
        "start to `recording`, 150 MB library",
        "≤ 2 s",
        Measure::Figure("live-large", 2.0),
    ),
    promise("stop to file", "≤ 0.5 s", Measure::Figure("file", 0.5)),
    promise(
        "stop to file, 150 MB library",
        "≤ 0.5 s",
        Measure::Figure("file-large", 0.5),
    ),
    promise(
        "file to report, 10 s",
        "≤ 1 s",
        Measure::Figure("report", 1.0),
    ),
    promise(
        "file to report, 150 MB library",
        "≤ 5 s",
        Measure::Figure("report-large", 5.0),
    ),
    promise(
        "every row of every experiment, by its own limit",
        "all",
        Measure::AllRows,
    ),
];

/// Tools that measure, by the benchmark's names.
const EBPF: &str = "wallscope";
const PERF: &str = "wallscope --backend perf";
const PROC: &str = "wallscope --backend proc";

const RATES: &[&str] = &[
    "mix-0 on-CPU, 49",
    "mix-0 blocked, 49",
    "mix-1 on-CPU, 49",
    "mix-1 blocked, 49",
];

/// The first number in a text.
pub fn number(text: &str) -> Option<f64> {
    let from = text.find(|c: char| c.is_ascii_digit() || c == '-')?;
    let rest = &text[from..];
    let end = rest
        .char_indices()
        .find(|(at, c)| !(c.is_ascii_digit() || *c == '.' || (*c == '-' && *at == 0)))
        .map_or(rest.len(), |(at, _)| at);
    rest[..end].parse().ok()
}

impl Take {
    /// Whether a row is of the kind.
    fn takes(self, row: &Row) -> bool {
        !matches!(self, Take::Points(_)) || row.measured.contains('%')
    }

    /// Whether a row that is asked for its distance from the truth has none, but a limit.
    fn is_one_sided(self, row: &Row) -> bool {
        matches!(self, Take::Off(_) | Take::Points(_))
            && row.truth.is_empty()
            && !row.limit.is_empty()
    }

    /// Error of a row as a multiple of the promise: above 1 the promise is broken.
    fn badness(self, row: &Row) -> f64 {
        // A row without a number cannot keep a promise.
        let Some(measured) = number(&row.measured) else {
            return f64::INFINITY;
        };
        if self.is_one_sided(row) {
            return if row.pass { 0.0 } else { f64::INFINITY };
        }
        if let (Take::Off(most) | Take::Points(most), Some(estimate)) = (self, &row.estimate) {
            return estimate.error().abs() / (most + estimate.chance + estimate.stolen);
        }
        match self {
            Take::Own => f64::from(u8::from(!row.pass)) * 2.0,
            Take::AtMost(0.0) => 1.0 + measured,
            Take::AtMost(most) => measured.abs() / most,
            Take::AtLeast(least) => (100.0 - measured) / (100.0 - least),
            Take::Off(most) | Take::Points(most) => match number(&row.truth) {
                Some(truth) => (measured - truth).abs() / most,
                None => f64::INFINITY,
            },
        }
    }

    fn tell(self, row: &Row) -> String {
        if let (Take::Off(_) | Take::Points(_), Some(estimate)) = (self, &row.estimate) {
            let stolen = match estimate.stolen {
                0.0 => String::new(),
                stolen => format!(" and {stolen:.2} time that the host took"),
            };
            return format!(
                "{:.2} off, of which {:.2} may be chance{stolen}",
                estimate.error().abs(),
                estimate.chance
            );
        }
        match (self, number(&row.measured), number(&row.truth)) {
            (Take::Off(_) | Take::Points(_), Some(measured), Some(truth)) => {
                format!("{:.2} off", (measured - truth).abs())
            }
            (Take::Own, ..) => format!("{}, own limit {}", row.measured, row.limit),
            _ if self.is_one_sided(row) => {
                format!("{}, own limit {}", row.measured.trim(), row.limit.trim())
            }
            _ => row.measured.trim().to_string(),
        }
    }
}

impl Promise {
    /// Judges the promise. A promise without a measurement does not hold.
    pub fn judge(&self, experiments: &[Experiment], measured: &Measured) -> Judged {
        let (found, pass) = match &self.how {
            Measure::Rows(names, take) => worst(experiments, names, *take),
            Measure::AllRows => all_rows(experiments),
            Measure::Figure(key, most) => {
                let found = measured.figures.iter().find(|figure| figure.key == *key);
                found.map_or(not_measured(), |figure| {
                    (
                        format!("{:.3} {}", figure.value, figure.unit),
                        figure.value <= *most,
                    )
                })
            }
            Measure::Slowdown(workload, tool, most) => ratio(measured, workload, tool, |ratio| {
                let percent = 100.0 * (ratio - 1.0);
                (format!("{percent:.2} %"), percent <= *most)
            }),
            Measure::Ratio(workload, tool, most) => ratio(measured, workload, tool, |ratio| {
                (format!("{ratio:.3} ×"), ratio <= *most)
            }),
            Measure::Cost(workload, most) => {
                let standing = measured.standing(workload, EBPF);
                standing
                    .and_then(|standing| standing.cost_percent)
                    .map_or(not_measured(), |cost| {
                        (format!("{cost:.3} %"), cost <= *most)
                    })
            }
        };
        Judged {
            what: self.what,
            required: self.required,
            measured: found,
            pass,
        }
    }
}

fn not_measured() -> (String, bool) {
    ("not measured".into(), false)
}

fn ratio(
    measured: &Measured,
    workload: &str,
    tool: &str,
    tell: impl Fn(f64) -> (String, bool),
) -> (String, bool) {
    let standing = measured.standing(workload, tool);
    standing.map_or(not_measured(), |standing| tell(standing.ratio))
}

fn worst(experiments: &[Experiment], names: &[&str], take: Take) -> (String, bool) {
    let mut worst: Option<(f64, String)> = None;
    let mut count = 0;
    for experiment in experiments {
        let Ok(card) = &experiment.outcome else {
            continue;
        };
        for row in &card.rows {
            if !names.iter().any(|name| row.what.starts_with(name)) || !take.takes(row) {
                continue;
            }
            count += 1;
            let badness = take.badness(row);
            if worst.as_ref().is_none_or(|(most, _)| badness > *most) {
                let told = format!("{} in {}: {}", take.tell(row), experiment.name, row.what);
                worst = Some((badness, told));
            }
        }
    }
    match worst {
        None => not_measured(),
        Some((badness, told)) => (format!("{told} (worst of {count})"), badness <= 1.0),
    }
}

fn all_rows(experiments: &[Experiment]) -> (String, bool) {
    let (mut all, mut held, mut not_made) = (0, 0, 0);
    for experiment in experiments {
        match &experiment.outcome {
            Err(_) => not_made += 1,
            Ok(card) => {
                all += card.rows.len();
                held += card.rows.len() - card.failures();
            }
        }
    }
    (
        format!("{held} of {all} rows; {not_made} experiments not made"),
        all > 0 && held == all && not_made == 0,
    )
}
