//! The kernel programs of `bpf/latency.bpf.c`: loading, attaching, reading.
//!
//! Everything is held by descriptors of this process: when it dies, the kernel takes the probes out.

use std::{mem::MaybeUninit, path::Path};

use libbpf_rs::{
    Link, MapCore, MapFlags, OpenObject, ProgramMut, RingBuffer, RingBufferBuilder, TracepointOpts,
    UprobeMultiOpts, UprobeOpts,
    skel::{OpenSkel, SkelBuilder},
};
use wallscope_model::Runnable;
use wallscope_model::calls::{Band, CallBooks, Lengths};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    abi,
    modules::Module,
    plan::{Handler, MAX_JUMPS, Plan, PlannedSite},
};
use crate::{
    Error,
    backend::ebpf::{KernelFeatures, last_complaint, name_targets, note_complaints},
    event::LOSSES,
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
    include!(concat!(env!("OUT_DIR"), "/latency.skel.rs"));
}

/// Size of the map of lock waits: small, as lock waits are not distinguished here.
const LOCKS: u32 = 1024;

/// Settings of the programs, fixed before they start.
pub struct Settings<'a> {
    /// Number of functions.
    pub functions: usize,
    /// Whether calls are timed, not only counted.
    pub timed: bool,
    /// System calls are among them.
    pub syscalls: bool,
    /// Tracepoints are among them.
    pub tracepoints: bool,
    /// Whether only processes that are named as targets count: other processes meet the probes too.
    pub choose: bool,
    /// Block reasons by the kernel's code.
    pub places: &'a Places,
}

/// The loaded programs.
pub struct Programs {
    skel: skel::LatencySkel<'static>,
    links: Vec<Link>,
    multi: bool,
    functions: usize,
    timed: bool,
}

impl Programs {
    /// Loads the programs; nothing is attached yet. There is room for one function more than planned, to
    /// measure the cost of probes.
    ///
    /// # Errors
    /// No privilege, or a kernel too old; the error says which.
    pub fn load(kernel: &KernelFeatures, settings: &Settings<'_>) -> Result<Programs, Error> {
        note_complaints();
        // As for the recorder's object: one leak a measurement buys a type without a self-reference.
        let object: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = skel::LatencySkelBuilder::default()
            .open(object)
            .map_err(Error::bpf("cannot open the kernel programs"))?;
        let functions = settings.functions + 1;
        let sized = |fits: libbpf_rs::Result<()>| fits.map_err(Error::bpf("cannot size a map"));
        let timed = if settings.timed { functions as u32 } else { 1 };
        let maps = &mut open.maps;
        sized(maps.tallies.set_max_entries(functions as u32))?;
        sized(maps.fine.set_max_entries(timed * abi::OCTAVES as u32))?;
        sized(
            maps.coarse
                .set_max_entries(timed * (abi::OCTAVES * abi::COARSE) as u32),
        )?;
        sized(maps.jumps.set_max_entries(MAX_JUMPS as u32))?;
        sized(maps.lock_waits.set_max_entries(LOCKS))?;
        sized(maps.sleeps.set_max_entries(1))?;
        for unused in [&mut maps.cgroups, &mut maps.seen] {
            unused
                .set_autocreate(false)
                .map_err(Error::bpf("cannot leave a map out"))?;
        }
        let rodata = open
            .maps
            .rodata_data
            .as_deref_mut()
            .expect("the programs have settings");
        rodata.cfg_irq_in_clock = u32::from(kernel.clock_leaves_irq_out);
        rodata.cfg_self = std::process::id();
        rodata.cfg_choose = u32::from(settings.choose);
        rodata.cfg_count_only = u32::from(!settings.timed);
        let state = open
            .maps
            .bss_data
            .as_deref_mut()
            .expect("the programs have state");
        state.set_timerfd_read = settings.places.timerfd_read;
        state.set_places = settings.places.ranges.len() as u32;
        for (slot, place) in state.places.iter_mut().zip(&settings.places.ranges) {
            slot.start = place.start;
            slot.size = place.size;
            slot.reason = place.reason as u32;
        }
        let multi = kernel.uprobe_multi;
        for mut program in open.open_object_mut().progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let wanted = match name.as_str() {
                "ws_met" | "ws_returned" => multi && settings.timed,
                "ws_met_single" | "ws_returned_single" => !multi && settings.timed,
                "ws_counted" => multi,
                "ws_counted_single" => !multi,
                "ws_point" => settings.tracepoints,
                "ws_call_enters" => settings.syscalls,
                "ws_call_exits" => settings.syscalls && settings.timed,
                "ws_calls_switch" | "ws_calls_wakeup" => settings.timed,
                _ => true,
            };
            program.set_autoload(wanted);
        }
        let skel = open
            .load()
            .map_err(|e| kernel.explain_load_failure(e, &last_complaint()))?;
        let programs = Programs {
            skel,
            links: Vec::new(),
            multi,
            functions,
            timed: settings.timed,
        };
        programs.fill()?;
        Ok(programs)
    }

    fn fill(&self) -> Result<(), Error> {
        let maps = &self.skel.maps;
        let failed = "cannot fill a table of the kernel programs";
        let calls = syscalls::reasons().into_iter().zip(syscalls::arguments());
        for (number, (reason, argument)) in calls.enumerate() {
            maps.syscall_reason
                .update(
                    &(number as u32).to_ne_bytes(),
                    &[reason, argument],
                    MapFlags::ANY,
                )
                .map_err(Error::bpf(failed))?;
        }
        Ok(())
    }

    /// Gives the programs the plan's system calls, tail calls and indirect jumps.
    ///
    /// # Errors
    /// A map refuses.
    pub fn set_plan(&self, plan: &Plan) -> Result<(), Error> {
        for (number, function) in &plan.syscalls {
            let value = (u32::from(*function) + 1).to_ne_bytes();
            self.skel
                .maps
                .calls_of
                .update(&number.to_ne_bytes(), &value, MapFlags::ANY)
                .map_err(Error::bpf("cannot name a system call"))?;
        }
        for (from, to) in &plan.tail_calls {
            let key = u32::from(*from) << 16 | u32::from(*to);
            (self.skel.maps.tail_calls)
                .update(&key.to_ne_bytes(), &[1], MapFlags::ANY)
                .map_err(Error::bpf("cannot name a tail call"))?;
        }
        for (index, jump) in plan.jumps.iter().enumerate() {
            self.skel
                .maps
                .jumps
                .update(
                    &(index as u32).to_ne_bytes(),
                    jump.as_bytes(),
                    MapFlags::ANY,
                )
                .map_err(Error::bpf("cannot name a jump"))?;
        }
        Ok(())
    }

    /// Names the processes of calls that count.
    ///
    /// # Errors
    /// The map is full.
    pub fn add_targets(&self, pids: &[u32]) -> Result<(), Error> {
        let keys = pids.iter().map(|pid| pid.to_ne_bytes());
        name_targets(&self.skel.maps.targets, keys, "process")
    }

    /// Sets the cost of probes for the thread that meets them, in a row and cold, and the time by which a call
    /// seems longer, ns.
    pub fn set_costs(&mut self, cost: [[u64; 16]; 2], bias: [[u64; 16]; 2]) {
        if let Some(state) = self.skel.maps.bss_data.as_deref_mut() {
            state.set_cost = cost;
            state.set_bias = bias;
        }
    }

    /// Calls that begin from now on count.
    pub fn start(&mut self) {
        self.set_live(1);
    }

    /// Calls that begin from now on do not count.
    pub fn stop(&mut self) {
        self.set_live(0);
    }

    fn set_live(&mut self, live: u32) {
        if let Some(state) = self.skel.maps.bss_data.as_deref_mut() {
            state.set_live = live;
        }
    }

    /// Calls of at least this length, ns, are reported one by one.
    pub fn set_slow(&mut self, ns: u64) {
        if let Some(state) = self.skel.maps.data_data.as_deref_mut() {
            state.set_slow = ns;
        }
    }

    /// Children of targets born so far.
    pub fn forked(&self) -> u64 {
        self.skel.maps.bss_data.as_deref().map_or(0, |d| d.forked)
    }

    /// How often named processes have begun another program so far.
    pub fn execed(&self) -> u64 {
        self.skel.maps.bss_data.as_deref().map_or(0, |d| d.execed)
    }

    /// Attaches the kernel's hooks (switches, births, system calls) and the tracepoints that the user named.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub fn attach_hooks(&mut self, plan: &Plan) -> Result<(), Error> {
        let mut links = Vec::new();
        let progs = &mut self.skel.progs;
        let hooks: [&ProgramMut<'_>; 6] = [
            &progs.ws_calls_switch,
            &progs.ws_calls_wakeup,
            &progs.ws_calls_fork,
            &progs.ws_calls_exec,
            // The hook of exits comes first: a system call that is seen to begin is then seen to end.
            &progs.ws_call_exits,
            &progs.ws_call_enters,
        ];
        for hook in hooks.into_iter().filter(|h| h.autoload()) {
            let name = hook.name().to_string_lossy().into_owned();
            let link = hook
                .attach()
                .map_err(Error::bpf(format!("cannot attach {name}")))?;
            links.push(link);
        }
        for (category, name, cookie) in &plan.tracepoints {
            let opts = TracepointOpts {
                cookie: cookie.pack(),
                ..TracepointOpts::default()
            };
            let link = progs
                .ws_point
                .attach_tracepoint_with_opts(
                    libbpf_rs::TracepointCategory::Custom(category.clone()),
                    name,
                    opts,
                )
                .map_err(|e| no_tracepoint(category, name, &e))?;
            links.push(link);
        }
        self.links.append(&mut links);
        Ok(())
    }

    /// Places probes: those of process `pid`, or of every process that runs the file.
    ///
    /// # Errors
    /// The kernel refuses one.
    pub fn attach(
        &mut self,
        modules: &[Module],
        sites: &[PlannedSite],
        pid: Option<u32>,
    ) -> Result<(), Error> {
        for (index, module) in modules.iter().enumerate() {
            for handler in [Handler::Count, Handler::Return, Handler::Met] {
                let own: Vec<&PlannedSite> = sites
                    .iter()
                    .filter(|s| s.module == index && s.handler == handler)
                    .collect();
                if !own.is_empty() {
                    self.attach_to(&module.reach, &own, handler, pid)?;
                }
            }
        }
        Ok(())
    }

    fn attach_to(
        &mut self,
        path: &Path,
        sites: &[&PlannedSite],
        handler: Handler,
        pid: Option<u32>,
    ) -> Result<(), Error> {
        let pid = pid.map_or(-1, |p| p as i32);
        let progs = &self.skel.progs;
        let program = match (handler, self.multi) {
            (Handler::Count, true) => &progs.ws_counted,
            (Handler::Count, false) => &progs.ws_counted_single,
            (Handler::Met, true) => &progs.ws_met,
            (Handler::Met, false) => &progs.ws_met_single,
            (Handler::Return, true) => &progs.ws_returned,
            (Handler::Return, false) => &progs.ws_returned_single,
        };
        let retprobe = handler == Handler::Return;
        let failed = |e: libbpf_rs::Error| Error::Bpf {
            what: format!("cannot place {} probes in {}", sites.len(), path.display()),
            cause: e,
        };
        if self.multi {
            let with_semaphores = sites.iter().any(|s| s.semaphore != 0);
            let opts = UprobeMultiOpts {
                offsets: sites.iter().map(|s| s.offset as usize).collect(),
                cookies: sites.iter().map(|s| s.cookie.pack()).collect(),
                ref_ctr_offsets: match with_semaphores {
                    true => sites.iter().map(|s| s.semaphore as usize).collect(),
                    false => Vec::new(),
                },
                retprobe,
                ..UprobeMultiOpts::default()
            };
            let link = program
                .attach_uprobe_multi_with_opts(pid, path, "", opts)
                .map_err(failed)?;
            self.links.push(link);
            return Ok(());
        }
        for site in sites {
            let opts = UprobeOpts {
                ref_ctr_offset: site.semaphore as usize,
                cookie: site.cookie.pack(),
                retprobe,
                ..UprobeOpts::default()
            };
            let link = program
                .attach_uprobe_with_opts(pid, path, site.offset as usize, opts)
                .map_err(failed)?;
            self.links.push(link);
        }
        Ok(())
    }

    /// Takes everything out that was placed after there were `kept` links, the last first: taking a
    /// probe out takes the kernel a while, in which the ends of calls with a counted entry must still be seen.
    pub fn detach_to(&mut self, kept: usize) {
        while self.links.len() > kept {
            self.links.pop();
        }
    }

    /// Number of links.
    pub fn attached(&self) -> usize {
        self.links.len()
    }

    /// A reader of the event ring; `take` gets each event's bytes.
    ///
    /// # Errors
    /// The ring cannot be mapped.
    pub fn ring<'a>(&self, mut take: impl FnMut(&[u8]) + 'a) -> Result<RingBuffer<'a>, Error> {
        let failed = "cannot read the event ring";
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.skel.maps.events, move |bytes| {
                take(bytes);
                0
            })
            .map_err(Error::bpf(failed))?;
        builder.build().map_err(Error::bpf(failed))
    }

    /// Number of probes of each kind that threads met, on each CPU.
    pub fn met(&self) -> Vec<abi::Met> {
        let mut all = Vec::new();
        for_each_cpu(&self.skel.maps.probes_met, 0, |bytes| {
            all.extend(abi::Met::read_from_bytes(bytes));
        });
        all
    }

    /// The counts of a function.
    pub fn tally(&self, function: usize) -> abi::Tally {
        let mut sum = abi::Tally::default();
        for_each_cpu(&self.skel.maps.tallies, function as u32, |bytes| {
            if let Ok(t) = abi::Tally::read_from_bytes(bytes) {
                sum.entered += t.entered;
                sum.ended += t.ended;
                sum.by_jump += t.by_jump;
                sum.by_catch += t.by_catch;
                sum.left += t.left;
                sum.begun += t.begun;
                sum.deep += t.deep;
                sum.wall += t.wall;
                sum.longest = sum.longest.max(t.longest);
            }
        });
        sum
    }

    /// The lengths of a function's calls; none where calls are only counted.
    pub fn lengths(&self, function: usize) -> Lengths {
        let mut lengths = Lengths::default();
        if !self.timed {
            return lengths;
        }
        for octave in 0..abi::OCTAVES {
            let key = (function * abi::OCTAVES + octave) as u32;
            for_each_cpu(&self.skel.maps.fine, key, |bytes| {
                for (part, n) in words(bytes).enumerate().filter(|(_, n)| *n > 0) {
                    lengths.add_part(octave, part, n);
                }
            });
        }
        lengths
    }

    /// The ledgers of a function's calls, by length; none where calls are only counted.
    pub fn bands(&self, function: usize) -> Vec<Band> {
        if !self.timed {
            return Vec::new();
        }
        let bands = abi::OCTAVES * abi::COARSE;
        (0..bands)
            .map(|part| {
                let mut band = Band::default();
                let key = (function * bands + part) as u32;
                for_each_cpu(&self.skel.maps.coarse, key, |bytes| {
                    if let Ok(c) = abi::Coarse::read_from_bytes(bytes) {
                        band.add(&Band {
                            count: c.count,
                            wall: c.wall,
                            books: books(&c.books),
                        });
                    }
                });
                band
            })
            .collect()
    }

    /// Slots of functions: the planned ones, and one to measure costs.
    pub fn functions(&self) -> usize {
        self.functions
    }

    /// Losses counted in kernel code, and own run time at switches, ns.
    pub fn losses(&self) -> (Vec<u64>, u64) {
        let mut sums = vec![0u64; LOSSES.len() + 1];
        for_each_cpu(&self.skel.maps.cpus, 0, |bytes| {
            // Before them: irq_ns, irq_begin, depth and measured.
            for (sum, n) in sums.iter_mut().zip(words(bytes).skip(3)) {
                *sum += n;
            }
        });
        let timed = sums.pop().unwrap_or(0);
        (sums, timed)
    }
}

/// Times of calls by state, from the words that the programs write.
pub fn books(words: &[u64; abi::BOOKS]) -> CallBooks {
    let mut books = CallBooks {
        on_cpu: words[0],
        runnable: Runnable {
            woken: words[1],
            preempted: words[2],
            throttled: words[3],
        },
        ..CallBooks::default()
    };
    books.blocked.copy_from_slice(&words[4..]);
    books
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes
        .chunks_exact(8)
        .map(|c| u64::from_ne_bytes(c.try_into().unwrap_or_default()))
}

fn for_each_cpu(map: &impl MapCore, key: u32, mut take: impl FnMut(&[u8])) {
    let values = map.lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY);
    for bytes in values.ok().flatten().unwrap_or_default() {
        take(&bytes);
    }
}

fn no_tracepoint(category: &str, name: &str, error: &libbpf_rs::Error) -> Error {
    let asked = format!("tracepoint:{category}:{name}");
    if error.kind() != libbpf_rs::ErrorKind::NotFound {
        return Error::NotPermitted {
            what: asked,
            why: error.to_string(),
            remedy: "run as root with tracefs mounted at /sys/kernel/tracing".into(),
        };
    }
    Error::NoFunction {
        asked,
        why: "this kernel has no such tracepoint".into(),
        instead: format!("`ls /sys/kernel/tracing/events/{category}` shows those of its category"),
    }
}
