//! Receivers without keys: OTLP collectors and Pyroscope get each window at least once, and a window that
//! may have counted twice is counted.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wallscope_agent::config::Config;
use wallscope_agent::delivery::{Courier, Step};
use wallscope_agent::http::{Limits, Request, read_request};
use wallscope_agent::store::{Caps, Store, WindowKey};
use wallscope_model::State;
use wallscope_synthetic::windows::window;

/// Answers requests with the given statuses in turn; 0 closes the connection without an answer.
fn collector(statuses: &'static [u16]) -> (String, Arc<Mutex<Vec<Request>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
    let own = requests.clone();
    std::thread::spawn(move || {
        let limits = Limits {
            body: 64 << 20,
            ..Limits::default()
        };
        for status in statuses {
            let mut stream = listener.accept().unwrap().0;
            let request = read_request(&mut stream, limits).unwrap();
            own.lock().unwrap().push(request);
            if *status != 0 {
                let head = "Content-Length: 0\r\nRetry-After: 7\r\nConnection: close";
                write!(stream, "HTTP/1.1 {status} A\r\n{head}\r\n\r\n").unwrap();
            }
        }
    });
    (url, requests)
}

fn courier(dir: &Path, kind: &str, url: &str, more: &str) -> Courier {
    let text = format!("[[target]]\nname = \"t\"\nkind = \"{kind}\"\nurl = \"{url}\"\n{more}");
    let config = Config::parse(Path::new("a.toml"), &text).unwrap();
    let caps = Caps {
        bytes: 1 << 30,
        age: Duration::from_secs(1 << 30),
    };
    let mut store = Store::open(dir, caps, &["t".to_string()]).unwrap();
    if store.windows().len() == 0 {
        let key = |sequence| WindowKey {
            host: "h".to_string(),
            boot: "b".to_string(),
            epoch: 1,
            sequence,
        };
        (0..2).for_each(|i| drop(store.add(window(i), key(i)).unwrap()));
    }
    let outbox = store.outboxes()[0].1.clone();
    Courier::new(config.targets[0].clone(), outbox, 1).unwrap()
}

#[test]
fn otlp_gets_services_as_resources_and_doubts_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "secret\n").unwrap();
    let (url, requests) = collector(&[0, 503, 200, 200]);
    let more = format!(
        "token_file = \"{}\"\nheaders = {{ X-Scope-OrgID = \"team\" }}\n",
        token.display()
    );
    let store = dir.path().join("store");
    let mut courier = courier(&store, "otlp", &url, &more);
    assert!(matches!(courier.step(), Step::Wait(_)));
    // The collector asks for 7 s.
    assert!(matches!(courier.step(), Step::Wait(t) if t >= Duration::from_secs(7)));
    assert_eq!(
        [courier.step(), courier.step(), courier.step()],
        [Step::Done, Step::Done, Step::Empty]
    );
    let figures = courier.figures().figures;
    assert_eq!(
        (figures.delivered, figures.failures, figures.maybe_twice),
        (2, 2, 1)
    );
    let requests = requests.lock().unwrap();
    for r in requests.iter() {
        assert_eq!(
            (r.method.as_str(), r.path.as_str()),
            ("POST", "/v1development/profiles")
        );
        assert_eq!(r.header("authorization"), "Bearer secret");
        assert_eq!(r.header("x-scope-orgid"), "team");
        assert_eq!(r.header("content-type"), "application/x-protobuf");
    }
    let read = wallscope_formats::read(&requests[2].body, Default::default()).unwrap();
    let text = format!("{:?}", read.recording.label_sets);
    for service in ["checkout", "payments", "batch"] {
        assert!(text.contains(service), "{text}");
    }
    let on_cpu = |r: &wallscope_model::Recording| -> u64 {
        r.contexts
            .iter()
            .map(|c| c.ledger.state_ns(State::OnCpu))
            .sum()
    };
    assert_eq!(on_cpu(&read.recording), on_cpu(&window(0)));
}

#[test]
fn a_restart_after_an_unknown_outcome_is_a_doubt_too() {
    let dir = tempfile::tempdir().unwrap();
    let (url, requests) = collector(&[0, 200, 200]);
    assert!(matches!(
        courier(dir.path(), "pyroscope", &url, "").step(),
        Step::Wait(_)
    ));
    // Another process goes on.
    let mut courier = courier(dir.path(), "pyroscope", &url, "");
    assert_eq!(
        [courier.step(), courier.step(), courier.step()],
        [Step::Done, Step::Done, Step::Empty]
    );
    assert_eq!(courier.figures().figures.maybe_twice, 1);
    let requests = requests.lock().unwrap();
    assert!(
        requests
            .iter()
            .all(|r| r.path == "/push.v1.PusherService/Push")
    );
    let body: serde_json::Value = serde_json::from_slice(&requests[1].body).unwrap();
    assert_eq!(body["series"].as_array().unwrap().len(), 12);
}
