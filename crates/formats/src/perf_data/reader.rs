//! Records in the order of their time → samples of the recording.

use rustc_hash::FxHashMap;
use wallscope_model::{
    ContextId, EventSource, Limit, Loss, Part, StackEnd, StackId, State, Window,
};

use super::super::import::{About, Amount, Import, SampleTime};
use super::super::perf_event::Meaning;
use super::super::switches::{Left, Switches};
use super::super::{Options, Read, ReadError, Unnamed};
use super::attribute::{flag, sample};
use super::events::{Events, Switch};
use super::file::{File, Identity, c_text, feature};
use super::maps::{self, CpuMode, MappedFile, Processes};
use super::order::Order;
use super::records::{self, Record, Records};
use super::sample::{Sample, Trailer};
use super::sorted::Sorted;
use super::stacks::Stacks;

/// Bit 13 of `misc`: a name comes from an exec, a mapping is of data, a thread leaves its CPU.
const MISC_EXEC: u16 = 1 << 13;
const MISC_DATA: u16 = 1 << 13;
const MISC_SWITCH_OUT: u16 = 1 << 13;
/// The thread that leaves its CPU still wants one.
const MISC_PREEMPTED: u16 = 1 << 14;
/// A mapping has its file's build id in place of the inode.
const MISC_BUILD_ID: u16 = 1 << 14;

/// Reads every record in the order of time.
pub(super) struct Reader<'u, 'f> {
    file: &'f File<'f>,
    order: Order,
    identity: &'f Identity,
    to: Import,
    processes: Processes,
    events: Events,
    stacks: Stacks<'u, 'f>,
    switches: Switches,
    /// Values of counters at the sample before, by event and thread.
    counters: FxHashMap<(u64, u32), u64>,
    last: u64,
    left_out: LeftOut,
    no_frames: Option<StackId>,
}

/// Counts of records that were not read, and of parts that they lack.
#[derive(Default)]
struct LeftOut {
    /// Records for which the kernel had no room.
    lost: u64,
    /// Records that are shorter than their fields.
    damaged: u64,
    /// Records of an event that the file does not describe.
    nameless: u64,
    /// Records of a kind that is newer than this reader.
    unknown: u64,
    /// Blocks of processor trace.
    traces: u64,
}

impl<'u, 'f> Reader<'u, 'f> {
    /// A reader of `file`.
    ///
    /// # Errors
    /// [`ReadError::NoSuchValue`].
    pub(super) fn new(
        file: &'f File<'f>,
        identity: &'f Identity,
        memory: u64,
        options: &mut Options<'u>,
    ) -> Result<Reader<'u, 'f>, ReadError> {
        let build_ids = maps::build_ids(file.feature(feature::BUILD_ID), file.order);
        Ok(Reader {
            file,
            order: file.order,
            identity,
            to: Import::new(memory),
            processes: Processes::new(build_ids),
            events: Events::new(&file.events, options.value.as_deref())?,
            stacks: Stacks::new(file, options.unwind.take()),
            switches: Switches::default(),
            counters: FxHashMap::default(),
            last: 0,
            left_out: LeftOut::default(),
            no_frames: None,
        })
    }

    /// Reads the records.
    pub(super) fn read(&mut self, sorted: &Sorted) -> Result<(), ReadError> {
        let file = self.file;
        for at in sorted.places() {
            if let Some(r) = Records::get(&file.records, at, self.order) {
                self.record(&r)?;
            }
        }
        Ok(())
    }

    fn record(&mut self, r: &Record<'f>) -> Result<(), ReadError> {
        match r.kind {
            records::SAMPLE => return self.sample_record(r),
            records::AUXTRACE => self.left_out.traces += 1,
            1..=records::CALLCHAIN_DEFERRED => {
                let event = self.identity.of_other(r.body, self.order);
                let attribute = &self.file.events[event].attribute;
                let trailer = Trailer::parse(r.body, self.order, attribute);
                if matches!(r.kind, records::SWITCH | records::SWITCH_CPU_WIDE) {
                    return self.switch(r, &trailer);
                }
                if self.sideband(r, &r.body[..trailer.at]).is_none() {
                    self.left_out.damaged += 1;
                }
            }
            _ => self.left_out.unknown += 1,
        }
        Ok(())
    }

    /// Names, forks, mappings, losses; `None` where the record is too short for its fields.
    fn sideband(&mut self, r: &Record, body: &[u8]) -> Option<()> {
        let order = self.order;
        let int = |at: usize| order.int(body, at);
        let long = |at: usize| order.long(body, at);
        match r.kind {
            records::COMM => {
                let name = c_text(body.get(8..)?);
                let (pid, tid) = (int(0)?, int(4)?);
                self.processes.set_name(tid, name);
                if r.misc & MISC_EXEC != 0 {
                    self.processes.exec(pid);
                }
            }
            records::FORK => {
                let (child, parent) = ((int(0)?, int(8)?), (int(4)?, int(12)?));
                self.processes.fork(child, parent);
            }
            records::MMAP if r.misc & MISC_DATA == 0 => {
                let range = (long(8)?, long(16)?, long(24)?);
                let file = MappedFile {
                    path: c_text(body.get(32..)?),
                    build_id: None,
                    mode: CpuMode::of(r.misc),
                };
                self.processes.map(int(0)? as i32, range, file);
            }
            records::MMAP2 => {
                const PROT_EXEC: u32 = 4;
                let mode = CpuMode::of(r.misc);
                let range = (long(8)?, long(16)?, long(24)?);
                let path = c_text(body.get(64..)?);
                let build_id = (r.misc & MISC_BUILD_ID != 0).then(|| {
                    let size = usize::from(body[32]).min(20);
                    maps::hex(&body[36..36 + size])
                });
                if int(56)? & PROT_EXEC != 0 || mode == CpuMode::Kernel {
                    let file = MappedFile {
                        path,
                        build_id,
                        mode,
                    };
                    self.processes.map(int(0)? as i32, range, file);
                }
            }
            records::LOST => self.lose(long(8)?),
            records::LOST_SAMPLES => self.lose(long(0)?),
            _ => {}
        }
        Some(())
    }

    fn lose(&mut self, n: u64) {
        self.left_out.lost = self.left_out.lost.saturating_add(n);
    }

    /// A thread leaves its CPU or gets one.
    fn switch(&mut self, r: &Record, trailer: &Trailer) -> Result<(), ReadError> {
        let (Some(pid), Some(tid), Some(time)) = (trailer.pid, trailer.tid, trailer.time) else {
            return Ok(());
        };
        if !self.events.by_records {
            return Ok(());
        }
        self.last = self.last.max(time);
        if r.misc & MISC_SWITCH_OUT == 0 {
            return self.switches.gets(tid, time, &mut self.to);
        }
        let stack = match self.no_frames {
            Some(s) => s,
            None => *self.no_frames.insert(self.to.stack(&[], StackEnd::Root)?),
        };
        let context = self.context(pid, tid)?;
        let left = match r.misc & MISC_PREEMPTED {
            0 => Left::Blocked,
            _ => Left::Preempted,
        };
        self.switches.leaves(tid, time, (context, stack), left);
        Ok(())
    }

    fn context(&mut self, pid: u32, tid: u32) -> Result<ContextId, ReadError> {
        let name = self.processes.name(tid);
        let process = self.processes.name(pid);
        self.to.context(pid, tid, &name, &process)
    }

    /// Reads a sample: one of its own event, and one of every event of its group for which it has a counter.
    fn sample_record(&mut self, r: &Record<'f>) -> Result<(), ReadError> {
        let Some(event) = self.identity.of_sample(r.body, self.order) else {
            self.left_out.nameless += 1;
            return Ok(());
        };
        let attribute = &self.file.events[event].attribute;
        let off_cpu = self.events.meaning(event) == Meaning::OffCpu && attribute.has(sample::RAW);
        let s = Sample::parse(r.body, self.order, attribute);
        let s = match off_cpu {
            true => s.and_then(|s| s.of_bpf(self.order)),
            false => s,
        };
        let Some(s) = s else {
            self.left_out.damaged += 1;
            return Ok(());
        };
        self.last = self.last.max(s.time.unwrap_or(0));
        let mut stack = None;
        for (event, period) in self.values(event, &s) {
            let value = match self.events.are_counted() {
                true => 1,
                false => self.events.value(event, period),
            };
            self.events.count(event, value);
            if self.events.is_used(event) {
                let known = match stack {
                    Some(known) => known,
                    None => {
                        let (to, layout) = (&mut self.to, (r.misc, attribute.branch));
                        let new = self.stacks.stack(layout, &s, &self.processes, to)?;
                        *stack.insert((new, CpuMode::of(r.misc) == CpuMode::Kernel))
                    }
                };
                self.sample((event, value), &s, known)?;
            }
        }
        Ok(())
    }

    /// The events of a sample, and the number of each since the sample before, as in `perf report`. If the
    /// sample holds counters, the numbers come from them.
    fn values(&mut self, event: usize, s: &Sample) -> Vec<(usize, Option<u64>)> {
        let attribute = &self.file.events[event].attribute;
        let counters = s.counters.iter().filter_map(|c| Some((c.id?, c.value)));
        let mut values = Vec::new();
        for (id, value) in counters {
            let Some(of) = self.identity.of(id) else {
                self.left_out.nameless += 1;
                continue;
            };
            // Counters that children inherit count each thread separately.
            let per_thread = attribute.flags & flag::INHERIT != 0 && attribute.has(sample::TID);
            let thread = if per_thread { s.tid } else { 0 };
            let before = self.counters.insert((id, thread), value).unwrap_or(0);
            let period = value.wrapping_sub(before);
            if period > 0 && !(self.events.are_counted() && of != event) {
                values.push((of, Some(period)));
            }
        }
        if s.counters.iter().all(|c| c.id.is_none()) {
            values.push((event, s.period));
        }
        values
    }

    fn sample(
        &mut self,
        (event, value): (usize, u64),
        s: &Sample,
        (stack, kernel): (StackId, bool),
    ) -> Result<(), ReadError> {
        let context = self.context(s.pid, s.tid)?;
        let meaning = self.events.meaning(event);
        if meaning == Meaning::Switch {
            let (Some(time), Some(switch)) = (s.time, Switch::parse(s.raw, self.order)) else {
                self.left_out.damaged += 1;
                return Ok(());
            };
            if switch.prev == s.tid {
                self.switches
                    .leaves(s.tid, time, (context, stack), switch.left);
            }
            return self.switches.gets(switch.next, time, &mut self.to);
        }
        let on_cpu = meaning == Meaning::Clock || !self.events.is_tracepoint(event);
        let state = match meaning {
            Meaning::OffCpu => State::Blocked,
            _ if on_cpu => State::OnCpu,
            _ => State::Unknown,
        };
        let part = if kernel { Part::Kernel } else { Part::User };
        let kind = SampleTime {
            part: (state == State::OnCpu).then_some(part),
            ..SampleTime::of(state)
        };
        self.to.sample(
            context,
            stack,
            kind,
            Amount::new((1, value), s.time).on(s.cpu),
        )
    }

    /// The recording.
    ///
    /// # Errors
    /// [`ReadError::NoValues`].
    pub(super) fn finish(mut self) -> Result<Read, ReadError> {
        let disorder = self.switches.disorder;
        std::mem::take(&mut self.switches).end(self.last, &mut self.to)?;
        let mut warnings = self.warnings(disorder);
        if self.to.is_empty() {
            return Err(ReadError::NoValues);
        }
        warnings.extend(self.events.warnings());
        self.to.window(Window {
            clock: "CLOCK_MONOTONIC, or as perf record -k says".to_string(),
            ..Window::default()
        });
        let kernel_text = self.processes.kernel_text;
        let about = about(&self.events);
        let mut recording = self.to.finish(about);
        if self.left_out.lost > 0 {
            recording.losses.push(Loss {
                cause: "perf lost records".to_string(),
                count: self.left_out.lost,
            });
        }
        Ok(Read {
            recording,
            warnings,
            unnamed: Some(Unnamed { kernel_text }),
            cut: false,
        })
    }

    /// Warnings about everything that was left out.
    fn warnings(&self, disorder: u64) -> Vec<String> {
        let l = &self.left_out;
        let mut warnings = Vec::new();
        let mut tell = |n: u64, text: &str| {
            if n > 0 {
                warnings.push(format!("{n} {text}"));
            }
        };
        tell(disorder, "switches go back in time, and were left out");
        let damaged = l.damaged + self.stacks.damaged;
        tell(damaged, "records could not be read, and were left out");
        tell(
            l.nameless,
            "samples are of events that the file does not describe, and were left out",
        );
        tell(
            l.unknown,
            "records are of kinds that are newer than this reader, and were left out",
        );
        tell(
            l.traces,
            "blocks of processor trace were left out: perf script --itrace=i reads them",
        );
        warnings.extend(self.stacks.warnings());
        warnings
    }
}

fn about(events: &Events) -> About {
    let mut limits = Vec::new();
    if events.switched() {
        limits.push(Limit {
            what: "blocked time includes the wait for a CPU after it, and why it was blocked is \
                   not known"
                .to_string(),
            remedy: "record with wallscope".to_string(),
        });
    }
    let names: Vec<&str> = events.used().map(|e| e.name.as_str()).collect();
    About {
        tool: "perf".to_string(),
        format: "a perf.data file".to_string(),
        values: format!("samples of {}", names.join(", ")),
        unit: events.unit(),
        limits,
        events: events
            .used()
            .map(|e| EventSource {
                what: match e.meaning {
                    m if m.is_off_cpu() => "time off the CPU",
                    _ => "stacks",
                }
                .to_string(),
                event: e.name.clone(),
                rate: e.rate.clone(),
            })
            .collect(),
        ..About::default()
    }
}
