//! Time that shares of active time leave out, as `--idle` asks for it.

use wallscope_diagnose::ladder::{ExcludedTime, Exclusion};

use super::{Page, seconds};
use crate::report::IdleArg;

impl Page<'_> {
    /// Whether causes of active time are listed.
    pub(super) fn shows_causes(&self) -> bool {
        self.idle != IdleArg::Only
    }

    /// Heading and rows of the list: empty unless asked for.
    pub(super) fn excluded_time(&self) -> (String, &[ExcludedTime]) {
        let rows: &[ExcludedTime] = match self.idle {
            IdleArg::Hide => &[],
            IdleArg::Show | IdleArg::Only => &self.ladder.excluded,
        };
        let all = self.ladder.excluded.iter().map(|a| a.ns).sum();
        let heading = match (self.idle, rows) {
            (IdleArg::Hide, _) => String::new(),
            (_, []) => "Left out: nothing; no thread was idle, parked or without work".into(),
            _ => format!(
                "Left out, and no part of the shares: {} in which nothing was due",
                seconds(all)
            ),
        };
        (heading, rows)
    }
}

/// A row's cells: length, exclusion, state and reason, function.
pub(super) fn cells(a: &ExcludedTime) -> [String; 4] {
    let why = match a.exclusion {
        Exclusion::Idle => "idle",
        Exclusion::NoWork => "no work",
        Exclusion::Parked => "parked",
        Exclusion::Ticks => "only ticks",
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
