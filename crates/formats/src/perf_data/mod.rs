//! `perf.data`, as perf 5 to 7 write it → recording.
//!
//! The file says who mapped what, so its addresses become file and offset, as in a recording of
//! wallscope's own; naming them is left to the caller ([`super::Read::unnamed`]). Stacks that were
//! copied whole (`--call-graph dwarf`) are unwound by what the caller gives for it
//! ([`super::Unwind`]); without, they are their innermost frame, and say that they are cut.
//!
//! What events mean is as in [`super::perf_script`]. perf's own context-switch records serve as
//! switches where no `sched_switch` was recorded.

mod events;
mod header;
mod maps;
mod order;
mod records;

use std::io::Cursor;

use linux_perf_data::linux_perf_event_reader::constants::{
    PERF_CONTEXT_KERNEL, PERF_CONTEXT_MAX, PERF_CONTEXT_USER,
};
use linux_perf_data::linux_perf_event_reader::{
    CpuMode, EventRecord, ForkOrExitRecord, Mmap2FileId, Regs, SampleRecord,
};
use linux_perf_data::{Feature, PerfFileReader, PerfFileRecord};
use wallscope_model::{
    ContextId, EventSource, FrameId, Limit, Part, StackEnd, StackId, State, Window,
};

use super::import::{About, Import, Kind};
use super::perf_script::Measures;
use super::source::Source;
use super::switches::Switches;
use super::{Options, RawStack, Read, ReadError, Unnamed, Unwind};
use events::{Events, Switch};
use maps::Processes;
use order::Order;

/// Whether it is a `perf.data` file.
pub(super) fn detect(head: &[u8]) -> bool {
    head.starts_with(b"PERFILE2") || head.starts_with(b"2ELIFREP")
}

fn damaged(what: impl std::fmt::Display) -> ReadError {
    ReadError::Damaged {
        what: what.to_string(),
    }
}

/// Reads a `perf.data` file.
pub(super) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
    let bounds = source.bounds();
    let memory = bounds.memory;
    let mut bytes = source.bytes()?;
    let mut warnings = Vec::new();
    let pipe = header::is_pipe(&bytes);
    let cut = source.cut()
        | match pipe {
            true => header::fit_pipe(&mut bytes, bounds.decompressed)?,
            false => header::fit(&mut bytes, bounds.decompressed)?,
        };
    let (order, file) = (Order::of(&bytes), Cursor::new(&bytes[..]));
    let opened = if pipe {
        read_all(PerfFileReader::parse_pipe(file), order, memory, options)?
    } else {
        read_all(PerfFileReader::parse_file(file), order, memory, options)?
    };
    let (mut read, stopped) = opened;
    read.cut = cut || stopped.is_some();
    if read.cut {
        let why = stopped.map_or(String::new(), |e| format!(" ({e})"));
        warnings.push(format!(
            "the file ends in the middle or is damaged{why}: what came before is used; names of \
             events and build ids come last and may be missing"
        ));
    }
    warnings.append(&mut read.warnings);
    read.warnings = warnings;
    Ok(read)
}

/// Reads every record; with the recording comes why reading stopped, if it did before the end.
fn read_all<R>(
    opened: Result<PerfFileReader<R>, linux_perf_data::Error>,
    order: Order,
    memory: u64,
    options: &mut Options,
) -> Result<(Read, Option<String>), ReadError>
where
    R: std::io::Read,
{
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = opened.map_err(|e| damaged(format!("its header: {e}")))?;
    let mut reader = Reader {
        to: Import::new(memory),
        processes: Processes::default(),
        events: Events::new(perf_file.event_attributes(), options.value.as_deref())?,
        unwind: options.unwind.take(),
        order,
        machine: header::text(perf_file.feature_section_data(Feature::ARCH), order),
        switches: Switches::default(),
        frames: Vec::new(),
        last: 0,
        lost: 0,
        not_unwound: 0,
        odd: 0,
        empty: None,
    };
    for (key, info) in perf_file.build_ids().unwrap_or_default() {
        reader.processes.build_id(key, &info.build_id);
    }
    let mut stopped = None;
    loop {
        match record_iter.next_record(&mut perf_file) {
            Ok(None) => break,
            Err(e) => {
                stopped = Some(e.to_string());
                break;
            }
            Ok(Some(PerfFileRecord::EventRecord { attr_index, record })) => {
                let common = record.common_data().ok();
                match record.parse() {
                    Ok(parsed) => reader.event(attr_index, parsed, common)?,
                    Err(_) => reader.odd += 1,
                }
            }
            Ok(Some(PerfFileRecord::UserRecord(_))) => {}
        }
    }
    let feature = |f| perf_file.feature_section_data(f);
    let release = header::text(feature(Feature::OSRELEASE), order);
    let version = header::text(feature(Feature::VERSION), order);
    let command = header::texts(feature(Feature::CMDLINE), order).join(" ");
    let cpus = header::cpus(feature(Feature::NRCPUS), order);
    let mut read = reader.finish()?;
    let d = &mut read.recording.domain;
    d.tool = format!("perf {version}").trim().to_string();
    d.kernel = release;
    d.cpus = cpus;
    if !command.is_empty() {
        d.notes.push(format!("command: {command}"));
    }
    Ok((read, stopped))
}

struct Reader<'u> {
    to: Import,
    processes: Processes,
    events: Events,
    unwind: Option<&'u mut (dyn Unwind + 'u)>,
    order: Order,
    /// What the file was recorded on, as `uname -m` says it; empty where it does not say.
    machine: String,
    switches: Switches,
    frames: Vec<FrameId>,
    last: u64,
    lost: u64,
    not_unwound: u64,
    odd: u64,
    empty: Option<StackId>,
}

type Common = linux_perf_data::linux_perf_event_reader::CommonData;

impl Reader<'_> {
    fn event(
        &mut self,
        attr: usize,
        record: EventRecord,
        common: Option<Common>,
    ) -> Result<(), ReadError> {
        let id = |n: i32| u32::try_from(n).unwrap_or(0);
        match record {
            EventRecord::Sample(s) => return self.sample(attr, &s),
            EventRecord::Comm(c) => {
                let name = c.name.as_slice();
                let name = String::from_utf8_lossy(&name).into_owned();
                self.processes.comm(id(c.pid), id(c.tid), name, c.is_execve);
            }
            EventRecord::Fork(ForkOrExitRecord {
                pid,
                ppid,
                tid,
                ptid,
                ..
            }) => {
                self.processes
                    .fork((id(pid), id(tid)), (id(ppid), id(ptid)));
            }
            EventRecord::Mmap(m) => {
                let path = m.path.as_slice();
                let path = String::from_utf8_lossy(&path);
                if m.is_executable {
                    let range = (m.address, m.length, m.page_offset);
                    self.processes.map(m.pid, range, &path, None, m.cpu_mode);
                }
            }
            EventRecord::Mmap2(m) => {
                let path = m.path.as_slice();
                let path = String::from_utf8_lossy(&path);
                const PROT_EXEC: u32 = 4;
                if m.protection & PROT_EXEC != 0 || m.cpu_mode == CpuMode::Kernel {
                    let build_id = match &m.file_id {
                        Mmap2FileId::BuildId(id) => Some(maps::hex(id)),
                        Mmap2FileId::InodeAndVersion(_) => None,
                    };
                    let range = (m.address, m.length, m.page_offset);
                    self.processes
                        .map(m.pid, range, &path, build_id, m.cpu_mode);
                }
            }
            EventRecord::Lost(l) => self.lost = self.lost.saturating_add(l.count),
            EventRecord::ContextSwitch(s) if self.events.by_records => {
                let Some(c) = common else { return Ok(()) };
                let (Some(tid), Some(time)) = (c.tid, c.timestamp) else {
                    return Ok(());
                };
                let (pid, tid) = (id(c.pid.unwrap_or(0)), id(tid));
                self.last = self.last.max(time);
                use linux_perf_data::linux_perf_event_reader::{
                    ContextSwitchRecord as Record, TaskWasPreempted,
                };
                match s {
                    Record::In { .. } => self.switches.gets(tid, time, &mut self.to)?,
                    Record::Out { preempted, .. } => {
                        let stack = match self.empty {
                            Some(s) => s,
                            None => *self.empty.insert(self.to.stack(&[], StackEnd::Root)?),
                        };
                        let context = self.context(pid, tid)?;
                        let wants = preempted == TaskWasPreempted::Yes;
                        self.switches.leaves(tid, time, (context, stack), wants);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn context(&mut self, pid: u32, tid: u32) -> Result<ContextId, ReadError> {
        let name = self.processes.name(tid);
        let process = self.processes.name(pid);
        self.to.context(pid, tid, &name, &process)
    }

    fn sample(&mut self, attr: usize, s: &SampleRecord) -> Result<(), ReadError> {
        if !self.events.counts(attr) {
            return Ok(());
        }
        let id = |n: Option<i32>| n.and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        let (pid, tid) = (id(s.pid), id(s.tid));
        self.last = self.last.max(s.timestamp.unwrap_or(0));
        let (stack, kernel) = self.stack(pid, s)?;
        let context = self.context(pid, tid)?;
        let measures = self.events.measures(attr);
        if measures == Measures::Switch {
            let raw = s.raw.map(|r| r.as_slice().into_owned());
            let (Some(time), Some(switch)) =
                (s.timestamp, raw.and_then(|r| Switch::parse(&r, self.order)))
            else {
                self.odd += 1;
                return Ok(());
            };
            if switch.prev == tid {
                self.switches
                    .leaves(tid, time, (context, stack), switch.wants);
            }
            return self.switches.gets(switch.next, time, &mut self.to);
        }
        let on_cpu = measures == Measures::Clock || !self.events.is_tracepoint(attr);
        let kind = Kind {
            part: on_cpu.then_some(if kernel { Part::Kernel } else { Part::User }),
            ..Kind::of(if on_cpu { State::OnCpu } else { State::Unknown })
        };
        let value = self.events.value(attr, s.period);
        self.to
            .sample(context, stack, kind, s.cpu, (1, value), s.timestamp)
    }

    /// The sample's stack, and whether it was in the kernel.
    fn stack(&mut self, pid: u32, s: &SampleRecord) -> Result<(StackId, bool), ReadError> {
        let mut frames = std::mem::take(&mut self.frames);
        frames.clear();
        let mut kernel = s.cpu_mode == CpuMode::Kernel;
        let mut user = false;
        let mut end = StackEnd::Root;
        if let Some(chain) = &s.callchain {
            let mut exact = true;
            for i in 0..chain.len() {
                let Some(address) = chain.get(i) else { break };
                if address >= PERF_CONTEXT_MAX {
                    match address {
                        PERF_CONTEXT_KERNEL => kernel = true,
                        PERF_CONTEXT_USER => {
                            kernel = false;
                            // Here the thread entered the kernel, so it is no return address.
                            exact = true;
                        }
                        _ => {}
                    }
                    continue;
                }
                user |= !kernel;
                let address = address.saturating_sub(u64::from(!exact));
                exact = false;
                frames.push(self.processes.frame(pid, address, kernel, &mut self.to)?);
            }
        }
        let in_kernel = s.cpu_mode == CpuMode::Kernel;
        if let (Some(regs), Some((memory, _))) = (&s.user_regs, &s.user_stack) {
            // The chain holds the kernel's part only: the user's was copied.
            if !user || frames.len() <= 1 {
                if !in_kernel {
                    frames.clear();
                }
                end = self.unwind(pid, (regs, s.ip), &memory.as_slice(), &mut frames)?;
            }
        } else if frames.is_empty()
            && let Some(ip) = s.ip
        {
            frames.push(self.processes.frame(pid, ip, in_kernel, &mut self.to)?);
        }
        let stack = self.to.stack(&frames, end)?;
        self.frames = frames;
        Ok((stack, in_kernel))
    }

    /// Whether the file's registers are those that the unwinder knows.
    fn registers_known(&self) -> bool {
        match &*self.machine {
            "" => self.order == Order::Little,
            machine => machine == "x86_64",
        }
    }

    fn unwind(
        &mut self,
        pid: u32,
        (regs, sampled): (&Regs, Option<u64>),
        memory: &[u8],
        frames: &mut Vec<FrameId>,
    ) -> Result<StackEnd, ReadError> {
        // perf's numbers for rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15: DWARF's order.
        const ORDER: [u64; 16] = [0, 3, 2, 1, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23];
        const IP: u64 = 8;
        if !self.registers_known() {
            self.not_unwound += 1;
            if let Some(ip) = sampled.filter(|_| frames.is_empty()) {
                frames.push(self.processes.frame(pid, ip, false, &mut self.to)?);
            }
            return Ok(StackEnd::NoUnwindInfo);
        }
        let register = |n: u64| regs.get(n);
        let (Some(ip), Some(_)) = (register(IP), register(7)) else {
            self.odd += 1;
            return Ok(StackEnd::Unreadable);
        };
        let general = ORDER.map(|n| register(n).unwrap_or(0));
        let generation = self.processes.generation(pid);
        let Some(unwind) = self.unwind.as_deref_mut() else {
            self.not_unwound += 1;
            frames.push(self.processes.frame(pid, ip, false, &mut self.to)?);
            return Ok(StackEnd::NoUnwindInfo);
        };
        let raw = RawStack {
            process: pid,
            generation,
            mappings: self.processes.mappings(pid),
            ip,
            general,
            memory,
        };
        let (addresses, end) = unwind.unwind(&raw);
        for address in addresses {
            frames.push(self.processes.frame(pid, address, false, &mut self.to)?);
        }
        Ok(end)
    }

    fn finish(mut self) -> Result<Read, ReadError> {
        let mut warnings = Vec::new();
        let disorder = self.switches.disorder;
        std::mem::take(&mut self.switches).end(self.last, &mut self.to)?;
        if disorder > 0 {
            warnings.push(format!(
                "{disorder} switches go back in time, and were left out"
            ));
        }
        if self.odd > 0 {
            warnings.push(format!(
                "{} records could not be read, and were left out",
                self.odd
            ));
        }
        if self.not_unwound > 0 {
            let why = match self.registers_known() {
                true => "this reader was given no unwinder".to_string(),
                false if self.machine.is_empty() => "they are another machine's".to_string(),
                false => format!("they are of {}, and only x86_64 is unwound", self.machine),
            };
            warnings.push(format!(
                "{} stacks were copied and not unwound: {why}",
                self.not_unwound
            ));
        }
        if self.to.is_empty() {
            return Err(ReadError::NoValues);
        }
        self.to.window(Window {
            clock: "CLOCK_MONOTONIC, or as perf record -k says".to_string(),
            ..Window::default()
        });
        let mut limits = Vec::new();
        if self.events.switched() {
            limits.push(Limit {
                what:
                    "blocked time includes the wait for a CPU after it, and why it was blocked is \
                       not known"
                        .to_string(),
                remedy: "record with wallscope".to_string(),
            });
        }
        let kernel_text = self.processes.kernel_text;
        let names = self
            .events
            .used()
            .map(|e| e.name.clone())
            .collect::<Vec<_>>();
        let about = About {
            tool: "perf".to_string(),
            format: "a perf.data file".to_string(),
            values: format!("samples of {}", names.join(", ")),
            unit: self.events.unit(),
            limits,
            notes: self.events.notes(),
            events: self
                .events
                .used()
                .map(|e| EventSource {
                    what: match e.measures {
                        Measures::Switch => "time off the CPU",
                        _ => "stacks",
                    }
                    .to_string(),
                    event: e.name.clone(),
                    rate: e.rate.clone(),
                })
                .collect(),
            ..About::default()
        };
        let mut recording = self.to.finish(about);
        if self.lost > 0 {
            recording.losses.push(wallscope_model::Loss {
                cause: "perf lost records".to_string(),
                count: self.lost,
            });
        }
        Ok(Read {
            recording,
            warnings,
            unnamed: Some(Unnamed { kernel_text }),
            cut: false,
        })
    }
}
