//! A window in the form of Pyroscope's push interface: a profile for each state and set of labels.
//!
//! States are profile types of their own (`process_cpu:cpu`, `runnable:runnable`, `blocked:blocked`,
//! `wall:wall`), so that none is added to another, and `reason` is a label of samples. Each profile's
//! samples sum to the ledger.

use std::collections::HashMap;
use std::io::{self, Write as _};

use base64::Engine as _;
use prost::Message;
use serde_json::{Value, json};
use wallscope_model::scale::{self, NOT_SAMPLED};
use wallscope_model::{ContextId, FrameId, LabelsId, Recording, StackId, State, name};

/// Path of the interface.
pub(super) const PATH: &str = "/push.v1.PusherService/Push";

/// Profile types: metric name and sample type. Wall is the sum of the other states.
const TYPES: [(Option<State>, &str, &str); 4] = [
    (Some(State::OnCpu), "process_cpu", "cpu"),
    (Some(State::Runnable), "runnable", "runnable"),
    (Some(State::Blocked), "blocked", "blocked"),
    (None, "wall", "wall"),
];

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// Time of one stack for one reason, ns. No stack: time that was not sampled.
type Times = HashMap<(Option<StackId>, Option<&'static str>), u64>;

/// The body of the request for `window`.
///
/// # Errors
/// Only those of compression into memory.
pub(super) fn push(window: &Recording) -> io::Result<Vec<u8>> {
    let mut series = Vec::new();
    for (state, metric, kind) in TYPES {
        let mut groups: Vec<_> = times(window, state).into_iter().collect();
        groups.sort_by_key(|(labels, _)| *labels);
        for (labels, times) in groups {
            let profile = Builder::new(window).profile(kind, times);
            let raw = compressed(&profile.encode_to_vec())?;
            series.push(json!({
                "labels": series_labels(window, labels, metric),
                "samples": [{
                    "rawProfile": base64::engine::general_purpose::STANDARD.encode(raw),
                }],
            }));
        }
    }
    Ok(json!({ "series": series }).to_string().into_bytes())
}

/// The time of `state`, or of all states, by labels of contexts.
fn times(window: &Recording, state: Option<State>) -> HashMap<Option<LabelsId>, Times> {
    let scaled = scale::scale(window);
    let mut groups: HashMap<Option<LabelsId>, Times> = HashMap::new();
    let mut add = |of: State, context: ContextId, key, ns| {
        if state.is_none_or(|s| s == of) && ns > 0 {
            let labels = window.context_labels.get(context.0 as usize).copied();
            let times = groups.entry(labels.flatten()).or_default();
            *times.entry(key).or_default() += ns;
        }
    };
    for p in &scaled.pieces {
        let s = &window.samples[p.sample as usize];
        add(s.state, p.context, (Some(s.stack), s.reason_name()), p.ns);
    }
    for u in &scaled.unsampled {
        add(u.state, u.context, (None, u.reason), u.ns);
    }
    groups
}

fn series_labels(window: &Recording, labels: Option<LabelsId>, metric: &str) -> Vec<Value> {
    let set = labels.and_then(|l| window.label_sets.get(l.0 as usize));
    let own = set.into_iter().flatten().map(|l| {
        let key = match &*l.key {
            "service" => "service_name".to_string(),
            // Pyroscope has the label names of Prometheus.
            key => key.replace(|c: char| !c.is_ascii_alphanumeric(), "_"),
        };
        json!({ "name": key, "value": l.value.to_string() })
    });
    let mut labels: Vec<Value> = own.collect();
    if !labels.iter().any(|l| l["name"] == "service_name") {
        labels.push(json!({ "name": "service_name", "value": crate::services::OTHER }));
    }
    labels.push(json!({ "name": "__name__", "value": metric }));
    labels
}

fn compressed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes)?;
    out.finish()
}

/// A profile in the making.
struct Builder<'a> {
    window: &'a Recording,
    profile: Profile,
    strings: HashMap<String, i64>,
    functions: HashMap<String, u64>,
    locations: HashMap<FrameId, u64>,
}

impl<'a> Builder<'a> {
    fn new(window: &'a Recording) -> Builder<'a> {
        let mut builder = Builder {
            window,
            profile: Profile::default(),
            strings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
        };
        builder.string("");
        builder
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(id) = self.strings.get(text) {
            return *id;
        }
        let id = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_string());
        self.strings.insert(text.to_string(), id);
        id
    }

    fn function(&mut self, name: &str, file: &str) -> u64 {
        if let Some(id) = self.functions.get(name) {
            return *id;
        }
        let id = self.profile.function.len() as u64 + 1;
        let (name_id, filename) = (self.string(name), self.string(file));
        self.profile.function.push(Function {
            id,
            name: name_id,
            system_name: name_id,
            filename,
        });
        self.functions.insert(name.to_string(), id);
        id
    }

    fn location(&mut self, frame: FrameId) -> u64 {
        if let Some(id) = self.locations.get(&frame) {
            return *id;
        }
        let window = self.window;
        let f = &window.frames[frame.0 as usize];
        let mut lines: Vec<Line> = Vec::new();
        for l in &f.lines {
            let function = &window.functions[l.function.0 as usize];
            let function_id = self.function(&function.name, &function.file);
            lines.push(Line {
                function_id,
                line: i64::from(l.line),
            });
        }
        if lines.is_empty() {
            let function_id = self.function(&name::address(window, f), "");
            lines.push(Line {
                function_id,
                line: 0,
            });
        }
        let id = self.made_up(lines);
        self.locations.insert(frame, id);
        id
    }

    fn made_up(&mut self, line: Vec<Line>) -> u64 {
        let id = self.profile.location.len() as u64 + 1;
        self.profile.location.push(Location { id, line });
        id
    }

    /// A location of one of the contract's `[…]` frames.
    fn bracketed(&mut self, name: &str) -> u64 {
        let function_id = self.function(name, "");
        self.made_up(vec![Line {
            function_id,
            line: 0,
        }])
    }

    fn stack(&mut self, stack: Option<StackId>) -> Vec<u64> {
        let Some(id) = stack else {
            return vec![self.bracketed(NOT_SAMPLED)];
        };
        let stack = &self.window.stacks[id.0 as usize];
        let mut ids: Vec<u64> = stack.frames.iter().map(|f| self.location(*f)).collect();
        if ids.is_empty() {
            ids.push(self.bracketed(&name::no_frames(stack.end)));
        } else if !stack.end.is_whole() {
            ids.push(self.bracketed(&name::truncated(stack.end)));
        }
        ids
    }

    fn profile(mut self, kind: &str, times: Times) -> Profile {
        let value = ValueType {
            kind: self.string(kind),
            unit: self.string("nanoseconds"),
        };
        let key = self.string("reason");
        let mut times: Vec<_> = times.into_iter().collect();
        times.sort_unstable();
        for ((stack, reason), ns) in times {
            let location_id = self.stack(stack);
            let label = reason.map(|r| Label {
                key,
                str: self.string(r),
            });
            self.profile.sample.push(Sample {
                location_id,
                value: vec![i64::try_from(ns).unwrap_or(i64::MAX)],
                label: label.into_iter().collect(),
            });
        }
        let window = &self.window.window;
        Profile {
            sample_type: vec![value],
            period_type: Some(value),
            period: 1,
            time_nanos: window.start_unix_ns as i64,
            duration_nanos: window.length_ns() as i64,
            ..self.profile
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// The profiles in a body, with their labels in one line.
    fn profiles(body: &[u8]) -> HashMap<String, Profile> {
        let body: Value = serde_json::from_slice(body).unwrap();
        let of = |series: &Value| {
            let label = |l: &Value| {
                format!(
                    "{}={}",
                    l["name"].as_str().unwrap(),
                    l["value"].as_str().unwrap()
                )
            };
            let mut labels: Vec<String> = series["labels"]
                .as_array()
                .unwrap()
                .iter()
                .map(label)
                .collect();
            labels.sort();
            let raw = series["samples"][0]["rawProfile"].as_str().unwrap();
            let raw = base64::engine::general_purpose::STANDARD
                .decode(raw)
                .unwrap();
            let mut bytes = Vec::new();
            flate2::read::GzDecoder::new(&raw[..])
                .read_to_end(&mut bytes)
                .unwrap();
            (labels.join(","), Profile::decode(&bytes[..]).unwrap())
        };
        body["series"].as_array().unwrap().iter().map(of).collect()
    }

    #[test]
    fn each_state_of_each_service_sums_to_its_ledger() {
        let window = wallscope_synthetic::windows::window(3);
        let profiles = profiles(&push(&window).unwrap());
        assert_eq!(profiles.len(), 3 * 4);
        for service in ["checkout", "payments", "batch"] {
            let of = |state: Option<State>| -> u64 {
                let is = |i: usize| {
                    window.context_label(ContextId(i as u32), "service") == Some(service)
                };
                let contexts = window.contexts.iter().enumerate().filter(|(i, _)| is(*i));
                let ns = |l: &wallscope_model::Ledger| state.map_or(l.wall_ns, |s| l.state_ns(s));
                contexts.map(|(_, c)| ns(&c.ledger)).sum()
            };
            for (state, metric, kind) in TYPES {
                let p = &profiles[&format!("__name__={metric},service_name={service}")];
                let sum: i64 = p.sample.iter().flat_map(|s| &s.value).sum();
                assert_eq!(sum as u64, of(state), "{service} {metric}");
                let text = |id: i64| p.string_table[id as usize].as_str();
                let value = p.sample_type[0];
                assert_eq!((text(value.kind), text(value.unit)), (kind, "nanoseconds"));
                let ids: Vec<u64> = p.location.iter().map(|l| l.id).collect();
                assert!(
                    p.sample
                        .iter()
                        .flat_map(|s| &s.location_id)
                        .all(|id| ids.contains(id))
                );
                assert_eq!(p.duration_nanos, 10_000_000_000);
            }
        }
        let blocked = &profiles["__name__=blocked,service_name=checkout"];
        let reasons = blocked.sample.iter().flat_map(|s| &s.label);
        assert!(
            reasons
                .map(|l| blocked.string_table[l.str as usize].as_str())
                .all(|r| ["network", "disk"].contains(&r))
        );
    }
}
