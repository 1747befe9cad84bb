//! Names, files, lines and inlined calls of Go code, from the pclntab that Go programs carry for
//! their own tracebacks. Stripped programs have it too, and it is small compared with debug
//! information.

use std::sync::Arc;

use wallscope_binfmt::elf::Elf;
use wallscope_binfmt::gopclntab::{GoFile, Pclntab};
use wallscope_model::Line;

use crate::demangle::printable;
use crate::table::Table;

/// A file to be searched for the table.
struct Parts<'a, 'd>(&'a Elf<'d>);

impl<'d> GoFile<'d> for Parts<'_, 'd> {
    fn section(&self, name: &str) -> Option<(u64, &'d [u8])> {
        self.0.section_as_stored(name)
    }

    fn is_code(&self, address: u64) -> bool {
        self.0.is_executable(address)
    }
}

/// Whether `elf` is a Go program with its table.
pub(crate) fn is_go(elf: &Elf<'_>) -> bool {
    Pclntab::find(&Parts(elf)).is_some()
}

/// Returns the lines at each of `addresses` (virtual), empty if Go does not know them; `None` if
/// `elf` is no Go program.
pub(crate) fn resolve(
    elf: &Elf<'_>,
    addresses: &[u64],
    table: &mut Table<'_>,
) -> Option<Vec<Vec<Line>>> {
    let go = Pclntab::find(&Parts(elf))?;
    let mut lines = |address: u64| -> Vec<Line> {
        // The table has only names of linked C code: other sources have more.
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
