//! A question about addresses, and its answers.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use gimli::{EndianSlice, RunTimeEndian};

pub(crate) type Slice<'d> = EndianSlice<'d, RunTimeEndian>;

pub(crate) type Dwarf<'d> = gimli::Dwarf<Slice<'d>>;

/// A function as DWARF describes it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DescribedFunction {
    /// Linkage name, else plain name; empty if it has neither.
    pub name: Vec<u8>,
    /// Whether `name` is the name in the symbol table.
    pub is_linkage: bool,
    /// File of its declaration; empty: unknown.
    pub file: Arc<str>,
    /// Line of its declaration; 0: unknown.
    pub line: u32,
}

/// A function at an address.
#[derive(Clone, Debug)]
pub(crate) struct FunctionAt {
    /// The function.
    pub function: Rc<DescribedFunction>,
    /// First address of its code.
    pub entry: u64,
    /// File of the code at this address; empty: unknown.
    pub file: Arc<str>,
    /// Line of the code at this address; 0: unknown.
    pub line: u32,
}

/// DWARF's answer for one address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// Functions, innermost (inlined) first; empty if only a line or nothing is known.
    pub functions: Vec<FunctionAt>,
    /// File and line of the code itself, if known.
    pub line: Option<(Arc<str>, u32)>,
}

/// The question to the debug information of one file.
#[derive(Clone, Copy)]
pub(crate) struct Query<'a> {
    /// Addresses in the file, ascending.
    pub wanted: &'a [u64],
    /// Tells whether an address is code: entries of discarded code have other addresses.
    pub executable: &'a dyn Fn(u64) -> bool,
    /// When the walk ends; the answers found before it stand.
    pub deadline: Instant,
}
