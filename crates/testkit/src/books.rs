//! Books of a recording: all that was judged, as `report --json` tells it. Fixtures of replays keep them.

use std::path::Path;

use serde_json::{Map, Value};

use crate::{Error, Tool};

/// Parts of a report that the recorder's judgements decide.
const ALL: &[&str] = &[
    "window",
    "total",
    "threads",
    "views",
    "timeline",
    "losses",
    "processes",
    "stacks",
    "shapes",
    "peers",
    "tasks",
    "gc",
    "reasons",
    "blame",
];
/// Those of them that tell how time is divided among slices.
const BY_SLICE: &[&str] = &["window", "total", "threads", "views"];
/// The whole time, and two stretches of it: names, arguments and parts.
const STRETCHES: [(&str, &[&str], &[&str]); 3] = [
    ("whole", &[], ALL),
    ("early", &["--time", "0.2..0.5"], BY_SLICE),
    ("late", &["--time", "0.9..1.2"], BY_SLICE),
];

/// The books of a recording: ledgers, samples and intervals, but for figures of zero.
///
/// # Errors
/// `report` fails.
pub fn of(tool: &Tool, recording: &Path) -> Result<Value, Error> {
    let mut books = Map::new();
    for (name, time, keys) in STRETCHES {
        let mut arguments = vec!["report".as_ref(), "--json".as_ref(), recording.as_os_str()];
        arguments.extend(time.iter().map(std::ffi::OsStr::new));
        let output = tool.run(&arguments)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Error::Output(format!("report: {}: {said}", output.status)));
        }
        let mut report: Value = serde_json::from_slice(&output.stdout)
            .map_err(|e| Error::Output(format!("report --json: {e}")))?;
        let parts = keys
            .iter()
            .map(|key| (key.to_string(), report[*key].take()));
        let mut parts = Value::Object(parts.collect());
        shorten(&mut parts);
        books.insert(name.into(), parts);
    }
    Ok(Value::Object(books))
}

/// Removes values that are zero or empty.
fn shorten(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(shorten);
            fields.retain(|_, value| !is_empty(value));
        }
        Value::Array(values) => values.iter_mut().for_each(shorten),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Object(fields) => fields.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Bool(_) | Value::String(_) => false,
    }
}

/// The first place at which two books differ, with both values.
pub fn difference(told: &Value, expected: &Value) -> Option<String> {
    if told == expected {
        return None;
    }
    let within = |key: &str, one: &Value, other: &Value| {
        difference(one, other).map(|difference| format!("{key}/{difference}"))
    };
    match (told, expected) {
        (Value::Object(one), Value::Object(other)) => {
            let mut keys: Vec<&String> = one.keys().chain(other.keys()).collect();
            keys.sort();
            keys.iter().find_map(|key| {
                let value = |of: &Map<String, Value>| of.get(*key).cloned().unwrap_or_default();
                within(key, &value(one), &value(other))
            })
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let mut pairs = one.iter().zip(other).enumerate();
            pairs.find_map(|(at, (one, other))| within(&at.to_string(), one, other))
        }
        _ => Some(format!(": {told:#}\nexpected: {expected:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_difference_is_found_at_its_place() {
        let books =
            |ns: u64| json!({"whole": {"threads": [{"tid": 7}, {"tid": 8, "wall_ns": ns}]}});
        assert_eq!(difference(&books(5), &books(5)), None);
        let said = difference(&books(5), &books(6)).unwrap();
        assert!(said.starts_with("whole/threads/1/wall_ns/: 5"), "{said}");
        let more = json!({"whole": {"threads": []}});
        assert!(difference(&books(5), &more).is_some());
        assert!(difference(&json!({}), &json!({"late": {}})).is_some());
    }

    #[test]
    fn zeros_go_and_places_in_lists_stay() {
        let mut books =
            json!({"a": 0, "b": {"c": 0.0, "d": null}, "e": [0, {"f": 0}], "g": [], "h": ""});
        shorten(&mut books);
        assert_eq!(books, json!({"e": [0, {}], "h": ""}));
    }
}
