//! Selection of stacks, and of the frames within them.

use std::sync::Arc;

use regex::Regex;
use rustc_hash::FxHashMap;
use wallscope_model::scale::NOT_SAMPLED;
use wallscope_model::{Frame, FrameId, ModuleId, Recording, Stack, StackEnd, StackId};

use super::selection::Selection;
use wallscope_model::name;

/// The patterns that a call matches, one bit for each in the order of [`Selection::patterns`].
type Met = u8;

const FUNCTION: Met = 1;
const MODULE: Met = 2;
const FOCUS: Met = 4;
const IGNORE: Met = 8;
const HIDE: Met = 16;
const SHOW_FROM: Met = 32;

/// One function at one address; an address with inlined functions has several calls.
#[derive(Clone, Copy)]
struct Call {
    frame: FrameId,
    /// Which of the frame's lines.
    line: u32,
    met: Met,
    /// Equal for calls of one function.
    function: u32,
}

/// Stacks after the selection, each computed once and on demand. Every `rec` argument must be the recording
/// given to [`Stacks::new`].
pub(super) struct Stacks<'s> {
    selection: &'s Selection,
    calls: Vec<Call>,
    /// Where each frame's calls end in `calls`.
    ends: Vec<u32>,
    /// Frames that show a part of an old one; their numbers follow those of the recording's.
    frames: Vec<Frame>,
    /// Numbers of `frames` by old frame and the lines that are left of it.
    parts: FxHashMap<(FrameId, Vec<u32>), FrameId>,
    places: FxHashMap<Stack, StackId>,
    /// The new stack of each old one; `None`: not computed yet, `Some(None)`: dropped.
    became: Vec<Option<Option<StackId>>>,
    /// The patterns that match any call or mark.
    ever: Met,
}

impl<'s> Stacks<'s> {
    pub(super) fn new(selection: &'s Selection, rec: &Recording) -> Stacks<'s> {
        let mut calls = Vec::with_capacity(rec.frames.len());
        let mut ends = Vec::with_capacity(rec.frames.len());
        let mut functions: FxHashMap<(Arc<str>, Option<ModuleId>), u32> = FxHashMap::default();
        for (i, frame) in rec.frames.iter().enumerate() {
            let module = frame
                .module
                .map_or("", |m| &*rec.modules[m.0 as usize].path);
            let mut put = |line: u32, name: Arc<str>, file: &str| {
                let met = met(selection, &name, file, module);
                let next = functions.len() as u32;
                calls.push(Call {
                    frame: FrameId(i as u32),
                    line,
                    met,
                    function: *functions.entry((name, frame.module)).or_insert(next),
                });
            };
            if frame.lines.is_empty() {
                put(0, Arc::from(name::address(rec, frame)), "");
            }
            for (line, l) in (0u32..).zip(&frame.lines) {
                let function = &rec.functions[l.function.0 as usize];
                put(line, function.name.clone(), &function.file);
            }
            ends.push(calls.len() as u32);
        }
        let mut marks: Vec<String> = (rec.stacks.iter())
            .filter(|s| s.frames.is_empty() || !s.end.is_whole())
            .map(|s| name::no_frames(s.end))
            .collect();
        marks.sort_unstable();
        marks.dedup();
        marks.push(NOT_SAMPLED.to_string());
        let marks = marks.iter().map(|mark| met(selection, mark, "", ""));
        let ever = calls
            .iter()
            .map(|c| c.met)
            .chain(marks)
            .fold(0, |ever, met| ever | met);
        Stacks {
            selection,
            calls,
            ends,
            frames: Vec::new(),
            parts: FxHashMap::default(),
            places: FxHashMap::default(),
            became: vec![None; rec.stacks.len()],
            ever,
        }
    }

    /// Patterns that match no frame of the recording.
    pub(super) fn unmet(&self) -> Vec<&'static str> {
        let patterns = self.selection.patterns().into_iter().enumerate();
        patterns
            .filter(|(i, (_, p))| p.is_some() && self.ever & (1 << i) == 0)
            .map(|(_, (name, _))| name)
            .collect()
    }

    /// Whether a stack is kept; `met`: the patterns that its frames match.
    fn keeps(&self, met: Met) -> bool {
        let s = self.selection;
        let needs = |p: &Option<Regex>, bit: Met| p.is_none() || met & bit != 0;
        met & IGNORE == 0
            && needs(&s.focus, FOCUS)
            && needs(&s.function, FUNCTION)
            && needs(&s.module, MODULE)
            && needs(&s.show_from, SHOW_FROM)
    }

    /// Whether a stack of one made-up frame is kept.
    pub(super) fn keeps_frame_called(&self, name: &str) -> bool {
        let met = met(self.selection, name, "", "");
        met & HIDE == 0 && self.keeps(met)
    }

    /// `stack` after the selection; `None` if it is not selected.
    pub(super) fn changed(&mut self, rec: &Recording, stack: StackId) -> Option<StackId> {
        let i = stack.0 as usize;
        if let Some(known) = self.became[i] {
            return known;
        }
        let became = self.change(rec, i);
        self.became[i] = Some(became);
        became
    }

    fn change(&mut self, rec: &Recording, old: usize) -> Option<StackId> {
        let stack = &rec.stacks[old];
        let Stack { frames, end } = stack;
        let end = *end;
        if frames.is_empty() {
            return self
                .keeps_frame_called(&name::no_frames(end))
                .then(|| self.place(stack.clone()));
        }
        let mut calls: Vec<Call> = frames.iter().flat_map(|f| self.of(*f)).copied().collect();
        let mut all = calls.iter().fold(0, |met, c| met | c.met);
        if !end.is_whole() {
            // The mark at the root can be focused on or ignored like a frame.
            let mark = met(self.selection, &name::truncated(end), "", "");
            all |= mark & (FOCUS | IGNORE | FUNCTION);
        }
        if !self.keeps(all) {
            return None;
        }
        let mut new_end = end;
        if self.selection.show_from.is_some() {
            let last = calls.iter().rposition(|c| c.met & SHOW_FROM != 0)?;
            if last + 1 < calls.len() {
                // The new root was asked for, so nothing is missing above it.
                new_end = StackEnd::Root;
            }
            calls.truncate(last + 1);
        }
        calls.retain(|c| c.met & HIDE == 0);
        if calls.is_empty() {
            return None;
        }
        if self.selection.collapse_recursion {
            calls.dedup_by_key(|c| c.function);
        }
        let mut frames = Vec::with_capacity(calls.len());
        for group in calls.chunk_by(|a, b| a.frame == b.frame && a.line < b.line) {
            let lines: Vec<u32> = group.iter().map(|c| c.line).collect();
            frames.push(self.part(rec, group[0].frame, lines));
        }
        let stack = Stack {
            frames,
            end: new_end,
        };
        Some(self.place(stack))
    }

    /// `stack` unchanged, whatever is selected.
    pub(super) fn kept(&mut self, rec: &Recording, stack: StackId) -> StackId {
        self.place(rec.stacks[stack.0 as usize].clone())
    }

    fn of(&self, frame: FrameId) -> &[Call] {
        let i = frame.0 as usize;
        let from = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.calls[from as usize..self.ends[i] as usize]
    }

    /// The frame that shows only `lines` of `frame`.
    fn part(&mut self, rec: &Recording, frame: FrameId, lines: Vec<u32>) -> FrameId {
        if lines.len() == self.of(frame).len() {
            return frame;
        }
        let key = (frame, lines);
        if let Some(known) = self.parts.get(&key) {
            return *known;
        }
        let old = &rec.frames[frame.0 as usize];
        let new = Frame {
            lines: key.1.iter().map(|l| old.lines[*l as usize]).collect(),
            ..*old
        };
        let id = FrameId((rec.frames.len() + self.frames.len()) as u32);
        self.frames.push(new);
        self.parts.insert(key, id);
        id
    }

    fn place(&mut self, stack: Stack) -> StackId {
        let next = StackId(self.places.len() as u32);
        *self.places.entry(stack).or_insert(next)
    }

    /// Gives the recording the stacks that are left.
    pub(super) fn put_into(self, rec: &mut Recording) {
        let mut stacks: Vec<(Stack, StackId)> = self.places.into_iter().collect();
        stacks.sort_unstable_by_key(|(_, id)| *id);
        rec.stacks = stacks.into_iter().map(|(stack, _)| stack).collect();
        rec.frames.extend(self.frames);
    }
}

/// The patterns that a call matches.
fn met(selection: &Selection, name: &str, file: &str, module: &str) -> Met {
    let any = |r: &Regex| r.is_match(name) || r.is_match(file) || r.is_match(module);
    let patterns = selection.patterns().into_iter().enumerate();
    patterns.fold(0, |bits, (i, (_, pattern))| {
        let bit = 1 << i;
        let is = pattern.as_ref().is_some_and(|r| match bit {
            FUNCTION => r.is_match(name),
            MODULE => r.is_match(module),
            _ => any(r),
        });
        if is { bits | bit } else { bits }
    })
}
