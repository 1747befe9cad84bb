//! Events by name, as people know them from `perf list`: software, hardware, caches, raw codes,
//! tracepoints, and the events that the kernel lists under `/sys/bus/event_source/devices`.
//!
//! A name gives an event's attributes. Whether the kernel permits the event shows only when it is opened.
//! Modifiers follow a colon: `u` user mode only, `k` kernel only, `p` and `pp` as precise as the CPU offers.

use std::{fs, path::Path};
use wallscope_procfs::kernel_file;

use perf_event_open_sys::bindings as b;

use super::{
    device,
    event_spec::{EventSpec, Source},
};

/// Why a name gives no event here.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// No event has this name.
    #[error("no event '{name}'; {hint}")]
    Unknown {
        /// The name.
        name: String,
        /// Similar names, or where to find names.
        hint: String,
    },
    /// A tracepoint's number cannot be read.
    #[error(
        "cannot read the tracepoint '{name}' ({path}): {cause}; root can, where tracefs is mounted \
         (mount -t tracefs tracefs /sys/kernel/tracing)"
    )]
    Tracepoint {
        /// Its name.
        name: String,
        /// The file.
        path: String,
        /// Why.
        cause: std::io::Error,
    },
    /// The part after the colon.
    #[error("'{modifier}' in '{name}' is no modifier; u, k, p and pp are")]
    Modifier {
        /// The event.
        name: String,
        /// The text after the colon.
        modifier: String,
    },
}

impl EventSpec {
    /// The event of this name.
    ///
    /// # Errors
    /// There is none, or its number cannot be read.
    pub fn parse(text: &str) -> Result<EventSpec, EventError> {
        let text = text.trim();
        if let Some(mut spec) = plain(text)? {
            spec.name = text.to_string();
            return Ok(spec);
        }
        if let Some((name, modifier)) = text.rsplit_once(':') {
            // A tracepoint has a colon of its own.
            if let Ok(Some(mut spec)) = plain(name) {
                spec.modify(text, modifier)?;
                spec.name = text.to_string();
                return Ok(spec);
            }
            if !name.is_empty() && !modifier.is_empty() {
                return tracepoint(text);
            }
        }
        Err(EventError::Unknown {
            name: text.to_string(),
            hint: hint(text),
        })
    }

    fn modify(&mut self, name: &str, modifier: &str) -> Result<(), EventError> {
        for c in modifier.chars() {
            match c {
                'u' => self.only.0 = true,
                'k' => self.only.1 = true,
                'p' if self.precise < 3 => self.precise += 1,
                _ => {
                    return Err(EventError::Modifier {
                        name: name.to_string(),
                        modifier: modifier.to_string(),
                    });
                }
            }
        }
        if self.only == (true, true) {
            self.only = (false, false);
        }
        Ok(())
    }
}

/// Software events: name, number.
const SOFTWARE: &[(&str, u32)] = &[
    ("cpu-clock", b::PERF_COUNT_SW_CPU_CLOCK),
    ("task-clock", b::PERF_COUNT_SW_TASK_CLOCK),
    ("page-faults", b::PERF_COUNT_SW_PAGE_FAULTS),
    ("faults", b::PERF_COUNT_SW_PAGE_FAULTS),
    ("minor-faults", b::PERF_COUNT_SW_PAGE_FAULTS_MIN),
    ("major-faults", b::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
    ("context-switches", b::PERF_COUNT_SW_CONTEXT_SWITCHES),
    ("cs", b::PERF_COUNT_SW_CONTEXT_SWITCHES),
    ("cpu-migrations", b::PERF_COUNT_SW_CPU_MIGRATIONS),
    ("migrations", b::PERF_COUNT_SW_CPU_MIGRATIONS),
    ("alignment-faults", b::PERF_COUNT_SW_ALIGNMENT_FAULTS),
    ("emulation-faults", b::PERF_COUNT_SW_EMULATION_FAULTS),
    ("cgroup-switches", b::PERF_COUNT_SW_CGROUP_SWITCHES),
];

/// Hardware events: name, number.
const HARDWARE: &[(&str, u32)] = &[
    ("cycles", b::PERF_COUNT_HW_CPU_CYCLES),
    ("cpu-cycles", b::PERF_COUNT_HW_CPU_CYCLES),
    ("instructions", b::PERF_COUNT_HW_INSTRUCTIONS),
    ("cache-references", b::PERF_COUNT_HW_CACHE_REFERENCES),
    ("cache-misses", b::PERF_COUNT_HW_CACHE_MISSES),
    ("branches", b::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    ("branch-instructions", b::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    ("branch-misses", b::PERF_COUNT_HW_BRANCH_MISSES),
    ("bus-cycles", b::PERF_COUNT_HW_BUS_CYCLES),
    ("ref-cycles", b::PERF_COUNT_HW_REF_CPU_CYCLES),
    (
        "stalled-cycles-frontend",
        b::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
    ),
    (
        "stalled-cycles-backend",
        b::PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
    ),
];

/// Caches by name and number.
const CACHES: &[(&str, u32)] = &[
    ("L1-dcache", b::PERF_COUNT_HW_CACHE_L1D),
    ("L1-icache", b::PERF_COUNT_HW_CACHE_L1I),
    ("LLC", b::PERF_COUNT_HW_CACHE_LL),
    ("dTLB", b::PERF_COUNT_HW_CACHE_DTLB),
    ("iTLB", b::PERF_COUNT_HW_CACHE_ITLB),
    ("branch", b::PERF_COUNT_HW_CACHE_BPU),
    ("node", b::PERF_COUNT_HW_CACHE_NODE),
];

/// Accesses of caches: name, operation, result.
const ACCESSES: &[(&str, u32, u32)] = &[
    (
        "loads",
        b::PERF_COUNT_HW_CACHE_OP_READ,
        b::PERF_COUNT_HW_CACHE_RESULT_ACCESS,
    ),
    (
        "load-misses",
        b::PERF_COUNT_HW_CACHE_OP_READ,
        b::PERF_COUNT_HW_CACHE_RESULT_MISS,
    ),
    (
        "stores",
        b::PERF_COUNT_HW_CACHE_OP_WRITE,
        b::PERF_COUNT_HW_CACHE_RESULT_ACCESS,
    ),
    (
        "store-misses",
        b::PERF_COUNT_HW_CACHE_OP_WRITE,
        b::PERF_COUNT_HW_CACHE_RESULT_MISS,
    ),
    (
        "prefetches",
        b::PERF_COUNT_HW_CACHE_OP_PREFETCH,
        b::PERF_COUNT_HW_CACHE_RESULT_ACCESS,
    ),
    (
        "prefetch-misses",
        b::PERF_COUNT_HW_CACHE_OP_PREFETCH,
        b::PERF_COUNT_HW_CACHE_RESULT_MISS,
    ),
];

/// Names between commas; those within slashes belong to an event.
pub fn split(list: &str) -> Vec<&str> {
    let (mut out, mut start, mut inside) = (Vec::new(), 0, false);
    for (i, c) in list.char_indices() {
        match c {
            '/' => inside = !inside,
            ',' if !inside => {
                out.push(&list[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(&list[start..]);
    out.retain(|name| !name.trim().is_empty());
    out
}

/// An event without modifiers; `None`: not of these kinds.
fn plain(name: &str) -> Result<Option<EventSpec>, EventError> {
    if let Some((_, number)) = SOFTWARE.iter().find(|(n, _)| *n == name) {
        let mut spec = EventSpec::new(
            name,
            Source::Software,
            b::PERF_TYPE_SOFTWARE,
            u64::from(*number),
        );
        spec.is_time = name.ends_with("-clock");
        return Ok(Some(spec));
    }
    let hardware = |kind, config| Some(EventSpec::new(name, Source::Hardware, kind, config));
    if let Some((_, number)) = HARDWARE.iter().find(|(n, _)| *n == name) {
        return Ok(hardware(b::PERF_TYPE_HARDWARE, u64::from(*number)));
    }
    for (cache, number) in CACHES {
        let access = name.strip_prefix(cache).and_then(|n| n.strip_prefix('-'));
        let known = ACCESSES.iter().find(|(n, ..)| Some(*n) == access);
        if let Some((_, operation, result)) = known {
            let config = number | operation << 8 | result << 16;
            return Ok(hardware(b::PERF_TYPE_HW_CACHE, u64::from(config)));
        }
    }
    if let Some(code) = name.strip_prefix('r')
        && !code.is_empty()
        && let Ok(config) = u64::from_str_radix(code, 16)
    {
        return Ok(hardware(b::PERF_TYPE_RAW, config));
    }
    Ok(device::event(name))
}

/// The folder of the kernel's tracepoints.
pub fn tracing() -> &'static Path {
    let new = Path::new("/sys/kernel/tracing");
    if new.join("events").is_dir() {
        new
    } else {
        Path::new("/sys/kernel/debug/tracing")
    }
}

fn tracepoint(name: &str) -> Result<EventSpec, EventError> {
    let (group, event) = name.split_once(':').unwrap_or((name, ""));
    let unknown = || EventError::Unknown {
        name: name.to_string(),
        hint: hint(name),
    };
    if [group, event].iter().any(|part| part.contains(['/', '.'])) {
        return Err(unknown());
    }
    let folder = tracing().join("events").join(group);
    let path = folder.join(event).join("id");
    let text = match kernel_file::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && tracing().join("events").is_dir() => {
            return Err(unknown());
        }
        Err(cause) => {
            return Err(EventError::Tracepoint {
                name: name.to_string(),
                path: path.display().to_string(),
                cause,
            });
        }
    };
    let id = text.trim().parse().map_err(|_| unknown())?;
    Ok(EventSpec::new(
        name,
        Source::Tracepoint,
        b::PERF_TYPE_TRACEPOINT,
        id,
    ))
}

/// Names like `name`, or where to find some.
fn hint(name: &str) -> String {
    let mut names: Vec<String> = SOFTWARE
        .iter()
        .chain(HARDWARE)
        .map(|(n, _)| (*n).to_string())
        .collect();
    for (cache, _) in CACHES {
        names.extend(
            ACCESSES
                .iter()
                .map(|(access, ..)| format!("{cache}-{access}")),
        );
    }
    if let Some((group, _)) = name.split_once(':') {
        let folder = tracing().join("events").join(group);
        let events = fs::read_dir(folder).into_iter().flatten().flatten();
        names = events
            .filter(|e| e.path().is_dir())
            .map(|e| format!("{group}:{}", e.file_name().to_string_lossy()))
            .collect();
    }
    let mut near: Vec<(usize, String)> = names
        .into_iter()
        .map(|n| (distance(&n, name), n))
        .filter(|(d, n)| *d <= 3 || n.contains(name))
        .collect();
    near.sort();
    near.truncate(4);
    match near.as_slice() {
        [] => "events are software (page-faults, context-switches…), hardware (cycles, \
               LLC-load-misses…), raw (r1a8), a device's (cpu/event=0x3c/) and tracepoints \
               (sched:sched_switch; see /sys/kernel/tracing/available_events)"
            .to_string(),
        near => {
            let near: Vec<&str> = near.iter().map(|(_, n)| n.as_str()).collect();
            format!("there are {}", near.join(", "))
        }
    }
}

/// Levenshtein distance of two names, in letters.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let change = before + usize::from(x != y);
            before = row[j + 1];
            row[j + 1] = change.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.chars().count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_people_know() {
        let faults = EventSpec::parse("page-faults").unwrap();
        assert_eq!((faults.kind, faults.config), (1, 2));
        let misses = EventSpec::parse("dTLB-load-misses").unwrap();
        assert_eq!((misses.kind, misses.config), (3, 0x1_0003));
        let raw = EventSpec::parse("r1a8:u").unwrap();
        assert_eq!((raw.kind, raw.config, raw.only), (4, 0x1a8, (true, false)));
        assert_eq!(raw.name, "r1a8:u");
        assert_eq!(EventSpec::parse("cycles:pp").unwrap().precise, 2);
        assert_eq!(EventSpec::parse("cycles:uk").unwrap().only, (false, false));
        assert!(EventSpec::parse("task-clock").unwrap().is_time);
        let wrong = EventSpec::parse("cycles:x").unwrap_err().to_string();
        assert!(wrong.contains("modifier"), "{wrong}");
    }

    #[test]
    fn a_wrong_name_is_answered_with_near_ones() {
        let said = EventSpec::parse("page-fault").unwrap_err().to_string();
        assert!(said.contains("page-faults"), "{said}");
        let said = EventSpec::parse("no-such-thing-at-all")
            .unwrap_err()
            .to_string();
        assert!(said.contains("tracepoints"), "{said}");
        assert!(EventSpec::parse("../..:../../etc/passwd").is_err());
        assert!(EventSpec::parse("").is_err());
    }

    #[test]
    fn lists_are_split_outside_of_slashes() {
        assert_eq!(
            split("cycles,cpu/event=0x3c,umask=1/,faults,"),
            ["cycles", "cpu/event=0x3c,umask=1/", "faults"]
        );
    }
}
