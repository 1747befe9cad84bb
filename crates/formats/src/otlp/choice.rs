//! The profiles of a file that are read, by the names and units of their values.

use std::collections::BTreeSet;

use wallscope_model::{State, Unit};

use super::super::ReadError;
use super::super::pprof::columns;

/// Values of one unit that add up.
pub(super) struct Choice {
    pub unit: Unit,
    names: Vec<String>,
}

impl Choice {
    /// The requested values; else time, else those of the first profile's unit.
    ///
    /// If several values have this unit and each has a state of its own, all are read: they are parts of
    /// one time. Otherwise the first is read. Values of `cpu` and of `wall` are never added.
    ///
    /// # Errors
    /// [`ReadError::NoSuchValue`], [`ReadError::NoValues`].
    pub(super) fn of(profiles: &[(&str, &Unit)], asked: Option<&str>) -> Result<Choice, ReadError> {
        let found = match asked {
            Some(asked) => profiles.iter().find(|(name, _)| *name == asked),
            None => (profiles.iter().find(|(_, unit)| unit.is_time())).or(profiles.first()),
        };
        let Some((_, unit)) = found else {
            let have: Vec<&str> = profiles.iter().map(|(name, _)| *name).collect();
            return Err(match asked {
                Some(asked) if !have.is_empty() => ReadError::NoSuchValue {
                    asked: asked.to_string(),
                    have: have.join(", "),
                },
                _ => ReadError::NoValues,
            });
        };
        let mut names: Vec<String> = Vec::new();
        for (name, _) in profiles.iter().filter(|(_, own)| own == unit) {
            let wanted = asked.is_none_or(|asked| asked == *name);
            if wanted && !names.iter().any(|known| known == name) {
                names.push(name.to_string());
            }
        }
        if !are_apart(&names, unit) {
            names.truncate(1);
        }
        Ok(Choice {
            unit: (*unit).clone(),
            names,
        })
    }

    /// Whether a profile is read.
    pub(super) fn is_read(&self, name: &str, unit: &Unit) -> bool {
        *unit == self.unit && self.names.iter().any(|known| known == name)
    }
}

/// Whether each name means a state of its own.
fn are_apart(names: &[String], unit: &Unit) -> bool {
    let state = |name: &String| match columns::state(name, unit) {
        State::Unknown if name != State::Unknown.name() => None,
        state => Some(state),
    };
    let states: Option<BTreeSet<State>> = names.iter().map(state).collect();
    states.is_some_and(|states| states.len() == names.len())
}
