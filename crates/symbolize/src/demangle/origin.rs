//! The compiler of a module.

/// The compiler of a module, for compilers that a prefix of mangled names does not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Any language with a prefix of its own for mangled names.
    #[default]
    Native,
    /// Nim: its names look like those of C.
    Nim,
}
