//! Conditions that a script fails on: `on-cpu:+2%`, `lock@reserve:+3ms`.
//!
//! A condition fires where the best estimate is at or beyond its limit *and* the interval of the
//! difference does not reach zero: noise never fires, however large. If the interval reaches the
//! limit all the same, the data cannot decide. The outcome then says how much more data would
//! decide.

use std::fmt;

use wallscope_model::compare::{Difference, Effort, effort};
use wallscope_model::{BlockReason, Part, State, View};

use super::comparison::Comparison;
use super::units::Unit;
use super::units::relative;

/// A condition: the limit to the growth, or the shrinkage, of one time of one function.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    what: Quantity,
    function: Option<String>,
    limit: Limit,
    /// Whether the limit is to growth, and not to shrinkage.
    grows: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Quantity {
    View(View),
    Reason(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// Of the base, 1 = all of it.
    Relative(f64),
    /// ns, of a comparison of times.
    Time(f64),
    /// A share of 1, of a comparison of shares.
    Share(f64),
}

/// Outcome of the judgement of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is beyond its limit, and that is no noise.
    Fired,
    /// It is not.
    Holds,
    /// The data cannot tell.
    Undecided,
    /// There is no such time on either side.
    Nothing,
}

/// A judged condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The condition as it was written.
    pub condition: String,
    /// Outcome of the judgement.
    pub verdict: Verdict,
    /// The figures, in a sentence.
    pub says: String,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for Condition {
    type Err = String;

    /// `WHAT[@FUNCTION]:±AMOUNT`: `WHAT` a view, block reason or part; the amount in percent of the
    /// base, or a time in the comparison's unit.
    fn from_str(text: &str) -> Result<Condition, String> {
        let form = "write it as WHAT[@FUNCTION]:+AMOUNT, such as on-cpu:+2%, lock:+3ms or \
                    wall@reserve:+10%";
        let (subject, amount) = text.rsplit_once(':').ok_or(form)?;
        let (what, function) = match subject.split_once('@') {
            Some((what, function)) => (what, Some(function.to_string())),
            None => (subject, None),
        };
        let reason = || {
            let block = BlockReason::from_name(what).map(BlockReason::name);
            block.or_else(|| Part::from_name(what).map(Part::name))
        };
        let what = match View::from_name(what) {
            Some(view) => Quantity::View(view),
            None => Quantity::Reason(reason().ok_or(format!(
                "'{what}' is no view (wall, on-cpu, off-cpu, runq) and no reason (lock, disk, …)"
            ))?),
        };
        if matches!(what, Quantity::Reason(_)) && function.is_some() {
            return Err("a function's time is told by view: use off-cpu@FUNCTION".to_string());
        }
        let grows = match amount.chars().next() {
            Some('+') => true,
            Some('-' | '−') => false,
            _ => return Err(form.to_string()),
        };
        let amount = amount.trim_start_matches(['+', '-', '−']);
        let digits = amount
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(amount.len());
        let number: f64 = amount[..digits].parse().map_err(|_| form)?;
        let limit = match amount[digits..].trim() {
            "%" => Limit::Relative(number / 100.0),
            "pp" => Limit::Share(number / 100.0),
            "ns" => Limit::Time(number),
            "us" | "µs" => Limit::Time(number * 1e3),
            "ms" => Limit::Time(number * 1e6),
            "s" => Limit::Time(number * 1e9),
            unit => {
                return Err(format!(
                    "'{unit}' is no unit: use %, ns, us, ms, s, or pp of shares"
                ));
            }
        };
        Ok(Condition {
            text: text.to_string(),
            what,
            function,
            limit,
            grows,
        })
    }
}

impl Condition {
    /// Checks that its limit fits the comparison's unit: a time cannot be more or less than a
    /// share.
    ///
    /// # Errors
    /// The limit that can be used instead.
    pub fn fits(&self, c: &Comparison) -> Result<(), String> {
        let use_instead = match (self.limit, c.unit()) {
            (Limit::Relative(_), _)
            | (Limit::Time(_), Unit::Time { .. })
            | (Limit::Share(_), Unit::Share) => return Ok(()),
            (_, Unit::Share) => "% of the base, or pp of all time",
            (_, Unit::Time { .. }) => "% of the base or a time, or compare shares with --per total",
            (_, Unit::Bytes { .. } | Unit::Count { .. }) => "% of the base",
        };
        let (text, about) = (&self.text, c.about());
        Err(format!(
            "'{text}' does not fit what is compared, {about}: use {use_instead}"
        ))
    }

    /// Judges the condition, which [fits](Condition::fits).
    pub fn judge(&self, c: &Comparison) -> Outcome {
        let outcome = |verdict, says| Outcome {
            condition: self.text.clone(),
            verdict,
            says,
        };
        let Some(d) = self.find(c) else {
            return outcome(
                Verdict::Nothing,
                "no such time on either side, or not compared in this view".to_string(),
            );
        };
        let limit = match self.limit {
            Limit::Relative(share) => share * d.base,
            Limit::Time(v) | Limit::Share(v) => v,
        };
        let (moved, low, high) = if self.grows {
            (d.delta, d.low, d.high)
        } else {
            (-d.delta, -d.high, -d.low)
        };
        let unit = c.unit();
        let mut says = format!(
            "{} → {}, {} ({})",
            unit.value(d.base),
            unit.value(d.new),
            unit.difference(d.delta, (d.high - d.low) / 2.0),
            relative(&d)
        );
        let verdict = if moved >= limit && moved > 0.0 && low > 0.0 {
            Verdict::Fired
        } else if high >= limit && low < limit && limit > 0.0 && d.resolvable() > limit {
            match effort(&d, limit) {
                Effort::Longer(times) => {
                    says.push_str(&format!("; to decide, record {times:.1} times as long"));
                }
                Effort::MoreRuns(times) => {
                    says.push_str(&format!(
                        "; to decide, record {times:.1} times as many runs"
                    ));
                }
                Effort::Enough => {}
            }
            Verdict::Undecided
        } else {
            Verdict::Holds
        };
        outcome(verdict, says)
    }

    fn find(&self, c: &Comparison) -> Option<Difference> {
        if let Some(function) = &self.function {
            let row = (c.functions.iter())
                .find(|r| *r.function.name == **function)
                .or_else(|| {
                    c.functions
                        .iter()
                        .find(|r| r.function.name.contains(&**function))
                })?;
            let Quantity::View(view) = self.what else {
                return None;
            };
            return match state_of(view) {
                None => Some(row.all),
                Some(state) => {
                    let own = row.states.iter().find(|s| s.state == state)?;
                    Some(own.difference)
                }
            };
        }
        let found = c.whole.iter().find(|r| match self.what {
            Quantity::View(View::Wall) => r.state.is_none() && c.options.view == View::Wall,
            Quantity::View(view) => {
                r.state == state_of(view) && r.state.is_some() && r.reason.is_none()
            }
            Quantity::Reason(reason) => r.reason == Some(reason),
        });
        found.map(|r| r.difference)
    }
}

fn state_of(view: View) -> Option<State> {
    match view {
        View::OnCpu => Some(State::OnCpu),
        View::OffCpu => Some(State::Blocked),
        View::RunQueue => Some(State::Runnable),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_as_written() {
        for right in [
            "on-cpu:+2%",
            "lock:+3ms",
            "wall@a::b():-10%",
            "runq:+0.5pp",
            "preempted:+1us",
        ] {
            let c: Condition = right.parse().unwrap();
            assert_eq!(c.to_string(), right);
        }
        let c: Condition = "wall@a::b():-10%".parse().unwrap();
        assert_eq!(c.function.as_deref(), Some("a::b()"));
        assert_eq!((c.limit, c.grows), (Limit::Relative(0.1), false));
        for wrong in [
            "",
            "on-cpu",
            "on-cpu:2%",
            "cpu:+2%",
            "on-cpu:+2kg",
            "on-cpu:+%",
            "lock@f:+2%",
        ] {
            assert!(wrong.parse::<Condition>().is_err(), "{wrong}");
        }
    }
}
