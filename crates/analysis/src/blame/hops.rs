//! The recorded hops below each wait, scaled to the ledger.

use wallscope_model::scale::Piece;
use wallscope_model::{Above, Recording};

/// The hops of a recording, scaled.
pub struct Waits {
    /// Scaled time of each hop, ns; children never sum to more than their parent.
    pub ns: Vec<u64>,
    /// Hops below each sample.
    pub below_sample: Vec<Vec<u32>>,
    /// Hops below each hop.
    pub below: Vec<Vec<u32>>,
    /// Scaled time of each sample, ns.
    pub sample_ns: Vec<u64>,
}

impl Waits {
    /// Scales the hops of `recording` as `pieces` scale its samples.
    pub fn new<'p>(recording: &Recording, pieces: impl Iterator<Item = &'p Piece>) -> Waits {
        let mut sample_ns = vec![0u64; recording.samples.len()];
        for p in pieces {
            sample_ns[p.sample as usize] += p.ns;
        }
        let mut below_sample = vec![Vec::new(); recording.samples.len()];
        let mut below = vec![Vec::new(); recording.hops.len()];
        let mut ns = vec![0u64; recording.hops.len()];
        // By parent: how much of its unscaled time was given, so that parts are rounded to sum.
        let mut given_samples = vec![0u64; recording.samples.len()];
        let mut given_hops = vec![0u64; recording.hops.len()];
        for (i, hop) in recording.hops.iter().enumerate() {
            let (whole, scaled, given) = match hop.above {
                Above::Sample(s) => {
                    let s = s as usize;
                    below_sample[s].push(i as u32);
                    (recording.samples[s].ns, sample_ns[s], &mut given_samples[s])
                }
                Above::Hop(h) => {
                    let h = h as usize;
                    below[h].push(i as u32);
                    (recording.hops[h].ns, ns[h], &mut given_hops[h])
                }
            };
            let upto = |part: u64| {
                let part = u128::from(part.min(whole));
                (u128::from(scaled) * part / u128::from(whole.max(1))) as u64
            };
            let before = upto(*given);
            *given = given.saturating_add(hop.ns);
            ns[i] = upto(*given) - before;
        }
        Waits {
            ns,
            below_sample,
            below,
            sample_ns,
        }
    }
}
