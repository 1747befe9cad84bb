//! The text that eBPF tools print → recording.
//!
//! Known are bpftrace's maps with stacks as keys (`@[kstack, ustack, comm]: 12`) and the stacks of
//! bcc's tools (`offcputime`, `profile`: frames line by line, then `- comm (pid)` and a number).
//! Values of maps that are no single number (`avg`, `stats`, `hist`) are counted and left out. Maps
//! count different things: `--value @NAME` chooses one if several have stacks.
//!
//! The text does not contain the unit of its numbers: they are counts, unless `--value` gives the unit
//! (`offcputime` counts microseconds: `--value microseconds`).

use std::collections::HashSet;

use wallscope_model::{ContextId, Frame, FrameId, FrameKind, Limit, StackEnd, State, Unit};

use super::import::{About, Amount, Called, Import, SampleTime, number};
use super::source::Source;
use super::{Options, Read, ReadError};

/// Lines that tools print in place of a stack, or a part of one, that they could not read.
const MISSED: [&str; 3] = [
    "failed to get syms",
    "[Missed Kernel Stack]",
    "[Missed User Stack]",
];

/// Whether the text is of one of these tools.
pub(super) fn detect(head: &[u8]) -> bool {
    let start = &head[..head.len().min(16 << 10)];
    bpftrace(start) || bcc(start)
}

fn bpftrace(start: &[u8]) -> bool {
    start.split(|c| *c == b'\n').any(|l| {
        l.starts_with(b"@") && (l.ends_with(b"[") || l.ends_with(b"[, ") || l.ends_with(b"[,"))
    })
}

fn bcc(start: &[u8]) -> bool {
    let mut lines = start.split(|c| *c == b'\n').peekable();
    while let Some(line) = lines.next() {
        let thread = line.starts_with(b"    -") && line.ends_with(b")");
        let next = lines.peek().map(|l| l.trim_ascii());
        if thread && next.is_some_and(|l| number(l).is_some()) {
            return true;
        }
    }
    false
}

struct Reader {
    to: Import,
    factor: u64,
    /// Whether the numbers are of samples.
    samples: bool,
    /// Frames of the stack being read, leaf first.
    frames: Vec<FrameId>,
    kernel: Vec<FrameId>,
    state: State,
    /// How the stack being read ends.
    end: StackEnd,
    /// Stacks with a value that is no number.
    valueless: u64,
    /// Stacks that an earlier print of the map had too.
    repeated: u64,
}

/// Reads such a text.
pub(super) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let is_bpftrace = bpftrace(source.head());
    let bytes = source.bytes()?;
    let text = String::from_utf8_lossy(&bytes);
    let map = match is_bpftrace {
        true => choose(&maps(&text), options.value.as_deref())?,
        false => "",
    };
    let (unit, factor) = match options.value.as_deref() {
        Some("microseconds" | "us") => (Unit::Nanoseconds, 1000),
        Some(name) if name.starts_with('@') => (Unit::Count(super::UNTOLD.to_string()), 1),
        Some("milliseconds" | "ms") => (Unit::Nanoseconds, 1_000_000),
        Some(name) => (Unit::from_name(name), 1),
        None => (Unit::Count(super::UNTOLD.to_string()), 1),
    };
    let mut r = Reader {
        to: Import::new(memory),
        factor,
        samples: matches!(options.value.as_deref(), None | Some("samples")),
        frames: Vec::new(),
        kernel: Vec::new(),
        state: State::Unknown,
        end: StackEnd::Root,
        valueless: 0,
        repeated: 0,
    };
    let unended = if is_bpftrace {
        r.bpftrace(&text, map)?
    } else {
        r.bcc(&text)?
    };
    let mut warnings = Vec::new();
    if unended || source.cut() {
        warnings.push("the text ends within a stack: what came before is used".to_string());
    }
    if r.valueless > 0 {
        warnings.push(format!(
            "{} stacks have a value that is no single number, and were left out",
            r.valueless
        ));
    }
    if r.repeated > 0 {
        warnings.push(format!(
            "{} stacks stand in the map more than once, as it was printed more than once: the sums \
             are right only if it was cleared each time (clear(@))",
            r.repeated
        ));
    }
    if r.to.is_empty() {
        return Err(ReadError::NoValues);
    }
    let mut limits = vec![Limit {
        what: "which state a thread was in, and whether stacks are whole, is not in the text"
            .to_string(),
        remedy: String::new(),
    }];
    if options.value.is_none() {
        limits.push(Limit {
            what: "what the numbers count is not in the text".to_string(),
            remedy: "say it: --value microseconds (offcputime), --value samples (profile)"
                .to_string(),
        });
    }
    let name = if is_bpftrace {
        "bpftrace's"
    } else {
        "a bcc tool's"
    };
    let about = About {
        format: format!("{name} text of stacks"),
        values: "the text's sums".to_string(),
        unit,
        limits,
        ..About::default()
    };
    Ok(Read::named(r.to.finish(about), warnings))
}

/// The name of the map with an entry that begins with this line.
fn begins_entry(line: &str) -> Option<&str> {
    let (name, _) = line.split_once('[')?;
    (name.starts_with('@') && !line.contains("]:")).then_some(name)
}

/// The maps that hold stacks with a number.
fn maps(text: &str) -> Vec<&str> {
    let (mut found, mut open) = (Vec::new(), None);
    for line in text.lines() {
        open = begins_entry(line).or(open);
        let Some((_, value)) = line.rsplit_once("]:") else {
            continue;
        };
        if let Some(name) = open.take()
            && number(value.trim().as_bytes()).is_some()
            && !found.contains(&name)
        {
            found.push(name);
        }
    }
    found
}

/// The map that is read.
fn choose<'t>(maps: &[&'t str], asked: Option<&str>) -> Result<&'t str, ReadError> {
    let asked = asked.filter(|name| name.starts_with('@'));
    match (maps, asked) {
        (_, Some(asked)) => {
            let found = maps.iter().find(|m| **m == asked).copied();
            found.ok_or_else(|| ReadError::NoSuchValue {
                asked: asked.to_string(),
                have: maps.join(", "),
            })
        }
        ([], None) => Ok(""),
        ([one], None) => Ok(one),
        (several, None) => Err(ReadError::Ambiguous {
            have: format!("the maps {} have stacks", several.join(", ")),
            choose: format!("choose with --value {}", several[0]),
        }),
    }
}

/// A text without the `b'…'` that bcc's tools print around it under Python 3.
fn without_quotes(text: &str) -> &str {
    let inner = text.strip_prefix("b'").and_then(|t| t.strip_suffix('\''));
    inner.unwrap_or(text)
}

/// A frame's line without the number and the address before the name. libbpf's tools print both,
/// bcc's verbose form and bpftrace's `perf` mode the address.
fn without_place(line: &str) -> &str {
    let numbered = line.strip_prefix('#').and_then(|l| l.split_once(' '));
    let line = match numbered {
        Some((n, rest)) if n.bytes().all(|c| c.is_ascii_digit()) => rest.trim_start(),
        _ => line,
    };
    let is_address = |word: &str| {
        let digits = word.strip_prefix("0x").unwrap_or(word);
        word.len() >= 12 && digits.bytes().all(|c| c.is_ascii_hexdigit())
    };
    match line.split_once(' ') {
        Some((word, rest)) if is_address(word) => rest.trim_start(),
        _ => line,
    }
}

/// The name and the module of `name (module)` or `name [module]`.
fn name_and_module(line: &str) -> (&str, &str) {
    let within = |open: &str, close: char| line.strip_suffix(close)?.rsplit_once(open);
    let (name, module) = within(" (", ')')
        .or_else(|| within(" [", ']'))
        .unwrap_or((line, ""));
    // Its place in the module may follow.
    let place = module
        .rsplit_once("+0x")
        .filter(|(_, at)| at.bytes().all(|c| c.is_ascii_hexdigit()));
    (name, place.map_or(module, |(module, _)| module))
}

impl Reader {
    fn frame(&mut self, line: &str, kernel: bool) -> Result<FrameId, ReadError> {
        let line = without_place(without_quotes(line.trim()));
        if let Some(address) = line.strip_prefix("0x")
            && let Ok(address) = u64::from_str_radix(address, 16)
        {
            return self.to.frame(Frame {
                kind: FrameKind::Native,
                module: None,
                address,
                lines: Vec::new(),
            });
        }
        let (name, module) = name_and_module(line);
        let name = match name.rsplit_once('+') {
            Some((n, offset))
                if !n.is_empty()
                    && !offset.is_empty()
                    && offset
                        .trim_start_matches("0x")
                        .bytes()
                        .all(|c| c.is_ascii_hexdigit()) =>
            {
                n
            }
            _ => name,
        };
        let name = name.strip_suffix("_[k]").unwrap_or(name);
        let kernel = kernel || line.ends_with("_[k]") || module.starts_with("[kernel");
        let kind = if kernel {
            FrameKind::Kernel
        } else {
            FrameKind::Native
        };
        let module = match module {
            "" | "[unknown]" => None,
            path => Some(self.to.module(Import::module_kind(path), path, "", 0)?),
        };
        self.to.named(
            kind,
            Called {
                module,
                name,
                ..Called::default()
            },
        )
    }

    fn add(&mut self, context: ContextId, value: u64) -> Result<(), ReadError> {
        let frames: Vec<FrameId> = self.kernel.drain(..).chain(self.frames.drain(..)).collect();
        let end = std::mem::replace(&mut self.end, StackEnd::Root);
        let stack = self.to.stack(&frames, end)?;
        let kind = SampleTime::of(self.state);
        let value = value.saturating_mul(self.factor);
        let count = if self.samples { value } else { 1 };
        self.to
            .sample(context, stack, kind, Amount::new((count, value), None))
    }

    /// `@name[` frames `,` frames `, comm]: value`; a comma separates kernel and user stacks.
    fn bpftrace(&mut self, text: &str, map: &str) -> Result<bool, ReadError> {
        let mut open = false;
        let mut name = "";
        let mut known: HashSet<(Vec<Vec<&str>>, Vec<&str>)> = HashSet::new();
        // Parts between commas: lists of frames, or words.
        let mut parts: Vec<Vec<&str>> = Vec::new();
        for line in text.lines() {
            if let Some(own) = begins_entry(line) {
                (open, name) = (true, own);
                parts = vec![Vec::new()];
                let commas = line
                    .rsplit_once('[')
                    .map_or(0, |(_, r)| r.matches(',').count());
                (0..commas).for_each(|_| parts.push(Vec::new()));
                continue;
            }
            if !open {
                continue;
            }
            if let Some((end, value)) = line.rsplit_once("]:") {
                open = false;
                let Some(value) = number(value.trim().as_bytes()) else {
                    self.valueless += 1;
                    continue;
                };
                if name != map {
                    continue;
                }
                // The last parts stand on the line that ends it: `, comm, pid`.
                let mut words = end.split(", ").map(str::trim);
                if let Some(first) = words.next().filter(|w| !w.is_empty() && *w != ",")
                    && let Some(part) = parts.last_mut()
                {
                    part.push(first);
                }
                let names: Vec<&str> = words.filter(|w| !w.is_empty()).collect();
                let stacks: Vec<Vec<&str>> = std::mem::take(&mut parts);
                self.to
                    .take(64 + 16 * stacks.iter().map(Vec::len).sum::<usize>())?;
                self.repeated += u64::from(!known.insert((stacks.clone(), names.clone())));
                // If there are two stacks, the first is the kernel's. A single one is recognised by its addresses.
                let two = stacks.len() > 2 || stacks.len() == 2 && !names.is_empty();
                for (i, part) in stacks.iter().enumerate() {
                    let kernel = i == 0 && two;
                    for f in part {
                        let f = self.frame(f, kernel)?;
                        if kernel {
                            self.kernel.push(f);
                        } else {
                            self.frames.push(f);
                        }
                    }
                }
                let tid = names.iter().find_map(|n| n.parse().ok()).unwrap_or(0);
                let comm = names.iter().find(|n| n.parse::<u32>().is_err());
                let comm = comm.copied().unwrap_or("");
                let context = self.to.context(0, tid, comm, "")?;
                self.add(context, value)?;
                continue;
            }
            let line = line.trim_end();
            if line.starts_with(',') {
                parts.push(Vec::new());
            } else if !line.trim().is_empty()
                && let Some(part) = parts.last_mut()
            {
                part.push(line.trim_end_matches(','));
            }
        }
        Ok(open)
    }

    /// Frames leaf first, perhaps `--` between kernel and user, `- comm (pid)`, a number.
    fn bcc(&mut self, text: &str) -> Result<bool, ReadError> {
        let mut thread: Option<(&str, u32)> = None;
        for line in text.lines() {
            let trimmed = line.trim();
            if let Some((comm, pid)) = thread.take() {
                match number(trimmed.as_bytes()) {
                    Some(value) => {
                        // Addresses of the process come after those of the kernel.
                        let context = self.to.context(0, pid, without_quotes(comm), "")?;
                        self.add(context, value)?;
                    }
                    None => self.valueless += 1,
                }
                self.frames.clear();
                self.kernel.clear();
            } else if MISSED.contains(&trimmed) {
                self.end = StackEnd::Lost;
            } else if trimmed.is_empty() || !line.starts_with("    ") {
                self.end = StackEnd::Root;
                self.frames.clear();
                self.kernel.clear();
            } else if trimmed == "--" {
                // The frames before it were the kernel's.
                let frames = std::mem::take(&mut self.frames);
                for f in frames {
                    let f = self.to.as_kernel(f)?;
                    self.kernel.push(f);
                }
            } else if let Some(rest) = trimmed.strip_prefix('-')
                && trimmed.ends_with(')')
            {
                let (comm, pid) = rest.trim().rsplit_once(" (").unwrap_or((rest, ""));
                thread = Some((comm.trim(), pid.trim_end_matches(')').parse().unwrap_or(0)));
            } else {
                let f = self.frame(trimmed, false)?;
                self.frames.push(f);
            }
        }
        Ok(thread.is_some() || !self.frames.is_empty())
    }
}
