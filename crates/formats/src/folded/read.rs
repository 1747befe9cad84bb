//! Folded stacks → recording.
//!
//! Known are wallscope's own, and those of `stackcollapse-*.pl`, `inferno`, `py-spy record --format
//! raw`, `offcputime -f` and austin: frames with `;` between them, a space or a tab, a number.
//! Suffixes `_[k]`, `_[i]`, `_[j]`, unresolved `module+0x1f3a` and `[0x7f…]`, and a root
//! `[truncated:CAUSE]` are understood; austin's `P…;T…` are process and thread.
//!
//! - Such a file does not contain the unit of its numbers. A number is a count, unless the file is austin's
//!   (microseconds) or the user names the unit (`--value nanoseconds`).
//! - Numbers with decimals are multiplied by the power of ten that makes all of them whole, and the
//!   reader says so.
//! - Two numbers on every line are two profiles, as `difffolded.pl` writes them: `--value base` or
//!   `--value new` chooses one.
//! - Lines of any other form are counted and left out.
//!
//! Files are usually sorted, so neighbouring lines share most of their frames. A line is therefore parsed from the
//! first byte at which it differs from the line before.

use rustc_hash::FxHashMap;
use wallscope_model::{
    ContextId, Frame, FrameId, FrameKind, Limit, Line, ModuleKind, StackEnd, State, Unit,
};

use super::super::import::{About, Amount, Called, Import, SampleTime, Scale, number};
use super::super::source::{Source, lines, pieces};
use super::super::{Options, Read, ReadError, UNTOLD};
use super::form::{Column, Judged, Numbers, split, whole_lines};
use super::names::{located, placed, py_spy, unresolved};

/// Bytes of the file that are held at once.
const PIECE: usize = 4 << 20;

/// One frame of a line.
#[derive(Clone, Copy)]
struct Token {
    /// Its end in the line, after its `;`.
    end: usize,
    frame: Word,
}

/// The meaning of a frame's text.
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
    numbers: Numbers,
    scale: Scale,
    skipped: u64,
    /// Stacks that themselves end in a number, in a file with one number per line.
    double: u64,
}

/// Reads folded stacks.
pub(in super::super) fn read(
    source: &mut Source,
    options: &mut Options,
) -> Result<Read, ReadError> {
    let austin = source.head().starts_with(b"# austin:");
    let judged = if austin {
        Judged::default()
    } else {
        Judged::of(whole_lines(source.head()))
    };
    let mut reader = Reader {
        to: Import::new(source.bounds().memory),
        words: FxHashMap::default(),
        last: Vec::new(),
        tokens: Vec::new(),
        frames: Vec::new(),
        context: None,
        threads: Vec::new(),
        austin: austin.then_some("wall"),
        numbers: Numbers::of(options.value.as_deref(), &judged)?,
        scale: Scale::WHOLE,
        skipped: 0,
        double: 0,
    };
    pieces(source, PIECE, lines, |piece| {
        let mut from = 0;
        for end in memchr::memchr_iter(b'\n', piece) {
            reader.line(&piece[from..end])?;
            from = end + 1;
        }
        reader.line(&piece[from..])
    })?;
    let warnings = reader.warnings(source.cut());
    if reader.to.is_empty() {
        return Err(ReadError::NoValues);
    }
    let about = reader.about(options.value.is_some());
    Ok(Read::named(reader.to.finish(about), warnings))
}

impl Reader {
    fn warnings(&self, cut: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        if cut {
            warnings.push(
                "its compressed data ends in the middle: what came before is used".to_string(),
            );
        }
        if self.skipped > 0 {
            warnings.push(format!(
                "{} lines are no stacks with a number, and were left out",
                self.skipped
            ));
        }
        if self.double > 0 {
            warnings.push(format!(
                "{} lines end in two numbers: the first is taken as part of the name",
                self.double
            ));
        }
        warnings.extend(self.scale.note());
        warnings
    }

    fn about(&self, asked: bool) -> About {
        let unit = match self.austin {
            Some("memory") if !asked => Unit::Count("memory".to_string()),
            Some(_) if !asked => Unit::Nanoseconds,
            _ => self.numbers.unit.clone(),
        };
        let mut limits = vec![Limit {
            what:
                "whether stacks are whole, and which state a thread was in, is not in such a file"
                    .to_string(),
            remedy: String::new(),
        }];
        let untold = matches!(&unit, Unit::Count(name) if name == UNTOLD);
        if untold && self.austin.is_none() {
            limits.push(Limit {
                what: "what the numbers count is not in the file".to_string(),
                remedy: "say it: --value nanoseconds, --value samples".to_string(),
            });
        }
        let values = match self.numbers.column {
            Column::Only => "sums of the file's lines",
            Column::Base => "the first number of each line (base)",
            Column::New => "the second number of each line (new)",
        };
        About {
            format: match self.austin {
                Some(mode) => format!("austin's ({mode} mode)"),
                None => "folded stacks".to_string(),
            },
            values: values.to_string(),
            unit,
            limits,
            notes: self.scale.note().into_iter().collect(),
            ..About::default()
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), ReadError> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.trim_ascii().is_empty() || self.is_comment(line) {
            return Ok(());
        }
        if self.austin == Some("full") {
            return match full(line) {
                Some((stack, time, idle)) => {
                    self.parse(stack)?;
                    self.add(time, idle)
                }
                None => self.skip(),
            };
        }
        let Some((stack, value)) = split(line) else {
            return self.skip();
        };
        let (stack, value) = match (self.numbers.column, split(stack)) {
            (Column::Only, before) => {
                // Own files have names that end in numbers, austin's all end in one.
                self.double += u64::from(before.is_some() && self.austin.is_none());
                (stack, value)
            }
            (Column::New, Some((stack, _))) => (stack, value),
            (Column::Base, Some((stack, base))) => (stack, base),
            (_, None) => return self.skip(),
        };
        let value = match self.austin {
            Some(_) => value.times(1),
            // A unit of time has room for its decimals.
            None if self.numbers.factor > 1 => value.times(self.numbers.factor),
            None => self.scale.units(value, &mut self.to)?,
        };
        if value == 0 && self.numbers.column != Column::Only {
            return Ok(());
        }
        self.parse(stack)?;
        self.add(value, false)
    }

    fn skip(&mut self) -> Result<(), ReadError> {
        self.skipped += 1;
        Ok(())
    }

    /// Whether the line is a comment; austin's name the mode.
    fn is_comment(&mut self, line: &[u8]) -> bool {
        if !line.starts_with(b"#") {
            return false;
        }
        if self.austin.is_some() && line.starts_with(b"# mode:") {
            self.austin = Some(match line[7..].trim_ascii() {
                b"cpu" => "cpu",
                b"memory" => "memory",
                b"full" => "full",
                _ => "wall",
            });
            return true;
        }
        // A frame may begin like a comment, but a comment does not end in a number.
        split(line).is_none() || self.austin.is_some()
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
        if let Some(end) = end_of_stack(text).filter(|_| root) {
            return Ok(end);
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
        if let Some((name, module)) = placed(name) {
            let module = self.to.module(Import::module_kind(module), module, "", 0)?;
            return Ok(Word::Frame(self.to.named(
                kind,
                Called {
                    module: Some(module),
                    name,
                    ..Called::default()
                },
            )?));
        }
        let (name, file, line) = located(name);
        let kind = match kind {
            FrameKind::Native => kind_by_file(file),
            kind => kind,
        };
        Ok(Word::Frame(self.to.named(
            kind,
            Called {
                name,
                file,
                line,
                ..Called::default()
            },
        )?))
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
            Called {
                name,
                file,
                line,
                ..Called::default()
            },
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
        // austin's values are microseconds, others are read as they are. A sum of time does not give
        // the number of its samples.
        let (count, value) = match self.austin {
            Some("memory") => (1, value),
            Some(_) => (1, value.saturating_mul(1000)),
            None if self.numbers.samples => ((value / self.scale.factor()).max(1), value),
            None => (1, value),
        };
        let kind = match self.austin {
            Some("cpu") => SampleTime::of(State::OnCpu),
            _ => SampleTime {
                idle,
                ..SampleTime::of(State::Unknown)
            },
        };
        self.to
            .sample(context, stack, kind, Amount::new((count, value), None))
    }
}

/// The meaning of words at the root that are no frames.
fn end_of_stack(text: &str) -> Option<Word> {
    if text == "[no stack]" {
        return Some(Word::Nothing);
    }
    let cause = text.strip_prefix("[truncated:")?.strip_suffix(']')?;
    StackEnd::from_name(cause).map(Word::Cut)
}

/// austin's full mode: `stack time,idle,memory`.
fn full(line: &[u8]) -> Option<(&[u8], u64, bool)> {
    let at = memchr::memrchr(b' ', line)?;
    let mut numbers = line[at + 1..].split(|c| *c == b',');
    let time = number(numbers.next()?)?;
    let idle = number(numbers.next()?)? != 0;
    Some((&line[..at], time, idle))
}

/// The kind of code that a source file has, by its name.
fn kind_by_file(file: &str) -> FrameKind {
    match file.rsplit_once('.') {
        Some((_, "py")) => FrameKind::Python,
        Some((_, "php")) => FrameKind::Php,
        Some((_, "rb")) => FrameKind::Ruby,
        _ if file.starts_with("<frozen ") => FrameKind::Python,
        _ => FrameKind::Native,
    }
}
