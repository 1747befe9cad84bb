//! Lists the functions that were inlined, and where: the reverse of [`super::resolve`].

use std::rc::Rc;
use std::time::Instant;

use gimli::{UnitOffset, UnitRef};

use super::origin::{Names, Units};
use super::{Described, Sections, Slice};

/// Entries between two checks of the deadline.
const ENTRIES_PER_CHECK: u32 = 1 << 14;

/// A function that is being walked.
struct Open {
    depth: isize,
    function: Rc<Described>,
}

/// Calls `found` with each inlined function and the function that contains the copy, both as DWARF
/// describes them; a pair comes once for each copy. Returns whether all was read before `deadline`.
pub(crate) fn inlined(
    main: &Sections<'_>,
    sup: Option<&Sections<'_>>,
    deadline: Instant,
    found: &mut dyn FnMut(&Described, &Described),
) -> bool {
    let mut dwarf = main.borrow();
    if let Some(sup) = sup {
        dwarf.set_sup(sup.borrow());
    }
    let units = Units::new(&dwarf);
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let Ok(unit) = dwarf.unit(header) else {
            continue;
        };
        // A malformed unit ends early; the other units are still read.
        if let Ok(false) = walk(UnitRef::new(&dwarf, &unit), &units, deadline, found) {
            return false;
        }
    }
    true
}

/// Walks one unit; returns false if the deadline passed.
fn walk<'d>(
    unit: UnitRef<'_, Slice<'d>>,
    units: &Units<'_, 'd>,
    deadline: Instant,
    found: &mut dyn FnMut(&Described, &Described),
) -> gimli::Result<bool> {
    let mut entries = unit.entries_raw(None)?;
    let mut open: Vec<Open> = Vec::new();
    let mut steps = 0u32;
    while !entries.is_empty() {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(ENTRIES_PER_CHECK) && Instant::now() >= deadline {
            return Ok(false);
        }
        let offset: UnitOffset = entries.next_offset();
        let depth = entries.next_depth();
        let Some(abbreviation) = entries.read_abbreviation()? else {
            continue;
        };
        while open.last().is_some_and(|o| o.depth >= depth) {
            open.pop();
        }
        let tag = abbreviation.tag();
        if tag != gimli::DW_TAG_subprogram && tag != gimli::DW_TAG_inlined_subroutine {
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        let mut names = Names::default();
        for spec in abbreviation.attributes() {
            names.note(&entries.read_attribute(*spec)?);
        }
        let function = units.describe(unit, offset, &names);
        if tag == gimli::DW_TAG_inlined_subroutine
            && let Some(around) = open.last()
        {
            found(&function, &around.function);
        }
        open.push(Open { depth, function });
    }
    Ok(true)
}
