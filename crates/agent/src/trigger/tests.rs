use std::time::Duration;

use wallscope_model::{HostSample, Pressure};
use wallscope_synthetic::windows::window;

use super::*;
use crate::config::{Condition, Length, Resource, Share, TriggerLimits};

fn met() -> Reading {
    Reading {
        is_met: true,
        text: "it is 5, above 3".to_string(),
    }
}

fn machine(hold: u64, cool_down: u64, max_per_day: u32) -> Machine {
    let seconds = |s| Duration::from_secs(s);
    Machine::new(
        seconds(hold),
        TriggerLimits {
            cool_down: Length(seconds(cool_down)),
            max_per_day,
            ..TriggerLimits::default()
        },
    )
}

#[test]
fn a_condition_must_hold() {
    let mut m = machine(30, 600, 20);
    let quiet = Reading {
        is_met: false,
        ..met()
    };
    let window = 10_000;
    assert_eq!(m.step(10_000, window, Some(&met())), Outcome::Holding);
    assert_eq!(m.step(20_000, window, Some(&met())), Outcome::Holding);
    assert_eq!(m.step(30_000, window, Some(&quiet)), Outcome::Quiet);
    assert_eq!(m.step(40_000, window, Some(&met())), Outcome::Holding);
    assert_eq!(m.step(50_000, window, None), Outcome::Quiet);
    assert_eq!(m.step(60_000, window, Some(&met())), Outcome::Holding);
    assert_eq!(m.step(70_000, window, Some(&met())), Outcome::Holding);
    let fires = Outcome::Fires("it is 5, above 3, for 30 s".to_string());
    assert_eq!(m.step(80_000, window, Some(&met())), fires);
    assert_eq!(m.step(90_000, window, Some(&met())), Outcome::CoolingDown);
    // Windows are missing: nobody knows whether the condition held.
    assert_eq!(m.step(900_000, window, Some(&met())), Outcome::Holding);
}

#[test]
fn snaps_have_a_distance_and_a_number() {
    let mut m = machine(10, 60, 3);
    let mut fired = Vec::new();
    // The condition is met all day, read every 10 s.
    for second in (10..86_400 * 2).step_by(10) {
        match m.step(second * 1000, 10_000, Some(&met())) {
            Outcome::Fires(_) => fired.push(second),
            Outcome::CoolingDown | Outcome::Spent => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fired, [10, 70, 130, 86_410, 86_470, 86_530]);
    // An alert waits for nothing, but keeps the same limits.
    let mut m = machine(10, 60, 3);
    assert_eq!(m.alert(0, "alert"), Outcome::Fires("alert".to_string()));
    assert_eq!(m.alert(59_999, "alert"), Outcome::CoolingDown);
}

fn share(percent: f64) -> Share {
    Share(percent / 100.0)
}

#[test]
fn figures_are_those_of_the_window() {
    let mut w = window(1);
    for (second, total_us) in [(0, 1_000_000), (10, 5_500_000)] {
        let mut host = HostSample {
            time_ns: w.window.start_ns + second * 1_000_000_000,
            ..HostSample::default()
        };
        host.facts.psi_cpu = Some(Pressure {
            some_total_us: total_us,
            ..Pressure::default()
        });
        w.host.push(host);
    }
    let pressure = |resource, percent| Condition::Pressure {
        resource,
        above: share(percent),
    };
    let told = measure(&pressure(Resource::Cpu, 40.0), &w).unwrap();
    assert_eq!(
        (told.is_met, told.text.as_str()),
        (true, "CPU pressure is 45.0 %, above 40.0 %")
    );
    assert!(!measure(&pressure(Resource::Cpu, 50.0), &w).unwrap().is_met);
    assert_eq!(measure(&pressure(Resource::Io, 1.0), &w), None);

    let service = |name: &str| Some(name.to_string());
    let of = |name: &str, of: &str, percent| Condition::TimeShare {
        service: service(name),
        of: of.to_string(),
        above: share(percent),
    };
    let ledger = |name: &str| {
        let mut sum = wallscope_model::Ledger::default();
        for (i, c) in w.contexts.iter().enumerate() {
            let id = wallscope_model::ContextId(i as u32);
            if w.context_label(id, "service") == Some(name) {
                sum.add(&c.ledger);
            }
        }
        sum
    };
    let l = ledger("checkout");
    let percent = 100.0 * l.on_cpu.user as f64 / l.wall_ns as f64;
    assert!(
        measure(&of("checkout", "user", percent - 0.1), &w)
            .unwrap()
            .is_met
    );
    assert!(
        !measure(&of("checkout", "on_cpu", percent + 0.1), &w)
            .unwrap()
            .is_met
    );
    assert_eq!(measure(&of("gone", "user", 1.0), &w), None);

    let late = |above_ms| Condition::RunQueueLatency {
        service: service("checkout"),
        quantile: share(99.0),
        above: Length(Duration::from_millis(above_ms)),
    };
    assert!(measure(&late(1), &w).unwrap().is_met);
    let told = measure(&late(10_000), &w).unwrap();
    assert!(
        !told.is_met
            && told
                .text
                .starts_with("run-queue latency p99 of checkout is")
    );
    let starving = Condition::OnCpuFraction {
        service: None,
        below: share(99.0),
    };
    let told = measure(&starving, &w).unwrap();
    assert!(
        told.is_met && told.text.starts_with("on-CPU share of the machine is"),
        "{}",
        told.text
    );
}

#[test]
fn webhooks_of_alertmanager_and_grafana() {
    // As their documentation shows them, shortened.
    let alertmanager = br#"{"version":"4","groupKey":"{}:{alertname=\"HighLatency\"}","truncatedAlerts":0,
        "status":"firing","receiver":"wallscope","groupLabels":{"alertname":"HighLatency"},
        "commonLabels":{"alertname":"HighLatency"},"commonAnnotations":{},
        "externalURL":"http://alertmanager:9093","alerts":[
        {"status":"firing","labels":{"alertname":"HighLatency","service":"checkout"},
         "annotations":{"summary":"p99 of checkout is 2 s"},"startsAt":"2026-11-27T14:00:00Z",
         "endsAt":"0001-01-01T00:00:00Z","generatorURL":"http://prometheus:9090","fingerprint":"5d6e"},
        {"status":"resolved","labels":{"alertname":"Other"},"annotations":{}}]}"#;
    let grafana = br#"{"receiver":"wallscope","status":"firing","orgId":1,"alerts":[
        {"status":"firing","labels":{"alertname":"High memory usage","team":"blue","zone":"us-1"},
         "annotations":{"description":"The system has high memory usage"},
         "startsAt":"2021-10-12T09:51:03.157076+02:00","endsAt":"0001-01-01T00:00:00Z",
         "values":{"B":44.23943737541908},"valueString":"[ metric='' labels={} value=14151.33 ]"}],
        "groupLabels":{},"commonLabels":{"team":"blue"},"version":"1","groupKey":"{}:{}",
        "truncatedAlerts":0,"title":"[FIRING:1]","state":"alerting","message":"**Firing**"}"#;
    let legacy = br#"{"dashboardId":1,"evalMatches":[{"value":1,"metric":"Count","tags":{}}],
        "message":"Notification Message","orgId":1,"panelId":2,"ruleId":1,"ruleName":"Panel Title alert",
        "ruleUrl":"http://localhost:3000","state":"alerting","tags":{},"title":"[Alerting] Panel Title alert"}"#;
    let told = |body: &[u8]| -> Vec<(String, String)> {
        let alerts = parse_webhook(body).unwrap();
        alerts.into_iter().map(|a| (a.name, a.text)).collect()
    };
    let pair = |a: &str, b: &str| vec![(a.to_string(), b.to_string())];
    assert_eq!(
        told(alertmanager),
        pair("HighLatency", "p99 of checkout is 2 s")
    );
    assert_eq!(
        told(grafana),
        pair("High memory usage", "The system has high memory usage")
    );
    assert_eq!(
        told(legacy),
        pair("Panel Title alert", "Notification Message")
    );
    assert_eq!(told(br#"{"ruleName":"x","state":"ok"}"#), []);
    assert!(matches!(parse_webhook(b"{}"), Err(WebhookError::NoAlert)));
    assert!(matches!(parse_webhook(b"[1]"), Err(WebhookError::Form(_))));
}
