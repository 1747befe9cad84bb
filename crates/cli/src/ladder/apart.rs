//! What the page says of the time that shares leave out, as `--idle` asks.

use wallscope_diagnose::ladder::{Apart, Why};

use super::{Page, seconds};
use crate::report::IdleArg;

impl Page<'_> {
    /// Whether causes of active time are listed.
    pub(super) fn shows_causes(&self) -> bool {
        self.idle != IdleArg::Only
    }

    /// The heading of the list, and what it lists: nothing unless asked for.
    pub(super) fn apart(&self) -> (String, &[Apart]) {
        let rows: &[Apart] = match self.idle {
            IdleArg::Hide => &[],
            IdleArg::Show | IdleArg::Only => &self.ladder.apart,
        };
        let all = self.ladder.apart.iter().map(|a| a.ns).sum();
        let heading = match (self.idle, rows) {
            (IdleArg::Hide, _) => String::new(),
            (_, []) => "Set apart: nothing; no thread was idle, parked or without work".into(),
            _ => format!(
                "Set apart, and no part of the shares: {} in which nothing was due",
                seconds(all)
            ),
        };
        (heading, rows)
    }
}

/// A row's cells: how long, why, state and reason, where.
pub(super) fn cells(a: &Apart) -> [String; 4] {
    let why = match a.why {
        Why::Idle => "idle",
        Why::NoWork => "no work",
        Why::Parked => "parked",
        Why::Ticks => "only ticks",
    };
    let what = match a.reason {
        Some(reason) => format!("{} ({reason})", a.state.name()),
        None => a.state.name().to_string(),
    };
    let mut place = a.function.to_string();
    if !a.module.is_empty() {
        place = format!("{place}  {}", a.module);
    }
    if a.threads > 1 {
        place = format!("{place}  in {} threads", a.threads);
    }
    [seconds(a.ns), why.into(), what, place]
}
