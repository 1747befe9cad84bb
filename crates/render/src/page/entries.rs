//! Names and kinds of frames: functions with their module, the kind of their code, and
//! the marks of frames without a known function.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::{FrameKind, Recording, StackEnd};

use wallscope_model::name;

/// Content of a frame of the picture.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Index of the module plus one; 0: none.
    pub(crate) module: u32,
    pub(crate) kind: EntryKind,
    pub(crate) inlined: bool,
    pub(crate) file: Arc<str>,
    pub(crate) line: u32,
}

/// Kind of an entry. `web/js/profile.js` has the same numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EntryKind {
    Native = 0,
    Kernel = 1,
    Jit = 2,
    /// A mark in place of a function: `[not sampled]`.
    Mark = 3,
    /// A function that a runtime names.
    Managed = 4,
}

/// Entries and the way from frames to them.
pub(crate) struct Entries {
    pub(crate) all: Vec<Entry>,
    known: FxHashMap<Entry, u32>,
    /// By frame, its functions outermost first, each with its line.
    of_frame: Vec<Vec<(u32, u32)>>,
}

impl Entries {
    /// The entries of all frames.
    pub(crate) fn of(recording: &Recording) -> Self {
        let mut entries = Entries {
            all: Vec::new(),
            known: Default::default(),
            of_frame: Vec::with_capacity(recording.frames.len()),
        };
        for frame in &recording.frames {
            let kind = match frame.kind {
                FrameKind::Native => EntryKind::Native,
                FrameKind::Kernel => EntryKind::Kernel,
                FrameKind::Jit => EntryKind::Jit,
                FrameKind::Python
                | FrameKind::Php
                | FrameKind::Ruby
                | FrameKind::Java
                | FrameKind::JavaScript => EntryKind::Managed,
            };
            let module = frame.module.map_or(0, |m| m.0 + 1);
            let functions = if frame.lines.is_empty() {
                let name = name::address(recording, frame);
                vec![(entries.id(Entry::named(name, kind, module)), 0)]
            } else {
                let last = frame.lines.len() - 1;
                let outermost_first = frame.lines.iter().enumerate().rev();
                outermost_first
                    .map(|(i, line)| {
                        let f = recording.functions.get(line.function.0 as usize);
                        let entry = Entry {
                            name: f
                                .map(|f| f.name.to_string())
                                .filter(|name| !name.is_empty())
                                .unwrap_or_else(|| name::address(recording, frame)),
                            module,
                            kind,
                            inlined: i < last,
                            file: f.map_or_else(|| "".into(), |f| f.file.clone()),
                            line: f.map_or(0, |f| f.start_line),
                        };
                        (entries.id(entry), line.line)
                    })
                    .collect()
            };
            entries.of_frame.push(functions);
        }
        entries
    }

    fn id(&mut self, entry: Entry) -> u32 {
        if let Some(id) = self.known.get(&entry) {
            return *id;
        }
        let id = self.all.len() as u32;
        self.all.push(entry.clone());
        self.known.insert(entry, id);
        id
    }

    /// The mark of this name.
    pub(crate) fn mark(&mut self, name: String) -> u32 {
        self.id(Entry::named(name, EntryKind::Mark, 0))
    }

    /// The functions of a stack, outermost first, each with its line.
    pub(crate) fn path(&mut self, recording: &Recording, stack: u32, path: &mut Vec<(u32, u32)>) {
        path.clear();
        let Some(stack) = recording.stacks.get(stack as usize) else {
            let mark = self.mark(name::truncated(StackEnd::Lost));
            path.push((mark, 0));
            return;
        };
        if !stack.end.is_whole() {
            path.push((self.mark(name::truncated(stack.end)), 0));
        }
        for frame in stack.frames.iter().rev() {
            if let Some(functions) = self.of_frame.get(frame.0 as usize) {
                path.extend_from_slice(functions);
            }
        }
        if path.is_empty() {
            path.push((self.mark(name::no_frames(stack.end)), 0));
        }
    }
}

impl Entry {
    fn named(name: String, kind: EntryKind, module: u32) -> Self {
        Entry {
            name,
            module,
            kind,
            inlined: false,
            file: "".into(),
            line: 0,
        }
    }
}
