//! Whole experiments: each records a truth program with the real binary, reads the recording and scores it. An
//! experiment is one row of [`ALL`]. The live tests run it short, the full verification long.

mod asyncio;
mod calls;
mod collect;
mod disk_folder;
mod events;
mod go;
mod idle;
mod intervals;
mod java;
mod jit;
mod length;
mod lengths;
mod lives;
mod names;
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
mod work;

pub use disk_folder::disk_folder;
pub use length::Length;
use work::{LIMIT, fixed_work, measure};

use crate::{Error, Scorecard, Tool};

/// Influences on an experiment's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Influence {
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
    pub kind: Influence,
    /// Makes it. An error means that it could not be made.
    pub run: fn(&Tool, Length) -> Result<Scorecard, Error>,
}

macro_rules! checks {
    ($($kind:ident $name:literal $run:path: $about:literal;)*) => {
        /// Every experiment.
        pub const ALL: &[Check] = &[$(Check {
            name: $name,
            about: $about,
            kind: Influence::$kind,
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
    Truth "turns" shares::turns: "so many threads that wait that the limit of cost changes the time of a stack";
    Truth "bursts" shares::bursts: "short stretches on a CPU between waits, beside long ones";
    Truth "rpc" shares::rpc: "a client waiting for a slow server, two processes";
    Truth "reasons" why::reasons: "what the system call alone does not tell of a wait";
    Truth "userfault" why::userfault: "pages that the program brings in itself: it is not stopped for ever, and told right";
    Truth "uring" why::uring: "waits in io_uring_enter: the kind of the request that ends each";
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
    Truth "starts" lives::starts: "hundreds of processes a second that live some milliseconds";
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
    Truth "moved-code" shares::moved_code: "code in anonymous and in shared memory, attached and launched, with and without eBPF";
    Truth "python" python::python: "Python functions, stacks and the GIL, on each interpreter found";
    Truth "thread-names" names::thread_names: "names of threads that Python and Node.js know and the kernel does not";
    Truth "gil" python::gil: "the holder of Python's lock while others waited, and the function it ran";
    Truth "asyncio" asyncio::asyncio: "what asyncio's tasks await and how long, on each interpreter found";
    Truth "virtual-threads" virtual_threads::virtual_threads: "what Java's virtual threads wait for and how long, and their stacks, from JDK 21 on";
    Quiet "collect" collect::collect: "pauses of Java's collectors against the VM's own log: number, time, cause";
    Truth "collect-go" collect::collect_go: "Go's collections against the runtime's own figures: number, time of their stops";
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

/// The experiment of that name.
pub fn by_name(name: &str) -> Option<&'static Check> {
    ALL.iter().find(|check| check.name == name)
}
