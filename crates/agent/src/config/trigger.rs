//! `[[trigger]]`: reasons to write a snap.

use serde::Deserialize;
use toml::Spanned;
use wallscope_model::{BlockReason, Part, State};

use super::values::{Length, Name, Share, Size};

/// A trigger: a condition, and the limits of its snaps.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trigger {
    /// Its name.
    pub name: Spanned<Name>,
    /// Its condition.
    pub when: Condition,
    /// How long the condition must hold.
    #[serde(default = "usual_hold")]
    pub hold: Length,
    /// Its limits.
    #[serde(default)]
    pub limits: TriggerLimits,
}

fn usual_hold() -> Length {
    Length::seconds(10)
}

/// Limits of the snaps of one trigger.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TriggerLimits {
    /// Least time between two snaps.
    pub cool_down: Length,
    /// Most snaps a day.
    pub max_per_day: u32,
    /// Most bytes of its snaps.
    pub max_bytes: Size,
}

impl Default for TriggerLimits {
    fn default() -> TriggerLimits {
        TriggerLimits {
            cool_down: Length::seconds(600),
            max_per_day: 20,
            max_bytes: Size(256 << 20),
        }
    }
}

/// A resource with pressure figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// CPUs.
    Cpu,
    /// Block devices.
    Io,
    /// Memory.
    Memory,
}

/// The condition of a trigger: one table with one of these keys.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Condition {
    /// Share of time in which some task waited for a resource (PSI).
    Pressure {
        /// The resource.
        resource: Resource,
        /// Fires above this share.
        above: Share,
    },
    /// A quantile of run-queue latency.
    RunQueueLatency {
        /// The service; without it, the whole machine.
        #[serde(default)]
        service: Option<String>,
        /// The quantile.
        quantile: Share,
        /// Fires above this.
        above: Length,
    },
    /// Share of a service's wall time in one state or reason.
    TimeShare {
        /// The service; without it, the whole machine.
        #[serde(default)]
        service: Option<String>,
        /// State or reason, by the contract's name: `blocked`, `lock`, `throttled`…
        of: String,
        /// Fires above this share.
        above: Share,
    },
    /// On-CPU share of a service's active time.
    OnCpuFraction {
        /// The service; without it, the whole machine.
        #[serde(default)]
        service: Option<String>,
        /// Fires below this share.
        below: Share,
    },
    /// An alert that Alertmanager or Grafana sends to `/v1/webhook`.
    Webhook {
        /// Name of the alert.
        alert: String,
    },
}

/// Names that `of` of a time share may have.
pub(super) fn time_names() -> impl Iterator<Item = &'static str> {
    let states = State::ALL.iter().map(|s| s.name());
    let reasons = BlockReason::ALL.iter().map(|r| r.name());
    let parts = Part::ALL.iter().map(|p| p.name());
    states.chain(reasons).chain(parts)
}
