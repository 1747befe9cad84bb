//! Infers the callers of waits of which only the innermost frame was seen.
//!
//! A wait of some microseconds is over before the memory of its thread is copied. Its call, the program
//! counter and the stack pointer are known. If a stack with callers was read of the same thread, at the same
//! place with the same stack pointer, those are the callers: another call path leaves another depth, but for
//! chance.

use rustc_hash::FxHashMap;
use wallscope_model::State;

use super::weight::{Key, Sum, Weight};

/// Moves the time of waits with only an innermost frame to whole stacks of the same thread, place and reason,
/// from waits as long or, failing these, about as long. Without such a stack a wait stays as it is. Returns
/// the keys of the thread afterwards. `own`: its keys; `begins`: stack pointers of whole stacks, by thread
/// and stack; `innermost`: a stack's innermost frame.
pub(super) fn infer_callers(
    own: Vec<Key>,
    sums: &mut FxHashMap<Key, Sum>,
    begins: &FxHashMap<(u32, u32), u64>,
    innermost: impl Fn(u32) -> Option<u64>,
) -> Vec<Key> {
    let (lost, mut own): (Vec<Key>, Vec<Key>) = own
        .into_iter()
        .partition(|key| matches!(key.5, Weight::Innermost { .. }));
    let mut found: Vec<(Key, Sum)> = Vec::new();
    for key in lost {
        let Weight::Innermost { sp, of } = key.5 else {
            continue;
        };
        let Some(sum) = sums.remove(&key) else {
            continue;
        };
        let frame = innermost(key.1);
        let whole = own.iter().filter_map(|k| {
            let (class, reason) = match k.5 {
                Weight::Own if k.2 == State::Blocked => (0, k.3),
                Weight::Wait { class, .. } => (class, k.3),
                Weight::Wakeup { class } => (class, None),
                _ => return None,
            };
            let same = begins.get(&(key.0, k.1)) == Some(&sp)
                && innermost(k.1) == frame
                && (k.2, reason) == (key.2, key.3);
            let ns = sums.get(k).map_or(0, |sum| sum.ns);
            (same && ns > 0).then_some((class.abs_diff(of.class()), k.1, ns))
        });
        let whole: Vec<(u8, u32, u64)> = whole.collect();
        let nearest = whole.iter().map(|(far, ..)| *far).min();
        let whole = whole.iter().filter(|(far, ..)| Some(*far) == nearest);
        let all: u64 = whole.clone().map(|(.., ns)| ns).sum();
        let mut given = false;
        for (_, stack, ns) in whole {
            let to = (key.0, *stack, key.2, key.3, key.4, of.into(), key.6);
            let mut part = sum.times(*ns, all);
            if given {
                // Its polls count once.
                part.count = 0;
                part.slices.iter_mut().for_each(|v| v.count = 0);
            }
            found.push((to, part));
            given = true;
        }
        if !given {
            let to = (key.0, key.1, key.2, key.3, key.4, of.into(), key.6);
            found.push((to, sum));
        }
    }
    for (key, sum) in found {
        if !own.contains(&key) {
            own.push(key);
        }
        sums.entry(key).or_default().add(sum);
    }
    own
}
