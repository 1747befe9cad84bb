//! Names, files, lines and inlined calls of Go code, from the table that Go programs carry for
//! their own tracebacks: it is there in stripped programs too, and small beside debug information.

use std::sync::Arc;

use wallscope_binfmt::elf::Elf;
use wallscope_binfmt::gopclntab::{GoFile, Pclntab};
use wallscope_model::Line;

use crate::demangle::printable;
use crate::table::Table;

/// A file in which the table is looked for.
struct Parts<'a, 'd>(&'a Elf<'d>);

impl<'d> GoFile<'d> for Parts<'_, 'd> {
    fn section(&self, name: &str) -> Option<(u64, &'d [u8])> {
        self.0.section_as_stored(name)
    }

    fn is_code(&self, address: u64) -> bool {
        self.0.is_executable(address)
    }
}

/// Whether `elf` is a Go program that has its table.
pub(crate) fn is_go(elf: &Elf<'_>) -> bool {
    Pclntab::find(&Parts(elf)).is_some()
}

/// The lines at each of `addresses` (virtual), empty where Go does not know them; `None` where `elf`
/// is no Go program.
pub(crate) fn resolve(
    elf: &Elf<'_>,
    addresses: &[u64],
    table: &mut Table<'_>,
) -> Option<Vec<Vec<Line>>> {
    let go = Pclntab::find(&Parts(elf))?;
    let mut lines = |address: u64| -> Vec<Line> {
        // C code that was linked in is in the list, too, but by name only: other sources know more.
        let Some(function) = go.at(address).filter(|f| f.depths().next().is_some()) else {
            return Vec::new();
        };
        let places = function.places(address).into_iter();
        places
            .filter(|place| !place.name.is_empty())
            .map(|place| {
                let file: Arc<str> = printable(place.file).into();
                Line {
                    function: table.source(place.name, &file, place.start_line),
                    line: place.line,
                }
            })
            .collect()
    };
    Some(addresses.iter().map(|address| lines(*address)).collect())
}
