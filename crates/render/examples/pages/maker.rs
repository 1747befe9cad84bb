//! Puts made-up recordings together, frame by frame.

use wallscope_model::*;

/// A small generator (xorshift): the pages are the same on every machine.
pub struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

/// Adds frames, stacks and time to a recording.
pub struct Maker {
    /// What was made so far.
    pub r: Recording,
    /// Random numbers.
    pub dice: Dice,
}

/// In nanoseconds.
pub const SECOND: u64 = 1_000_000_000;

const ON_CPU_PERIOD: u64 = SECOND / 99;
const BLOCKED_PERIOD: u64 = 1_000_000;

/// Time of one kind.
#[derive(Clone, Copy)]
pub struct Time {
    state: State,
    reason: Option<BlockReason>,
    ns: u64,
}

impl Time {
    pub fn on_cpu(ms: u64) -> Time {
        Time::of(State::OnCpu, None, ms)
    }

    pub fn runnable(ms: u64) -> Time {
        Time::of(State::Runnable, None, ms)
    }

    pub fn blocked(reason: BlockReason, ms: u64) -> Time {
        Time::of(State::Blocked, Some(reason), ms)
    }

    fn of(state: State, reason: Option<BlockReason>, ms: u64) -> Time {
        Time {
            state,
            reason,
            ns: ms * 1_000_000,
        }
    }

    /// Of its samples, ns.
    fn period(self) -> u64 {
        match self.state {
            State::OnCpu => ON_CPU_PERIOD,
            _ => BLOCKED_PERIOD,
        }
    }
}

/// The measurement domain of a recording of `target` as root.
fn domain(target: &str) -> Domain {
    Domain {
        unit: Default::default(),
        tool: concat!("wallscope ", env!("CARGO_PKG_VERSION")).into(),
        backend: "ebpf".into(),
        backend_reason: "all of it is allowed here".into(),
        privilege: "root".into(),
        kernel: "6.18.0 x86_64".into(),
        cpus: 2,
        target: target.into(),
        events: vec![
            EventSource {
                what: "on-CPU stacks".into(),
                event: "cpu-clock (software)".into(),
                rate: "99 Hz".into(),
            },
            EventSource {
                what: "blocked stacks".into(),
                event: "sched_switch".into(),
                rate: "every 1 ms of blocked time".into(),
            },
        ],
        columns: [State::OnCpu, State::Runnable, State::Blocked]
            .map(|state| Column {
                state,
                exact: true,
                how: "counted at every switch (sched_switch, sched_wakeup)".into(),
            })
            .into(),
        limits: vec![Limit {
            what: "hardware counters: this machine has none".into(),
            remedy: "record where the CPU's counters are visible".into(),
        }],
        notes: vec!["idle waiting is not told from waiting here".into()],
    }
}

impl Maker {
    pub fn new(target: &str, seconds: u64, width_ns: u64) -> Self {
        let window = Window {
            start_ns: 5 * SECOND,
            end_ns: (5 + seconds) * SECOND,
            clock: "CLOCK_MONOTONIC".into(),
            start_unix_ns: 1_790_000_000 * SECOND,
        };
        let slices = Slices {
            start_ns: 5 * SECOND,
            width_ns,
            count: (seconds * SECOND).div_ceil(width_ns) as u32,
        };
        let domain = domain(target);
        let losses = vec![Loss {
            cause: "stack window ended before the root".into(),
            count: 12,
        }];
        let cost = Cost {
            bpf_ns: 4_100_000,
            displaced_ns: 1_900_000,
            own_cpu_ns: 11_000_000,
            rss_bytes: 31 << 20,
            kernel_bytes: 9 << 20,
            target_stopped_ns: 0,
        };
        let mut r = Recording {
            window,
            slices,
            domain,
            losses,
            cost,
            ..Recording::default()
        };
        for (kind, path) in [
            (ModuleKind::Elf, "/usr/local/bin/shopd"),
            (ModuleKind::Elf, "/usr/lib/x86_64-linux-gnu/libc.so.6"),
            (ModuleKind::Kernel, "[kernel]"),
            (ModuleKind::Elf, "/usr/lib/x86_64-linux-gnu/libssl.so.3"),
        ] {
            r.modules.push(Module {
                kind,
                path: path.into(),
                build_id: "5f3c9a".into(),
                pid: 0,
            });
        }
        Maker {
            r,
            dice: Dice(0x9e37_79b9_7f4a_7c15),
        }
    }

    fn function(&mut self, name: &str, file: &str, line: u32) -> FunctionId {
        let known = self.r.functions.iter().position(|f| &*f.name == name);
        if let Some(i) = known {
            return FunctionId(i as u32);
        }
        self.r.functions.push(Function {
            name: name.into(),
            system_name: name.into(),
            file: file.into(),
            start_line: line,
        });
        FunctionId(self.r.functions.len() as u32 - 1)
    }

    /// A frame from a word: `k:` kernel, `c:` libc, `s:` libssl, `a^b` b inlined into a.
    pub fn frame(&mut self, word: &str) -> FrameId {
        let (kind, module, names) = match word.split_once(':') {
            Some(("k", n)) => (FrameKind::Kernel, 2, n),
            Some(("c", n)) => (FrameKind::Native, 1, n),
            Some(("s", n)) => (FrameKind::Native, 3, n),
            _ => (FrameKind::Native, 0, word),
        };
        let mut lines = Vec::new();
        for name in names.split('^') {
            let hash = name
                .bytes()
                .fold(7u32, |h, b| h.wrapping_mul(31) + u32::from(b))
                % 800;
            let file = if module == 0 { "src/shop.cc" } else { "" };
            let function = self.function(name, file, hash);
            let line = if module == 0 { hash + 3 } else { 0 };
            lines.insert(0, Line { function, line });
        }
        let frame = Frame {
            kind,
            module: Some(ModuleId(module)),
            address: 0x1000 + lines[0].function.0 as u64 * 64,
            lines,
        };
        if let Some(i) = self.r.frames.iter().position(|f| *f == frame) {
            return FrameId(i as u32);
        }
        self.r.frames.push(frame);
        FrameId(self.r.frames.len() as u32 - 1)
    }

    pub fn thread(&mut self, pid: u32, tid: u32, name: &str) -> usize {
        self.r.contexts.push(Context {
            pid,
            tid,
            name: name.into(),
            start_ns: self.r.window.start_ns,
            end_ns: self.r.window.end_ns,
            ledger: Ledger::default(),
        });
        self.r.contexts.len() - 1
    }

    pub fn stack(&mut self, words: &str, end: StackEnd) -> StackId {
        let mut frames: Vec<FrameId> = words.split(' ').map(|w| self.frame(w)).collect();
        frames.reverse();
        self.r.stacks.push(Stack { frames, end });
        StackId(self.r.stacks.len() as u32 - 1)
    }

    /// Gives a thread time in a stack, spread over the slices by `shape`.
    pub fn spend(&mut self, thread: usize, stack: StackId, time: Time, shape: impl Fn(u32) -> u64) {
        let Time { state, reason, ns } = time;
        let period = time.period();
        let n = self.r.slices.count;
        let sum: u64 = (0..n).map(&shape).sum::<u64>().max(1);
        let mut slices = Vec::new();
        let (mut count, mut sampled) = (0, 0);
        for slice in 0..n {
            let exact = ns as u128 * u128::from(shape(slice)) / u128::from(sum);
            let exact = exact as u64;
            if exact == 0 {
                continue;
            }
            self.ledger(thread, slice, Time { ns: exact, ..time });
            let samples = exact / period + u64::from(self.dice.below(period) < exact % period);
            if samples > 0 {
                slices.push(SliceValue {
                    slice,
                    count: samples,
                    ns: samples * period,
                });
                count += samples;
                sampled += samples * period;
            }
        }
        if count == 0 {
            return;
        }
        let part = match state {
            State::Runnable => Some(Part::Woken),
            _ => None,
        };
        self.r.samples.push(Sample {
            context: ContextId(thread as u32),
            stack,
            state,
            reason,
            part,
            idle: false,
            cpu: None,
            labels: None,
            count,
            ns: sampled,
            slices,
        });
    }

    fn ledger(&mut self, thread: usize, slice: u32, time: Time) {
        let Time { state, reason, ns } = time;
        let id = thread as u32;
        let mut row = LedgerSlice {
            context: id,
            slice,
            ..LedgerSlice::default()
        };
        row.add(state, reason, ns);
        self.r.ledger_slices.push(row);
        let l = &mut self.r.contexts[thread].ledger;
        l.wall_ns += ns;
        match (state, reason) {
            (State::OnCpu, _) => {
                l.on_cpu.user += ns * 4 / 5;
                l.on_cpu.kernel += ns - ns * 4 / 5;
            }
            (State::Runnable, _) => {
                l.runnable.woken += ns;
            }
            (_, reason) => {
                let r = reason.unwrap_or(BlockReason::Other) as usize;
                l.blocked[r] += ns;
            }
        }
    }
}
