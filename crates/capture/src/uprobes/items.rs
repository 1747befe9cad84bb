//! From the user's specifications to a plan: looks names up, and finds a place for each probe.

use super::{
    abi::{Cookie, Site},
    find::{self, FoundFunction},
    modules::Module,
    options::Options,
    plan::{Circumstances, Handler, Plan, Planned, ProbeRefusal},
    spec::{EventSpec, Spec, is_pattern},
};
use crate::Error;

/// Most functions of one measurement: counted, and timed (some 40 KB a CPU each).
const MAX_COUNTED: usize = 4096;
const MAX_TIMED: usize = 64;
/// Most system calls and pairs of events among those that are timed (`WS_PAIRS`).
const MAX_PAIRS: usize = 16;

/// Something found, before it is known how it can be probed.
pub(super) enum Item {
    Function(FoundFunction, bool),
    Syscall(String, u32),
    Event(EventSpec),
    Pair(EventSpec, EventSpec),
}

/// Finds the functions and events that were asked for.
pub(super) fn items(options: &Options, modules: &[Module]) -> Result<Vec<Item>, Error> {
    let mut items = Vec::new();
    for asked in &options.asked {
        match asked {
            Spec::Function {
                module,
                name,
                offset,
            } => items.extend(functions(modules, module.as_deref(), name, *offset)?),
            Spec::Place { module, offset } => {
                let found = find::place(modules, module, *offset)?;
                items.extend(found.into_iter().map(|f| Item::Function(f, false)));
            }
            Spec::Syscall(name) => {
                let number = name
                    .parse::<syscalls::Sysno>()
                    .map_err(|_| Error::NoFunction {
                        asked: format!("syscall:{name}"),
                        why: "Linux has no system call of that name on x86-64".into(),
                        instead: nearest_syscalls(name),
                    })?;
                items.push(Item::Syscall(name.clone(), number as u32));
            }
            Spec::Event(event) if options.timed => {
                return Err(Error::Refused {
                    what: event.to_string(),
                    why: "an event happens at one moment and has no length".into(),
                    instead: format!("use `wallscope count`, or name a pair: {event}..OTHER"),
                });
            }
            Spec::Event(event) => items.push(Item::Event(event.clone())),
            Spec::Pair(..) if !options.timed => {
                return Err(Error::Refused {
                    what: "a pair of events".into(),
                    why: "only single events are counted".into(),
                    instead: "use `wallscope latency` for pairs".into(),
                });
            }
            Spec::Pair(a, b) => items.push(Item::Pair(a.clone(), b.clone())),
        }
    }
    // First, as each has a place by the lowest digits of its number.
    items.sort_by_key(|i| matches!(i, Item::Function(..)));
    refuse_too_many(options, &items)?;
    Ok(items)
}

/// The functions of a name or pattern, or the place at an offset in them.
fn functions(
    modules: &[Module],
    module: Option<&str>,
    name: &str,
    offset: Option<u64>,
) -> Result<Vec<Item>, Error> {
    // A program's file may have any name: as reports print code without a symbol.
    if let (None, Some(offset)) = (module, offset)
        && let Some(place) = find::unnamed(modules, name, offset)
    {
        return Ok(place?
            .into_iter()
            .map(|f| Item::Function(f, false))
            .collect());
    }
    let mut found = find::functions_named(modules, module, name)?;
    let by = offset.unwrap_or(0);
    for f in found.iter_mut().filter(|_| by > 0) {
        if f.size > 0 && by >= f.size {
            return Err(Error::NoFunction {
                asked: format!("{name}+{by:#x}"),
                why: format!("{} is only {:#x} bytes long", f.name, f.size),
                instead: "take an offset within the function".into(),
            });
        }
        f.place = Some(f.address + by);
        f.name += &format!("+{by:#x}");
    }
    let by_pattern = is_pattern(name);
    Ok(found
        .into_iter()
        .map(|f| Item::Function(f, by_pattern))
        .collect())
}

fn refuse_too_many(options: &Options, items: &[Item]) -> Result<(), Error> {
    let pairs = items.iter().filter(|i| !matches!(i, Item::Function(..)));
    if options.timed && pairs.count() > MAX_PAIRS {
        return Err(Error::Refused {
            what: "so many system calls and events".into(),
            why: format!("at most {MAX_PAIRS} of them are timed at a time"),
            instead: "`wallscope count` takes more".into(),
        });
    }
    let (most, verb) = match options.timed {
        true => (MAX_TIMED, "timed"),
        false => (MAX_COUNTED, "counted"),
    };
    if items.len() > most {
        return Err(Error::Refused {
            what: format!("{} functions", items.len()),
            why: format!("at most {most} are {verb} at a time"),
            instead: "use a narrower pattern, or name the module, as in libc.so.6:'str*'".into(),
        });
    }
    Ok(())
}

fn nearest_syscalls(name: &str) -> String {
    let mut near: Vec<(usize, &str)> = syscalls::Sysno::iter()
        .map(|s| (strsim::osa_distance(s.name(), name), s.name()))
        .collect();
    near.sort();
    let names: Vec<_> = near.iter().take(4).map(|(_, n)| *n).collect();
    format!("the nearest are {}", names.join(", "))
}

/// Decides where probes stand.
pub(super) fn plan(
    options: &Options,
    items: &[Item],
    modules: &[Module],
    given: Circumstances,
) -> Result<Plan, Error> {
    let mut plan = Plan::default();
    let mut refusal = None;
    for item in items {
        match item {
            Item::Function(found, by_pattern) => {
                let outcome = if options.timed {
                    plan.time(modules, found, given)
                } else {
                    plan.count(modules, found)
                };
                match outcome {
                    Ok(()) => {}
                    // If several functions match, those that cannot be probed are left out, and named.
                    Err(e) if *by_pattern || items.len() > 1 => {
                        plan.left_out.push(format!("left out: {e}"));
                        refusal = Some(e);
                    }
                    Err(e) => return Err(e),
                }
            }
            Item::Syscall(name, number) => {
                let function = plan.function(Planned {
                    name: format!("syscall:{name}"),
                    module: String::new(),
                    how: "hooks that every system call of the machine passes".into(),
                    kinds: Vec::new(),
                })?;
                plan.syscalls.push((*number, function));
            }
            Item::Event(event) => {
                let function = plan.function(Planned {
                    name: event.to_string(),
                    module: String::new(),
                    how: event_words(event).into(),
                    kinds: vec![Site::Begin],
                })?;
                let probe = EventProbe {
                    function,
                    site: Site::Begin,
                    handler: Handler::Count,
                };
                add_event(&mut plan, modules, event, probe)?;
            }
            Item::Pair(begin, end) => {
                let function = plan.function(Planned {
                    name: format!("{begin}..{end}"),
                    module: String::new(),
                    how: format!(
                        "from one event to the next in the same thread; {}",
                        event_words(begin)
                    ),
                    kinds: vec![Site::Begin, Site::End],
                })?;
                for (event, site) in [(begin, Site::Begin), (end, Site::End)] {
                    let probe = EventProbe {
                        function,
                        site,
                        handler: Handler::Met,
                    };
                    add_event(&mut plan, modules, event, probe)?;
                }
            }
        }
    }
    if let (true, Some(e)) = (plan.functions.is_empty(), refusal) {
        return Err(e);
    }
    if options.timed && given.harm == Some(ProbeRefusal::Exceptions) && !plan.sites.is_empty() {
        plan.catches(modules);
    }
    plan.pair_tail_calls();
    Ok(plan)
}

fn event_words(event: &EventSpec) -> &'static str {
    match event {
        EventSpec::Tracepoint { .. } => "a tracepoint of the kernel",
        EventSpec::Usdt { .. } => "a static probe",
    }
}

/// A probe at an event, for function `function` of the plan.
struct EventProbe {
    function: u16,
    site: Site,
    handler: Handler,
}

fn add_event(
    plan: &mut Plan,
    modules: &[Module],
    event: &EventSpec,
    probe: EventProbe,
) -> Result<(), Error> {
    match event {
        EventSpec::Tracepoint { category, name } => {
            // The kind distinguishes a count from the first of a pair.
            let site = match probe.handler {
                Handler::Count => Site::Entry,
                _ => probe.site,
            };
            let cookie = Cookie::new(probe.function, site);
            plan.tracepoints
                .push((category.clone(), name.clone(), cookie));
        }
        EventSpec::Usdt {
            module,
            provider,
            name,
        } => {
            let found = find::static_probes(modules, module.as_deref(), provider, name)?;
            let cookie = Cookie::new(probe.function, probe.site);
            for (module, places) in found {
                plan.static_probe(module, &places, cookie, probe.handler);
            }
        }
    }
    Ok(())
}
