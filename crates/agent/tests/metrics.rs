//! Metrics equal the ledgers, and Debian's `promtool` accepts them, the rules and the dashboard's names.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use wallscope_agent::metrics::{AgentFigures, Exposition, Family, TargetFigures, Totals, families};
use wallscope_model::{BlockReason, ContextId, Loss, State};
use wallscope_synthetic::windows::window;

fn made_up() -> (Totals, AgentFigures) {
    let mut totals = Totals::default();
    for i in 0..6 {
        let mut w = window(i);
        w.losses.push(Loss {
            cause: "hostile \"cause\"\n\u{202e}".to_string(),
            count: 1,
        });
        totals.add(&w);
    }
    let target = TargetFigures {
        pending: 3,
        ..TargetFigures::default()
    };
    let agent = AgentFigures {
        store_bytes: 1 << 20,
        targets: BTreeMap::from([("server".to_string(), target)]),
        ..AgentFigures::default()
    };
    (totals, agent)
}

fn value(families: &[Family], line: &str) -> String {
    let text = Exposition::Prometheus.text(families);
    let found = text
        .lines()
        .find_map(|l| l.strip_prefix(line)?.strip_prefix(' '));
    found
        .unwrap_or_else(|| panic!("no {line} in\n{text}"))
        .to_string()
}

#[test]
fn counters_equal_the_ledgers_to_the_nanosecond() {
    let (totals, agent) = made_up();
    let families = families(&totals, &agent);
    let sum = |of: &dyn Fn(&wallscope_model::Ledger) -> u64| -> String {
        let mut ns = 0;
        for w in (0..6).map(window) {
            for (i, c) in w.contexts.iter().enumerate() {
                let service = w.context_label(ContextId(i as u32), "service");
                if service == Some("checkout") {
                    ns += of(&c.ledger);
                }
            }
        }
        format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
    };
    for (line, expected) in [
        (
            "wallscope_on_cpu_seconds_total{service=\"checkout\",mode=\"user\"}",
            sum(&|l| l.on_cpu.user),
        ),
        (
            "wallscope_runnable_seconds_total{service=\"checkout\",reason=\"woken\"}",
            sum(&|l| l.runnable.woken),
        ),
        (
            "wallscope_blocked_seconds_total{service=\"checkout\",reason=\"disk\"}",
            sum(&|l| l.blocked[BlockReason::Disk as usize]),
        ),
        (
            "wallscope_wall_seconds_total{service=\"checkout\"}",
            sum(&|l| l.wall_ns),
        ),
        (
            "wallscope_run_queue_latency_seconds_sum{service=\"checkout\"}",
            sum(&|l| l.state_ns(State::Runnable)),
        ),
        (
            "wallscope_run_queue_latency_seconds_count{service=\"checkout\"}",
            (6 * 4 * 10).to_string(),
        ),
        ("wallscope_agent_windows_total", "6".to_string()),
        (
            "wallscope_agent_pending_windows{target=\"server\"}",
            "3".to_string(),
        ),
        (
            "wallscope_agent_losses_total{cause=\"ring full\"}",
            "6".to_string(),
        ),
    ] {
        assert_eq!(value(&families, line), expected, "{line}");
    }
}

#[test]
fn a_service_that_is_gone_has_no_fraction() {
    let mut totals = Totals::default();
    let mut w = window(0);
    totals.add(&w);
    assert!(totals.services["payments"].on_cpu_fraction.is_some());
    w.contexts.retain(|c| c.pid != 200);
    w.context_labels.truncate(w.contexts.len());
    w.context_labels.iter_mut().for_each(|l| *l = None);
    w.histograms.clear();
    totals.add(&w);
    assert_eq!(totals.services["payments"].on_cpu_fraction, None);
    // After an hour it has no series at all.
    (0..360).for_each(|_| totals.add(&w));
    assert!(totals.services.contains_key("other"));
    assert!(!totals.services.contains_key("payments"));
}

#[test]
fn buckets_are_cumulative() {
    let (totals, agent) = made_up();
    let text = Exposition::OpenMetrics.text(&families(&totals, &agent));
    let mut last: BTreeMap<String, f64> = BTreeMap::new();
    let mut seen = 0;
    for line in text.lines().filter(|l| l.contains("_bucket{")) {
        let (labels, value) = line.rsplit_once(' ').unwrap();
        let series = labels.split("le=").next().unwrap().to_string();
        let value: f64 = value.parse().unwrap();
        let before = last.insert(series, value).unwrap_or(0.0);
        assert!(value >= before, "{line}");
        seen += 1;
    }
    assert_eq!(seen, (3 + 1) * 17);
    assert!(text.ends_with("# EOF\n"));
}

/// `promtool`, from the variable `WALLSCOPE_PROMTOOL` or the path; a line tells where there is none.
fn promtool(args: &[&str], input: &str) -> Option<(bool, String)> {
    let tool = std::env::var("WALLSCOPE_PROMTOOL").unwrap_or("promtool".to_string());
    let spawned = Command::new(tool)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else {
        println!("skipped: there is no promtool (Debian: apt install prometheus)");
        return None;
    };
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let out = child.wait_with_output().unwrap();
    let text = [out.stdout, out.stderr].concat();
    Some((
        out.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    ))
}

#[test]
fn promtool_accepts_the_metrics() {
    let (totals, agent) = made_up();
    let text = Exposition::Prometheus.text(&families(&totals, &agent));
    if let Some((fine, told)) = promtool(&["check", "metrics"], &text) {
        assert!(fine && told.is_empty(), "{told}\n{text}");
    }
}

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

#[test]
fn promtool_accepts_the_alert_rules() {
    let rules = packaging().join("prometheus/wallscope.rules.yml");
    let path = rules.to_str().unwrap();
    if let Some((fine, told)) = promtool(&["check", "rules", path], "") {
        assert!(fine, "{told}");
    }
}

/// Names of metrics in a text.
fn names(text: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !word(c))
        .filter(|w| w.starts_with("wallscope_"))
        .map(str::to_string)
        .collect()
}

#[test]
fn dashboard_and_rules_use_metrics_that_exist() {
    let (totals, agent) = made_up();
    let text = Exposition::Prometheus.text(&families(&totals, &agent));
    let have: BTreeSet<String> = (text.lines().filter(|l| !l.starts_with('#')))
        .filter_map(|l| l.split(['{', ' ']).next())
        .map(str::to_string)
        .collect();
    for file in ["grafana/wallscope.json", "prometheus/wallscope.rules.yml"] {
        let text = std::fs::read_to_string(packaging().join(file)).unwrap();
        let used = names(&text);
        assert!(used.len() > 5, "{used:?}");
        let missing: Vec<_> = used.difference(&have).collect();
        assert!(missing.is_empty(), "{file} uses {missing:?}");
    }
    let json = std::fs::read_to_string(packaging().join("grafana/wallscope.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&json).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() >= 8);
    for p in panels {
        assert!(p["targets"][0]["expr"].is_string(), "{}", p["title"]);
    }
}
