//! The text of a report while it is written.

use wallscope_model::Unit;
use wallscope_model::units;

use super::layout::{Ink, cells, clean, wrap};
use super::style::Style;

/// The text so far, and its layout.
pub(super) struct Page<'a> {
    pub(super) style: &'a Style,
    pub(super) unit: &'a Unit,
    pub(super) out: String,
}

impl Page<'_> {
    /// A value in the recording's unit.
    pub(super) fn value(&self, v: u64) -> String {
        units::value(self.unit, v)
    }

    pub(super) fn line(&mut self, text: &str) {
        self.out.push_str(text.trim_end());
        self.out.push('\n');
    }

    pub(super) fn faint(&mut self, text: &str, indent: usize) {
        for line in wrap(&clean(text), self.style.width, indent) {
            let line = self.style.ink(Ink::Faint, &line);
            self.line(&line);
        }
    }

    pub(super) fn heading(&mut self, title: &str, rest: &str) {
        self.line("");
        let room = self
            .style
            .width
            .map_or(usize::MAX, |w| w.saturating_sub(cells(title) + 2));
        let (near, below) = if cells(rest) <= room {
            (rest, "")
        } else {
            ("", rest)
        };
        let title = self.style.ink(Ink::Strong, title);
        let near = self.style.ink(Ink::Faint, near);
        self.line(&format!("{title}  {near}"));
        if !below.is_empty() {
            self.faint(&format!("  {below}"), 2);
        }
    }

    pub(super) fn width(&self) -> usize {
        self.style.width.unwrap_or(100)
    }
}
