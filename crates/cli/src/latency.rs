//! `wallscope latency FUNCTION…`: lengths of single calls, and their time by state and reason.

use std::io::{self, IsTerminal, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use wallscope_capture::session::{Stop, parse_duration, parse_overhead};
use wallscope_capture::target::Target;
use wallscope_capture::uprobes::spec::{self, Spec};
use wallscope_capture::uprobes::{self, Announced, Options, Watcher};
use wallscope_model::calls::Calls;
use wallscope_render::calls::{self, CallsDisplay};

use crate::failure::Failure;
use crate::output::{self, Output, Readers};
use crate::report::style;
use crate::slow::{self, Slow};
use crate::target_args::TargetArgs;

/// Time single calls of functions: quantiles, and how short and long calls spend their time
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  wallscope latency handle_request -p 1234 -d 30
  wallscope latency 'Db::query*' -p 1234 --heat-map
  wallscope latency handle_request -p 1234 -d 30 --slow p99
  wallscope latency syscall:fsync -p 1234
  wallscope latency usdt:postgresql:query__start..usdt:postgresql:query__done -p 1234
  wallscope latency parse --hlog parse.hlog -- ./load --requests 10000

Each call has its own ledger: time on a CPU, waiting for one, and blocked by reason, between its entry
and its end. What a call will cost is found out on this machine and printed first; what costs more
than --max-overhead is refused, with the figure. Functions that an exception may leave are probed at
their own returns, never by a return probe, which would end the process.")]
pub struct Args {
    /// What to time: NAME, 'PATTERN*', MODULE:NAME, syscall:NAME, or two events: FIRST..SECOND
    #[arg(required = true, value_name = "FUNCTION", value_parser = spec::parse)]
    functions: Vec<Spec>,

    #[command(flatten)]
    target: TargetArgs,

    /// How long: seconds, or with a unit (500ms, 10s, 2m); default: until the target ends or Ctrl-C
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,

    /// The most of one CPU that probes may cost, in percent; probes that would cost more are refused
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = parse_overhead)]
    max_overhead: f64,

    /// A call was due at this interval: show lengths corrected for coordinated omission too
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    expected_interval: Option<Duration>,

    /// Show lengths over time
    #[arg(long)]
    heat_map: bool,

    /// Sample stacks too, and show how the calls beyond this quantile differ from typical ones
    #[arg(long, value_name = "QUANTILE", value_parser = slow::quantile)]
    slow: Option<f64>,

    /// Where the flame graph of slow against typical calls goes; their recordings go beside it
    /// [default: a dated name in this folder]
    #[arg(short, long, value_name = "OUT.html", requires = "slow")]
    output: Option<PathBuf>,

    /// Also write HdrHistogram's interval log
    #[arg(long, value_name = "FILE")]
    hlog: Option<PathBuf>,

    /// As JSON (schema wallscope.latency/1)
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    measure(ProbeArgs {
        verb: "latency",
        functions: args.functions,
        target: args.target,
        duration: args.duration,
        max_overhead: args.max_overhead,
        timed: true,
        json: args.json,
        hlog: args.hlog,
        slow: args.slow.map(|quantile| (quantile, args.output)),
        display: CallsDisplay {
            expected_interval: args.expected_interval.map(|d| d.as_nanos() as u64),
            heat_map: args.heat_map,
        },
    })
}

/// The arguments that `count` and `latency` share.
pub struct ProbeArgs {
    /// The verb, for messages.
    pub verb: &'static str,
    /// Functions to probe.
    pub functions: Vec<Spec>,
    /// Processes to measure.
    pub target: TargetArgs,
    /// Length of the measurement; `None`: until the target ends.
    pub duration: Option<Duration>,
    /// Most overhead of the probes, percent of one CPU.
    pub max_overhead: f64,
    /// Whether calls are timed, not only counted.
    pub timed: bool,
    /// Whether the output is JSON.
    pub json: bool,
    /// File for a log in HdrHistogram's format.
    pub hlog: Option<PathBuf>,
    /// Quantile from which on stacks of calls are recorded, and the page's file.
    pub slow: Option<(f64, Option<PathBuf>)>,
    /// Options of the output.
    pub display: CallsDisplay,
}

/// Measures and prints.
pub fn measure(asked: ProbeArgs) -> Result<(), Failure> {
    let target = asked.target.target().ok_or_else(|| {
        Failure::usage(format!(
            "{} needs a target: -p PID, --cgroup PATH, -a, or -- CMD ARGS…",
            asked.verb
        ))
    })?;
    if asked.max_overhead.is_nan() || asked.max_overhead <= 0.0 {
        return Err(Failure::usage("--max-overhead must be more than nothing"));
    }
    // Opened before anything is measured.
    let hlog = asked.hlog.as_deref();
    let hlog = hlog
        .map(|path| Output::create(path, Readers::Umask))
        .transpose()?;
    let mut slow = (asked.slow)
        .map(|(quantile, page)| Slow::open(quantile, page))
        .transpose()?;
    // A command is recorded once it is there.
    let there = !matches!(target, Target::Command(_));
    if let Some(slow) = slow.as_mut().filter(|_| there) {
        slow.record(target.clone()).map_err(failed)?;
    }
    let options = Options {
        target,
        asked: asked.functions,
        timed: asked.timed,
        duration: asked.duration,
        max_overhead: asked.max_overhead,
        slowest: 20,
        each: slow.is_some(),
    };
    let mut teller = Teller {
        terminal: io::stderr().is_terminal(),
        display: asked.display,
        lines: 0,
        slow,
    };
    let measured = uprobes::measure(&options, &mut teller).map_err(failed)?;
    teller.clear();
    let result = &measured.calls;
    if let Some(mut file) = hlog {
        calls::hlog(result, &mut file).context(
            "cannot write HdrHistogram's log; make room, or choose another place with --hlog",
        )?;
        file.finish()?;
    }
    let out = if asked.json {
        calls::json(result, &asked.display)
    } else {
        calls::text(result, &asked.display, &style())
    };
    output::to_stdout(|w| w.write_all(out.as_bytes()))?;
    if let Some(slow) = teller.slow.take() {
        let said = slow.finish(&measured)?;
        if !asked.json {
            output::to_stdout(|w| w.write_all(said.as_bytes()))?;
        }
    }
    match (measured.stop, measured.command_end) {
        (Stop::Duration, _) | (_, None) => Ok(()),
        (_, Some(end)) if end.exit_code() == 0 => Ok(()),
        (_, Some(end)) => Err(Failure::told(end.exit_code())),
    }
}

fn failed(error: wallscope_capture::Error) -> Failure {
    Failure::of(error.exit_code(), anyhow::Error::new(error))
}

/// Most functions with a printed cost of their own.
const MAX_ANNOUNCED: usize = 8;

/// Reports plan and progress of a measurement on standard error.
pub struct Teller {
    terminal: bool,
    display: CallsDisplay,
    /// Lines of the display, to be overwritten.
    lines: usize,
    /// The recording that runs beside.
    slow: Option<Slow>,
}

impl Teller {
    /// A teller without a display that is redrawn.
    pub fn quiet() -> Teller {
        Teller {
            terminal: false,
            display: CallsDisplay::default(),
            lines: 0,
            slow: None,
        }
    }

    fn clear(&mut self) {
        if self.lines > 0 {
            eprint!("\x1b[{}A\x1b[J", std::mem::take(&mut self.lines));
        }
    }
}

impl Watcher for Teller {
    fn announced(&mut self, facts: &Announced) {
        for (name, _, how, cost) in facts.functions.iter().take(MAX_ANNOUNCED) {
            let cost = match cost {
                0 => String::new(),
                ns => format!("up to {:.1} µs a call: ", *ns as f64 / 1e3),
            };
            eprintln!("wallscope: {name}: {cost}{how}");
        }
        let more = facts.functions.len().saturating_sub(MAX_ANNOUNCED);
        if more > 0 {
            eprintln!("wallscope: and {more} further functions");
        }
        if let (Some(rate), Some(cost)) = (facts.rate, facts.cost) {
            eprintln!(
                "wallscope: in a short trial {rate:.0} calls a second, which cost the target {:.2} % of \
                 one CPU",
                cost / 1e7
            );
        }
    }

    fn live(&mut self, target: &str) {
        eprintln!("wallscope: measuring {target} (Ctrl-C ends it)");
    }

    fn begins(&mut self, pid: u32) -> Result<(), wallscope_capture::Error> {
        match &mut self.slow {
            Some(slow) => slow.record(Target::Pids(vec![pid])),
            None => Ok(()),
        }
    }

    fn step(&mut self, so_far: &Calls) {
        let text = calls::live(so_far, &self.display, &style());
        self.clear();
        self.lines = text.lines().count();
        eprint!("{text}");
        let _ = io::stderr().flush();
    }

    fn wants_steps(&self) -> bool {
        self.terminal
    }
}
