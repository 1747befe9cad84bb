//! Renames futexes that are no locks, and drops owners of locks that are not credible.
//!
//! The kernel sees a wait for a lock, for a condition variable or for a thread's end alike: as a
//! wait for a word of memory. No thread holds a condition or a thread's end, so a table of locks
//! must not call them locks. glibc's condition variables alternate between two adjacent words,
//! which are one condition. A word keeps its name if threads waited for it in several ways, or if
//! no stack identifies it.
//!
//! The owner in a lock's memory is accepted only if the waiting library function belongs to a lock
//! that stores its owner. For a mutex it is also accepted if no library function of the stack has a
//! name.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::attribution::{CONDITION, END_OF_THREAD};
use wallscope_model::{
    Above, BlockReason, Frame, FrameKind, Hop, LabelValue, Recording, Role, StackId, told_by,
};

use crate::frames::{Side, frames, functions_on, in_c_library};
use crate::knowledge::{CONDITION_FUNCTIONS, JOIN_FUNCTIONS, MUTEX_FUNCTIONS, knows};
use crate::labels::{RESOURCE_KEY, text_label};

/// Prefix of the names of words that are not identified further.
const WORD: &str = "futex ";

/// Names futexes that are no locks by the stacks of a symbolised recording, and drops owners that
/// cannot be believed.
pub fn name(recording: &mut Recording) {
    drop_owners(recording);
    let renamed = renamed_words(recording);
    for label in recording.label_sets.iter_mut().flatten() {
        if let LabelValue::Text(text) = &mut label.value
            && &*label.key == RESOURCE_KEY
            && let Some(name) = renamed.get(text)
        {
            *text = name.clone();
        }
    }
}

/// New names by old ones, of the words that are conditions or thread ends.
fn renamed_words(recording: &Recording) -> HashMap<Arc<str>, Arc<str>> {
    let mut kinds: HashMap<Arc<str>, Option<&'static str>> = HashMap::default();
    for sample in &recording.samples {
        if sample.reason != Some(BlockReason::Lock) {
            continue;
        }
        let word = text_label(recording, sample.labels, RESOURCE_KEY);
        let Some(word) = word.filter(|w| w.starts_with(WORD)) else {
            continue;
        };
        let kind = kind(recording, sample.stack);
        let known = kinds.entry(word).or_insert(kind);
        if *known != kind {
            *known = None;
        }
    }
    let new_name = |(word, kind): (Arc<str>, Option<&'static str>)| {
        let address = &word[WORD.len()..];
        let name = match kind? {
            CONDITION => format!("{CONDITION}{}", first_word(address)),
            kind => format!("{kind}{address}"),
        };
        Some((word, name.into()))
    };
    kinds.into_iter().filter_map(new_name).collect()
}

/// Prefix of the name of the word that a thread with this stack waits for; `None`: it stays.
fn kind(recording: &Recording, stack: StackId) -> Option<&'static str> {
    for name in functions_on(recording, stack, Side::User) {
        let name = name.split('@').next().unwrap_or(name);
        let name = name.strip_prefix("__GI_").unwrap_or(name);
        if knows(MUTEX_FUNCTIONS, name) {
            // The mutex is taken again after the condition came.
            return None;
        }
        if knows(CONDITION_FUNCTIONS, name) {
            return Some(CONDITION);
        }
        if knows(JOIN_FUNCTIONS, name) {
            return Some(END_OF_THREAD);
        }
    }
    None
}

/// Whether a thread with this stack waits for a C library lock that stores its owner as `evidence`
/// (a value of `told_by`) says.
fn keeps_owner(recording: &Recording, stack: StackId, evidence: &str) -> bool {
    const MUTEX: &str = "pthread_mutex_";
    let prefix = match evidence.strip_suffix(told_by::THEN).unwrap_or(evidence) {
        told_by::MUTEX => MUTEX,
        told_by::RWLOCK => "pthread_rwlock_",
        // A futex that the kernel assigns, and a monitor of a virtual machine.
        _ => return true,
    };
    let named = functions_on(recording, stack, Side::User).any(|name| {
        let name = name.strip_prefix("__GI_").unwrap_or(name);
        name.trim_start_matches('_').starts_with(prefix)
    });
    named || (prefix == MUTEX && waits_in_unnamed_c_library(recording, stack))
}

/// Whether a wait is inside the C library, below functions of it that have no names.
///
/// Without debug symbols, the exported functions for timed and robust mutexes jump to the functions
/// that wait, so none of the stack has a name. Other waits of the library (streams, the allocator)
/// are called by functions that it exports. Locks of other languages are in other files.
fn waits_in_unnamed_c_library(recording: &Recording, stack: StackId) -> bool {
    let mut inside = frames(recording, stack)
        .filter(|frame| frame.kind != FrameKind::Kernel)
        .map_while(|frame| in_c_library(recording, frame).map(|file| (frame, file)))
        .peekable();
    let unnamed = |(frame, file): (&Frame, &str)| {
        let names = frame.lines.iter();
        let names = names.map(|line| &*recording.functions[line.function.0 as usize].name);
        let mut offsets = names.map(|name| name.strip_prefix(file));
        offsets.all(|rest| rest.is_some_and(|r| r.starts_with("+0x")))
    };
    inside.peek().is_some() && inside.all(unnamed)
}

/// Drops owners that cannot be believed, and the hops below them.
fn drop_owners(recording: &mut Recording) {
    let doubtful = |hop: &Hop, waits: Option<StackId>| {
        let told = text_label(recording, hop.labels, told_by::KEY);
        told.filter(|_| hop.role == Role::Held)
            .is_some_and(|told| !waits.is_some_and(|s| keeps_owner(recording, s, &told)))
    };
    let mut dropped = vec![false; recording.hops.len()];
    for (i, hop) in recording.hops.iter().enumerate() {
        dropped[i] = match hop.above {
            Above::Sample(s) => doubtful(hop, Some(recording.samples[s as usize].stack)),
            Above::Hop(h) => dropped[h as usize] || doubtful(hop, recording.hops[h as usize].stack),
        };
    }
    if dropped.contains(&true) {
        remove_hops(recording, &dropped);
    }
}

/// Removes hops by index, and moves the references between the others.
fn remove_hops(recording: &mut Recording, dropped: &[bool]) {
    let mut position = Vec::with_capacity(dropped.len());
    let mut kept = 0;
    for dropped in dropped {
        position.push(kept);
        kept += u32::from(!dropped);
    }
    let mut gone = dropped.iter();
    recording.hops.retain(|_| gone.next() != Some(&true));
    for hop in &mut recording.hops {
        if let Above::Hop(h) = &mut hop.above {
            *h = position[*h as usize];
        }
    }
}

/// Address text of the first of two adjacent words, of which `address` may be the second. Words are
/// aligned, so addresses and distances of the second end in 4 or c.
fn first_word(address: &str) -> String {
    let mut out = String::with_capacity(address.len());
    for (i, part) in address.split("0x").enumerate() {
        if i == 0 {
            out.push_str(part);
            continue;
        }
        let digits = part.bytes().take_while(u8::is_ascii_hexdigit).count();
        let (number, rest) = part.split_at(digits);
        match u64::from_str_radix(number, 16) {
            Ok(n) => out.push_str(&format!("{:#x}{rest}", n & !4)),
            Err(_) => out.push_str(&format!("0x{part}")),
        }
    }
    out
}

#[cfg(test)]
#[path = "lock_names_tests.rs"]
mod tests;
