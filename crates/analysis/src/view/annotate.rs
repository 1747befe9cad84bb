//! One function line by line and address by address: the places that spend time, and the places that call functions
//! that spend it.
//!
//! On each stack the innermost call of the function counts, so that recursion counts once. Its *own*
//! time is that of stacks that end in it; code that was inlined into it ends in itself and is part of
//! the total of the line that called it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wallscope_model::{FrameKind, ModuleId, View};

use super::Analysis;

/// Time at a place, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// With this place innermost.
    pub own_ns: u64,
    /// With this place anywhere on the stack.
    pub total_ns: u64,
}

impl Spent {
    fn add(&mut self, ns: u64, own: bool) {
        self.total_ns += ns;
        if own {
            self.own_ns += ns;
        }
    }
}

/// A function as it is in one source file and one module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Its name.
    pub function: Arc<str>,
    /// Its source file, empty where unknown.
    pub file: Arc<str>,
    /// The line of its declaration, 0 where unknown.
    pub start_line: u32,
    /// Its module.
    pub module: Option<ModuleId>,
    /// Kind of its code.
    pub kind: FrameKind,
    /// All of its time.
    pub spent: Spent,
    /// Time by source line; 0: not known.
    pub lines: BTreeMap<u32, Spent>,
    /// Time by address, as frames have it.
    pub addresses: BTreeMap<u64, Spent>,
    /// Samples behind it.
    pub samples: u64,
    /// Processes that ran it.
    pub pids: BTreeSet<u32>,
}

impl Analysis<'_> {
    /// The functions called `name`, each by module and file, most time in `view` first.
    pub fn annotations(&self, name: &str, view: View) -> Vec<Annotation> {
        let rec = self.recording;
        let mut out: Vec<Annotation> = Vec::new();
        let mut last = None;
        for p in self.pieces() {
            let s = &rec.samples[p.sample as usize];
            if !view.includes(s.state) {
                continue;
            }
            let stack = &rec.stacks[s.stack.0 as usize];
            let calls = stack.frames.iter().enumerate().flat_map(|(depth, f)| {
                let frame = &rec.frames[f.0 as usize];
                let lines = frame.lines.iter().enumerate();
                lines.map(move |(inner, line)| (depth + inner == 0, frame, line))
            });
            let named = |id: u32| *rec.functions[id as usize].name == *name;
            let Some((own, frame, line)) = calls.into_iter().find(|(_, _, l)| named(l.function.0))
            else {
                continue;
            };
            let function = &rec.functions[line.function.0 as usize];
            let same = |a: &Annotation| a.module == frame.module && a.file == function.file;
            let at = out.iter().position(same).unwrap_or_else(|| {
                out.push(Annotation {
                    function: function.name.clone(),
                    file: function.file.clone(),
                    start_line: function.start_line,
                    module: frame.module,
                    kind: frame.kind,
                    spent: Spent::default(),
                    lines: BTreeMap::new(),
                    addresses: BTreeMap::new(),
                    samples: 0,
                    pids: BTreeSet::new(),
                });
                out.len() - 1
            });
            let a = &mut out[at];
            a.spent.add(p.ns, own);
            a.lines.entry(line.line).or_default().add(p.ns, own);
            a.addresses.entry(frame.address).or_default().add(p.ns, own);
            a.pids.insert(rec.contexts[s.context.0 as usize].pid);
            if last != Some(p.sample) {
                a.samples += s.count;
                last = Some(p.sample);
            }
        }
        out.sort_by_key(|a| std::cmp::Reverse(a.spent.total_ns));
        out
    }

    /// Names of functions of the recording that hold `text`, whatever its case, most wall time first.
    pub fn functions_like(&self, text: &str) -> Vec<Arc<str>> {
        let wanted = text.to_lowercase();
        let functions = self.functions();
        let mut rows: Vec<_> = functions
            .iter()
            .filter(|f| f.function.name.to_lowercase().contains(&wanted))
            .collect();
        rows.sort_by_key(|f| std::cmp::Reverse(f.view(View::Wall).total.ns));
        let mut names: Vec<Arc<str>> = Vec::new();
        for row in rows {
            if !names.contains(&row.function.name) {
                names.push(row.function.name.clone());
            }
        }
        names
    }
}
