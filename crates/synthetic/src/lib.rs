//! Made-up recordings, for tests and examples.
//!
//! [`recording`] is realistic: a service with workers that queue on a lock, with kernel and inlined
//! frames, a truncated stack, a thread too short to be sampled, and a library without symbols.
//! [`any::random`] is an arbitrary valid recording. [`chains`] makes threads that wait for each other,
//! with the true root of each wait. All are seeded, so each run gives equal recordings.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::*;

pub mod any;
pub mod chains;
pub mod windows;

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    /// A number below `n`; 0 where `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }
}

const MS: u64 = 1_000_000;
const START: u64 = 5_000_000_000_000;
const SLICES: u32 = 20;
const WIDTH: u64 = 500 * MS;
/// At 99 Hz.
const ON_CPU_PERIOD: u64 = 10_101_010;

/// Names of functions by module; `~` marks one that is inlined into the next.
const KERNEL: &str = "[kernel]";
const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";
const SERVICE: &str = "/usr/sbin/orders-service";
const STRIPPED: &str = "/opt/vendor/libcodec.so.2";

struct Builder {
    rec: Recording,
    random: Random,
    modules: HashMap<&'static str, ModuleId>,
    functions: HashMap<&'static str, FunctionId>,
    frames: HashMap<(&'static str, &'static str), FrameId>,
    stacks: HashMap<Stack, StackId>,
}

impl Builder {
    fn frame(&mut self, module: &'static str, names: &'static str) -> FrameId {
        if let Some(f) = self.frames.get(&(module, names)) {
            return *f;
        }
        let next = ModuleId(self.rec.modules.len() as u32);
        let id = *self.modules.entry(module).or_insert(next);
        if id == next {
            self.rec.modules.push(Module {
                kind: if module == KERNEL {
                    ModuleKind::Kernel
                } else {
                    ModuleKind::Elf
                },
                path: Arc::from(module),
                build_id: Arc::from(if module == KERNEL { "" } else { "8f2c5e01d3" }),
                pid: 0,
            });
        }
        let address = 0x1000 + 0x37 * self.rec.frames.len() as u64;
        let mut lines = Vec::new();
        for name in names.split('~').filter(|n| !n.is_empty()) {
            let next = FunctionId(self.rec.functions.len() as u32);
            let function = *self.functions.entry(name).or_insert(next);
            if function == next {
                self.rec.functions.push(Function {
                    name: Arc::from(name),
                    system_name: Arc::from(format!("_Z{name}")),
                    file: Arc::from(if module == SERVICE {
                        "src/orders.cc"
                    } else {
                        ""
                    }),
                    start_line: 10,
                });
            }
            let line = if module == SERVICE {
                17 + function.0
            } else {
                0
            };
            lines.push(Line { function, line });
        }
        let frame = FrameId(self.rec.frames.len() as u32);
        self.rec.frames.push(Frame {
            kind: if module == KERNEL {
                FrameKind::Kernel
            } else {
                FrameKind::Native
            },
            module: Some(id),
            address,
            lines,
        });
        self.frames.insert((module, names), frame);
        frame
    }

    /// A stack from `module:function` words, leaf first.
    fn stack(&mut self, frames: &Frames, end: StackEnd) -> StackId {
        let frames = frames.iter().map(|(m, f)| self.frame(m, f)).collect();
        let stack = Stack { frames, end };
        let next = StackId(self.rec.stacks.len() as u32);
        let id = *self.stacks.entry(stack.clone()).or_insert(next);
        if id == next {
            self.rec.stacks.push(stack);
        }
        id
    }

    fn context(&mut self, tid: u32, name: &str, ledger: Ledger) -> ContextId {
        let mut ledger = ledger;
        let known: u64 = State::ALL.iter().map(|s| ledger.state_ns(*s)).sum();
        ledger.wall_ns = known + 4_000;
        ledger.repaired_ns = ledger.wall_ns / 20_000;
        ledger.voluntary_switches = 1 + ledger.blocked_ns() / (3 * MS);
        ledger.involuntary_switches = ledger.runnable.preempted / MS;
        ledger.audit = Audit {
            on_cpu_ns: ledger.on_cpu.total() - ledger.on_cpu.irq,
            run_delay_ns: ledger.runnable.total() + 3_000,
            switches: ledger.voluntary_switches + ledger.involuntary_switches,
            valid: true,
        };
        let id = ContextId(self.rec.contexts.len() as u32);
        self.rec.contexts.push(Context {
            pid: 4711,
            tid,
            name: Arc::from(name),
            start_ns: START,
            end_ns: START + ledger.wall_ns,
            ledger,
        });
        id
    }

    /// About `count` samples, spread over the slices.
    fn sample(&mut self, context: ContextId, stack: StackId, kind: SampleTime, count: u64) {
        let (state, reason, part) = kind;
        let period = match state {
            State::OnCpu => ON_CPU_PERIOD,
            _ => MS,
        };
        let mut slices = Vec::new();
        for slice in 0..SLICES {
            let left = u64::from(SLICES - slice);
            let mean = count / left.max(1).max(u64::from(SLICES));
            let n = (mean / 2 + self.random.below(mean + 2)).min(count);
            if n > 0 {
                let ns = n * period;
                slices.push(SliceValue {
                    slice,
                    count: n,
                    ns,
                });
            }
        }
        if slices.is_empty() {
            slices.push(SliceValue {
                slice: 3,
                count,
                ns: count * period,
            });
        }
        self.rec.samples.push(Sample {
            context,
            stack,
            state,
            reason,
            part,
            idle: false,
            cpu: (state == State::OnCpu).then_some(context.0 % 4),
            labels: None,
            count: slices.iter().map(|s| s.count).sum(),
            ns: slices.iter().map(|s| s.ns).sum(),
            slices,
        });
    }
}

type SampleTime = (State, Option<BlockReason>, Option<Part>);

const USER: SampleTime = (State::OnCpu, None, Some(Part::User));
const IN_KERNEL: SampleTime = (State::OnCpu, None, Some(Part::Kernel));
const WOKEN: SampleTime = (State::Runnable, None, Some(Part::Woken));

fn blocked(reason: BlockReason) -> SampleTime {
    (State::Blocked, Some(reason), None)
}

/// The stacks of the service.
struct Stacks {
    lock: StackId,
    price: StackId,
    parse: StackId,
    codec: StackId,
    write: StackId,
    fsync: StackId,
    waking: StackId,
    accept: StackId,
    /// It ends within the kernel.
    cut: StackId,
}

/// Frames of a stack, leaf first: module and function.
type Frames = [(&'static str, &'static str)];

const WORKER: &Frames = &[
    (
        SERVICE,
        "orders::Worker::handle(std::shared_ptr<orders::Request<std::pair<unsigned long, std::string> > > const&)",
    ),
    (SERVICE, "orders::Worker::run()"),
    (LIBC, "start_thread"),
    (LIBC, "clone3"),
];
const SWITCH: &Frames = &[(KERNEL, "__schedule"), (KERNEL, "schedule")];
const FUTEX: &Frames = &[
    (KERNEL, "futex_wait_queue"),
    (KERNEL, "futex_wait"),
    (KERNEL, "do_futex"),
    (KERNEL, "__x64_sys_futex"),
    (KERNEL, "do_syscall_64"),
];
const MUTEX: &Frames = &[
    (LIBC, "__lll_lock_wait"),
    (LIBC, "pthread_mutex_lock"),
    (
        SERVICE,
        "std::mutex::lock()~orders::Inventory::reserve(long, int)",
    ),
];
const PRICE: &Frames = &[
    (
        SERVICE,
        "std::__detail::_Hash_node<long>::_M_next()~orders::Prices::find(long)",
    ),
    (SERVICE, "orders::Inventory::reserve(long, int)"),
];
const PARSE: &Frames = &[(SERVICE, "orders::parse(std::string_view)")];
const CODEC: &Frames = &[(STRIPPED, ""), (SERVICE, "orders::decode()")];
const WRITE: &Frames = &[
    (KERNEL, "copy_user_generic"),
    (KERNEL, "ext4_file_write_iter"),
    (LIBC, "write"),
];
const FSYNC: &Frames = &[
    (KERNEL, "io_schedule"),
    (KERNEL, "folio_wait_bit"),
    (KERNEL, "ext4_sync_file"),
    (KERNEL, "__x64_sys_fsync"),
    (LIBC, "fsync"),
    (SERVICE, "orders::Journal::commit()"),
];
const ACCEPT: &Frames = &[
    (KERNEL, "ep_poll"),
    (KERNEL, "do_epoll_wait"),
    (LIBC, "epoll_wait"),
    (SERVICE, "orders::Listener::run()"),
    (SERVICE, "main"),
    (LIBC, "__libc_start_main"),
    (SERVICE, "_start"),
];

fn stacks(b: &mut Builder) -> Stacks {
    let mut whole = |parts: &[&Frames]| b.stack(&parts.concat(), StackEnd::Root);
    Stacks {
        lock: whole(&[SWITCH, FUTEX, MUTEX, WORKER]),
        price: whole(&[PRICE, WORKER]),
        parse: whole(&[PARSE, WORKER]),
        codec: whole(&[CODEC, WORKER]),
        write: whole(&[WRITE, WORKER]),
        fsync: whole(&[SWITCH, FSYNC, WORKER]),
        waking: whole(&[SWITCH, WORKER]),
        accept: whole(&[SWITCH, ACCEPT]),
        cut: b.stack(&[SWITCH, FUTEX].concat(), StackEnd::WindowEnd),
    }
}

fn main_thread(b: &mut Builder, stacks: &Stacks) {
    let mut l = Ledger::default();
    l.on_cpu.user = 31 * MS;
    l.on_cpu.kernel = 52 * MS;
    l.runnable.woken = 9 * MS;
    l.blocked[BlockReason::Poll as usize] = 9_908 * MS;
    let c = b.context(4711, "orders-service", l);
    b.sample(c, stacks.accept, blocked(BlockReason::Poll), 9_900);
    b.sample(c, stacks.parse, USER, 8);
}

fn worker(b: &mut Builder, stacks: &Stacks, w: u32) {
    let mut l = Ledger::default();
    l.on_cpu.user = (900 + 37 * u64::from(w % 8)) * MS;
    l.on_cpu.kernel = 120 * MS + 7;
    l.on_cpu.irq = 3 * MS;
    l.runnable.woken = 240 * MS + 1;
    l.runnable.preempted = 12 * MS;
    l.blocked[BlockReason::Lock as usize] = 6_400 * MS + u64::from(w);
    l.blocked[BlockReason::Disk as usize] = 1_800 * MS;
    l.blocked[BlockReason::PageFault as usize] = 2 * MS;
    l.unknown[UnknownCause::LostEvents as usize] = 1_234;
    let c = b.context(4712 + w, &format!("worker-{w}"), l);
    b.sample(c, stacks.price, USER, 62);
    b.sample(c, stacks.parse, USER, 21);
    b.sample(c, stacks.codec, USER, 11);
    b.sample(c, stacks.write, IN_KERNEL, 9);
    b.sample(c, stacks.lock, blocked(BlockReason::Lock), 6_300);
    b.sample(c, stacks.cut, blocked(BlockReason::Lock), 40);
    b.sample(c, stacks.fsync, blocked(BlockReason::Disk), 1_790);
    b.sample(c, stacks.waking, WOKEN, 230);
}

/// A thread too short to be sampled.
fn short_thread(b: &mut Builder) {
    let mut short = Ledger::default();
    short.on_cpu.user = 700_000;
    short.blocked[BlockReason::Network as usize] = 400_000;
    b.context(9000, "resolver", short);
}

/// Spreads each ledger evenly over the slices.
fn ledger_slices(rec: &mut Recording) {
    for (i, c) in rec.contexts.iter().enumerate() {
        for slice in 0..SLICES {
            let n = u64::from(SLICES);
            let mut row = LedgerSlice {
                context: i as u32,
                slice,
                on_cpu_ns: c.ledger.on_cpu.total() / n,
                runnable_ns: c.ledger.runnable.total() / n,
                ..LedgerSlice::default()
            };
            for (to, ns) in row.blocked.iter_mut().zip(c.ledger.blocked) {
                *to = ns / n;
            }
            rec.ledger_slices.push(row);
        }
    }
}

fn host(rec: &mut Recording) {
    for (time, load) in [(START, 1.5), (START + 10_000 * MS, 2.5)] {
        let mut host = HostSample {
            time_ns: time,
            ..HostSample::default()
        };
        host.facts.load = Some([load, 1.0, 0.5]);
        host.facts.psi_io = Some(Pressure {
            some_avg10: 12.5,
            some_total_us: 99,
            ..Pressure::default()
        });
        host.facts.disks.push(DiskFacts {
            name: "vda".to_string(),
            writes: 12,
            ..DiskFacts::default()
        });
        rec.host.push(host);
    }
}

/// The recording, with so many workers.
///
/// ```
/// let recording = wallscope_synthetic::recording(4);
/// assert!(recording.contexts.len() > 4);
/// assert!(recording == wallscope_synthetic::recording(4));
/// ```
pub fn recording(workers: u32) -> Recording {
    let mut b = Builder {
        rec: Recording::default(),
        random: Random(7),
        modules: HashMap::new(),
        functions: HashMap::new(),
        frames: HashMap::new(),
        stacks: HashMap::new(),
    };
    let stacks = stacks(&mut b);
    main_thread(&mut b, &stacks);
    for w in 0..workers {
        worker(&mut b, &stacks, w);
    }
    short_thread(&mut b);

    let mut rec = b.rec;
    rec.window = Window {
        start_ns: START,
        end_ns: START + 10_000 * MS,
        clock: "CLOCK_MONOTONIC".to_string(),
        start_unix_ns: 1_790_000_000_000_000_000,
    };
    rec.slices = Slices {
        start_ns: START,
        width_ns: WIDTH,
        count: SLICES,
    };
    ledger_slices(&mut rec);
    rec.processes.push(Process {
        pid: 4711,
        parent: 1,
        name: Arc::from("orders-service"),
        exe: Arc::from(SERVICE),
        cmdline: Arc::from("orders-service --workers 4"),
        unattributed_on_cpu_ns: 1_500_000,
        folded_threads: 0,
        user: None,
    });
    rec.domain = domain();
    rec.losses = vec![
        Loss {
            cause: "stack cut at the end of the saved window".to_string(),
            count: 40 * u64::from(workers),
        },
        Loss {
            cause: "no symbol for an address in libcodec.so.2".to_string(),
            count: 1,
        },
    ];
    rec.cost = Cost {
        bpf_ns: 21 * MS,
        displaced_ns: 9 * MS,
        own_cpu_ns: 64 * MS,
        rss_bytes: 38 << 20,
        kernel_bytes: 11 << 20,
        target_stopped_ns: 0,
    };
    host(&mut rec);
    rec
}

fn domain() -> Domain {
    let event = |what: &str, event: &str, rate: &str| EventSource {
        what: what.to_string(),
        event: event.to_string(),
        rate: rate.to_string(),
    };
    let column = |state, how: &str| Column {
        state,
        exact: true,
        how: how.to_string(),
    };
    Domain {
        tool: "wallscope 0.1.0".to_string(),
        backend: "ebpf".to_string(),
        backend_reason: "eBPF is allowed here, and sees everything".to_string(),
        privilege: "root".to_string(),
        kernel: "6.18.5 x86_64".to_string(),
        unit: Unit::Nanoseconds,
        cpus: 4,
        target: "pid 4711 (orders-service)".to_string(),
        events: vec![
            event("on-CPU stacks", "cpu-clock (software)", "99 Hz"),
            event(
                "blocked and runnable stacks",
                "sched_switch",
                "every 1 ms of waiting",
            ),
            event("ledger", "sched_switch, sched_wakeup", "each event"),
        ],
        columns: vec![
            column(
                State::OnCpu,
                "each switch, repaired from the kernel's counters",
            ),
            column(State::Runnable, "each switch and wake-up"),
            column(State::Blocked, "each switch and wake-up"),
        ],
        limits: vec![Limit {
            what: "no hardware counters: this virtual machine has none".to_string(),
            remedy: "give the guest a PMU".to_string(),
        }],
        notes: vec![
            "a software clock's samples pile up where interrupts are re-enabled".to_string(),
        ],
    }
}

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
