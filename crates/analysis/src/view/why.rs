//! Chains of waits as a tree: the root causes of the time of a thread or function.

use std::collections::{BTreeMap, HashMap};

use wallscope_model::{Role, Sample, State};

use super::wait_line::Line;
use super::waits::{hop_line, queues};
use super::{Analysis, Waits};

/// The thread or function of the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All threads with this name.
    Thread(String),
    /// All stacks with a function of this name.
    Function(String),
}

/// A part of the asked time. Its children sum to it, with `own_ns`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhyNode {
    /// Its line in words.
    pub what: Line,
    /// Time, ns.
    pub ns: u64,
    /// The part that is in none of the children, ns.
    pub own_ns: u64,
    /// Its parts, most first.
    pub parts: Vec<WhyNode>,
}

/// The answer: a tree, and its ends added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhyTree {
    /// The tree; its time is the asked time.
    pub tree: WhyNode,
    /// Ends of the chains, most time first; they sum to the asked time.
    pub ends: Vec<(Line, u64)>,
    /// Time in chains that were not followed to their end, ns; a part of `ends`.
    pub cut_ns: u64,
    /// Samples that match.
    pub samples: u64,
}

impl WhyTree {
    /// Joins lines shorter than `least` that differ only in the name of the resource. A program that reads a thousand
    /// files waits for the disk, and not long for any one file.
    pub fn gathered(mut self, least: u64) -> WhyTree {
        self.tree.parts = gathered(self.tree.parts, least);
        let ends = self.ends.into_iter().map(|(what, ns)| WhyNode {
            what,
            ns,
            own_ns: ns,
            parts: Vec::new(),
        });
        let ends = gathered(ends.collect(), least);
        self.ends = ends.into_iter().map(|e| (e.what, e.ns)).collect();
        self
    }
}

fn gathered(parts: Vec<WhyNode>, least: u64) -> Vec<WhyNode> {
    let (small, mut out): (Vec<_>, Vec<_>) = parts
        .into_iter()
        .partition(|p| p.ns < least && p.what.name.is_some());
    let mut alike: BTreeMap<_, Vec<WhyNode>> = BTreeMap::new();
    for part in small {
        let around = (part.what.before.clone(), part.what.behind.clone());
        alike.entry(around).or_default().push(part);
    }
    for ((before, behind), mut parts) in alike {
        let n = parts.len();
        if n > 1 {
            parts.iter_mut().for_each(|p| p.what.name = None);
            parts = joined(parts);
            let name = Some(format!("{n} different"));
            parts.iter_mut().for_each(|p| {
                p.what = Line {
                    before: before.clone(),
                    name: name.clone(),
                    behind: behind.clone(),
                };
            });
        }
        out.append(&mut parts);
    }
    for part in &mut out {
        part.parts = gathered(std::mem::take(&mut part.parts), least);
    }
    most_first(out)
}

/// Joins parts with equal lines, at every level.
fn joined(parts: Vec<WhyNode>) -> Vec<WhyNode> {
    let mut by_line: BTreeMap<Line, WhyNode> = BTreeMap::new();
    for mut part in parts {
        match by_line.get_mut(&part.what) {
            Some(same) => {
                same.ns += part.ns;
                same.own_ns += part.own_ns;
                same.parts.append(&mut part.parts);
            }
            None => {
                by_line.insert(part.what.clone(), part);
            }
        }
    }
    let joined = by_line.into_values().map(|mut part| {
        part.parts = joined(part.parts);
        part
    });
    joined.collect()
}

fn most_first(mut parts: Vec<WhyNode>) -> Vec<WhyNode> {
    parts.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.what.cmp(&b.what)));
    parts
}

#[derive(Default)]
struct Building {
    ns: u64,
    parts: HashMap<Line, Building>,
}

impl Building {
    fn part(&mut self, what: Line, ns: u64) -> &mut Building {
        let part = self.parts.entry(what).or_default();
        part.ns += ns;
        part
    }

    fn finish(self, what: Line) -> WhyNode {
        let parts = self.parts.into_iter().map(|(what, b)| b.finish(what));
        let parts = most_first(parts.filter(|p| p.ns > 0).collect());
        let inside: u64 = parts.iter().map(|p| p.ns).sum();
        WhyNode {
            what,
            ns: self.ns,
            own_ns: self.ns.saturating_sub(inside),
            parts,
        }
    }
}

impl Analysis<'_> {
    /// Whether a sample is time of that thread or function.
    pub(super) fn concerns(&self, subject: &Subject, sample: &Sample) -> bool {
        match subject {
            Subject::Thread(name) => {
                *self.recording.contexts[sample.context.0 as usize].name == **name
            }
            Subject::Function(name) => {
                let stack = &self.recording.stacks[sample.stack.0 as usize];
                self.frames(stack)
                    .iter()
                    .any(|f| *f.function.name == **name)
            }
        }
    }

    /// Follows the time of `subject` to the ends of its chains of waits.
    pub fn why(&self, subject: &Subject) -> WhyTree {
        let rec = self.recording;
        let waits = self.waits();
        let mut root = Building::default();
        let mut ends: HashMap<Line, u64> = HashMap::new();
        let (mut cut, mut samples) = (0, 0);
        for (i, s) in rec.samples.iter().enumerate() {
            let ns = waits.sample_ns[i];
            let thread = &rec.contexts[s.context.0 as usize].name;
            if ns == 0 || !self.concerns(subject, s) {
                continue;
            }
            samples += s.count;
            root.ns += ns;
            let place = self.place(s.stack).unwrap_or_else(|| "[no stack]".into());
            let what = match s.state {
                State::OnCpu => format!("computes in {place}").into(),
                State::Runnable => queues(s.part).to_string().into(),
                State::Unknown => "not seen".to_string().into(),
                State::Blocked => {
                    let reason = s.reason_name().unwrap_or("blocked");
                    let name = self.resource(s.labels);
                    Line::blocked("", reason, name.as_deref(), &format!(" in {place}"))
                }
            };
            let part = root.part(what.clone(), ns);
            let mut walk = Walk {
                a: self,
                waits: &waits,
                ends: &mut ends,
                cut: &mut cut,
            };
            walk.below(part, &waits.below_sample[i], ns, &what.of(thread));
        }
        if let Subject::Thread(name) = subject {
            for u in &self.scaled.unsampled {
                if *rec.contexts[u.context.0 as usize].name == **name {
                    let what = Line::from(format!("{} without a sample", u.state.name()));
                    root.ns += u.ns;
                    root.part(what.clone(), u.ns);
                    *ends.entry(what).or_default() += u.ns;
                }
            }
        }
        let title = match subject {
            Subject::Thread(name) => format!("thread {name}"),
            Subject::Function(name) => format!("function {name}"),
        };
        let mut ends: Vec<(Line, u64)> = ends.into_iter().filter(|(_, ns)| *ns > 0).collect();
        ends.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        WhyTree {
            tree: root.finish(title.into()),
            ends,
            cut_ns: cut,
            samples,
        }
    }
}

struct Walk<'w, 'r> {
    a: &'w Analysis<'r>,
    waits: &'w Waits,
    ends: &'w mut HashMap<Line, u64>,
    cut: &'w mut u64,
}

impl Walk<'_, '_> {
    /// Adds `hops` below `to`, which holds `ns`. Time that no hop explains ends the chain at `end`.
    fn below(&mut self, to: &mut Building, hops: &[u32], ns: u64, end: &Line) {
        let mut inside = 0;
        for id in hops {
            let hop = &self.a.recording.hops[*id as usize];
            let part_ns = self.waits.ns[*id as usize];
            if part_ns == 0 {
                continue;
            }
            inside += part_ns;
            let line = hop_line(self.a, hop);
            let part = to.part(line.clone(), part_ns);
            let next = &self.waits.below[*id as usize];
            // A waker or holder without hops of its own leaves the wait as the end of the chain.
            let end = match hop.role {
                Role::Woke | Role::Held => end,
                _ => &line,
            };
            if matches!(hop.role, Role::Cut | Role::Circle) {
                *self.cut += part_ns;
            }
            // Depth is bounded by the capture, a few hops of two levels each.
            self.below(part, next, part_ns, end);
        }
        *self.ends.entry(end.clone()).or_default() += ns.saturating_sub(inside);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, ns: u64) -> WhyNode {
        WhyNode {
            what: Line::blocked("cc1 is ", "disk", Some(name), " in lex"),
            ns,
            own_ns: 1,
            parts: vec![WhyNode {
                what: "woken by a disk interrupt".to_string().into(),
                ns: ns - 1,
                own_ns: ns - 1,
                parts: Vec::new(),
            }],
        }
    }

    #[test]
    fn small_waits_for_different_things_are_one() {
        let tree = WhyNode {
            what: "thread cc1".to_string().into(),
            ns: 200,
            own_ns: 0,
            parts: vec![read("/big", 100), read("/b", 55), read("/a", 45)],
        };
        let ends = tree.parts.iter().map(|p| (p.what.clone(), p.ns)).collect();
        let why = WhyTree {
            tree,
            ends,
            cut_ns: 0,
            samples: 3,
        };
        assert_eq!(why.clone().gathered(50), why, "one small one stays");
        let why = why.gathered(60);
        let lines: Vec<_> = why
            .tree
            .parts
            .iter()
            .map(|p| (p.what.to_string(), p.ns, p.own_ns, p.parts.len()))
            .collect();
        let big = "cc1 is blocked (disk: /big) in lex".to_string();
        let rest = "cc1 is blocked (disk: 2 different) in lex".to_string();
        assert_eq!(lines, [(big.clone(), 100, 1, 1), (rest.clone(), 100, 2, 1)]);
        assert_eq!(why.tree.parts[1].parts[0].ns, 98);
        let ends: Vec<_> = why
            .ends
            .iter()
            .map(|(w, ns)| (w.to_string(), *ns))
            .collect();
        assert_eq!(ends, [(big, 100), (rest, 100)]);
    }
}
