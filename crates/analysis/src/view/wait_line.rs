//! Lines of trees of waits.

use std::fmt;

/// A line of the tree in words. A wait for something with a name has three parts, so that waits for
/// different things of one kind can be joined.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line {
    pub(super) before: String,
    pub(super) name: Option<String>,
    pub(super) behind: String,
}

impl Line {
    /// A wait, as "worker-1 is blocked (disk: /some/file) in read_page".
    pub(super) fn blocked(subject: &str, reason: &str, name: Option<&str>, place: &str) -> Line {
        let colon = if name.is_some() { ": " } else { "" };
        Line {
            before: format!("{subject}blocked ({reason}{colon}"),
            name: name.map(str::to_owned),
            behind: format!("){place}"),
        }
    }

    /// The line with its subject before it.
    pub(super) fn of(mut self, subject: &str) -> Line {
        self.before = format!("{subject} {}", self.before);
        self
    }
}

impl From<String> for Line {
    fn from(text: String) -> Line {
        Line {
            before: text,
            name: None,
            behind: String::new(),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or_default();
        write!(f, "{}{name}{}", self.before, self.behind)
    }
}
