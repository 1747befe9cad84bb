//! Style of text for a terminal.

/// Layout of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Cells of a line; `None`: no terminal, as long as it takes.
    pub width: Option<usize>,
    /// Whether to use colour.
    pub colour: bool,
    /// Whether the reader shows more than ASCII in bars.
    pub unicode: bool,
}
