//! A selection has exactly the named things, keeps their time to the nanosecond, and adds up with
//! the rest.

use std::collections::BTreeMap;

use regex::Regex;
use wallscope_analysis::select::{SelectError, Selection};
use wallscope_analysis::view::{Analysis, Idle, groups};
use wallscope_formats::{Bounds, folded, pprof, read};
use wallscope_model::histogram::{Histogram, HistogramRow};
use wallscope_model::*;
use wallscope_render::json;
use wallscope_render::off_wake;
use wallscope_render::text::Headline;
use wallscope_synthetic::{self as synthetic, any};

fn lines(rec: &Recording) -> BTreeMap<String, u64> {
    let mut out = Vec::new();
    folded::write(rec, &folded::Options::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    text.lines()
        .map(|l| l.rsplit_once(' ').unwrap())
        .map(|(stack, ns)| (stack.to_string(), ns.parse().unwrap()))
        .collect()
}

fn select(rec: &Recording, selection: &Selection) -> Recording {
    let selected = selection.apply(rec.clone()).unwrap();
    assert!(selected.unmet.is_empty(), "{:?}", selected.unmet);
    // Whatever is selected is a sound recording: its stacks sum to its ledger, it closes, and it
    // survives its own file.
    let out = selected.recording;
    let analysis = Analysis::new(&out, Idle::Show);
    for view in View::ALL {
        let ledger: u64 = (out.contexts.iter())
            .flat_map(|c| State::ALL.iter().map(|s| (*s, c.ledger.state_ns(*s))))
            .filter(|(s, _)| view.includes(*s))
            .map(|(_, ns)| ns)
            .sum();
        assert_eq!(analysis.total(*view).shown_ns(), ledger, "{view}");
    }
    let bytes = pprof::write(&out, &scale::scale(&out), Vec::new()).unwrap();
    let back = read(&bytes, Bounds::default()).unwrap();
    assert_eq!(lines(&back.recording), lines(&out));
    out
}

fn regex(text: &str) -> Option<Regex> {
    Some(Regex::new(text).unwrap())
}

fn total(rec: &Recording) -> u64 {
    lines(rec).values().sum()
}

#[test]
fn threads_states_and_reasons_stay_exact() {
    let rec = synthetic::recording(3);
    let worker = |rec: &Recording| {
        let found = rec.contexts.iter().find(|c| &*c.name == "worker-1");
        found.unwrap().ledger.clone()
    };
    let whole = worker(&rec);
    let thread = Selection {
        threads: vec!["worker-1".into()],
        ..Selection::default()
    };
    let out = select(&rec, &thread);
    assert_eq!(out.contexts.len(), 1);
    assert_eq!(worker(&out), whole, "a whole thread keeps its whole ledger");
    let state = Selection {
        states: vec![State::OnCpu],
        ..thread.clone()
    };
    let out = select(&rec, &state);
    assert_eq!(worker(&out).on_cpu, whole.on_cpu);
    assert_eq!(total(&out), whole.on_cpu.total());
    assert!(out.domain.columns.iter().all(|c| c.exact));
    let reason = Selection {
        reasons: vec!["disk", "user"],
        ..thread
    };
    let out = worker(&select(&rec, &reason));
    assert_eq!(out.blocked_ns(), whole.blocked[BlockReason::Disk as usize]);
    assert_eq!(out.on_cpu.total(), whole.on_cpu.user);
    assert_eq!(out.wall_ns, out.blocked_ns() + out.on_cpu.user);
}

#[test]
fn focus_and_ignore_divide_the_whole() {
    let rec = synthetic::recording(4);
    let all = lines(&rec);
    for pattern in [
        "Inventory",
        "futex_wait$",
        "libcodec",
        r"orders\.cc",
        "kernel",
        "truncated",
    ] {
        let focus = Selection {
            focus: regex(pattern),
            ..Selection::default()
        };
        let ignore = Selection {
            ignore: regex(pattern),
            ..Selection::default()
        };
        let (in_it, out_of_it) = (lines(&select(&rec, &focus)), lines(&select(&rec, &ignore)));
        let mut sum = in_it.clone();
        for (line, ns) in &out_of_it {
            assert!(sum.insert(line.clone(), *ns).is_none(), "in both: {line}");
        }
        assert_eq!(sum, all, "{pattern}");
        assert!(!in_it.is_empty() && !out_of_it.is_empty());
        // `ignore` wins.
        let neither = Selection {
            focus: regex(pattern),
            ignore: regex("."),
            ..Selection::default()
        };
        assert_eq!(total(&select(&rec, &neither)), 0);
    }
    let focused = Selection {
        focus: regex("Inventory"),
        ..Selection::default()
    };
    let out = select(&rec, &focused);
    assert!(out.domain.columns.iter().all(|c| !c.exact), "an estimate");
    assert!(out.functions.iter().all(|f| !f.name.contains("Journal")));
}

#[test]
fn functions_and_modules_are_not_mixed_up() {
    let rec = synthetic::recording(2);
    let by = |function: &str, module: &str| {
        let selection = Selection {
            function: Some(Regex::new(function).unwrap()).filter(|_| !function.is_empty()),
            module: Some(Regex::new(module).unwrap()).filter(|_| !module.is_empty()),
            ..Selection::default()
        };
        selection.apply(rec.clone()).unwrap()
    };
    let codec = by("", "libcodec");
    assert!(
        lines(&codec.recording)
            .keys()
            .all(|l| l.contains("libcodec.so.2+0x"))
    );
    assert_eq!(by("orders.cc", "").unmet, ["function"]);
    assert_eq!(by("", "Inventory").unmet, ["module"]);
    assert_eq!(total(&by("Inventory", "libcodec").recording), 0);
}

#[test]
fn hidden_frames_go_and_their_time_stays() {
    let rec = synthetic::recording(2);
    let hide = Selection {
        hide: regex(r"\[kernel\]"),
        ..Selection::default()
    };
    let mut want: BTreeMap<String, u64> = BTreeMap::new();
    for (line, ns) in lines(&rec) {
        let left: Vec<&str> = line.split(';').filter(|f| !f.ends_with("_[k]")).collect();
        let left = left.join(";");
        // Nothing is left of stacks of the kernel alone: pprof drops those too.
        if left != "[truncated:window_end]" {
            *want.entry(left).or_default() += ns;
        }
    }
    assert_eq!(lines(&select(&rec, &hide)), want);

    // One of two inlined functions at one address.
    let inlined = Selection {
        hide: regex("std::mutex::lock"),
        ..Selection::default()
    };
    let out = lines(&select(&rec, &inlined));
    assert_eq!(out.values().sum::<u64>(), total(&rec));
    let reserve = "orders::Inventory::reserve(long, int);pthread_mutex_lock;";
    assert!(out.keys().any(|l| l.contains(reserve)), "{out:?}");
}

#[test]
fn show_from_cuts_callers_and_drops_the_rest() {
    let rec = synthetic::recording(2);
    let from = Selection {
        show_from: regex("Worker"),
        ..Selection::default()
    };
    let mut want: BTreeMap<String, u64> = BTreeMap::new();
    for (line, ns) in lines(&rec) {
        if let Some(at) = line.find("orders::Worker::run") {
            *want.entry(line[at..].to_string()).or_default() += ns;
        }
    }
    assert_eq!(lines(&select(&rec, &from)), want);
}

#[test]
fn recursion_collapses_to_one_frame() {
    let mut rec = synthetic::recording(1);
    for stack in &mut rec.stacks {
        let root = *stack.frames.last().unwrap();
        stack.frames.extend([root, root]);
    }
    let collapse = Selection {
        collapse_recursion: true,
        ..Selection::default()
    };
    let plain = synthetic::recording(1);
    assert_eq!(lines(&select(&rec, &collapse)), lines(&plain));
}

#[test]
fn labels_divide_the_samples() {
    let mut rec = synthetic::recording(2);
    let label = |value: &str| Label {
        key: "endpoint".into(),
        value: LabelValue::Text(value.into()),
    };
    rec.label_sets = vec![vec![label("/buy")], vec![label("/look")]];
    for (i, s) in rec.samples.iter_mut().enumerate() {
        s.labels = (i % 3 < 2).then_some(LabelsId(i as u32 % 3));
    }
    let of = |values: &[&str]| Selection {
        labels: values
            .iter()
            .map(|v| ("endpoint".to_string(), v.to_string()))
            .collect(),
        ..Selection::default()
    };
    let (buy, look) = (select(&rec, &of(&["/buy"])), select(&rec, &of(&["/look"])));
    assert!(total(&buy) > 0 && total(&look) > 0);
    assert_eq!(buy.label_sets.len(), 1);
    let either = select(&rec, &of(&["/buy", "/look"]));
    assert_eq!(total(&either), total(&buy) + total(&look));
    let groups = groups(&Analysis::new(&rec, Idle::Show), "endpoint");
    let time = |value: &str| -> u64 {
        let row = groups.iter().find(|g| g.value.as_deref() == Some(value));
        row.unwrap().total_ns()
    };
    assert_eq!(time("/buy"), total(&buy));
    let sum: u64 = groups.iter().map(|g| g.total_ns()).sum();
    assert_eq!(sum, total(&rec), "with what has no such label");
    assert_eq!(of(&["/sell"]).apply(rec).unwrap().unmet, ["label"]);
}

#[test]
fn windows_of_time_add_up() {
    let rec = synthetic::recording(3);
    let second = 1_000_000_000;
    let window = |from: u64, to: u64| Selection {
        time: Some(from..to),
        ..Selection::default()
    };
    let sum: u64 = [(0, 3), (3, 4), (4, 10)]
        .iter()
        .map(|(a, b)| total(&select(&rec, &window(a * second, b * second))))
        .sum();
    let counted: u64 = (rec.ledger_slices.iter())
        .map(|row| State::ALL.iter().map(|s| row.state_ns(*s)).sum::<u64>())
        .sum();
    assert_eq!(sum, counted);
    let out = select(&rec, &window(3 * second, 4 * second));
    assert_eq!(out.slices.count, 2);
    assert_eq!(out.window.end_ns - out.window.start_ns, second);
    assert!(
        out.samples
            .iter()
            .flat_map(|s| &s.slices)
            .all(|v| v.slice < 2)
    );

    let outside = window(11 * second, 12 * second).apply(rec.clone());
    assert!(matches!(outside, Err(SelectError::OutsideTime { .. })));
    let mut timeless = rec;
    timeless.slices = Slices::default();
    let none = window(0, second).apply(timeless);
    assert_eq!(none.unwrap_err(), SelectError::NoSlices);
}

#[test]
fn selecting_twice_is_selecting_both() {
    let rec = synthetic::recording(4);
    let a = Selection {
        focus: regex("Inventory"),
        ..Selection::default()
    };
    let b = Selection {
        states: vec![State::Blocked],
        ..Selection::default()
    };
    let both = Selection {
        states: b.states.clone(),
        ..a.clone()
    };
    let want = lines(&select(&rec, &both));
    assert_eq!(lines(&select(&select(&rec, &a), &b)), want);
    assert_eq!(lines(&select(&select(&rec, &b), &a)), want);
}

#[test]
fn merging_is_associative() {
    let [a, b, c] = [1, 2, 3].map(synthetic::recording);
    let two = |x: &Recording, y: &Recording| merge::merge(&[x.clone(), y.clone()]).unwrap();
    let left = two(&two(&a, &b), &c);
    let right = two(&a, &two(&b, &c));
    let flat = merge::merge(&[a, b, c]).unwrap();
    assert_eq!(left, right);
    assert_eq!(left, flat);
}

#[test]
fn lengths_and_senders_of_requests_stay_with_their_threads_and_stacks() {
    let mut rec = synthetic::recording(3);
    let named = |rec: &Recording, name: &str| {
        let at = rec.contexts.iter().position(|c| &*c.name == name);
        ContextId(at.unwrap() as u32)
    };
    let first_frame = |rec: &Recording, stack: StackId| {
        let frame = rec.stacks[stack.0 as usize].frames[0];
        let f = &rec.frames[frame.0 as usize];
        rec.functions[f.lines[0].function.0 as usize].name.clone()
    };
    // One length for each thread and stack, told by its number.
    let row = |context, stack, ns| {
        let mut histogram = Histogram::new(5);
        histogram.add(ns, 1.0);
        HistogramRow {
            context,
            stack,
            state: State::Blocked,
            reason: None,
            part: None,
            histogram,
        }
    };
    rec.histograms = (0..rec.contexts.len() as u32)
        .map(|i| row(Some(ContextId(i)), None, 1_000 + u64::from(i)))
        .chain([row(None, None, 500)])
        .collect();
    let last = StackId(rec.stacks.len() as u32 - 1);
    let sent = |thread: &str, stack| PeerStack {
        context: named(&rec, thread),
        stack,
        requests: 2,
        ns: 30,
    };
    let pid = rec.contexts[0].pid;
    rec.peers = vec![Peer {
        pid,
        asks: true,
        address: "127.0.0.1:5432".into(),
        requests: 9,
        stacks: vec![sent("worker-0", StackId(0)), sent("worker-2", last)],
        ..Peer::default()
    }];

    let thread = Selection {
        threads: vec!["worker-2".into()],
        ..Selection::default()
    };
    let out = select(&rec, &thread);
    let lengths: Vec<_> = (out.histograms.iter())
        .map(|r| (r.context, r.histogram.max_ns))
        .collect();
    let own = 1_000 + u64::from(named(&rec, "worker-2").0);
    assert_eq!(
        lengths,
        [(Some(ContextId(0)), own)],
        "those of all are not its own"
    );
    let [peer] = &out.peers[..] else {
        panic!("{:?}", out.peers)
    };
    assert_eq!((peer.requests, peer.stacks.len()), (9, 1));
    let sender = peer.stacks[0];
    assert_eq!(&*out.contexts[sender.context.0 as usize].name, "worker-2");
    assert_eq!(first_frame(&out, sender.stack), first_frame(&rec, last));

    let state = |state| Selection {
        states: vec![state],
        ..Selection::default()
    };
    assert_eq!(
        select(&rec, &state(State::Blocked)).histograms.len(),
        rec.histograms.len()
    );
    assert_eq!(select(&rec, &state(State::OnCpu)).histograms, []);
    // Of a part of the time neither is known.
    let time = Selection {
        time: Some(0..1_000_000_000),
        ..Selection::default()
    };
    let out = select(&rec, &time);
    assert!(out.histograms.is_empty() && out.peers.is_empty());
}

#[test]
fn nothing_selected_refers_to_what_was_left_out() {
    let regex = |text: &str| Some(Regex::new(text).unwrap());
    for seed in 0..200 {
        let rec = any::random(seed);
        let name = rec.contexts.first().map_or("", |c| &*c.name).to_string();
        let selections = [
            Selection {
                threads: vec![name],
                ..Selection::default()
            },
            Selection {
                states: vec![State::Blocked],
                ..Selection::default()
            },
            Selection {
                reasons: vec!["lock", "user"],
                ..Selection::default()
            },
            Selection {
                time: Some(0..1 << 38),
                ..Selection::default()
            },
            Selection {
                focus: regex("a"),
                hide: regex("x"),
                ..Selection::default()
            },
        ];
        for selection in selections {
            let Ok(selected) = selection.apply(rec.clone()) else {
                continue;
            };
            let out = selected.recording;
            let bytes = pprof::write(&out, &scale::scale(&out), Vec::new()).unwrap();
            let back = read(&bytes, Bounds::default())
                .unwrap_or_else(|e| panic!("seed {seed}, {selection}: {e}"));
            let analysis = Analysis::new(&back.recording, Idle::Show);
            let report = json::render(&analysis, &Headline::default());
            assert!(!report.is_empty());
        }
    }
}

/// Adds wakers: the first thread ends 60 % of each sample's blocked time, and computes for half of that.
fn with_wakers(mut rec: Recording) -> Recording {
    let mut waiter = rec.contexts.iter().skip(1);
    let waiter = waiter.position(|c| c.ledger.state_ns(State::Blocked) > 0);
    rec.locks.push(LockWait {
        context: ContextId(1 + waiter.unwrap() as u32),
        labels: None,
        address: 0x1000,
        total_ns: 5,
        longest_ns: 3,
        count: 2,
    });
    rec.actors = vec![Actor::Context(ContextId(0))];
    let hop = |above, role, ns| Hop {
        above,
        role,
        actor: ActorId(0),
        stack: Some(StackId(0)),
        reason: None,
        part: None,
        labels: None,
        count: 1,
        ns,
    };
    for (i, s) in rec.samples.iter().enumerate() {
        if s.state == State::Blocked {
            let woke = rec.hops.len() as u32;
            let ns = s.ns / 10 * 6;
            rec.hops.push(hop(Above::Sample(i as u32), Role::Woke, ns));
            rec.hops.push(hop(Above::Hop(woke), Role::OnCpu, ns / 2));
        }
    }
    rec
}

/// The lines of the view off-wake, with the thread's name and reason in front.
fn off_wake(rec: &Recording) -> BTreeMap<String, u64> {
    let options = folded::Options {
        with_thread: true,
        with_reason: true,
        ..folded::Options::default()
    };
    let mut out = Vec::new();
    off_wake::write(rec, &options, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines = text.lines().map(|l| l.rsplit_once(' ').unwrap());
    lines
        .map(|(stack, ns)| (stack.to_string(), ns.parse().unwrap()))
        .collect()
}

#[test]
fn who_ended_waits_stays_with_the_waits_that_are_selected() {
    let rec = with_wakers(synthetic::recording(2));
    let whole = off_wake(&rec);
    let reason = BlockReason::Lock.name();
    let locks = Selection {
        reasons: vec![reason],
        ..Selection::default()
    };
    let selected = select(&rec, &locks);
    let of_locks = off_wake(&selected);
    let is_lock = |line: &&String| line.rsplit(';').next() == Some(reason);
    let want: Vec<&String> = whole.keys().filter(is_lock).collect();
    assert_eq!(of_locks.keys().collect::<Vec<_>>(), want);
    for (line, ns) in &of_locks {
        assert!(
            ns.abs_diff(whole[line]) <= 16,
            "{line}: {ns}, {}",
            whole[line]
        );
    }
    assert!(want.iter().any(|l| l.contains("[woken by ")), "{want:?}");
    // Waits for one lock may have other reasons too.
    let of_locks = |n: &String| n.contains("exact waits by lock are kept");
    assert!(selected.locks.is_empty() && selected.domain.notes.iter().any(of_locks));
    let below = |h: &Hop| matches!(h.above, Above::Hop(_)).then_some(h.ns);
    assert!(selected.hops.iter().filter_map(below).sum::<u64>() > 0);

    // With only another thread selected, its waker is known by name and is not in the recording.
    let woken = rec
        .contexts
        .iter()
        .skip(1)
        .find(|c| c.ledger.state_ns(State::Blocked) > 0);
    let woken = woken.unwrap().name.to_string();
    let one = Selection {
        threads: vec![woken.clone()],
        ..Selection::default()
    };
    let selected = select(&rec, &one);
    assert!(selected.contexts.iter().all(|c| *c.name == *woken));
    assert_eq!(selected.locks.len(), 1);
    assert!(!selected.domain.notes.iter().any(of_locks));
    let first = Selection {
        threads: vec![rec.contexts[0].name.to_string()],
        ..Selection::default()
    };
    let without = select(&rec, &first);
    assert!(without.locks.is_empty() && !without.domain.notes.iter().any(of_locks));
    let name = &rec.contexts[0].name;
    assert!(matches!(&selected.actors[..], [Actor::Stranger { name: n, .. }] if n == name));
    let theirs = off_wake(&selected);
    let all: u64 = theirs.values().sum();
    let seen = theirs.iter().filter(|(l, _)| l.contains("[woken by "));
    let seen: u64 = seen.map(|(_, ns)| ns).sum();
    assert!(
        (seen as f64 / all as f64 - 0.6).abs() < 0.01,
        "{seen} of {all}"
    );

    let time = Selection {
        time: Some(0..u64::MAX / 2),
        ..Selection::default()
    };
    let selected = time.apply(rec).unwrap().recording;
    assert!(selected.hops.is_empty());
    let noted = |n: &String| n.contains("who ended waits is not kept");
    assert!(selected.domain.notes.iter().any(noted));
}
