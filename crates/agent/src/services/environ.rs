//! Resource attributes in the environment, as OpenTelemetry's SDKs read them.

use std::collections::BTreeMap;

/// Most bytes of a value.
const MAX_VALUE: usize = 256;

/// The resource attributes of an environment. `OTEL_SERVICE_NAME` wins over `OTEL_RESOURCE_ATTRIBUTES`.
pub(super) fn resource(environ: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut resource = BTreeMap::new();
    let list = environ.get("OTEL_RESOURCE_ATTRIBUTES");
    for pair in list.iter().flat_map(|l| l.split(',')) {
        if let Some((key, value)) = pair.split_once('=') {
            put(&mut resource, &decoded(key), &decoded(value));
        }
    }
    if let Some(name) = environ.get("OTEL_SERVICE_NAME") {
        put(&mut resource, "service.name", name);
    }
    resource
}

fn put(resource: &mut BTreeMap<String, String>, key: &str, value: &str) {
    let (key, value) = (key.trim(), value.trim());
    if !key.is_empty() && !value.is_empty() && value.len() <= MAX_VALUE {
        resource.insert(key.to_string(), value.to_string());
    }
}

/// Undoes percent encoding.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
