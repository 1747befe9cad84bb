//! Recording → OTLP.

use std::collections::BTreeMap;
use std::io::{self, Write};

use rustc_hash::FxHashMap;
use wallscope_model::{LabelValue, LabelsId, Recording, State, Unit, View};

use super::super::WriteOptions;
use super::super::export_model::{RowThread, Rows, WrittenRow, left_out};
use super::super::wire::Writer;
use super::field;

/// Tables in the making; place 0 of each is the empty entry that the format asks for.
struct Dictionary {
    strings: FxHashMap<String, u64>,
    attributes: FxHashMap<(u64, String, bool), u64>,
    out: Writer,
}

impl Dictionary {
    fn string(&mut self, text: &str) -> u64 {
        if let Some(n) = self.strings.get(text) {
            return *n;
        }
        let n = self.strings.len() as u64;
        self.strings.insert(text.to_string(), n);
        self.out.bytes(field::dictionary::STRING, text.as_bytes());
        n
    }

    fn attribute(&mut self, key: &str, value: &str, number: bool) -> u64 {
        let key = self.string(key);
        let next = self.attributes.len() as u64 + 1;
        let n = *self
            .attributes
            .entry((key, value.to_string(), number))
            .or_insert(next);
        if n == next {
            let mut any = Writer::default();
            match value.parse::<u64>() {
                Ok(v) if number => {
                    // A zero has to be written: its field shows the type.
                    any.present(3, v);
                }
                _ => any.bytes(1, value.as_bytes()),
            }
            let mut w = Writer::default();
            w.number(1, key);
            w.bytes(2, &any.bytes);
            self.out.bytes(field::dictionary::ATTRIBUTE, &w.bytes);
        }
        n
    }
}

impl Dictionary {
    /// Tables with their empty entries.
    fn new() -> Dictionary {
        use field::dictionary as f;
        let mut d = Dictionary {
            strings: FxHashMap::default(),
            attributes: FxHashMap::default(),
            out: Writer::default(),
        };
        d.string("");
        for table in [
            f::MAPPING,
            f::LOCATION,
            f::FUNCTION,
            f::LINK,
            f::ATTRIBUTE,
            f::STACK,
        ] {
            d.out.bytes(table, &[]);
        }
        d
    }

    /// Puts all functions and their modules. Gives the number of each function's module.
    fn functions(&mut self, rec: &Recording, rows: &Rows) -> Vec<u64> {
        use field::dictionary as f;
        let mut modules: FxHashMap<&str, u64> = FxHashMap::default();
        let mut mapping_of = Vec::new();
        for info in rows.functions() {
            let next = modules.len() as u64 + 1;
            let n = match &*info.module {
                "" => 0,
                path => *modules.entry(path).or_insert(next),
            };
            if n == next {
                self.module(rec, &info.module);
            }
            mapping_of.push(n);
            let (name, file) = (self.string(&info.name), self.string(&info.file));
            let mut w = Writer::default();
            w.number(1, name);
            w.number(3, file);
            w.number(4, u64::from(info.line));
            self.out.bytes(f::FUNCTION, &w.bytes);
        }
        mapping_of
    }

    fn module(&mut self, rec: &Recording, path: &str) {
        let known = rec.modules.iter().find(|m| &*m.path == path);
        let build_id = known.map_or("", |m| &m.build_id);
        let name = self.string(path);
        let mut w = Writer::default();
        w.number(4, name);
        if !build_id.is_empty() {
            let a = self.attribute("process.executable.build_id.gnu", build_id, false);
            w.packed(5, std::iter::once(a));
        }
        self.out.bytes(field::dictionary::MAPPING, &w.bytes);
    }

    /// Puts all stacks and their locations. `mapping_of`: the number of each function's module.
    fn stacks(&mut self, rows: &Rows, mapping_of: &[u64]) {
        use field::dictionary as f;
        let kinds: Vec<u64> = ["native", "kernel", "jit"]
            .iter()
            .map(|k| self.attribute("profile.frame.type", k, false))
            .collect();
        let mut locations: FxHashMap<(u32, u32), u64> = FxHashMap::default();
        let functions: Vec<_> = rows.functions().collect();
        for path in rows.paths() {
            let mut stack = Vec::with_capacity(path.len());
            for step in path.iter().rev() {
                let next = locations.len() as u64 + 1;
                let n = *locations.entry((step.function, step.line)).or_insert(next);
                if n == next {
                    let mut line = Writer::default();
                    line.number(1, u64::from(step.function) + 1);
                    line.number(2, u64::from(step.line));
                    let mut w = Writer::default();
                    w.number(1, mapping_of[step.function as usize]);
                    w.bytes(3, &line.bytes);
                    let kind = match functions[step.function as usize].suffix {
                        "_[k]" => kinds[1],
                        "_[j]" => kinds[2],
                        _ => kinds[0],
                    };
                    w.packed(4, std::iter::once(kind));
                    self.out.bytes(f::LOCATION, &w.bytes);
                }
                stack.push(n);
            }
            let mut w = Writer::default();
            w.packed(1, stack.iter().copied());
            self.out.bytes(f::STACK, &w.bytes);
        }
    }

    /// The attributes of a thread.
    fn thread(&mut self, thread: &RowThread<'_>) -> Vec<u64> {
        let c = thread.context;
        let mut own = vec![
            self.attribute("process.pid", &c.pid.to_string(), true),
            self.attribute("thread.id", &c.tid.to_string(), true),
        ];
        if !c.name.is_empty() {
            own.push(self.attribute("thread.name", &c.name, false));
        }
        if !thread.process.is_empty() {
            own.push(self.attribute("process.executable.name", &thread.process, false));
        }
        own
    }

    /// A sample of a thread with the attributes `own`.
    fn sample(&mut self, rec: &Recording, own: &[u64], r: &WrittenRow<'_>) -> Writer {
        let mut attributes = own.to_vec();
        if let Some(reason) = r.reason {
            attributes.push(self.attribute("wallscope.reason", reason, false));
        }
        let sample = r.sample.and_then(|s| rec.samples.get(s as usize));
        if sample.is_some_and(|s| s.idle) {
            attributes.push(self.attribute("wallscope.idle", "true", false));
        }
        attributes.push(self.attribute("wallscope.samples", &r.count.to_string(), true));
        if let Some(cpu) = sample.and_then(|s| s.cpu) {
            attributes.push(self.attribute("cpu.logical_number", &cpu.to_string(), true));
        }
        let set = sample
            .and_then(|s| s.labels)
            .and_then(|l| rec.label_sets.get(l.0 as usize));
        for label in set.into_iter().flatten() {
            let number = matches!(label.value, LabelValue::Number(n, _) if n >= 0);
            let text = match &label.value {
                LabelValue::Number(n, _) => n.to_string(),
                LabelValue::Text(t) => t.to_string(),
            };
            attributes.push(self.attribute(&label.key, &text, number));
        }
        let mut w = Writer::default();
        w.number(field::sample::STACK, u64::from(r.path_id) + 1);
        w.packed(field::sample::ATTRIBUTES, attributes.iter().copied());
        w.packed(field::sample::VALUES, std::iter::once(r.value));
        w
    }
}

/// Writes all of the recording's time, a profile for each state.
pub(crate) fn write(
    rec: &Recording,
    _: &WriteOptions,
    out: &mut dyn Write,
) -> io::Result<Vec<String>> {
    let rows = Rows::new(rec, View::Wall);
    let mut d = Dictionary::new();
    let mapping_of = d.functions(rec, &rows);
    d.stacks(&rows, &mapping_of);
    // Samples by the labels of whole threads, and by state.
    let mut resources: BTreeMap<Option<LabelsId>, Vec<Writer>> = BTreeMap::new();
    for (thread, rows) in rows.by_context() {
        let labels = rec.context_labels.get(thread.id.0 as usize).copied();
        let profiles = resources
            .entry(labels.flatten())
            .or_insert_with(|| State::ALL.iter().map(|_| Writer::default()).collect());
        let own = d.thread(&thread);
        for r in rows {
            let sample = d.sample(rec, &own, &r);
            profiles[r.state as usize].bytes(field::profile::SAMPLES, &sample.bytes);
        }
    }
    for (labels, profiles) in resources {
        let resource = resource(rec, labels, profiles, &mut d);
        let mut w = Writer::default();
        w.bytes(field::RESOURCE_PROFILES, &resource.bytes);
        out.write_all(&w.bytes)?;
    }
    let mut w = Writer::default();
    w.bytes(field::DICTIONARY, &d.out.bytes);
    out.write_all(&w.bytes)?;
    out.flush()?;
    let mut lost = left_out(rec, &["time slices", "addresses"]);
    // Labels have a place here.
    lost.iter_mut().for_each(|l| *l = l.replace("; labels", ""));
    Ok(lost)
}

/// The threads with equal labels: their resource, and a profile for each state.
fn resource(
    rec: &Recording,
    labels: Option<LabelsId>,
    profiles: Vec<Writer>,
    d: &mut Dictionary,
) -> Writer {
    let mut scope = Writer::default();
    let window = &rec.window;
    for (state, samples) in State::ALL.iter().zip(profiles) {
        if samples.bytes.is_empty() {
            continue;
        }
        let (name, unit) = match &rec.domain.unit {
            Unit::Nanoseconds => (state.name().to_string(), "nanoseconds"),
            Unit::Bytes => ("bytes".to_string(), "bytes"),
            Unit::Count(name) => (name.clone(), "count"),
        };
        let mut kind = Writer::default();
        kind.number(1, d.string(&name));
        kind.number(2, d.string(unit));
        let mut p = Writer::default();
        p.bytes(field::profile::SAMPLE_TYPE, &kind.bytes);
        p.bytes.extend_from_slice(&samples.bytes);
        p.fixed(field::profile::TIME, window.start_unix_ns);
        p.number(field::profile::DURATION, window.length_ns());
        scope.bytes(field::PROFILES, &p.bytes);
    }
    let mut out = Writer::default();
    let set = labels.and_then(|l| rec.label_sets.get(l.0 as usize));
    if let Some(set) = set {
        let mut resource = Writer::default();
        for label in set {
            let mut value = Writer::default();
            value.bytes(1, label.value.to_string().as_bytes());
            let mut attribute = Writer::default();
            attribute.bytes(1, semantic_name(&label.key).as_bytes());
            attribute.bytes(2, &value.bytes);
            resource.bytes(1, &attribute.bytes);
        }
        out.bytes(field::RESOURCE, &resource.bytes);
    }
    out.bytes(field::SCOPE_PROFILES, &scope.bytes);
    out
}

/// The name of a thread's label among OpenTelemetry's conventions.
fn semantic_name(key: &str) -> &str {
    match key {
        "service" => "service.name",
        "container" => "container.id",
        "runtime" => "container.runtime.name",
        "pod" => "k8s.pod.name",
        "namespace" => "k8s.namespace.name",
        key => key,
    }
}
