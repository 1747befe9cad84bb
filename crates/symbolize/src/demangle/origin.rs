//! The compiler of a module.

/// The compiler of a module, as far as its names do not tell it themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Any language with a prefix of its own for mangled names.
    #[default]
    Native,
    /// Nim: its names look like those of C.
    Nim,
}
