//! State that the agent's threads share: metrics, health, status and the webhook's inbox.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wallscope_capture::session::FlightRecorder;
use wallscope_model::Recording;

use super::memory::{self, MemoryBudget, MemoryStep};
use super::status::{MemoryStatus, Status, TargetStatus};
use crate::config::Config;
use crate::delivery::CourierFigures;
use crate::http::{Request, Response};
use crate::metrics::{AgentFigures, Exposition, Totals, families};
use crate::store::Store;
use crate::trigger::{Alert, parse_webhook};

/// Most alerts that wait to be judged.
const MAX_ALERTS: usize = 100;
/// Lengths of a window without a window after which the agent is not well.
const MISSED: u32 = 3;

#[derive(Debug, Default)]
struct State {
    totals: Totals,
    figures: AgentFigures,
    target_errors: BTreeMap<String, Option<String>>,
    error: Option<String>,
    /// Whether the last window was written.
    is_writing: bool,
    last_window: Option<Instant>,
    alerts: VecDeque<Alert>,
    /// The single intervals of the last minutes, if they are kept.
    flight: Option<FlightRecorder>,
    /// Limit of memory, bytes, and the step in force.
    memory: (u64, MemoryStep),
    /// Control groups of its own, in words.
    cgroup: String,
    /// Whether a client waits for the end of the open window.
    is_close_asked: bool,
    /// End of the last window that was handled, kept or not, ns since the epoch.
    handled_unix_ns: u64,
}

/// The shared state.
#[derive(Debug)]
pub struct Published {
    state: Mutex<State>,
    handled: Condvar,
    started: Instant,
    length: Duration,
    store_dir: PathBuf,
    epoch: u64,
}

impl Published {
    pub(super) fn new(config: &Config, epoch: u64) -> Published {
        Published {
            state: Mutex::new(State {
                memory: (config.budget.max_memory.0, MemoryStep::default()),
                ..State::default()
            }),
            handled: Condvar::new(),
            started: Instant::now(),
            length: config.windows.length.get_ref().0,
            store_dir: config.store.dir.clone(),
            epoch,
        }
    }

    /// The state, even if a thread ended while it held the lock: it is plain data.
    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the flight recorder.
    pub(super) fn set_flight(&self, flight: Option<FlightRecorder>) {
        self.lock().flight = flight;
    }

    /// The flight recorder, if there is one.
    pub(super) fn flight(&self) -> Option<FlightRecorder> {
        self.lock().flight.clone()
    }

    /// Sets the words about control groups.
    pub(super) fn set_cgroup(&self, words: &str) {
        self.lock().cgroup = words.to_string();
    }

    /// Sets the memory at the end of a window, and its budget.
    pub(super) fn set_memory(&self, used_bytes: u64, budget: &MemoryBudget) {
        let mut state = self.lock();
        state.memory = (budget.limit, budget.step);
        let flight_bytes = state.flight.as_ref().map_or(0, FlightRecorder::bytes);
        let figures = &mut state.figures;
        figures.used_bytes = used_bytes;
        figures.heap_bytes = memory::heap();
        figures.flight_bytes = flight_bytes;
        figures.memory_step = budget.step.number();
    }

    /// A window that ended at `end_unix_ns` was handled.
    pub(super) fn handled(&self, end_unix_ns: u64) {
        self.lock().handled_unix_ns = end_unix_ns;
        self.handled.notify_all();
    }

    /// Whether the end of the open window was asked for since the last call.
    pub(super) fn take_close(&self) -> bool {
        std::mem::take(&mut self.lock().is_close_asked)
    }

    /// Asks for the end of the open window, and waits at most `patience` for a handled window that ends at
    /// `now_unix_ns` or later.
    pub(super) fn close_window(&self, now_unix_ns: u64, patience: Duration) {
        let mut state = self.lock();
        state.is_close_asked = true;
        // The status says which window was the last, whether or not time was up.
        drop(
            (self.handled)
                .wait_timeout_while(state, patience, |s| s.handled_unix_ns < now_unix_ns)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    pub(super) fn add(&self, window: &Recording, services_beyond: u64) {
        let mut state = self.lock();
        state.totals.add(window);
        state.figures.services_beyond = services_beyond;
        state.last_window = Some(Instant::now());
        state.is_writing = true;
    }

    pub(super) fn window_failed(&self, error: &str) {
        let mut state = self.lock();
        state.figures.failed_windows += 1;
        state.is_writing = false;
        state.error = Some(error.to_string());
    }

    pub(super) fn error(&self, error: &str) {
        self.lock().error = Some(error.to_string());
    }

    pub(super) fn take_alerts(&self) -> VecDeque<Alert> {
        std::mem::take(&mut self.lock().alerts)
    }

    pub(super) fn update(&self, store: &Store, couriers: BTreeMap<String, CourierFigures>) {
        let mut state = self.lock();
        state.figures.store_bytes = store.bytes();
        state.figures.store_windows = store.windows().len() as u64;
        let figures = couriers.iter().map(|(name, c)| (name.clone(), c.figures));
        state.figures.targets = figures.collect();
        state.target_errors = couriers
            .into_iter()
            .map(|(name, c)| (name, c.error))
            .collect();
    }

    /// Answers a request over HTTP.
    pub(super) fn answer(&self, request: &Request) -> Response {
        match (request.method.as_str(), request.path.as_str()) {
            ("GET" | "HEAD", "/metrics") => self.metrics(request),
            ("GET" | "HEAD", "/healthz") => self.health(),
            ("GET" | "HEAD", "/readyz") => self.readiness(),
            ("POST", "/v1/webhook") => self.webhook(&request.body),
            (_, "/metrics" | "/healthz" | "/readyz" | "/v1/webhook") => {
                Response::text(405, "another method is needed")
            }
            _ => Response::text(404, "there is /metrics, /healthz, /readyz and /v1/webhook"),
        }
    }

    fn metrics(&self, request: &Request) -> Response {
        let form = Exposition::of_accept(request.header("accept"));
        let families = {
            let state = self.lock();
            families(&state.totals, &state.figures)
        };
        Response {
            status: 200,
            content_type: form.content_type(),
            body: form.bytes(&families),
        }
    }

    /// Time since the last window, if that is too long for a recorder that works.
    pub(super) fn silence(&self) -> Option<Duration> {
        let last = self.lock().last_window.unwrap_or(self.started);
        Some(last.elapsed()).filter(|silent| *silent > self.length * MISSED)
    }

    fn health(&self) -> Response {
        match self.silence() {
            None => Response::text(200, "ok"),
            Some(silent) => Response::text(503, format!("no window for {} s", silent.as_secs())),
        }
    }

    fn readiness(&self) -> Response {
        let state = self.lock();
        match (state.totals.windows > 0, state.is_writing) {
            (true, true) => Response::text(200, "ok"),
            (false, _) => Response::text(503, "the first window is not closed yet"),
            (true, false) => Response::text(503, "the last window could not be written"),
        }
    }

    fn webhook(&self, body: &[u8]) -> Response {
        match parse_webhook(body) {
            Ok(alerts) => {
                let mut state = self.lock();
                let room = MAX_ALERTS.saturating_sub(state.alerts.len());
                state.alerts.extend(alerts.into_iter().take(room));
                Response::text(200, "ok")
            }
            Err(e) => Response::text(400, e.to_string()),
        }
    }

    pub(super) fn status(&self) -> Status {
        let state = self.lock();
        let target = |(name, t): (&String, &crate::metrics::TargetFigures)| {
            let status = TargetStatus {
                pending: t.pending,
                delivered: t.delivered,
                failures: t.failures,
                refused: t.refused,
                maybe_twice: t.maybe_twice,
                error: state.target_errors.get(name).cloned().flatten(),
            };
            (name.clone(), status)
        };
        Status {
            schema: "wallscope.agent-status/1".to_string(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            epoch: self.epoch,
            windows: state.totals.windows,
            last_window_unix_ns: state.totals.last_unix_ns,
            store_dir: self.store_dir.clone(),
            store_bytes: state.figures.store_bytes,
            store_windows: state.figures.store_windows,
            failed_windows: state.figures.failed_windows,
            targets: state.figures.targets.iter().map(target).collect(),
            error: state.error.clone(),
            cgroup: state.cgroup.clone(),
            memory: MemoryStatus {
                used_bytes: state.figures.used_bytes,
                heap_bytes: state.figures.heap_bytes,
                flight_bytes: state.figures.flight_bytes,
                limit_bytes: state.memory.0,
                step: state.figures.memory_step,
                given_up: state.memory.1.describe(),
            },
        }
    }
}
