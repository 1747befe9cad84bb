//! OpenTelemetry's process context: resource attributes that an SDK publishes in its own memory.
//!
//! Source: OTEP 4719, version 2 of the header, status development. A mapping named `OTEL_CTX` begins with
//! `signature[8] "OTEL_CTX", version u32, payload_size u32, published_at_ns u64, payload pointer u64`. The
//! payload is a protobuf `Resource`. The publisher writes the signature last and zeroes `published_at_ns`
//! during an update, so a reader that finds one time before and after the payload has a whole one.
//!
//! The memory belongs to the target: sizes are bounded, and a damaged header or payload is no context.

use std::collections::BTreeMap;

use prost::Message;
use wallscope_procfs::maps;

/// Most bytes of a payload.
const MAX_PAYLOAD: u32 = 64 << 10;
/// Reads of one header before it is given up: an update takes microseconds.
const ATTEMPTS: usize = 3;
const SIGNATURE: &[u8; 8] = b"OTEL_CTX";
const VERSION: u32 = 2;
const HEADER: usize = 32;

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

/// Attributes of other types than text name no service.
#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
}

/// Reads `length` bytes at an address of a process; `None`: they are not there.
pub(super) type Memory<'a> = &'a dyn Fn(u64, usize) -> Option<Vec<u8>>;

/// The attributes that a process publishes; `maps` is its `/proc/PID/maps`.
pub(super) fn read(maps: &str, memory: Memory) -> BTreeMap<String, String> {
    let is_context = |line: &&str| line.contains("OTEL_CTX");
    let mappings = maps.lines().filter(is_context).filter_map(maps::parse_line);
    let mut contexts = mappings.filter_map(|m| context(m.start, memory));
    contexts.next().unwrap_or_default()
}

struct Header {
    published_at_ns: u64,
    size: u32,
    payload: u64,
}

fn header(at: u64, memory: Memory) -> Option<Header> {
    let bytes = memory(at, HEADER).filter(|b| b.len() == HEADER)?;
    let word = |from: usize| {
        bytes[from..from + 4]
            .try_into()
            .map(u32::from_le_bytes)
            .ok()
    };
    let wide = |from: usize| {
        bytes[from..from + 8]
            .try_into()
            .map(u64::from_le_bytes)
            .ok()
    };
    let is_known = bytes.starts_with(SIGNATURE) && word(8)? == VERSION;
    let header = Header {
        size: word(12)?,
        published_at_ns: wide(16)?,
        payload: wide(24)?,
    };
    is_known.then_some(header)
}

fn context(at: u64, memory: Memory) -> Option<BTreeMap<String, String>> {
    for _ in 0..ATTEMPTS {
        let before = header(at, memory)?;
        if before.published_at_ns == 0 || before.size > MAX_PAYLOAD {
            continue;
        }
        let payload = memory(before.payload, before.size as usize)?;
        if header(at, memory)?.published_at_ns != before.published_at_ns {
            continue;
        }
        let resource = Resource::decode(&payload[..]).ok()?;
        let text = |a: KeyValue| Some((a.key, a.value?.text?));
        return Some(resource.attributes.into_iter().filter_map(text).collect());
    }
    None
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const AT: u64 = 0x7000_0000;
    const MAPS: &str = "\
00400000-00401000 r-xp 00000000 fe:00 1 /usr/bin/app
70000000-70001000 rw-s 00000000 00:01 99 /memfd:OTEL_CTX (deleted)
";

    fn payload() -> Vec<u8> {
        let attribute = |key: &str, text: Option<&str>| KeyValue {
            key: key.to_string(),
            value: text.map(|t| AnyValue {
                text: Some(t.to_string()),
            }),
        };
        Resource {
            attributes: vec![
                attribute("service.name", Some("checkout")),
                attribute("service.version", Some("1.4")),
                attribute("empty", None),
            ],
        }
        .encode_to_vec()
    }

    fn memory(version: u32, published: u64, size: u32) -> Vec<u8> {
        let mut page = Vec::new();
        page.extend(SIGNATURE);
        page.extend(version.to_le_bytes());
        page.extend(size.to_le_bytes());
        page.extend(published.to_le_bytes());
        page.extend((AT + 40).to_le_bytes());
        page.extend([0; 8]);
        page.extend(payload());
        page
    }

    fn at(page: &[u8], from: u64, length: usize) -> Option<Vec<u8>> {
        let from = usize::try_from(from.checked_sub(AT)?).ok()?;
        page.get(from..from.checked_add(length)?)
            .map(<[u8]>::to_vec)
    }

    #[test]
    fn a_published_context_is_read() {
        let page = memory(2, 17, payload().len() as u32);
        let read = super::read(MAPS, &|from, length| at(&page, from, length));
        assert_eq!(
            format!("{read:?}"),
            r#"{"service.name": "checkout", "service.version": "1.4"}"#
        );
        let named = MAPS.replace("/memfd:OTEL_CTX (deleted)", "[anon:OTEL_CTX]");
        assert_eq!(
            super::read(&named, &|from, length| at(&page, from, length)),
            read
        );
    }

    #[test]
    fn anything_else_is_no_context() {
        let size = payload().len() as u32;
        for page in [
            memory(1, 17, size),
            memory(2, 0, size),
            memory(2, 17, size + 1000),
            memory(2, 17, u32::MAX),
            memory(2, 17, size - 3),
            Vec::new(),
        ] {
            let read = super::read(MAPS, &|from, length| at(&page, from, length));
            assert_eq!(read, BTreeMap::new());
        }
        assert_eq!(super::read("", &|_, _| None), BTreeMap::new());
    }

    #[test]
    fn a_context_that_changes_is_read_again() {
        let (old, new) = (memory(2, 17, 5), memory(2, 18, payload().len() as u32));
        let reads = Cell::new(0);
        let read = super::read(MAPS, &|from, length| {
            reads.set(reads.get() + 1);
            // The update comes after the first header.
            at(if reads.get() == 1 { &old } else { &new }, from, length)
        });
        assert_eq!((read.len(), reads.get()), (2, 6));
    }

    #[test]
    fn the_memory_of_a_process_is_read() {
        // This process publishes: a page of a file with the right name.
        let file = rustix::fs::memfd_create("OTEL_CTX", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(file);
        std::io::Write::write_all(&mut file, &[0; 4096]).unwrap();
        // SAFETY: a new mapping that nothing else refers to.
        let page = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                4096,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::SHARED,
                &file,
                0,
            )
        }
        .unwrap();
        let mut bytes = memory(2, 17, payload().len() as u32);
        bytes[24..32].copy_from_slice(&(page as u64 + 40).to_le_bytes());
        // SAFETY: the mapping has 4096 bytes, and no reference to them exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), page.cast(), bytes.len()) };
        let process = wallscope_model::Process {
            pid: std::process::id(),
            ..Default::default()
        };
        let facts = super::super::Facts::read(&process);
        assert_eq!(
            facts.context.get("service.name").map(String::as_str),
            Some("checkout")
        );
    }
}
