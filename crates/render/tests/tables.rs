//! Tables for a terminal name the values that are not known.

use wallscope_analysis::view::{Analysis, Idle};
use wallscope_model::*;
use wallscope_render::text::{self, Headline, Style};
use wallscope_synthetic as synthetic;

#[test]
fn pauses_that_are_known_by_process_alone_have_no_share_of_a_thread() {
    let shown = |operation: &str| {
        let mut rec = synthetic::recording(3);
        let at = rec.samples.iter().position(|s| s.state == State::OnCpu);
        let sample = &mut rec.samples[at.expect("a thread computes")];
        rec.label_sets.push(vec![Label {
            key: GC_KEY.into(),
            value: LabelValue::Text("Go".into()),
        }]);
        sample.labels = Some(LabelsId(rec.label_sets.len() as u32 - 1));
        let pid = rec.contexts[sample.context.0 as usize].pid;
        rec.pauses.push(PauseGroup {
            pid,
            operation: operation.into(),
            kind: "concurrent".into(),
            count: 3,
            total_ns: 3_000_000,
            ..PauseGroup::default()
        });
        let headline = Headline {
            sentence: String::new(),
            because: Vec::new(),
        };
        let style = Style {
            width: None,
            colour: false,
            unicode: true,
        };
        text::render(&Analysis::new(&rec, Idle::Show), &headline, &style)
    };
    let why = "–: the runtime tells how long it stopped the process";
    let known = shown("G1CollectFull");
    assert!(
        known.contains("Garbage collection by thread") && !known.contains(why),
        "{known}"
    );
    let unknown = shown(GO_COLLECTION);
    assert!(unknown.contains(why), "{unknown}");
    let row = |text: &str| -> String {
        let lines = text.lines().skip_while(|l| !l.starts_with("Garbage"));
        lines.skip(2).take(1).collect()
    };
    assert!(
        row(&unknown).trim_start().starts_with("–       –"),
        "{unknown}"
    );
    assert!(!row(&known).contains('–'), "{known}");
}

#[test]
fn queues_that_lack_the_same_are_told_once() {
    use wallscope_analysis::queues::{Absent, QueueKind, Queues};
    use wallscope_render::queues::{Findings, text};
    let absent = |name: &str, reason: &str| Absent {
        kind: QueueKind::Pool,
        name: name.into(),
        reason: reason.into(),
    };
    let findings = Findings {
        queues: Some(Queues {
            rows: Vec::new(),
            absent: vec![
                absent("condition 0x10", "no units"),
                absent("condition 0x20", "no units"),
                absent("condition 0x30", "no slices"),
            ],
        }),
        ..Findings::default()
    };
    let shown = text(&findings, None);
    assert!(
        shown.contains("condition 0x10 and 1 more: no units"),
        "{shown}"
    );
    assert!(
        !shown.contains("0x20") && shown.contains("0x30: no slices"),
        "{shown}"
    );
}

#[test]
fn a_note_of_several_queues_is_printed_once_and_far_limits_are_counted() {
    use wallscope_analysis::queueing::Estimate;
    use wallscope_analysis::queues::{Queue, QueueKind, Queues, System};
    use wallscope_render::queues::{Findings, text};
    let queue = |name: &str, headroom: f64, notes: &[&str]| Queue {
        kind: QueueKind::Lock,
        name: name.into(),
        system: System::Open,
        because: format!("{name} has callers"),
        servers: 1,
        arrival_rate: Estimate::exact(10.0),
        service: Estimate::exact(0.01),
        variation: None,
        utilisation: Estimate::exact(0.1),
        others: 0.0,
        wait: None,
        headroom: Estimate::exact(headroom),
        prediction: None,
        notes: notes.iter().map(|n| (*n).to_owned()).collect(),
    };
    let rows = vec![
        queue("first", 0.5, &["means only", "of all"]),
        queue("second", 2.0, &["of all"]),
        queue("third", 20.0, &["of all"]),
        queue("fourth", 30.0, &["of all"]),
        queue("fifth", 40.0, &[]),
    ];
    let findings = Findings {
        queues: Some(Queues {
            rows,
            absent: Vec::new(),
        }),
        ..Findings::default()
    };
    let shown = text(&findings, None);
    assert!(
        shown.contains("first has callers; means only. [1]"),
        "{shown}"
    );
    assert!(shown.contains("second has callers. [1]"), "{shown}");
    assert_eq!(shown.matches("of all").count(), 1, "{shown}");
    assert!(shown.contains("[1] of all."), "{shown}");
    assert!(
        shown.contains("third") && !shown.contains("fourth"),
        "{shown}"
    );
    assert!(shown.contains("2 more, far from their limits"), "{shown}");
}
