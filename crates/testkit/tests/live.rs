//! The experiments that do not depend on how fast the machine is, run short with the real binary,
//! one at a time. Where they cannot run they print one line that says why; with
//! `WALLSCOPE_REQUIRE_LIVE` set, that is a failure.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};
use wallscope_testkit::calm::{self, Attempts, CpuTime};
use wallscope_testkit::checks::{self, Kind, Length};
use wallscope_testkit::{Error, Tool};

/// Held while an experiment runs: two at once would measure each other, in this process or beside
/// it.
fn alone() -> File {
    let path = std::env::temp_dir().join("wallscope-live-tests.lock");
    let file = File::create(&path).expect("a lock file can be made");
    flock(&file, FlockOperation::LockExclusive).expect("the lock can be waited for");
    file
}

fn experiment(name: &str) {
    let _alone = alone();
    let check = checks::by_name(name).expect("the experiment is in the table");
    // What else runs on this machine is part of what is measured: a row may fail by its doing or by
    // chance, but not every time, unless the host took CPUs away nearly every time.
    let mut attempts = Attempts::default();
    for last in [false, false, false, true] {
        let begun = CpuTime::now();
        let outcome = Tool::find().and_then(|tool| (check.run)(&tool, Length::SHORT));
        match outcome {
            Ok(card) => {
                assert!(!card.rows.is_empty(), "{name} has no rows");
                attempts.add(&begun);
                attempts.judge(&card);
                if card.passed() {
                    return println!("{name}: {}\n{card}", check.about);
                }
                let rows = format!(
                    "of {} rows these failed\n{}",
                    card.rows.len(),
                    card.failed()
                );
                println!("{name}: {rows}");
                let never = attempts.never_held();
                if never.is_empty() {
                    return println!("{name}: each of its rows has held");
                }
                if last && let Some(excuse) = attempts.excuse(name) {
                    return eprintln!("{excuse}");
                }
                assert!(!last, "{name}: never held: {never:?}; {rows}");
                calm::wait(name);
            }
            Err(Error::CannotRunHere(why)) => {
                let required = std::env::var_os("WALLSCOPE_REQUIRE_LIVE").is_some();
                assert!(!required, "{name}: {why}");
                eprintln!("skipped {name}: {why}");
                return;
            }
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

macro_rules! experiments {
    ($($test:ident $name:literal;)*) => {
        $(#[test]
        fn $test() {
            experiment($name);
        })*

        #[test]
        fn every_experiment_of_this_kind_is_a_test() {
            let tested = [$($name),*];
            let left: Vec<_> = checks::ALL
                .iter()
                .filter(|check| check.kind == Kind::Truth && !tested.contains(&check.name))
                .map(|check| check.name)
                .collect();
            assert!(left.is_empty(), "not tested: {left:?}");
        }
    };
}

experiments! {
    mix "mix";
    shares "shares";
    cover "cover";
    in_step "in-step";
    convoy "convoy";
    disk "disk";
    faults "faults";
    bursts "bursts";
    rpc "rpc";
    reasons "reasons";
    userfault "userfault";
    chain "chain";
    hands "hands";
    held "held";
    crowd "crowd";
    throttled "throttled";
    micro "micro";
    migrate "migrate";
    inject_sleep "inject-sleep";
    inject_cpu "inject-cpu";
    inject_lock "inject-lock";
    lengths "lengths";
    plugins "plugins";
    intervals "intervals";
    events "events";
    queue "queue";
    what_if "what-if";
    upstream "upstream";
    long_ago "long-ago";
    aside "aside";
    spin "spin";
    short "short";
    span "span";
    execs "execs";
    rename "rename";
    parked "parked";
    cgroup "cgroup";
    everything "everything";
    calls "calls";
    counts "counts";
    forked_calls "forked-calls";
    slow_calls "slow-calls";
    odd "odd";
    interrupt "interrupt";
    bare "bare";
    python "python";
    gil "gil";
    asyncio "asyncio";
    java "java";
    virtual_threads "virtual-threads";
    go "go";
    goroutines "goroutines";
    jit "jit";
    node "node";
    php "php";
    ruby "ruby";
    rates "rates";
}
