//! Numbers and reasons as prose has them.

use wallscope_model::BlockReason;

/// A number of CPUs.
pub fn cpus(n: f64) -> String {
    match n {
        n if n < 0.1 => format!("{n:.2} CPUs"),
        n => format!("{n:.1} CPUs"),
    }
}

/// A share of 1 as a percentage, rounded for reading.
pub(crate) fn share(v: f64) -> String {
    let p = v * 100.0;
    // Near 0 and 100 % one more digit tells shares apart.
    if (p > 0.0 && p < 0.95) || (p > 99.0 && p < 99.95) {
        format!("{p:.1} %")
    } else {
        format!("{p:.0} %")
    }
}

/// A length of time, given in ns.
pub(crate) fn time(ns: u64) -> String {
    let s = ns as f64 / 1e9;
    if s < 0.0095 {
        format!("{:.2} ms", s * 1e3)
    } else if s < 0.95 {
        format!("{:.0} ms", s * 1e3)
    } else if s < 99.5 {
        format!("{s:.1} s")
    } else {
        format!("{s:.0} s")
    }
}

/// A sentence as a clause: its first letter in lower case.
pub(crate) fn clause(sentence: &str) -> String {
    let mut letters = sentence.chars();
    let first = letters.next().map(|c| c.to_lowercase().to_string());
    format!("{}{}", first.unwrap_or_default(), letters.as_str())
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Target of a blocked thread's wait.
pub(crate) fn reason(r: BlockReason) -> &'static str {
    match r {
        BlockReason::Lock => "locks",
        BlockReason::Gil => "the interpreter's lock",
        BlockReason::Disk => "the disk",
        BlockReason::Network => "the network",
        BlockReason::Pipe => "pipes",
        BlockReason::Timer => "timers (it sleeps)",
        BlockReason::Poll => "events (it polls)",
        BlockReason::Child => "child processes",
        BlockReason::PageFault => "page faults",
        BlockReason::Memory => "memory reclaim",
        BlockReason::KernelLock => "locks inside the kernel",
        BlockReason::Stopped => "being stopped",
        BlockReason::Other => "something else",
    }
}
