//! A program that works without end and is measured by each tool for a while, with unmeasured stretches in
//! between.
//!
//! Two runs of one program differ by per cents (the place of its memory, the choices of a runtime's compiler),
//! and that is more than a good profiler costs. So one process works on in equal pieces and tells when each
//! ended. The pieces under a tool are compared with those just before and after it, by their median: a
//! neighbour that slows a few pieces down changes no median. A piece is longer than ten samples and than one
//! poll without eBPF, so every piece carries its part of a tool's cost.

use std::time::Duration;

use wallscope_testkit::Error;

use super::comparison::{Comparison, Standing, Start, cost_percent, range};
use super::peer::Peer;
use crate::{Outcome, median};

const LIMIT: Duration = Duration::from_secs(60);
/// Limit of rounds, as a multiple of the rounds asked for. Rounds are added until each tool has enough that
/// count.
const PATIENCE: usize = 3;

/// A program that works in equal pieces, and the tools that measure it.
pub(super) struct Steady {
    /// The workload's name.
    pub name: &'static str,
    /// The compared figure, with its unit.
    pub about: String,
    /// Starts it, up to its READY.
    pub start: Start,
    /// The tools.
    pub peers: Vec<Peer>,
    /// Length of one measurement.
    pub window: Duration,
    /// Largest relative difference between the stretches before and after a measurement. Beyond it the program
    /// itself has changed (its runtime compiled it anew, the host changed its clock), and the round does not
    /// count.
    pub steady: f64,
}

/// Result of one round.
struct Round {
    /// Medians of the pieces in unmeasured stretches, in order of time, ms.
    bare: Vec<f64>,
    /// Each measurement in order of time: index of the tool, median piece (ms), its ratio to those around it, cost
    /// (percent of a CPU).
    watched: Vec<(usize, f64, f64, Option<f64>)>,
}

impl Steady {
    /// One round: each of `peers` once, in the given order, for `length`.
    fn round(&self, peers: &[Peer], order: &[usize], length: Duration) -> Result<Round, Error> {
        let mut program = (self.start)()?;
        program.release()?;
        // Compilers and caches come to rest.
        std::thread::sleep(length * 3 / 10);
        let pass = |length: Duration| {
            let from = now();
            std::thread::sleep(length);
            (from, now())
        };
        let mut bare = vec![pass(length * 4 / 10)];
        let mut watched = Vec::new();
        for index in order {
            let running = peers[*index].attach(program.pids())?;
            let window = pass(length);
            let cost = running.stop()?.map(|report| cost_percent(&report));
            watched.push((*index, window, cost));
            bare.push(pass(length * 4 / 10));
        }
        program.enough()?;
        let ends = program.truth(LIMIT)?.piece_ends;
        program.finish()?;
        let bare: Vec<f64> = bare.iter().map(|w| piece(&ends, *w)).collect();
        let watched = watched.into_iter().enumerate();
        let watched = watched.map(|(at, (index, window, cost))| {
            let own = piece(&ends, window);
            (index, own, 2.0 * own / (bare[at] + bare[at + 1]), cost)
        });
        Ok(Round {
            watched: watched.collect(),
            bare,
        })
    }

    /// Measures with each tool in turn, `rounds` times, and on while a tool has fewer rounds that count. A tool
    /// that cannot measure here is left out, and named.
    pub(super) fn compare(self, rounds: usize) -> Outcome<Comparison> {
        let mut able = Vec::new();
        for (index, peer) in self.peers.iter().enumerate() {
            eprintln!("{}: {} …", self.name, peer.name);
            let one = std::slice::from_ref(peer);
            match self.round(one, &[0], self.window / 10) {
                Ok(_) => able.push(peer.clone()),
                Err(error) if index == 0 => return Err(error.into()),
                Err(error) => println!("left out: {}: {error}", peer.name),
            }
        }
        let mut bare = Vec::new();
        let mut apart = Vec::new();
        let mut seen = vec![(Vec::new(), Vec::new(), Vec::new()); able.len()];
        for round in 0..rounds * PATIENCE {
            if round >= rounds && seen.iter().all(|(figures, ..)| figures.len() >= rounds) {
                break;
            }
            // Back and forth, so that none is always the one after the most disturbing.
            let mut order: Vec<usize> = (0..able.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            let shown = self.round(&able, &order, self.window)?;
            let middle = median(shown.bare.clone());
            apart.extend(shown.bare.iter().map(|b| b / middle));
            bare.push(middle);
            for (at, (index, figure, ratio, cost)) in shown.watched.into_iter().enumerate() {
                seen[index].2.extend(cost);
                let (before, after) = (shown.bare[at], shown.bare[at + 1]);
                if (after / before - 1.0).abs() <= self.steady {
                    seen[index].0.push(figure);
                    seen[index].1.push(ratio);
                } else {
                    let tool = &able[index].name;
                    println!(
                        "left out: a round of {tool}: {before:.1} ms before, {after:.1} after"
                    );
                }
            }
        }
        let nobody = Standing {
            peer: "bare".into(),
            figure: median(bare),
            ratio: 1.0,
            range: range(&apart),
            cost_percent: None,
        };
        let others = able.iter().zip(seen);
        let others = others.map(|(peer, (figures, ratios, costs))| Standing {
            peer: peer.name.clone(),
            figure: median(figures),
            range: range(&ratios),
            ratio: median(ratios),
            cost_percent: (!costs.is_empty()).then(|| median(costs)),
        });
        Ok(Comparison {
            workload: self.name,
            about: self.about.clone(),
            standings: std::iter::once(nobody).chain(others).collect(),
        })
    }
}

/// The median length of the pieces that began and ended within `window`, ms; NaN: there are none.
fn piece(ends: &[u64], window: (u64, u64)) -> f64 {
    let within = ends
        .windows(2)
        .filter(|e| e[0] >= window.0 && e[1] <= window.1);
    median(within.map(|e| (e[1] - e[0]) as f64 * 1e-6).collect())
}

/// CLOCK_MONOTONIC, ns, as the programs tell it.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pieces_count_and_their_median() {
        let ends = [5, 10, 20, 31, 200, 210].map(|ms| ms * 1_000_000);
        // 10, 11 and 169 ms; the first began before the window, the last ends after it.
        assert!((piece(&ends, (7_000_000, 205_000_000)) - 11.0).abs() < 1e-9);
        assert!(piece(&ends, (300_000_000, 400_000_000)).is_nan());
    }
}
