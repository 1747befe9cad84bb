//! Blame: each wait, charged to the activity of the thread that ended it.
//!
//! A wait is divided in time. Each part is charged to the activity of the waker, holder, child or
//! peer in that part. If that thread waited itself, its own waker is charged, hop by hop. The parts
//! of a wait sum to the wait, to the nanosecond.
//!
//! A disk, a timer, a CPU quota, missing memory and a stop signal are ends of their own. A wait for
//! a measured child is charged to the ledger of that child's main thread. A hop beyond the recorded
//! ones is open: [`NotFollowed`] states the cause, and no other activity is charged for it.
//!
//! [`Blame`] reads the sampled waits and their recorded hops. [`timeline`] reads every wait of a
//! recording that kept its intervals.

mod children;
mod follow;
mod hops;
mod root;
pub mod timeline;

#[cfg(test)]
mod tests;

use wallscope_model::scale::{Scaled, Unsampled};
use wallscope_model::{Recording, State};

pub use hops::Waits;
pub use root::{NotFollowed, Root, RootActor};

use follow::Follower;

/// A part of a wait, with its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlamedPart {
    /// The waiting sample, by its index.
    pub sample: u32,
    /// Index into [`Blame::roots`].
    pub root: u32,
    /// Scaled time, ns.
    pub ns: u64,
}

/// All blocked time of a recording, charged to roots.
pub struct Blame {
    /// Distinct roots.
    pub roots: Vec<Root>,
    /// Parts in the order of samples. The parts of a sample sum to its scaled time.
    pub parts: Vec<BlamedPart>,
    /// Exact blocked time without any sample.
    pub unsampled: Vec<Unsampled>,
}

impl Blame {
    /// Charges the blocked samples of `recording`, scaled by `scaled`.
    pub fn new(recording: &Recording, scaled: &Scaled) -> Blame {
        let mut follower = Follower::new(recording, scaled);
        let mut parts = Vec::new();
        for (i, sample) in (0..).zip(&recording.samples) {
            if sample.state != State::Blocked {
                continue;
            }
            let charged = follower.sample(i);
            parts.extend(
                charged
                    .iter()
                    .filter(|(_, ns)| *ns > 0)
                    .map(|(root, ns)| BlamedPart {
                        sample: i,
                        root: *root,
                        ns: *ns,
                    }),
            );
        }
        let blocked = scaled.unsampled.iter();
        Blame {
            roots: follower.finish(),
            parts,
            unsampled: blocked
                .filter(|u| u.state == State::Blocked)
                .copied()
                .collect(),
        }
    }

    /// The parts of one sample.
    pub fn of_sample(&self, sample: u32) -> &[BlamedPart] {
        let from = self.parts.partition_point(|p| p.sample < sample);
        let to = self.parts.partition_point(|p| p.sample <= sample);
        &self.parts[from..to]
    }

    /// The root of a part.
    pub fn root(&self, part: &BlamedPart) -> &Root {
        &self.roots[part.root as usize]
    }
}
