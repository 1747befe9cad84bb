//! Mean value analysis of closed networks with one class (Reiser and Lavenberg, JACM 27, 1980).
//!
//! A fixed number of customers goes round: each thinks, then visits the stations. Adding one
//! customer at a time gives waits, utilisations and throughput. Exact for exponential service or
//! processor sharing. For service in the order of arrival with another variation, the rest of the
//! job in service is corrected by its mean residual time (Reiser, *A queueing network analysis of
//! computer communication networks with window flow control*, IEEE Trans. Comm. 27, 1979).

/// A station.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Station {
    /// Mean service time per cycle, s.
    pub service: f64,
    /// Squared coefficient of variation of its service times; 1 for processor sharing.
    pub variation: f64,
    /// Number of servers.
    pub servers: u32,
}

/// A closed network.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Time that a customer spends elsewhere in a cycle, s.
    pub think: f64,
    /// The stations.
    pub stations: Vec<Station>,
}

/// A station in equilibrium.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StationState {
    /// Mean wait before service, s.
    pub wait: f64,
    /// Mean number of customers that wait or are served.
    pub present: f64,
    /// Share of the time for which each server is busy.
    pub utilisation: f64,
    /// Probability of 0, 1, … customers, up to one less than there are servers.
    idle: Vec<f64>,
}

/// A network in equilibrium.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Solution {
    /// Cycles a second.
    pub throughput: f64,
    /// Stations in the order of the network.
    pub stations: Vec<StationState>,
}

/// Most customers that are added one by one; a network with more behaves like an open one.
pub const MAX_CUSTOMERS: f64 = 20_000.0;

impl Network {
    /// The network with `customers`, at least 0 and at most [`MAX_CUSTOMERS`]. Between whole numbers
    /// it is interpolated.
    ///
    /// ```
    /// use wallscope_analysis::queueing::mva::{Network, Station};
    ///
    /// // Users think for 1 s and share a server, which needs 100 ms for each request.
    /// let server = Station { service: 0.1, variation: 1.0, servers: 1 };
    /// let network = Network { think: 1.0, stations: vec![server] };
    /// let alone = network.solve(1.0);
    /// assert!((alone.throughput - 1.0 / 1.1).abs() < 1e-9);
    /// assert!(alone.stations[0].wait.abs() < 1e-9);
    /// // Forty users ask for more than it can serve.
    /// let crowd = network.solve(40.0);
    /// assert!(crowd.throughput < 10.0 && crowd.stations[0].utilisation > 0.99);
    /// ```
    pub fn solve(&self, customers: f64) -> Solution {
        let customers = customers.clamp(0.0, MAX_CUSTOMERS);
        let mut last = self.empty();
        for n in 1..=customers.floor() as u64 {
            last = self.next(n as f64, &last);
        }
        let part = customers.fract();
        if part < 1e-9 {
            return last;
        }
        let next = self.next(customers.floor() + 1.0, &last);
        mixed(&last, &next, part)
    }

    fn empty(&self) -> Solution {
        let station = |s: &Station| {
            let mut idle = vec![0.0; s.servers.max(1) as usize];
            idle[0] = 1.0;
            StationState {
                idle,
                ..StationState::default()
            }
        };
        Solution {
            throughput: 0.0,
            stations: self.stations.iter().map(station).collect(),
        }
    }

    /// The network with `n` customers, from its state with one fewer.
    fn next(&self, n: f64, fewer: &Solution) -> Solution {
        let stations = || self.stations.iter().zip(&fewer.stations);
        let waits: Vec<f64> = stations().map(|(s, state)| wait(s, state)).collect();
        let cycle: f64 = waits.iter().sum::<f64>()
            + self.stations.iter().map(|s| s.service).sum::<f64>()
            + self.think;
        let throughput = if cycle > 0.0 { n / cycle } else { 0.0 };
        let states = stations()
            .zip(waits)
            .map(|((s, state), wait)| StationState {
                wait,
                present: throughput * (wait + s.service),
                utilisation: (throughput * s.service / f64::from(s.servers.max(1))).min(1.0),
                idle: idle(s, state, throughput),
            });
        Solution {
            throughput,
            stations: states.collect(),
        }
    }
}

/// The wait of a customer that arrives where the others are in `state`.
fn wait(station: &Station, state: &StationState) -> f64 {
    let servers = f64::from(station.servers.max(1));
    let free = state.idle.iter().zip((1..=station.servers.max(1)).rev());
    // The servers that are free beyond the one that the customer takes.
    let spare: f64 = free.map(|(p, left)| p * f64::from(left - 1)).sum();
    let exponential = station.service / servers * (state.present - servers + 1.0 + spare);
    let busy = (1.0 - state.idle.iter().sum::<f64>()).clamp(0.0, 1.0);
    let residual = busy * station.service / servers * (station.variation - 1.0) / 2.0;
    (exponential + residual).max(0.0)
}

/// Probabilities of few customers, from those with one customer fewer in the network.
fn idle(station: &Station, fewer: &StationState, throughput: f64) -> Vec<f64> {
    let servers = station.servers.max(1) as usize;
    let offered = throughput * station.service;
    let busy = fewer.idle.iter().take(servers - 1).zip(1u32..);
    let some: Vec<f64> = busy.map(|(p, n)| p * offered / f64::from(n)).collect();
    let free = (1..servers).rev().zip(&some);
    let part: f64 = free.map(|(free, p)| free as f64 * p).sum();
    let none = (1.0 - (offered + part) / servers as f64).max(0.0);
    [none].into_iter().chain(some).collect()
}

fn mixed(a: &Solution, b: &Solution, part: f64) -> Solution {
    let mix = |x: f64, y: f64| x + part * (y - x);
    let station = |(a, b): (&StationState, &StationState)| StationState {
        wait: mix(a.wait, b.wait),
        present: mix(a.present, b.present),
        utilisation: mix(a.utilisation, b.utilisation),
        idle: Vec::new(),
    };
    Solution {
        throughput: mix(a.throughput, b.throughput),
        stations: a.stations.iter().zip(&b.stations).map(station).collect(),
    }
}
