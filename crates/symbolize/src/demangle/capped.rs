//! Text of bounded length.

use std::fmt;

/// Maximum bytes of a demangled name.
pub(super) const MAX_OUTPUT: usize = 8 << 10;

/// Text that stops growing at [`MAX_OUTPUT`].
#[derive(Default)]
pub(super) struct Capped {
    text: String,
    /// The text reached [`MAX_OUTPUT`].
    pub(super) full: bool,
}

impl Capped {
    pub(super) fn finish(mut self) -> String {
        if self.full {
            self.text.push('…');
        }
        self.text
    }
}

impl fmt::Write for Capped {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.full {
            return Err(fmt::Error);
        }
        let room = MAX_OUTPUT - self.text.len();
        if s.len() <= room {
            self.text.push_str(s);
            return Ok(());
        }
        let end = (0..=room).rev().find(|i| s.is_char_boundary(*i));
        self.text.push_str(&s[..end.unwrap_or(0)]);
        self.full = true;
        Err(fmt::Error)
    }
}
