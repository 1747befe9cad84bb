//! The ladder: from a recording to a named cause, rung by rung, as an experienced engineer climbs.
//!
//! Rung 1 asks whether the CPU is the bottleneck at all, and looks at the host around the process
//! ([`Bottleneck`], [`Resource`]). Rung 2 gives the time by cause ([`Cause`]), and the smallest share
//! that the recording can resolve. The verdict is that of the first rule that applies; every rule
//! that was tried is kept with its figures.
//!
//! Pure, like the rest of the crate. Counting and timing calls are rungs of their own: they need
//! probes in the live process.

use wallscope_model::Recording;

pub use crate::evidence::{
    Bottleneck, Cause, ExcludedTime, Exclusion, Level, Reading, Requests, Resource, RootShare,
    Upstream,
};
pub use crate::rules::{ACTIVE, TriedRule, Verdict, VerdictParts};

use crate::evidence::Evidence;
use crate::rules;

/// The answer that a recording gives.
#[non_exhaustive]
pub struct Ladder {
    /// Rung 1: times of the threads that work.
    pub bottleneck: Bottleneck,
    /// Rung 1: the host around them, worst first.
    pub host: Vec<Resource>,
    /// Rung 2: causes of active time, largest first.
    pub causes: Vec<Cause>,
    /// Time that shares of active time leave out, largest first.
    pub excluded: Vec<ExcludedTime>,
    /// Requests over connections that were followed.
    pub requests: Requests,
    /// Rung 2: shares of active time below this are noise in this recording.
    pub resolves: f64,
    /// The verdict.
    pub verdict: Verdict,
    /// Every rule that was tried, in order, with its figures.
    pub tried: Vec<TriedRule>,
}

impl Ladder {
    /// Climbs as far as a recording goes.
    ///
    /// ```
    /// use wallscope_diagnose::ladder::Ladder;
    ///
    /// let ladder = Ladder::new(&wallscope_synthetic::recording(8));
    /// // Rules are tried in order until one speaks; all of them are kept with their figures.
    /// assert!(ladder.tried.iter().any(|rule| rule.spoke));
    /// assert!(ladder.causes.windows(2).all(|pair| pair[0].ns >= pair[1].ns));
    /// ```
    pub fn new(recording: &Recording) -> Ladder {
        let evidence = Evidence::new(recording);
        let judgement = rules::judge(&evidence);
        Ladder {
            bottleneck: evidence.bottleneck,
            host: evidence.host,
            causes: evidence.causes,
            excluded: evidence.excluded,
            requests: evidence.requests,
            resolves: evidence.resolves,
            verdict: judgement.verdict,
            tried: judgement.tried,
        }
    }
}

#[cfg(test)]
mod tests;
