//! The agent's loop over a source of made-up windows: store, delivery, metrics, status, reload, drain.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wallscope_agent::config::Config;
use wallscope_agent::run::{
    Agent, AgentError, Next, SNAPS, Signals, SourceError, WindowSource, ask_status, close_window,
};
use wallscope_agent::services::Facts;
use wallscope_agent::store::{self, TimeRange};
use wallscope_model::{ContextId, Process};
use wallscope_synthetic::windows::{START_UNIX_NS, window};
use wallscope_testkit::receiver::Receiver;

/// Number of the window that is closed early: it ends soon.
fn closed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let since = now.as_nanos() - u128::from(START_UNIX_NS);
    (since / 10_000_000_000) as u64 + 1
}

/// Windows that a test hands out.
#[derive(Clone, Default)]
struct Made {
    ready: Arc<Mutex<VecDeque<u64>>>,
    reloads: Arc<Mutex<Vec<u32>>>,
}

impl WindowSource for Made {
    fn next(&mut self, _: Duration) -> Result<Next, SourceError> {
        match self.ready.lock().unwrap().pop_front() {
            Some(sequence) => Ok(Next::Window(Box::new(window(sequence)))),
            None => {
                std::thread::sleep(Duration::from_millis(2));
                Ok(Next::NotYet)
            }
        }
    }

    fn drain(&mut self) -> Result<Vec<wallscope_model::Recording>, SourceError> {
        Ok(vec![window(99)])
    }

    fn close_window(&mut self) {
        self.ready.lock().unwrap().push_back(closed());
    }

    fn reload(&mut self, config: &Config) -> Result<(), SourceError> {
        self.reloads
            .lock()
            .unwrap()
            .push(*config.windows.on_cpu_hz.get_ref());
        Ok(())
    }

    fn facts(&mut self, p: &Process) -> Facts {
        Facts {
            cgroup: format!("/system.slice/{}.service", p.name),
            comm: p.name.to_string(),
            exe: p.exe.to_string(),
            args: vec![p.name.to_string()],
            ..Facts::default()
        }
    }
}

/// An agent on a thread.
struct Running {
    dir: tempfile::TempDir,
    address: SocketAddr,
    source: Made,
    signals: Signals,
    log: Arc<Mutex<Vec<String>>>,
    thread: std::thread::JoinHandle<Result<(), AgentError>>,
}

fn write_config(dir: &Path, more: &str) -> PathBuf {
    let text = format!(
        "[agent]\nrun_dir = \"{0}/run\"\n[store]\ndir = \"{0}/store\"\n[metrics]\nlisten = \"127.0.0.1:0\"\n{more}",
        dir.display()
    );
    let file = dir.join("agent.toml");
    std::fs::write(&file, text).unwrap();
    file
}

fn start(more: &str) -> Running {
    let dir = tempfile::tempdir().unwrap();
    let source = Made::default();
    let agent = {
        let source = source.clone();
        Agent::start(&write_config(dir.path(), more), |_| Ok(source)).unwrap()
    };
    let address = agent.metrics_address().unwrap();
    let signals = Signals::default();
    let log = Arc::new(Mutex::new(Vec::new()));
    let (own_signals, own_log) = (signals.clone(), log.clone());
    let thread = std::thread::spawn(move || {
        let mut log = |line: &str| own_log.lock().unwrap().push(line.to_string());
        agent.run(&own_signals, &mut log)
    });
    Running {
        dir,
        address,
        source,
        signals,
        log,
        thread,
    }
}

impl Running {
    fn http(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn get(&self, path: &str) -> String {
        self.http(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
    }

    fn push(&self, sequences: impl IntoIterator<Item = u64>) {
        self.source.ready.lock().unwrap().extend(sequences);
    }

    fn wait(&self, what: &str, is: impl Fn() -> bool) {
        let started = Instant::now();
        while !is() {
            let log = self.log.lock().unwrap().clone();
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "no {what}: {log:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn windows(&self) -> u64 {
        ask_status(&self.dir.path().join("run")).unwrap().windows
    }

    fn end(self) -> (tempfile::TempDir, Vec<String>) {
        self.signals.stop.store(true, Ordering::Release);
        self.thread.join().unwrap().unwrap();
        let log = self.log.lock().unwrap().clone();
        (self.dir, log)
    }
}

fn everything() -> TimeRange {
    let start = (START_UNIX_NS / 1_000_000) as i64;
    TimeRange {
        from_ms: start,
        until_ms: start + 3_600_000,
    }
}

#[test]
fn windows_are_labelled_kept_delivered_and_summed_up() {
    let kept = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(kept.path(), 0, 1).unwrap();
    let target = format!(
        "[[target]]\nname = \"server\"\nkind = \"wallscope\"\nurl = \"{}\"\n",
        receiver.url()
    );
    let agent = start(&target);
    assert!(agent.get("/readyz").starts_with("HTTP/1.1 503"));
    assert!(agent.get("/healthz").starts_with("HTTP/1.1 200"));
    agent.push(0..5);
    agent.wait("five windows", || agent.windows() == 5);
    assert!(agent.get("/readyz").starts_with("HTTP/1.1 200"));
    agent.wait("five deliveries", || {
        let status = ask_status(&agent.dir.path().join("run")).unwrap();
        status.targets["server"].delivered == 5 && status.store_windows == 5
    });
    let metrics = agent.get("/metrics");
    let line = "wallscope_wall_seconds_total{service=\"checkout\"} 200.000000000";
    assert!(
        metrics.contains(line) && metrics.contains("text/plain; version=0.0.4"),
        "{metrics}"
    );
    assert!(metrics.contains("wallscope_agent_delivered_windows_total{target=\"server\"} 5"));
    assert!(agent.get("/elsewhere").starts_with("HTTP/1.1 404"));

    // A second agent is refused before it measures anything, and told which one runs.
    let mut measures = false;
    let refused = Agent::start(&agent.dir.path().join("agent.toml"), |_| {
        measures = true;
        Ok(Made::default())
    });
    assert!(!measures);
    let told = refused.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(
        told.contains(&format!("process {}", std::process::id())),
        "{told}"
    );

    let (dir, log) = agent.end();
    assert!(log.is_empty(), "{log:?}");
    // The open window was closed, kept and delivered.
    assert_eq!(receiver.windows().unwrap().len(), 6);
    let selected = store::merged(&dir.path().join("store"), everything()).unwrap();
    assert_eq!(selected.windows, 6);
    let rec = selected.recording;
    assert_eq!(rec.context_label(ContextId(0), "service"), Some("checkout"));
    assert_eq!(
        rec.context_label(ContextId(0), "unit"),
        Some("checkout.service")
    );
    // The lock and the socket are free again, and the epoch is a later one.
    let again = Agent::start(&dir.path().join("agent.toml"), |_| Ok(Made::default())).unwrap();
    drop(again);
    assert!(ask_status(&dir.path().join("run")).is_err());
}

#[test]
fn a_reload_takes_rules_over_and_a_wrong_file_changes_nothing() {
    let agent = start("");
    agent.push([0]);
    agent.wait("a window", || agent.windows() == 1);
    let reload = |more: &str| {
        let lines = agent.log.lock().unwrap().len();
        write_config(agent.dir.path(), more);
        agent.signals.reload.store(true, Ordering::Release);
        agent.wait("a reload", || agent.log.lock().unwrap().len() > lines);
    };
    reload(
        "[windows]\non_cpu_hz = 49\n[[services.rule]]\nmatch = { service = \"payments\" }\nexclude = true\n[[services.rule]]\nmatch = { service = \"checkout\" }\nset = { service = \"shop\" }\n",
    );
    agent.push([1]);
    agent.wait("a window", || agent.windows() == 2);
    reload("[windows]\non_cpu_hz = 0\n");
    agent.push([2]);
    agent.wait("a window", || agent.windows() == 3);
    let status = ask_status(&agent.dir.path().join("run")).unwrap();
    let error = status.error.unwrap();
    assert!(
        error.contains("windows.on_cpu_hz: it must be from 1 to 999"),
        "{error}"
    );
    assert_eq!(*agent.source.reloads.lock().unwrap(), [49]);
    let (dir, _) = agent.end();
    let services = |from: i64| {
        let start = everything().from_ms + from * 1000;
        let range = TimeRange {
            from_ms: start,
            until_ms: start + 10_000,
        };
        let rec = store::merged(&dir.path().join("store"), range)
            .unwrap()
            .recording;
        let mut names: Vec<String> = (0..rec.contexts.len() as u32)
            .filter_map(|i| rec.context_label(ContextId(i), "service"))
            .map(str::to_string)
            .collect();
        names.dedup();
        assert!(rec.contexts.iter().all(|c| c.ledger.residue_ns() == 0));
        names
    };
    assert_eq!(services(0), ["checkout", "payments", "batch"]);
    // An excluded service is in no figure, and the others are whole.
    assert_eq!(services(10), ["shop", "batch"]);
    assert_eq!(services(20), ["shop", "batch"]);
}

#[test]
fn triggers_keep_the_minutes_before_them() {
    let agent = start(
        "[snaps]\nlength = \"30s\"\n\
         [[trigger]]\nname = \"late\"\nhold = \"20s\"\nwhen = { run_queue_latency = { service = \"checkout\", quantile = \"99%\", above = \"1ms\" } }\n\
         [[trigger]]\nname = \"alert\"\nwhen = { webhook = { alert = \"HighLatency\" } }\n",
    );
    agent.push(0..6);
    agent.wait("six windows", || agent.windows() == 6);
    let body = r#"{"alerts":[{"status":"firing","labels":{"alertname":"HighLatency"},"annotations":{"summary":"slow"}}]}"#;
    let post = |body: &str| {
        let length = body.len();
        agent.http(&format!(
            "POST /v1/webhook HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    };
    assert!(post(body).starts_with("HTTP/1.1 200"));
    assert!(post("{}").starts_with("HTTP/1.1 400"));
    // The made-up windows are not of the minutes before now: the agent says that there are none.
    agent.wait("the alert", || {
        agent
            .log
            .lock()
            .unwrap()
            .iter()
            .any(|l| l.contains("alert HighLatency: slow"))
    });
    let (dir, log) = agent.end();
    assert!(
        log.iter()
            .any(|l| l.contains("wrote nothing: no window between")),
        "{log:?}"
    );
    let fired: Vec<&String> = log
        .iter()
        .filter(|l| l.starts_with("trigger late: "))
        .collect();
    // Held from the first window on; the cool-down allows one.
    assert_eq!(fired.len(), 1, "{log:?}");
    assert!(
        fired[0].contains("run-queue latency p99 of checkout is"),
        "{log:?}"
    );
    let snaps: Vec<_> = std::fs::read_dir(dir.path().join("store").join(SNAPS))
        .unwrap()
        .collect();
    assert_eq!(snaps.len(), 1);
    let bytes = std::fs::read(snaps[0].as_ref().unwrap().path()).unwrap();
    let snap = wallscope_formats::read(&bytes, Default::default())
        .unwrap()
        .recording;
    assert!(snap.domain.notes[0].starts_with("triggered by late: run-queue latency"));
    // It fires at the end of the second window: the snap is those two.
    let sum =
        |r: &wallscope_model::Recording| r.contexts.iter().map(|c| c.ledger.wall_ns).sum::<u64>();
    assert_eq!(sum(&snap), sum(&window(0)) + sum(&window(1)));
}

#[test]
fn pods_are_named_by_a_kubelet_that_comes_and_goes() {
    use wallscope_agent::http::{Limits, Response, Server};
    use wallscope_agent::services::Pods;

    let uid = "8dbc5577-d0e2-4706-8787-57d52c03ddf2";
    let answer = format!(
        r#"{{"kind":"PodList","items":[{{"metadata":{{"name":"shop-1","namespace":"web","uid":"{uid}"}}}}]}}"#
    );
    let kubelet = Server::bind(
        SocketAddr::from(([127, 0, 0, 1], 0)),
        Limits::default(),
        move |r| match (r.path.as_str(), r.header("authorization")) {
            ("/pods", "Bearer t") => Response::text(200, answer.clone()),
            ("/pods", _) => Response::text(401, "Unauthorized"),
            _ => Response::text(404, "no"),
        },
    )
    .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "t\n").unwrap();
    let url = format!("http://{}", kubelet.address());
    let pods = Pods::ask(&url, Some(token.clone()), None).unwrap();
    assert_eq!(pods.get(uid).map(|p| p.name.as_str()), Some("shop-1"));
    let refused = Pods::ask(&url, None, None).unwrap_err().to_string();
    assert!(refused.contains("answer 401: Unauthorized"), "{refused}");

    // The agent goes on without names when the kubelet is gone.
    drop(kubelet);
    let agent = start(&format!(
        "[kubernetes]\nkubelet = \"{url}\"\nrefresh = \"50ms\"\n"
    ));
    agent.push(0..3);
    agent.wait("three windows", || agent.windows() == 3);
    agent.wait("the error", || {
        let error = ask_status(&agent.dir.path().join("run")).unwrap().error;
        agent.push([3]);
        error.is_some_and(|e| e.starts_with("names of pods stay as they were: no answer"))
    });
    agent.end();
}

#[test]
fn a_closed_window_is_kept_before_its_asker_hears_of_it() {
    let agent = start("");
    agent.push(0..2);
    agent.wait("two windows", || agent.windows() == 2);
    let run_dir = agent.dir.path().join("run");
    let status = close_window(&run_dir).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!(u128::from(status.last_window_unix_ns) >= now.as_nanos());
    assert_eq!((status.windows, status.failed_windows), (3, 0));
    // The other two may be beyond the greatest age by now.
    let last = store::list(&status.store_dir).unwrap().pop().unwrap();
    let end_ns = last.name.end_ms() as u64 * 1_000_000;
    assert_eq!(end_ns, status.last_window_unix_ns);
    // Something else than the two requests gets no answer, and harms nobody.
    let mut stranger = std::os::unix::net::UnixStream::connect(run_dir.join("agent.sock")).unwrap();
    stranger.write_all(b"close the door").unwrap();
    stranger.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stranger.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "");
    assert_eq!(ask_status(&run_dir).unwrap().windows, 3);
    agent.end();
}
