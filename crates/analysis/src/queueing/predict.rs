//! Waits at the recorded load and above it, with intervals.
//!
//! **Open, from single jobs.** The recorded jobs are drawn again in stretches and sent through the
//! queue, with gaps shortened by the growth. The interval comes from blocks of time: each draw of
//! blocks has moments of its own, and the simulated wait is multiplied by the ratio of Allen and
//! Cunneen's waits for the draw's moments and for all. That ratio is exact for Poisson arrivals at
//! one server, and smooth where a simulation of each draw would add its own noise.
//!
//! **Open, from sums.** The measured wait is multiplied by the ratio of Allen and Cunneen's waits at
//! the larger and at the recorded load. The unknown variations cancel, as long as they stay.
//!
//! **Closed.** Customers that wait bring no new work, so load is their number. The measured wait is
//! multiplied by the ratio of the waits of mean value analysis.

use super::formulas::{Station, erlang_c};
use super::random::Random;
use super::simulate::{Job, Resampled, Simulated, simulate};
use super::{Discipline, Estimate, Moments, bootstrap, mva};

/// Growth of the load for which waits are predicted.
pub const GROWTH: [f64; 3] = [0.1, 0.2, 0.5];

/// Jobs that are simulated for each load: the standard error is then far below an interval from a
/// recording of some ten thousand jobs (docs/accuracy.md).
const SIMULATED_JOBS: usize = 300_000;
/// Relative error (standard deviation) of growth by mean value analysis where service is in the order of
/// arrival: measured against simulations with four service-time distributions (docs/accuracy.md).
const MEAN_VALUE_ERROR: f64 = 0.025;
/// Largest ratio of the measured to the model's wait at which the whole wait grows with the load. The rest of a longer
/// one is no queueing at this station (a wake-up, a way through the kernel), and stays as it is. The open model is
/// M/M/c: variations up to four times as large are usual.
const MAX_CLOSED_FACTOR: f64 = 2.0;
const MAX_OPEN_FACTOR: f64 = 4.0;
/// Seed of the simulation.
const SEED: u64 = 0x0071_e5ce;

/// The way by which a prediction is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The recorded jobs, simulated again.
    Simulation,
    /// The measured wait, grown by the formula of Allen and Cunneen.
    AllenCunneen,
    /// The formula of Allen and Cunneen alone: no wait was measured.
    Formula,
    /// The measured wait, grown by mean value analysis.
    MeanValue,
}

impl Method {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Method::Simulation => "simulation",
            Method::AllenCunneen => "allen_cunneen",
            Method::Formula => "allen_cunneen_alone",
            Method::MeanValue => "mean_value_analysis",
        }
    }
}

/// The wait at a larger load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// Mean wait, s. Its upper end is infinite where the load may be more than can be served.
    Wait(Estimate),
    /// More arrives than can be served: the queue grows without end.
    Unstable,
}

/// Waits of one queue by model.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// How it was made.
    pub method: Method,
    /// The model's mean wait at the recorded load, s: to be compared with the measured one. `None`
    /// where the measured wait is the model's only source.
    pub now: Option<Estimate>,
    /// The formula of Allen and Cunneen at the recorded load, s, where both variations are known.
    pub formula: Option<f64>,
    /// The wait at each load of [`GROWTH`].
    pub growth: [Outcome; GROWTH.len()],
}

/// An open queue's servers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Open {
    /// Number of servers.
    pub servers: u32,
    /// How jobs share them.
    pub discipline: Discipline,
    /// Servers that are busy with other work, which does not grow.
    pub others: f64,
}

impl Open {
    /// Servers of its own, in the order of arrival.
    pub fn fifo(servers: u32) -> Open {
        Open {
            servers,
            discipline: Discipline::Fifo,
            others: 0.0,
        }
    }

    fn station(&self, m: &Moments, growth: f64) -> Station {
        Station {
            arrival_rate: m.arrival_rate() * (1.0 + growth),
            service: m.mean_service(),
            gap_variation: m.gap_variation(),
            service_variation: self.discipline.effective_variation(m.service_variation()),
            servers: self.servers,
        }
    }

    /// Predicts from single `jobs`; `blocks` are the same jobs by block of time. Both are not empty.
    pub fn from_jobs(&self, jobs: &[Job], blocks: &[Moments]) -> Prediction {
        let whole = Moments::total(blocks);
        let draws = bootstrap::draws(blocks);
        let wait = |growth: f64| {
            let formula = |m: &Moments| self.station(m, growth).allen_cunneen();
            let all = formula(&whole);
            if !all.is_finite() {
                return Outcome::Unstable;
            }
            let simulated = self.simulate(jobs, growth);
            let ratios: Vec<f64> = draws.iter().map(|m| formula(m) / all).collect();
            let ratio = bootstrap::interval(1.0, &ratios, blocks.len());
            Outcome::Wait(simulated_interval(simulated, ratio))
        };
        Prediction {
            method: Method::Simulation,
            now: match wait(0.0) {
                Outcome::Wait(estimate) => Some(estimate),
                Outcome::Unstable => None,
            },
            formula: Some(self.station(&whole, 0.0).allen_cunneen()),
            growth: GROWTH.map(wait),
        }
    }

    /// Simulates `jobs` at a larger load.
    fn simulate(&self, jobs: &[Job], growth: f64) -> Simulated {
        let mut random = Random::new(SEED);
        let mut resampled = Resampled::new(jobs);
        let stretches = resampled.error();
        let service = jobs.iter().map(|j| j.service).sum::<f64>() / jobs.len() as f64;
        let simulated = simulate(self.servers, SIMULATED_JOBS, || {
            let job = resampled.draw(&mut random);
            let service = match self.discipline {
                Discipline::Fifo => job.service,
                Discipline::Shared => random.exponential(service),
            };
            (job.gap / (1.0 + growth), service)
        });
        Simulated {
            error: simulated.error.hypot(stretches * simulated.mean),
            ..simulated
        }
    }

    /// Predicts from sums: the measured wait of `blocks`, which are not empty, and how a wait grows.
    pub fn from_sums(&self, blocks: &[Moments]) -> Prediction {
        let draws = bootstrap::draws(blocks);
        let grown_wait = |m: &Moments, growth: f64| {
            let modelled = |at: f64| self.waits_in_service_times(m, at) * m.mean_service();
            grown(
                m.mean_wait(),
                modelled(0.0),
                modelled(growth),
                MAX_OPEN_FACTOR,
            )
        };
        let whole = Moments::total(blocks);
        let estimate = |growth: f64| {
            let drawn: Vec<f64> = draws.iter().map(|m| grown_wait(m, growth)).collect();
            bootstrap::interval(grown_wait(&whole, growth), &drawn, blocks.len())
        };
        let wait = |growth: f64| match estimate(growth) {
            e if e.value.is_finite() => Outcome::Wait(e),
            _ => Outcome::Unstable,
        };
        Prediction {
            method: Method::AllenCunneen,
            now: None,
            formula: None,
            growth: GROWTH.map(wait),
        }
    }

    /// Predicts waits that were not measured, by the formula of Allen and Cunneen alone, from the
    /// moments of `blocks`, which are not empty.
    pub fn from_moments(&self, blocks: &[Moments]) -> Prediction {
        let draws = bootstrap::draws(blocks);
        let whole = Moments::total(blocks);
        let wait = |growth: f64| {
            let formula = |m: &Moments| self.station(m, growth).allen_cunneen();
            let value = formula(&whole);
            let drawn: Vec<f64> = draws.iter().map(formula).collect();
            match value.is_finite() {
                true => Outcome::Wait(bootstrap::interval(value, &drawn, blocks.len())),
                false => Outcome::Unstable,
            }
        };
        Prediction {
            method: Method::Formula,
            now: match wait(0.0) {
                Outcome::Wait(estimate) => Some(estimate),
                Outcome::Unstable => None,
            },
            formula: None,
            growth: GROWTH.map(wait),
        }
    }

    /// The mean wait of M/M/c at a load of 1 + `growth`, in mean service times; infinite if the servers are
    /// saturated.
    fn waits_in_service_times(&self, m: &Moments, growth: f64) -> f64 {
        let servers = f64::from(self.servers);
        let offered = self.others + m.utilisation(self.servers) * servers * (1.0 + growth);
        match offered < servers {
            true => erlang_c(self.servers, offered) / (servers - offered),
            false => f64::INFINITY,
        }
    }
}

/// Joins the uncertainty of the moments with that of the simulation, both relative.
fn simulated_interval(simulated: Simulated, ratio: Estimate) -> Estimate {
    let error = simulated.error / simulated.mean.max(f64::MIN_POSITIVE);
    widened(ratio.times(simulated.mean), error)
}

/// `estimate`, with an independent relative standard `error` added.
fn widened(estimate: Estimate, error: f64) -> Estimate {
    let distance = |end: f64| match end > 0.0 && estimate.value > 0.0 {
        true => (end / estimate.value).ln().hypot(1.96 * error),
        false => f64::INFINITY,
    };
    Estimate {
        value: estimate.value,
        low: estimate.value * (-distance(estimate.low)).exp(),
        high: estimate.value * distance(estimate.high).exp(),
    }
}

/// The `measured` wait at a load at which the model's wait grows from `model_now` to `model_then`; all in s.
fn grown(measured: f64, model_now: f64, model_then: f64, max_factor: f64) -> f64 {
    if !model_now.is_finite() {
        return f64::INFINITY;
    }
    let factor = (measured / model_now).min(max_factor);
    let factor = if factor.is_finite() {
        factor
    } else {
        max_factor
    };
    measured + factor * (model_then - model_now)
}

/// A closed queue: its customers go round between the station and elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Closed {
    /// Number of customers.
    pub customers: f64,
    /// Number of servers.
    pub servers: u32,
    /// How customers share them.
    pub discipline: Discipline,
}

impl Closed {
    /// The network with the moments of a draw of blocks.
    fn network(&self, m: &Moments) -> mva::Network {
        let cycle = self.customers * m.span / m.jobs;
        mva::Network {
            think: (cycle - m.mean_wait() - m.mean_service()).max(0.0),
            stations: vec![mva::Station {
                service: m.mean_service(),
                variation: self.discipline.effective_variation(m.service_variation()),
                servers: self.servers,
            }],
        }
    }

    /// Predicts from the measured waits and services of `blocks`, which are not empty.
    pub fn predict(&self, blocks: &[Moments]) -> Prediction {
        // The model's wait at the recorded load, then the measured wait grown.
        let waits = |m: &Moments| -> [f64; 4] {
            let network = self.network(m);
            let at = |growth: f64| network.solve(self.customers * (1.0 + growth)).stations[0].wait;
            let now = at(0.0);
            let [a, b, c] = GROWTH.map(|g| grown(m.mean_wait(), now, at(g), MAX_CLOSED_FACTOR));
            [now, a, b, c]
        };
        let whole = waits(&Moments::total(blocks));
        let drawn: Vec<[f64; 4]> = bootstrap::draws(blocks).iter().map(waits).collect();
        let estimate = |i: usize| {
            let drawn: Vec<f64> = drawn.iter().map(|waits| waits[i]).collect();
            let estimate = bootstrap::interval(whole[i], &drawn, blocks.len());
            match self.discipline {
                Discipline::Fifo if whole[i] > 0.0 => widened(estimate, MEAN_VALUE_ERROR),
                _ => estimate,
            }
        };
        Prediction {
            method: Method::MeanValue,
            now: Some(estimate(0)),
            formula: None,
            growth: [1, 2, 3].map(|i| Outcome::Wait(estimate(i))),
        }
    }
}
