//! Root of a verdict on waits: the activity that explains them, and the headline where one root
//! explains most.

use wallscope_model::{BlockReason, State};

use super::event_loops;
use super::verdict::{ACTIVE, Verdict};
use crate::evidence::{Evidence, RootShare, in_function};
use crate::thresholds::{ROOT_OF_WAITS, WAKER_SHARE};
use crate::wait_direction::borrows;
use crate::words;

/// Most roots that the line names.
const MAX_ROOTS: usize = 3;

/// The verdict with its root, and with the root as headline where it explains most of the waits.
pub(super) fn with_root(e: &Evidence<'_>, mut verdict: Verdict) -> Verdict {
    if verdict.waits.is_empty() || !verdict.bottleneck {
        return verdict;
    }
    // The collection that the VM's threads do is the cause, whatever keeps these threads.
    if verdict.reason == Some(BlockReason::Gc.name()) {
        return verdict;
    }
    let roots = e.roots(&verdict.waits);
    let for_locks = e.mostly_for_locks(&verdict.waits);
    let told = roots
        .iter()
        .any(|root| root.share >= WAKER_SHARE && !root.own);
    // A line that the waits are their own roots says less than the rule's own fact.
    if told || verdict.parts.root.is_none() {
        verdict.parts.root = root_words(&roots).or(verdict.parts.root);
    }
    let main = roots.first().filter(|root| root.share > ROOT_OF_WAITS);
    if let Some(stranger) = main.filter(|root| !root.strangers.is_empty()) {
        verdict = with_stranger(e, verdict, stranger);
    }
    let leads = verdict.rule == event_loops::NAME;
    if let Some(root) = main.filter(|root| explains_most(root) && !leads) {
        let symptom = match root.holds {
            true => without_the_holder(&verdict.cause),
            false => words::clause(&verdict.cause),
        };
        let root_words = root.words();
        verdict.cause = format!("{} while {symptom}", words::sentence(&root_words));
        let of_gil = verdict.reason == Some(BlockReason::Gil.name());
        let usual = usual_advice(BlockReason::Gil).filter(|_| of_gil);
        let advice = usual.map_or_else(|| advice(root, for_locks), str::to_owned);
        verdict.parts.advice = verdict.parts.advice.or(Some(advice));
    }
    if let Some(root) = main.filter(|root| root.own || root.is_known()) {
        verdict = with_other_time(e, verdict, root);
    }
    verdict.parts.blame = roots;
    let reason = verdict.reason.and_then(BlockReason::from_name);
    // Conditions and ends of threads are waits of this reason too.
    let reason = reason.filter(|r| *r != BlockReason::Lock || for_locks);
    let usual = reason.and_then(usual_advice);
    verdict.parts.advice = verdict.parts.advice.or(usual.map(str::to_owned));
    verdict
}

/// Adds the other time that ends with the verdict's root: the root's computing, and other waits for it, such as the
/// holder's own wait for a disk.
fn with_other_time(e: &Evidence<'_>, mut verdict: Verdict, root: &RootShare) -> Verdict {
    if verdict.whole != ACTIVE {
        return verdict;
    }
    // Each sleep is a root of its own; a disk is one root for all.
    let others = match root.own && root.reason != Some(BlockReason::Disk) {
        true => Vec::new(),
        false => e.other_waits_for(root, &verdict.waits),
    };
    // With more interpreters the computing stays the same: only the waiting is saved.
    let of_gil = verdict.reason == Some(BlockReason::Gil.name());
    let computed = match root.state {
        _ if root.own => (COMPUTING[1], e.computed_in_calls(&verdict.main_cause)),
        State::OnCpu if !of_gil => (COMPUTING[0], e.computed_by(root)),
        _ => (COMPUTING[0], 0),
    };
    let others_ns = e.time(&others);
    let times = [("in other waits with the same root", others_ns), computed];
    verdict.waits.extend(others);
    verdict.with_other_time(e, "in these waits", &times)
}

/// Parts of an impact that are computing: of the waits' root, and in the calls that wait.
pub(super) const COMPUTING: [&str; 2] = ["computing there", "computing in the same calls"];

/// `4 threads wait …` as a clause on the threads that wait beside a holder that is one of them.
fn without_the_holder(cause: &str) -> String {
    let threads = cause.split_once(" threads wait");
    match threads.filter(|(number, _)| number.chars().all(|c| c.is_ascii_digit())) {
        Some(("2", rest)) => format!("the other of 2 threads waits{rest}"),
        Some((number, rest)) => format!("the others of {number} threads wait{rest}"),
        None => words::clause(cause),
    }
}

/// The thing to change where no thread's activity explains the waits.
fn usual_advice(reason: BlockReason) -> Option<&'static str> {
    match reason {
        BlockReason::Lock | BlockReason::KernelLock => {
            Some("hold the lock for less time, or split it")
        }
        BlockReason::Gil => Some("release the interpreter's lock in long calls, or use processes"),
        BlockReason::Disk => Some("make fewer disk requests (batch them), or use a faster disk"),
        BlockReason::PageFault => Some("keep the pages in memory, or read them ahead"),
        BlockReason::Memory => Some("use less memory, or raise its limit"),
        BlockReason::Child => Some("profile the child"),
        BlockReason::Pipe => Some("look at the process at the other end"),
        _ => None,
    }
}

/// Whether a root is known to its end, and is no wait of the waiter's own.
fn explains_most(root: &RootShare) -> bool {
    !root.own && root.open.is_none()
}

/// The verdict where processes that are not measured end most of the waits: with the measured thread between, if
/// there is one, and with the process to record next.
fn with_stranger(e: &Evidence<'_>, mut verdict: Verdict, root: &RootShare) -> Verdict {
    let wakers = e.wakers_of(&verdict.waits);
    if let Some(own) = wakers.own_wait() {
        let (verb, function) = (own.verb, own.function);
        let thread = match (e.mostly_for_locks(&verdict.waits), lends(e, &verdict)) {
            (true, _) => "the lock's holder",
            (false, true) => "a borrower",
            (false, false) => own.thread.unwrap_or("the thread that wakes the waiters"),
        };
        verdict.cause = format!(
            "{} waits for {}{} while {}",
            words::sentence(thread),
            root.subject(),
            in_function(function),
            words::clause(&verdict.cause)
        );
        verdict.parts.root = Some(format!(
            "{thread} {verb}{}; the other end is {} ({} of the waits)",
            in_function(function),
            root.words(),
            words::share(root.share)
        ));
    }
    verdict.look_at = verdict.look_at.or(root.strangers.first().copied());
    let larger = if lends(e, &verdict) {
        ", or make the pool larger"
    } else {
        ""
    };
    let look = format!("look at {}{larger}", root.subject());
    verdict.parts.advice = verdict.parts.advice.or(Some(look));
    verdict
}

/// Whether a verdict is about waits for an entry of a pool.
fn lends(e: &Evidence<'_>, verdict: &Verdict) -> bool {
    let mut waits = verdict.main_cause.iter();
    waits.any(|i| borrows(e.recording, e.sample(*i)))
}

/// The main roots in one line; `None`: nothing is known of any.
fn root_words(roots: &[RootShare]) -> Option<String> {
    // A wait that its own time limit ended has no root.
    let tells = |root: &&RootShare| root.is_known() && !(root.own && root.open.is_some());
    let told = roots.iter().filter(|root| root.share >= WAKER_SHARE);
    let told = told.filter(tells);
    let mut out: Vec<String> = Vec::new();
    let mut last = String::new();
    for root in told.take(MAX_ROOTS) {
        let mut said = root.words();
        // A subject is named once.
        if let Some(rest) = said
            .strip_prefix(&format!("{last} "))
            .filter(|_| !last.is_empty())
        {
            said = rest.to_owned();
        }
        last = root.subject();
        let of = match out.is_empty() {
            true => " of the waits",
            false => "",
        };
        out.push(format!("{said} ({}{of})", words::share(root.share)));
    }
    let open = roots.iter().filter(|root| !tells(root));
    let open: f64 = open.map(|root| root.share).sum();
    if open >= WAKER_SHARE && !out.is_empty() {
        out.push(format!("not followed ({})", words::share(open)));
    }
    (!out.is_empty()).then(|| out.join(", "))
}

/// The thing to change, where a thread's activity explains the waits for it.
fn advice(root: &RootShare, holds: bool) -> String {
    let function = match &*root.function {
        function if function.is_empty() || words::is_address(function) => root.subject(),
        function => words::function(function).to_string(),
    };
    match (root.state, root.reason, holds) {
        (State::OnCpu, _, true) => {
            format!("make {function} faster, or compute outside the lock")
        }
        (State::OnCpu, ..) => format!("make {function} faster"),
        (State::Runnable, ..) => "give it more CPUs, or take other load away".into(),
        (_, Some(BlockReason::Timer), true) => {
            format!("take the sleep in {function} out of the lock")
        }
        (_, Some(BlockReason::Timer), false) if function == root.subject() => {
            format!("remove or shorten the sleep of {function}")
        }
        (_, Some(BlockReason::Timer), false) => {
            format!("remove or shorten the sleep in {function}")
        }
        (_, Some(BlockReason::Disk), true) => {
            format!("write less often in {function}, or outside the lock")
        }
        (_, Some(BlockReason::Disk), false) => {
            format!("make fewer disk requests in {function} (batch them)")
        }
        (_, _, true) => format!("do not wait in {function} with the lock held"),
        _ => format!("look at {function}"),
    }
}
