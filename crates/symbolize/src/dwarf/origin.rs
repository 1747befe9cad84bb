//! Finds the name and declaration of a function through references between entries.
//!
//! An inlined copy refers to its abstract origin, which may refer to a declaration in a class. The
//! target may be in the same unit, in another one (link-time optimisation), or in a supplementary
//! file (`dwz`).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use gimli::{Attribute, AttributeValue, DebugInfoOffset, Unit, UnitHeader, UnitOffset, UnitRef};
use rustc_hash::FxHashMap;

use super::lines::file_path;
use super::query::{DescribedFunction, Dwarf, Slice};

/// Maximum references followed from one entry; real ones need at most three.
const MAX_HOPS: usize = 16;
/// Maximum cached foreign units.
const MAX_UNITS: usize = 256;

/// The attributes of an entry that name it.
#[derive(Clone, Copy, Default)]
pub(super) struct Names<'d> {
    linkage: Option<AttributeValue<Slice<'d>>>,
    name: Option<AttributeValue<Slice<'d>>>,
    origin: Option<AttributeValue<Slice<'d>>>,
    decl_file: Option<u64>,
    decl_line: u32,
}

impl<'d> Names<'d> {
    /// Keeps an attribute if it is one of these.
    pub(super) fn keep(&mut self, attribute: &Attribute<Slice<'d>>) {
        match attribute.name() {
            gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                self.linkage = Some(attribute.value());
            }
            gimli::DW_AT_name => self.name = Some(attribute.value()),
            gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                self.origin = Some(attribute.value());
            }
            gimli::DW_AT_decl_file => {
                if let AttributeValue::FileIndex(file) = attribute.value() {
                    self.decl_file = Some(file);
                }
            }
            gimli::DW_AT_decl_line => {
                let line = attribute.udata_value().unwrap_or(0);
                self.decl_line = u32::try_from(line).unwrap_or(0);
            }
            _ => {}
        }
    }
}

/// Data collected from an entry and its references.
#[derive(Default)]
struct Collected {
    described: DescribedFunction,
    /// The name without linkage.
    plain_name: Option<Vec<u8>>,
}

/// The file of a unit (`true`: supplementary), and its index there.
type UnitKey = (bool, usize);

/// The units of a file and of its supplementary file, found by offset, with a cache of described
/// functions.
pub(super) struct Units<'a, 'd> {
    main: &'a Dwarf<'d>,
    main_headers: Vec<UnitHeader<Slice<'d>>>,
    sup_headers: Vec<UnitHeader<Slice<'d>>>,
    parsed: RefCell<FxHashMap<UnitKey, Option<Rc<Unit<Slice<'d>>>>>>,
    /// Functions by offset of the *origin* in the main file: many copies share one.
    known: RefCell<FxHashMap<usize, Rc<DescribedFunction>>>,
    /// Paths by unit offset and file index.
    files: RefCell<FxHashMap<(bool, usize, u64), Arc<str>>>,
}

impl<'a, 'd> Units<'a, 'd> {
    pub(super) fn new(main: &'a Dwarf<'d>) -> Self {
        Units {
            main,
            main_headers: headers(main),
            sup_headers: main.sup().map(headers).unwrap_or_default(),
            parsed: RefCell::default(),
            known: RefCell::default(),
            files: RefCell::default(),
        }
    }

    /// Describes the entry at `offset` of `unit` with the attributes `names`.
    pub(super) fn describe(
        &self,
        unit: UnitRef<'_, Slice<'d>>,
        offset: UnitOffset,
        names: &Names<'d>,
    ) -> Rc<DescribedFunction> {
        let key = match names.origin {
            _ if names.linkage.is_some() || names.name.is_some() => {
                offset.to_debug_info_offset(&unit.header).map(|o| o.0)
            }
            Some(AttributeValue::UnitRef(origin)) => {
                origin.to_debug_info_offset(&unit.header).map(|o| o.0)
            }
            Some(AttributeValue::DebugInfoRef(origin)) => Some(origin.0),
            _ => None,
        };
        if let Some(known) = key.and_then(|k| self.known.borrow().get(&k).cloned()) {
            return known;
        }
        let mut found = Collected::default();
        self.follow(unit, *names, &mut found);
        let mut described = found.described;
        if !described.is_linkage {
            described.name = found.plain_name.unwrap_or_default();
        }
        let described = Rc::new(described);
        if let Some(key) = key {
            self.known.borrow_mut().insert(key, described.clone());
        }
        described
    }

    /// Collects from an entry and the entries it refers to, until a linkage name is found.
    fn follow(&self, unit: UnitRef<'_, Slice<'d>>, names: Names<'d>, into: &mut Collected) {
        let Some(mut origin) = self.collect(unit, false, names, into) else {
            return;
        };
        // The first reference may stay in `unit`; later ones stay in the unit that they led to.
        let mut here: Option<(bool, Rc<Unit<Slice<'d>>>)> = None;
        for _ in 0..MAX_HOPS {
            let target = match (origin, &here) {
                (AttributeValue::UnitRef(offset), None) => {
                    let Ok(names) = read_names(unit, offset) else {
                        return;
                    };
                    match self.collect(unit, false, names, into) {
                        Some(next) => {
                            origin = next;
                            continue;
                        }
                        None => return,
                    }
                }
                (AttributeValue::UnitRef(offset), Some((sup, unit))) => {
                    Some((*sup, unit.clone(), offset))
                }
                (AttributeValue::DebugInfoRef(offset), _) => {
                    let sup = here.as_ref().is_some_and(|h| h.0);
                    self.find(sup, offset)
                }
                (AttributeValue::DebugInfoRefSup(offset), _) => self.find(true, offset),
                _ => None,
            };
            let Some((sup, target, offset)) = target else {
                return;
            };
            let dwarf = match (sup, self.main.sup()) {
                (true, Some(sup)) => sup,
                (true, None) => return,
                (false, _) => self.main,
            };
            let at = UnitRef::new(dwarf, &target);
            let Ok(names) = read_names(at, offset) else {
                return;
            };
            match self.collect(at, sup, names, into) {
                Some(next) => origin = next,
                None => return,
            }
            here = Some((sup, target));
        }
    }

    /// Copies the known parts of `names`; returns the reference to follow if a part is missing.
    fn collect(
        &self,
        unit: UnitRef<'_, Slice<'d>>,
        sup: bool,
        names: Names<'d>,
        into: &mut Collected,
    ) -> Option<AttributeValue<Slice<'d>>> {
        let described = &mut into.described;
        if described.line == 0 && names.decl_line != 0 {
            described.line = names.decl_line;
            if let Some(file) = names.decl_file {
                described.file = self.file(unit, sup, file);
            }
        }
        let text = |value| {
            let name: Slice<'d> = unit.attr_string(value).ok()?;
            (!name.is_empty()).then(|| name.slice().to_vec())
        };
        if into.plain_name.is_none() {
            into.plain_name = names.name.and_then(text);
        }
        if let Some(linkage) = names.linkage.and_then(text) {
            described.name = linkage;
            described.is_linkage = true;
            return None;
        }
        names.origin
    }

    fn file(&self, unit: UnitRef<'_, Slice<'d>>, sup: bool, index: u64) -> Arc<str> {
        let offset = unit.header.debug_info_offset().map_or(0, |o| o.0);
        self.files
            .borrow_mut()
            .entry((sup, offset, index))
            .or_insert_with(|| file_path(unit, index))
            .clone()
    }

    /// Finds the unit with the entry at `offset`, and the entry's offset in it.
    fn find(
        &self,
        sup: bool,
        offset: DebugInfoOffset,
    ) -> Option<(bool, Rc<Unit<Slice<'d>>>, UnitOffset)> {
        let (dwarf, headers) = if sup {
            (self.main.sup()?, &self.sup_headers)
        } else {
            (self.main, &self.main_headers)
        };
        let next =
            headers.partition_point(|h| h.debug_info_offset().is_some_and(|o| o.0 <= offset.0));
        let index = next.checked_sub(1)?;
        let header = headers[index];
        let inner = offset.to_unit_offset(&header)?;
        let mut parsed = self.parsed.borrow_mut();
        if parsed.len() >= MAX_UNITS && !parsed.contains_key(&(sup, index)) {
            parsed.clear();
        }
        let unit = parsed
            .entry((sup, index))
            .or_insert_with(|| dwarf.unit(header).ok().map(Rc::new))
            .clone()?;
        Some((sup, unit, inner))
    }
}

fn headers<'d>(dwarf: &Dwarf<'d>) -> Vec<UnitHeader<Slice<'d>>> {
    let mut headers = Vec::new();
    let mut units = dwarf.units();
    // An error ends the list: later units cannot be found.
    while let Ok(Some(header)) = units.next() {
        headers.push(header);
    }
    headers
}

fn read_names<'d>(unit: UnitRef<'_, Slice<'d>>, offset: UnitOffset) -> gimli::Result<Names<'d>> {
    let mut names = Names::default();
    let mut entries = unit.entries_raw(Some(offset))?;
    if let Some(abbreviation) = entries.read_abbreviation()? {
        for spec in abbreviation.attributes() {
            names.keep(&entries.read_attribute(*spec)?);
        }
    }
    Ok(names)
}
