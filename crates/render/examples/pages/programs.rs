//! The recordings that pages are made of.

use std::sync::Arc;

use wallscope_model::*;

use crate::maker::{Maker, SECOND, Time};

/// How time is spread over the slices of the shop.
#[derive(Clone, Copy)]
enum Spread {
    /// Alike everywhere.
    Even,
    /// More in the first quarter of each second.
    Striped,
    /// More from the twelfth second on.
    Late,
    /// In the first slice only.
    First,
}

impl Spread {
    fn weight(self, slice: u32, slices_a_second: u32) -> u64 {
        match self {
            Spread::Even => 10,
            Spread::Striped => match slice % slices_a_second < slices_a_second.div_ceil(4) {
                true => 30,
                false => 4,
            },
            Spread::Late => match slice / slices_a_second >= 12 {
                true => 25,
                false => 3,
            },
            Spread::First => u64::from(slice == 0),
        }
    }
}

const ROOT: &str = "_start c:__libc_start_main main";
const RUN: &str = "c:clone3 c:start_thread worker_main handle_request";
const ROUTE: &str = "std::_Function_handler<void(shop::Request&),shop::Router::bind<shop::CartHandler,std::allocator<std::pair<std::string_view_const,shop::Price>>>(shop::CartHandler*)::{lambda(shop::Request&)#1}>::_M_invoke";
const LOCK: &str =
    "c:pthread_mutex_lock c:__lll_lock_wait k:entry_SYSCALL_64 k:do_futex k:futex_wait k:schedule";
const RECEIVE: &str = "c:recv k:entry_SYSCALL_64 k:tcp_recvmsg k:sk_wait_data k:schedule";
const NEXT_JOB: &str = "c:clone3 c:start_thread worker_main next_job c:epoll_wait k:entry_SYSCALL_64 k:do_epoll_wait k:schedule";
/// Its root is out of sight.
const LOG_LINE: &str = "log_line c:write k:entry_SYSCALL_64 k:ext4_write k:schedule";

/// A service that is slow for a reason no CPU profile shows.
pub fn shop(width_ns: u64) -> Recording {
    let mut m = Maker::new("pid 4711 (shopd)", 20, width_ns);
    m.r.processes.push(Process {
        pid: 4711,
        parent: 1,
        name: "shopd".into(),
        exe: "/usr/local/bin/shopd".into(),
        cmdline: "shopd --workers 6".into(),
        unattributed_on_cpu_ns: 0,
        folded_threads: 0,
        user: None,
    });
    for i in 0..6 {
        worker(&mut m, i);
    }
    compaction(&mut m);
    main_thread(&mut m);
    // Workers that poll have no request in flight.
    for s in &mut m.r.samples {
        s.idle = s.reason == Some(BlockReason::Poll);
    }
    for c in &mut m.r.contexts {
        c.ledger.idle_ns = c.ledger.blocked[BlockReason::Poll as usize];
    }
    m.r
}

/// Gives thread `t` of the shop its time, by stack.
fn spend(m: &mut Maker, t: usize, times: &[(String, Time, Spread)]) {
    let width_ns = m.r.slices.width_ns;
    let slices_a_second = (SECOND / width_ns).max(1) as u32;
    for (words, time, spread) in times {
        let end = match words == LOG_LINE {
            true => StackEnd::WindowEnd,
            false => StackEnd::Root,
        };
        let stack = m.stack(words, end);
        m.spend(t, stack, *time, |slice| {
            spread.weight(slice, slices_a_second)
        });
    }
}

fn worker(m: &mut Maker, i: u64) {
    use BlockReason as B;
    use Spread::{Even, Late, Striped};
    let t = m.thread(4711, 4720 + i as u32, &format!("worker-{i}"));
    let w = 1 + i % 3;
    let run = |words: &str| format!("{RUN} {words}");
    let page = |words: &str| run(&format!("{ROUTE} render_page{words}"));
    let times = [
        (page("^escape_html"), Time::on_cpu(900 * w), Even),
        (page(" c:memcpy"), Time::on_cpu(210), Even),
        (run("parse_headers^to_lower"), Time::on_cpu(320), Even),
        (page(" c:malloc"), Time::on_cpu(140), Striped),
        (run("s:SSL_read s:aes_gcm_decrypt"), Time::on_cpu(420), Even),
        (
            run("c:read k:entry_SYSCALL_64 k:ksys_read k:copy_to_user"),
            Time::on_cpu(160),
            Even,
        ),
        (
            run("json_encode json_encode json_encode json_encode"),
            Time::on_cpu(260),
            Late,
        ),
        (
            run(&format!("cache_get {LOCK}")),
            Time::blocked(B::Lock, 7_400 - 300 * w),
            Striped,
        ),
        (
            run(&format!("cache_put {LOCK}")),
            Time::blocked(B::Lock, 700),
            Striped,
        ),
        (
            run(&format!("query_upstream {RECEIVE}")),
            Time::blocked(B::Network, 4_300),
            Late,
        ),
        (NEXT_JOB.into(), Time::blocked(B::Poll, 3_000), Even),
        (LOG_LINE.into(), Time::blocked(B::Disk, 37), Even),
        (page(""), Time::runnable(310), Late),
    ];
    spend(m, t, &times);
    let ledger = &mut m.r.contexts[t].ledger;
    ledger.voluntary_switches = 5_000 + 100 * w;
    ledger.involuntary_switches = 120;
    ledger.wall_ns += 9_000;
}

fn compaction(m: &mut Maker) {
    let t = m.thread(4711, 4730, "compaction");
    let run = |words: &str| format!("{ROOT} compaction {words}");
    let times = [
        (
            run("fsync_segment c:fsync k:entry_SYSCALL_64 k:ext4_sync_file k:schedule"),
            Time::blocked(BlockReason::Disk, 11_000),
            Spread::Striped,
        ),
        (run("merge_runs"), Time::on_cpu(2_000), Spread::Striped),
        (
            run("c:nanosleep k:entry_SYSCALL_64 k:hrtimer_nanosleep k:schedule"),
            Time::blocked(BlockReason::Timer, 6_900),
            Spread::Even,
        ),
    ];
    spend(m, t, &times);
}

fn main_thread(m: &mut Maker) {
    let t = m.thread(4711, 4711, "shopd");
    let times = [
        (
            format!("{ROOT} c:accept k:entry_SYSCALL_64 k:inet_accept k:schedule"),
            Time::blocked(BlockReason::Network, 19_900),
            Spread::Even,
        ),
        (
            format!("{ROOT} read_config"),
            Time::on_cpu(2),
            Spread::First,
        ),
    ];
    spend(m, t, &times);
}

fn put_functions(m: &mut Maker, names: u64) {
    for i in 0..names {
        m.r.functions.push(Function {
            name: format!(
                "ns{}::Class{}<int>::method_{i}(char const*)",
                i % 40,
                i % 900
            )
            .into(),
            system_name: "".into(),
            file: "".into(),
            start_line: 0,
        });
        m.r.frames.push(Frame {
            kind: FrameKind::Native,
            module: Some(ModuleId((i % 4) as u32)),
            address: i,
            lines: vec![Line {
                function: FunctionId(i as u32),
                line: 0,
            }],
        });
    }
}

/// Spreads the ledgers evenly over sixty slices.
fn put_slices(m: &mut Maker, threads: u32) {
    for t in 0..threads {
        for slice in 0..60 {
            let of = |blocked: bool| {
                let state = if blocked {
                    State::Blocked
                } else {
                    State::OnCpu
                };
                let l = &m.r.contexts[t as usize].ledger;
                l.state_ns(state) / 60
            };
            let mut row = LedgerSlice {
                context: t,
                slice,
                on_cpu_ns: of(false),
                ..LedgerSlice::default()
            };
            row.blocked[BlockReason::Lock as usize] = of(true);
            m.r.ledger_slices.push(row);
        }
    }
}

/// `n` distinct stacks of about `depth` frames: walks down a random program.
pub fn many(n: usize, depth: usize, threads: usize) -> Recording {
    let mut m = Maker::new(&format!("{n} stacks of depth {depth}"), 60, SECOND);
    let names = 20_000u64;
    put_functions(&mut m, names);
    for t in 0..threads {
        m.thread(1, 10 + t as u32, &format!("worker-{t}"));
    }
    let mut path: Vec<FrameId> = Vec::new();
    for i in 0..n {
        // Like a program: most stacks share all but their last few calls with the one before.
        let keep = match m.dice.below(8) {
            0 => m.dice.below(depth as u64) as usize,
            _ => depth.saturating_sub(1 + m.dice.below(12) as usize),
        };
        path.truncate(keep);
        while path.len() < depth {
            let last = path.last().map_or(7, |f| u64::from(f.0));
            let branch = m.dice.below(6);
            let next = (last * 31 + branch * 977 + path.len() as u64) % names;
            path.push(FrameId(next as u32));
        }
        m.r.stacks.push(Stack {
            frames: path.iter().rev().copied().collect(),
            end: StackEnd::Root,
        });
        let thread = m.dice.below(threads as u64) as u32;
        let slice = m.dice.below(60) as u32;
        let blocked = m.dice.below(3) > 0;
        let count = 1 + m.dice.below(4);
        let ns = count * 10_000_000;
        let l = &mut m.r.contexts[thread as usize].ledger;
        l.wall_ns += ns;
        if blocked {
            l.blocked[BlockReason::Lock as usize] += ns;
        } else {
            l.on_cpu.user += ns;
        }
        m.r.samples.push(Sample {
            context: ContextId(thread),
            stack: StackId(i as u32),
            state: if blocked {
                State::Blocked
            } else {
                State::OnCpu
            },
            reason: blocked.then_some(BlockReason::Lock),
            part: None,
            idle: false,
            cpu: None,
            labels: None,
            count,
            ns,
            slices: vec![SliceValue { slice, count, ns }],
        });
    }
    put_slices(&mut m, threads as u32);
    m.r
}

/// One recursion, thousands deep, beside little else.
pub fn deep(depth: usize) -> Recording {
    let mut m = Maker::new(&format!("recursion {depth} deep"), 10, SECOND / 10);
    let t = m.thread(1, 1, "deep");
    for (cut, ms) in [(depth, 4_000), (depth / 2, 3_000), (depth / 10, 1_000)] {
        let words: Vec<&str> = (0..cut)
            .map(|i| ["descend_left", "descend_right", "visit"][i % 3])
            .collect();
        let id = m.stack(&format!("main {} leaf", words.join(" ")), StackEnd::Root);
        m.spend(t, id, Time::on_cpu(ms), |_| 1);
    }
    m.r
}

/// Names that try to break out.
pub fn hostile() -> Recording {
    let mut m = Maker::new("</title><script>alert('title')</script>", 10, SECOND);
    let long = "x".repeat(100_000);
    let names: Vec<String> = vec![
        "</script><script>globalThis.broken=1</script>".into(),
        "<img/src=x/onerror=globalThis.broken=2>".into(),
        "a\u{0}b\u{1b}[31mred\u{7}\nnew\tline".into(),
        "\u{202e}evil_reversed\u{202c}_name".into(),
        "اسم_الدالة_العربية".into(),
        "関数名→漢字".into(),
        "__proto__".into(),
        "constructor".into(),
        "\u{200b}zero\u{200b}width".into(),
        "{{data}}".into(),
        "${globalThis.broken=3}".into(),
        String::new(),
        long,
        format!("std::map<{}>", "std::pair<int,std::vector<".repeat(400)),
    ];
    let threads = [
        "</td><script>alert(1)</script>",
        "\u{202e}txt.exe",
        "__proto__",
    ];
    for (i, name) in threads.iter().enumerate() {
        let t = m.thread(1, 100 + i as u32, name);
        for (k, name) in names.iter().enumerate() {
            let function = FunctionId(m.r.functions.len() as u32);
            m.r.functions.push(Function {
                name: Arc::from(name.as_str()),
                system_name: "".into(),
                file: "</style>/evil\".c".into(),
                start_line: 7,
            });
            m.r.frames.push(Frame {
                kind: FrameKind::Native,
                module: Some(ModuleId(0)),
                address: (i * 100 + k) as u64,
                lines: vec![Line { function, line: 9 }],
            });
            let main = m.frame("main");
            m.r.stacks.push(Stack {
                frames: vec![FrameId(m.r.frames.len() as u32 - 1), main],
                end: StackEnd::NoMapping,
            });
            let leaf =
                m.r.frames
                    .iter()
                    .rposition(|f| f.lines[0].function == function);
            let stack = StackId(m.r.stacks.len() as u32 - 1);
            m.r.stacks[stack.0 as usize].frames[0] = FrameId(leaf.unwrap_or(0) as u32);
            m.spend(t, stack, Time::on_cpu(500), |_| 1);
        }
    }
    m.r.domain.notes = vec!["<b>bold</b>".into()];
    m.r.losses = vec![Loss {
        cause: "</table><script>".into(),
        count: 3,
    }];
    m.r
}
