//! The truth programs themselves: each gets ready, works, and tells a truth that hangs together.
//! Needs neither root nor wallscope.

use std::process::Command;
use std::time::Duration;

use wallscope_testkit::{Error, Program, Truth, live, program};

const LIMIT: Duration = Duration::from_secs(60);

fn run(name: &str, flags: &[&str]) -> Option<Truth> {
    let mut program = match Program::start(name, flags) {
        Ok(program) => program,
        Err(Error::CannotRunHere(why)) => {
            eprintln!("skipped {name}: {why}");
            return None;
        }
        Err(error) => panic!("{name}: {error}"),
    };
    program.release().unwrap();
    let truth = program.truth(LIMIT).unwrap();
    program.finish().unwrap();
    assert_eq!(truth.program, name);
    assert!(!truth.threads.is_empty(), "{name} has threads");
    for thread in truth.threads.iter().filter(|thread| thread.finished) {
        assert!(
            thread.start_ns > 0 && thread.work_wall_ns > 0,
            "{name}: {thread:?}"
        );
        if thread.end_ns > 0 {
            let life = thread.end_ns - thread.start_ns;
            assert!(thread.work_wall_ns <= life, "{name}: {thread:?}");
        }
    }
    for function in &truth.functions {
        assert!(
            function.calls > 0,
            "{name}: {} was never called",
            function.name
        );
        assert!(function.wall_ns > 0, "{name}: {function:?}");
    }
    Some(truth)
}

fn time(
    truth: &Truth,
    function: &str,
    of: impl Fn(&wallscope_testkit::truth::FunctionTruth) -> u64,
) -> u64 {
    let found: Vec<u64> = truth
        .functions
        .iter()
        .filter(|f| f.name == function)
        .map(of)
        .collect();
    assert!(!found.is_empty(), "{} tells of {function}", truth.program);
    found.iter().sum()
}

#[test]
fn sleepers_sleep_and_computers_compute() {
    live::asserted("sleepers sleep and computers compute", || {
        let truth = run("mix", &["--seconds", "0.5"]).unwrap();
        assert!(
            time(&truth, "mix_sleep", |f| f.blocked_ns())
                > time(&truth, "mix_sleep", |f| f.on_cpu_ns)
        );
        assert!(
            time(&truth, "mix_compute", |f| f.on_cpu_ns)
                > time(&truth, "mix_compute", |f| f.blocked_ns())
        );
    });
}

#[test]
fn shares_keep_their_order() {
    live::asserted("shares keep their order", || {
        let truth = run("shares", &["--seconds", "1", "--chunk-us", "200"]).unwrap();
        let cpu = |name| time(&truth, name, |f| f.on_cpu_ns);
        let shares = ["share_fifty", "share_thirty", "share_fifteen", "share_five"].map(cpu);
        assert!(shares.is_sorted_by(|a, b| a > b), "{shares:?}");
        assert_eq!(
            run("cover", &["--seconds", "1", "--chunk-us", "50"])
                .unwrap()
                .functions
                .len(),
            20
        );
    });
}

#[test]
fn waiters_wait() {
    live::asserted("waiters wait", || {
        let truth = run("convoy", &["--seconds", "0.5"]).unwrap();
        assert!(time(&truth, "convoy_wait_lock", |f| f.blocked_ns()) > 0);
        let truth = run("rpc", &["--seconds", "0.5"]).unwrap();
        let pids: std::collections::BTreeSet<u32> = truth.threads.iter().map(|t| t.pid).collect();
        assert_eq!(pids.len(), 2, "client and server");
        assert!(
            time(&truth, "rpc_client_call", |f| f.blocked_ns())
                > time(&truth, "rpc_server_backend", |f| f.blocked_ns()) / 2
        );
        let folder = env!("CARGO_TARGET_TMPDIR");
        let truth = run("disk", &["--seconds", "0.3", "--dir", folder]).unwrap();
        assert!(time(&truth, "disk_fdatasync", |f| f.calls) > 0);
        let truth = run("faults", &["--seconds", "0.3", "--dir", folder]).unwrap();
        assert!(truth.extra("minor_faults").unwrap() > 1000.0);
    });
}

#[test]
fn a_crowd_waits_for_its_cpu_and_a_quota_bites() {
    live::asserted("a crowd waits for its cpu and a quota bites", || {
        let truth = run("crowd", &["--seconds", "1"]).unwrap();
        let (cpu, delay) = truth.threads.iter().fold((0, 0), |(cpu, delay), t| {
            (cpu + t.on_cpu_ns, delay + t.run_delay_ns)
        });
        assert!(
            delay > cpu,
            "four on one CPU wait more than they run: {cpu} {delay}"
        );
        if let Some(truth) = run("throttled", &["--seconds", "1"]) {
            assert!(truth.extra("throttled_periods").unwrap() >= 1.0);
        }
    });
}

#[test]
fn many_short_blocks_weigh_as_much_as_the_long_one() {
    live::asserted("many short blocks weigh as much as the long one", || {
        let truth = run("micro", &["--count", "20000"]).unwrap();
        let micro = time(&truth, "micro_blocks", |f| f.blocked_ns()) as f64;
        let long = time(&truth, "long_block", |f| f.wall_ns) as f64;
        assert!(long >= micro * 0.99, "{micro} {long}");
        run("pingpong", &["--rounds", "4000"])
            .unwrap()
            .extra("ns_per_round")
            .unwrap();
        run("fixed", &["--units", "1e7"])
            .unwrap()
            .extra("cpu_ns")
            .unwrap();
    });
}

#[test]
fn lives_are_told_one_by_one() {
    live::asserted("lives are told one by one", || {
        let truth = run("short", &["--seconds", "0.5", "--count", "100"]).unwrap();
        assert_eq!(
            truth.threads.iter().filter(|t| t.name == "short").count(),
            100
        );
        let truth = run("parked", &["--seconds", "0.2", "--threads", "300"]).unwrap();
        assert_eq!(
            truth.threads.iter().filter(|t| t.name == "parked").count(),
            300
        );
        let truth = run("execs", &["--rounds", "6"]).unwrap();
        for how in ["exec-chain", "exec-thread", "exec-vfork"] {
            let lives: Vec<_> = truth.threads.iter().filter(|t| t.name == how).collect();
            assert_eq!(lives.len(), 2, "{how}");
            assert!(
                lives.iter().all(|life| life.pid == life.tid),
                "an exec makes a leader: {lives:?}"
            );
        }
        let truth = run("rename", &["--seconds", "0.3"]).unwrap();
        assert_eq!(truth.threads[0].name, "name-after");
    });
}

#[test]
fn a_migrant_migrates_and_edges_are_told() {
    live::asserted("a migrant migrates and edges are told", || {
        if let Some(truth) = run("migrate", &["--seconds", "0.5"]) {
            assert!(truth.extra("crossings").unwrap() > 0.0);
        }
        let truth = run("span", &["--seconds", "0.4"]).unwrap();
        let killed = truth.extra("child_killed_ns").unwrap();
        assert!(killed > truth.released_ns as f64 && killed < truth.ended_ns as f64);
        assert!(
            truth
                .threads
                .iter()
                .any(|t| t.name == "span-forever" && !t.finished)
        );
    });
}

#[test]
fn a_delay_is_put_where_it_was_asked_for() {
    live::asserted("a delay is put where it was asked for", || {
        for kind in ["sleep", "cpu", "lock"] {
            let flags = [
                "--seconds",
                "0.4",
                "--in",
                "step_store",
                "--delay-us",
                "2000",
                "--kind",
                kind,
            ];
            let truth = run("inject", &flags).unwrap();
            let injected = truth.extra("injected_ns").unwrap();
            assert!(injected > 0.0, "{kind}");
            assert!(
                time(&truth, "step_store", |f| f.wall_ns) as f64 >= injected * 0.98,
                "{kind}"
            );
        }
    });
}

#[test]
fn odd_stacks_are_written_down_to_their_roots() {
    live::asserted("odd stacks are written down to their roots", || {
        let truth = run("odd", &["--seconds", "1"]).unwrap();
        let chain = |leaf: &str| {
            let found = truth.chains.iter().find(|chain| chain.leaf == leaf);
            found.unwrap_or_else(|| panic!("no chain of {leaf}"))
        };
        for case in [
            "deep",
            "alloca",
            "buffer",
            "plt",
            "vdso",
            "tail",
            "qsort",
            "bsearch",
            "raised",
            "async",
            "dlopen",
            "longjmp",
            "throw_before",
            "throw_destructor",
            "throw_catch",
            "context",
            "main",
        ] {
            for way in ["spin", "block"] {
                let chain = chain(&format!("odd_{case}_{way}"));
                assert_eq!(chain.frames[0].name, chain.leaf);
                let root = chain.frames.last().unwrap();
                assert!(
                    root.name == "_start" || root.module.starts_with("libc"),
                    "{root:?}"
                );
            }
        }
        let deep = chain("odd_deep_spin").frames.len();
        assert!(
            (620..640).contains(&deep),
            "as deep as must be followed whole: {deep}"
        );
        assert!(chain("odd_abyss_spin").frames.len() > 1300);
        assert!(
            chain("odd_tail_spin")
                .frames
                .iter()
                .all(|frame| frame.name != "odd_tail_second")
        );
        assert!(
            chain("odd_dlopen_block")
                .frames
                .iter()
                .any(|frame| frame.module == "libwallscope-odd.so")
        );
        assert_eq!(
            chain("odd_main_block").frames.last().unwrap().name,
            "_start"
        );
        #[cfg(target_arch = "x86_64")]
        assert_eq!(
            chain("odd_fiber_block").frames.last().unwrap().name,
            "odd_fiber_body"
        );
    });
}

#[test]
fn wrong_usage_is_told() {
    live::asserted("wrong usage is told", || {
        let output = |arguments: &[&str]| {
            Command::new(program::path())
                .args(arguments)
                .output()
                .unwrap()
        };
        for (arguments, word) in [
            (&["nonesuch"][..], "nonesuch"),
            (&["mix", "--sekonds", "1"], "--sekonds"),
            (&["mix", "--seconds", "soon"], "soon"),
        ] {
            let output = output(arguments);
            assert_eq!(output.status.code(), Some(2));
            assert!(
                String::from_utf8_lossy(&output.stderr).contains(word),
                "{output:?}"
            );
        }
        assert!(String::from_utf8_lossy(&output(&["list"]).stdout).contains("pingpong"));
        assert!(matches!(
            Program::start("nonesuch", &[]),
            Err(Error::Protocol(_))
        ));
    });
}
