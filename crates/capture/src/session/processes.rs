//! Programs of processes: executable mappings, and the files behind them.
//!
//! A file is opened once, while some process has it mapped, and stays open to the end: for the
//! unwind table now and for its names later, whatever becomes of the file or the process. Mappings
//! come from `/proc/PID/maps` for existing ones, and from the kernel's own records for those made
//! later, so that a process which lives a few milliseconds is known too.

mod code;
mod facts;
mod lives;

use std::{collections::BTreeSet, ffi::OsStr, path::Path, sync::Arc};

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::ModuleId;
use wallscope_procfs::target_file::{Purpose, Refusal, TargetRoot, open_mapped};
use wallscope_procfs::{maps, process};
use wallscope_symbolize::{ModuleSource, Sources};
use wallscope_unwind::native::{KernelTables, TableSink};

use super::{
    address_space::{AddressSpace, facts},
    command,
    deferred_unwind::DeferredUnwinder,
    files::{FileLimits, Files},
    jit::{self, Jit},
    jit_hints::JitRuntime,
    managed::Managed,
    ration::{LOOK_UPS, Ration, TurnPace},
};
use crate::{
    Error,
    backend::ebpf::{
        Programs,
        sideband::{Change, Mapping},
    },
    clock::now,
};

/// Whether a file is, by its name, a runtime that programs of other languages embed. Searching each of hundreds of
/// libraries would cost too much once a runtime has been found.
fn is_embedded(path: &str) -> bool {
    const LIBRARIES: [&str; 3] = ["libjvm.so", "libpython", "libnode.so"];
    let name = path.rsplit('/').next().unwrap_or(path);
    LIBRARIES.iter().any(|l| name.starts_with(l))
}

/// Whether a file is the extension of Python that greenlets are made by, by its name; to 0.4 without `_`.
fn is_greenlet(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.trim_start_matches('_').starts_with("greenlet.") && name.ends_with(".so")
}

/// State of rereading all processes after a lost record of an unknown process.
#[derive(Default)]
struct Again {
    /// When the last such record was lost, ns; 0: none since the last rereading.
    lost_ns: u64,
    /// When that rereading began: it makes up for records lost before.
    read_ns: u64,
    /// Earliest time of the next rereading: rereading may itself make records get lost.
    due_ns: u64,
}

/// Delays of the further readings of a process in which anonymous code took the place of a file's, ns.
const REPLACED_AGAIN: [u64; 6] = [
    2_000_000,
    8_000_000,
    30_000_000,
    100_000_000,
    400_000_000,
    2_000_000_000,
];

/// Rereading may take one part in this many of the time.
const AGAIN_SHARE: u64 = 20;

/// All processes of the recording.
pub struct Processes<S = KernelTables> {
    spaces: FxHashMap<u32, AddressSpace>,
    /// Names of the programs that a process ran before its last one, in order; `None`: the helper that held a
    /// command until it was let go.
    former: FxHashMap<u32, Vec<Option<Arc<str>>>>,
    /// A command that is held.
    held: Option<u32>,
    changed: FxHashSet<u32>,
    /// Processes of which something is known that has not been told yet.
    untold: BTreeSet<u32>,
    /// Processes that have become another program since that was told last.
    untold_programs: BTreeSet<u32>,
    files: Files<S>,
    managed: Managed,
    jit: Jit,
    late: Option<DeferredUnwinder>,
    lost_mappings: u64,
    again: Again,
    /// Processes in which anonymous code took the place of a file's. If a file's code was moved there, the
    /// neighbouring mappings tell the file.
    /// A process may still write such code while it copies it, so it is read again at growing distances. By
    /// process: time of the next reading, ns, and readings so far.
    replaced: FxHashMap<u32, (u64, usize)>,
    programs: ProgramLookups,
    /// Pauses between turns while programs start fast.
    pace: TurnPace,
    /// No stacks are read, so mappings are not needed.
    facts_only: bool,
}

/// Look-ups of the programs of processes, rationed by their cost.
struct ProgramLookups {
    /// Programs that may be looked up now.
    ration: Ration,
    /// Processes of which that is due.
    due: Vec<u32>,
    /// Processes with a program that has not been looked up.
    unread: BTreeSet<u32>,
    /// Processes that ended before their program was looked up.
    never_read: u64,
}

impl Processes<KernelTables> {
    /// No process yet; unwind tables go to the maps of `programs`.
    ///
    /// # Errors
    /// The unwinder's maps cannot be written.
    pub fn new(programs: &Programs, limits: FileLimits) -> Result<Processes, Error> {
        let mut all = Processes::over(Files::new(programs, limits)?);
        all.managed.tell(programs.managed_map()?);
        Ok(all)
    }
}

impl<S: TableSink> Processes<S> {
    /// No process yet; their files are kept in `files`.
    pub fn over(files: Files<S>) -> Processes<S> {
        Processes {
            spaces: FxHashMap::default(),
            former: FxHashMap::default(),
            held: None,
            changed: FxHashSet::default(),
            untold: BTreeSet::new(),
            untold_programs: BTreeSet::new(),
            files,
            managed: Managed::default(),
            jit: Jit::new(),
            late: None,
            lost_mappings: 0,
            again: Again::default(),
            replaced: FxHashMap::default(),
            programs: ProgramLookups {
                ration: LOOK_UPS,
                due: Vec::new(),
                unread: BTreeSet::new(),
                never_read: 0,
            },
            pace: TurnPace::default(),
            facts_only: false,
        }
    }

    /// From now on only the facts of processes are kept: no stack will be read, so that neither
    /// mappings nor files are needed.
    pub fn keep_facts_only(&mut self) {
        self.facts_only = true;
    }

    /// Reads an existing process. One that is gone meanwhile is left out.
    pub fn found(&mut self, pid: u32) {
        self.untold.insert(pid);
        let known = self.spaces.remove(&pid).unwrap_or_default();
        let mut space = AddressSpace {
            facts: facts(pid, ""),
            // Read again, it is still the process that it was.
            threads: known.threads,
            jit: known.jit,
            moved: known.moved,
            ..AddressSpace::default()
        };
        if self.facts_only {
            self.spaces.insert(pid, space);
            return;
        }
        // A leader that has ended before its threads has no address space any more; they do.
        let threads = process::threads(pid).unwrap_or_default();
        let (living, mapped) = std::iter::once(pid)
            .chain(threads)
            .filter_map(|id| Some((id, maps::read(id).ok()?)))
            .find(|(_, mapped)| !mapped.is_empty())
            .unwrap_or((pid, Vec::new()));
        space.root = TargetRoot::of_process(living).ok().map(Arc::new);
        let mut copies = Vec::new();
        for m in mapped.into_iter().filter(|m| m.execute) {
            let (is_moved, may_be_copy) = (m.moved, m.is_anonymous_code());
            let mapping = Mapping {
                pid,
                start: m.start,
                end: m.end,
                offset: m.offset,
                device: rustix::fs::makedev(m.device.0, m.device.1),
                inode: m.inode,
                path: m.path,
            };
            space.map(&mapping, &mut self.files);
            if is_moved {
                space.is_moved(mapping.start);
            } else if may_be_copy {
                copies.push(mapping.start);
            }
            self.jit_file(&mapping, space.root.as_ref());
        }
        for start in copies {
            space.name_copy(pid, start, &mut self.files);
        }
        self.spaces.insert(pid, space);
        self.changed.insert(pid);
        self.settle(&mut || ());
    }

    /// Follows a jitdump, which a runtime maps only so that profilers find it.
    fn jit_file(&mut self, m: &Mapping, root: Option<&Arc<TargetRoot>>) {
        if !jit::is_dump(&m.path) {
            return;
        }
        let opened = open_mapped(&m.file(), root.map(|r| &**r)).and_then(|file| {
            let accepted = root.map(|r| r.accepts(&file, Purpose::RuntimeNames));
            accepted.unwrap_or(Err(Refusal::RightsNotTaken))?;
            Ok(file)
        });
        match opened {
            Ok(file) => self.jit.dump(m.pid, file),
            Err(refusal) => self.jit.refuse("jitdump", &refusal),
        }
    }

    /// Builds tables of the files that a command will map before it is started: the program, its interpreter
    /// and the libraries it names, as far as they can be found.
    pub fn prepare_command(&mut self, pid: u32, command: &OsStr) {
        self.held = Some(pid);
        if self.facts_only {
            return;
        }
        for path in command::files_of(command) {
            self.files.prepare(&path, pid);
        }
        // The preparation replaced the mappings of the process: they are restored.
        self.changed.insert(pid);
        self.settle(&mut || ());
    }

    /// A mapping was made, or an exec voided all of them, at `time`. Strangers' are ignored.
    pub fn change(&mut self, time: u64, change: Change) {
        match change {
            Change::Map(_) if self.facts_only => {}
            Change::Map(m) => {
                // Files are opened and followed with the rights of the process.
                if self.programs.unread.contains(&m.pid) && !self.files.is_known(&m) {
                    self.read_program(m.pid);
                }
                if let Some(space) = self.spaces.get_mut(&m.pid) {
                    if space.facts.exe.is_empty() && m.path.starts_with('/') {
                        space.facts.exe = m.path.as_str().into();
                    }
                    if maps::is_memory(&m.path) && space.is_code_of_a_file(m.start, m.end) {
                        self.replaced.insert(m.pid, (0, 0));
                        return;
                    }
                    space.map(&m, &mut self.files);
                    let root = space.root.clone();
                    self.changed.insert(m.pid);
                    self.jit_file(&m, root.as_ref());
                }
            }
            Change::Exec { pid } => {
                if let Some(space) = self.spaces.get_mut(&pid) {
                    space.clear();
                    space.jit.clear();
                    space.facts.exe = "".into();
                    space.moved.clear();
                    self.managed.forget(pid);
                    self.changed.insert(pid);
                }
            }
            Change::Lost(n) => {
                self.lost_mappings += n;
                if time > self.again.read_ns {
                    self.again.lost_ns = time;
                }
            }
        }
    }

    /// Reads every living process again after a loss, if it is time to.
    fn read_again(&mut self) {
        let begin = now();
        if self.again.lost_ns == 0 || begin < self.again.due_ns {
            return;
        }
        (self.again.lost_ns, self.again.read_ns) = (0, begin);
        let living = self.spaces.iter().filter(|(_, space)| !space.ended);
        let pids: Vec<u32> = living.map(|(pid, _)| *pid).collect();
        for pid in pids {
            if Path::new(&format!("/proc/{pid}")).exists() {
                self.found(pid);
            }
        }
        let end = now();
        self.again.due_ns = end + AGAIN_SHARE * (end - begin);
    }

    /// Reads those processes again in which the kernel programs have found other mappings than they were
    /// told.
    pub fn read_outdated(&mut self) {
        for pid in self.files.outdated() {
            if self.spaces.get(&pid).is_some_and(|space| !space.ended) {
                self.found(pid);
            }
        }
    }

    /// Reads the processes again in which anonymous code took the place of a file's.
    fn read_replaced(&mut self) {
        if self.replaced.is_empty() {
            return;
        }
        let time = now();
        let due = self.replaced.iter().filter(|(_, (at, _))| *at <= time);
        let due: Vec<u32> = due.map(|(pid, _)| *pid).collect();
        for pid in due {
            let readings = self
                .replaced
                .remove(&pid)
                .map_or(0, |(_, readings)| readings);
            if let Some(after) = REPLACED_AGAIN.get(readings) {
                self.replaced.insert(pid, (time + after, readings + 1));
            }
            if self.spaces.get(&pid).is_some_and(|space| !space.ended) {
                self.found(pid);
            }
        }
    }

    /// Hands changed mappings to the kernel side. `meanwhile`: work that cannot wait until that is done.
    pub fn settle(&mut self, meanwhile: &mut dyn FnMut()) {
        self.read_due();
        self.read_again();
        self.read_replaced();
        for pid in std::mem::take(&mut self.changed) {
            let Some(space) = self.spaces.get(&pid) else {
                continue;
            };
            if !space.ended {
                self.files.install(pid, &space.mappings, meanwhile);
            }
            if space.mappings.values().any(|m| m.file.is_none()) {
                let files = space.mappings.values().filter_map(|m| m.file);
                let paths = files.map(|index| self.files.path(index));
                let maker = JitRuntime::among(paths);
                self.jit.runs(pid, space.root.as_ref(), maker);
            }
            if !space.ended {
                self.find_runtimes(pid);
            }
        }
        let java = &mut self.managed.java;
        java.poll();
        for (pid, vm) in java.take_news() {
            java.unheard += u64::from(!self.files.set_hotspot(pid, &vm));
        }
        let scripts = &mut self.managed.scripts;
        for (pid, vm) in scripts.take_news() {
            scripts.unheard += u64::from(!self.files.set_hotspot(pid, &vm));
        }
    }

    /// Finds the runtimes in the mappings of a process, one of each kind: programs embed runtimes of other languages.
    fn find_runtimes(&mut self, pid: u32) {
        let Some(space) = self.spaces.get(&pid) else {
            return;
        };
        let mut kinds = Vec::new();
        for (start, m) in &space.mappings {
            let Some(index) = m.file else { continue };
            if !kinds.is_empty() && !is_embedded(self.files.path(index)) {
                continue;
            }
            // A copy lies elsewhere than the file's data.
            if space.moved_from(*start).is_some() {
                continue;
            }
            if let Some(found) = self.files.runtime(index)
                && let kind = (*found).as_ref().ok().map(std::mem::discriminant)
                && !kinds.contains(&kind)
                && let Some((bias, id)) = self.files.placed(index, *start, m.offset)
            {
                self.managed.mapped(pid, &found, bias, id);
                kinds.push(kind);
            }
        }
    }

    /// VMs that the unwinder has been told of, so far.
    pub fn vms(&self) -> usize {
        self.files.vms()
    }

    /// Managed code.
    pub fn managed(&self) -> &Managed {
        &self.managed
    }

    /// Managed code, to name its functions.
    pub fn managed_mut(&mut self) -> &mut Managed {
        &mut self.managed
    }

    /// Code made at run time.
    pub fn jit(&self) -> &Jit {
        &self.jit
    }

    /// Code made at run time, to follow the files that its runtimes write.
    pub fn jit_mut(&mut self) -> &mut Jit {
        &mut self.jit
    }

    /// Returns the sources of a symboliser. `jit`: modules of code made at run time, which have their names in
    /// files that their processes wrote.
    pub fn into_sources(self, jit: &[(ModuleId, u32)]) -> Sources {
        let Processes { files, spaces, .. } = self;
        with_jit(files.into_sources(), &spaces, jit)
    }

    /// Returns the sources of a symboliser for `modules` alone, while measuring goes on.
    pub fn sources_of(&mut self, modules: &[ModuleId], jit: &[(ModuleId, u32)]) -> Sources {
        self.find_closed(modules);
        with_jit(self.files.sources_of(modules), &self.spaces, jit)
    }
}

fn with_jit(
    mut sources: Sources,
    spaces: &FxHashMap<u32, AddressSpace>,
    jit: &[(ModuleId, u32)],
) -> Sources {
    for (module, pid) in jit {
        let root = spaces.get(pid).and_then(|s| s.root.clone());
        sources.modules.insert(
            *module,
            ModuleSource {
                pid: *pid,
                root,
                ..ModuleSource::default()
            },
        );
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greenlets_extension_is_known_by_its_name() {
        let path =
            "/venv/lib/python3.11/site-packages/greenlet/_greenlet.cpython-311-x86_64-linux-gnu.so";
        assert!(is_greenlet(path));
        assert!(is_greenlet("/lib/greenlet.cpython-38-x86_64-linux-gnu.so"));
        // A module beside it, that uses them.
        assert!(!is_greenlet(
            "/gevent/_gevent_cgreenlet.cpython-311-x86_64-linux-gnu.so"
        ));
        assert!(!is_greenlet("/lib/libgreenlet_notes.txt"));
    }
}
