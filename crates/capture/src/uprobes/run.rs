//! Counting and timing, from the request to the result.

use std::{cell::RefCell, path::Path, rc::Rc};
use wallscope_procfs::kernel_file;

use libbpf_rs::RingBuffer;
use wallscope_binfmt::kallsyms;
use wallscope_model::calls::{Call, Calls};

use super::{
    abi::Met,
    calibrate::{self, Costs},
    find,
    items::{Item, items, plan},
    modules::{self, Module},
    options::Options,
    plan::{Circumstances, Handler, Plan, PlannedSite, ProbeRefusal},
    programs::{Programs, Settings},
    result::Facts,
    slowest::Slowest,
    spec::EventSpec,
    steps::Steps,
    trial::{Trial, percent},
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

/// Shortest stretch of time by which a rate is judged, ns.
const JUDGED: u64 = 900_000_000;

/// The probes that will be placed, and their cost.
#[derive(Clone, Debug)]
pub struct Announced {
    /// Each function: name, module, how it is probed, the most a call costs in ns.
    pub functions: Vec<(String, String, String, u64)>,
    /// Calls a second, of all of them, in the trial; `None`: the target has not begun.
    pub rate: Option<f64>,
    /// Their expected cost, ns a second.
    pub cost: Option<f64>,
}

/// Observer of a measurement of calls.
pub trait Watcher {
    /// Costs are known; nothing stays in place that costs too much.
    fn announced(&mut self, facts: &Announced);
    /// Measuring is live.
    fn live(&mut self, target: &str);
    /// The command is held, and is about to begin.
    ///
    /// # Errors
    /// A reason not to let it begin.
    fn begins(&mut self, pid: u32) -> Result<(), Error>;
    /// A stretch of time is over: the result so far.
    fn step(&mut self, so_far: &Calls);
    /// Whether the watcher uses [`Watcher::step`]: its results take time to make.
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

/// Counts or times the functions of `options`.
///
/// # Errors
/// No function of that name, no privilege, or the probes would cost or harm more than is allowed. No probe stays
/// in place then.
pub fn measure(options: &Options, watcher: &mut dyn Watcher) -> Result<Measured, Error> {
    let kernel = KernelFeatures::inspect()?;
    let held = match &options.target {
        Target::Command(argv) => Some(Held::start(argv, None)?),
        _ => None,
    };
    let chosen = resolve_target(&options.target, held.as_ref())?;
    let request = Request {
        options,
        kernel: &kernel,
        chosen: &chosen,
        modules: match &options.target {
            Target::Command(argv) => modules::of_files(&command::files_of(&argv[0])),
            _ => modules::of_processes(&chosen.pids),
        },
    };
    request.run(watcher, held).map_err(|e| match e {
        // The finding of a trial holds even if the target has ended since.
        Error::Refused { .. } => e,
        e => chosen.gone(&options.target).unwrap_or(e),
    })
}

/// The request, and its resolved targets.
struct Request<'a> {
    options: &'a Options,
    kernel: &'a KernelFeatures,
    chosen: &'a ResolvedTarget,
    /// Files with code of the targets.
    modules: Vec<Module>,
}

impl Request<'_> {
    /// Counts or times.
    fn run(&self, watcher: &mut dyn Watcher, mut held: Option<Held>) -> Result<Measured, Error> {
        let options = self.options;
        let items = self.items()?;
        let mut programs = self.load(&items)?;
        let entries = match options.timed {
            true => Handler::Met,
            false => Handler::Count,
        };
        let costs = calibrate::measure(&mut programs, entries)?;
        programs.set_costs([costs.in_a_row, costs.cold[0]], costs.bias);
        let given = Circumstances {
            harm: harm(&self.modules, &self.chosen.pids),
        };
        let plan = plan(options, &items, &self.modules, given)?;
        programs.set_plan(&plan)?;
        programs.add_targets(&self.chosen.pids)?;

        let events = Events::new(&self.chosen.watch, None)?;
        let slow = Rc::new(RefCell::new(Slowest::new(options)));
        let ring = {
            let slow = Rc::clone(&slow);
            programs.ring(move |bytes| slow.borrow_mut().take(bytes))?
        };
        programs.attach_hooks(&plan)?;
        let theirs = self.theirs(&plan);
        self.place(&mut programs, &plan, &theirs)?;
        let trial = match held {
            Some(_) => None,
            None => Some(self.try_out(&mut programs, &plan, &costs)?),
        };
        watcher.announced(&announced(&plan, &costs, trial.as_ref()));
        let quiet = trial.is_none_or(|trial| trial.is_quiet());
        if options.timed && (options.slowest > 0 || options.each) && quiet {
            programs.set_slow(0);
        }

        // The window begins where all probes are in place: each of them alone takes the kernel a while.
        events.lasts(options.duration)?;
        let before = programs.met();
        let start_unix_ns = unix_now();
        programs.start();
        let start_ns = now();
        let slice_ns = slices::first_width_ns(options.duration);
        events.tick_every(start_ns, slice_ns)?;
        watcher.live(&options.target.describe());
        if let Some(held) = &mut held {
            watcher.begins(held.pid())?;
            held.release()?;
        }
        let mut live = Live {
            facts: Facts {
                options,
                kernel: self.kernel,
                plan: &plan,
                costs: &costs,
                start_ns,
                start_unix_ns,
                unwinds: given.harm == Some(ProbeRefusal::Exceptions),
                follows_forks: plan.sites.iter().all(|s| theirs.contains(&s.module)),
            },
            steps: Steps::new(start_ns, plan.functions.len()),
            judged: (now(), programs.met()),
            programs,
            ring,
            slow,
            events,
            slice_ns,
            stopped: None,
            notes: plan.left_out.clone(),
        };
        let stop = live.follow(watcher);
        Ok(live.end(stop, held, &before))
    }

    /// Finds the functions and events that were asked for.
    fn items(&self) -> Result<Vec<Item>, Error> {
        let target = &self.options.target;
        items(self.options, &self.modules).map_err(|e| match (e, target) {
            (Error::NoFunction { asked, why, instead }, Target::Command(_)) => Error::NoFunction {
                asked,
                why,
                instead: format!(
                    "{instead} (of a command only the program and the libraries it is linked with are known \
                     before it starts; use -p for what it opens later)"
                ),
            },
            (e, _) if self.modules.is_empty() => {
                modules::refused(&self.chosen.pids).unwrap_or(e)
            }
            (e, _) => e,
        })
    }

    /// Loads the kernel programs for `items`.
    fn load(&self, items: &[Item]) -> Result<Programs, Error> {
        let is_tracepoint = |e: &EventSpec| matches!(e, EventSpec::Tracepoint { .. });
        let settings = Settings {
            functions: items.len(),
            timed: self.options.timed,
            syscalls: items.iter().any(|i| matches!(i, Item::Syscall(..))),
            tracepoints: items.iter().any(|i| match i {
                Item::Event(e) => is_tracepoint(e),
                Item::Pair(a, b) => is_tracepoint(a) || is_tracepoint(b),
                _ => false,
            }),
            choose: !matches!(self.options.target, Target::All),
            places: &Places::parse(&kallsyms::read().unwrap_or_default()),
        };
        Programs::load(self.kernel, &settings)
    }

    /// The modules that only the targets run. These are probed for every process, and so in children
    /// yet to be forked.
    fn theirs(&self, plan: &Plan) -> Vec<usize> {
        let Target::Pids(_) = &self.options.target else {
            return Vec::new();
        };
        let probed = |at: &usize| plan.sites.iter().any(|s| s.module == *at);
        let is_theirs = |at: &usize| modules::is_theirs(&self.modules[*at], &self.chosen.pids);
        (0..self.modules.len())
            .filter(|at| probed(at) && is_theirs(at))
            .collect()
    }

    /// Places the probes: in the modules `theirs` for every process, elsewhere for the targets.
    fn place(&self, programs: &mut Programs, plan: &Plan, theirs: &[usize]) -> Result<(), Error> {
        let (of_theirs, others): (Vec<PlannedSite>, Vec<_>) =
            (plan.sites.iter().copied()).partition(|s| theirs.contains(&s.module));
        programs.attach(&self.modules, &of_theirs, None)?;
        let Target::Pids(_) = &self.options.target else {
            return programs.attach(&self.modules, &others, None);
        };
        let pids = &self.chosen.pids;
        for pid in pids {
            let runs = |s: &PlannedSite| self.modules[s.module].pids.contains(pid);
            let own: Vec<PlannedSite> = others.iter().copied().filter(runs).collect();
            let placed = programs.attach(&self.modules, &own, Some(*pid));
            // One process of several ended meanwhile, as children often do.
            let ended = || pids.len() > 1 && !Path::new(&format!("/proc/{pid}")).exists();
            if placed.is_err() && !ended() {
                return placed;
            }
        }
        Ok(())
    }

    /// Tries the probes out, and takes them out again where that is refused.
    fn try_out(&self, programs: &mut Programs, plan: &Plan, costs: &Costs) -> Result<Trial, Error> {
        let trial = Trial::run(programs, costs, self.options);
        match trial.refusal(self.options, plan, costs) {
            Some(refusal) => {
                programs.detach_to(0);
                Err(refusal)
            }
            None => Ok(trial),
        }
    }
}

fn announced(plan: &Plan, costs: &Costs, trial: Option<&Trial>) -> Announced {
    let functions = plan.functions.iter().map(|f| {
        let cost = costs.of(&f.kinds);
        (f.name.clone(), f.module.clone(), f.how.clone(), cost)
    });
    Announced {
        functions: functions.collect(),
        rate: trial.map(|t| t.rate),
        cost: trial.map(|t| t.cost),
    }
}

/// A measurement that is live.
struct Live<'a> {
    facts: Facts<'a>,
    ring: RingBuffer<'a>,
    programs: Programs,
    slow: Rc<RefCell<Slowest>>,
    events: Events,
    steps: Steps,
    slice_ns: u64,
    /// When the rate was judged last, and the counts at that time.
    judged: (u64, Vec<Met>),
    /// Why it was stopped before its time.
    stopped: Option<String>,
    notes: Vec<String>,
}

impl Live<'_> {
    /// Follows it to its end.
    fn follow(&mut self, watcher: &mut dyn Watcher) -> Stop {
        loop {
            let event = self.events.wait();
            let _ = self.ring.consume();
            match event {
                Event::News | Event::Clock | Event::Snapshot => {}
                Event::Tick => {
                    self.tick();
                    if self.stopped.is_some() {
                        return Stop::Duration;
                    }
                    if watcher.wants_steps() {
                        watcher.step(&self.result(now()));
                    }
                }
                Event::Duration => return Stop::Duration,
                Event::TargetEnded => return Stop::TargetEnded,
                Event::Signal => return Stop::Signal,
            }
        }
    }

    /// A stretch of time is over.
    fn tick(&mut self) {
        let time = now();
        if self.steps.end(&self.programs, time) {
            self.slice_ns *= 2;
            if let Err(e) = self.events.tick_every(time, self.slice_ns) {
                self.notes.push(e.to_string());
            }
        }
        let functions = self.facts.plan.functions.len();
        let threshold = self.slow.borrow_mut().threshold(&self.programs, functions);
        self.programs.set_slow(threshold);
        if time - self.judged.0 >= JUDGED {
            self.judge(time);
        }
    }

    /// Stops it where the probes cost more than is allowed.
    fn judge(&mut self, time: u64) {
        let Facts { options, costs, .. } = self.facts;
        let met = self.programs.met();
        let (before, ns) = (&self.judged.1, time - self.judged.0);
        let rate = costs.spent(before, &met, ns) as f64 * 1e9 / ns as f64;
        self.judged = (time, met);
        if rate > options.limit_ns() {
            self.stopped = Some(format!(
                "the probes were taken out after {:.1} s: calls came so often that they cost {} \
                 of one CPU, more than the {} % allowed",
                (time - self.facts.start_ns) as f64 / 1e9,
                percent(rate / 1e9),
                options.max_overhead
            ));
        }
    }

    /// The result up to `time`.
    fn result(&self, time: u64) -> Calls {
        self.facts
            .result(&self.programs, &self.steps, &self.slow.borrow(), time)
    }

    /// Takes the probes out. `before` has the counts at the start.
    fn end(mut self, stop: Stop, held: Option<Held>, before: &[Met]) -> Measured {
        self.programs.stop();
        let end_ns = now();
        let met = self.programs.met();
        self.programs.detach_to(0);
        let _ = self.ring.consume();
        self.steps.end(&self.programs, end_ns);
        let command_end = held.and_then(|mut held| stop.finish(&mut held));
        let mut calls = self.result(end_ns);
        let Facts { options, costs, .. } = self.facts;
        calls.probe_ns = costs.spent(before, &met, end_ns - self.facts.start_ns);
        calls.stopped = self.stopped;
        calls.domain.notes.extend(self.notes);
        if stop == Stop::TargetEnded {
            let note = ended_early(&options.target, options.duration, calls.window_ns());
            calls.domain.notes.extend(note);
        }
        self.facts.limits(&self.programs, &mut calls.domain);
        let each = self.slow.borrow_mut().all.take().unwrap_or_default();
        Measured {
            calls,
            each,
            stop,
            command_end,
        }
    }
}

/// Harm that a return probe would do to the target; `None`: no harm.
fn harm(modules: &[Module], pids: &[u32]) -> Option<ProbeRefusal> {
    if find::may_unwind(modules) {
        return Some(ProbeRefusal::Exceptions);
    }
    let status = |pid: &u32| kernel_file::read_to_string(format!("/proc/{pid}/status")).ok();
    for text in pids.iter().filter_map(status) {
        for line in text.lines() {
            match line.split_once(':') {
                Some(("Seccomp", mode)) if mode.trim() == "2" => {
                    return Some(ProbeRefusal::Seccomp);
                }
                Some(("x86_Thread_features", all)) if all.contains("shstk") => {
                    return Some(ProbeRefusal::ShadowStack);
                }
                _ => {}
            }
        }
    }
    None
}
