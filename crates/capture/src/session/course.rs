//! One recording by kernel programs: prepare, go live, follow, end.

use std::{cell::RefCell, fs, rc::Rc, time::Duration};

use libbpf_rs::RingBuffer;
use wallscope_binfmt::kallsyms;
use wallscope_model::{Cost, FrameKind, Recording, Window};
use wallscope_symbolize::Sources;

use super::{
    Captured, Live, Observer, Options, Progress, Stop,
    assemble::{Assembled, assemble},
    build::Stacks,
    chosen::{Chosen, choose, ended_early},
    cost::{self, CostMeter},
    domain,
    events::{Event, Events},
    first_slice, hits,
    host_log::HostLog,
    intake::Intake,
    jit,
    look::{self, Stretch},
    now,
    pace::Pace,
    processes::Processes,
    tasks,
    timeline::{LOOK_EVERY, Turns},
    too_many_slices, unix_now,
    upkeep::Upkeep,
};
use crate::{
    Error,
    ahead::Ahead,
    backend::ebpf::{
        Kernel, Mechanism, Programs, Settings, Visit,
        sideband::Sideband,
        taps::Tap,
        timer::{Timer, parse_cpu_list},
    },
    event,
    places::{Interrupts, Places},
    target::{Held, Target},
};

/// How long to wait at the end for the last switches of dying threads.
const LAST_SWITCHES: Duration = Duration::from_millis(300);
/// Most rows of threads by slice before two slices become one, however long: some 50 MB.
const MOST_ROWS: usize = 2_000_000;

/// Measures by kernel programs.
///
/// # Errors
/// No such target, no privilege, programs that the kernel refuses; nothing was recorded then.
pub(super) fn record(
    options: &Options,
    kernel: &Kernel,
    observer: &mut dyn Observer,
) -> Result<Captured, Error> {
    let mut course = Course::prepare(options, kernel)?;
    course.go_live(observer)?;
    // From here on nothing may be lost: every failure ends the recording, and it is still written.
    let meter = CostMeter::start();
    let stop = course.follow(observer);
    observer.over();
    course.take_last();
    let end_ns = now();
    let own_cpu_ns = meter.own_ns();
    Ok(course.end(stop, end_ns, own_cpu_ns))
}

/// A recording under way.
struct Course<'o> {
    options: &'o Options,
    kernel: &'o Kernel,
    chosen: Chosen,
    /// The command, if the target is one.
    held: Option<Held>,
    cpus: usize,
    mechanism: Mechanism,
    timer: Timer,
    taps: Vec<Tap>,
    /// Reasons can be told from kernel functions.
    kernel_named: bool,
    programs: Programs,
    sideband: Sideband,
    processes: Processes,
    intake: Rc<RefCell<Intake>>,
    ring: RingBuffer<'static>,
    events: Events,
    host: HostLog,
    pace: Pace,
    upkeep: Upkeep,
    start_ns: u64,
    start_unix_ns: u64,
    /// When the last look was taken, or the start.
    looked: u64,
    /// What happened on the way.
    notes: Vec<String>,
}

impl<'o> Course<'o> {
    /// Everything that can be done before the first record exists.
    fn prepare(options: &'o Options, kernel: &'o Kernel) -> Result<Course<'o>, Error> {
        let held = match &options.target {
            Target::Command(argv) => Some(Held::start(argv, options.command_output.as_deref())?),
            _ => None,
        };
        let chosen = choose(&options.target, held.as_ref())?;
        let cpus = parse_cpu_list(
            &fs::read_to_string("/sys/devices/system/cpu/online")
                .map_err(|e| Error::io("cannot read which CPUs are online", e))?,
        );
        let mechanism = options.mechanism.unwrap_or_else(|| kernel.mechanism());
        let mut timer = if options.stacks {
            Timer::open(&cpus, options.hz)?
        } else {
            Timer::none()
        };
        let taps = hits::open(options, &cpus)?;
        let settings = Settings {
            off_cpu_period: if options.stacks {
                options.off_cpu_period
            } else {
                Duration::ZERO
            },
            mechanism,
            all: matches!(options.target, Target::All),
            timeline: options.timeline.is_some(),
            events: hits::kinds(&taps),
        };
        // The kernel takes long to check the programs; meanwhile its names can be read.
        let kernel_code = std::thread::spawn(|| {
            // What cannot be read tells nothing, which the domain says.
            let symbols = kallsyms::read().unwrap_or_default();
            (Places::parse(&symbols), Interrupts::parse(&symbols))
        });
        let mut programs = Programs::load(kernel, &settings)?;
        let (places, interrupts) = kernel_code.join().expect("reading names does not panic");
        let kernel_named = !places.ranges.is_empty();
        programs.set_places(&places);
        let sideband = Sideband::open(&cpus).map_err(|e| {
            Error::io(
                "cannot follow new mappings (perf_event_open on every CPU)",
                e,
            )
        })?;

        let mut processes = Processes::new(&programs)?;
        processes.managed_mut().look_at_tasks(options.max_overhead);
        if !options.stacks {
            processes.keep_facts_only();
        }
        for pid in &chosen.pids {
            processes.found(*pid);
        }
        if let (Target::Command(argv), Some(held)) = (&options.target, &held) {
            processes.prepare_command(held.pid(), &argv[0]);
        }
        programs.set_managed(processes.managed().processes(), processes.vms());
        let java = &mut processes.managed_mut().java;
        java.look_at_threads();
        programs.add_java_threads(&java.take_threads());
        programs.set_clock(!timer.hardware);
        programs.set_cpu_period(timer.vary());
        programs.attach(&timer.events, &cpus)?;
        programs.set_event_pace(&taps, options.max_overhead / 100.0, cpus.len());
        let taps = programs.attach_taps(taps)?;
        programs.add_targets(&chosen.pids)?;
        programs.add_cgroups(&chosen.cgroups)?;

        let host = HostLog::open(&chosen.pids);
        let mut events = Events::new(&chosen.watch, options.duration)?;
        for fd in sideband.descriptors() {
            events.sideband(fd)?;
        }
        let slice_ns = first_slice(options.duration);
        let start_ns = now();
        let start_unix_ns = unix_now();
        let intake = Rc::new(RefCell::new(Intake::new(start_ns, slice_ns, interrupts)));
        let ring = {
            let (intake, turns) = (Rc::clone(&intake), Rc::clone(&intake));
            programs.ring(
                move |bytes| intake.borrow_mut().take(bytes),
                options
                    .timeline
                    .map(|_| move |bytes: &[u8]| turns.borrow_mut().turn(bytes)),
            )?
        };
        if options.moments {
            intake.borrow_mut().samples.each = Some(Vec::new());
        }
        if let Some(limit) = options.timeline {
            intake.borrow_mut().turns = Some(Turns::new(limit));
        }
        if options.timeline.is_some() {
            events.look_every(LOOK_EVERY)?;
        }
        if let Some(every) = timer.vary_every() {
            events.look_every(every)?;
        }
        events.ring(ring.epoll_fd())?;
        events.tick_every(start_ns, slice_ns)?;

        {
            let peers = &mut intake.borrow_mut().samples.peers;
            peers.followed = kernel.has_hook("ws_sent");
            peers.begin(&mut programs, &chosen.pids, now());
        }
        Ok(Course {
            options,
            kernel,
            chosen,
            held,
            cpus: cpus.len(),
            mechanism,
            timer,
            taps,
            kernel_named,
            programs,
            sideband,
            processes,
            intake,
            ring,
            events,
            host,
            pace: Pace::new(options),
            upkeep: Upkeep::default(),
            start_ns,
            start_unix_ns,
            looked: start_ns,
            notes: Vec::new(),
        })
    }

    /// Makes the targets' records, and lets a command begin.
    fn go_live(&mut self, observer: &mut dyn Observer) -> Result<(), Error> {
        // A switch, so that the programs know the scheduler's clock.
        std::thread::sleep(Duration::from_micros(50));
        self.programs.visit(Visit::Begin, None, |_| {})?;
        let consumed = self.ring.consume();
        consumed.map_err(Error::bpf("cannot read the event ring"))?;
        if self.intake.borrow().accounts.len() == 0
            && let Some(gone) = self.chosen.gone(&self.options.target)
        {
            return Err(gone);
        }
        self.host.take_all();
        observer.live(&Live {
            target: self.options.target.describe(),
            threads: self.intake.borrow().accounts.len(),
            event: self.timer.describe().into(),
            hz: self.options.hz,
            backend: "ebpf",
            pids: self.chosen.pids.clone(),
            stopper: self.events.stopper(),
        });
        if let Some(held) = &mut self.held {
            let accounts = &mut self.intake.borrow_mut().accounts;
            accounts.begins(held.pid(), now());
            held.release()?;
        }
        Ok(())
    }

    /// Takes in what comes until something ends it.
    fn follow(&mut self, observer: &mut dyn Observer) -> Stop {
        if let Some(every) = self.options.looks {
            let set = self.events.view_every(every);
            self.note(set);
        }
        let _ahead = Ahead::of_others();
        let mut dates = false;
        loop {
            let event = self.events.wait();
            self.take_in();
            if !dates && self.processes.jit().follows() {
                // What is written without times is dated by when it is seen.
                dates = true;
                let set = self.events.look_every(jit::LOOK_EVERY);
                self.note(set);
            }
            match event {
                Event::News => {}
                Event::Clock => self.vary(now()),
                Event::Look => self.look(observer),
                Event::Tick => self.tick(observer),
                Event::Duration => return Stop::Duration,
                Event::TargetEnded => return Stop::TargetEnded,
                Event::Signal => return Stop::Signal,
            }
        }
    }

    fn note(&mut self, done: Result<(), Error>) {
        self.notes.extend(done.err().map(|e| e.to_string()));
    }

    fn take_in(&mut self) {
        self.upkeep.follow(
            &mut self.programs,
            &mut self.sideband,
            Some(&self.ring),
            &mut self.processes,
            &self.intake,
        );
    }

    /// Copies threads' books; `failed`: what cannot be done without.
    fn visit(&mut self, order: Visit, failed: &str) {
        let few = self.intake.borrow().accounts.few_processes();
        // At the end the whole machine, so that nobody is missed.
        let few = few.filter(|_| order != Visit::End);
        let visited = self.programs.visit(order, few.as_deref(), |v| {
            let mut intake = self.intake.borrow_mut();
            intake.visited(&v, order == Visit::End);
        });
        if let Err(e) = visited {
            self.notes.push(format!("{failed}: {e}"));
        }
    }

    /// Shows what came since the last look.
    fn look(&mut self, observer: &mut dyn Observer) {
        // Of a thread that has not moved since the start nothing is known before the first.
        let order = if self.looked == self.start_ns {
            Visit::All
        } else {
            Visit::Dump
        };
        self.visit(order, "a look could not be taken");
        let _ = self.ring.consume();
        let stretch = Stretch {
            start: self.start_ns,
            last: self.looked,
            now: now(),
        };
        self.looked = stretch.now;
        let mut intake = self.intake.borrow_mut();
        intake.accounts.tick(stretch.now);
        let look = look::take(stretch, &mut intake, &self.processes, self.options);
        drop(intake);
        observer.look(look);
    }

    /// Closes a time slice.
    fn tick(&mut self, observer: &mut dyn Observer) {
        self.visit(Visit::Dump, "a time slice could not be closed");
        let time = now();
        let elapsed = time - self.start_ns;
        self.vary(time);
        let mut intake = self.intake.borrow_mut();
        intake.accounts.tick(time);
        self.processes.managed_mut().java.count();
        if self.options.looks.is_none() {
            intake.settle(time);
        }
        let grid = intake.accounts.grid();
        if too_many_slices(&grid, time) || intake.accounts.rows() > MOST_ROWS {
            intake.coarsen();
            let set = self.events.tick_every(grid.start_ns, grid.width_ns * 2);
            self.notes.extend(set.err().map(|e| e.to_string()));
        }
        self.host.tick(time);
        if self.options.stacks {
            let (programs, timer) = (&mut self.programs, &mut self.timer);
            self.notes.extend(self.pace.check(programs, timer, elapsed));
        }
        observer.progress(&Progress {
            elapsed: Duration::from_nanos(elapsed),
            threads: intake.accounts.alive(),
            stacks: intake.user.len() + intake.kernel.len(),
        });
    }

    /// Samples come at another distance from now on, if they have come at the same for a while. Only by the clock:
    /// a distance begins anew, and done when the program does something it would leave out what follows.
    fn vary(&mut self, time: u64) {
        if self.options.stacks {
            let (programs, timer) = (&mut self.programs, &mut self.timer);
            self.pace.vary(programs, timer, time - self.start_ns);
        }
    }

    /// Charges what is still open.
    fn take_last(&mut self) {
        self.visit(
            Visit::End,
            "the last figures of living threads could not be read",
        );
        // A dying thread that no list shows any more still has its last switch before it.
        for _ in 0..LAST_SWITCHES.as_millis() {
            let _ = self.ring.consume();
            if self.intake.borrow().accounts.all_done() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut intake = self.intake.borrow_mut();
        intake.read_owners(&self.processes.managed().java);
    }

    /// Puts the recording together.
    fn end(self, stop: Stop, end_ns: u64, own_cpu_ns: u64) -> Captured {
        let Course {
            options,
            mut held,
            taps,
            mut programs,
            mut sideband,
            mut processes,
            intake,
            ring,
            mut upkeep,
            mut notes,
            ..
        } = self;
        programs.detach();
        intake.borrow_mut().accounts.close(end_ns);
        let _ = ring.consume();
        intake.borrow_mut().shapes.all = programs.shapes();
        let counted = programs.hits();
        intake.borrow_mut().samples.peers.open = programs.sockets();
        let rss_bytes = cost::peak_rss_bytes();
        drop(ring);
        upkeep.follow(&mut programs, &mut sideband, None, &mut processes, &intake);
        if stop == Stop::TargetEnded {
            let ns = end_ns - self.start_ns;
            notes.extend(ended_early(&options.target, options.duration, ns));
        }
        let seen_tasks = processes.managed_mut().finish_tasks();
        let facts = self.host.finish();
        let command_end = held
            .as_mut()
            .and_then(|h| h.finish(stop == Stop::TargetEnded));

        let most_alive = intake.borrow().accounts.most_alive();
        let mut recording = Recording {
            window: Window {
                start_ns: self.start_ns,
                end_ns,
                clock: "CLOCK_MONOTONIC".into(),
                start_unix_ns: self.start_unix_ns,
            },
            host: facts,
            cost: Cost {
                bpf_ns: programs.run_time().total_ns(),
                own_cpu_ns,
                rss_bytes,
                kernel_bytes: programs.map_bytes(most_alive)
                    + processes.table_bytes()
                    + sideband.bytes(),
                target_stopped_ns: 0,
            },
            ..Recording::default()
        };
        let mut intake = Rc::try_unwrap(intake)
            .unwrap_or_else(|_| unreachable!("the ring held the only other handle"))
            .into_inner();
        let mut losses: Vec<(String, u64)> = event::LOSSES
            .iter()
            .zip(programs.losses())
            .map(|(cause, count)| ((*cause).to_owned(), count))
            .collect();
        processes.unwind_late(&mut intake, true);
        notes.extend(intake.samples.peers.problem.take());
        notes.extend(processes.managed().java.notes());
        let programs_of = processes.several_programs();
        notes.extend(programs_of.map(|note| note + "; the label `program` tells which one it was"));
        notes.extend(processes.managed().scripts.notes());
        notes.extend(processes.jit().notes());
        notes.extend(processes.undescribed());
        let mut stacks = Stacks::new(&processes, options.interpreter_frames);
        let of_tasks = tasks::assemble(
            &mut recording,
            &mut stacks,
            seen_tasks,
            &processes,
            &mut losses,
        );
        recording.events = hits::assemble(&taps, &counted, &intake.accounts);
        let Assembled {
            jit,
            seen,
            moments,
            unnamed,
        } = assemble(
            &mut recording,
            &mut intake,
            &processes,
            &programs.lock_waits(),
            &mut losses,
            stacks,
            options,
        );
        recording.domain = domain::describe(&domain::Facts {
            kernel: self.kernel,
            options,
            timeline: recording.timeline.as_ref(),
            mechanism: self.mechanism,
            timer: self.timer.describe(),
            cpus: self.cpus as u32,
            pace: &self.pace,
            taps: &taps,
            kernel_named: self.kernel_named,
            notes,
            runtimes: processes.managed().describe(),
        });
        recording.domain.limits.extend(unnamed);
        for (note, limit) in of_tasks {
            recording.domain.notes.push(note);
            recording.domain.limits.push(limit);
        }
        losses.extend(processes.losses());
        // Several processes may have lost something for the same cause.
        for (cause, count) in losses.into_iter().filter(|(_, count)| *count > 0) {
            match recording.losses.iter_mut().find(|l| l.cause == cause) {
                Some(loss) => loss.count += count,
                None => recording
                    .losses
                    .push(wallscope_model::Loss { cause, count }),
            }
        }
        let sources = Sources {
            kallsyms: symbols_of_programs(&recording),
            ..processes.into_sources(&jit)
        };
        Captured {
            recording,
            sources,
            seen,
            moments,
            stop,
            command_end,
            signals: self.events.into_signals(),
        }
    }
}

/// The kernel's symbols as they are now, where stacks lead through code that was loaded into it. Kernel
/// programs take their names with them when they go, and ours are about to.
fn symbols_of_programs(recording: &Recording) -> Option<String> {
    /// Where x86-64 has modules and kernel programs.
    const LOADED: u64 = 0xffff_ffff_c000_0000;
    let mut frames = recording.frames.iter();
    let any = frames.any(|f| f.kind == FrameKind::Kernel && f.address >= LOADED);
    any.then(|| kallsyms::read().ok()).flatten()
}
