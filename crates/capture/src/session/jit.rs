//! Code made at run time: the perf maps and jitdumps of processes, followed while they are written.
//!
//! A jitdump is found as `perf` finds it: its process maps it executable. A perf map is searched for where a process
//! with code outside all files sees `/tmp`, under its own id for itself. A child has the code of its parent; a new
//! program has no code of the program before. Names are asked for by process, address and *version*: the last change
//! of the meaning of addresses before a sample (see [`wallscope_symbolize::jit`]).

use std::{collections::BTreeMap, fs::File, os::unix::fs::MetadataExt, sync::Arc};

use rustc_hash::FxHashMap;
use wallscope_observe::{CodeChanges, CodeMaker};
use wallscope_procfs::process;
use wallscope_procfs::target_file::{Refusal, TargetRoot};
use wallscope_symbolize::jit::{ClockReading, CodeHistory, JitDump, PerfMap, SourcePosition};

use super::jit_hints::JitRuntime;
use crate::clock::{now, unix_now};

/// Most bytes or records that are read of one file at a time, while samples wait.
const BYTES: usize = 1 << 20;
const RECORDS: usize = 1 << 13;
/// Limits for one file before measuring begins, where a map may have grown for days.
const FIRST_BYTES: usize = 32 << 20;
const FIRST_RECORDS: usize = 1 << 18;
/// Interval between two polls of all files where nothing else happens, ns. Changes between polls are dated by
/// interpolation.
pub const READ_EVERY: u64 = 20_000_000;
/// Shortest interval between two polls of all files, ns.
const SPACING: u64 = 1_000_000;
/// Interval between searches for a missing perf map, ns; and for one that has been missing for long.
const SOON: u64 = 50_000_000;
const LATER: u64 = 1_000_000_000;
/// Number of searches before the longer interval.
const SEARCHES: u32 = 20;
/// Forks in a row that are followed to where code was made.
const GENERATIONS: u32 = 8;
/// Processes in one note.
const EXAMPLES: usize = 4;

/// A file that is being followed.
enum Reader {
    Map(PerfMap),
    Dump(JitDump),
}

/// A file of a process, and the code that it names.
struct Source {
    /// Start of the program that writes it; 0: before the recording.
    since: u64,
    /// The inode, by which it is known again.
    inode: u64,
    dump: bool,
    history: CodeHistory,
    reader: Reader,
    /// Whether more may come.
    open: bool,
}

/// A process with code outside all files.
#[derive(Default)]
struct Process {
    root: Option<Arc<TargetRoot>>,
    sources: Vec<Source>,
    /// When it was born or became another program, ascending.
    begins: Vec<u64>,
    /// The process that its code came from, and when.
    parent: Option<(u32, u64)>,
    /// Runtime that makes its code, if known.
    maker: Option<&'static JitRuntime>,
    /// Whether its perf map is still looked for, when next, and the number of failed searches.
    wants_map: bool,
    next: u64,
    searches: u32,
    /// Times of the changes that have been reported.
    told: Vec<u64>,
    /// Whether the maker of its code has been reported.
    told_maker: bool,
}

/// All processes with code outside all files.
#[derive(Default)]
pub struct Jit {
    processes: FxHashMap<u32, Process>,
    /// When the recording began.
    began: u64,
    /// Time of the last poll of all files, ns.
    last_read_ns: u64,
    /// Perf maps that were not taken: older than their process, or not its user's.
    strange: u64,
    /// Perf maps and jitdumps that exist and were not opened, by cause.
    refusals: BTreeMap<String, u64>,
}

impl Jit {
    /// An empty set.
    pub fn new() -> Jit {
        Jit {
            began: now(),
            ..Jit::default()
        }
    }

    /// Notes that process `pid` has code outside all files mapped. `root` is where the process sees its
    /// files; `maker` is the runtime that makes the code.
    pub fn runs(
        &mut self,
        pid: u32,
        root: Option<&Arc<TargetRoot>>,
        maker: Option<&'static JitRuntime>,
    ) {
        let process = self.processes.entry(pid).or_default();
        let name = |m: Option<&JitRuntime>| m.map(JitRuntime::told);
        process.told_maker &= name(process.maker) == name(maker);
        process.maker = maker;
        process.root = root.cloned();
        let has_map = process.sources.iter().any(|s| s.open && !s.dump);
        if !process.wants_map && !has_map {
            (process.wants_map, process.next, process.searches) = (true, 0, 0);
            self.look_for_map(pid);
        }
    }

    /// Notes that process `pid` has the jitdump `file` mapped.
    pub fn dump(&mut self, pid: u32, file: File) {
        let Ok(meta) = file.metadata() else { return };
        let inode = meta.ino();
        let process = self.processes.entry(pid).or_default();
        let mut open = process.sources.iter().filter(|s| s.open);
        if open.any(|s| s.dump && s.inode == inode) {
            return;
        }
        self.add(pid, inode, Reader::Dump(JitDump::new(file)));
    }

    fn add(&mut self, pid: u32, inode: u64, reader: Reader) {
        let began = self.began;
        let process = self.processes.entry(pid).or_default();
        let mut source = Source {
            since: process.begins.last().copied().unwrap_or(0),
            inode,
            dump: matches!(reader, Reader::Dump(_)),
            history: CodeHistory::new(began),
            reader,
            open: true,
        };
        source.follow(FIRST_BYTES, FIRST_RECORDS);
        process.sources.push(source);
    }

    fn look_for_map(&mut self, pid: u32) {
        let time = now();
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        if !process.wants_map || time < process.next {
            return;
        }
        process.searches += 1;
        process.next = time
            + if process.searches < SEARCHES {
                SOON
            } else {
                LATER
            };
        let Some(root) = &process.root else {
            return;
        };
        let file = match PerfMap::find(pid, root) {
            Ok(Some(file)) => file,
            Ok(None) => return,
            Err(refusal) => {
                process.wants_map = false;
                return self.refuse("perf map", &refusal);
            }
        };
        process.wants_map = false;
        match file.metadata() {
            Ok(meta) if is_of(pid, &meta) => {
                self.add(pid, meta.ino(), Reader::Map(PerfMap::new(file)));
            }
            _ => self.strange += 1,
        }
    }

    /// Counts a file with names of a runtime, a `kind` of file, that exists and was not opened.
    pub fn refuse(&mut self, kind: &str, refusal: &Refusal) {
        let cause = format!("{kind} refused: {refusal}");
        *self.refusals.entry(cause).or_default() += 1;
    }

    /// Process `pid` was born of `parent` at `time`.
    pub fn born(&mut self, pid: u32, parent: u32, time: u64) {
        let known = self.processes.contains_key(&parent);
        if !known && !self.processes.contains_key(&pid) {
            return;
        }
        let process = self.processes.entry(pid).or_default();
        process.close();
        process.begins.push(time);
        process.parent = known.then_some((parent, time));
    }

    /// Process `pid` runs another program since `time`.
    pub fn left(&mut self, pid: u32, time: u64) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.close();
            process.begins.push(time);
        }
    }

    /// Process `pid` is gone. What it said stays, for its stacks.
    pub fn gone(&mut self, pid: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.close();
        }
    }

    /// Reads the entries since the last call. Call it before samples are taken in, so that a change and the
    /// samples that come with it are kept apart.
    pub fn follow(&mut self) {
        let time = now();
        if self.processes.is_empty() || time < self.last_read_ns + SPACING {
            return;
        }
        self.last_read_ns = time;
        let searching = self.processes.iter().filter(|(_, p)| p.wants_map);
        let searching: Vec<u32> = searching.map(|(pid, _)| *pid).collect();
        for pid in searching {
            self.look_for_map(pid);
        }
        for process in self.processes.values_mut() {
            for source in &mut process.sources {
                source.follow(BYTES, RECORDS);
            }
        }
    }

    /// Changes of the code at addresses since this was called last.
    pub fn take_news(&mut self) -> Vec<CodeChanges> {
        let mut news = Vec::new();
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            let changes = self.changes(pid, u64::MAX, GENERATIONS);
            if let Some(process) = self.processes.get_mut(&pid)
                && process.told.len() != changes.len()
            {
                let same = |(old, new): &(&u64, &u64)| old == new;
                let kept = process.told.iter().zip(&changes).take_while(same).count();
                news.push(CodeChanges {
                    pid,
                    kept: kept as u32,
                    times: changes[kept..].to_vec(),
                });
                process.told = changes;
            }
        }
        news
    }

    /// Whether there is a file that is being written.
    pub fn follows(&self) -> bool {
        let mut sources = self.processes.values().flat_map(|p| &p.sources);
        sources.any(|s| s.open)
    }

    /// When addresses of `pid` changed their meaning before `until`.
    fn changes(&self, pid: u32, until: u64, generations: u32) -> Vec<u64> {
        let Some(process) = self.processes.get(&pid) else {
            return Vec::new();
        };
        let mut all = match process.parent {
            Some((parent, time)) if generations > 0 => {
                self.changes(parent, time.min(until), generations - 1)
            }
            _ => Vec::new(),
        };
        let own = process.sources.iter().flat_map(|s| s.history.changes());
        all.extend(own.chain(&process.begins).filter(|c| **c <= until));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The version of the code at addresses of `pid` at `time`.
    pub fn version(&self, pid: u32, time: u64) -> u64 {
        version(&self.changes(pid, time, GENERATIONS), time)
    }

    /// Returns the code at `address` of `pid` in a version.
    pub fn at(&self, pid: u32, address: u64, version: u64) -> Option<SourcePosition> {
        let (mut pid, mut version) = (pid, version);
        for _ in 0..=GENERATIONS {
            let process = self.processes.get(&pid)?;
            if let Some(place) = process.at(address, version) {
                return Some(place);
            }
            // The code that a process inherits at its start is gone with the next program.
            let (parent, time) = process.parent.filter(|p| process.began(version) == p.1)?;
            (pid, version) = (parent, version.min(time));
        }
        None
    }

    /// Returns the runtime that makes the code of `pid`, if known.
    pub fn maker(&self, pid: u32) -> Option<&'static JitRuntime> {
        self.processes.get(&pid)?.maker
    }

    /// Returns the runtimes that make code, for processes not returned before.
    pub fn take_makers(&mut self) -> Vec<CodeMaker> {
        let mut all = Vec::new();
        for (pid, process) in &mut self.processes {
            if let Some(maker) = process.maker
                && !std::mem::replace(&mut process.told_maker, true)
            {
                let (name, remedy) = maker.told();
                all.push(CodeMaker {
                    pid: *pid,
                    maker: Some((name.into(), remedy.into())),
                });
            }
        }
        all
    }

    /// Files that name the code of `pid`, with the number of their entries: `perf map of 12 (340 entries)`.
    pub fn named_by(&self, pid: u32) -> Vec<String> {
        let sources = self.processes.get(&pid).map_or(&[][..], |p| &p.sources);
        let told = |s: &Source| {
            let kind = if s.dump { "jitdump" } else { "perf map" };
            format!("{kind} of {pid} ({} entries)", s.history.len())
        };
        let named = sources.iter().filter(|s| !s.history.is_empty());
        named.map(told).collect()
    }

    /// Notes for the user.
    pub fn notes(&self) -> Vec<String> {
        let mut told: Vec<(u32, String)> = Vec::new();
        let mut unwinding = 0;
        for (pid, process) in &self.processes {
            told.extend(self.named_by(*pid).into_iter().map(|by| (*pid, by)));
            for s in process.sources.iter().filter(|s| !s.history.is_empty()) {
                if let Reader::Dump(dump) = &s.reader {
                    unwinding += dump.unwinding;
                }
            }
        }
        told.sort();
        let more = if told.len() > EXAMPLES { ", …" } else { "" };
        let files: Vec<&str> = told.iter().take(EXAMPLES).map(|t| t.1.as_str()).collect();
        let mut notes = Vec::new();
        if !files.is_empty() {
            notes.push(format!(
                "code made at run time is named as it was at each sample, by what its runtimes wrote \
                 meanwhile: {}{more}",
                files.join(", ")
            ));
        }
        if unwinding > 0 {
            notes.push(format!(
                "jitdumps gave unwinding information for {unwinding} pieces of code, which is not used: \
                 code made at run time is left by its frame pointers"
            ));
        }
        notes
    }

    /// Losses, by cause.
    pub fn losses(&self) -> Vec<(String, u64)> {
        let sources = || self.processes.values().flat_map(|p| &p.sources);
        let mut losses = vec![
            (
                "perf map not used: older than its process, or of another user".to_owned(),
                self.strange,
            ),
            (
                "code made at run time beyond what is kept".to_owned(),
                sources().map(|s| s.history.refused).sum(),
            ),
        ];
        losses.extend(self.refusals.iter().map(|(why, n)| (why.clone(), *n)));
        for source in sources() {
            match &source.reader {
                Reader::Map(map) => {
                    let cause = "lines of a perf map that are no entry".to_owned();
                    losses.push((cause, map.junk));
                }
                Reader::Dump(dump) => losses.extend(
                    dump.problem
                        .iter()
                        .map(|why| (format!("jitdump not read (any more): {why}"), 1)),
                ),
            }
        }
        losses
    }
}

/// The last of `changes`, which ascend, that is not after `time`; 0: none.
pub fn version(changes: &[u64], time: u64) -> u64 {
    let before = changes.partition_point(|c| *c <= time);
    before.checked_sub(1).map_or(0, |i| changes[i])
}

impl Process {
    fn close(&mut self) {
        self.wants_map = false;
        for source in &mut self.sources {
            source.follow(BYTES, RECORDS);
            source.open = false;
        }
    }

    /// When the program began that ran then; 0: before all that is known.
    fn began(&self, version: u64) -> u64 {
        self::version(&self.begins, version)
    }

    fn at(&self, address: u64, version: u64) -> Option<SourcePosition> {
        let began = self.began(version);
        let mut own: Vec<&Source> = self.sources.iter().filter(|s| s.since == began).collect();
        // A dump knows lines and times; missing functions may be in the map.
        own.sort_by_key(|s| !s.dump);
        own.iter().find_map(|s| s.history.at(address, version))
    }
}

impl Source {
    fn follow(&mut self, bytes: usize, records: usize) {
        let time = ClockReading {
            monotonic: now(),
            real: unix_now(),
        };
        if !self.open {
            return;
        }
        let read = match &mut self.reader {
            Reader::Map(map) => map.follow(&mut self.history, time, bytes),
            Reader::Dump(dump) => dump.follow(&mut self.history, time, records),
        };
        self.open = read.is_ok();
    }
}

/// Whether a perf map is one that process `pid` itself may have written: maps stay, and ids come again.
fn is_of(pid: u32, map: &std::fs::Metadata) -> bool {
    /// Unit in which the kernel counts the start of processes, ticks a second.
    const TICKS: u64 = 100;
    /// The start of the machine is known to the second.
    const SLACK: u64 = 2;
    let user = process::status(pid).map_or(map.uid(), |s| s.uid);
    let started = process::stat(pid).map_or(0, |s| s.start_ticks / TICKS);
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec as u64;
    let began = (unix_now() / 1_000_000_000).saturating_sub(up.saturating_sub(started));
    [0, user].contains(&map.uid()) && map.mtime() as u64 + SLACK >= began
}

/// Whether a file of this path is a jitdump, by its name.
pub fn is_dump(path: &str) -> bool {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    let number = name
        .strip_prefix("jit-")
        .and_then(|n| n.strip_suffix(".dump"));
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
#[path = "jit_tests.rs"]
mod tests;
