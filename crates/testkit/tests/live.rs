//! The experiments that do not depend on how fast the machine is, run short with the real binary, one at a
//! time. `wallscope_testkit::live` says when one is made again, and the outcome where it cannot run.

use wallscope_testkit::checks::{self, Influence, Length};
use wallscope_testkit::{Tool, known, live};

fn experiment(name: &str) {
    let check = checks::by_name(name).expect("the experiment is in the table");
    live::test_alone(name, || {
        let card = Tool::find().and_then(|tool| (check.run)(&tool.replayed(), Length::SHORT));
        card.map(|mut card| {
            known::allow(name, &mut card);
            card
        })
        .into()
    });
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
                .filter(|check| check.kind == Influence::Truth && !tested.contains(&check.name))
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
    turns "turns";
    rpc "rpc";
    reasons "reasons";
    userfault "userfault";
    uring "uring";
    collect_go "collect-go";
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
    starts "starts";
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
    moved_code "moved-code";
    python "python";
    thread_names "thread-names";
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
