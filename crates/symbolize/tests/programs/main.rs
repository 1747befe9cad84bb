//! Tests names of real programs, compiled here with more or less symbol information, against
//! binutils' results for the same files.

mod dwarf;
mod go;
mod hostile;
mod languages;
mod names;
mod support;
