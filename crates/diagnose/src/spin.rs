//! On a CPU without getting anywhere: what can be seen of it without counting instructions.
//!
//! Functions that are known to spin or to yield, seen running. A loop of the program's own that
//! waits for a flag looks like any other computing and is not found.

use wallscope_model::{FrameKind, Recording, State, scale};

/// Functions that only wait, on a CPU. A name ending in `*` is a prefix.
const SPINNERS: &[&str] = &[
    "pthread_spin_lock*",
    "__pthread_spin_lock*",
    "sched_yield*",
    "__sched_yield*",
    "__GI_sched_yield*",
    "std::thread::yield_now*",
    "core::hint::spin_loop*",
    "parking_lot_core::spinwait::*",
    "spin::mutex::spin::*",
    "crossbeam_utils::backoff::*",
    "std::this_thread::yield*",
    "ut_delay*",
    "s_lock",
    "perform_spin_delay",
    "runtime.procyield*",
    "runtime.osyield*",
    "SpinPause*",
    // One instruction each: who is found there often comes back to it again and again.
    "std::atomic_flag::test_and_set*",
    "_mm_pause",
    "absl::base_internal::SpinLock::SpinLoop*",
    "gomp_team_barrier_wait*",
    "do_spin",
    "native_queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
    "osq_lock",
    "mutex_spin_on_owner",
    "rwsem_spin_on_owner",
    "rwsem_optimistic_spin",
];

fn spins(name: &str) -> bool {
    SPINNERS.iter().any(|s| match s.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *s,
    })
}

/// On-CPU time in functions that spin or yield, ns, and the function with most of it.
pub(crate) fn spinning(rec: &Recording) -> Option<(u64, String)> {
    if !rec.functions.iter().any(|f| spins(&f.name)) {
        return None;
    }
    let of_stack: Vec<Option<&str>> = rec.stacks.iter().map(|s| spinner(rec, &s.frames)).collect();
    let mut sums: Vec<(&str, u64)> = Vec::new();
    for p in &scale::scale(rec).pieces {
        let s = &rec.samples[p.sample as usize];
        let Some(name) = of_stack[s.stack.0 as usize].filter(|_| s.state == State::OnCpu) else {
            continue;
        };
        match sums.iter_mut().find(|(n, _)| *n == name) {
            Some((_, ns)) => *ns += p.ns,
            None => sums.push((name, p.ns)),
        }
    }
    let (most, _) = sums.iter().max_by_key(|(_, ns)| *ns)?;
    Some((sums.iter().map(|(_, ns)| ns).sum(), (*most).to_string()))
}

/// The spinning function that a stack stands in: its leaf, or the program's innermost one, or a
/// function of the kernel on the way.
pub(crate) fn spinner<'r>(
    rec: &'r Recording,
    frames: &[wallscope_model::FrameId],
) -> Option<&'r str> {
    let mut user = 0;
    for id in frames {
        let frame = &rec.frames[id.0 as usize];
        for line in &frame.lines {
            let name = &*rec.functions[line.function.0 as usize].name;
            if spins(name) {
                return Some(name);
            }
            user += usize::from(frame.kind != FrameKind::Kernel);
            if user >= 2 {
                return None;
            }
        }
    }
    None
}
