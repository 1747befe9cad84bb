//! Recording → folded stacks, sorted, equal ones summed.

use std::cmp::Ordering;
use std::io::{self, Write};

use rustc_hash::FxHashMap;
use wallscope_model::scale::{NOT_SAMPLED, scale};
use wallscope_model::{
    BlockReason, ContextId, FrameKind, Line, Part, Recording, State, UnknownCause, View,
};

use crate::name;

/// What becomes of a stack's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which time.
    pub view: View,
    /// A frame with the thread's name at the root.
    pub with_thread: bool,
    /// A frame with the state near the leaf.
    pub with_state: bool,
    /// A frame with the reason at the leaf.
    pub with_reason: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            view: View::Wall,
            with_thread: false,
            with_state: false,
            with_reason: false,
        }
    }
}

/// Every name that a reason may have: block reasons, parts, causes of not being seen.
pub fn reasons() -> impl Iterator<Item = &'static str> {
    BlockReason::ALL
        .iter()
        .map(|r| r.name())
        .chain(Part::ALL.iter().map(|p| p.name()))
        .chain(UnknownCause::ALL.iter().map(|c| c.name()))
}

impl Options {
    /// The line's stack, from the frames between.
    pub(in super::super) fn line(
        &self,
        rec: &Recording,
        context: ContextId,
        state: State,
        reason: Option<&str>,
        frames: &str,
    ) -> String {
        let mut line = String::new();
        if self.with_thread {
            let c = &rec.contexts[context.0 as usize];
            if c.name.is_empty() {
                push(&mut line, &format!("[thread {}]", c.tid));
            } else {
                push(&mut line, &c.name);
            }
            line.push(';');
        }
        line.push_str(frames);
        if self.with_state {
            line.push(';');
            line.push_str(state.name());
        }
        if let Some(reason) = reason.filter(|_| self.with_reason) {
            line.push(';');
            line.push_str(reason);
        }
        line
    }
}

/// A name within a line: what would end a frame or the line is replaced.
pub(in super::super) fn push(line: &mut String, name: &str) {
    line.extend(name.chars().map(|c| match c {
        ';' => ':',
        '\n' | '\r' => ' ',
        c => c,
    }));
}

/// Names as numbers: equal texts have one. What would end a frame or the line is replaced.
#[derive(Default)]
struct Words {
    list: Vec<Box<[u8]>>,
    ids: FxHashMap<Box<[u8]>, u32>,
}

impl Words {
    fn id(&mut self, name: &str, suffix: &str) -> u32 {
        let mut text: Vec<u8> = name.bytes().chain(suffix.bytes()).collect();
        for c in &mut text {
            match c {
                b';' => *c = b':',
                b'\n' | b'\r' => *c = b' ',
                _ => {}
            }
        }
        let text = text.into_boxed_slice();
        let next = self.list.len() as u32;
        *self.ids.entry(text).or_insert_with_key(|t| {
            self.list.push(t.clone());
            next
        })
    }
}

/// Every stack as words, root first, one after the other.
struct Lines {
    words: Words,
    all: Vec<u32>,
    /// Where each stack ends in `all`.
    ends: Vec<usize>,
}

impl Lines {
    fn new(rec: &Recording) -> Lines {
        let mut words = Words::default();
        // A frame's functions, outermost first.
        let frames: Vec<Vec<u32>> = (rec.frames.iter())
            .map(|f| {
                let suffix = |inlined: bool| match f.kind {
                    FrameKind::Kernel => "_[k]",
                    FrameKind::Jit => "_[j]",
                    FrameKind::Native if inlined => "_[i]",
                    FrameKind::Native
                    | FrameKind::Python
                    | FrameKind::Java
                    | FrameKind::JavaScript => "",
                };
                if f.lines.is_empty() {
                    return vec![words.id(&name::address(rec, f), suffix(false))];
                }
                let last = f.lines.len() - 1;
                let of = |l: &Line| &rec.functions[l.function.0 as usize].name;
                (f.lines.iter().enumerate().rev())
                    .map(|(i, l)| words.id(of(l), suffix(i < last)))
                    .collect()
            })
            .collect();
        let mut all = Vec::new();
        let mut ends = Vec::with_capacity(rec.stacks.len());
        for s in &rec.stacks {
            if s.frames.is_empty() {
                all.push(words.id(&name::no_frames(s.end), ""));
            } else if !s.end.is_whole() {
                all.push(words.id(&name::truncated(s.end), ""));
            }
            for f in s.frames.iter().rev() {
                all.extend_from_slice(&frames[f.0 as usize]);
            }
            ends.push(all.len());
        }
        Lines { words, all, ends }
    }

    fn stack(&self, stack: u32) -> &[u32] {
        let i = stack as usize;
        let from = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.all[from..self.ends[i]]
    }

    /// For each stack the first one that looks like it.
    fn first_alike(&self) -> Vec<u32> {
        let mut seen: FxHashMap<&[u32], u32> = FxHashMap::default();
        seen.reserve(self.ends.len());
        (0..self.ends.len() as u32)
            .map(|stack| *seen.entry(self.stack(stack)).or_insert(stack))
            .collect()
    }

    /// Numbers words anew, in the order that they have within lines; returns the new numbers.
    fn rank(&mut self) -> Vec<u32> {
        let list = std::mem::take(&mut self.words).list;
        let within = |word: u32| list[word as usize].iter().copied().chain([b';']);
        let mut order: Vec<u32> = (0..list.len() as u32).collect();
        order.sort_unstable_by(|a, b| within(*a).cmp(within(*b)));
        let mut ranks = vec![0; list.len()];
        for (rank, word) in (0u32..).zip(&order) {
            ranks[*word as usize] = rank;
        }
        self.all.iter_mut().for_each(|w| *w = ranks[*w as usize]);
        let mut list: Vec<Option<Box<[u8]>>> = list.into_iter().map(Some).collect();
        self.words.list = (order.iter())
            .filter_map(|word| list[*word as usize].take())
            .collect();
        ranks
    }
}

/// What a line is of: words before and after a stack, [`NONE`] for none, and the stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    thread: u32,
    stack: u32,
    state: u32,
    reason: u32,
}

const NONE: u32 = u32::MAX;

impl Key {
    /// Its words in order.
    fn words<'l>(&self, lines: &'l Lines) -> impl Iterator<Item = u32> + Clone + use<'l> {
        let some = |word: u32| (word != NONE).then_some(word);
        (some(self.thread).into_iter())
            .chain(lines.stack(self.stack).iter().copied())
            .chain(some(self.state))
            .chain(some(self.reason))
    }
}

/// The rest of a line as bytes, from the given words on.
fn bytes<'l>(
    lines: &'l Lines,
    words: impl Iterator<Item = u32> + 'l,
    value: &'l [u8],
) -> impl Iterator<Item = u8> + 'l {
    words
        .enumerate()
        .flat_map(|(i, w)| {
            let between = (i > 0).then_some(b';');
            between
                .into_iter()
                .chain(lines.words.list[w as usize].iter().copied())
        })
        .chain(std::iter::once(b' '))
        .chain(value.iter().copied())
}

/// The order of two whole lines, byte by byte. They are never put together: what they share is
/// passed over word by word, and what differs is decided by the words' ranks, or, where one of them is
/// a line's last and a space follows it, within a few bytes.
fn order(lines: &Lines, (a, av): &(Key, u64), (b, bv): &(Key, u64)) -> Ordering {
    let (left, right) = (lines.stack(a.stack), lines.stack(b.stack));
    let same = match a.thread == b.thread {
        true => left.iter().zip(right).take_while(|(x, y)| x == y).count(),
        false => 0,
    };
    if let (Some(x), Some(y)) = (left.get(same), right.get(same))
        && a.thread == b.thread
        && same + 1 < left.len().min(right.len())
    {
        return x.cmp(y);
    }
    let skipped = match a.thread == b.thread {
        true => same + usize::from(a.thread != NONE),
        false => 0,
    };
    let (mut left, mut right) = (a.words(lines).skip(skipped), b.words(lines).skip(skipped));
    loop {
        let (before_left, before_right) = (left.clone(), right.clone());
        match (left.next(), right.next()) {
            (Some(x), Some(y)) if x == y => {}
            (None, None) => return Ordering::Equal,
            // One line's stack is the other's beginning: its space meets a semicolon.
            (None, _) => return Ordering::Less,
            (_, None) => return Ordering::Greater,
            _ => {
                let (av, bv) = (av.to_string(), bv.to_string());
                return bytes(lines, before_left, av.as_bytes()).cmp(bytes(
                    lines,
                    before_right,
                    bv.as_bytes(),
                ));
            }
        }
    }
}

/// Writes the stacks of `recording`.
///
/// # Errors
/// What `out` returns.
pub fn write(recording: &Recording, options: &Options, mut out: impl Write) -> io::Result<()> {
    let mut lines = Lines::new(recording);
    let scaled = scale(recording);
    let unsampled = recording.stacks.len() as u32;
    let mark = lines.words.id(NOT_SAMPLED, "");
    lines.all.push(mark);
    lines.ends.push(lines.all.len());
    let threads: Vec<u32> = (recording.contexts.iter())
        .map(|c| match (options.with_thread, &*c.name) {
            (false, _) => NONE,
            (true, "") => lines.words.id(&format!("[thread {}]", c.tid), ""),
            (true, name) => lines.words.id(name, ""),
        })
        .collect();
    let alike = lines.first_alike();
    let mut sums: FxHashMap<Key, u64> = FxHashMap::default();
    let mut add = |context: ContextId, stack: u32, state: State, reason: Option<&str>, ns: u64| {
        if !options.view.includes(state) {
            return;
        }
        let words = &mut lines.words;
        let key = Key {
            thread: threads[context.0 as usize],
            stack: alike[stack as usize],
            state: match options.with_state {
                true => words.id(state.name(), ""),
                false => NONE,
            },
            reason: match reason.filter(|_| options.with_reason) {
                Some(reason) => words.id(reason, ""),
                None => NONE,
            },
        };
        *sums.entry(key).or_default() += ns;
    };
    for p in &scaled.pieces {
        let s = &recording.samples[p.sample as usize];
        add(p.context, s.stack.0, s.state, s.reason_name(), p.ns);
    }
    for u in &scaled.unsampled {
        add(u.context, unsampled, u.state, u.reason, u.ns);
    }
    drop(scaled);
    let mut rows: Vec<(Key, u64)> = sums.into_iter().collect();
    let ranks = lines.rank();
    for (key, _) in &mut rows {
        for word in [&mut key.thread, &mut key.state, &mut key.reason] {
            if *word != NONE {
                *word = ranks[*word as usize];
            }
        }
    }
    rows.sort_unstable_by(|a, b| order(&lines, a, b));
    // What differs only in which word is a frame and which a label looks the same.
    rows.dedup_by(|b, a| {
        let same = a.0.words(&lines).eq(b.0.words(&lines));
        if same {
            a.1 += b.1;
        }
        same
    });
    let mut buffer = Vec::with_capacity(1 << 16);
    for (key, ns) in &rows {
        for (i, w) in key.words(&lines).enumerate() {
            if i > 0 {
                buffer.push(b';');
            }
            buffer.extend_from_slice(&lines.words.list[w as usize]);
        }
        writeln!(buffer, " {ns}")?;
        if buffer.len() > 1 << 15 {
            out.write_all(&buffer)?;
            buffer.clear();
        }
    }
    out.write_all(&buffer)?;
    out.flush()
}
