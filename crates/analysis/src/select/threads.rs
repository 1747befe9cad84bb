//! Whole threads: by their name, their process and their service.

use rustc_hash::FxHashMap;
use wallscope_model::{Context, ContextId, Recording};

/// Label of a thread's service.
const SERVICE: &str = "service";

/// The contexts that are wanted.
pub(super) fn wanted(
    threads: &[String],
    processes: &[String],
    services: &[String],
    rec: &Recording,
) -> Vec<bool> {
    let names: FxHashMap<u32, &str> = (rec.processes.iter().rev())
        .map(|p| (p.pid, &*p.name))
        .collect();
    let is_any = |list: &[String], is: &dyn Fn(&str) -> bool| {
        list.is_empty() || list.iter().any(|wanted| is(wanted))
    };
    let wanted = |(i, c): (usize, &Context)| {
        let name = names.get(&c.pid).copied().unwrap_or_default();
        let service = rec.context_label(ContextId(i as u32), SERVICE);
        is_any(threads, &|t| *t == *c.name)
            && is_any(processes, &|p| p == name || p == c.pid.to_string())
            && is_any(services, &|s| service == Some(s))
    };
    rec.contexts.iter().enumerate().map(wanted).collect()
}

/// The condition that no thread meets, by its option.
pub(super) fn unmet(threads: &[String], processes: &[String]) -> &'static str {
    match (threads, processes) {
        ([_, ..], _) => "thread",
        (_, [_, ..]) => "process",
        _ => SERVICE,
    }
}
