//! The column of a pprof file that is read.

use wallscope_model::{State, Unit};

use super::super::ReadError;
use super::columns;
use super::tables::Tables;

/// The column that is used.
pub(super) struct Chosen {
    pub index: usize,
    /// The column that counts samples, if there is one.
    pub count: Option<usize>,
    /// The unit of a value, and the number of units that the number 1 is.
    pub unit: Unit,
    pub factor: u64,
    /// Its state, for samples without a label that gives it.
    pub state: State,
    pub name: String,
    /// The other values that may be requested.
    pub others: Vec<String>,
}

/// The names and units of a file's columns.
struct Types(Vec<(String, String)>);

impl Types {
    fn of(t: &Tables) -> Types {
        let types = t.sample_types.iter().take(64);
        let text = |id: &u64| t.string(*id).into_owned();
        Types(types.map(|(name, unit)| (text(name), text(unit))).collect())
    }

    /// The column with this name. `name/unit` chooses among several columns with one name.
    fn named(&self, name: &str) -> Option<usize> {
        let exact =
            |(n, u): &(String, String)| name.strip_prefix(n.as_str()) == Some(&format!("/{u}"));
        let same = self.0.iter().position(|(n, _)| n == name);
        same.or_else(|| self.0.iter().position(exact))
    }

    fn unit(&self, index: usize) -> (Unit, u64) {
        let (name, unit) = &self.0[index];
        columns::unit(name, unit)
    }

    fn is_timed(&self, index: usize) -> bool {
        self.unit(index).0.is_time()
    }

    /// Names by which all columns except the one at `index` can be requested.
    fn others(&self, index: usize) -> Vec<String> {
        let name = |(i, (name, unit)): (usize, &(String, String))| match self.named(name) {
            Some(at) if at == i => name.clone(),
            _ => format!("{name}/{unit}"),
        };
        let others = self.0.iter().enumerate().filter(|(i, _)| *i != index);
        others.map(name).collect()
    }
}

/// A value that follows from counts of samples and their period, in the period's own unit.
struct Weighed {
    name: String,
    samples: usize,
    unit: Unit,
    factor: u64,
}

impl Weighed {
    /// `None` if samples are not counted, their period is unknown, or a column has the value.
    fn of(t: &Tables, types: &Types) -> Option<Weighed> {
        let name = t.string(t.period.of.0).into_owned();
        let samples = types.named("samples")?;
        let told = t.period.value > 0 && !name.is_empty() && types.named(&name).is_none();
        let (unit, factor) = columns::unit(&name, &t.string(t.period.of.1));
        (told && types.0[samples].1 == "count").then_some(Weighed {
            name,
            samples,
            unit,
            factor: factor.saturating_mul(t.period.value),
        })
    }
}

impl Chosen {
    /// The requested column; otherwise the default one or the last. If columns with a unit of time exist, only
    /// these are considered.
    ///
    /// # Errors
    /// [`ReadError::NoSuchValue`], [`ReadError::NoValues`].
    pub(super) fn of(t: &Tables, asked: Option<&str>) -> Result<Chosen, ReadError> {
        let types = Types::of(t);
        let weighed = Weighed::of(t, &types);
        let default = t.string(t.default_sample_type);
        let index = match (asked, &weighed) {
            (Some(asked), Some(w)) if asked == w.name => return Ok(Chosen::weighed(w, &types)),
            (Some(asked), _) => types.named(asked),
            (None, _) => (types.named(&default).filter(|i| types.is_timed(*i)))
                .or_else(|| (0..types.0.len()).rfind(|i| types.is_timed(*i)))
                .or_else(|| types.named(&default))
                .or(types.0.len().checked_sub(1)),
        };
        let further = weighed.map(|w| w.name);
        let Some(index) = index else {
            return Err(match asked {
                None => ReadError::NoValues,
                Some(asked) => ReadError::NoSuchValue {
                    asked: asked.to_string(),
                    have: (types.others(usize::MAX).into_iter().chain(further))
                        .collect::<Vec<_>>()
                        .join(", "),
                },
            });
        };
        let name = types.0[index].0.clone();
        let (unit, factor) = types.unit(index);
        // Values of memory have their own counts; any other column of counts has the samples.
        let twin = name
            .strip_suffix("_space")
            .and_then(|kind| types.named(&format!("{kind}_objects")));
        let counts = |i: &usize| types.0[*i].1 == "count" && *i != index;
        Ok(Chosen {
            index,
            count: twin.or_else(|| (0..types.0.len()).find(counts)),
            state: columns::state(&name, &unit),
            unit,
            factor,
            others: types.others(index).into_iter().chain(further).collect(),
            name,
        })
    }

    fn weighed(w: &Weighed, types: &Types) -> Chosen {
        Chosen {
            index: w.samples,
            count: Some(w.samples),
            unit: w.unit.clone(),
            factor: w.factor,
            state: columns::state(&w.name, &w.unit),
            name: w.name.clone(),
            others: types.others(usize::MAX),
        }
    }
}
