//! Finds the functions and inlined functions around addresses: streams a unit's entries once.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use gimli::{Abbreviation, AttributeValue, EntriesRaw, UnitOffset, UnitRef};

use super::origin::{Names, Units};
use super::query::{DescribedFunction, Query, Slice};

/// Entries between two checks of the deadline.
const ENTRIES_PER_CHECK: u32 = 1 << 14;
/// Ranges of one entry between two checks of the deadline.
const RANGES_PER_CHECK: u32 = 1 << 12;
/// Maximum depth of inlining at one address.
const MAX_INLINED: usize = 256;

/// A function, or an inlined copy of one, around an address.
#[derive(Debug)]
pub(super) struct Scope {
    /// The function.
    pub function: Rc<DescribedFunction>,
    /// Its first address.
    pub entry: u64,
    /// Index of the calling file of an inlined copy, if known.
    pub call_file: Option<u64>,
    /// Calling line of an inlined copy; 0: unknown. `None` for a function itself.
    pub call_line: Option<u32>,
}

/// Attributes of an entry for a function or an inlined function.
struct Entry<'d> {
    low: Option<u64>,
    high: Option<u64>,
    size: Option<u64>,
    ranges: Option<AttributeValue<Slice<'d>>>,
    call_file: Option<u64>,
    call_line: u32,
    names: Names<'d>,
}

/// An entry that covers wanted addresses, while its children are read.
struct Open {
    depth: isize,
    /// Ascending positions in `covered`.
    inside: Vec<usize>,
}

/// Returns the scopes around `wanted[i]` for each `i` in `covered`, outermost first, and whether
/// the unit could be read to its end.
pub(super) fn find<'d>(
    unit: UnitRef<'_, Slice<'d>>,
    query: Query<'_>,
    covered: &[usize],
    units: &Units<'_, 'd>,
) -> (Vec<Vec<Rc<Scope>>>, bool) {
    let mut finder = Finder {
        unit,
        query,
        covered,
        units,
        chains: vec![Vec::new(); covered.len()],
        open: Vec::new(),
        late: Cell::new(false),
    };
    let whole = finder.run().is_ok();
    (finder.chains, whole)
}

struct Finder<'a, 'u, 'd> {
    unit: UnitRef<'u, Slice<'d>>,
    query: Query<'a>,
    covered: &'a [usize],
    units: &'a Units<'a, 'd>,
    chains: Vec<Vec<Rc<Scope>>>,
    open: Vec<Open>,
    /// The deadline has passed.
    late: Cell<bool>,
}

impl<'d> Finder<'_, '_, 'd> {
    fn run(&mut self) -> gimli::Result<()> {
        let unit = self.unit;
        let mut entries = unit.entries_raw(None)?;
        let mut steps = 0u32;
        while !entries.is_empty() {
            steps = steps.wrapping_add(1);
            if self.late.get() || steps.is_multiple_of(ENTRIES_PER_CHECK) && self.is_late() {
                return Ok(());
            }
            let offset = entries.next_offset();
            let depth = entries.next_depth();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            while self.open.last().is_some_and(|o| o.depth >= depth) {
                self.open.pop();
            }
            match abbreviation.tag() {
                gimli::DW_TAG_subprogram => {
                    let entry = self.read(&mut entries, abbreviation)?;
                    self.function(offset, depth, &entry)?;
                }
                gimli::DW_TAG_inlined_subroutine if !self.open.is_empty() => {
                    let entry = self.read(&mut entries, abbreviation)?;
                    self.inlined(offset, depth, &entry)?;
                }
                _ => entries.skip_attributes(abbreviation.attributes())?,
            }
        }
        Ok(())
    }

    fn is_late(&self) -> bool {
        self.late.set(Instant::now() >= self.query.deadline);
        self.late.get()
    }

    fn read(
        &self,
        entries: &mut EntriesRaw<'_, Slice<'d>>,
        abbreviation: &Abbreviation,
    ) -> gimli::Result<Entry<'d>> {
        let mut entry = Entry {
            low: None,
            high: None,
            size: None,
            ranges: None,
            call_file: None,
            call_line: 0,
            names: Names::default(),
        };
        for spec in abbreviation.attributes() {
            let attribute = entries.read_attribute(*spec)?;
            match attribute.name() {
                gimli::DW_AT_low_pc => entry.low = self.unit.attr_address(attribute.value())?,
                gimli::DW_AT_high_pc => match attribute.udata_value() {
                    Some(size) => entry.size = Some(size),
                    None => entry.high = self.unit.attr_address(attribute.value())?,
                },
                gimli::DW_AT_ranges => entry.ranges = Some(attribute.value()),
                gimli::DW_AT_call_file => {
                    if let AttributeValue::FileIndex(file) = attribute.value() {
                        // Before version 5, file 0 means none.
                        entry.call_file =
                            (file > 0 || self.unit.header.version() >= 5).then_some(file);
                    }
                }
                gimli::DW_AT_call_line => {
                    let line = attribute.udata_value().unwrap_or(0);
                    entry.call_line = u32::try_from(line).unwrap_or(0);
                }
                _ => entry.names.keep(&attribute),
            }
        }
        Ok(entry)
    }

    /// Starts a chain for each covered address that no function has claimed.
    fn function(
        &mut self,
        offset: UnitOffset,
        depth: isize,
        entry: &Entry<'d>,
    ) -> gimli::Result<()> {
        let (mut inside, first) = self.positions(entry)?;
        inside.retain(|i| self.chains[*i].is_empty());
        if inside.is_empty() {
            return Ok(());
        }
        let scope = Rc::new(Scope {
            function: self.units.describe(self.unit, offset, &entry.names),
            entry: first,
            call_file: None,
            call_line: None,
        });
        for i in &inside {
            self.chains[*i].push(scope.clone());
        }
        self.open.push(Open { depth, inside });
        Ok(())
    }

    /// Continues the chains of the addresses that an inlined copy covers within its parent scope.
    fn inlined(
        &mut self,
        offset: UnitOffset,
        depth: isize,
        entry: &Entry<'d>,
    ) -> gimli::Result<()> {
        let (mut inside, first) = self.positions(entry)?;
        let Some(parent) = self.open.last() else {
            return Ok(());
        };
        inside.retain(|i| {
            parent.inside.binary_search(i).is_ok() && self.chains[*i].len() < MAX_INLINED
        });
        if inside.is_empty() {
            return Ok(());
        }
        let scope = Rc::new(Scope {
            function: self.units.describe(self.unit, offset, &entry.names),
            entry: first,
            call_file: entry.call_file,
            call_line: Some(entry.call_line),
        });
        for i in &inside {
            self.chains[*i].push(scope.clone());
        }
        self.open.push(Open { depth, inside });
        Ok(())
    }

    /// Returns the positions in `covered` within the entry's ranges, ascending, and the entry's
    /// first address.
    fn positions(&self, entry: &Entry<'d>) -> gimli::Result<(Vec<usize>, u64)> {
        let mut inside = Vec::new();
        let mut first = entry.low;
        let mut add = |begin: u64, end: u64| {
            if begin >= end || !(self.query.executable)(begin) {
                return;
            }
            let from = self
                .covered
                .partition_point(|i| self.query.wanted[*i] < begin);
            for i in from..self.covered.len() {
                if self.query.wanted[self.covered[i]] >= end {
                    break;
                }
                inside.push(i);
            }
        };
        if let Some(mut ranges) = match entry.ranges {
            Some(value) => self.unit.attr_ranges(value)?,
            None => None,
        } {
            let mut steps = 0u32;
            while let Some(range) = ranges.next()? {
                first.get_or_insert(range.begin);
                add(range.begin, range.end);
                steps += 1;
                if steps.is_multiple_of(RANGES_PER_CHECK) && self.is_late() {
                    break;
                }
            }
        } else if let Some(low) = entry.low {
            let high = entry
                .high
                .or_else(|| low.checked_add(entry.size.unwrap_or(0)));
            add(low, high.unwrap_or(0));
        }
        inside.sort_unstable();
        inside.dedup();
        Ok((inside, first.unwrap_or(0)))
    }
}
