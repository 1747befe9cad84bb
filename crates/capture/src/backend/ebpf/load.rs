//! Loads the kernel programs, in two threads: most of the time to start is the kernel's verification of them, and it
//! verifies one program on one CPU.
//!
//! A program belongs to one of two objects, which share their maps. Both are made of the same bytes.

use std::{
    ffi::{OsStr, OsString},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    thread,
    time::Duration,
};

use libbpf_rs::{
    AsRawLibbpf, OpenObject, libbpf_sys,
    skel::{OpenSkel, SkelBuilder},
};

use super::{
    given_up::IRQ_HOOKS,
    kernel_features::{KernelFeatures, Mechanism},
    skel::{OpenWallscopeMaps, OpenWallscopeSkel, WallscopeSkel, WallscopeSkelBuilder},
};

/// Settings of the programs, fixed before they start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Blocked or runnable time per stack.
    pub off_cpu_period: Duration,
    /// How user stacks of blocked threads are read.
    pub mechanism: Mechanism,
    /// Every task of the machine.
    pub all: bool,
    /// Sums by state and reason only: no stacks, wakers, requests, or lengths of intervals.
    pub ledger_only: bool,
    /// Bytes of the ring of turns; `None`: turns are not reported.
    pub turn_ring: Option<u32>,
    /// A session in windows: exact waits by lock and lengths by thread are not kept, and maps are as small as an
    /// agent's memory demands.
    pub windows: bool,
    /// Whether stacks are taken at software or hardware events, and at tracepoints.
    pub events: (bool, bool),
}

/// All programs, loaded.
pub(super) struct Halves {
    /// Most programs, and all maps.
    pub(super) skel: WallscopeSkel<'static>,
    pub(super) beside: Beside,
}

/// The programs of [`BESIDE`].
pub(super) struct Beside(pub(super) WallscopeSkel<'static>);

// SAFETY: the skeleton owns its object, and points to nothing of the thread that loaded it. libbpf keeps no state of
// an object by thread; libbpf-rs has its objects `Send` for the same reason.
unsafe impl Send for Beside {}

/// Programs that are loaded in a thread of their own. The kernel verifies them in about the time that it takes for all
/// others.
const BESIDE: &[&str] = &["ws_tasks", "ws_on_cpu", "ws_exit", "ws_waking"];

/// Bytes of the ring of turns if turns are not reported: one page, even if pages are large.
const NO_TURNS: u32 = 1 << 16;
/// Threads that may wait for their stacks to be read, in a session in windows: 1 MiB of buckets instead of 4.
const WINDOW_THREADS: u32 = 1 << 16;
/// Threads of interpreters with a known state, in a session in windows. It is a cache: another thread's state is looked
/// up again.
const WINDOW_PYTHON_THREADS: u32 = 1 << 12;

/// Hooks that say nothing of states and reasons.
const NOT_FOR_THE_LEDGER: &[&str] = &[
    "ws_waking",
    "ws_sent",
    "ws_received",
    "ws_sock_state",
    "ws_fault",
    "ws_timer_set",
    "ws_room",
];

/// Makes maps no larger than these settings need: the kernel allocates the buckets of a hash map at once.
fn size_maps(maps: &mut OpenWallscopeMaps<'_>, settings: &Settings) -> libbpf_rs::Result<()> {
    let turn_ring = settings.turn_ring.unwrap_or(NO_TURNS);
    maps.turns.set_max_entries(turn_ring)?;
    match settings.mechanism {
        // Task work alone needs it.
        Mechanism::Interrupt => maps.later.set_max_entries(1)?,
        Mechanism::TaskWork if settings.windows => maps.later.set_max_entries(WINDOW_THREADS)?,
        Mechanism::TaskWork => {}
    }
    if settings.events == (false, false) {
        maps.event_hits.set_max_entries(1)?;
    }
    if settings.windows {
        maps.lock_waits.set_max_entries(1)?;
        maps.py_threads.set_max_entries(WINDOW_PYTHON_THREADS)?;
    }
    if settings.all {
        maps.targets.set_max_entries(1)?;
        maps.cgroups.set_max_entries(1)?;
    }
    Ok(())
}

/// Opens the programs with their settings, those of [`BESIDE`] or all others. `due`: on-CPU samples ask when they were
/// due.
fn open(
    kernel: &KernelFeatures,
    settings: &Settings,
    due: bool,
    beside: bool,
) -> libbpf_rs::Result<OpenWallscopeSkel<'static>> {
    // The skeleton borrows its object for as long as the programs live, which is until the
    // process ends; one leak a recording buys a type without a self-reference.
    let object: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = WallscopeSkelBuilder::default().open(object)?;
    let rodata = open
        .maps
        .rodata_data
        .as_deref_mut()
        .expect("the programs have settings");
    rodata.cfg_irq_in_clock = u32::from(kernel.clock_leaves_irq_out);
    rodata.cfg_due = u32::from(due);
    rodata.cfg_task_work = u32::from(settings.mechanism == Mechanism::TaskWork);
    rodata.cfg_all = u32::from(settings.all);
    rodata.cfg_self = std::process::id();
    rodata.cfg_timeline = u32::from(settings.turn_ring.is_some());
    rodata.cfg_ledger_only = u32::from(settings.ledger_only);
    rodata.cfg_wakings = u32::from(!settings.ledger_only || kernel.throttles_groups);
    rodata.cfg_by_thread = u32::from(!settings.windows);
    size_maps(&mut open.maps, settings)?;
    let data = open
        .maps
        .data_data
        .as_deref_mut()
        .expect("the programs have state");
    data.set_period = match settings.ledger_only {
        true => 0,
        false => settings.off_cpu_period.as_nanos() as u64,
    };
    for mut program in open.open_object_mut().progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let here = BESIDE.contains(&name.as_str()) == beside;
        if !here || !is_wanted(&name, kernel, settings) || !kernel.has_hook(&name) {
            program.set_autoload(false);
        }
    }
    Ok(open)
}

/// Whether a recording with these settings needs this program.
fn is_wanted(name: &str, kernel: &KernelFeatures, settings: &Settings) -> bool {
    match name {
        // If quotas throttle groups, the waker's hook tells whether a sleeper wakes into a quota that is used up.
        "ws_waking" => !settings.ledger_only || kernel.throttles_groups,
        name if settings.ledger_only && NOT_FOR_THE_LEDGER.contains(&name) => false,
        "ws_event" => settings.events.0,
        "ws_event_point" => settings.events.1,
        "ws_irq_work" => settings.mechanism == Mechanism::Interrupt,
        name => !(IRQ_HOOKS.contains(&name) && kernel.clock_leaves_irq_out),
    }
}

/// Makes the maps, and returns each with its name. The programs stay unloaded.
fn make_maps(open: &mut OpenWallscopeSkel<'static>) -> libbpf_rs::Result<Vec<(OsString, OwnedFd)>> {
    let object = open.open_object_mut();
    // SAFETY: the object is open and not loaded, and no one else holds it.
    let failed = unsafe { libbpf_sys::bpf_object__prepare(object.as_libbpf_object().as_ptr()) };
    if failed < 0 {
        return Err(libbpf_rs::Error::from_raw_os_error(-failed));
    }
    let mut made = Vec::new();
    for map in object.maps() {
        // SAFETY: the map belongs to `object`, which has just made it and keeps it open past this loop.
        let fd = unsafe {
            BorrowedFd::borrow_raw(libbpf_sys::bpf_map__fd(map.as_libbpf_object().as_ptr()))
        };
        made.push((map.name().to_os_string(), fd.try_clone_to_owned()?));
    }
    Ok(made)
}

/// Loads the programs of [`BESIDE`] onto `maps`.
fn load_beside(
    kernel: &KernelFeatures,
    settings: &Settings,
    due: bool,
    maps: &[(OsString, OwnedFd)],
) -> libbpf_rs::Result<Beside> {
    let mut open = open(kernel, settings, due, true)?;
    for mut map in open.open_object_mut().maps_mut() {
        let shared = maps.iter().find(|(name, _)| OsStr::new(map.name()) == name);
        let (_, shared) = shared.expect("both objects are made of the same bytes");
        map.reuse_fd(shared.as_fd())?;
    }
    open.load().map(Beside)
}

/// Loads both halves. `due`: on-CPU samples ask when they were due.
fn load_halves(
    kernel: &KernelFeatures,
    settings: &Settings,
    due: bool,
) -> libbpf_rs::Result<Halves> {
    let mut open = open(kernel, settings, due, false)?;
    let maps = make_maps(&mut open)?;
    thread::scope(|threads| {
        let beside = threads.spawn(|| load_beside(kernel, settings, due, &maps));
        let skel = open.load();
        let beside = beside.join().expect("loading does not panic");
        Ok(Halves {
            skel: skel?,
            beside: beside?,
        })
    })
}

/// Loads the programs; nothing is attached.
///
/// # Errors
/// The kernel refuses a map or a program.
pub(super) fn load(kernel: &KernelFeatures, settings: &Settings) -> libbpf_rs::Result<Halves> {
    // A kernel may have the function and not let timer programs call it: only trying tells.
    match load_halves(kernel, settings, true) {
        Err(_) if !kernel.task_work => load_halves(kernel, settings, false),
        loaded => loaded,
    }
}
