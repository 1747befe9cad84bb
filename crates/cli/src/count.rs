//! `wallscope count FUNCTION…`: exact counts of calls.

use std::time::Duration;

use wallscope_capture::session::{parse_duration, parse_overhead};
use wallscope_capture::uprobes::spec::{self, Spec};
use wallscope_render::calls::CallsDisplay;

use crate::failure::Failure;
use crate::latency::{ProbeArgs, measure};
use crate::target_args::TargetArgs;

/// Count calls of functions, exactly
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  wallscope count malloc free -p 1234 -d 10     calls of two functions
  wallscope count 'pg_*' -p 1234                all that fit a pattern
  wallscope count libssl:'SSL_*' -- ./client    of one library, of a command from its start
  wallscope count syscall:read tracepoint:block:block_rq_issue -a -d 5
  wallscope count usdt:postgresql:query__start -p 1234

What a call will cost is found out on this machine and printed before anything is counted; what costs
more than --max-overhead is refused, with the figure.")]
pub struct Args {
    /// What to count: NAME, 'PATTERN*', MODULE:NAME, MODULE:NAME+0xOFFSET, MODULE+0xOFFSET (as in a
    /// report), syscall:NAME, tracepoint:CATEGORY:NAME, usdt:PROVIDER:NAME
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

    /// As JSON (schema wallscope.count/1)
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
pub fn run(args: Args) -> Result<(), Failure> {
    measure(ProbeArgs {
        verb: "count",
        functions: args.functions,
        target: args.target,
        duration: args.duration,
        max_overhead: args.max_overhead,
        timed: false,
        json: args.json,
        hlog: None,
        slow: None,
        display: CallsDisplay::default(),
    })
}
