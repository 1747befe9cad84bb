//! Counting and timing, from what was asked for to the result.

use std::{cell::RefCell, path::Path, rc::Rc, time::Duration};
use wallscope_procfs::kernel_file;

use wallscope_binfmt::kallsyms;
use wallscope_model::calls::{Call, Calls};

use super::{
    abi::{Met, Site},
    calibrate::{self, Costs},
    find,
    items::{Item, items, plan},
    modules::{self, Module},
    options::Options,
    plan::{Circumstances, Harm, Plan},
    programs::{Programs, Settings},
    result::Facts,
    slowest::Slowest,
    spec::EventSpec,
    steps::Steps,
};
use crate::{
    Error,
    backend::ebpf::KernelFeatures,
    clock::{now, unix_now},
    places::Places,
    session::{
        ResolvedTarget, Stop, command, ended_early,
        events::{Event, Events},
        resolve_target,
    },
    slices,
    target::{CommandEnd, Held, Target},
};

/// A trial is looked at that often, and is over after so many looks.
const TRIAL_STEP: Duration = Duration::from_millis(4);
const TRIAL_STEPS: u32 = 12;
/// Calls a second that may be reported one by one until it is known which are long.
const MOST_REPORTED: f64 = 10_000.0;
/// The least stretch of time that a rate is judged by.
const JUDGED: u64 = 900_000_000;

/// What is going to be done, and what it costs.
#[derive(Clone, Debug)]
pub struct Announced {
    /// Each function: name, module, how it is probed, the most a call costs in ns.
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
    /// The command stands, and is about to begin.
    ///
    /// # Errors
    /// What keeps it from beginning.
    fn begins(&mut self, pid: u32) -> Result<(), Error>;
    /// A stretch of time is over: the result so far.
    fn step(&mut self, so_far: &Calls);
    /// Whether [`Watcher::step`] is of any use, as it costs some.
    fn wants_steps(&self) -> bool;
}

/// A finished measurement.
pub struct Measured {
    /// The result.
    pub calls: Calls,
    /// Each call, where they are wanted.
    pub each: Vec<Call>,
    /// Why it stopped.
    pub stop: Stop,
    /// For a command: how it ended.
    pub command_end: Option<CommandEnd>,
}

/// Counts or times what `options` asks for.
///
/// # Errors
/// Nothing of that name, no privilege, or it would cost or harm more than is allowed; nothing stays in
/// place then.
pub fn measure(options: &Options, watcher: &mut dyn Watcher) -> Result<Measured, Error> {
    let kernel = KernelFeatures::inspect()?;
    let held = match &options.target {
        Target::Command(argv) => Some(Held::start(argv, None)?),
        _ => None,
    };
    let chosen = resolve_target(&options.target, held.as_ref())?;
    run(options, watcher, &kernel, held, &chosen).map_err(|e| match e {
        // What a trial found stands, whatever became of the target since.
        Error::Refused { .. } => e,
        e => chosen.gone(&options.target).unwrap_or(e),
    })
}

/// Counts or times what `chosen` call.
fn run(
    options: &Options,
    watcher: &mut dyn Watcher,
    kernel: &KernelFeatures,
    mut held: Option<Held>,
    chosen: &ResolvedTarget,
) -> Result<Measured, Error> {
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
        (e, _) if modules.is_empty() => modules::refused(&chosen.pids).unwrap_or(e),
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
    let mut programs = Programs::load(kernel, &settings)?;
    let costs = calibrate::measure(&mut programs, options.timed)?;
    programs.set_costs([costs.in_a_row, costs.cold[0]], costs.bias);

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

    let mut events = Events::new(&chosen.watch, None)?;
    let slow = Rc::new(RefCell::new(Slowest::new(options.slowest, options.each)));
    let ring = {
        let slow = Rc::clone(&slow);
        programs.ring(move |bytes| slow.borrow_mut().take(bytes))?
    };
    programs.attach_hooks(&plan)?;
    let pids: Vec<Option<u32>> = match &options.target {
        Target::Pids(_) => chosen.pids.iter().copied().map(Some).collect(),
        _ => vec![None],
    };
    // A file that only the targets run is probed for every process, and so in children yet to be forked.
    let probed = |at: &usize| plan.sites.iter().any(|s| s.module == *at);
    let theirs: Vec<usize> = match &options.target {
        Target::Pids(_) => (0..modules.len())
            .filter(|at| probed(at) && modules::is_theirs(&modules[*at], &chosen.pids))
            .collect(),
        _ => Vec::new(),
    };
    for_module(&mut programs, &modules, &plan, None, |at| {
        theirs.contains(&at)
    })?;
    for pid in &pids {
        let placed = for_module(&mut programs, &modules, &plan, *pid, |at| {
            !theirs.contains(&at)
        });
        // One of several that ended meanwhile, as children do all the time.
        let ended = |pid: u32| pids.len() > 1 && !Path::new(&format!("/proc/{pid}")).exists();
        if !pid.is_some_and(ended) {
            placed?;
        }
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
        if options.each && !quiet {
            programs.detach_to(0);
            return Err(Error::Refused {
                what: "each call".into(),
                why: format!(
                    "{rate:.0} calls a second came in a short trial, and at most {MOST_REPORTED:.0} can \
                     be followed one by one"
                ),
                instead: "follow a function that calls it, or leave --slow out".into(),
            });
        }
        watcher.announced(&facts);
    } else {
        watcher.announced(&announced(None, None));
    }
    if options.timed && (options.slowest > 0 || options.each) && quiet {
        programs.set_slow(0);
    }
    // The window begins where all probes are in place: each of them alone takes the kernel a while.
    events.lasts(options.duration)?;
    let before = programs.met();
    let start_unix_ns = unix_now();
    programs.set_live(true);
    let start_ns = now();
    let mut slice_ns = slices::first_width_ns(options.duration);
    let mut steps = Steps::new(start_ns, plan.functions.len(), options.timed);
    events.tick_every(start_ns, slice_ns)?;
    watcher.live(&options.target.describe());
    if let Some(held) = &mut held {
        watcher.begins(held.pid())?;
        held.release()?;
    }

    let facts = Facts {
        options,
        kernel,
        plan: &plan,
        costs: &costs,
        start_ns,
        start_unix_ns,
        unwinds: given.harm == Some(Harm::Exceptions),
        follows_forks: plan.sites.iter().all(|s| theirs.contains(&s.module)),
    };
    let mut stopped = None;
    let (mut judged, mut judged_met) = (now(), programs.met());
    let stop = loop {
        let event = events.wait();
        let _ = ring.consume();
        match event {
            Event::News | Event::Clock | Event::Look => {}
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
                    let met = programs.met();
                    let spent = costs.spent(&judged_met, &met, time - judged);
                    let rate = spent as f64 * 1e9 / (time - judged) as f64;
                    (judged, judged_met) = (time, met);
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
    programs.set_live(false);
    let end_ns = now();
    let met = programs.met();
    programs.detach_to(0);
    let _ = ring.consume();
    steps.end(&programs, end_ns);
    drop(ring);
    let command_end = held
        .as_mut()
        .and_then(|h| h.finish(stop == Stop::TargetEnded));
    let mut calls = facts.result(&programs, &steps, &slow.borrow(), end_ns);
    calls.probe_ns = costs.spent(&before, &met, end_ns - start_ns);
    calls.stopped = stopped;
    calls.domain.notes.extend(notes);
    if stop == Stop::TargetEnded {
        let note = ended_early(&options.target, options.duration, calls.window_ns());
        calls.domain.notes.extend(note);
    }
    facts.limits(&programs, &mut calls.domain);
    let each = slow.borrow_mut().all.take().unwrap_or_default();
    Ok(Measured {
        calls,
        each,
        stop,
        command_end,
    })
}

/// What a return probe would do to the target, where it would do harm.
fn harm(modules: &[Module], pids: &[u32]) -> Option<Harm> {
    if find::may_unwind(modules) {
        return Some(Harm::Exceptions);
    }
    let status = |pid: &u32| kernel_file::read_to_string(format!("/proc/{pid}/status")).ok();
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

/// Ends first: a call with a seen entry should have a seen end.
fn for_module(
    programs: &mut Programs,
    modules: &[Module],
    plan: &Plan,
    pid: Option<u32>,
    which: impl Fn(usize) -> bool,
) -> Result<(), Error> {
    let sites: Vec<_> = plan
        .sites
        .iter()
        .copied()
        .filter(|s| which(s.module))
        .filter(|s| pid.is_none_or(|p| modules[s.module].pids.contains(&p)))
        .collect();
    programs.attach(modules, &sites, pid)
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
        let ns = now() - start_ns;
        let seconds = ns as f64 / 1e9;
        let begun = |met: &[Met]| -> u64 {
            let of_cpu = |met: &Met| {
                begins
                    .map(|k| met.kind[k as usize].count)
                    .iter()
                    .sum::<u64>()
            };
            met.iter().map(of_cpu).sum()
        };
        let calls = begun(&met) - begun(&before);
        rate = calls as f64 / seconds;
        cost = costs.spent(&before, &met, ns) as f64 / seconds;
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
    // Hooks of system calls have no cost of their own that could be foretold.
    let each = match facts.functions.iter().map(|f| f.3).max().unwrap_or(0) {
        0 => format!("{:.1} µs", cost / rate.max(1.0) / 1e3),
        ns => format!("up to {:.1} µs", ns as f64 / 1e3),
    };
    Error::Refused {
        what,
        why: format!(
            "a short trial counted {rate:.0} calls a second, already slowed by the probes, which at {each} a call \
             is {} of one CPU, more than the {} % allowed",
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
