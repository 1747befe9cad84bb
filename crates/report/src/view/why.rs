//! Chains of waits as a tree: what the time of a thread or function was really spent on.

use std::collections::HashMap;

use wallscope_model::{Role, State};

use super::{
    Analysis, Waits,
    waits::{hop_line, queues},
};

/// Whose time is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// All threads with this name.
    Thread(String),
    /// All stacks with a function of this name.
    Function(String),
}

/// A part of the asked time. Its children sum to it, with `own_ns`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhyNode {
    /// What it is.
    pub what: String,
    /// Time, ns.
    pub ns: u64,
    /// The part that is in none of the children, ns.
    pub own_ns: u64,
    /// Its parts, most first.
    pub parts: Vec<WhyNode>,
}

/// The answer: a tree, and its ends added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The tree; its time is the asked time.
    pub tree: WhyNode,
    /// What the time was spent on in the end, most first; sums to the asked time.
    pub ends: Vec<(String, u64)>,
    /// Of that, time whose chain was cut: not followed further.
    pub cut_ns: u64,
    /// Samples that match.
    pub samples: u64,
}

#[derive(Default)]
struct Building {
    ns: u64,
    parts: HashMap<String, Building>,
}

impl Building {
    fn part(&mut self, what: String, ns: u64) -> &mut Building {
        let part = self.parts.entry(what).or_default();
        part.ns += ns;
        part
    }

    fn finish(self, what: String) -> WhyNode {
        let mut parts: Vec<WhyNode> = self
            .parts
            .into_iter()
            .map(|(what, b)| b.finish(what))
            .filter(|p| p.ns > 0)
            .collect();
        parts.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.what.cmp(&b.what)));
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
    /// Follows the time of `whose` to what it was spent on.
    pub fn why(&self, whose: &Whose) -> Why {
        let rec = self.recording;
        let waits = self.waits();
        let mut root = Building::default();
        let mut ends: HashMap<String, u64> = HashMap::new();
        let (mut cut, mut samples) = (0, 0);
        for (i, s) in rec.samples.iter().enumerate() {
            let ns = waits.sample_ns[i];
            let thread = &rec.contexts[s.context.0 as usize].name;
            let wanted = match whose {
                Whose::Thread(name) => **thread == **name,
                Whose::Function(name) => self
                    .frames(&rec.stacks[s.stack.0 as usize])
                    .iter()
                    .any(|f| *f.function.name == **name),
            };
            if !wanted || ns == 0 {
                continue;
            }
            samples += s.count;
            root.ns += ns;
            let place = self.place(s.stack).unwrap_or_else(|| "[no stack]".into());
            let what = match s.state {
                State::OnCpu => format!("computes in {place}"),
                State::Runnable => queues(s.part).to_string(),
                State::Unknown => "not seen".to_string(),
                State::Blocked => {
                    let reason = s.reason_name().unwrap_or("blocked");
                    let what = self
                        .resource(s.labels)
                        .map_or(String::new(), |r| format!(": {r}"));
                    format!("blocked ({reason}{what}) in {place}")
                }
            };
            let part = root.part(what.clone(), ns);
            let mut walk = Walk {
                a: self,
                waits: &waits,
                ends: &mut ends,
                cut: &mut cut,
            };
            walk.below(
                part,
                &waits.below_sample[i],
                ns,
                &format!("{thread} {what}"),
            );
        }
        if let Whose::Thread(name) = whose {
            for u in &self.scaled.unsampled {
                if *rec.contexts[u.context.0 as usize].name == **name {
                    let what = format!("{} without a sample", u.state.name());
                    root.ns += u.ns;
                    root.part(what.clone(), u.ns);
                    *ends.entry(what).or_default() += u.ns;
                }
            }
        }
        let title = match whose {
            Whose::Thread(name) => format!("thread {name}"),
            Whose::Function(name) => format!("function {name}"),
        };
        let mut ends: Vec<(String, u64)> = ends.into_iter().filter(|(_, ns)| *ns > 0).collect();
        ends.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Why {
            tree: root.finish(title),
            ends,
            cut_ns: cut,
            samples,
        }
    }
}

struct Walk<'w, 'r> {
    a: &'w Analysis<'r>,
    waits: &'w Waits,
    ends: &'w mut HashMap<String, u64>,
    cut: &'w mut u64,
}

impl Walk<'_, '_> {
    /// Adds `hops` below `to`, which holds `ns` and is an end called `end` where nothing follows.
    fn below(&mut self, to: &mut Building, hops: &[u32], ns: u64, end: &str) {
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
            // A waker of whom nothing more is known leaves the wait itself as the end.
            let end = match hop.role {
                Role::Woke | Role::Held => end,
                _ => line.as_str(),
            };
            if matches!(hop.role, Role::Cut | Role::Circle) {
                *self.cut += part_ns;
            }
            // Depth is bounded by the capture, a few hops of two levels each.
            self.below(part, next, part_ns, end);
        }
        *self.ends.entry(end.to_string()).or_default() += ns.saturating_sub(inside);
    }
}
