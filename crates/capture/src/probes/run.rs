//! Counting and timing, from what was asked for to the result.

use std::{cell::RefCell, fs, rc::Rc, time::Duration};

use wallscope_model::{
    Domain, EventSource, Limit, Loss,
    calls::{Calls, FunctionCalls, Lengths, SlowCall, Tally},
};
use wallscope_object::kallsyms;
use zerocopy::FromBytes;

use super::{
    abi::{self, Cookie, Site},
    calibrate::{self, Costs},
    find::{self, Found},
    modules::{self, Module},
    plan::{Circumstances, Handler, Harm, Plan, Planned},
    programs::{self, Programs, Settings},
    spec::{EventSpec, Spec, is_pattern},
    steps::Steps,
    usdt,
};
use crate::{
    Error,
    backend::ebpf::{Kernel, timer::parse_cpu_list},
    event::LOSSES,
    places::Places,
    session::{
        Stop, choose, command,
        events::{Event, Events},
        first_slice, now, privilege, unix_now,
    },
    target::{CommandEnd, Held, Target},
};

/// Most functions of one measurement: counted, and timed (some 40 KB a CPU each).
const MOST_COUNTED: usize = 4096;
const MOST_TIMED: usize = 64;
/// Most system calls and pairs of events among those that are timed (`WS_PAIRS`).
const MOST_PAIRS: usize = 16;
/// A trial is looked at that often, and is over after so many looks.
const TRIAL_STEP: Duration = Duration::from_millis(4);
const TRIAL_STEPS: u32 = 12;
/// Calls a second that may be reported one by one until it is known which are long.
const MOST_REPORTED: f64 = 10_000.0;
/// The least stretch of time that a rate is judged by.
const JUDGED: u64 = 900_000_000;

/// What to count or time, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whom to measure.
    pub target: Target,
    /// What.
    pub asked: Vec<Spec>,
    /// Lengths and ledgers too, not only counts.
    pub timed: bool,
    /// How long; `None`: until the target ends or a signal comes.
    pub duration: Option<Duration>,
    /// Most of one CPU that probes may cost, percent.
    pub max_overhead: f64,
    /// How many of the longest calls are kept one by one.
    pub slowest: usize,
}

/// What is going to be done, and what it costs.
#[derive(Clone, Debug)]
pub struct Announced {
    /// Each function: name, module, how it is probed, cost of a call in ns.
    pub functions: Vec<(String, String, String, u64)>,
    /// Calls a second, of all of them, in the trial; `None`: the target has not begun.
    pub rate: Option<f64>,
    /// What they will cost, ns a second.
    pub cost: Option<f64>,
}

/// Told what is going on.
pub trait Watcher {
    /// Costs are known; nothing stays in place that costs too much.
    fn announced(&mut self, facts: &Announced);
    /// Measuring is live.
    fn live(&mut self, target: &str);
    /// A stretch of time is over: the result so far.
    fn step(&mut self, so_far: &Calls);
    /// Whether [`Watcher::step`] is of any use, as it costs some.
    fn wants_steps(&self) -> bool;
}

/// A finished measurement.
pub struct Measured {
    /// The result.
    pub calls: Calls,
    /// Why it stopped.
    pub stop: Stop,
    /// For a command: how it ended.
    pub command_end: Option<CommandEnd>,
}

/// Something found, before it is known how it can be probed.
enum Item {
    Function(Found, bool),
    Syscall(String, u32),
    Event(EventSpec),
    Pair(EventSpec, EventSpec),
}

/// Counts or times what `options` asks for.
///
/// # Errors
/// Nothing of that name, no privilege, or it would cost or harm more than is allowed; nothing stays in
/// place then.
pub fn measure(options: &Options, watcher: &mut dyn Watcher) -> Result<Measured, Error> {
    let kernel = Kernel::inspect()?;
    let mut held = match &options.target {
        Target::Command(argv) => Some(Held::start(argv)?),
        _ => None,
    };
    let chosen = choose(&options.target, held.as_ref())?;
    let modules = match &options.target {
        Target::Command(argv) => modules::of_files(&command::files_of(&argv[0])),
        _ => modules::of_processes(&chosen.pids),
    };
    let items = items(options, &modules).map_err(|e| match (e, &options.target) {
        (Error::NoFunction { asked, why, instead }, Target::Command(_)) => Error::NoFunction {
            asked,
            why,
            instead: format!(
                "{instead} (of a command only the program and the libraries it is linked with are known \
                 before it starts; use -p for what it opens later)"
            ),
        },
        (e, _) => e,
    })?;

    let symbols = kallsyms::read().unwrap_or_default();
    let places = Places::parse(&symbols);
    let is_event = |e: &EventSpec| matches!(e, EventSpec::Tracepoint { .. });
    let settings = Settings {
        functions: items.len(),
        timed: options.timed,
        syscalls: items.iter().any(|i| matches!(i, Item::Syscall(..))),
        tracepoints: items.iter().any(|i| match i {
            Item::Event(e) => is_event(e),
            Item::Pair(a, b) => is_event(a) || is_event(b),
            _ => false,
        }),
        choose: !matches!(options.target, Target::All),
        places: &places,
    };
    let mut programs = Programs::load(&kernel, &settings)?;
    let costs = calibrate::measure(&mut programs, options.timed)?;
    programs.set_costs(&costs.each, &costs.bias);

    let given = Circumstances {
        harm: harm(&modules, &chosen.pids),
    };
    let mut notes = Vec::new();
    let plan = plan(options, &items, &modules, given, &mut notes)?;
    programs.set_plan(&plan)?;
    programs.add_targets(&chosen.pids)?;
    let announced = |rate, cost| Announced {
        functions: plan
            .functions
            .iter()
            .map(|f| {
                let cost = costs.of(&f.kinds);
                (f.name.clone(), f.module.clone(), f.how.clone(), cost)
            })
            .collect(),
        rate,
        cost,
    };

    let mut events = Events::new(&chosen.watch, options.duration)?;
    let slow = Rc::new(RefCell::new(Slowest::new(options.slowest)));
    let ring = {
        let slow = Rc::clone(&slow);
        programs.ring(move |bytes| slow.borrow_mut().take(bytes))?
    };
    let before = programs.met();
    let start_ns = now();
    let start_unix_ns = unix_now();
    let mut slice_ns = first_slice(options.duration);
    let mut steps = Steps::new(start_ns, plan.functions.len(), options.timed);
    programs.attach_hooks(&plan)?;
    let pids: Vec<Option<u32>> = match &options.target {
        Target::Pids(_) => chosen.pids.iter().copied().map(Some).collect(),
        _ => vec![None],
    };
    for pid in &pids {
        for_module(&mut programs, &modules, &plan, *pid)?;
    }
    let limit = options.max_overhead / 100.0 * 1e9;
    let mut quiet = true;
    if held.is_none() {
        let (rate, cost) = trial(&programs, &costs, limit);
        let facts = announced(Some(rate), Some(cost));
        if cost > limit {
            programs.detach_to(0);
            return Err(too_dear(&facts, &plan, options, rate, cost));
        }
        quiet = rate < MOST_REPORTED;
        watcher.announced(&facts);
    } else {
        watcher.announced(&announced(None, None));
    }
    if options.timed && options.slowest > 0 && quiet {
        programs.set_slow(0);
    }
    events.tick_every(start_ns, slice_ns)?;
    watcher.live(&options.target.describe());
    if let Some(held) = &mut held {
        held.release()?;
    }

    let facts = Facts {
        options,
        kernel: &kernel,
        plan: &plan,
        costs: &costs,
        start_ns,
        start_unix_ns,
        unwinds: given.harm == Some(Harm::Exceptions),
    };
    let mut stopped = None;
    let (mut judged, mut judged_cost) = (now(), cost_of(&costs, &before, &programs.met()));
    let stop = loop {
        let event = events.wait();
        let _ = ring.consume();
        match event {
            Event::News | Event::Look => {}
            Event::Tick => {
                let time = now();
                if steps.end(&programs, time) {
                    slice_ns *= 2;
                    if let Err(e) = events.tick_every(time, slice_ns) {
                        notes.push(e.to_string());
                    }
                }
                programs.set_slow(slow.borrow_mut().threshold(&programs, plan.functions.len()));
                if time - judged >= JUDGED {
                    let spent = cost_of(&costs, &before, &programs.met());
                    let rate = (spent - judged_cost) as f64 * 1e9 / (time - judged) as f64;
                    (judged, judged_cost) = (time, spent);
                    if rate > limit {
                        stopped = Some(format!(
                            "the probes were taken out after {:.1} s: calls came so often that they cost {} \
                             of one CPU, more than the {} % allowed",
                            (time - start_ns) as f64 / 1e9,
                            percent(rate / 1e9),
                            options.max_overhead
                        ));
                        break Stop::Duration;
                    }
                }
                if watcher.wants_steps() {
                    let so_far = facts.result(&programs, &steps, &slow.borrow(), time);
                    watcher.step(&so_far);
                }
            }
            Event::Duration => break Stop::Duration,
            Event::TargetEnded => break Stop::TargetEnded,
            Event::Signal => break Stop::Signal,
        }
    };
    programs.detach_to(0);
    let end_ns = now();
    let _ = ring.consume();
    steps.end(&programs, end_ns);
    let met = programs.met();
    drop(ring);
    let command_end = held
        .as_mut()
        .and_then(|h| h.finish(stop == Stop::TargetEnded));
    let mut calls = facts.result(&programs, &steps, &slow.borrow(), end_ns);
    calls.probe_ns = cost_of(&costs, &before, &met);
    calls.stopped = stopped;
    calls.domain.notes.extend(notes);
    facts.limits(&programs, &mut calls.domain);
    Ok(Measured {
        calls,
        stop,
        command_end,
    })
}

/// What a return probe would do to the target, where it would do harm.
fn harm(modules: &[Module], pids: &[u32]) -> Option<Harm> {
    if find::may_unwind(modules) {
        return Some(Harm::Exceptions);
    }
    let status = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/status")).ok();
    for text in pids.iter().filter_map(status) {
        for line in text.lines() {
            match line.split_once(':') {
                Some(("Seccomp", mode)) if mode.trim() == "2" => return Some(Harm::Seccomp),
                Some(("x86_Thread_features", all)) if all.contains("shstk") => {
                    return Some(Harm::ShadowStack);
                }
                _ => {}
            }
        }
    }
    None
}

/// Finds what was asked for.
fn items(options: &Options, modules: &[Module]) -> Result<Vec<Item>, Error> {
    let mut items = Vec::new();
    for asked in &options.asked {
        match asked {
            Spec::Function {
                module,
                name,
                offset,
            } => {
                let mut found = find::functions_named(modules, module.as_deref(), name)?;
                for f in found.iter_mut().filter(|_| offset.is_some_and(|o| o > 0)) {
                    let by = offset.unwrap_or(0);
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
                items.extend(
                    found
                        .into_iter()
                        .map(|f| Item::Function(f, is_pattern(name))),
                );
            }
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
    let pairs = items.iter().filter(|i| !matches!(i, Item::Function(..)));
    if options.timed && pairs.count() > MOST_PAIRS {
        return Err(Error::Refused {
            what: "so many system calls and events".into(),
            why: format!("at most {MOST_PAIRS} of them are timed at a time"),
            instead: "`wallscope count` takes more".into(),
        });
    }
    // First, as each has a place by the lowest digits of its number.
    items.sort_by_key(|i| matches!(i, Item::Function(..)));
    let most = if options.timed {
        MOST_TIMED
    } else {
        MOST_COUNTED
    };
    if items.len() > most {
        return Err(Error::Refused {
            what: format!("{} functions", items.len()),
            why: format!(
                "at most {most} are {} at a time",
                if options.timed { "timed" } else { "counted" }
            ),
            instead: "use a narrower pattern, or name the module, as in libc.so.6:'str*'".into(),
        });
    }
    Ok(items)
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
fn plan(
    options: &Options,
    items: &[Item],
    modules: &[Module],
    given: Circumstances,
    notes: &mut Vec<String>,
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
                    // Of many, those that cannot be probed are left out, and named.
                    Err(e) if *by_pattern => {
                        notes.push(format!("left out: {e}"));
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
                add_event(
                    &mut plan,
                    modules,
                    event,
                    function,
                    Site::Begin,
                    Handler::Count,
                )?;
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
                add_event(
                    &mut plan,
                    modules,
                    begin,
                    function,
                    Site::Begin,
                    Handler::Met,
                )?;
                add_event(&mut plan, modules, end, function, Site::End, Handler::Met)?;
            }
        }
    }
    if let (true, Some(e)) = (plan.functions.is_empty(), refusal) {
        return Err(e);
    }
    if options.timed && given.harm == Some(Harm::Exceptions) && !plan.sites.is_empty() {
        plan.catches(modules);
    }
    Ok(plan)
}

fn event_words(event: &EventSpec) -> &'static str {
    match event {
        EventSpec::Tracepoint { .. } => "a tracepoint of the kernel",
        EventSpec::Usdt { .. } => "a static probe",
    }
}

fn add_event(
    plan: &mut Plan,
    modules: &[Module],
    event: &EventSpec,
    function: u16,
    site: Site,
    handler: Handler,
) -> Result<(), Error> {
    let counting = handler == Handler::Count;
    match event {
        EventSpec::Tracepoint { category, name } => {
            // A count is told from the first of a pair by its kind.
            let site = if counting { Site::Entry } else { site };
            let cookie = Cookie::new(function, site);
            plan.tracepoints
                .push((category.clone(), name.clone(), cookie));
        }
        EventSpec::Usdt {
            module,
            provider,
            name,
        } => {
            let found = find::static_probes(modules, module.as_deref(), provider, name)?;
            for (module, places) in found {
                let places: Vec<usdt::Place> = places;
                plan.static_probe(module, &places, Cookie::new(function, site), handler);
            }
        }
    }
    Ok(())
}

/// Ends first: a call whose entry is seen should be seen to end.
fn for_module(
    programs: &mut Programs,
    modules: &[Module],
    plan: &Plan,
    pid: Option<u32>,
) -> Result<(), Error> {
    let sites: Vec<_> = plan
        .sites
        .iter()
        .copied()
        .filter(|s| pid.is_none_or(|p| modules[s.module].pids.contains(&p)))
        .collect();
    programs.attach(modules, &sites, pid)
}

/// What was spent on probes since `before`, ns.
fn cost_of(costs: &Costs, before: &[u64; 16], met: &[u64; 16]) -> u64 {
    (0..Site::COUNT)
        .map(|kind| (met[kind] - before[kind]) * costs.each[kind])
        .sum()
}

/// Watches the probes for a short while; calls a second and their cost in ns a second. Ends at once
/// where that is far too much.
fn trial(programs: &Programs, costs: &Costs, limit: f64) -> (f64, f64) {
    let begins = [Site::Entry, Site::SteppedEntry, Site::Begin];
    let (mut rate, mut cost) = (0.0, 0.0);
    let (start_ns, before) = (now(), programs.met());
    for step in 0..TRIAL_STEPS {
        std::thread::sleep(TRIAL_STEP);
        let met = programs.met();
        let seconds = (now() - start_ns) as f64 / 1e9;
        let calls: u64 = begins
            .iter()
            .map(|k| met[*k as usize] - before[*k as usize])
            .sum();
        rate = calls as f64 / seconds;
        cost = cost_of(costs, &before, &met) as f64 / seconds;
        // A few calls in the first milliseconds are no rate.
        if cost > 4.0 * limit && calls > 500 && step > 0 {
            break;
        }
    }
    (rate, cost)
}

fn percent(share: f64) -> String {
    if share < 0.0995 {
        format!("{:.1} %", share * 100.0)
    } else {
        format!("{:.0} %", share * 100.0)
    }
}

fn too_dear(facts: &Announced, plan: &Plan, options: &Options, rate: f64, cost: f64) -> Error {
    let what = match &plan.functions[..] {
        [one] => one.name.clone(),
        many => format!("{} functions", many.len()),
    };
    let each = facts.functions.iter().map(|f| f.3).max().unwrap_or(0);
    Error::Refused {
        what,
        why: format!(
            "a short trial counted {rate:.0} calls a second, already slowed by the probes, which at up to {:.1} µs a call \
             is {} of one CPU, more than the {} % allowed",
            each as f64 / 1e3,
            percent(cost / 1e9),
            options.max_overhead
        ),
        instead: format!(
            "--max-overhead {} allows it{}",
            (cost / 1e7 * 1.5).ceil().max(1.0),
            if options.timed {
                "; `wallscope count` costs less than half; a function that calls it is called less often"
            } else {
                "; a function that calls it is called less often"
            }
        ),
    }
}

/// The longest calls.
struct Slowest {
    most: usize,
    calls: Vec<SlowCall>,
}

impl Slowest {
    fn new(most: usize) -> Slowest {
        Slowest {
            most,
            calls: Vec::new(),
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        let Ok(slow) = abi::Slow::read_from_bytes(bytes) else {
            return;
        };
        let end = slow.comm.iter().position(|b| *b == 0).unwrap_or(16);
        self.calls.push(SlowCall {
            function: slow.function as usize,
            start_ns: slow.begin,
            length: slow.wall,
            pid: slow.pid,
            tid: slow.tid,
            thread: String::from_utf8_lossy(&slow.comm[..end]).into_owned(),
            books: programs::books(&slow.books),
        });
        if self.calls.len() > 64 * self.most.max(64) {
            self.keep();
        }
    }

    fn keep(&mut self) {
        self.calls.sort_by_key(|c| std::cmp::Reverse(c.length));
        self.calls.truncate(self.most);
    }

    /// From which length on calls are worth being reported: longer than the shortest of those kept,
    /// and not so short that every call would be.
    fn threshold(&mut self, programs: &Programs, functions: usize) -> u64 {
        if self.most == 0 {
            return u64::MAX;
        }
        self.keep();
        if self.calls.len() == self.most {
            return self.calls[self.most - 1].length + 1;
        }
        let mut all = Lengths::default();
        for f in 0..functions {
            all.merge(&programs.lengths(f));
        }
        if all.count() < 1000 {
            0
        } else {
            all.quantile(0.99).unwrap_or(0)
        }
    }

    fn sorted(&self) -> Vec<SlowCall> {
        let mut calls = self.calls.clone();
        calls.sort_by_key(|c| std::cmp::Reverse(c.length));
        calls.truncate(self.most);
        calls
    }
}

/// What the result is made from.
struct Facts<'a> {
    options: &'a Options,
    kernel: &'a Kernel,
    plan: &'a Plan,
    costs: &'a Costs,
    start_ns: u64,
    start_unix_ns: u64,
    unwinds: bool,
}

impl Facts<'_> {
    fn result(&self, programs: &Programs, steps: &Steps, slow: &Slowest, end_ns: u64) -> Calls {
        let timed = self.options.timed;
        let function = |(index, planned): (usize, &Planned)| {
            let t = programs.tally(index);
            let entry = planned.kinds.first().copied();
            let exit = planned.kinds.get(1).map_or(0, |k| *k as usize);
            let stepped = usize::from(entry == Some(Site::SteppedEntry));
            FunctionCalls {
                name: planned.name.clone(),
                module: planned.module.clone(),
                probes: planned.how.clone(),
                tally: Tally {
                    entered: t.entered,
                    ended: t.ended,
                    by_tail_call: t.by_jump,
                    by_exception: t.by_catch,
                    left: t.left,
                    deep: t.deep,
                    begun: t.begun,
                },
                lengths: match timed {
                    true => programs.lengths(index),
                    false => Lengths::default(),
                },
                longest: t.longest,
                wall: t.wall,
                bands: match timed {
                    true => programs.bands(index),
                    false => Vec::new(),
                },
                subtracted: match timed {
                    true => self.costs.bias[stepped][exit],
                    false => 0,
                },
                slices: steps.of(index).to_vec(),
            }
        };
        let (losses, _) = programs.losses();
        let counted = LOSSES.iter().zip(losses);
        Calls {
            functions: self
                .plan
                .functions
                .iter()
                .enumerate()
                .map(function)
                .collect(),
            slowest: slow.sorted(),
            start_ns: self.start_ns,
            end_ns,
            start_unix_ns: self.start_unix_ns,
            timed,
            domain: self.domain(),
            losses: counted
                .filter(|(_, n)| *n > 0)
                .map(|(cause, count)| Loss {
                    cause: (*cause).to_owned(),
                    count,
                })
                .collect(),
            probe_ns: 0,
            stopped: None,
        }
    }

    fn domain(&self) -> Domain {
        let cpus = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let source = |what: &str, event: &str, rate: &str| EventSource {
            what: what.into(),
            event: event.into(),
            rate: rate.into(),
        };
        let mut events = vec![source("calls", "probes at entries", "each call")];
        if self.options.timed {
            events.push(source("lengths", "probes at ends", "each call"));
            events.push(source(
                "ledgers of calls",
                "sched_switch, sched_wakeup",
                "each event of threads that call",
            ));
        }
        Domain {
            tool: concat!("wallscope ", env!("CARGO_PKG_VERSION")).into(),
            backend: "ebpf".into(),
            backend_reason: "probes need kernel programs".into(),
            privilege: privilege(),
            kernel: self.kernel.release.clone(),
            cpus: parse_cpu_list(&cpus).len() as u32,
            target: self.options.target.describe(),
            events,
            ..Domain::default()
        }
    }

    /// What was not seen, in words.
    fn limits(&self, programs: &Programs, domain: &mut Domain) {
        let shared = matches!(self.options.target, Target::Command(_) | Target::Cgroup(_));
        if shared && !self.plan.sites.is_empty() {
            domain.notes.push(
                "other processes that run the same files meet the probes too: they are not counted, but \
                 pay; with -p PID they do not"
                    .into(),
            );
        }
        let mut limit = |what: String, remedy: &str| {
            domain.limits.push(Limit {
                what,
                remedy: remedy.into(),
            });
        };
        let forked = programs.forked();
        if forked > 0
            && !self.plan.sites.is_empty()
            && matches!(self.options.target, Target::Pids(_))
        {
            limit(
                format!("calls in {forked} processes that the target forked meanwhile"),
                "--cgroup, or start it as a command",
            );
        }
        if matches!(self.options.target, Target::Cgroup(_)) {
            limit(
                "calls of processes that were moved into the cgroup meanwhile".into(),
                "",
            );
        }
        if self.options.timed && self.unwinds {
            limit(
                "how long calls took that a panic or longjmp left; those are counted as left"
                    .into(),
                "",
            );
        }
        if self.options.timed && !self.plan.sites.is_empty() {
            limit(
                "calls of coroutines that change stacks half-way may count as left".into(),
                "time the function that resumes them",
            );
        }
    }
}
