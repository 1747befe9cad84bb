//! What the limits of sizes are about, in any language.

/// A function with a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name, after that of its type.
    pub name: String,
    /// Line of its name.
    pub line: usize,
    /// Lines from there to its end.
    pub lines: usize,
    /// Parameters that its author chose, without `self`.
    pub parameters: usize,
    /// Parameters of type bool, if other modules can call it.
    pub flags: usize,
}

/// A struct with named fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    /// Its name.
    pub name: String,
    /// Line of its name.
    pub line: usize,
    /// Its fields; 0 if they mirror an interface.
    pub fields: usize,
}
