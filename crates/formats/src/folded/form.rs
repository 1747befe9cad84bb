//! The form of a file of folded stacks: its lines, and the meaning of their numbers.

use wallscope_model::Unit;

use super::super::import::Decimal;
use super::super::source::{HEAD, lines};
use super::super::{ReadError, UNTOLD};

/// Maximum lines by which the form of a file is recognised.
const JUDGED_LINES: usize = 1000;

/// Counts of the forms of a file's first lines.
#[derive(Default)]
pub(super) struct Judged {
    /// Lines that are stacks with a number, and those of them with more than one frame.
    stacks: usize,
    deep: usize,
    /// Stacks with a second number before the last.
    double: usize,
    /// Lines of another form, and those that are no text.
    others: usize,
    binary: usize,
}

impl Judged {
    pub(super) fn of(head: &[u8]) -> Judged {
        let mut judged = Judged::default();
        for line in head.split(|c| *c == b'\n').take(JUDGED_LINES) {
            let line = line.trim_ascii_end();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            // Names may be in any encoding, or none.
            judged.binary += usize::from(!is_text(line));
            match split(line) {
                Some((stack, _)) => {
                    judged.stacks += 1;
                    judged.deep += usize::from(stack.contains(&b';'));
                    judged.double += usize::from(split(stack).is_some());
                }
                None => judged.others += 1,
            }
        }
        judged
    }

    /// Whether the file has folded stacks: most lines have the form of one. If some lines have another form, at least
    /// half of the stacks must have several frames with `;` between them.
    fn is_folded(&self) -> bool {
        let all = self.others == 0;
        self.binary == 0
            && self.stacks > 0
            && (all || self.stacks >= self.others && 2 * self.deep >= self.stacks)
    }

    /// Whether each line has two numbers.
    fn is_double(&self) -> bool {
        self.stacks > 0 && self.double == self.stacks
    }
}

fn is_text(line: &[u8]) -> bool {
    line.iter().all(|c| *c >= b' ' || *c == b'\t')
}

/// The whole lines of a file's beginning.
pub(super) fn whole_lines(head: &[u8]) -> &[u8] {
    // The last line of a full head may be truncated. A byte order mark was removed from the head.
    if head.len() < HEAD - 3 {
        head
    } else {
        &head[..lines(head)]
    }
}

/// Whether the first lines are stacks with a number at their end.
pub(crate) fn detect(head: &[u8]) -> bool {
    if head.starts_with(b"# austin:") {
        return true;
    }
    let whole = whole_lines(head);
    if whole.is_empty() {
        // The first line may be a deep recursion that is longer than the head.
        return head.contains(&b';') && is_text(head);
    }
    Judged::of(whole).is_folded()
}

/// A line's stack and its number, which spaces or tabs separate.
pub(super) fn split(line: &[u8]) -> Option<(&[u8], Decimal)> {
    let line = line.trim_ascii_end();
    let at = memchr::memrchr2(b' ', b'\t', line)?;
    let stack = line[..at].trim_ascii_end();
    let value = Decimal::parse(&line[at + 1..])?;
    (!stack.is_empty()).then_some((stack, value))
}

/// The meaning of the numbers.
pub(super) struct Numbers {
    /// Whether the file shows that they are numbers of samples.
    pub samples: bool,
    pub unit: Unit,
    /// Number of units that the number 1 is.
    pub factor: u64,
    pub column: Column,
}

/// The number of a line that is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Only,
    /// The first of two.
    Base,
    /// The second of two.
    New,
}

impl Numbers {
    /// The meaning, by the name that the user gave, if any.
    pub(super) fn of(asked: Option<&str>, judged: &Judged) -> Result<Numbers, ReadError> {
        let column = match asked {
            Some("base") => Column::Base,
            Some("new") => Column::New,
            None if judged.is_double() => {
                return Err(ReadError::Ambiguous {
                    have: "each line has two numbers, as difffolded.pl writes base and new"
                        .to_string(),
                    choose: "choose with --value base or --value new; if the first number is part \
                             of a name, --value counts"
                        .to_string(),
                });
            }
            _ => Column::Only,
        };
        if column != Column::Only && !judged.is_double() {
            return Err(ReadError::NoSuchValue {
                asked: asked.unwrap_or_default().to_string(),
                have: "one number a line".to_string(),
            });
        }
        let (unit, factor) = match asked {
            Some("microseconds" | "us") => (Unit::Nanoseconds, 1_000),
            Some("milliseconds" | "ms") => (Unit::Nanoseconds, 1_000_000),
            Some("seconds" | "s") => (Unit::Nanoseconds, 1_000_000_000),
            Some(name) if column == Column::Only => (Unit::from_name(name), 1),
            _ => (Unit::Count(UNTOLD.to_string()), 1),
        };
        let samples = matches!(&unit, Unit::Count(name) if name == UNTOLD || name == "samples");
        Ok(Numbers {
            samples,
            unit,
            factor,
            column,
        })
    }
}
