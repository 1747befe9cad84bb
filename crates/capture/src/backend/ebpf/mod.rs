//! The eBPF backend: kernel programs in `src/bpf/`, loaded, attached and read here.
//!
//! Everything is held by descriptors of this process: when it dies, by whatever means, the kernel
//! detaches the programs and frees the maps.

pub mod event_sampling;
pub mod sideband;
pub mod timer;

mod counts;
mod displaced;
mod given_up;
mod hook_entry;
mod irq_work;
mod java;
mod kernel_features;
mod libbpf_log;
mod load;
mod task_iter;

use std::{
    cell::RefCell,
    os::fd::{IntoRawFd, OwnedFd},
    time::Duration,
};

use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, MapMut, RingBuffer, RingBufferBuilder, skel::Skel,
};
use wallscope_procfs::host::CpuBusyReader;
use zerocopy::{FromBytes, IntoBytes};

pub use counts::RunTime;
use displaced::DisplacedMeter;
use hook_entry::HookEntry;
use irq_work::IrqWorkTrigger;
pub use kernel_features::{KernelFeatures, Mechanism};
pub(crate) use libbpf_log::{last_complaint, note_complaints};
pub use load::Settings;
use load::{Beside, Halves};
use task_iter::TaskIter;
pub use task_iter::{IterOrder, IterRecord};

pub use self::given_up::GivenUp;
use self::given_up::IRQ_HOOKS;

use crate::{
    Error,
    event::{OpenRequests, SocketRecord},
    places::Places,
    syscalls,
};

// Generated: public fields without comments, and names as in C.
#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    unsafe_op_in_unsafe_fn
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/wallscope.skel.rs"));
}

/// The loaded and attached programs.
pub struct Programs {
    skel: skel::WallscopeSkel<'static>,
    /// The programs that were loaded in a thread of their own.
    beside: Beside,
    /// Attached hooks, by program.
    links: Vec<(String, Link)>,
    irq_works: Vec<IrqWorkTrigger>,
    tasks: TaskIter,
    /// The programs' count of outdated facts about processes, as it was read last.
    outdated: u32,
    /// Cost of the entry into a program and the exit from it, ns.
    entry_ns: f64,
    displaced: RefCell<DisplacedMeter>,
    cpu_busy: RefCell<CpuBusyReader>,
    /// Waits by lock, and lengths, are kept of each thread.
    by_thread: bool,
}

/// Hooks that not every kernel or machine has, and the loss without them.
const OPTIONAL: &[(&str, &str)] = &[
    (
        "ws_sent",
        "requests in flight on connections, so that waits for work and waits for answers look alike",
    ),
    (
        "ws_room",
        "which of two libraries that take each other's place at the same addresses, until that is noticed (up to a second)",
    ),
    (
        "ws_timer_set",
        "what setting a timer takes is in no on-CPU sample of the software clock",
    ),
    (
        "ws_cgroup_attach",
        "tasks that move into a measured cgroup are not picked up",
    ),
    (
        "ws_cgroup_mkdir",
        "cgroups made below a measured one are not picked up",
    ),
    (
        "ws_irq_entry",
        "device interrupts are not told apart from on-CPU time",
    ),
    (
        "ws_softirq_entry",
        "softirqs are not told apart from on-CPU time",
    ),
    (
        "ws_timer_entry",
        "timer interrupts are not told apart from on-CPU time",
    ),
];

/// Longest time for which a detached program goes on running: it must not sleep.
const LAST_RUNS: Duration = Duration::from_millis(2);

/// Programs that are attached elsewhere: to the task iterator, and to the events that the user names
/// (`event_sampling.rs`).
const NOT_BY_THEMSELVES: &[&str] = &["ws_tasks", "ws_event", "ws_event_point"];

impl Programs {
    /// Loads the programs and prepares their maps; nothing is attached yet.
    ///
    /// # Errors
    /// No privilege, no BTF, or a kernel too old: each said as such.
    pub fn load(kernel: &KernelFeatures, settings: &Settings) -> Result<Programs, Error> {
        note_complaints();
        let loaded = load::load(kernel, settings);
        let Halves { skel, beside } =
            loaded.map_err(|e| kernel.explain_load_failure(e, &last_complaint()))?;
        libbpf_rs::set_print(None);
        let calls = syscalls::reasons().into_iter().zip(syscalls::arguments());
        for (number, (reason, argument)) in calls.enumerate() {
            skel.maps
                .syscall_reason
                .update(
                    &(number as u32).to_ne_bytes(),
                    &[reason, argument],
                    MapFlags::ANY,
                )
                .map_err(Error::bpf("cannot fill the table of system calls"))?;
        }
        let tasks = TaskIter::new(&beside.0.progs.ws_tasks)?;
        Ok(Programs {
            skel,
            beside,
            links: Vec::new(),
            irq_works: Vec::new(),
            tasks,
            outdated: 0,
            entry_ns: 0.0,
            displaced: RefCell::default(),
            cpu_busy: RefCell::new(CpuBusyReader::open()),
            by_thread: !settings.windows,
        })
    }

    /// Gives the programs the kernel functions that tell the reason of a wait; before they are attached.
    pub fn set_places(&mut self, places: &Places) {
        let Some(state) = self.skel.maps.bss_data.as_deref_mut() else {
            return;
        };
        for (slot, place) in state.places.iter_mut().zip(&places.ranges) {
            slot.start = place.start;
            slot.size = place.size;
            slot.reason = place.reason as u32;
        }
        state.set_places = places.ranges.len().min(state.places.len()) as u32;
        state.set_timerfd_read = places.timerfd_read;
    }

    /// Lets the programs ask for an interrupt of each of `cpus`, where threads read their stacks in one.
    ///
    /// # Errors
    /// The kernel refuses the events, or the memory for their rings.
    fn open_irq_works(&mut self, cpus: &[u32]) -> Result<(), Error> {
        for cpu in cpus {
            let trigger = IrqWorkTrigger::open(*cpu).map_err(|e| {
                Error::io(
                    "cannot open what interrupts a CPU (perf_event_open, bpf-output)",
                    e,
                )
            })?;
            let Some(trigger) = trigger else { continue };
            self.skel
                .maps
                .irq_works
                .update(&cpu.to_ne_bytes(), &trigger.descriptor(), MapFlags::ANY)
                .map_err(Error::bpf("cannot tell the programs what interrupts a CPU"))?;
            self.irq_works.push(trigger);
        }
        Ok(())
    }

    /// Attaches all hooks, for stacks on `cpus`. Without records they do nothing, so their order does
    /// not matter.
    ///
    /// # Errors
    /// The kernel refuses a hook that is not optional.
    pub fn attach(&mut self, timers: &[OwnedFd], cpus: &[u32]) -> Result<(), Error> {
        if self.by_interrupt() {
            self.open_irq_works(cpus)?;
        }
        let entry = HookEntry::before_attaching();
        self.attach_missing(timers, GivenUp::Nothing)?;
        self.entry_ns = entry.attached();
        self.begin_displaced();
        Ok(())
    }

    /// Gives up parts of the recording, or takes them back: `given_up` is not measured from now on.
    ///
    /// # Errors
    /// The kernel refuses a hook that was there before.
    pub fn give_up(&mut self, given_up: GivenUp, timers: &[OwnedFd]) -> Result<(), Error> {
        self.links.retain(|(name, _)| given_up.keeps(name));
        // Program runs that have begun end meanwhile. From then on the task iterator has a thread's ledger for
        // itself.
        std::thread::sleep(LAST_RUNS);
        if let Some(state) = self.skel.maps.bss_data.as_deref_mut() {
            state.set_given_up = given_up as u32;
        }
        self.attach_missing(timers, given_up)
    }

    /// Attaches the hooks that are wanted and not attached.
    fn attach_missing(&mut self, timers: &[OwnedFd], given_up: GivenUp) -> Result<(), Error> {
        let by_clock = !timers.is_empty() && self.by_clock();
        let beside = self.beside.0.object_mut().progs_mut();
        for program in self.skel.object_mut().progs_mut().chain(beside) {
            let name = program.name().to_string_lossy().into_owned();
            if !program.autoload() || NOT_BY_THEMSELVES.contains(&name.as_str()) {
                continue;
            }
            let attached = self.links.iter().any(|(attached, _)| *attached == name);
            if attached || !given_up.keeps(&name) || name == "ws_timer_set" && !by_clock {
                continue;
            }
            if name == "ws_on_cpu" {
                for timer in timers {
                    // The link owns its descriptor and closes it in the end.
                    let own = timer
                        .try_clone()
                        .map_err(|e| Error::io("cannot attach to the on-CPU timer", e))?;
                    let link = program
                        .attach_perf_event(own.into_raw_fd())
                        .map_err(Error::bpf("cannot attach to the on-CPU timer"))?;
                    self.links.push((name.clone(), link));
                }
                continue;
            }
            let link = program
                .attach()
                .map_err(Error::bpf(format!("cannot attach {name}")))?;
            self.links.push((name, link));
        }
        Ok(())
    }

    /// Forgets all connections and open requests, and returns the records of the connections.
    pub fn take_sockets(&self) -> Vec<SocketRecord> {
        let sockets = self.sockets();
        let maps = &self.skel.maps;
        for socket in &sockets {
            // A connection that is gone meanwhile has reported its end itself.
            let _ = maps.sockets.delete(&socket.cookie.to_ne_bytes());
        }
        for key in maps.in_flight.keys() {
            let _ = maps.in_flight.delete(&key);
        }
        sockets
    }

    /// Whether on-CPU samples come from the software clock.
    fn by_clock(&self) -> bool {
        let state = &self.skel.maps.bss_data;
        state.as_deref().is_some_and(|s| s.set_clock != 0)
    }

    /// Whether threads read their own stacks in an interrupt.
    fn by_interrupt(&self) -> bool {
        let settings = &self.skel.maps.rodata_data;
        settings.is_some_and(|s| s.cfg_task_work == 0)
    }

    /// What is lost because optional hooks are missing.
    pub fn limits(kernel: &KernelFeatures) -> Vec<&'static str> {
        OPTIONAL
            .iter()
            .filter(|(name, _)| {
                !(kernel.has_hook(name) || kernel.clock_leaves_irq_out && IRQ_HOOKS.contains(name))
            })
            .map(|(_, lost)| *lost)
            .collect()
    }

    /// Detaches all hooks.
    pub fn detach(&mut self) {
        self.links.clear();
    }

    /// Names processes to be measured by the next [`IterOrder::Begin`].
    ///
    /// # Errors
    /// The map is full.
    pub fn add_targets(&self, pids: &[u32]) -> Result<(), Error> {
        let keys = pids.iter().map(|pid| pid.to_ne_bytes());
        name_targets(&self.skel.maps.targets, keys, "process")
    }

    /// Names cgroups to be measured.
    ///
    /// # Errors
    /// The map is full.
    pub fn add_cgroups(&self, ids: &[u64]) -> Result<(), Error> {
        let keys = ids.iter().map(|id| id.to_ne_bytes());
        name_targets(&self.skel.maps.cgroups, keys, "cgroup")
    }

    /// A reader of the event ring; `take` gets each event's bytes. `turn`, where there is one, gets
    /// those of the timeline.
    ///
    /// # Errors
    /// The ring cannot be mapped.
    pub fn ring<'a>(
        &self,
        mut take: impl FnMut(&[u8]) + 'a,
        turn: Option<impl FnMut(&[u8]) + 'a>,
    ) -> Result<RingBuffer<'a>, Error> {
        let mut builder = RingBufferBuilder::new();
        if let Some(mut turn) = turn {
            let taken = builder.add(&self.skel.maps.turns, move |bytes| {
                turn(bytes);
                0
            });
            taken.map_err(Error::bpf("cannot read the ring of the timeline"))?;
        }
        builder
            .add(&self.skel.maps.events, move |bytes| {
                take(bytes);
                0
            })
            .map_err(Error::bpf("cannot read the event ring"))?;
        builder
            .build()
            .map_err(Error::bpf("cannot read the event ring"))
    }

    /// Runs the task iterator over all tasks, or over the processes `only`, if they are given and the kernel can do
    /// that. `dump` gets the ledger of each thread, and at the end the bytes of its histograms.
    ///
    /// # Errors
    /// The iterator cannot be read.
    pub fn iterate_tasks(
        &mut self,
        order: IterOrder,
        only: Option<&[u32]>,
        dump: impl FnMut(IterRecord<'_>),
    ) -> Result<(), Error> {
        let state = self.skel.maps.bss_data.as_deref_mut();
        state.expect("the programs have state").set_iter = order as u32;
        self.tasks.walk(only, dump)
    }

    /// Changes the period of off-CPU stacks.
    pub fn set_period(&mut self, period: Duration) {
        if let Some(data) = self.skel.maps.data_data.as_deref_mut() {
            let before = std::mem::replace(&mut data.set_period, period.as_nanos() as u64);
            let is_new = before != data.set_period;
            if let Some(state) = self.skel.maps.bss_data.as_deref_mut() {
                state.set_phases += u32::from(is_new);
            }
        }
    }

    /// Sets for how long user space may sleep on while new stacks of managed code come in.
    pub fn set_managed_every(&mut self, every: Duration) {
        if let Some(data) = self.skel.maps.data_data.as_deref_mut() {
            data.set_managed_every = every.as_nanos() as u64;
        }
    }

    /// Has the programs send these stacks and resources again when they meet them next.
    pub fn forget_sent(&self, hashes: &[u64]) {
        for hash in hashes {
            // A hash that did not fit is not there.
            let _ = self.skel.maps.seen.delete(&hash.to_ne_bytes());
        }
    }

    /// Changes the length that one interval of a turn must have for the turn to be reported.
    pub fn set_turn_threshold(&mut self, ns: u64) {
        if let Some(state) = self.skel.maps.bss_data.as_deref_mut() {
            state.set_turn_min = ns;
        }
    }

    /// Tells the programs that on-CPU samples come from the software clock, which knows when they were due.
    pub fn use_software_clock(&mut self) {
        if let Some(state) = self.skel.maps.bss_data.as_deref_mut() {
            state.set_clock = 1;
        }
    }

    /// Changes the time that an on-CPU sample stands for, ns. The caller must change the timers.
    pub fn set_cpu_period(&mut self, ns: u64) {
        if let Some(data) = self.skel.maps.data_data.as_deref_mut() {
            data.set_cpu_period = ns;
        }
    }

    /// Tells the programs in how many processes managed frames can be read, and how many VMs the unwinder knows. If
    /// there are none, no program searches for them.
    pub fn set_managed(&mut self, processes: usize, vms: usize) {
        if let Some(state) = self.skel.maps.bss_data.as_deref_mut() {
            state.py_processes = processes as u32;
            state.hs_processes = vms as u32;
        }
    }

    /// Whether, since the last call, the programs have found that their facts about the mappings of a process are
    /// outdated.
    pub fn have_outdated(&mut self) -> bool {
        let now = self
            .skel
            .maps
            .bss_data
            .as_deref()
            .map_or(0, |state| state.uw_outdated);
        std::mem::replace(&mut self.outdated, now) != now
    }

    /// Lets the programs send `ration` stacks as registers and memory (see `session/deferred_unwind.rs`).
    pub fn allow_raw(&mut self, ration: u64) {
        if let Some(data) = self.skel.maps.data_data.as_deref_mut() {
            data.raw_budget = ration;
        }
    }

    /// Puts a connection into the map, with the request that is in flight on it, if any. Returns whether there was
    /// room.
    pub fn put_socket(&self, record: &SocketRecord) -> bool {
        let maps = &self.skel.maps;
        let put = maps.sockets.update(
            &record.cookie.to_ne_bytes(),
            record.as_bytes(),
            MapFlags::NO_EXIST,
        );
        if put.is_err() || record.since == 0 {
            return put.is_ok();
        }
        let key = record.owner.to_ne_bytes();
        let old = maps.in_flight.lookup(&key, MapFlags::ANY).ok().flatten();
        let old = old.and_then(|bytes| OpenRequests::read_from_bytes(&bytes).ok());
        let mut open = old.unwrap_or_default();
        match record.inbound {
            0 => open.awaited += 1,
            _ => open.owed += 1,
        }
        maps.in_flight
            .update(&key, open.as_bytes(), MapFlags::ANY)
            .is_ok()
    }

    /// Tells whether requests were in flight before the recording.
    pub fn set_old_requests(&mut self, n: u32) {
        if let Some(state) = self.skel.maps.bss_data.as_deref_mut() {
            state.set_old_requests = n;
        }
    }

    /// The map of processes with managed code.
    ///
    /// # Errors
    /// It cannot be shared.
    pub fn managed_map(&self) -> Result<MapHandle, Error> {
        let map = &self.skel.maps.py_procs;
        MapHandle::try_from(map).map_err(Error::bpf("cannot share the map of runtimes"))
    }

    /// The maps of the unwinder.
    pub fn maps(&self) -> &skel::WallscopeMaps<'static> {
        &self.skel.maps
    }
}

/// Puts `keys` into `map`, a set of targets of this `kind`.
///
/// # Errors
/// The map is full.
pub(crate) fn name_targets<const N: usize>(
    map: &MapMut<'_>,
    keys: impl Iterator<Item = [u8; N]>,
    kind: &str,
) -> Result<(), Error> {
    for key in keys {
        map.update(&key, &[1], MapFlags::ANY)
            .map_err(Error::bpf(format!("cannot name a target {kind}")))?;
    }
    Ok(())
}
