//! The views `blame` and `tasks`, and the tables of waits beside their roots.

use wallscope_analysis::view::{Analysis, Idle};
use wallscope_formats::folded::Options;
use wallscope_model::{Recording, State, TaskGroup, TaskTime};
use wallscope_render::text::{Headline, Style};
use wallscope_render::{blame, json, tasks, text};
use wallscope_synthetic as synthetic;
use wallscope_synthetic::chains::{Plan, STEP_NS};

fn options() -> Options {
    Options {
        view: wallscope_model::View::Wall,
        with_thread: false,
        with_state: false,
        with_reason: false,
    }
}

fn lines(recording: &Recording) -> Vec<(String, u64)> {
    let mut out = Vec::new();
    blame::write(recording, &options(), &mut out).unwrap();
    parsed(&out)
}

fn parsed(folded: &[u8]) -> Vec<(String, u64)> {
    let text = std::str::from_utf8(folded).unwrap();
    let split = |line: &str| {
        let (stack, ns) = line.rsplit_once(' ').unwrap();
        (stack.to_owned(), ns.parse().unwrap())
    };
    text.lines().map(split).collect()
}

#[test]
fn a_line_holds_the_waiters_stack_and_then_the_roots() {
    let got = lines(&Plan::line(3, 10).recording());
    let expected = (0..3).map(|i| {
        let stack = format!("wait_{i};[because of t3: on_cpu];work_3");
        (stack, 10 * STEP_NS)
    });
    assert_eq!(got, expected.collect::<Vec<_>>());
}

#[test]
fn a_chain_that_stops_ends_in_its_cause() {
    let mut rec = Plan::line(1, 10).recording();
    rec.hops.clear();
    let got = lines(&rec);
    let expected = (
        "wait_0;[not followed: waker_not_seen]".to_owned(),
        10 * STEP_NS,
    );
    assert_eq!(got, [expected]);
}

#[test]
fn the_view_sums_to_blocked_time() {
    for rec in [synthetic::recording(3), Plan::random(5).recording()] {
        let blocked: u64 = rec.contexts.iter().map(|c| c.ledger.blocked_ns()).sum();
        let sum: u64 = lines(&rec).iter().map(|(_, ns)| ns).sum();
        assert_eq!(sum, blocked);
    }
}

#[test]
fn report_and_json_show_waits_beside_their_roots() {
    let rec = Plan::line(2, 10).recording();
    let analysis = Analysis::new(&rec, Idle::Show);
    let style = Style {
        width: Some(100),
        colour: false,
        unicode: false,
    };
    let shown = text::render(&analysis, &Headline::default(), &style);
    let row = shown
        .lines()
        .find(|l| l.contains("wait_0") && l.contains("t2 computes in work_2"));
    assert!(row.is_some_and(|row| row.contains("50.0 %")), "{shown}");
    assert!(shown.contains("every wait of the timeline"), "{shown}");
    let report = json::render(&analysis, &Headline::default());
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let (sampled, all) = (&report["blame"]["sampled"], &report["blame"]["every_wait"]);
    for rows in [sampled, all] {
        let rows = rows.as_array().unwrap();
        let sum: u64 = rows.iter().map(|row| row["ns"].as_u64().unwrap()).sum();
        assert_eq!(sum, 20 * STEP_NS, "{rows:?}");
        assert!(rows.iter().all(|row| row["root"] == "t2"), "{rows:?}");
    }
}

#[test]
fn tasks_have_stacks_of_their_own_and_idle_helpers_are_known() {
    let mut rec = Plan::line(1, 10).recording();
    let time = |state, reason: &str, ns| TaskTime {
        state,
        reason: reason.into(),
        detail: "".into(),
        stack: (state == State::Blocked).then(|| rec.samples[0].stack),
        labels: None,
        count: 1,
        ns,
    };
    let group = |name: &str, times| TaskGroup {
        kind: "goroutine".into(),
        name: name.into(),
        times,
        ..TaskGroup::default()
    };
    let own = vec![time(State::OnCpu, "", 3), time(State::Blocked, "mutex", 5)];
    let helper = vec![time(State::Blocked, "network", 7)];
    rec.tasks = vec![
        group("main.serve", own),
        group("net/http.(*connReader).backgroundRead", helper),
    ];
    let mut out = Vec::new();
    let options = Options {
        with_reason: true,
        ..options()
    };
    tasks::write(&rec, &options, &mut out).unwrap();
    let expected = [
        ("main.serve;[not sampled]".to_owned(), 3),
        ("wait_0;idle".to_owned(), 7),
        ("wait_0;mutex".to_owned(), 5),
    ];
    assert_eq!(parsed(&out), expected);
    let rows = Analysis::new(&rec, Idle::Show).tasks();
    let engaged: Vec<u64> = rows.iter().map(|row| row.engaged_ns()).collect();
    assert_eq!(engaged, [8, 0], "the one with something to do comes first");
}
