//! Whole threads: by their name, their process and their service.

use rustc_hash::FxHashMap;
use wallscope_model::{Context, ContextId, Recording};

use super::Selection;

/// Label of a thread's service.
const SERVICE: &str = "service";

/// The contexts that are wanted.
pub(super) fn wanted(selection: &Selection, rec: &Recording) -> Vec<bool> {
    let names: FxHashMap<u32, &str> = (rec.processes.iter().rev())
        .map(|p| (p.pid, &*p.name))
        .collect();
    let is_any = |list: &[String], is: &dyn Fn(&str) -> bool| {
        list.is_empty() || list.iter().any(|wanted| is(wanted))
    };
    let wanted = |(i, c): (usize, &Context)| {
        let name = names.get(&c.pid).copied().unwrap_or_default();
        let service = rec.context_label(ContextId(i as u32), SERVICE);
        is_any(&selection.threads, &|t| *t == *c.name)
            && is_any(&selection.processes, &|p| {
                p == name || p == c.pid.to_string()
            })
            && is_any(&selection.services, &|s| service == Some(s))
    };
    rec.contexts.iter().enumerate().map(wanted).collect()
}

/// The condition that no thread meets, by its option.
pub(super) fn unmet(selection: &Selection) -> &'static str {
    match (&*selection.threads, &*selection.processes) {
        ([_, ..], _) => "thread",
        (_, [_, ..]) => "process",
        _ => SERVICE,
    }
}
