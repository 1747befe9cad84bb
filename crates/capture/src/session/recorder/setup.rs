//! A recorder's parts in the order in which they can be made: kernel programs, processes, hooks, rings.

use std::{cell::RefCell, rc::Rc};

use libbpf_rs::RingBuffer;
use wallscope_binfmt::kallsyms;
use wallscope_observe::{Begin, InterruptCode, Observation};
use wallscope_procfs::kernel_file;

use super::super::{
    Options, event_dispatch::EventDispatcher, event_sampling, peers::Before, processes::Processes,
    target_resolve::ResolvedTarget,
};
use crate::{
    Error,
    backend::ebpf::{
        KernelFeatures, Mechanism, Programs, Settings, event_sampling::SampledEvent, timer::Timer,
    },
    clock::{now, unix_now},
    open_files,
    places::{Interrupts, Places},
    target::{Held, Target},
};

/// The kernel's number for its present boot; empty where it has none.
fn boot_id() -> String {
    let id = kernel_file::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}

/// The session's choices and the host's features, fixed when measuring begins.
pub(super) struct Setup<'o> {
    pub options: &'o Options,
    pub kernel: &'o KernelFeatures,
    pub mechanism: Mechanism,
    /// CPUs online.
    pub cpus: usize,
    pub timer: Timer,
    pub taps: Vec<SampledEvent>,
    /// Whether block reasons can be recognised from kernel functions.
    pub kernel_named: bool,
}

impl Setup<'_> {
    /// Loads the kernel programs. Also returns the addresses of the kernel that serve interrupts.
    ///
    /// # Errors
    /// The kernel refuses them.
    pub fn load(&mut self) -> Result<(Programs, Interrupts), Error> {
        let options = self.options;
        let settings = Settings {
            off_cpu_period: options.method.off_cpu_period,
            mechanism: self.mechanism,
            all: matches!(options.target, Target::All),
            ledger_only: !options.stacks,
            turn_ring: options.turn_ring(),
            windows: options.windows,
            events: event_sampling::kinds(&self.taps),
        };
        // The kernel takes long to check the programs; meanwhile its names can be read.
        let kernel_code = std::thread::spawn(|| {
            // Symbols that cannot be read show no reasons; the domain states that.
            let symbols = kallsyms::read().unwrap_or_default();
            (Places::parse(&symbols), Interrupts::parse(&symbols))
        });
        let mut programs = Programs::load(self.kernel, &settings)?;
        let (places, interrupts) = kernel_code.join().expect("reading names does not panic");
        self.kernel_named = !places.ranges.is_empty();
        programs.set_places(&places);
        Ok((programs, interrupts))
    }

    /// Finds the target's processes and the code that they have mapped, and tells the kernel programs of their
    /// runtimes.
    ///
    /// # Errors
    /// As [`Processes::new`].
    pub fn find_processes(
        &self,
        programs: &mut Programs,
        chosen: &ResolvedTarget,
        held: Option<&Held>,
    ) -> Result<Processes, Error> {
        if self.options.windows {
            // Root directories of processes are open, too.
            open_files::raise_limit();
        }
        let mut processes = Processes::new(programs, self.options.file_limits())?;
        if !self.options.windows {
            // The sums of tasks are known at the end of a session only, and grow until then.
            (processes.managed_mut()).poll_tasks(self.options.method.max_overhead);
        }
        if !self.options.stacks {
            processes.keep_facts_only();
        }
        for pid in &chosen.pids {
            processes.found(*pid);
        }
        if let (Target::Command(argv), Some(held)) = (&self.options.target, held) {
            processes.prepare_command(held.pid(), &argv[0]);
        }
        programs.set_managed(processes.managed().processes(), processes.vms());
        let java = &mut processes.managed_mut().java;
        java.read_threads();
        programs.add_java_threads(&java.take_threads());
        Ok(processes)
    }

    /// Attaches the programs to their hooks, the timers on `cpus` and the events.
    ///
    /// # Errors
    /// The kernel refuses a hook that a recording needs.
    pub fn attach(&mut self, programs: &mut Programs, cpus: &[u32]) -> Result<(), Error> {
        if !self.timer.hardware {
            programs.use_software_clock();
        }
        programs.set_cpu_period(self.timer.vary());
        programs.attach(&self.timer.events, cpus)?;
        let share = self.options.method.max_overhead / 100.0;
        programs.set_event_pace(&self.taps, share, self.cpus);
        self.taps = programs.attach_taps(std::mem::take(&mut self.taps))?;
        Ok(())
    }

    /// First observation of a log; measuring starts now. `interrupts`: addresses of the kernel that serve them.
    pub fn begin(&self, slice_ns: u64, interrupts: Vec<InterruptCode>) -> Begin {
        Begin {
            start_ns: now(),
            start_unix_ns: unix_now(),
            slice_ns,
            timeline_bytes: self.options.method.timeline_bytes(),
            interpreter_frames: self.options.method.interpreter_frames,
            interrupts,
            off_cpu_period_ns: self.options.method.off_cpu_period.as_nanos() as u64,
            boot: boot_id(),
        }
    }

    /// Observes the connections that exist and the events that are sampled. Returns why connections are not
    /// known, if they are not.
    pub fn observe_connections(
        &self,
        programs: &mut Programs,
        chosen: &ResolvedTarget,
        intake: &RefCell<EventDispatcher>,
    ) -> Option<String> {
        let mut before = Before::find(programs, &chosen.pids, now());
        // Whether the kernel reports each send and receive.
        before.connected.followed = self.options.stacks && self.kernel.has_hook("ws_sent");
        let mut intake = intake.borrow_mut();
        intake.observe(Observation::Connected(before.connected));
        for end in before.others {
            intake.observe(Observation::OtherEnd(end));
        }
        for event in event_sampling::observe(&self.taps) {
            intake.observe(event);
        }
        before.problem
    }
}

/// Opens the ring that brings events to `intake`, and the one of the timeline if there is one.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn read_ring(
    programs: &Programs,
    intake: &Rc<RefCell<EventDispatcher>>,
    options: &Options,
) -> Result<RingBuffer<'static>, Error> {
    let (intake, turns) = (Rc::clone(intake), Rc::clone(intake));
    programs.ring(
        move |bytes| intake.borrow_mut().take(bytes),
        (options.turn_ring()).map(|_| move |bytes: &[u8]| turns.borrow_mut().turn(bytes)),
    )
}
