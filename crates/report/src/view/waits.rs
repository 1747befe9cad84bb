//! Why it waited: hops scaled to the ledger, and what the views of waits are made from.

use std::sync::Arc;

use wallscope_model::{Above, Actor, FrameKind, Hop, LabelValue, LabelsId, Role, StackId};

use super::Analysis;

/// The key of the label that says what a thread waited for.
pub const RESOURCE: &str = "resource";

/// Code that waits on behalf of somebody, and is not who people mean.
const MACHINERY: &[&str] = &[
    "std::",
    "core::",
    "alloc::",
    "<std::",
    "<core::",
    "<alloc::",
    "parking_lot",
    "tokio::",
    "crossbeam",
    "pthread_",
    "__",
    "_start",
    "start_thread",
    "clone",
    "futex_",
    "syscall",
    "java.lang.Object.wait",
    "java.util.concurrent.locks.",
    "jdk.internal.misc.",
];

/// How modules are called that run managed code, or only lead from it to C.
const VMS: &[&str] = &[
    "libjvm.so",
    "libpython",
    "python",
    "_ctypes.",
    "libffi.so",
    "node",
    "libnode.so",
];

/// Parts of the paths of sources that are not the program's own: inlined functions of libraries have
/// the program's module, and in line tables bare names.
const FILES: &[&str] = &[
    "/rustc/",
    "/.cargo/registry/",
    "/usr/include/",
    "/usr/src/",
    "/usr/lib/",
    "/usr/local/lib/",
    "/site-packages/",
    "/lib/python3",
    "node:",
];

/// The hops of a recording, scaled.
pub struct Waits {
    /// Scaled time of each hop, ns; children never sum to more than their parent.
    pub ns: Vec<u64>,
    /// Hops below each sample.
    pub below_sample: Vec<Vec<u32>>,
    /// Hops below each hop.
    pub below: Vec<Vec<u32>>,
    /// Scaled time of each sample, ns.
    pub sample_ns: Vec<u64>,
}

impl Analysis<'_> {
    /// The recording's hops, scaled as its samples are.
    pub fn waits(&self) -> Waits {
        let rec = self.recording;
        let mut sample_ns = vec![0u64; rec.samples.len()];
        for p in self.pieces() {
            sample_ns[p.sample as usize] += p.ns;
        }
        let mut below_sample = vec![Vec::new(); rec.samples.len()];
        let mut below = vec![Vec::new(); rec.hops.len()];
        let mut ns = vec![0u64; rec.hops.len()];
        // By parent: how much of its unscaled time was given, so that parts are rounded to sum.
        let mut given_samples = vec![0u64; rec.samples.len()];
        let mut given_hops = vec![0u64; rec.hops.len()];
        for (i, hop) in rec.hops.iter().enumerate() {
            let (whole, scaled, given) = match hop.above {
                Above::Sample(s) => {
                    let s = s as usize;
                    below_sample[s].push(i as u32);
                    (rec.samples[s].ns, sample_ns[s], &mut given_samples[s])
                }
                Above::Hop(h) => {
                    let h = h as usize;
                    below[h].push(i as u32);
                    (rec.hops[h].ns, ns[h], &mut given_hops[h])
                }
            };
            let upto = |part: u64| {
                let part = u128::from(part.min(whole));
                (u128::from(scaled) * part / u128::from(whole.max(1))) as u64
            };
            let before = upto(*given);
            *given = given.saturating_add(hop.ns);
            ns[i] = upto(*given) - before;
        }
        Waits {
            ns,
            below_sample,
            below,
            sample_ns,
        }
    }

    /// What a set of labels says was waited for.
    pub fn resource(&self, labels: Option<LabelsId>) -> Option<Arc<str>> {
        let set = self.recording.label_sets.get(labels?.0 as usize)?;
        set.iter().find_map(|l| match &l.value {
            LabelValue::Text(text) if &*l.key == RESOURCE => Some(text.clone()),
            _ => None,
        })
    }

    /// Who a hop is about, in words.
    pub fn actor(&self, hop: &Hop) -> String {
        match &self.recording.actors[hop.actor.0 as usize] {
            Actor::Context(c) => self.recording.contexts[c.0 as usize].name.to_string(),
            Actor::Stranger { pid: 0, .. } => "an idle CPU".into(),
            Actor::Stranger { pid, name, .. } => format!("{name} ({pid}, not measured)"),
            Actor::Interrupt(served) if served.is_empty() => "an interrupt".into(),
            Actor::Interrupt(served) => format!("a {served} interrupt"),
            Actor::Unknown => "nobody yet".into(),
        }
    }

    /// The frame that stands for who ended a wait, or had what was waited for.
    pub fn ender(&self, hop: &Hop) -> String {
        let how = match hop.role {
            Role::Held => "held",
            _ => "woken",
        };
        format!("[{how} by {}]", self.actor(hop))
    }

    /// The function of a stack that people would name: the innermost of the program's own, not of
    /// the C library, of a runtime's locks, or of a library that came as source. Kernel functions only
    /// where there is nothing else.
    pub fn place(&self, stack: StackId) -> Option<String> {
        let rec = self.recording;
        let of_others = |file: &str| FILES.iter().any(|f| file.contains(f));
        let files: Vec<bool> = rec.stacks[stack.0 as usize]
            .frames
            .iter()
            .flat_map(|f| {
                let lines = &rec.frames[f.0 as usize].lines;
                // An address without a name is one frame too.
                let unnamed = lines.is_empty().then_some(false);
                let named = lines.iter();
                named
                    .map(move |l| of_others(&rec.functions[l.function.0 as usize].file))
                    .chain(unnamed)
            })
            .collect();
        let frames = self.frames(&rec.stacks[stack.0 as usize]);
        let user = || {
            frames
                .iter()
                .zip(&files)
                .filter(|(f, _)| f.function.kind != FrameKind::Kernel)
        };
        let own = |and_vms: bool| {
            user().find(|(f, of_others)| {
                let library = [
                    "libc.so",
                    "libc-",
                    "libpthread",
                    "ld-linux",
                    "[vdso]",
                    "libstdc++",
                ];
                let (name, module) = (&*f.function.name, &*f.function.module);
                !**of_others
                    && !library.iter().any(|l| module.starts_with(l))
                    && !MACHINERY.iter().any(|m| name.starts_with(m))
                    && !name.ends_with(" Runtime1 stub")
                    && (and_vms || !VMS.iter().any(|vm| module.starts_with(vm)))
            })
        };
        // A runtime's own functions only where it runs nothing for the program.
        let own = own(false).or_else(|| own(true));
        let user = own.or_else(|| user().next()).map(|(f, _)| f);
        let chosen = user.or_else(|| frames.first())?;
        Some(chosen.function.name.to_string())
    }

    /// What somebody does in a hop, as one line of a tree.
    pub fn hop_line(&self, hop: &Hop) -> String {
        hop_line(self, hop)
    }

    /// All functions of a stack, leaf first, as folded output has them.
    pub fn folded_frames(&self, stack: StackId) -> Vec<String> {
        self.frames(&self.recording.stacks[stack.0 as usize])
            .iter()
            .map(|f| format!("{}{}", f.function.name, f.suffix()))
            .collect()
    }
}

/// See [`Analysis::hop_line`].
pub(super) fn hop_line(a: &Analysis<'_>, hop: &Hop) -> String {
    let place = hop.stack.and_then(|s| a.place(s));
    let at = |word: &str| {
        place
            .as_ref()
            .map_or(String::new(), |p| format!(" {word} {p}"))
    };
    let who = a.actor(hop);
    match hop.role {
        Role::Woke => match a.recording.actors[hop.actor.0 as usize] {
            Actor::Context(_) => format!("woken by {who}{}", at("in")),
            Actor::Unknown => "not woken in the recording".into(),
            _ => format!("woken by {who}"),
        },
        Role::Held => format!("held by {who}"),
        Role::OnCpu => format!("{who} computes{}", at("in")),
        Role::Runnable => format!("{who} waits for a CPU"),
        Role::Blocked => {
            let reason = hop.reason.map_or("blocked", |r| r.name());
            let what = a
                .resource(hop.labels)
                .map_or(String::new(), |r| format!(": {r}"));
            format!("{who} is blocked ({reason}{what}){}", at("in"))
        }
        Role::Circle => format!("{who} waits for somebody above (a circle)"),
        Role::Cut => format!("{who}: not followed further"),
    }
}
