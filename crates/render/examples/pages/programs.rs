//! The recordings that pages are made of.

use std::sync::Arc;

use wallscope_model::*;

use crate::maker::{Maker, SECOND};

const ON_CPU_PERIOD: u64 = SECOND / 99;
const BLOCKED_PERIOD: u64 = 1_000_000;

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
        user: None,
    });
    let per_second = (SECOND / width_ns).max(1) as u32;
    let even = |_: u32| 10;
    let stripe = move |s: u32| {
        if s % per_second < per_second.div_ceil(4) {
            30
        } else {
            4
        }
    };
    let late = move |s: u32| if s / per_second >= 12 { 25 } else { 3 };
    let root = "_start c:__libc_start_main main";
    let run = "c:clone3 c:start_thread worker_main handle_request";
    let std_fn = "std::_Function_handler<void(shop::Request&),shop::Router::bind<shop::CartHandler,std::allocator<std::pair<std::string_view_const,shop::Price>>>(shop::CartHandler*)::{lambda(shop::Request&)#1}>::_M_invoke";
    for i in 0..6usize {
        let t = m.thread(4711, 4720 + i as u32, &format!("worker-{i}"));
        let w = 1 + i as u64 % 3;
        let spend = |m: &mut Maker, s: &str, st, r, ms: u64, shape: &dyn Fn(u32) -> u64| {
            let end = if ms == 37 {
                StackEnd::WindowEnd
            } else {
                StackEnd::Root
            };
            let id = m.stack(s, end);
            let period = if st == State::OnCpu {
                ON_CPU_PERIOD
            } else {
                BLOCKED_PERIOD
            };
            m.spend(t, id, st, r, ms * 1_000_000, period, shape);
        };
        let on = State::OnCpu;
        let off = State::Blocked;
        use BlockReason as B;
        spend(
            &mut m,
            &format!("{run} {std_fn} render_page^escape_html"),
            on,
            None,
            900 * w,
            &even,
        );
        spend(
            &mut m,
            &format!("{run} {std_fn} render_page c:memcpy"),
            on,
            None,
            210,
            &even,
        );
        spend(
            &mut m,
            &format!("{run} parse_headers^to_lower"),
            on,
            None,
            320,
            &even,
        );
        spend(
            &mut m,
            &format!("{run} {std_fn} render_page c:malloc"),
            on,
            None,
            140,
            &stripe,
        );
        spend(
            &mut m,
            &format!("{run} s:SSL_read s:aes_gcm_decrypt"),
            on,
            None,
            420,
            &even,
        );
        spend(
            &mut m,
            &format!("{run} c:read k:entry_SYSCALL_64 k:ksys_read k:copy_to_user"),
            on,
            None,
            160,
            &even,
        );
        spend(
            &mut m,
            &format!("{run} json_encode json_encode json_encode json_encode"),
            on,
            None,
            260,
            &late,
        );
        let lock = "c:pthread_mutex_lock c:__lll_lock_wait k:entry_SYSCALL_64 k:do_futex k:futex_wait k:schedule";
        spend(
            &mut m,
            &format!("{run} cache_get {lock}"),
            off,
            Some(B::Lock),
            7_400 - 300 * w,
            &stripe,
        );
        spend(
            &mut m,
            &format!("{run} cache_put {lock}"),
            off,
            Some(B::Lock),
            700,
            &stripe,
        );
        let net = "c:recv k:entry_SYSCALL_64 k:tcp_recvmsg k:sk_wait_data k:schedule";
        spend(
            &mut m,
            &format!("{run} query_upstream {net}"),
            off,
            Some(B::Network),
            4_300,
            &late,
        );
        spend(
            &mut m,
            "c:clone3 c:start_thread worker_main next_job c:epoll_wait k:entry_SYSCALL_64 k:do_epoll_wait k:schedule",
            off,
            Some(B::Poll),
            3_000,
            &even,
        );
        spend(
            &mut m,
            "log_line c:write k:entry_SYSCALL_64 k:ext4_write k:schedule",
            off,
            Some(B::Disk),
            37,
            &even,
        );
        spend(
            &mut m,
            &format!("{run} {std_fn} render_page"),
            State::Runnable,
            None,
            310,
            &late,
        );
        m.r.contexts[t].ledger.voluntary_switches = 5_000 + 100 * w;
        m.r.contexts[t].ledger.involuntary_switches = 120;
        m.r.contexts[t].ledger.wall_ns += 9_000;
    }
    let t = m.thread(4711, 4730, "compaction");
    let compact = format!("{root} compaction");
    let id = m.stack(
        &format!("{compact} fsync_segment c:fsync k:entry_SYSCALL_64 k:ext4_sync_file k:schedule"),
        StackEnd::Root,
    );
    m.spend(
        t,
        id,
        State::Blocked,
        Some(BlockReason::Disk),
        11_000_000_000,
        BLOCKED_PERIOD,
        stripe,
    );
    let id = m.stack(&format!("{compact} merge_runs"), StackEnd::Root);
    m.spend(
        t,
        id,
        State::OnCpu,
        None,
        2_000_000_000,
        ON_CPU_PERIOD,
        stripe,
    );
    let id = m.stack(
        &format!("{compact} c:nanosleep k:entry_SYSCALL_64 k:hrtimer_nanosleep k:schedule"),
        StackEnd::Root,
    );
    m.spend(
        t,
        id,
        State::Blocked,
        Some(BlockReason::Timer),
        6_900_000_000,
        BLOCKED_PERIOD,
        even,
    );
    let t = m.thread(4711, 4711, "shopd");
    let id = m.stack(
        &format!("{root} c:accept k:entry_SYSCALL_64 k:inet_accept k:schedule"),
        StackEnd::Root,
    );
    m.spend(
        t,
        id,
        State::Blocked,
        Some(BlockReason::Network),
        19_900_000_000,
        BLOCKED_PERIOD,
        even,
    );
    let id = m.stack(&format!("{root} read_config"), StackEnd::Root);
    m.spend(t, id, State::OnCpu, None, 2_000_000, ON_CPU_PERIOD, |s| {
        u64::from(s == 0)
    });
    // Workers that poll have no request in flight.
    for s in &mut m.r.samples {
        s.idle = s.reason == Some(BlockReason::Poll);
    }
    for c in &mut m.r.contexts {
        c.ledger.idle_ns = c.ledger.blocked[BlockReason::Poll as usize];
    }
    m.r
}

/// `n` distinct stacks of about `depth` frames: walks down a random program.
pub fn many(n: usize, depth: usize, threads: usize) -> Recording {
    let mut m = Maker::new(&format!("{n} stacks of depth {depth}"), 60, SECOND);
    let names = 20_000u64;
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
    for t in 0..threads as u32 {
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
        m.spend(
            t,
            id,
            State::OnCpu,
            None,
            ms * 1_000_000,
            ON_CPU_PERIOD,
            |_| 1,
        );
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
            m.spend(
                t,
                stack,
                State::OnCpu,
                None,
                500_000_000,
                ON_CPU_PERIOD,
                |_| 1,
            );
        }
    }
    m.r.domain.notes = vec!["<b>bold</b>".into()];
    m.r.losses = vec![Loss {
        cause: "</table><script>".into(),
        count: 3,
    }];
    m.r
}
