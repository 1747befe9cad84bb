//! Managed code: which processes hold a runtime, and the names of their functions.
//!
//! A runtime is found in the files that a process has mapped. From then on the kernel programs read
//! managed frames with the native ones; here they get their names, from the process's memory, as
//! soon as a new stack comes in: the process may be gone later. Names are kept by process and
//! address, with a check that tells a new code object at the address of an old one.
//! `remote_interpreter.rs`: the frames themselves, where no kernel program reads them.

mod remote_interpreter;

use std::{
    collections::{BTreeMap, hash_map::Entry},
    sync::Arc,
};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::FrameKind;
use wallscope_unwind::{
    native::FrameWord,
    runtime::{
        Facts, Role, hotspot,
        python::{Code, Miss, abi},
    },
};

use super::{
    found_runtime::FoundRuntime,
    java::Java,
    resources::Locks,
    scripts::Scripts,
    tasks::{self, Subject, TaskSource, Tasks},
    thread_names::ThreadNames,
    unwound::ManagedStack,
};
use crate::target::read_memory;
pub use remote_interpreter::{Interpreted, Reader, Walk};

/// Attempts to read a code object before it is given up.
const TRIES: u8 = 3;

/// A process with a runtime.
struct Space {
    found: FoundRuntime,
    bias: u64,
    proc: abi::Proc,
}

/// Result of naming a code object.
enum Named {
    Code(Arc<Code>),
    Missed(Miss, u8),
}

/// A managed frame's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Word {
    /// Address of the code object.
    pub code: u64,
    /// Tells code objects at one address apart.
    pub check: u32,
    /// Offset of the instruction, bytes.
    pub lasti: i32,
    /// Whether the interpreter was called for it.
    pub entry: bool,
}

impl Word {
    /// The frames of a stack, innermost first.
    pub fn all(words: &[u64]) -> impl Iterator<Item = Word> + '_ {
        words.chunks_exact(2).map(|w| Word {
            code: w[0] & (abi::WORD_ENTRY - 1),
            check: (w[1] >> 32) as u32,
            lasti: w[1] as u32 as i32,
            entry: w[0] & abi::WORD_ENTRY != 0,
        })
    }
}

/// Placeholder for a module body that disappeared before we could read it.
struct ModuleBody(Code);

impl Default for ModuleBody {
    fn default() -> ModuleBody {
        ModuleBody(Code::module_body())
    }
}

/// All processes with runtimes, and the names of their functions.
#[derive(Default)]
pub struct Managed {
    spaces: FxHashMap<u32, Space>,
    codes: FxHashMap<(u32, u64, u32), Named>,
    /// Module bodies that walks have met, by process and check.
    bodies: FxHashSet<(u32, u32)>,
    body: ModuleBody,
    /// Map that the kernel programs read; `None`: there are no kernel programs.
    kernel: Option<MapHandle>,
    /// Processes in `kernel`.
    known: usize,
    /// Processes that the kernel programs could not be told of.
    unheard: u64,
    /// Truncated walks, by the words for their ends.
    cut: BTreeMap<&'static str, u64>,
    refused: BTreeMap<String, u64>,
    /// Java, which has names of another kind.
    pub java: Java,
    /// JavaScript, which has names of another kind, too.
    pub scripts: Scripts,
    /// Names of threads that runtimes keep.
    pub thread_names: ThreadNames,
    /// Poller of tasks; `None`: tasks are not polled.
    tasks: Option<Tasks>,
    /// Processes with polled tasks, and where their program is.
    looked_at: FxHashMap<u32, (FoundRuntime, u64)>,
}

impl Managed {
    /// Polls tasks from now on, within their part of `limit` percent of a CPU.
    pub fn poll_tasks(&mut self, limit: f64) {
        self.tasks = Some(Tasks::start(limit));
    }

    /// Ends the polling of tasks and returns the results. Keeps the names of the functions in them.
    pub fn finish_tasks(&mut self) -> Vec<tasks::PolledTasks> {
        let tasks = self.tasks.take();
        let mut all = tasks.map(|mut t| t.finish()).unwrap_or_default();
        for seen in &mut all {
            let pid = seen.subject.pid;
            match &mut seen.eye {
                TaskSource::Python(tasks) => {
                    for ((code, check), function) in tasks.take_codes() {
                        self.codes.insert((pid, code, check), Named::Code(function));
                    }
                }
                TaskSource::Java(threads) => self.java.adopt(pid, threads.take_names()),
                TaskSource::Go(_) => {}
            }
        }
        all
    }

    fn begin_tasks(&mut self, pid: u32, found: &FoundRuntime, bias: u64, file: u16) {
        let Some(tasks) = &self.tasks else { return };
        if let Some((old, at)) = self.looked_at.get(&pid) {
            let kind = |f: &FoundRuntime| (**f).as_ref().ok().map(std::mem::discriminant);
            // With several runtimes in a process, only the tasks of the first one are polled.
            if kind(old) != kind(found) || (Arc::ptr_eq(old, found) && *at == bias) {
                return;
            }
            tasks.gone(pid);
        }
        self.looked_at.insert(pid, (Arc::clone(found), bias));
        tasks.begin(Subject {
            pid,
            found: Arc::clone(found),
            bias,
            file,
        });
    }

    /// Tells the kernel programs through `map` from now on.
    pub fn tell(&mut self, map: MapHandle) {
        self.kernel = Some(map);
    }

    /// Processes in which managed frames can be read.
    pub fn processes(&self) -> usize {
        self.known
    }

    /// Process `pid` has the runtime `found` mapped, its addresses moved by `bias`; `file` is the
    /// unwinder's id of the file.
    pub fn mapped(&mut self, pid: u32, found: &FoundRuntime, bias: u64, file: u16) {
        self.thread_names.mapped(pid, found, bias);
        let facts = match &**found {
            Ok(Facts::Python(_)) => {
                self.begin_tasks(pid, found, bias, file);
                &**found
            }
            Ok(Facts::Php(_) | Facts::Ruby(_)) => &**found,
            Ok(Facts::HotSpot(_)) => {
                self.begin_tasks(pid, found, bias, file);
                return self.java.mapped(pid, found, bias);
            }
            Ok(Facts::Go(_)) => return self.begin_tasks(pid, found, bias, file),
            Ok(Facts::V8(_)) => return self.scripts.mapped(pid, found, bias),
            Err(refusal) => {
                self.refused.entry(refusal.to_string()).or_insert(1);
                return;
            }
        };
        let told = facts.as_ref().ok().and_then(|f| f.interpreter(bias, file));
        let Some(mut proc) = told else { return };
        if let Some(old) = self.spaces.get(&pid)
            && (old.proc.runtime, old.proc.eval) == (proc.runtime, proc.eval)
            && Arc::ptr_eq(&old.found, found)
        {
            return;
        }
        proc.gil = find_gil(found, &proc, pid).unwrap_or_default();
        let space = Space {
            found: Arc::clone(found),
            bias,
            proc,
        };
        if self.spaces.insert(pid, space).is_none() {
            self.known += 1;
        }
        self.publish(pid);
    }

    fn publish(&mut self, pid: u32) {
        let (Some(map), Some(space)) = (&self.kernel, self.spaces.get(&pid)) else {
            return;
        };
        let told = map.update(&pid.to_ne_bytes(), space.proc.as_bytes(), MapFlags::ANY);
        self.unheard += u64::from(told.is_err());
    }

    /// Process `pid` is gone, or runs something else. What is known of it stays, for its stacks.
    pub fn forget(&mut self, pid: u32) {
        self.java.forget(pid);
        self.scripts.forget(pid);
        self.thread_names.forget(pid);
        if self.looked_at.remove(&pid).is_some()
            && let Some(tasks) = &self.tasks
        {
            tasks.gone(pid);
        }
        if let Some(map) = &self.kernel
            && self.spaces.contains_key(&pid)
        {
            // An exec has removed the entry already, with the same effect.
            let _ = map.delete(&pid.to_ne_bytes());
        }
    }

    /// Reads the names of a stack that has just come in. Returns whether there was one to read.
    pub fn name(&mut self, stack: &ManagedStack) -> bool {
        let pid = stack.pid;
        if let Some(words) = abi::End::from_raw(stack.end).and_then(abi::End::loss_cause) {
            *self.cut.entry(words).or_default() += 1;
        }
        let Some(space) = self.spaces.get_mut(&pid) else {
            return false;
        };
        let Ok(facts) = &*space.found else {
            return false;
        };
        let mut new = false;
        for word in Word::all(&stack.words) {
            let named = self.codes.entry((pid, word.code, word.check));
            let tries = match &named {
                Entry::Vacant(_) => 0,
                Entry::Occupied(o) => match o.get() {
                    Named::Missed(_, tries) if *tries < TRIES => *tries,
                    _ => continue,
                },
            };
            new = true;
            let read = facts.read_code(space.bias, word.code, word.check, reader(pid));
            named.insert_entry(match read {
                Ok(code) => {
                    if code.is_module_body() {
                        self.bodies.insert((pid, word.check));
                    }
                    Named::Code(Arc::new(code))
                }
                Err(miss) => Named::Missed(miss, tries + 1),
            });
        }
        if space.proc.gil == 0
            && let Some(gil) = find_gil(&space.found, &space.proc, pid)
        {
            space.proc.gil = gil;
            self.publish(pid);
        }
        new
    }

    /// Whether the unwinder leaves frames of some process by the data that its VM keeps about them.
    pub fn walks_some(&self) -> bool {
        self.java.has_vms() || self.scripts.has_vms()
    }

    /// Returns the VM of process `pid` for the native unwinder, if the unwinder walks frames of that VM.
    pub fn walked(&self, pid: u32) -> Option<hotspot::abi::Proc> {
        self.java.proc(pid).or_else(|| self.scripts.proc(pid))
    }

    /// Reads the names of frames of VMs, Java's and JavaScript's, in a native stack of `pid`.
    pub fn name_walked(&mut self, words: &[u64], pid: u32) {
        self.scripts.name(words, Some(pid));
        self.java.name(words.iter().copied(), Some(pid));
    }

    /// Whether the innermost method of a named Ruby stack puts its thread to sleep. The kernel sees a timed
    /// wait for a condition variable, as in a wait for a lock.
    pub fn ruby_sleeps(&self, pid: u32, words: &[u64]) -> bool {
        let innermost = Word::all(words).next();
        self.kind(pid) == FrameKind::Ruby
            && innermost
                .and_then(|word| self.code(pid, word))
                .is_some_and(|code| code.name == "Kernel#sleep")
    }

    /// The function of a frame, if it could be read in time.
    pub fn code(&self, pid: u32, word: Word) -> Option<&Code> {
        match self.codes.get(&(pid, word.code, word.check))? {
            Named::Code(code) => Some(code),
            Named::Missed(..) if self.bodies.contains(&(pid, word.check)) => Some(&self.body.0),
            Named::Missed(..) => None,
        }
    }

    /// Kind of the interpreter's frames of process `pid`.
    pub fn kind(&self, pid: u32) -> FrameKind {
        match self.spaces.get(&pid).map(|s| &*s.found) {
            Some(Ok(Facts::Php(_))) => FrameKind::Php,
            Some(Ok(Facts::Ruby(_))) => FrameKind::Ruby,
            _ => FrameKind::Python,
        }
    }

    /// Returns the roles that the frames of a native stack of `pid` have for its runtime.
    pub fn roles(&self, pid: u32, frames: &[FrameWord]) -> Vec<Role> {
        let space = self.spaces.get(&pid);
        let facts = space.and_then(|s| Some((s, s.found.as_ref().as_ref().ok()?)));
        let role = |word: &FrameWord| match facts {
            Some((space, facts)) => role(&space.proc, facts.glue(), *word),
            None => Role::Other,
        };
        let mut roles: Vec<Role> = frames.iter().map(role).collect();
        if facts.is_some() {
            // Code outside all files that calls the interpreter. It is a perf trampoline (`-X perf`; each
            // function has one), or PHP's JIT code of a function that has a frame of its own.
            for i in 1..roles.len() {
                if roles[i - 1] == Role::Interpreter && frames[i].file() == 0 {
                    roles[i] = Role::Glue;
                }
            }
        }
        if let Some((space, Facts::Ruby(_))) = facts {
            of_ruby(&space.proc, frames, &mut roles);
        }
        roles
    }

    /// Runtimes that were found, in words for the user.
    pub fn describe(&self) -> Vec<String> {
        let mut all: Vec<String> = self
            .spaces
            .values()
            .map(|s| &s.found)
            .chain(self.looked_at.values().map(|l| &l.0))
            .filter_map(|f| f.as_ref().as_ref().ok())
            // HotSpot VMs report their version themselves.
            .filter(|f| !matches!(f, Facts::HotSpot(_)))
            .map(Facts::describe)
            .chain(self.java.describe())
            .chain(self.scripts.describe())
            .collect();
        all.sort();
        all.dedup();
        all
    }

    /// Losses of this side, by cause.
    pub fn losses(&self) -> Vec<(String, u64)> {
        let (mut gone, mut changed, mut bodies) = (0, 0, 0);
        for ((pid, _, check), named) in &self.codes {
            match named {
                Named::Missed(..) if self.bodies.contains(&(*pid, *check)) => bodies += 1,
                Named::Missed(Miss::Unreadable, _) => gone += 1,
                Named::Missed(Miss::Changed, _) => changed += 1,
                Named::Code(_) => {}
            }
        }
        let mut losses = vec![
            (
                "function of Python, PHP or Ruby gone before its name was read".to_owned(),
                gone,
            ),
            (
                "function of Python, PHP or Ruby changed before its name was read".to_owned(),
                changed,
            ),
            (
                "Python module gone before its file was read (its frames are <module>)".to_owned(),
                bodies,
            ),
            (
                "runtime of a process not told to the kernel programs".to_owned(),
                self.unheard,
            ),
        ];
        losses.extend(self.java.losses());
        losses.extend(self.scripts.losses());
        losses.extend(self.thread_names.losses());
        losses.extend(self.cut.iter().map(|(cause, n)| ((*cause).to_owned(), *n)));
        losses.extend(
            self.refused
                .iter()
                .map(|(why, n)| (format!("managed frames not read: {why}"), *n)),
        );
        losses
    }
}

impl Locks for Managed {
    fn is_gil(&self, pid: u32, address: u64) -> bool {
        let space = self.spaces.get(&pid);
        space.is_some_and(|s| s.proc.is_gil(address))
    }

    fn monitor_class(&self, pid: u32, address: u64) -> Option<String> {
        self.java.monitor_class(pid, address)
    }
}

/// Finds the GIL of process `pid`; `proc` describes the process's interpreter.
fn find_gil(found: &FoundRuntime, proc: &abi::Proc, pid: u32) -> Option<u64> {
    match &**found {
        Ok(Facts::Python(facts)) => facts.find_gil(proc.runtime, reader(pid)),
        Ok(Facts::Ruby(facts)) => facts.find_gil(proc, reader(pid)),
        _ => None,
    }
}

fn role(proc: &abi::Proc, glue: &[(u64, u64)], word: FrameWord) -> Role {
    let at = u64::from(word.file()) << 48 | word.offset();
    if proc.eval.iter().any(|s| at.wrapping_sub(s.first) < s.bytes) {
        return Role::Interpreter;
    }
    let offset = word.lookup_offset();
    let next = glue.partition_point(|(from, _)| *from <= offset);
    let inside = |(from, bytes): &(u64, u64)| offset - from < *bytes;
    let same_file = u64::from(word.file()) == proc.eval[0].first >> 48;
    if same_file && next > 0 && inside(&glue[next - 1]) {
        return Role::Glue;
    }
    Role::Other
}

/// Marks frames that Ruby shows twice. A call of Ruby's interpreter is a function of its own, which calls the
/// loop, or code that was made of methods. Neither that function nor such code is shown beside the methods.
fn of_ruby(proc: &abi::Proc, frames: &[FrameWord], roles: &mut [Role]) {
    let exec = proc.eval[1];
    let mut inside = false;
    for i in 0..roles.len() {
        let at = u64::from(frames[i].file()) << 48 | frames[i].offset();
        let calls = roles[i] == Role::Interpreter && at.wrapping_sub(exec.first) < exec.bytes;
        if calls && inside {
            roles[i] = Role::Glue;
        }
        inside = roles[i] == Role::Interpreter && !calls;
        if roles[i] == Role::Interpreter {
            let made = frames[..i].iter().rev().take_while(|f| f.file() == 0);
            let made = made.count();
            roles[i - made..i].fill(Role::Glue);
        }
    }
}

/// Reads memory of `pid`, whole or not at all.
fn reader(pid: u32) -> impl FnMut(u64, &mut [u8]) -> bool {
    move |address, to| read_memory(pid, address, to) == to.len()
}
