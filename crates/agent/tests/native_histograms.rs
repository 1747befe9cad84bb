//! A Prometheus server, Debian's, reads the native histograms.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use wallscope_agent::http::{Limits, Request, Response, Server};
use wallscope_agent::metrics::{AgentFigures, Exposition, Totals, families};
use wallscope_synthetic::windows::window;

/// A server that ends with the test.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// Starts one that scrapes `target` each second; `None`, with a line, where there is none.
    fn start(target: SocketAddr) -> Option<Prometheus> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("prometheus.yml");
        let config = format!(
            "scrape_configs:\n- job_name: w\n  scrape_interval: 1s\n  static_configs:\n  - targets: ['{target}']\n"
        );
        std::fs::write(&file, config).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let program = std::env::var("WALLSCOPE_PROMETHEUS").unwrap_or("prometheus".to_string());
        let spawned = Command::new(program)
            .arg("--enable-feature=native-histograms")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                dir.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match spawned {
            Ok(child) => Some(Prometheus {
                child,
                address,
                _dir: dir,
            }),
            Err(_) => {
                println!("skipped: there is no prometheus (Debian: apt install prometheus)");
                None
            }
        }
    }

    /// The value of an instant query, as soon as there is one.
    fn value(&mut self, query: &str) -> f64 {
        let started = Instant::now();
        let mut last = String::new();
        while started.elapsed() < Duration::from_secs(60) {
            assert!(self.child.try_wait().unwrap().is_none(), "prometheus ended");
            if let Some(answer) = self.ask(query) {
                let value = answer.split("\"value\":[").nth(1);
                let value = value.and_then(|v| v.split('"').nth(1));
                if let Some(value) = value.and_then(|v| v.parse().ok()) {
                    return value;
                }
                last = answer;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("no value of {query}: {last}");
    }

    fn ask(&self, query: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        let request = format!("GET /api/v1/query?query={query} HTTP/1.0\r\nHost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

#[test]
fn prometheus_reads_native_histograms() {
    let mut totals = Totals::default();
    (0..6).for_each(|i| totals.add(&window(i)));
    let served = totals.clone();
    let metrics = move |request: &Request| {
        let form = Exposition::of_accept(request.header("accept"));
        Response {
            status: 200,
            content_type: form.content_type(),
            body: form.bytes(&families(&served, &AgentFigures::default())),
        }
    };
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::bind(any, Limits::default(), metrics).unwrap();
    let Some(mut prometheus) = Prometheus::start(server.address()) else {
        return;
    };
    let wall = &totals.services["checkout"].ledger;
    let read = prometheus.value("wallscope_wall_seconds_total{service=\"checkout\"}");
    assert!((read - wall.wall_ns as f64 / 1e9).abs() < 1e-6, "{read}");

    let own = &totals.services["checkout"];
    let series = "wallscope_run_queue_latency_seconds{service=\"checkout\"}";
    let count = prometheus.value(&format!("histogram_count({series})"));
    assert_eq!(count, own.run_queue.count());
    let sum = prometheus.value(&format!("histogram_sum({series})"));
    let runnable = own.ledger.runnable.total() as f64 / 1e9;
    assert!((sum - runnable).abs() < 1e-6, "{sum} of {runnable}");
    for q in [0.5, 0.99] {
        let read = prometheus.value(&format!("histogram_quantile({q},{series})"));
        let known = own.run_queue.quantile(q).unwrap() as f64 / 1e9;
        // Half of an own bucket and a whole native one, a quarter of an octave each.
        assert!(
            (read / known).log2().abs() < 0.375,
            "{q}: {read} of {known}"
        );
    }
}
