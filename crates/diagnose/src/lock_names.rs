//! What kind of thing a lock's word belongs to, where the library's function says so.
//!
//! To the kernel a wait for a condition variable, or for a thread's end, is one for a word of memory, as that for
//! a lock is. Nobody holds either, so that a table of locks must not call them so. And glibc's condition variables
//! alternate between two words side by side, which are one condition.
//!
//! Words that were waited for in several ways, or that no stack tells of, keep their names.
//!
//! And who has a lock as its memory says is believed only where the library's function that waits for it is of a
//! lock that keeps that, or, of a mutex, where no function of the library in the stack has a name.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::place::{CONDITION, END_OF_THREAD};
use wallscope_model::{
    Above, BlockReason, Frame, FrameKind, Hop, LabelValue, Recording, Role, Stack, StackId, told_by,
};

use crate::ladder::text_label;

/// How words are named that nothing more is known of.
const WORD: &str = "futex ";

const CONDITIONS: [&str; 6] = [
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_clockwait",
    "__pthread_cond_wait",
    "__pthread_cond_timedwait",
    "__pthread_cond_clockwait",
];
const JOINS: [&str; 5] = [
    "pthread_join",
    "pthread_timedjoin_np",
    "pthread_clockjoin_np",
    "__pthread_join",
    "__pthread_clockjoin_ex",
];

/// How the name of the word begins that a thread with this stack waits for; `None`: as it did.
fn kind(rec: &Recording, stack: &Stack) -> Option<&'static str> {
    let frames = stack.frames.iter().map(|f| &rec.frames[f.0 as usize]);
    let own = frames.filter(|f| f.kind != FrameKind::Kernel);
    for line in own.flat_map(|f| &f.lines) {
        let name = &*rec.functions[line.function.0 as usize].name;
        let name = name.split('@').next().unwrap_or(name);
        let name = name.strip_prefix("__GI_").unwrap_or(name);
        if name.contains("mutex") || name.contains("lll_lock") {
            // Taken again when the condition has come.
            return None;
        }
        if CONDITIONS.contains(&name) {
            return Some(CONDITION);
        }
        if JOINS.contains(&name) {
            return Some(END_OF_THREAD);
        }
    }
    None
}

/// Whether a thread with this stack waits for a lock of the C library's that keeps its owner as `told` says.
fn keeps_owner(rec: &Recording, stack: &Stack, told: &str) -> bool {
    const MUTEX: &str = "pthread_mutex_";
    let begin = match told.strip_suffix(told_by::THEN).unwrap_or(told) {
        told_by::MUTEX => MUTEX,
        told_by::RWLOCK => "pthread_rwlock_",
        // The kernel's word, and a VM's.
        _ => return true,
    };
    let frames = stack.frames.iter().map(|f| &rec.frames[f.0 as usize]);
    let own = frames.filter(|f| f.kind != FrameKind::Kernel);
    let mut names = (own.clone().flat_map(|f| &f.lines))
        .map(|line| &*rec.functions[line.function.0 as usize].name);
    let named = names.any(|name| {
        let name = name.strip_prefix("__GI_").unwrap_or(name);
        name.trim_start_matches('_').starts_with(begin)
    });
    let unnamed = || {
        let inside = own.map_while(|f| in_c_library(rec, f).map(|file| (f, file)));
        let mut inside = inside.peekable();
        inside.peek().is_some()
            && inside.all(|(f, file)| {
                let mut names = (f.lines.iter())
                    .map(|line| &*rec.functions[line.function.0 as usize].name)
                    .map(|name| name.strip_prefix(file));
                names.all(|rest| rest.is_some_and(|r| r.starts_with("+0x")))
            })
    };
    named || (begin == MUTEX && unnamed())
}

/// The C library's file, if a frame is of it. Without its debug symbols, functions that it keeps to itself are
/// called by place (`libc.so.6+0x8c840`), and those that wait for timed and robust locks are jumped to by the one
/// that has a name: none stands in the stack. What else waits in it by such a word (streams, the allocator) is called
/// by functions that it exports, and locks of other languages lie in other files.
pub(crate) fn in_c_library<'r>(rec: &'r Recording, frame: &Frame) -> Option<&'r str> {
    let module = &rec.modules[frame.module?.0 as usize];
    let file = module.path.rsplit('/').next().unwrap_or_default();
    ["libc.so", "libc-2.", "libpthread.so", "libpthread-2."]
        .iter()
        .any(|begin| file.starts_with(begin))
        .then_some(file)
}

/// Drops who has a lock, and what hangs below, where that is not to be believed.
fn drop_owners(rec: &mut Recording) {
    let doubtful = |hop: &Hop, waits: Option<StackId>| {
        let told = text_label(rec, hop.labels, told_by::KEY);
        told.filter(|_| hop.role == Role::Held).is_some_and(|told| {
            !waits.is_some_and(|s| keeps_owner(rec, &rec.stacks[s.0 as usize], &told))
        })
    };
    let mut dropped = vec![false; rec.hops.len()];
    for (i, hop) in rec.hops.iter().enumerate() {
        dropped[i] = match hop.above {
            Above::Sample(s) => doubtful(hop, Some(rec.samples[s as usize].stack)),
            Above::Hop(h) => dropped[h as usize] || doubtful(hop, rec.hops[h as usize].stack),
        };
    }
    if !dropped.contains(&true) {
        return;
    }
    let mut place = Vec::with_capacity(dropped.len());
    let mut kept = 0;
    for dropped in &dropped {
        place.push(kept);
        kept += u32::from(!dropped);
    }
    let mut gone = dropped.into_iter();
    rec.hops.retain(|_| gone.next() != Some(true));
    for hop in &mut rec.hops {
        if let Above::Hop(h) = &mut hop.above {
            *h = place[*h as usize];
        }
    }
}

/// Names what is no lock as what it is, by the stacks of a recording whose frames have names.
pub fn name(rec: &mut Recording) {
    drop_owners(rec);
    let mut kinds: HashMap<Arc<str>, Option<&'static str>> = HashMap::default();
    for s in &rec.samples {
        if s.reason != Some(BlockReason::Lock) {
            continue;
        }
        let Some(word) = text_label(rec, s.labels, "resource").filter(|w| w.starts_with(WORD))
        else {
            continue;
        };
        let is = kind(rec, &rec.stacks[s.stack.0 as usize]);
        let known = kinds.entry(word).or_insert(is);
        if *known != is {
            *known = None;
        }
    }
    let new: HashMap<Arc<str>, Arc<str>> = kinds
        .into_iter()
        .filter_map(|(word, kind)| {
            let place = &word[WORD.len()..];
            let name = match kind? {
                CONDITION => format!("{CONDITION}{}", first_half(place)),
                kind => format!("{kind}{place}"),
            };
            Some((word, name.into()))
        })
        .collect();
    for label in rec.label_sets.iter_mut().flatten() {
        if let LabelValue::Text(text) = &mut label.value
            && &*label.key == "resource"
            && let Some(name) = new.get(text)
        {
            *text = name.clone();
        }
    }
}

/// The name of the first of two words side by side, of which `place` may be the second: words are aligned, and
/// so is what holds both, so that addresses and distances of the second end in 4 or c.
fn first_half(place: &str) -> String {
    let mut out = String::with_capacity(place.len());
    for (i, part) in place.split("0x").enumerate() {
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
