//! Views sum to the ledger, count as they say, and are laid out within their width.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use wallscope_analysis::view::{Analysis, FunctionRow, Idle};
use wallscope_formats::folded;
use wallscope_model::*;
use wallscope_render::text::{self, Headline, Style};
use wallscope_render::{json, markdown};
use wallscope_synthetic as synthetic;

fn ledger_of(rec: &Recording, view: View) -> u64 {
    let states = State::ALL.iter().filter(|s| view.includes(**s));
    states
        .map(|s| {
            rec.contexts
                .iter()
                .map(|c| c.ledger.state_ns(*s))
                .sum::<u64>()
        })
        .sum()
}

fn fold(rec: &Recording, options: &folded::Options) -> String {
    let mut out = Vec::new();
    folded::write(rec, options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn values(folded: &str) -> BTreeMap<&str, u64> {
    let mut lines = BTreeMap::new();
    for line in folded.lines() {
        let (stack, ns) = line.rsplit_once(' ').unwrap();
        assert!(
            lines.insert(stack, ns.parse().unwrap()).is_none(),
            "twice: {stack}"
        );
    }
    lines
}

#[test]
fn the_stacks_of_every_view_sum_to_the_ledger() {
    let rec = synthetic::recording(5);
    let analysis = Analysis::new(&rec, Idle::Show);
    let functions = analysis.functions();
    for view in View::ALL {
        let want = ledger_of(&rec, *view);
        assert_eq!(analysis.total(*view).shown_ns(), want);
        let own: u64 = functions.iter().map(|f| f.view(*view).own.ns).sum();
        let user: u64 = functions.iter().map(|f| f.view(*view).place.ns).sum();
        assert_eq!((own, user), (want, want), "{view}");
        let folded = fold(
            &rec,
            &folded::Options {
                view: *view,
                ..Default::default()
            },
        );
        assert_eq!(values(&folded).values().sum::<u64>(), want, "{view}");
    }
}

#[test]
fn folded_lines_follow_the_grammar() {
    let rec = synthetic::recording(2);
    let plain = fold(&rec, &folded::Options::default());
    let mut sorted: Vec<_> = plain.lines().collect();
    sorted.sort_unstable();
    assert_eq!(sorted, plain.lines().collect::<Vec<_>>());
    let lines = values(&plain);
    let lock = "clone3;start_thread;orders::Worker::run();orders::Worker::handle(std::shared_ptr<\
                orders::Request<std::pair<unsigned long, std::string> > > const&);\
                orders::Inventory::reserve(long, int);std::mutex::lock()_[i];pthread_mutex_lock;\
                __lll_lock_wait;do_syscall_64_[k];__x64_sys_futex_[k];do_futex_[k];futex_wait_[k];\
                futex_wait_queue_[k];schedule_[k];__schedule_[k]";
    assert!(lines.contains_key(lock), "{plain}");
    assert!(
        lines
            .keys()
            .any(|l| l.starts_with("[truncated:window_end];do_syscall_64_[k]"))
    );
    assert!(lines.keys().any(|l| l.contains(";libcodec.so.2+0x")));
    assert!(lines.contains_key("[not sampled]"));

    let with = folded::Options {
        with_thread: true,
        with_state: true,
        with_reason: true,
        ..Default::default()
    };
    let labelled = fold(&rec, &with);
    let lines = values(&labelled);
    assert!(
        lines
            .keys()
            .any(|l| l.starts_with("worker-0;clone3;") && l.ends_with(";blocked;lock"))
    );
    // The resolver was never sampled: it keeps its name, state and reason.
    assert_eq!(lines["resolver;[not sampled];blocked;network"], 400_000);
    assert_eq!(lines["resolver;[not sampled];on_cpu"], 700_000);
}

/// One thread with one sample of the given frames; each frame is a list of functions, innermost first.
fn one(frames: &[&[&str]], kind: FrameKind, end: StackEnd) -> Recording {
    let mut rec = Recording::default();
    for lines in frames {
        let lines = lines.iter().map(|name| {
            let known = rec.functions.iter().position(|f| &*f.name == *name);
            let function = known.unwrap_or_else(|| {
                rec.functions.push(Function {
                    name: Arc::from(*name),
                    system_name: Arc::from(*name),
                    file: Arc::from(""),
                    start_line: 0,
                });
                rec.functions.len() - 1
            });
            Line {
                function: FunctionId(function as u32),
                line: 0,
            }
        });
        let lines = lines.collect();
        rec.frames.push(Frame {
            kind,
            module: None,
            address: 0x7f00 + rec.frames.len() as u64,
            lines,
        });
    }
    rec.stacks.push(Stack {
        frames: (0..frames.len() as u32).map(FrameId).collect(),
        end,
    });
    let mut ledger = Ledger {
        wall_ns: 1000,
        ..Ledger::default()
    };
    ledger.on_cpu.user = 1000;
    rec.contexts.push(Context {
        pid: 1,
        tid: 1,
        name: Arc::from("t"),
        start_ns: 0,
        end_ns: 1000,
        ledger,
    });
    rec.samples.push(Sample {
        context: ContextId(0),
        stack: StackId(0),
        state: State::OnCpu,
        reason: None,
        part: None,
        idle: false,
        cpu: None,
        labels: None,
        count: 1,
        ns: 500,
        slices: Vec::new(),
    });
    rec
}

fn row<'a>(rows: &'a [FunctionRow], name: &str) -> &'a FunctionRow {
    rows.iter()
        .find(|r| &*r.function.name == name)
        .unwrap_or_else(|| panic!("{name}: {rows:?}"))
}

#[test]
fn recursion_counts_once_and_inlined_functions_count() {
    let rec = one(
        &[&["leaf", "f"], &["f"], &["g", "f"], &["main"]],
        FrameKind::Native,
        StackEnd::Root,
    );
    let rows = Analysis::new(&rec, Idle::Hide).functions();
    let value = |name| row(&rows, name).view(View::OnCpu);
    assert_eq!((value("leaf").own.ns, value("leaf").total.ns), (1000, 1000));
    assert_eq!((value("f").own.ns, value("f").total.ns), (0, 1000));
    assert_eq!((value("g").own.ns, value("main").total.ns), (0, 1000));
    // One sample is not certainty.
    assert!(value("leaf").total.low_ns < 500, "{:?}", value("leaf"));
    assert_eq!(value("leaf").total.high_ns, 1000);
    assert_eq!(
        fold(&rec, &Default::default()),
        "main;f;g_[i];f;f;leaf_[i] 1000\n"
    );
}

#[test]
fn names_are_kept_apart_from_the_grammar() {
    let rec = one(&[&["a;b\nc d"], &[]], FrameKind::Jit, StackEnd::BadRule);
    assert_eq!(
        fold(&rec, &Default::default()),
        "[truncated:bad_rule];[0x7f01]_[j];a:b c d_[j] 1000\n"
    );
}

#[test]
fn a_stack_without_frames_has_a_name() {
    let rec = one(&[], FrameKind::Native, StackEnd::Gone);
    assert_eq!(fold(&rec, &Default::default()), "[truncated:gone] 1000\n");
    let rows = Analysis::new(&rec, Idle::Hide).functions();
    assert_eq!(row(&rows, "[truncated:gone]").view(View::Wall).own.ns, 1000);
}

#[test]
fn idle_time_is_hidden_and_said_to_be() {
    let mut rec = synthetic::recording(2);
    for s in &mut rec.samples {
        s.idle = s.reason == Some(BlockReason::Poll);
    }
    let text = |idle| {
        let analysis = Analysis::new(&rec, idle);
        let style = Style {
            width: Some(100),
            colour: false,
            unicode: true,
        };
        text::render(&analysis, &Headline::default(), &style)
    };
    let hidden = text(Idle::Hide);
    assert!(hidden.contains("9.91 s idle hidden (--idle show)") && !hidden.contains("epoll_wait"));
    let shown = text(Idle::Show);
    assert!(!shown.contains("hidden") && shown.contains("epoll_wait"));
    let only = text(Idle::Only);
    assert!(only.contains("epoll_wait") && !only.contains("fsync"));
    let analysis = Analysis::new(&rec, Idle::Only);
    assert_eq!(analysis.total(View::Wall).shown_ns(), 9_908_000_000);
}

#[test]
fn lines_fit_the_terminal_and_say_what_they_leave_out() {
    let mut rec = synthetic::recording(40);
    // A long name among those shown.
    rec.contexts[20].name = Arc::from("a-very-long-name");
    let analysis = Analysis::new(&rec, Idle::Hide);
    let headline = Headline {
        sentence: "Of 400 s of wall time, most was blocked on locks.".to_string(),
        because: vec!["also: something".to_string()],
    };
    for width in [60, 72, 80, 120, 200] {
        let style = Style {
            width: Some(width),
            colour: false,
            unicode: true,
        };
        let out = text::render(&analysis, &headline, &style);
        for line in out.lines() {
            let cells = unicode_width::UnicodeWidthStr::width(line);
            assert!(cells <= width, "{cells} cells of {width}: {line}");
        }
        assert!(out.starts_with("Of 400 s"));
        assert!(
            out.contains("32 mo"),
            "the other threads are one line:\n{out}"
        );
        assert!(!out.contains('\x1b'));
    }
    let style = Style {
        width: None,
        colour: true,
        unicode: false,
    };
    let out = text::render(&analysis, &headline, &style);
    assert!(out.contains("\x1b[32m") && !out.contains('█'));
    assert!(
        out.contains("unsigned long, std::string> > > const&)"),
        "names are whole in a pipe"
    );
}

#[test]
fn json_has_the_keys_of_the_contract() {
    let rec = synthetic::recording(3);
    let out = json::render(&Analysis::new(&rec, Idle::Show), &Headline::default());
    let v: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(v["schema"], "wallscope.report/1");
    for key in ["start_ns", "end_ns"] {
        assert!(v["window"][key].is_u64());
    }
    assert_eq!(v["window"]["clock"], "CLOCK_MONOTONIC");
    let times = "wall_ns on_cpu_ns runnable_ns blocked_ns unknown_ns residue_ns repaired_ns idle_ns \
                 voluntary_switches involuntary_switches";
    for key in times.split_whitespace().chain(["pid", "tid"]) {
        assert!(
            v["threads"][0][key].is_i64() || v["threads"][0][key].is_u64(),
            "{key}"
        );
    }
    assert_eq!(v["threads"].as_array().unwrap().len(), rec.contexts.len());
    for thread in v["threads"].as_array().unwrap() {
        let n = |key: &str| thread[key].as_i64().unwrap();
        let parts = n("on_cpu_ns") + n("runnable_ns") + n("blocked_ns") + n("unknown_ns");
        assert_eq!(n("wall_ns"), parts + n("residue_ns"));
        for group in ["on_cpu", "runnable", "blocked"] {
            let sum: i64 = thread[group]
                .as_object()
                .unwrap()
                .values()
                .map(|v| v.as_i64().unwrap())
                .sum();
            assert_eq!(sum, n(&format!("{group}_ns")));
        }
    }
    assert_eq!(v["processes"][0]["unattributed_on_cpu_ns"], 1_500_000);
    let lock = v["functions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|f| f["name"] == "__schedule")
        .unwrap();
    assert_eq!(lock["module"], "[kernel]");
    for key in ["self_ns", "total_ns", "low_ns", "high_ns"] {
        assert!(lock["views"]["off-cpu"][key].is_u64(), "{key}");
    }
    let view = &lock["views"]["off-cpu"];
    assert!(view["low_ns"].as_u64() <= view["total_ns"].as_u64());
    assert!(view["total_ns"].as_u64() <= view["high_ns"].as_u64());
    assert_eq!(v["losses"][0]["count"], 120);
    for key in [
        "bpf_ns",
        "own_cpu_ns",
        "rss_bytes",
        "kernel_bytes",
        "target_stopped_ns",
    ] {
        assert!(v["cost"][key].is_u64(), "{key}");
    }
    assert!(
        v["reasons"]
            .as_array()
            .unwrap()
            .iter()
            .any(|r| r["reason"] == "lock")
    );
}

#[test]
fn markdown_is_not_broken_by_names() {
    let mut rec = one(&[&["a|b`c"]], FrameKind::Native, StackEnd::Root);
    rec.contexts[0].name = Arc::from("x|y\n# z");
    let out = markdown::render(&Analysis::new(&rec, Idle::Hide), &Headline::default());
    assert!(out.contains("| x\\|y \\# z | 1 |"), "{out}");
    assert!(out.contains("`a\\|b'c`"), "{out}");
    for table in out.split("\n\n").filter(|p| p.starts_with('|')) {
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        let first = columns(table.lines().next().unwrap());
        assert!(table.lines().all(|l| columns(l) == first), "{table}");
    }
}

#[test]
fn merged_recordings_add_up() {
    let mut a = synthetic::recording(2);
    let mut b = synthetic::recording(3);
    for (rec, values) in [(&mut a, &["x"][..]), (&mut b, &["y", "x"])] {
        rec.label_sets.extend(values.iter().map(|v| {
            vec![Label {
                key: Arc::from("tenant"),
                value: LabelValue::Text(Arc::from(*v)),
            }]
        }));
        rec.samples[0].labels = Some(LabelsId(values.len() as u32 - 1));
    }
    let both = merge::merge(&[a.clone(), b.clone()]).unwrap();
    for view in View::ALL {
        let want = ledger_of(&a, *view) + ledger_of(&b, *view);
        let analysis = Analysis::new(&both, Idle::Show);
        assert_eq!(analysis.total(*view).shown_ns(), want);
    }
    assert_eq!(both.stacks, b.stacks, "equal code is there once");
    assert_eq!(both.slices.count, a.slices.count + b.slices.count);
    assert_eq!(
        both.label_sets,
        [a.label_sets[0].clone(), b.label_sets[0].clone()]
    );
    let first_of_b = &both.samples[a.samples.len()];
    assert_eq!(first_of_b.labels, both.samples[0].labels);
    let sum = |r: &Recording| {
        r.samples
            .iter()
            .flat_map(|s| &s.slices)
            .map(|v| v.ns)
            .sum::<u64>()
    };
    assert_eq!(sum(&both), sum(&a) + sum(&b));
    let mut other = b.clone();
    other.domain.backend = "perf".to_string();
    assert!(
        merge::merge(&[a.clone(), other]).is_err(),
        "two domains do not add"
    );
    let mut coarse = b;
    coarse.slices.width_ns *= 2;
    let merged = merge::merge(&[a, coarse]).unwrap();
    assert!(merged.ledger_slices.is_empty() && merged.slices.count == 0);
    assert!(merged.samples.iter().all(|s| s.slices.is_empty()));
}

proptest! {
    #[test]
    fn intervals_hold_their_estimate(workers in 1..6u32, idle in 0..3usize) {
        let rec = synthetic::recording(workers);
        let analysis = Analysis::new(&rec, [Idle::Show, Idle::Hide, Idle::Only][idle]);
        for row in analysis.functions() {
            for view in View::ALL {
                let v = row.view(*view);
                let total = analysis.total(*view).shown_ns();
                for value in [v.own, v.total, v.place] {
                    prop_assert!(value.low_ns <= value.ns && value.ns <= value.high_ns);
                    prop_assert!(value.high_ns <= total);
                }
                prop_assert!(v.own.ns <= v.total.ns);
            }
        }
    }
}

#[test]
fn both_pictures_of_a_calibration_are_of_one_window() {
    let rec = synthetic::recording(5);
    let analysis = Analysis::new(&rec, Idle::Hide);
    let all = analysis.calibration(|_| true);
    assert_eq!(all.wall_ns() + all.idle_ns, ledger_of(&rec, View::Wall));
    for state in State::ALL {
        let rows: u64 = all.rows.iter().map(|r| r.state_ns(*state)).sum();
        assert_eq!(rows, all.state_ns(*state), "{state}");
    }
    assert!(all.behind_cpu_ns <= all.state_ns(State::Blocked));
    assert!(all.untouchable_ns() <= all.state_ns(State::Blocked));
    // The parts of a division of the threads sum to the whole.
    let first = rec.contexts[0].tid;
    let one = analysis.calibration(|c| c.tid == first);
    let others = analysis.calibration(|c| c.tid != first);
    assert_eq!(one.wall_ns() + others.wall_ns(), all.wall_ns());
    assert_eq!(one.idle_ns + others.idle_ns, all.idle_ns);
    assert_eq!(one.behind_cpu_ns + others.behind_cpu_ns, all.behind_cpu_ns);
    for width in [60, 100] {
        let style = Style {
            width: Some(width),
            colour: false,
            unicode: true,
        };
        let text = wallscope_render::calibrate::text(&rec, &all, &style);
        assert!(text.contains("No CPU optimisation can touch"), "{text}");
        let table = text.lines().find(|l| l.contains("CPU profile  wall time"));
        assert!(table.is_some(), "{text}");
        if width == 100 {
            assert!(text.lines().all(|l| l.chars().count() <= width), "{text}");
        }
    }
    let mut busy = all.clone();
    busy.ns[State::Blocked as usize] = 0;
    busy.behind_cpu_ns = 0;
    let text = wallscope_render::calibrate::sentences(&busy).join(" ");
    assert!(text.contains("Nothing of it was blocked"), "{text}");
    let none = analysis.calibration(|_| false);
    assert_eq!((none.wall_ns(), none.rows.len()), (0, 0));
    let text = wallscope_render::calibrate::sentences(&none).join(" ");
    assert!(text.contains("idle"), "{text}");
}

#[test]
fn what_threads_park_for_is_told_by_place_and_not_by_their_own_words() {
    let mut rec = synthetic::recording(3);
    rec.locks.clear();
    let park = FunctionId(rec.functions.len() as u32);
    rec.functions.push(Function {
        name: "parking_lot_core::parking_lot::park".into(),
        system_name: "".into(),
        file: "".into(),
        start_line: 0,
    });
    let locks: Vec<usize> = (0..rec.samples.len())
        .filter(|i| rec.samples[*i].reason == Some(BlockReason::Lock))
        .collect();
    let mut words = std::collections::BTreeSet::new();
    for i in locks {
        let context = rec.samples[i].context;
        let labels = LabelsId(rec.label_sets.len() as u32);
        let word = format!("futex {:#x}", 0x1000 + u64::from(context.0));
        rec.label_sets.push(vec![Label {
            key: "resource".into(),
            value: LabelValue::Text(word.as_str().into()),
        }]);
        rec.samples[i].labels = Some(labels);
        if words.insert(word) {
            rec.locks.push(LockWait {
                context,
                labels: Some(labels),
                address: 0x1000,
                total_ns: 5,
                longest_ns: 5,
                count: 1,
            });
        }
    }
    assert!(words.len() > 1, "several threads wait for locks");
    let by_word = Analysis::new(&rec, Idle::Show).locks();
    assert_eq!(by_word.len(), words.len());

    // These waits, seen to go through a lock that parks.
    let stacks: Vec<_> = (rec.samples.iter())
        .filter(|s| s.reason == Some(BlockReason::Lock))
        .map(|s| s.stack.0 as usize)
        .collect();
    for stack in stacks {
        let leaf = rec.stacks[stack].frames[0].0 as usize;
        if rec.frames[leaf].lines.iter().all(|l| l.function != park) {
            let line = Line {
                function: park,
                line: 0,
            };
            rec.frames[leaf].lines.insert(0, line);
        }
    }
    let analysis = Analysis::new(&rec, Idle::Show);
    let by_place = analysis.locks();
    assert!(by_place.len() < by_word.len(), "{by_place:?}");
    assert!(by_place.iter().all(|l| l.name.starts_with("parked in ")));
    let through = |l: &wallscope_analysis::view::LockRow| l.through.first().map(|t| t.what.clone());
    let called: Vec<_> = by_place.iter().filter_map(through).collect();
    assert_eq!(called, ["std::mutex::lock()"], "{by_place:?}");
    let waiters = by_place.iter().map(|l| l.waiters).max();
    assert!(waiters > Some(1), "threads are put together: {by_place:?}");
}
