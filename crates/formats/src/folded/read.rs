//! Folded stacks → recording.
//!
//! wallscope's own, and those of `stackcollapse-*.pl`, `inferno`, `py-spy record --format raw`,
//! `offcputime -f` and austin. What a number counts is nowhere written in such a file: it stands
//! for itself, unless the file is austin's (microseconds) or the user says (`--value nanoseconds`).
//! Suffixes `_[k]`, `_[i]`, `_[j]`, unresolved `module+0x1f3a` and `[0x7f…]`, and a root
//! `[truncated:CAUSE]` are understood; austin's `P…;T…` are process and thread.
//!
//! Files are usually sorted, so neighbours share most of their frames: a line is read from where it
//! differs from the one before.

use rustc_hash::FxHashMap;
use wallscope_model::{
    ContextId, Frame, FrameId, FrameKind, Limit, Line, ModuleKind, StackEnd, State, Unit,
};

use super::super::import::{About, Import, Kind, number};
use super::super::source::{Source, lines, pieces};
use super::super::{Options, Read, ReadError, UNTOLD};

/// How much of the file is held at once.
const PIECE: usize = 4 << 20;

/// Whether the first lines are stacks with a number at their end.
pub(in super::super) fn detect(head: &[u8]) -> bool {
    if head.starts_with(b"# austin:") {
        return true;
    }
    // Of a full head the last line may be cut; a mark of the byte order was taken off it.
    let whole = if head.len() < super::super::source::HEAD - 3 {
        head.len()
    } else {
        lines(head)
    };
    let text = |stack: &[u8]| stack.iter().all(|c| *c >= b' ' || *c == b'\t');
    if whole == 0 {
        // A deep recursion may be longer than what is looked at, and stand first.
        return head.contains(&b';') && text(head);
    }
    let mut seen = 0;
    for line in head[..whole].split(|c| *c == b'\n').take(100) {
        let line = line.trim_ascii_end();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let Some((stack, _)) = split(line) else {
            return false;
        };
        // Names may be in any encoding, or none.
        if !text(stack) {
            return false;
        }
        seen += 1;
    }
    seen > 0
}

/// A line's stack and its number; some tools write a fraction, which is rounded.
fn split(line: &[u8]) -> Option<(&[u8], u64)> {
    let at = memchr::memrchr(b' ', line)?;
    let (stack, text) = (&line[..at], &line[at + 1..]);
    let value = number(text).or_else(|| {
        let v: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        (text.first()?.is_ascii_digit() && v < 1e18).then_some(v.round() as u64)
    })?;
    (!stack.trim_ascii().is_empty()).then_some((stack, value))
}

/// One frame of a line.
#[derive(Clone, Copy)]
struct Token {
    /// Where it ends in the line, with its `;`.
    end: usize,
    frame: Word,
}

/// What a frame's text stands for.
#[derive(Clone, Copy)]
enum Word {
    /// A frame.
    Frame(FrameId),
    /// A function inlined into the frame before it.
    Inlined(Line),
    /// The stack's root is missing.
    Cut(StackEnd),
    /// No frame at all (`[no stack]`).
    Nothing,
    /// A process.
    Process(u32),
    /// austin: a thread.
    Thread(u32),
    /// py-spy: a thread by its place in the list of names.
    Named(u32),
}

struct Reader {
    to: Import,
    words: FxHashMap<Box<[u8]>, Word>,
    /// The line before, and its frames.
    last: Vec<u8>,
    tokens: Vec<Token>,
    frames: Vec<FrameId>,
    context: Option<ContextId>,
    /// Threads of py-spy: id and name.
    threads: Vec<(u32, String)>,
    austin: Option<&'static str>,
    /// Whether the numbers are of samples.
    samples: bool,
    skipped: u64,
}

/// Reads folded stacks.
pub(in super::super) fn read(
    source: &mut Source,
    options: &mut Options,
) -> Result<Read, ReadError> {
    let austin = source.head().starts_with(b"# austin:");
    let mut reader = Reader {
        to: Import::new(source.bounds().memory),
        words: FxHashMap::default(),
        last: Vec::new(),
        tokens: Vec::new(),
        frames: Vec::new(),
        context: None,
        threads: Vec::new(),
        austin: austin.then_some("wall"),
        samples: matches!(options.value.as_deref(), None | Some(UNTOLD | "samples")),
        skipped: 0,
    };
    pieces(source, PIECE, lines, |piece| {
        let mut from = 0;
        for end in memchr::memchr_iter(b'\n', piece) {
            reader.line(&piece[from..end])?;
            from = end + 1;
        }
        reader.line(&piece[from..])
    })?;
    let mut warnings = Vec::new();
    if source.cut() {
        warnings.push("its compressed data ends in the middle: what came before is used".into());
    }
    if reader.skipped > 0 {
        warnings.push(format!(
            "{} lines are no stacks with a number, and were left out",
            reader.skipped
        ));
    }
    if reader.to.is_empty() {
        return Err(ReadError::NoValues);
    }
    Ok(Read::named(
        reader
            .to
            .finish(about(reader.austin, options.value.as_deref())),
        warnings,
    ))
}

fn about(austin: Option<&str>, asked: Option<&str>) -> About {
    let unit = match (asked, austin) {
        (Some(name), _) => Unit::from_name(name),
        (None, Some("memory")) => Unit::Count("memory".to_string()),
        (None, Some(_)) => Unit::Nanoseconds,
        (None, None) => Unit::Count(UNTOLD.to_string()),
    };
    let unknown = asked.is_none() && austin.is_none();
    let mut limits = vec![Limit {
        what: "whether stacks are whole, and which state a thread was in, is not in such a file"
            .to_string(),
        remedy: String::new(),
    }];
    if unknown {
        limits.push(Limit {
            what: "what the numbers count is not in the file".to_string(),
            remedy: "say it: --value nanoseconds, --value samples".to_string(),
        });
    }
    About {
        format: match austin {
            Some(mode) => format!("austin's ({mode} mode)"),
            None => "folded stacks".to_string(),
        },
        values: "sums of the file's lines".to_string(),
        unit,
        limits,
        ..About::default()
    }
}

impl Reader {
    fn line(&mut self, line: &[u8]) -> Result<(), ReadError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        if line.starts_with(b"#") {
            if self.austin.is_some() && line.starts_with(b"# mode:") {
                self.austin = Some(match line[7..].trim_ascii() {
                    b"cpu" => "cpu",
                    b"memory" => "memory",
                    b"full" => "full",
                    _ => "wall",
                });
                return Ok(());
            }
            // A frame may begin so; a comment does not end in a number.
            if split(line).is_none() || self.austin.is_some() {
                return Ok(());
            }
        }
        let (stack, value, idle) = match (self.austin, split(line)) {
            (Some("full"), _) => match full(line) {
                Some(parts) => parts,
                None => {
                    self.skipped += 1;
                    return Ok(());
                }
            },
            (_, Some((stack, value))) => (stack, value, false),
            (_, None) => {
                self.skipped += 1;
                return Ok(());
            }
        };
        self.parse(stack)?;
        self.add(value, idle)
    }

    /// Reads the frames of `stack` into `tokens`, keeping those it shares with the line before.
    fn parse(&mut self, stack: &[u8]) -> Result<(), ReadError> {
        let most = stack.len().min(self.last.len());
        let mut same = most;
        // Eight bytes at a time, then the rest.
        for (i, (a, b)) in stack.chunks(32).zip(self.last.chunks(32)).enumerate() {
            if a != b {
                same = i * 32 + a.iter().zip(b).take_while(|(x, y)| x == y).count();
                break;
            }
        }
        let same = same.min(most);
        let keep = self.tokens.partition_point(|t| t.end <= same);
        self.tokens.truncate(keep);
        let from = self.tokens.last().map_or(0, |t| t.end);
        self.last.truncate(from);
        self.last.extend_from_slice(&stack[from..]);
        let mut at = from;
        while at <= stack.len() {
            let rest = &stack[at..];
            let len = memchr::memchr(b';', rest).unwrap_or(rest.len());
            let frame = self.word(&rest[..len], at == 0)?;
            at += len + 1;
            self.tokens.push(Token { end: at, frame });
        }
        // The last token ended with the line and not with `;`: it is shared with no longer line.
        if let Some(t) = self.tokens.last_mut() {
            t.end = usize::MAX;
        }
        Ok(())
    }

    fn word(&mut self, text: &[u8], root: bool) -> Result<Word, ReadError> {
        if let Some(word) = self.words.get(text) {
            return Ok(*word);
        }
        let word = self.new_word(text, root)?;
        if self.words.len() < 4 << 20 {
            self.words.insert(text.into(), word);
        }
        Ok(word)
    }

    fn new_word(&mut self, text: &[u8], root: bool) -> Result<Word, ReadError> {
        let text = String::from_utf8_lossy(text);
        let text = text.trim();
        if self.austin.is_some() {
            return self.austin_word(text);
        }
        if let Some((id, name)) = py_spy(text, "thread (", ')') {
            self.threads
                .push((id, name.trim_start_matches(':').trim().to_string()));
            return Ok(Word::Named(self.threads.len() as u32 - 1));
        }
        if let Some((pid, _)) = py_spy(text, "process ", ':').filter(|_| root) {
            return Ok(Word::Process(pid));
        }
        let whole = ["[no stack]", "[truncated:", "[0x"];
        if root && text.starts_with('[') && whole.iter().any(|w| text.starts_with(w)) {
            if text == "[no stack]" {
                return Ok(Word::Nothing);
            }
            let cause = text
                .strip_prefix("[truncated:")
                .and_then(|t| t.strip_suffix(']'));
            if let Some(end) = cause.and_then(StackEnd::from_name) {
                return Ok(Word::Cut(end));
            }
        }
        let (name, kind, inlined) = match text
            .len()
            .checked_sub(4)
            .map(|at| text.split_at_checked(at))
        {
            Some(Some((name, "_[k]"))) => (name, FrameKind::Kernel, false),
            Some(Some((name, "_[j]"))) => (name, FrameKind::Jit, false),
            Some(Some((name, "_[i]"))) => (name, FrameKind::Native, true),
            _ => (text, FrameKind::Native, false),
        };
        if inlined && !root {
            let function = self.to.function(name, "", "", 0)?;
            return Ok(Word::Inlined(Line { function, line: 0 }));
        }
        if let Some((module, address)) = unresolved(name) {
            let module = match (module, kind) {
                ("", _) => None,
                (path, FrameKind::Kernel) => {
                    Some(self.to.module(ModuleKind::Kernel, path, "", 0)?)
                }
                (path, _) => Some(self.to.module(Import::module_kind(path), path, "", 0)?),
            };
            return Ok(Word::Frame(self.to.frame(Frame {
                kind,
                module,
                address,
                lines: Vec::new(),
            })?));
        }
        let (name, file, line) = located(name);
        let kind = match kind {
            FrameKind::Native if file.ends_with(".py") || file.starts_with("<frozen ") => {
                FrameKind::Python
            }
            FrameKind::Native if file.ends_with(".php") => FrameKind::Php,
            FrameKind::Native if file.ends_with(".rb") => FrameKind::Ruby,
            kind => kind,
        };
        Ok(Word::Frame(self.to.named(kind, None, name, file, line)?))
    }

    /// `P123`, `T0:456` or `T456`, `file:function:line`.
    fn austin_word(&mut self, text: &str) -> Result<Word, ReadError> {
        if let Some(pid) = text.strip_prefix('P').and_then(|n| n.parse().ok()) {
            return Ok(Word::Process(pid));
        }
        if let Some(tid) = text.strip_prefix('T') {
            // An interpreter's number may stand before the thread's.
            let tid = tid.rsplit_once(':').map_or(tid, |(_, t)| t);
            let hex = |t: &str| u64::from_str_radix(t.trim_start_matches("0x"), 16).ok();
            if let Some(tid) = tid.parse().ok().or_else(|| hex(tid)) {
                return Ok(Word::Thread((tid & 0xffff_ffff) as u32));
            }
        }
        let mut parts = text.rsplitn(3, ':');
        let (line, name, file) = (parts.next(), parts.next(), parts.next());
        let (name, file, line) = match (file, name, line.and_then(|l| l.parse().ok())) {
            (Some(file), Some(name), Some(line)) => (name, file, line),
            _ => (text, "", 0),
        };
        Ok(Word::Frame(self.to.named(
            FrameKind::Python,
            None,
            name,
            file,
            line,
        )?))
    }

    fn add(&mut self, value: u64, idle: bool) -> Result<(), ReadError> {
        self.frames.clear();
        let mut end = StackEnd::Root;
        let (mut pid, mut tid, mut named) = (0, 0, None);
        // Functions inlined into the frame before them make one frame with it.
        let mut i = 0;
        while i < self.tokens.len() {
            match self.tokens[i].frame {
                Word::Frame(frame) => {
                    let inlined = self.tokens[i + 1..]
                        .iter()
                        .map_while(|t| match t.frame {
                            Word::Inlined(line) => Some(line),
                            _ => None,
                        })
                        .collect::<Vec<_>>();
                    i += inlined.len();
                    let frame = if inlined.is_empty() {
                        frame
                    } else {
                        self.to.inlined(frame, &inlined)?
                    };
                    self.frames.push(frame);
                }
                Word::Inlined(_) | Word::Nothing => {}
                Word::Cut(cause) => end = cause,
                Word::Process(p) => pid = p,
                Word::Thread(t) => tid = t,
                Word::Named(n) => named = Some(n),
            }
            i += 1;
        }
        self.frames.reverse();
        let stack = self.to.stack(&self.frames, end)?;
        let plain = pid == 0 && tid == 0 && named.is_none();
        let context = match (self.context, named) {
            (Some(id), _) if plain => id,
            (_, Some(n)) => {
                let (tid, name) = self.threads[n as usize].clone();
                self.to.context(pid, tid, &name, "")?
            }
            _ => self.to.context(pid, tid, "", "")?,
        };
        if plain {
            self.context = Some(context);
        }
        // Microseconds there; elsewhere as it stands. How many samples a sum of time was is lost.
        let (count, value) = match self.austin {
            Some("memory") => (1, value),
            Some(_) => (1, value.saturating_mul(1000)),
            None if self.samples => (value, value),
            None => (1, value),
        };
        let kind = match self.austin {
            Some("cpu") => Kind::of(State::OnCpu),
            _ => Kind {
                idle,
                ..Kind::of(State::Unknown)
            },
        };
        self.to
            .sample(context, stack, kind, None, (count, value), None)
    }
}

/// austin's full mode: `stack time,idle,memory`.
fn full(line: &[u8]) -> Option<(&[u8], u64, bool)> {
    let at = memchr::memrchr(b' ', line)?;
    let mut numbers = line[at + 1..].split(|c| *c == b',');
    let time = number(numbers.next()?)?;
    let idle = number(numbers.next()?)? != 0;
    Some((&line[..at], time, idle))
}

/// `module+0x1f3a` and `[0x7f…]`: an address without a name.
fn unresolved(name: &str) -> Option<(&str, u64)> {
    let hex = |t: &str| {
        let digits = !t.is_empty() && t.bytes().all(|c| c.is_ascii_hexdigit());
        digits.then(|| u64::from_str_radix(t, 16).ok()).flatten()
    };
    if let Some(address) = name.strip_prefix("[0x").and_then(|t| t.strip_suffix(']')) {
        return Some(("", hex(address)?));
    }
    let (module, address) = name.rsplit_once("+0x")?;
    let named = !module.is_empty() && !module.contains(['(', ' ', '<']);
    named.then_some((module, hex(address)?))
}

/// py-spy's `thread (12): name` and `process 12:"command"`; ids may be hexadecimal.
fn py_spy<'t>(text: &'t str, prefix: &str, end: char) -> Option<(u32, &'t str)> {
    let (id, rest) = text.strip_prefix(prefix)?.split_once(end)?;
    let id = match id.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => id.parse().ok()?,
    };
    Some(((id & 0xffff_ffff) as u32, rest))
}

/// py-spy's `function (file.py:12)`.
fn located(name: &str) -> (&str, &str, u32) {
    let inner = || {
        let (function, rest) = name.strip_suffix(')')?.rsplit_once(" (")?;
        let (file, line) = rest.rsplit_once(':')?;
        Some((function, file, line.parse().ok()?))
    };
    inner().unwrap_or((name, "", 0))
}
