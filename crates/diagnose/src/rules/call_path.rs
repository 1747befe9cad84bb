//! Call path to the place where a program spends its time: the callers of a function, and the system call in which
//! the kernel computes.
//!
//! Servers use a few functions of their own for all waits. Only the callers distinguish a lock of PostgreSQL from a
//! client that sends nothing.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::attribution::{self, CodeOrigin};
use wallscope_model::{FrameKind, StackId, State};

use crate::evidence::Evidence;
use crate::frames::{Side, frames, functions_on};
use crate::knowledge::{ASKS_FOR_EVENTS, PROGRAM_ENTRIES, knows, system_call};
use crate::thresholds::{BUSY_POLL_SWITCHES, CALL_PATH_PART, CPU_FIRST, HOT_OF_COMPUTING};
use crate::words;

/// Maximum number of callers in a verdict.
const MAX_CALLERS: usize = 4;
/// Minimum number of callers in a verdict: a single one is mostly the thread's own main function.
const MIN_CALLERS: usize = 2;

/// Callers of the program's function in `state`, innermost first, if most of its time has one call path.
pub(super) fn callers(e: &Evidence<'_>, function: &str, state: State) -> Option<String> {
    let causes = e.causes.iter();
    let cause = causes
        .filter(|c| &*c.function == function && c.state == state)
        .max_by_key(|c| c.ns)?;
    let mut paths: HashMap<Vec<Arc<str>>, u64> = HashMap::new();
    for i in &cause.samples {
        let path = path(e, e.sample(*i).stack, function);
        *paths.entry(path).or_default() += e.sample_ns(*i);
    }
    let all: u64 = paths.values().sum();
    let (path, ns) = paths
        .into_iter()
        .max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)))?;
    let usual = ns as f64 >= CALL_PATH_PART * all as f64;
    (path.len() >= MIN_CALLERS && usual).then(|| {
        format!(
            "{function} is called by {}",
            path.join(", which is called by ")
        )
    })
}

/// The program's own functions that lead to `function` on a stack, innermost first, without those
/// that every program begins with.
fn path(e: &Evidence<'_>, stack: StackId, function: &str) -> Vec<Arc<str>> {
    let mut own = own_functions(e, stack);
    let found = own.find(|name| &***name == function);
    let mut path: Vec<Arc<str>> = Vec::new();
    for name in own.filter(|_| found.is_some()) {
        // A function that calls itself is listed once.
        let known = &**name == function || path.contains(name);
        if path.len() < MAX_CALLERS && !known && !knows(PROGRAM_ENTRIES, name) {
            path.push(name.clone());
        }
    }
    path
}

/// Minimum share of the computing, with callees, at which one function is named for all of it.
const NEARLY_ALL: f64 = 0.8;

/// The program's innermost function that nearly all of `computed` ns passes through, with its share; `None`: only
/// functions that every program begins with.
pub(super) fn common_function(e: &Evidence<'_>, computed: u64) -> Option<(Arc<str>, f64)> {
    let mut paths: HashMap<StackId, Vec<Arc<str>>> = HashMap::new();
    // Time by function, and the depth at which it is spent, from the outside.
    let mut sums: HashMap<Arc<str>, (u64, f64)> = HashMap::new();
    let running = e.causes.iter().filter(|c| c.state == State::OnCpu);
    for i in running.flat_map(|c| &c.samples) {
        let stack = e.sample(*i).stack;
        let path = paths
            .entry(stack)
            .or_insert_with(|| program_functions(e, stack));
        let ns = e.sample_ns(*i);
        for (depth, name) in path.iter().enumerate() {
            let sum = sums.entry(name.clone()).or_default();
            *sum = (sum.0 + ns, sum.1 + depth as f64 * ns as f64);
        }
    }
    let share = |ns: u64| ns as f64 / computed.max(1) as f64;
    let common = sums
        .into_iter()
        .filter(|(name, (ns, _))| share(*ns) >= NEARLY_ALL && !knows(PROGRAM_ENTRIES, name));
    let depth = |(ns, weighted): &(u64, f64)| weighted / *ns as f64;
    let inmost = common.max_by(|a, b| {
        depth(&a.1)
            .total_cmp(&depth(&b.1))
            .then_with(|| b.0.cmp(&a.0))
    });
    inmost.map(|(name, (ns, _))| (name, share(ns)))
}

/// The program's own functions on a stack, outermost first, each once.
fn program_functions(e: &Evidence<'_>, stack: StackId) -> Vec<Arc<str>> {
    let mut out: Vec<Arc<str>> = Vec::new();
    for name in own_functions(e, stack) {
        if !out.contains(name) && !words::is_address(name) {
            out.push(name.clone());
        }
    }
    out.reverse();
    out
}

/// The program's own functions on a stack, innermost first.
fn own_functions<'r>(e: &Evidence<'r>, stack: StackId) -> impl Iterator<Item = &'r Arc<str>> {
    let rec = e.recording;
    frames(rec, stack)
        .filter(|frame| frame.kind != FrameKind::Kernel)
        .flat_map(|frame| (0..frame.lines.len()).map(move |line| (frame, line)))
        .filter(|(frame, line)| attribution::origin(rec, frame, Some(*line)) == CodeOrigin::Program)
        .map(|(frame, line)| &rec.functions[frame.lines[line].function.0 as usize].name)
}

/// The system call in which most is computed, with its share of `computed` ns, where that is much.
pub(super) fn main_system_call(e: &Evidence<'_>, computed: u64) -> Option<String> {
    let mut sums: HashMap<&str, u64> = HashMap::new();
    let running = e.causes.iter().filter(|c| c.state == State::OnCpu);
    for i in running.flat_map(|c| &c.samples) {
        let mut kernel = functions_on(e.recording, e.sample(*i).stack, Side::Kernel);
        if let Some(call) = kernel.find_map(system_call) {
            *sums.entry(call).or_default() += e.sample_ns(*i);
        }
    }
    let (call, ns) = sums
        .into_iter()
        .max_by_key(|(call, ns)| (*ns, std::cmp::Reverse(*call)))?;
    let share = ns as f64 / computed.max(1) as f64;
    let polls = match polls_all_the_time(e, call) {
        true => {
            ", which hardly ever waits: it polls for events again and again (a time limit of zero?)"
        }
        false => "",
    };
    (share >= HOT_OF_COMPUTING).then(|| {
        format!(
            "{} of the computing is in the system call {call}{polls}",
            words::share(share)
        )
    })
}

/// Whether a process asks for events by `call` and hardly ever waits for one.
fn polls_all_the_time(e: &Evidence<'_>, call: &str) -> bool {
    let b = &e.bottleneck;
    let switches = b.ledger.voluntary_switches as f64;
    knows(ASKS_FOR_EVENTS, call)
        && b.on_cpu() >= CPU_FIRST
        && switches < BUSY_POLL_SWITCHES * b.window_ns as f64 / 1e9
}
