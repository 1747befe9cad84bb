//! What a load has done.

/// Work of one window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Transactions, requests, turns, processes, seconds.
    pub units: f64,
    /// Of them in a second, by the client's own clock.
    pub rate: f64,
}
