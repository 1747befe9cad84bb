//! How the program came to where its time goes: who called the verdict's function, and which system call
//! the kernel computes in.
//!
//! Servers wait by way of few functions of their own, whatever for: who called them tells a lock of
//! PostgreSQL's from a client that has nothing to say.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::place::{self, Whose};
use wallscope_model::{FrameKind, State};

use super::causes::Cause;
use super::evidence::Evidence;
use super::places::functions;
use super::verdict::Verdict;
use crate::words;

/// So many callers are told.
const MOST: usize = 4;
/// Of the cause's time, so much must have come that way.
const USUAL: f64 = 0.5;

/// Who called the function of the verdict, innermost first, where most of its time came one way.
pub(super) fn told(e: &Evidence<'_>, verdict: &Verdict) -> Option<String> {
    let function = verdict.function.as_deref()?;
    let of_it = |c: &&Cause| &*c.function == function && Some(c.state) == verdict.state;
    let cause = e.causes.iter().filter(of_it).max_by_key(|c| c.ns)?;
    let mut ways: HashMap<Vec<Arc<str>>, u64> = HashMap::new();
    for i in &cause.samples {
        let way = way(e, e.recording.samples[*i as usize].stack.0, function);
        *ways.entry(way).or_default() += e.waits.sample_ns[*i as usize];
    }
    let all: u64 = ways.values().sum();
    let (way, ns) = ways
        .into_iter()
        .max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)))?;
    let names: Vec<&str> = way.iter().map(|name| &**name).collect();
    // One alone is mostly the thread's own main function.
    (names.len() >= 2 && ns as f64 >= USUAL * all as f64).then(|| {
        format!(
            "{function} is called by {}",
            names.join(", which is called by ")
        )
    })
}

/// The program's own functions that lead to `function` on a stack, innermost first, without those that every
/// program begins with.
fn way(e: &Evidence<'_>, stack: u32, function: &str) -> Vec<Arc<str>> {
    const BEGIN: [&str; 5] = ["main", "_start", "start_thread", "<module>", "run"];
    let rec = e.recording;
    let mut own = (rec.stacks[stack as usize].frames.iter())
        .map(|id| &rec.frames[id.0 as usize])
        .filter(|frame| frame.kind != FrameKind::Kernel)
        .flat_map(|frame| (0..frame.lines.len()).map(move |line| (frame, line)))
        .filter(|(frame, line)| place::whose(rec, frame, Some(*line)) == Whose::Program)
        .map(|(frame, line)| &rec.functions[frame.lines[line].function.0 as usize].name);
    let found = own.find(|name| &***name == function);
    let mut way: Vec<Arc<str>> = Vec::new();
    for name in own.filter(|_| found.is_some()) {
        // A function that calls itself says so once.
        let known = &**name == function || way.contains(name);
        if way.len() < MOST && !known && !BEGIN.contains(&&**name) {
            way.push(name.clone());
        }
    }
    way
}

/// Of what is computed, so much in one system call is worth its name.
const MUCH: f64 = 0.3;

/// The system call in which most is computed, where that is much, and what its share is of `computed`, ns.
pub(super) fn system_call(e: &Evidence<'_>, computed: u64) -> Option<String> {
    let mut sums: HashMap<&str, u64> = HashMap::new();
    let running = e.causes.iter().filter(|c| c.state == State::OnCpu);
    for i in running.flat_map(|c| &c.samples) {
        let stack = e.recording.samples[*i as usize].stack;
        let call = functions(e.recording, stack)
            .filter(|(kind, _)| *kind == FrameKind::Kernel)
            .find_map(|(_, name)| called(name));
        if let Some(call) = call {
            *sums.entry(call).or_default() += e.waits.sample_ns[*i as usize];
        }
    }
    let (call, ns) = sums
        .into_iter()
        .max_by_key(|(call, ns)| (*ns, std::cmp::Reverse(*call)))?;
    let share = ns as f64 / computed.max(1) as f64;
    let switches = e.bottleneck.ledger.voluntary_switches as f64;
    // Who asks for events and computes half of the time hardly ever waited for one.
    let asks = [
        "epoll_",
        "poll",
        "ppoll",
        "select",
        "pselect",
        "io_getevents",
    ];
    let asks = asks.iter().any(|a| call.starts_with(a))
        && e.bottleneck.on_cpu() >= 0.5
        && switches < 20.0 * e.bottleneck.window_ns as f64 / 1e9;
    (share >= MUCH).then(|| {
        format!(
            "{} of it is in the system call {call}{}",
            words::share(share),
            if asks {
                ", which hardly ever waits: it asks for events again and again (a time limit of zero?) \
                 where it could wait for them"
            } else {
                ""
            }
        )
    })
}

/// The system call that a function of the kernel is the entry of.
fn called(name: &str) -> Option<&str> {
    const ENTRIES: [&str; 5] = [
        "__x64_sys_",
        "__arm64_sys_",
        "__ia32_sys_",
        "__se_sys_",
        "__do_sys_",
    ];
    ENTRIES.iter().find_map(|entry| name.strip_prefix(entry))
}

#[cfg(test)]
mod tests {
    use super::called;

    #[test]
    fn entries_of_system_calls_are_known() {
        assert_eq!(called("__x64_sys_epoll_wait"), Some("epoll_wait"));
        assert_eq!(called("do_epoll_wait"), None);
    }
}
