//! Asks the kubelet for the names of pods, on a thread of its own: an answer may take seconds.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use crate::config::Kubernetes;
use crate::services::Pods;

/// State that the thread shares.
#[derive(Debug, Default)]
struct Shared {
    /// The last answer, until it is taken.
    answer: Option<Result<Pods, String>>,
    stop: bool,
}

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct PodsThread {
    shared: Arc<(Mutex<Shared>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl PodsThread {
    /// Asks as configured; `None`: there is no kubelet to ask.
    pub(super) fn start(config: &Kubernetes) -> std::io::Result<Option<PodsThread>> {
        let Some(url) = config.kubelet.as_ref().map(|u| u.0.clone()) else {
            return Ok(None);
        };
        let shared = Arc::<(Mutex<Shared>, Condvar)>::default();
        let (own, config) = (shared.clone(), config.clone());
        let run = move || {
            while !lock(&own.0).stop {
                let (token, ca) = (config.token_file.clone(), config.ca_file.clone());
                let answer = Pods::ask(&url, token, ca).map_err(|e| e.to_string());
                let mut state = lock(&own.0);
                state.answer = Some(answer);
                if !state.stop {
                    // Woken at the end only; a spurious wake asks once more.
                    drop(own.1.wait_timeout(state, config.refresh.0));
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("wallscope-pods".to_string())
            .spawn(run)?;
        Ok(Some(PodsThread {
            shared,
            thread: Some(thread),
        }))
    }

    /// The last answer, if there is a new one.
    pub(super) fn take(&self) -> Option<Result<Pods, String>> {
        lock(&self.shared.0).answer.take()
    }
}

impl Drop for PodsThread {
    fn drop(&mut self) {
        lock(&self.shared.0).stop = true;
        self.shared.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state, even if a thread ended while it held the lock: it is plain data.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
