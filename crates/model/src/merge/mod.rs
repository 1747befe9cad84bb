//! Merges several recordings into one: their code shared, their threads side by side or joined.
//!
//! [`merge`] keeps contexts separate, even with equal pid and tid: each has its own window and ledger,
//! and each ledger balances by itself. If all recordings have slices of one length, their slices
//! follow one another; otherwise slices are dropped.
//!
//! [`Merger::windows`] merges consecutive windows of one recorder. A thread that lived across the
//! border of two adjacent windows is one context, with the sum of its ledgers. Slices keep their place
//! on the clock, and become wider where there are more than [`MAX_SLICES`]. An address that one of them could not
//! name has the name that another has for it.
//!
//! Equal files, functions, addresses and stacks become one. Host facts keep the given order.
//!
//! Recordings with different methods (another backend, or exact in one and estimated in another)
//! measure different domains. Counts of two domains never add: this is an error.

mod code;
mod domain;
mod sums;
mod threads;

use crate::{Domain, Recording, Slices, UNTOLD, Unit, Window};

use threads::Threads;

pub use threads::MAX_SLICES;

/// Reason why recordings cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeError {
    /// There are none.
    Nothing,
    /// They have different domains.
    Domains {
        /// The difference, in words.
        what: String,
    },
}

impl std::fmt::Display for MergeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MergeError::Nothing => f.write_str("there is nothing to merge"),
            MergeError::Domains { what } => {
                write!(
                    f,
                    "they measure different things, which do not add ({what})"
                )
            }
        }
    }
}

impl std::error::Error for MergeError {}

/// Merges `recordings` in the given order, their threads side by side.
///
/// # Errors
/// [`MergeError`] if there are none, or their domains differ.
pub fn merge(recordings: &[Recording]) -> Result<Recording, MergeError> {
    let mut merger = Merger::new(Threads::apart());
    for rec in recordings {
        merger.add(rec)?;
    }
    merger.finish()
}

/// Merges recordings one at a time, so that no two of them must be in memory.
pub struct Merger {
    out: Recording,
    domains: Vec<Domain>,
    windows: Vec<Window>,
    grid: Grid,
    threads: Threads,
    code: code::Code,
    sums: sums::Sums,
}

/// The slices of the recordings so far.
#[derive(Default)]
struct Grid {
    /// Start and width of the first recording's; a count of all.
    slices: Slices,
    /// Whether a recording had none, or others.
    broken: bool,
}

impl Merger {
    fn new(threads: Threads) -> Merger {
        Merger {
            out: Recording::default(),
            domains: Vec::new(),
            windows: Vec::new(),
            grid: Grid::default(),
            code: match threads.are_joined() {
                true => code::Code::of_windows(),
                false => code::Code::default(),
            },
            threads,
            sums: sums::Sums::default(),
        }
    }

    /// Merges consecutive windows of one recorder: threads are joined. Windows are added in the order
    /// of their start.
    pub fn windows() -> Merger {
        Merger::new(Threads::joined())
    }

    /// Adds a recording.
    ///
    /// # Errors
    /// [`MergeError::Domains`] if its domain differs from the first one's; nothing is added then.
    pub fn add(&mut self, rec: &Recording) -> Result<(), MergeError> {
        if let Some(first) = self.domains.first() {
            compatible(first, &rec.domain)?;
        }
        let slice = self.place(rec);
        let code = self.code.add(&mut self.out, rec);
        let map = self.threads.add(&mut self.out, rec, &code, slice);
        self.sums.add(&mut self.out, rec, &code, &map);
        self.domains.push(rec.domain.clone());
        self.windows.push(rec.window.clone());
        Ok(())
    }

    /// The first slice of `rec` in the merged recording; `None`: slices are dropped.
    fn place(&mut self, rec: &Recording) -> Option<u32> {
        let (grid, own) = (&mut self.grid, rec.slices);
        if self.domains.is_empty() {
            grid.broken = own.width_ns == 0 || own.count == 0;
            grid.slices = Slices { count: 0, ..own };
        }
        let first = match self.threads.are_joined() {
            true => {
                let after = own.start_ns.saturating_sub(grid.slices.start_ns);
                let half = grid.slices.width_ns / 2;
                (after + half).checked_div(grid.slices.width_ns)
            }
            false => Some(u64::from(grid.slices.count)),
        };
        let first = first.and_then(|f| u32::try_from(f).ok());
        let end = first.and_then(|f| f.checked_add(own.count));
        let fits = own.count > 0 && own.width_ns == grid.slices.width_ns;
        match end.filter(|_| fits && !grid.broken) {
            Some(end) => {
                grid.slices.count = grid.slices.count.max(end);
                first
            }
            None => {
                grid.broken = true;
                None
            }
        }
    }

    /// The merged recording.
    ///
    /// # Errors
    /// [`MergeError::Nothing`] if none was added.
    pub fn finish(self) -> Result<Recording, MergeError> {
        let Merger {
            mut out,
            domains,
            windows,
            grid,
            threads,
            ..
        } = self;
        let Some(first) = windows.first() else {
            return Err(MergeError::Nothing);
        };
        out.window = Window {
            start_ns: windows.iter().map(|w| w.start_ns).min().unwrap_or(0),
            end_ns: windows.iter().map(|w| w.end_ns).max().unwrap_or(0),
            clock: first.clock.clone(),
            start_unix_ns: windows.iter().map(|w| w.start_unix_ns).min().unwrap_or(0),
        };
        out.domain = match threads.are_joined() {
            true => domain::of_windows(&domains, &windows),
            false => domain::merged(&domains),
        };
        let slices = if grid.broken {
            Slices::default()
        } else {
            grid.slices
        };
        threads.finish(&mut out, slices);
        Ok(out)
    }
}

/// Checks whether figures of two domains can be added or subtracted.
///
/// # Errors
/// [`MergeError::Domains`] with the difference.
pub fn compatible(a: &Domain, b: &Domain) -> Result<(), MergeError> {
    let differ = |what: String| Err(MergeError::Domains { what });
    if a.backend != b.backend {
        return differ(format!("backend {} and {}", a.backend, b.backend));
    }
    if a.unit != b.unit {
        return differ(format!("{} and {}", a.unit.name(), b.unit.name()));
    }
    // The weight of a sample is its period.
    if let (Some(a), Some(b)) = (sampling_periods(a), sampling_periods(b))
        && a != b
    {
        return differ(format!(
            "samples {} and samples {}",
            a.join(", "),
            b.join(", ")
        ));
    }
    let exact = |d: &Domain| -> Vec<_> { d.columns.iter().map(|c| (c.state, c.exact)).collect() };
    if exact(a) != exact(b) {
        return differ("a state is counted in one and estimated in another".to_string());
    }
    Ok(())
}

/// The periods of a domain that counts samples, in words; `None`: it counts something else, or does
/// not tell them.
fn sampling_periods(d: &Domain) -> Option<Vec<&str>> {
    let counts = matches!(&d.unit, Unit::Count(name) if name == "samples" || name == UNTOLD);
    let rates: Vec<&str> = d.events.iter().map(|e| e.rate.as_str()).collect();
    (counts && !rates.is_empty()).then_some(rates)
}
