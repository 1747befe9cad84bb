//! Connections that the process does not accept: the callers' view of anything that it does instead.

use wallscope_model::State;

use super::verdict::{Spent, Verdict};
use crate::evidence::{Evidence, host_facts};
use crate::words;

/// Name of the verdict on a process with no other bottleneck.
pub(super) const NAME: &str = "accept-queue";
/// When it is given.
pub(super) const WHEN: &str =
    "an accept queue was full in a fifth of the polls or more, and no rule found a bottleneck";

/// Adds a full accept queue to a verdict. A process that is otherwise healthy has a bottleneck
/// then: callers wait, even if its threads do not.
pub(super) fn add(e: &Evidence<'_>, verdict: Verdict) -> Verdict {
    let Some(queue) = host_facts::accept_queue(e.recording) else {
        return verdict;
    };
    let refused = match queue.refused {
        0 => "none".to_string(),
        n => n.to_string(),
    };
    let told = format!(
        "Its accept queue at {} was full ({} waiting, room for {}) in {:.0} % of the polls: callers wait \
         before it accepts them, and {refused} were refused",
        queue.address,
        queue.longest,
        queue.room,
        queue.full * 100.0,
    );
    let mut verdict = verdict;
    if verdict.bottleneck {
        verdict.more.insert(0, told);
        return verdict;
    }
    let by = e.causes.iter().find(|c| c.has_function());
    let doing = by.map_or_else(String::new, |c| {
        format!(
            "; its threads are meanwhile {} in {} ({} of active time)",
            c.what(),
            c.function,
            words::share(c.share)
        )
    });
    let spent = Spent {
        state: by.map_or(State::Blocked, |c| c.state),
        ns: by.map_or(0, |c| c.ns),
        by,
    };
    let mut full = Verdict::new(format!("{told}{doing}")).of(e, spent);
    full.rule = NAME;
    full.more.push(format!("Beside that: {}", verdict.cause));
    full.advised(Some("accept faster, or enlarge the backlog".into()))
}
