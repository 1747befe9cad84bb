//! Names, inlined functions and lines from DWARF.
//!
//! The wanted addresses are known before anything is read. So there is no index of the debug
//! information, which for a large program would take hundreds of MB. Units are walked one after the
//! other. If a unit covers a wanted address, its entries and its line program are streamed once
//! ([`scopes`], [`lines`]). Only answers are kept, so memory does not depend on the size of the
//! debug information. Nesting uses an explicit stack, not recursion, so hostile nesting cannot
//! exhaust the thread's stack.
//!
//! References to other units and to the supplementary file by `dwz` are followed ([`origin`]).
//! Every step is bounded by the size of the input, with one exception: entries can share range
//! lists, abbreviations and line programs. A deadline bounds these; the answers found before it
//! stand.
//!
//! Not read: split debug information (`.dwo`, `.dwp`); such units give lines but no functions, and
//! are counted. Macros, variables, and scopes other than functions are not needed.

mod inlined;
mod lines;
mod origin;
mod query;
mod scopes;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use gimli::{DwarfSections, EndianSlice, RunTimeEndian, Section, SectionId, UnitRef, UnitType};
use wallscope_binfmt::elf::Elf;

pub(crate) use inlined::inlined;
use lines::LineHits;
use origin::Units;
pub(crate) use query::{Answer, DescribedFunction, Dwarf, FunctionAt, Query, Slice};
use scopes::Scope;

/// Information that was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Omissions {
    /// Addresses in units with their entries in a split file.
    pub split: u64,
    /// The deadline passed.
    pub timed_out: bool,
    /// Some information is malformed.
    pub malformed: bool,
}

/// The debug sections of a file, decompressed if necessary.
pub(crate) struct Sections<'d> {
    sections: DwarfSections<Cow<'d, [u8]>>,
    endian: RunTimeEndian,
}

impl<'d> Sections<'d> {
    /// Loads the sections of `elf`; `None` if it has no readable debug information.
    pub(crate) fn load(elf: &Elf<'d>) -> Option<Sections<'d>> {
        let load = |id: SectionId| -> Result<Cow<'d, [u8]>, ()> {
            // Load only the sections used: others may be large and compressed.
            let used = matches!(
                id,
                SectionId::DebugAbbrev
                    | SectionId::DebugAddr
                    | SectionId::DebugInfo
                    | SectionId::DebugLine
                    | SectionId::DebugLineStr
                    | SectionId::DebugRanges
                    | SectionId::DebugRngLists
                    | SectionId::DebugStr
                    | SectionId::DebugStrOffsets
            );
            if !used {
                return Ok(Cow::Borrowed(&[]));
            }
            let section = elf.section(id.name()).ok().flatten();
            Ok(section.unwrap_or(Cow::Borrowed(&[])))
        };
        let sections = DwarfSections::load(load).ok()?;
        let endian = if elf.is_little_endian() {
            RunTimeEndian::Little
        } else {
            RunTimeEndian::Big
        };
        let found = Sections { sections, endian };
        (!found.borrow().debug_info.reader().is_empty()).then_some(found)
    }

    fn borrow(&self) -> Dwarf<'_> {
        self.sections
            .borrow(|section| EndianSlice::new(section, self.endian))
    }
}

/// Resolves the addresses of `query`. `sup` is the supplementary file by `dwz`.
pub(crate) fn resolve(
    main: &Sections<'_>,
    sup: Option<&Sections<'_>>,
    query: Query<'_>,
) -> (Vec<Answer>, Omissions) {
    let mut dwarf = main.borrow();
    if let Some(sup) = sup {
        dwarf.set_sup(sup.borrow());
    }
    let mut walk = Walk {
        query,
        answers: vec![Answer::default(); query.wanted.len()],
        open: query.wanted.len(),
        omissions: Omissions::default(),
        units: Units::new(&dwarf),
    };
    walk.run(&dwarf);
    (walk.answers, walk.omissions)
}

struct Walk<'a, 'd> {
    query: Query<'a>,
    answers: Vec<Answer>,
    /// Addresses without a function so far.
    open: usize,
    omissions: Omissions,
    units: Units<'a, 'd>,
}

impl<'a, 'd> Walk<'a, 'd> {
    fn run(&mut self, dwarf: &'a Dwarf<'d>) {
        let mut headers = dwarf.units();
        loop {
            let header = match headers.next() {
                Ok(Some(header)) => header,
                Ok(None) => return,
                Err(_) => {
                    self.omissions.malformed = true;
                    return;
                }
            };
            if self.open == 0 {
                return;
            }
            if self.is_late() {
                self.omissions.timed_out = true;
                return;
            }
            if !matches!(
                header.type_(),
                UnitType::Compilation | UnitType::Skeleton(_)
            ) {
                continue;
            }
            match dwarf.unit(header) {
                Ok(unit) => self.unit(UnitRef::new(dwarf, &unit)),
                Err(_) => self.omissions.malformed = true,
            }
        }
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.query.deadline
    }

    fn unit(&mut self, unit: UnitRef<'_, Slice<'d>>) {
        let mut covered = vec![];
        match self.covered(unit, &mut covered) {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => {
                self.omissions.malformed = true;
                return;
            }
        }
        let lines = lines::find(unit, self.query, &covered);
        let split = unit.dwo_id.is_some();
        let chains = if split {
            Vec::new()
        } else {
            let (chains, whole) = scopes::find(unit, self.query, &covered, &self.units);
            self.omissions.malformed |= !whole;
            chains
        };
        self.omissions.timed_out |= self.is_late();
        for (i, at) in covered.iter().enumerate() {
            let line = lines.get(i);
            if split && line.is_some() {
                self.omissions.split += 1;
            }
            let answer = &mut self.answers[*at];
            if let Some(chain) = chains.get(i).filter(|c| !c.is_empty()) {
                answer.functions = functions_at(unit, chain, line, &lines);
                self.open -= 1;
            } else if answer.line.is_none() {
                answer.line = line;
            }
        }
    }

    /// Collects the indices of wanted addresses in `unit`'s ranges that have no function so far,
    /// ascending. False if there are none.
    fn covered(
        &self,
        unit: UnitRef<'_, Slice<'d>>,
        covered: &mut Vec<usize>,
    ) -> gimli::Result<bool> {
        let mut declared = false;
        let mut add = |begin: u64, end: u64| {
            if begin >= end || !(self.query.executable)(begin) {
                return;
            }
            let from = self.query.wanted.partition_point(|w| *w < begin);
            for i in from..self.query.wanted.len() {
                if self.query.wanted[i] >= end {
                    break;
                }
                if self.answers[i].functions.is_empty() {
                    covered.push(i);
                }
            }
        };
        let mut ranges = unit.unit_ranges()?;
        let mut steps = 0u32;
        while let Some(range) = ranges.next()? {
            declared = true;
            add(range.begin, range.end);
            steps += 1;
            // Repeated ranges would collect the same addresses endlessly.
            if steps.is_multiple_of(4096) && Instant::now() >= self.query.deadline {
                break;
            }
        }
        if !declared && unit.line_program.is_some() {
            // A unit without ranges: its line program and entries tell where its code is.
            covered.extend(
                (0..self.query.wanted.len()).filter(|i| self.answers[*i].functions.is_empty()),
            );
        }
        covered.sort_unstable();
        covered.dedup();
        Ok(!covered.is_empty())
    }
}

/// Combines the functions around an address, given outermost first, with lines. The code's own line
/// belongs to the innermost one, and each inlined function's call site to the function around it.
fn functions_at(
    unit: UnitRef<'_, Slice<'_>>,
    chain: &[Rc<Scope>],
    line: Option<(Arc<str>, u32)>,
    lines: &LineHits,
) -> Vec<FunctionAt> {
    let mut at = line;
    let mut functions = Vec::with_capacity(chain.len());
    for scope in chain.iter().rev() {
        let (file, line) = at.take().unwrap_or_default();
        functions.push(FunctionAt {
            function: scope.function.clone(),
            entry: scope.entry,
            file,
            line,
        });
        at = scope.call_line.map(|line| {
            let file = scope.call_file.map(|f| lines.file(unit, f));
            (file.unwrap_or_default(), line)
        });
    }
    functions
}
