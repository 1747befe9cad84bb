//! `perf.data` → recording.
//!
//! Known are the layouts of perf 3.12 to 7, with and without a header (written to a pipe), compressed
//! or not, of either byte order: every field of a sample, of a group's counters and of the records
//! around them up to Linux 6.19. A file with further fields in its samples is refused, as their places
//! are unknown; records of further kinds are left out and counted. Processor trace (`AUXTRACE`) is not
//! decoded.
//!
//! The file has the mappings of every process, so its addresses become file and offset, as in a
//! recording of wallscope's own; naming them is left to the caller ([`super::Read::unnamed`]). Stacks
//! that were copied whole (`--call-graph dwarf`) are unwound by the caller's [`super::Unwind`]; without
//! one, they are their innermost frame and marked as truncated.
//!
//! Clocks, switches and the waits of `perf record --off-cpu` are time; every other event counts itself
//! ([`super::perf_event`]). perf's own context-switch records serve as switches if no `sched_switch` was
//! recorded. If samples hold counters (`-e '{a,b}:S'`), the value of a sample is the increase of its
//! counter since the sample before, as in `perf report`.

mod attribute;
mod events;
mod file;
mod maps;
mod order;
mod reader;
mod records;
mod sample;
mod sorted;
mod stacks;

use super::source::Source;
use super::{Options, Read, ReadError};
use file::{File, Identity, feature};
use reader::Reader;
use sorted::Sorted;

/// Whether it is a `perf.data` file.
pub(super) fn detect(head: &[u8]) -> bool {
    head.starts_with(b"PERFILE2") || head.starts_with(b"2ELIFREP")
}

/// Reads a `perf.data` file.
pub(super) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
    let bounds = source.bounds();
    let bytes = source.bytes()?;
    let file = File::parse(&bytes, bounds)?;
    let identity = Identity::new(&file.events)?;
    let sorted = Sorted::new(&file, &identity);
    let mut reader = Reader::new(&file, &identity, bounds.memory, options)?;
    reader.read(&sorted)?;
    let mut read = reader.finish()?;
    read.cut = source.cut() || file.cut || sorted.cut;
    let mut first = Vec::new();
    if read.cut {
        first.push(
            "the file ends in the middle or is damaged: the part before is used; names of events \
             and build ids come last and may be missing"
                .to_string(),
        );
    }
    if !file.feature(feature::DIR_FORMAT).is_empty() {
        first.push(
            "it is one file of a directory (perf record --threads): the other files are not read"
                .to_string(),
        );
    }
    read.warnings.splice(0..0, first);
    describe(&mut read, &file);
    Ok(read)
}

/// Adds to the domain the file's facts about the tool and the machine.
fn describe(read: &mut Read, file: &File) {
    let domain = &mut read.recording.domain;
    let tool = if file.is_simpleperf() {
        "simpleperf"
    } else {
        "perf"
    };
    domain.tool = format!("{tool} {}", file.text(feature::VERSION))
        .trim()
        .to_string();
    domain.kernel = file.text(feature::OSRELEASE);
    domain.cpus = file.cpus();
    let command = file.texts(feature::CMDLINE).join(" ");
    if !command.is_empty() {
        domain.notes.push(format!("command: {command}"));
    }
}
