//! Names of real programs: compiled here in every way that leaves more or less of their names, and
//! compared with what binutils says of the same files.

mod dwarf;
mod go;
mod hostile;
mod names;
mod support;
