//! A courier on a thread of its own.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Courier, CourierFigures, Step};

/// Longest time for which an empty outbox is not read again.
const IDLE: Duration = Duration::from_secs(60);

/// State that the thread shares.
#[derive(Debug, Default)]
struct Shared {
    figures: CourierFigures,
    /// Whether a window was added since the last step.
    woken: bool,
    /// When the thread ends though windows are left; `None`: it goes on.
    deadline: Option<Instant>,
}

/// A courier that runs until it is drained or dropped.
#[derive(Debug)]
pub struct CourierThread {
    shared: Arc<(Mutex<Shared>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl CourierThread {
    /// Starts `courier`.
    ///
    /// # Errors
    /// No thread can be made.
    pub fn start(courier: Courier) -> std::io::Result<CourierThread> {
        let shared = Arc::<(Mutex<Shared>, Condvar)>::default();
        let own = shared.clone();
        let thread = std::thread::Builder::new()
            .name("wallscope-send".to_string())
            .spawn(move || run(courier, &own))?;
        Ok(CourierThread {
            shared,
            thread: Some(thread),
        })
    }

    /// The figures so far.
    pub fn figures(&self) -> CourierFigures {
        lock(&self.shared.0).figures.clone()
    }

    /// Wakes the courier: a window was added.
    pub fn wake(&self) {
        lock(&self.shared.0).woken = true;
        self.shared.1.notify_all();
    }

    /// Empties the outbox within `time`, and ends the thread.
    pub fn drain(mut self, time: Duration) -> CourierFigures {
        self.end(time);
        self.figures()
    }

    fn end(&mut self, time: Duration) {
        lock(&self.shared.0).deadline = Some(Instant::now() + time);
        self.shared.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for CourierThread {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// The state, even if a thread ended while it held the lock: it is plain data.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn run(mut courier: Courier, shared: &(Mutex<Shared>, Condvar)) {
    loop {
        let is_over = |s: &Shared| s.deadline.is_some_and(|d| Instant::now() >= d);
        if is_over(&lock(&shared.0)) {
            return;
        }
        let step = courier.step();
        let mut state = lock(&shared.0);
        state.figures = courier.figures().clone();
        let until = match step {
            Step::Done => continue,
            Step::Empty if state.deadline.is_some() => return,
            Step::Empty => Instant::now() + IDLE,
            Step::Wait(time) => Instant::now() + time,
        };
        let can_wake = step == Step::Empty;
        loop {
            let until = state.deadline.map_or(until, |d| d.min(until));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || (can_wake && (state.woken || state.deadline.is_some())) {
                break;
            }
            let waited = shared.1.wait_timeout(state, left);
            state = waited.map_or_else(|e| e.into_inner().0, |(state, _)| state);
        }
        state.woken = false;
    }
}
