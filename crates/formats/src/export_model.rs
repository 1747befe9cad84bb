//! A recording in the form that writers of foreign formats need: numbered functions, stacks as paths of
//! functions, and a row for each piece of time, scaled to the ledger.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::scale::{NOT_SAMPLED, Scaled, Unsampled, scale};
use wallscope_model::{Context, ContextId, Frame, Recording, Stack, State, View};

use wallscope_model::name;

/// A function, with its name in all formats.
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
pub(super) struct WrittenRow<'r> {
    /// Frames, root first.
    pub path: &'r [Step],
    /// The frames' functions, by number, root first.
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

/// Functions by number.
#[derive(Default)]
struct Functions {
    all: Vec<FunctionInfo>,
    ids: FxHashMap<FunctionInfo, u32>,
}

impl Functions {
    fn id(&mut self, info: FunctionInfo) -> u32 {
        let next = self.all.len() as u32;
        let all = &mut self.all;
        *self.ids.entry(info).or_insert_with_key(|i| {
            all.push(i.clone());
            next
        })
    }

    /// A frame that is no function.
    fn mark(&mut self, text: String) -> Step {
        let function = self.id(marked(text));
        Step { function, line: 0 }
    }

    /// The functions of a frame, outermost first.
    fn of_frame(&mut self, rec: &Recording, f: &Frame) -> Vec<Step> {
        let module = f.module.and_then(|m| rec.modules.get(m.0 as usize));
        let module: Arc<str> = module.map_or_else(Arc::default, |m| m.path.clone());
        if f.lines.is_empty() {
            let function = self.id(FunctionInfo {
                suffix: f.kind.suffix(),
                module,
                ..marked(name::address(rec, f))
            });
            return vec![Step { function, line: 0 }];
        }
        let last = f.lines.len() - 1;
        (f.lines.iter().enumerate().rev())
            .map(|(i, l)| {
                let own = &rec.functions[l.function.0 as usize];
                let function = self.id(FunctionInfo {
                    name: own.name.clone(),
                    suffix: match i < last {
                        true => f.kind.inlined_suffix(),
                        false => f.kind.suffix(),
                    },
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
    }

    /// The path of each stack, root first.
    fn paths(&mut self, rec: &Recording) -> Vec<Vec<Step>> {
        let frames: Vec<Vec<Step>> = (rec.frames.iter()).map(|f| self.of_frame(rec, f)).collect();
        let path = |s: &Stack| {
            let mut path = Vec::with_capacity(s.frames.len() + 1);
            if s.frames.is_empty() {
                path.push(self.mark(name::no_frames(s.end)));
            } else if !s.end.is_whole() {
                path.push(self.mark(name::truncated(s.end)));
            }
            for f in s.frames.iter().rev() {
                path.extend_from_slice(&frames[f.0 as usize]);
            }
            path
        };
        rec.stacks.iter().map(path).collect()
    }
}

/// An entry for a name that is no function.
fn marked(text: String) -> FunctionInfo {
    FunctionInfo {
        name: Arc::from(text),
        suffix: "",
        module: Arc::default(),
        file: Arc::default(),
        line: 0,
    }
}

/// The pieces of a view's samples. A sample's count stands at its first piece.
fn sampled(rec: &Recording, scaled: &Scaled, view: View) -> Vec<Piece> {
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
    pieces
}

/// The pieces of a view's time without samples; `path`: that of [`NOT_SAMPLED`].
fn unsampled(scaled: &Scaled, view: View, path: u32) -> impl Iterator<Item = Piece> {
    let shown = move |u: &&Unsampled| view.includes(u.state) && u.ns > 0;
    scaled.unsampled.iter().filter(shown).map(move |u| Piece {
        context: u.context.0,
        path,
        state: u.state,
        reason: u.reason,
        value: u.ns,
        count: 0,
        sample: None,
    })
}

impl<'r> Rows<'r> {
    /// The rows of `view`, by context in order.
    pub(super) fn new(rec: &'r Recording, view: View) -> Rows<'r> {
        let mut functions = Functions::default();
        let mut paths = functions.paths(rec);
        let scaled = scale(rec);
        let mut pieces = sampled(rec, &scaled, view);
        pieces.extend(unsampled(&scaled, view, paths.len() as u32));
        if !scaled.unsampled.is_empty() {
            paths.push(vec![functions.mark(NOT_SAMPLED.to_string())]);
        }
        pieces.sort_by_key(|p| p.context);
        let plain = (paths.iter())
            .map(|p| p.iter().map(|s| s.function).collect())
            .collect();
        Rows {
            rec,
            functions: functions.all,
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
    pub(super) fn by_context(&self) -> impl Iterator<Item = (RowThread<'r>, Vec<WrittenRow<'_>>)> {
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
                let row = |p: &Piece| WrittenRow {
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

/// The parts of `rec` for which a format has no place: `parts`, and those that no foreign format holds.
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
