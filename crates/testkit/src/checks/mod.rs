//! Whole experiments: each records a truth program with the real binary, reads the recording and scores it. An
//! experiment is one row of [`ALL`]. The live tests run it short, the full verification long.

mod asyncio;
mod calls;
mod collect;
mod events;
mod go;
mod idle;
mod intervals;
mod java;
mod jit;
mod lengths;
mod lives;
mod node;
mod php;
mod python;
mod queues;
mod rates;
mod ruby;
mod shares;
mod stacks;
mod tiers;
mod virtual_threads;
mod why;

pub use shares::disk_folder;

use std::time::Duration;

use crate::tool::{Options, Run};
use crate::{Error, Program, Scorecard, Tool};

/// Time limit for the work of a program of managed code.
const LIMIT: Duration = Duration::from_secs(120);
/// Lowest and highest number of rounds of fixed work, each with and without a recording.
const ROUNDS: [u32; 2] = [3, 8];

/// Stacks of waits four times as often as by default, and no lower rate where stacks cost more than 1 % of a
/// CPU, as they do on a busy machine.
const FINE: &[&str] = &["--off-cpu-period", "250us", "--max-overhead", "25"];

/// Length and number of recordings.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Length of one recording, s.
    pub seconds: f64,
    /// Number of recordings where an experiment needs several.
    pub repeats: u32,
}

impl Length {
    /// For a test run.
    pub const SHORT: Length = Length {
        seconds: 3.0,
        repeats: 2,
    };
    /// For the full verification: the lengths that the promised numbers are stated for.
    pub const FULL: Length = Length {
        seconds: 10.0,
        repeats: 16,
    };

    /// Options of a recording for rows on shares. A short run samples more finely, so that chance stays
    /// below what is promised.
    pub fn options(self) -> Options {
        match self.is_short() {
            true => Options::at(1997).with(FINE),
            false => Options::at(997)
                .with(&["--off-cpu-period", "500us"])
                .with(&FINE[2..]),
        }
    }

    /// Options and length (s) of recordings of managed code. There are many of them, so that each gets little
    /// of a short run.
    pub fn managed(self) -> (Options, f64) {
        match self.is_short() {
            true => (Options::at(1997).with(FINE), 3.0),
            false => (Options::at(997).with(&FINE[2..]), 30.0),
        }
    }

    fn is_short(self) -> bool {
        self.seconds < Length::FULL.seconds
    }

    fn text(&self) -> String {
        format!("{}", self.seconds)
    }
}

/// Influences on an experiment's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Wallscope alone: fit for a test on a busy machine.
    Truth,
    /// Wallscope, and other programs that take CPU time from the measured one: for the full verification on a
    /// quiet machine.
    Quiet,
    /// The machine's speed and other programs: for a quiet machine.
    Timing,
    /// Other programs, and it takes long: the tests make a part of it.
    Verdict,
}

/// One experiment.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// Its question.
    pub about: &'static str,
    /// Influences on its outcome.
    pub kind: Kind,
    /// Makes it. An error means that it could not be made.
    pub run: fn(&Tool, Length) -> Result<Scorecard, Error>,
}

macro_rules! checks {
    ($($kind:ident $name:literal $run:path: $about:literal;)*) => {
        /// Every experiment.
        pub const ALL: &[Check] = &[$(Check {
            name: $name,
            about: $about,
            kind: Kind::$kind,
            run: $run,
        },)*];
    };
}

checks! {
    Truth "mix" shares::mix: "computing and sleeping: ledger, shares, sums, stacks";
    Truth "shares" shares::shares: "50/30/15/5 % on-CPU at 499 Hz";
    Truth "cover" shares::cover: "how often a printed interval at 99 Hz holds the truth";
    Truth "in-step" shares::in_step: "rounds as long as samples are apart, with and without eBPF";
    Truth "convoy" shares::convoy: "threads queueing for one mutex";
    Truth "disk" shares::disk: "fdatasync and O_DIRECT";
    Truth "faults" shares::faults: "minor and major page faults";
    Truth "bursts" shares::bursts: "short stretches on a CPU between waits, beside long ones";
    Truth "rpc" shares::rpc: "a client waiting for a slow server, two processes";
    Truth "reasons" why::reasons: "what the system call alone does not tell of a wait";
    Truth "userfault" why::userfault: "pages that the program brings in itself: it is not stopped for ever, and told right";
    Truth "chain" why::chain: "a lock, its holder, and what that one waited for";
    Truth "hands" why::hands: "a lock that passes through many hands while others wait for it";
    Truth "held" why::held: "owners of locks that are never given up, by the locks' own memory";
    Truth "crowd" shares::crowd: "busy threads that share one CPU";
    Truth "throttled" shares::throttled: "a CPU quota";
    Truth "micro" shares::micro: "very many short blocks against one long one";
    Truth "migrate" shares::migrate: "blocks that begin on one CPU and end on another";
    Truth "inject-sleep" shares::inject_sleep: "a delay by sleep is found where it was put";
    Truth "inject-cpu" shares::inject_cpu: "a delay by computing is found where it was put";
    Truth "inject-lock" shares::inject_lock: "a delay by a lock is found where it was put";
    Truth "lengths" lengths::lengths: "how long single waits are: 50 × 2 ms is not 1 × 100 ms";
    Truth "plugins" shares::plugins: "two libraries by turns at the same addresses, with and without eBPF";
    Truth "intervals" intervals::intervals: "the timeline's intervals against the ledger, and the wakers";
    Truth "events" events::events: "stacks at page faults, system calls and switches, by function and thread";
    Truth "queue" queues::server: "a single-threaded server: arrivals, service, utilisation, wait";
    Truth "what-if" queues::what_if: "a function that is really made twice as fast";
    Truth "upstream" idle::upstream: "waiting for work is idle, waiting for an answer is not; the peer that answers";
    Truth "aside" idle::aside: "a thread that waits for an answer is not idle, whichever thread asked";
    Truth "long-ago" idle::long_ago: "a request from before the recording keeps only those busy that may wait for it";
    Truth "spin" idle::spin: "threads that spin are suspected to";
    Truth "short" lives::short: "threads that live a millisecond";
    Truth "span" lives::span: "blocks across the window's edges; a killed child";
    Truth "execs" lives::execs: "fork and exec chains, exec by a non-leader, vfork";
    Truth "rename" lives::rename: "a thread that changes its name";
    Truth "parked" lives::parked: "ten thousand idle threads, and what each costs";
    Truth "cgroup" lives::cgroup: "a cgroup as the target, and nothing beside it";
    Truth "everything" lives::everything: "the whole machine as the target";
    Truth "calls" calls::calls: "calls timed one by one: counts, quantiles, ledgers, every way out";
    Truth "counts" calls::counts: "exact counts of calls";
    Truth "forked-calls" calls::forked: "exact counts of calls in children forked meanwhile";
    Truth "slow-calls" calls::slow: "stacks and ledgers of slow calls against typical ones";
    Truth "odd" stacks::odd: "deep and odd stacks, computing and blocked";
    Truth "interrupt" stacks::by_interrupt: "stacks that threads read in an interrupt, as before Linux 6.18";
    Truth "bare" shares::bare: "code without unwind information: ledger, shares, whole stacks";
    Truth "python" python::python: "Python functions, stacks and the GIL, on each interpreter found";
    Truth "gil" python::gil: "the holder of Python's lock while others waited, and the function it ran";
    Truth "asyncio" asyncio::asyncio: "what asyncio's tasks await and how long, on each interpreter found";
    Truth "virtual-threads" virtual_threads::virtual_threads: "what Java's virtual threads wait for and how long, and their stacks, from JDK 21 on";
    Quiet "collect" collect::collect: "pauses of Java's collectors against the VM's own log: number, time, cause";
    Truth "java" java::java: "Java methods and stacks, interpreted and compiled, on each VM found";
    Truth "go" go::go: "Go functions and stacks, plain and stripped";
    Truth "goroutines" go::goroutines: "what goroutines wait for, in a stripped program";
    Truth "jit" jit::jit: "code made at run time, at addresses used again, by perf map and jitdump";
    Truth "node" node::node: "JavaScript functions, compiled and interpreted, stacks through V8's own code";
    Truth "php" php::php: "PHP functions and stacks, through callbacks, methods and generators";
    Truth "ruby" ruby::ruby: "Ruby methods and stacks, through blocks, exceptions, threads and fibers";
    Truth "rates" rates::rates: "totals at 49 Hz against 997 Hz, two recordings at once";
    Quiet "reclaim" why::reclaim: "memory that has to be freed first, under a cgroup's limit";
    Quiet "by-perf" tiers::perf: "shares of functions without eBPF, by perf events";
    Quiet "by-proc" tiers::proc: "shares of functions with nothing but /proc and short stops";
    Verdict "ladder" crate::scenarios::score: "the ladder's verdict on processes with a known trouble, and on healthy ones";
    Timing "python-cost" python::python_cost: "slowdown of a Python program at 99 Hz, and attaching to it";
    Timing "java-cost" java::java_cost: "slowdown of a Java program at 99 Hz, and attaching to it";
    Timing "go-cost" go::go_cost: "slowdown of a Go program at 99 Hz, and attaching to it";
    Timing "node-cost" node::node_cost: "slowdown of a JavaScript program at 99 Hz, and attaching to it";
    Timing "php-cost" php::php_cost: "slowdown of a PHP program at 99 Hz, and attaching to it";
    Timing "ruby-cost" ruby::ruby_cost: "slowdown of a Ruby program at 99 Hz, and attaching to it";
}

/// Records the whole work of a program that waits to be released.
fn measure(mut program: Program, tool: &Tool, options: &Options) -> Result<Run, Error> {
    let recorder = tool.attach(program.pids(), options)?;
    program.release()?;
    let truth = program.truth(LIMIT)?;
    let recorded = recorder.stop()?;
    program.finish()?;
    Run::read(truth, recorded)
}

/// Rows: slowdown of a fixed amount of computing by a recording at 99 Hz, and the delay until it is attached.
/// `start` starts the program, `what` is the runtime.
fn fixed_work(
    what: &str,
    tool: &Tool,
    length: Length,
    start: impl Fn() -> Result<Program, Error>,
) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let (mut bare, mut recorded) = (f64::INFINITY, f64::INFINITY);
    let mut live = Vec::new();
    for _ in 0..length.repeats.clamp(ROUNDS[0], ROUNDS[1]) {
        let mut program = start()?;
        program.release()?;
        bare = bare.min(program.truth(LIMIT)?.extra("cpu_ns")?);
        program.finish()?;
        let run = measure(start()?, tool, &Options::at(99))?;
        recorded = recorded.min(run.truth.extra("cpu_ns")?);
        live.push(run.recorded.took.to_live.as_secs_f64());
    }
    live.sort_by(f64::total_cmp);
    card.at_most(
        format!("slowdown of {what}, best against best"),
        100.0 * (recorded / bare - 1.0),
        1.0,
        "%",
    );
    card.at_most(
        format!("attached until recording, {what}, median"),
        live[live.len() / 2],
        1.5,
        "s",
    );
    Ok(card)
}

/// The experiment of that name.
pub fn by_name(name: &str) -> Option<&'static Check> {
    ALL.iter().find(|check| check.name == name)
}
