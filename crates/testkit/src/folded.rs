//! `export --format folded --with thread,state`: one line a stack, root first.

use crate::Error;

/// What stands in for the stack of time that no sample fell into.
pub const NOT_SAMPLED: &str = "[not sampled]";

/// What kind of frame a suffix tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameSuffix {
    /// User code of its own.
    User,
    /// `_[k]`
    Kernel,
    /// `_[i]`
    Inlined,
    /// `_[j]`
    Jit,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Name without its suffix.
    pub name: String,
    /// What the suffix says.
    pub kind: FrameSuffix,
}

/// One stack and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The thread's name.
    pub thread: String,
    /// Why the stack did not reach its root; `None`: it did.
    pub truncated: Option<String>,
    /// Frames, root first.
    pub frames: Vec<Frame>,
    /// State, by the contract's name.
    pub state: String,
    /// Time, ns.
    pub ns: u64,
}

impl Line {
    /// Whether the function `name` is on the stack.
    pub fn contains(&self, name: &str) -> bool {
        self.frames.iter().any(|frame| frame.name == name)
    }

    /// Whether the time has no stack at all.
    pub fn is_unsampled(&self) -> bool {
        self.frames.len() == 1 && self.frames[0].name == NOT_SAMPLED
    }

    /// Names of its user frames that have an address of their own, root first.
    pub fn user_names(&self) -> Vec<&str> {
        let own = |frame: &&Frame| matches!(frame.kind, FrameSuffix::User | FrameSuffix::Jit);
        let frames = self.frames.iter().filter(own);
        frames.map(|frame| frame.name.as_str()).collect()
    }
}

fn parse_frame(text: &str) -> Frame {
    let suffixes = [
        ("_[k]", FrameSuffix::Kernel),
        ("_[i]", FrameSuffix::Inlined),
        ("_[j]", FrameSuffix::Jit),
    ];
    for (suffix, kind) in suffixes {
        if let Some(name) = text.strip_suffix(suffix) {
            return Frame {
                name: name.to_string(),
                kind,
            };
        }
    }
    Frame {
        name: text.to_string(),
        kind: FrameSuffix::User,
    }
}

/// Parses folded text made with `--with thread,state`.
///
/// # Errors
/// Names the first line that does not keep to the grammar.
pub fn parse(text: &str) -> Result<Vec<Line>, Error> {
    let bad = |line: &str, why: &str| Error::Output(format!("folded line {line:?}: {why}"));
    let mut lines = Vec::new();
    for line in text.lines() {
        let (stack, value) = line
            .rsplit_once(' ')
            .ok_or_else(|| bad(line, "no value after a space"))?;
        let ns = value
            .parse()
            .map_err(|_| bad(line, "the value is not an integer"))?;
        let mut parts: Vec<&str> = stack.split(';').collect();
        if parts.len() < 3 {
            return Err(bad(line, "no thread, stack and state"));
        }
        let state = parts.pop().unwrap_or_default();
        if !["on_cpu", "runnable", "blocked", "unknown"].contains(&state) {
            return Err(bad(line, "its last frame is not a state"));
        }
        let mut frames = parts[1..].iter().copied().peekable();
        let truncated = frames
            .next_if(|frame| frame.starts_with("[truncated:"))
            .map(|frame| {
                frame["[truncated:".len()..]
                    .trim_end_matches(']')
                    .to_string()
            });
        lines.push(Line {
            thread: parts[0].to_string(),
            truncated,
            frames: frames.map(parse_frame).collect(),
            state: state.to_string(),
            ns,
        });
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_apart_into_its_parts() {
        let text = "pool 1;_start;main;std::vec<a b>_[i];work;do_sys_[k];blocked 120\n\
                    pool 1;[truncated:window_end];work;on_cpu 7\n\
                    pool 1;[not sampled];runnable 3\n";
        let lines = parse(text).unwrap();
        assert_eq!(lines[0].thread, "pool 1");
        assert_eq!(lines[0].user_names(), ["_start", "main", "work"]);
        assert_eq!(lines[0].frames[4].kind, FrameSuffix::Kernel);
        assert_eq!((lines[0].state.as_str(), lines[0].ns), ("blocked", 120));
        assert_eq!(lines[0].truncated, None);
        assert_eq!(lines[1].truncated.as_deref(), Some("window_end"));
        assert!(lines[1].contains("work") && !lines[1].contains("main"));
        assert!(lines[2].is_unsampled());
    }

    #[test]
    fn what_is_no_folded_line_is_refused() {
        assert!(parse("pool;main;blocked").is_err());
        assert!(parse("pool;main;blocked x").is_err());
        assert!(parse("pool;main;asleep 12").is_err());
        assert!(parse("main 12").is_err());
    }
}
