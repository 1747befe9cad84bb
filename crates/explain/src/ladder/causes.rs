//! Rung 2: active wall time by cause, a cause being a state, a reason, and the program's own
//! function that led there.
//!
//! The innermost frame of a blocked stack is always the same few functions of libc. What a person
//! can act on is the innermost frame of the program itself: the first one towards the root that is
//! neither kernel nor a system library nor the language's standard library; where a script runs, the
//! script's. Inlined functions count for the function they were inlined into.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::scale::{NOT_SAMPLED, scale};
use wallscope_model::stats::{Interval, MAX_BLOCKS, share_interval};
use wallscope_model::{
    BlockReason, Frame, FrameKind, LabelValue, ModuleKind, Recording, Sample, Stack, State,
};

use super::{Bottleneck, parked};

/// Where a part of the active wall time went.
#[derive(Clone, Debug)]
pub struct Cause {
    /// The state.
    pub state: State,
    /// Block reason or part by the contract's name.
    pub reason: Option<&'static str>,
    /// The program's own function; `[not sampled]` where no stack says.
    pub function: Arc<str>,
    /// The file that function lies in, empty where unknown.
    pub module: Arc<str>,
    /// The innermost user function: how it waited.
    pub through: Arc<str>,
    /// What was waited for, where the recording names it: a lock, a file, a peer.
    pub resource: Option<Arc<str>>,
    /// Scaled time, ns.
    pub ns: u64,
    /// Its share of active wall time.
    pub share: f64,
    /// 95 % interval of that share.
    pub interval: Interval,
    /// How many threads spent it.
    pub threads: usize,
    /// The one that spent most.
    pub thread: Arc<str>,
}

/// The label that names what was waited for.
const RESOURCE: &str = "resource";
/// Folders of system libraries.
const SYSTEM: [&str; 4] = ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"];
/// How names of the languages' standard libraries begin, after `<` and `&` are passed over.
const STANDARD: [&str; 9] = [
    "std::",
    "core::",
    "alloc::",
    "__gnu_cxx::",
    "__cxxabiv1::",
    "__rust_",
    "__libc_",
    "_start",
    "hashbrown::",
];

#[derive(PartialEq, Eq, Hash, Clone)]
struct Key {
    state: State,
    reason: Option<&'static str>,
    function: Arc<str>,
    module: Arc<str>,
}

#[derive(Default)]
struct Sum {
    ns: u64,
    /// Samples by block of the recording, scaled time.
    blocks: Vec<f64>,
    samples: u64,
    threads: HashMap<u32, u64>,
    through: HashMap<Arc<str>, u64>,
    resources: HashMap<Arc<str>, u64>,
}

/// All causes, largest first.
pub(super) fn causes(recording: &Recording, bottleneck: &Bottleneck) -> Vec<Cause> {
    let scaled = scale(recording);
    let active: Vec<bool> = recording
        .contexts
        .iter()
        .map(|c| !parked(&c.ledger))
        .collect();
    let places: Vec<Place> = recording
        .stacks
        .iter()
        .map(|s| place(recording, s))
        .collect();
    let slices = recording.slices.count.max(1) as usize;
    let blocks = slices.min(MAX_BLOCKS);
    let mut sums: HashMap<Key, Sum> = HashMap::new();
    let mut whole = vec![0.0; blocks];
    let mut samples = 0;
    for piece in &scaled.pieces {
        let sample = &recording.samples[piece.sample as usize];
        if sample.idle || !active[piece.context.0 as usize] {
            continue;
        }
        let place = &places[sample.stack.0 as usize];
        let sum = sums
            .entry(Key {
                state: sample.state,
                reason: sample.reason_name(),
                function: place.function.clone(),
                module: place.module.clone(),
            })
            .or_default();
        sum.blocks.resize(blocks, 0.0);
        sum.ns += piece.ns;
        sum.samples += sample.count;
        samples += sample.count;
        *sum.threads.entry(piece.context.0).or_default() += piece.ns;
        *sum.through.entry(place.through.clone()).or_default() += piece.ns;
        if let Some(resource) = resource(recording, sample) {
            *sum.resources.entry(resource).or_default() += piece.ns;
        }
        let per_ns = piece.ns as f64 / sample.ns.max(1) as f64;
        for v in &sample.slices {
            let block = (v.slice as usize).min(slices - 1) * blocks / slices;
            sum.blocks[block] += v.ns as f64 * per_ns;
            whole[block] += v.ns as f64 * per_ns;
        }
    }
    for rest in &scaled.unsampled {
        if active[rest.context.0 as usize] {
            let sum = sums
                .entry(Key {
                    state: rest.state,
                    reason: rest.reason,
                    function: NOT_SAMPLED.into(),
                    module: "".into(),
                })
                .or_default();
            sum.blocks.resize(blocks, 0.0);
            sum.ns += rest.ns;
            *sum.threads.entry(rest.context.0).or_default() += rest.ns;
        }
    }
    let mut out: Vec<Cause> = sums
        .into_iter()
        .filter(|(_, sum)| sum.ns > 0)
        .map(|(key, sum)| {
            let share = bottleneck.share(sum.ns);
            let seen = share_interval(&sum.blocks, &whole, samples as f64);
            let estimate = sum.blocks.iter().sum::<f64>() / whole.iter().sum::<f64>().max(1.0);
            Cause {
                through: most(&sum.through).unwrap_or_else(|| "".into()),
                resource: most(&sum.resources),
                thread: sum
                    .threads
                    .iter()
                    .max_by_key(|(id, ns)| (**ns, std::cmp::Reverse(**id)))
                    .map_or_else(
                        || "".into(),
                        |(id, _)| recording.contexts[*id as usize].name.clone(),
                    ),
                threads: sum.threads.len(),
                interval: if sum.samples == 0 {
                    Interval {
                        low: share,
                        high: share,
                    }
                } else {
                    Interval {
                        low: (share - (estimate - seen.low)).clamp(0.0, share),
                        high: (share + (seen.high - estimate)).clamp(share, 1.0),
                    }
                },
                state: key.state,
                reason: key.reason,
                function: key.function,
                module: key.module,
                ns: sum.ns,
                share,
            }
        })
        .collect();
    out.sort_by(|a, b| {
        (b.ns, &a.function, a.reason, a.state as u8).cmp(&(
            a.ns,
            &b.function,
            b.reason,
            b.state as u8,
        ))
    });
    out
}

fn most(of: &HashMap<Arc<str>, u64>) -> Option<Arc<str>> {
    of.iter()
        .max_by_key(|(name, ns)| (**ns, std::cmp::Reverse((*name).clone())))
        .map(|(name, _)| name.clone())
}

fn resource(recording: &Recording, sample: &Sample) -> Option<Arc<str>> {
    let set = recording.label_sets.get(sample.labels?.0 as usize)?;
    let label = set.iter().find(|l| &*l.key == RESOURCE)?;
    match &label.value {
        LabelValue::Text(text) => Some(text.clone()),
        LabelValue::Number(..) => None,
    }
}

struct Place {
    function: Arc<str>,
    module: Arc<str>,
    through: Arc<str>,
}

/// The program's own function of a stack, and the innermost user function.
fn place(recording: &Recording, stack: &Stack) -> Place {
    let frames = || {
        stack
            .frames
            .iter()
            .map(|id| &recording.frames[id.0 as usize])
    };
    let user = || frames().filter(|f| f.kind != FrameKind::Kernel);
    let innermost = user().next().or_else(|| frames().next());
    let scripts = || user().filter(|f| matches!(f.kind, FrameKind::Python | FrameKind::Java));
    let own = scripts()
        .find(|f| is_own(recording, f))
        .or_else(|| scripts().next())
        .or_else(|| user().find(|f| is_own(recording, f)))
        .or(innermost);
    let nothing = || Arc::from(format!("[{}]", stack.end.name()));
    Place {
        function: own.map_or_else(nothing, |f| name(recording, f)),
        module: own.and_then(|f| f.module).map_or_else(
            || "".into(),
            |m| recording.modules[m.0 as usize].name().into(),
        ),
        through: innermost.map_or_else(nothing, |f| name(recording, f)),
    }
}

/// The function that a frame's code was compiled for; those inlined into it count for it.
fn name(recording: &Recording, frame: &Frame) -> Arc<str> {
    if let Some(line) = frame.lines.last() {
        return recording.functions[line.function.0 as usize].name.clone();
    }
    match frame.module.map(|m| &recording.modules[m.0 as usize]) {
        Some(module) => format!("{}+0x{:x}", module.name(), frame.address).into(),
        None => format!("[0x{:x}]", frame.address).into(),
    }
}

fn is_own(recording: &Recording, frame: &Frame) -> bool {
    let Some(module) = frame.module.map(|m| &recording.modules[m.0 as usize]) else {
        return frame.kind == FrameKind::Jit;
    };
    match module.kind {
        ModuleKind::Jit => return true,
        ModuleKind::Source if frame.kind == FrameKind::Java => {
            return !is_java_standard(&name(recording, frame));
        }
        ModuleKind::Source => return !is_python_standard(&module.path),
        _ => {}
    }
    let library =
        module.name().contains(".so") && SYSTEM.iter().any(|s| module.path.starts_with(s));
    if module.kind != ModuleKind::Elf || library {
        return false;
    }
    match frame.lines.last() {
        Some(line) => !is_standard(&recording.functions[line.function.0 as usize].name),
        None => true,
    }
}

/// Python's own library, by where it lies; packages that were installed are the program's.
fn is_python_standard(path: &str) -> bool {
    let installed = path.contains("/site-packages/") || path.contains("/dist-packages/");
    path.starts_with('<') || (path.contains("/lib/python3") && !installed)
}

/// The classes that come with every Java.
fn is_java_standard(method: &str) -> bool {
    const PACKAGES: [&str; 5] = ["java.", "javax.", "jdk.", "sun.", "com.sun."];
    PACKAGES.iter().any(|p| method.starts_with(p))
}

fn is_standard(function: &str) -> bool {
    let bare = function.trim_start_matches(['<', '&', '(', '*']);
    STANDARD.iter().any(|s| bare.starts_with(s))
}

/// The largest cause among those of `state` and, for blocked ones, `reason`.
pub(super) fn largest(
    causes: &[Cause],
    state: State,
    reason: Option<BlockReason>,
) -> Option<&Cause> {
    causes.iter().find(|c| {
        c.state == state
            && reason.is_none_or(|r| c.reason == Some(r.name()))
            && !c.function.starts_with('[')
    })
}
