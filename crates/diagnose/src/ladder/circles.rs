//! Threads that wait for each other's locks: who has which is known where the locks say.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::{Actor, BlockReason, ContextId, Recording, Role, told_by};

use super::waits::{hops, resource, text_label};

/// What somebody waits for, and who has it.
struct Wait {
    lock: Option<Arc<str>>,
    by: ContextId,
}

/// Most threads of a circle that are told one by one.
const MOST: usize = 6;

/// What is known of who has the locks that `stuck` threads never got: a circle, or who else; `None`: nothing.
pub(super) fn of(recording: &Recording, stuck: &[ContextId]) -> Option<Held> {
    let (below_sample, _) = hops(recording);
    let mut waits: HashMap<ContextId, Wait> = HashMap::new();
    for (sample, hops) in &below_sample {
        let s = &recording.samples[*sample as usize];
        if s.reason != Some(BlockReason::Lock) {
            continue;
        }
        for hop in hops {
            let h = &recording.hops[*hop as usize];
            // Threads that wait for each other one after the other, each for a while, are in no circle.
            let told = text_label(recording, h.labels, told_by::KEY)
                .filter(|told| !told.ends_with(told_by::THEN));
            if let (Role::Held, Some(_), Actor::Context(by)) =
                (h.role, told, &recording.actors[h.actor.0 as usize])
            {
                let lock = resource(recording, s);
                waits.insert(s.context, Wait { lock, by: *by });
            }
        }
    }
    let mut from = stuck.to_vec();
    from.sort();
    // Who wakes by itself now and then to look again is in one, too.
    let mut others: Vec<ContextId> = waits
        .keys()
        .filter(|c| !stuck.contains(c))
        .copied()
        .collect();
    others.sort();
    let circle = from.iter().chain(&others).find_map(|first| {
        let mut path = Vec::new();
        let mut at = *first;
        while let Some(wait) = waits.get(&at) {
            if let Some(begin) = path.iter().position(|c| *c == at) {
                return Some(path[begin..].to_vec());
            }
            path.push(at);
            at = wait.by;
        }
        None
    });
    let name = |c: &ContextId| name_of(recording, *c);
    let lock = |c: &ContextId| match &waits[c].lock {
        Some(lock) => format!("{lock}, which"),
        None => "a lock that".into(),
    };
    if let Some(circle) = circle {
        let shown: Vec<String> = (circle.iter().take(MOST))
            .map(|c| match waits[c].by == *c {
                true => format!("{} waits for {} it has itself", name(c), lock(c)),
                false => format!(
                    "{} waits for {} {} has",
                    name(c),
                    lock(c),
                    name(&waits[c].by)
                ),
            })
            .collect();
        let more = circle.len().saturating_sub(MOST);
        let more = (more > 0).then(|| format!("{more} more likewise"));
        let all: Vec<String> = shown.into_iter().chain(more).collect();
        return Some(Held {
            circle,
            told: format!(
                "{} (so says the locks' own memory at the end)",
                all.join("; ")
            ),
        });
    }
    let first = from.iter().find(|c| waits.contains_key(c))?;
    Some(Held {
        circle: Vec::new(),
        told: format!(
            "{} waits for {} {} has (so says the lock's own memory at the end)",
            name(first),
            lock(first),
            name(&waits[first].by)
        ),
    })
}

/// What is known of locks that nobody let go.
pub(super) struct Held {
    /// Threads that wait for each other in a circle; none: no circle is known.
    pub circle: Vec<ContextId>,
    /// Who waits for what, and who has it.
    pub told: String,
}

/// A thread's name, with its id where others have the same.
fn name_of(recording: &Recording, who: ContextId) -> String {
    let c = &recording.contexts[who.0 as usize];
    let same = recording
        .contexts
        .iter()
        .filter(|o| o.name == c.name)
        .count();
    match same {
        1 => c.name.to_string(),
        _ => format!("{} ({})", c.name, c.tid),
    }
}
