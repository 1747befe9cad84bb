//! A recording as writers of foreign formats want it: functions numbered, stacks as paths of them,
//! and a row for each piece of time; all of it scaled to the ledger.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::scale::{NOT_SAMPLED, scale};
use wallscope_model::{Context, ContextId, FrameKind, Recording, State, View};

use wallscope_model::name;

/// A function, as it is called everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FunctionInfo {
    pub name: Arc<str>,
    /// The contract's suffix for its kind of code.
    pub suffix: &'static str,
    /// Path of its module, empty where there is none.
    pub module: Arc<str>,
    /// Source file, empty where unknown.
    pub file: Arc<str>,
    /// Line of its declaration, 0 where unknown.
    pub line: u32,
}

/// A frame of a path: its function, and the line in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Step {
    pub function: u32,
    pub line: u32,
}

/// A piece of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'r> {
    /// Frames, root first.
    pub path: &'r [Step],
    /// The same as numbers of functions.
    pub root_first: &'r [u32],
    pub state: State,
    pub reason: Option<&'static str>,
    pub value: u64,
    pub count: u64,
    /// Index into the recording's samples; `None` for time without any.
    pub sample: Option<u32>,
    /// Number of the path: equal ones are equal.
    pub path_id: u32,
}

struct Piece {
    context: u32,
    path: u32,
    state: State,
    reason: Option<&'static str>,
    value: u64,
    count: u64,
    sample: Option<u32>,
}

/// All rows of a view.
pub(super) struct Rows<'r> {
    rec: &'r Recording,
    functions: Vec<FunctionInfo>,
    paths: Vec<Vec<Step>>,
    plain: Vec<Vec<u32>>,
    pieces: Vec<Piece>,
}

/// A thread and its process's name.
pub(super) struct RowThread<'r> {
    pub id: ContextId,
    pub context: &'r Context,
    pub process: Arc<str>,
}

impl RowThread<'_> {
    /// The thread's name where a format has one name only.
    pub(super) fn title(&self) -> String {
        let c = self.context;
        match (&*c.name, c.tid) {
            ("", 0) => "all threads".to_string(),
            ("", tid) => format!("thread {tid}"),
            (name, 0) => name.to_string(),
            (name, tid) => format!("{name} (tid {tid})"),
        }
    }
}

impl<'r> Rows<'r> {
    /// The rows of `view`, by context in order.
    pub(super) fn new(rec: &'r Recording, view: View) -> Rows<'r> {
        let mut functions = Vec::new();
        let mut ids: FxHashMap<FunctionInfo, u32> = FxHashMap::default();
        let mut id = |info: FunctionInfo| {
            let next = functions.len() as u32;
            *ids.entry(info).or_insert_with_key(|i| {
                functions.push(i.clone());
                next
            })
        };
        let none: Arc<str> = Arc::from("");
        let marked = |text: String| FunctionInfo {
            name: Arc::from(text),
            suffix: "",
            module: none.clone(),
            file: none.clone(),
            line: 0,
        };
        // Each frame's functions, outermost first.
        let frames: Vec<Vec<Step>> = rec
            .frames
            .iter()
            .map(|f| {
                let module = f.module.and_then(|m| rec.modules.get(m.0 as usize));
                let module = module.map_or(&none, |m| &m.path);
                let suffix = |inlined: bool| match f.kind {
                    FrameKind::Kernel => "_[k]",
                    FrameKind::Jit => "_[j]",
                    FrameKind::Native if inlined => "_[i]",
                    FrameKind::Native
                    | FrameKind::Python
                    | FrameKind::Php
                    | FrameKind::Ruby
                    | FrameKind::Java
                    | FrameKind::JavaScript => "",
                };
                if f.lines.is_empty() {
                    let function = id(FunctionInfo {
                        suffix: suffix(false),
                        module: module.clone(),
                        ..marked(name::address(rec, f))
                    });
                    return vec![Step { function, line: 0 }];
                }
                let last = f.lines.len() - 1;
                (f.lines.iter().enumerate().rev())
                    .map(|(i, l)| {
                        let own = &rec.functions[l.function.0 as usize];
                        let function = id(FunctionInfo {
                            name: own.name.clone(),
                            suffix: suffix(i < last),
                            module: module.clone(),
                            file: own.file.clone(),
                            line: own.start_line,
                        });
                        Step {
                            function,
                            line: l.line,
                        }
                    })
                    .collect()
            })
            .collect();
        let mut paths: Vec<Vec<Step>> = rec
            .stacks
            .iter()
            .map(|s| {
                let mut path = Vec::with_capacity(s.frames.len() + 1);
                if s.frames.is_empty() {
                    let function = id(marked(name::no_frames(s.end)));
                    path.push(Step { function, line: 0 });
                } else if !s.end.is_whole() {
                    let function = id(marked(name::truncated(s.end)));
                    path.push(Step { function, line: 0 });
                }
                for f in s.frames.iter().rev() {
                    path.extend_from_slice(&frames[f.0 as usize]);
                }
                path
            })
            .collect();
        let scaled = scale(rec);
        let mut pieces = Vec::new();
        let mut last = None;
        for p in &scaled.pieces {
            let s = &rec.samples[p.sample as usize];
            if view.includes(s.state) && p.ns > 0 {
                let first = last != Some(p.sample);
                last = Some(p.sample);
                pieces.push(Piece {
                    context: p.context.0,
                    path: s.stack.0,
                    state: s.state,
                    reason: s.reason_name(),
                    value: p.ns,
                    count: if first { s.count } else { 0 },
                    sample: Some(p.sample),
                });
            }
        }
        let rest = paths.len() as u32;
        if !scaled.unsampled.is_empty() {
            let function = id(marked(NOT_SAMPLED.to_string()));
            paths.push(vec![Step { function, line: 0 }]);
        }
        for u in scaled
            .unsampled
            .iter()
            .filter(|u| view.includes(u.state) && u.ns > 0)
        {
            pieces.push(Piece {
                context: u.context.0,
                path: rest,
                state: u.state,
                reason: u.reason,
                value: u.ns,
                count: 0,
                sample: None,
            });
        }
        pieces.sort_by_key(|p| p.context);
        let plain = (paths.iter())
            .map(|p| p.iter().map(|s| s.function).collect())
            .collect();
        Rows {
            rec,
            functions,
            paths,
            plain,
            pieces,
        }
    }

    /// Every function, in the order of their numbers.
    pub(super) fn functions(&self) -> impl Iterator<Item = &FunctionInfo> {
        self.functions.iter()
    }

    /// Every path, in the order of their numbers.
    pub(super) fn paths(&self) -> &[Vec<Step>] {
        &self.paths
    }

    /// The rows of each thread that has any.
    pub(super) fn by_context(&self) -> impl Iterator<Item = (RowThread<'r>, Vec<Row<'_>>)> {
        let names: FxHashMap<u32, Arc<str>> = (self.rec.processes.iter())
            .map(|p| (p.pid, p.name.clone()))
            .collect();
        self.pieces
            .chunk_by(|a, b| a.context == b.context)
            .map(move |pieces| {
                let context = &self.rec.contexts[pieces[0].context as usize];
                let process = names.get(&context.pid).cloned();
                let thread = RowThread {
                    id: ContextId(pieces[0].context),
                    context,
                    process: process.unwrap_or_default(),
                };
                let row = |p: &Piece| Row {
                    path: &self.paths[p.path as usize],
                    root_first: &self.plain[p.path as usize],
                    state: p.state,
                    reason: p.reason,
                    value: p.value,
                    count: p.count,
                    sample: p.sample,
                    path_id: p.path,
                };
                (thread, pieces.iter().map(row).collect())
            })
    }
}

/// The parts of `rec` that a format has no place for: those named, and those that no foreign format
/// holds.
pub(super) fn left_out(rec: &Recording, parts: &[&str]) -> Vec<String> {
    let mut lost: Vec<String> = parts.iter().map(|p| (*p).to_string()).collect();
    if !rec.domain.is_import() {
        lost.push("the ledger, losses, cost, host facts and intervals of shares".to_string());
    }
    if !rec.label_sets.is_empty() {
        lost.push("labels".to_string());
    }
    if lost.is_empty() {
        return lost;
    }
    vec![format!("{} (pprof holds all)", lost.join("; "))]
}
