//! Brings labels into a window: each thread gets the labels of its process.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_analysis::select::Selection;
use wallscope_model::{Label, LabelValue, LabelsId, Process, Recording};

use super::{Cardinality, Facts, Labelled, Labels, OTHER, Pods, SERVICE, labelled, redacted};
use crate::config::{Keep, Services};

/// Windows after which a process's facts are read again: its pid may have come round, and its cgroup
/// may have changed.
const REREAD_WINDOWS: u32 = 30;

/// Labels of the processes of an agent's windows.
#[derive(Debug)]
pub struct Labeller {
    services: Services,
    keep: Keep,
    pods: Pods,
    /// The budget of services.
    pub cardinality: Cardinality,
    known: HashMap<u32, Known>,
}

/// Labels of a process of the last window.
#[derive(Debug)]
struct Known {
    exe: Arc<str>,
    labelled: Labelled,
    /// Whether it ended before its facts could be read.
    is_gone: bool,
    parent: u32,
    windows: u32,
}

/// Most ancestors of a process that are searched for labels.
const MAX_ANCESTORS: usize = 16;

/// The labels of a process. A process that ended before it was read has the labels of its nearest ancestor that was
/// read: they share a cgroup and an environment as a rule.
fn inherited<'a>(own: &'a Known, all: &'a HashMap<u32, Known>) -> &'a Labelled {
    let mut at = own;
    for _ in 0..MAX_ANCESTORS {
        if !at.is_gone {
            return &at.labelled;
        }
        match all.get(&at.parent) {
            Some(parent) => at = parent,
            None => break,
        }
    }
    &own.labelled
}

impl Labeller {
    /// Labels as configured.
    pub fn new(services: Services, keep: Keep) -> Labeller {
        let cardinality = Cardinality::new(*services.max.get_ref());
        Labeller {
            services,
            keep,
            pods: Pods::default(),
            cardinality,
            known: HashMap::new(),
        }
    }

    /// Takes a changed configuration over.
    pub fn reload(&mut self, services: Services, keep: Keep) {
        self.cardinality.set_max(*services.max.get_ref());
        (self.services, self.keep) = (services, keep);
        self.known.clear();
    }

    /// Takes new names of pods over; processes are labelled anew if any changed.
    pub fn set_pods(&mut self, pods: Pods) {
        if pods != self.pods {
            self.pods = pods;
            self.known.clear();
        }
    }

    /// Labels of a process; the facts are read if they are not known.
    fn labelled(&mut self, p: &Process, read: &mut dyn FnMut(&Process) -> Facts) -> Known {
        let known = self.known.remove(&p.pid);
        let known = known.filter(|k| k.exe == p.exe && k.windows < REREAD_WINDOWS);
        let Services {
            attributes, rules, ..
        } = &self.services;
        match known {
            Some(k) => Known {
                windows: k.windows + 1,
                ..k
            },
            None => {
                let facts = read(p);
                Known {
                    exe: p.exe.clone(),
                    labelled: labelled(&facts, attributes, &self.pods, rules),
                    is_gone: facts.is_gone,
                    parent: p.parent,
                    windows: 0,
                }
            }
        }
    }
}

/// Labels the threads of `window`, leaves excluded processes out, and shortens command lines. `read` gives
/// the facts about a process.
pub fn apply(
    labeller: &mut Labeller,
    mut window: Recording,
    read: &mut dyn FnMut(&Process) -> Facts,
) -> Recording {
    labeller.cardinality.next_window();
    let mut sets = Sets::default();
    let mut of_process: HashMap<u32, Option<LabelsId>> = HashMap::new();
    let mut now = HashMap::new();
    for p in &window.processes {
        now.insert(p.pid, labeller.labelled(p, read));
    }
    for p in &window.processes {
        let set = match inherited(&now[&p.pid], &now) {
            Labelled::Excluded => None,
            Labelled::Labels(labels) => Some(sets.place(
                &mut window.label_sets,
                admitted(&mut labeller.cardinality, labels),
            )),
        };
        of_process.insert(p.pid, set);
    }
    labeller.known = now;
    for p in &mut window.processes {
        p.cmdline = Arc::from(redacted(&p.cmdline, labeller.keep));
    }
    // A thread without a process belongs to the service `other`.
    let nobody = sets.place(&mut window.label_sets, service(OTHER));
    window.context_labels = (window.contexts.iter())
        .map(|c| of_process.get(&c.pid).copied().unwrap_or(Some(nobody)))
        .collect();
    match of_process.values().any(Option::is_none) {
        true => without_excluded(window, sets.services),
        false => window,
    }
}

fn service(name: &str) -> Labels {
    Labels::from([(SERVICE.to_string(), name.to_string())])
}

/// The labels that the budget of services admits.
fn admitted(cardinality: &mut Cardinality, labels: &Labels) -> Labels {
    let name = labels.get(SERVICE).map_or(OTHER, |s| s.as_str());
    match cardinality.admit(name) {
        OTHER => service(OTHER),
        _ => labels.clone(),
    }
}

/// Sets of labels that are in a window.
#[derive(Default)]
struct Sets {
    places: HashMap<Labels, LabelsId>,
    services: Vec<String>,
}

impl Sets {
    fn place(&mut self, list: &mut Vec<Vec<Label>>, labels: Labels) -> LabelsId {
        if let Some(id) = self.places.get(&labels) {
            return *id;
        }
        let id = LabelsId(list.len() as u32);
        let label = |(key, value): (&String, &String)| Label {
            key: Arc::from(key.as_str()),
            value: LabelValue::Text(Arc::from(value.as_str())),
        };
        list.push(labels.iter().map(label).collect());
        self.services.extend(labels.get(SERVICE).cloned());
        self.places.insert(labels, id);
        id
    }
}

/// The window without threads that have no labels.
fn without_excluded(window: Recording, services: Vec<String>) -> Recording {
    let notes = window.domain.notes.len();
    let selection = Selection {
        services,
        ..Selection::default()
    };
    match selection.apply(window) {
        Ok(selected) => {
            let mut window = selected.recording;
            // The names of all other services say nothing here.
            window.domain.notes.truncate(notes);
            let note = "processes that a rule excludes are left out of every figure";
            window.domain.notes.push(note.to_string());
            window
        }
        // Only a selection of time can fail.
        Err(_) => Recording::default(),
    }
}
