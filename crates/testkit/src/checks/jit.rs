//! Code made at run time at addresses that are used again, named by perf maps and jitdumps.

use crate::score::stacks;
use crate::tool::Options;
use crate::{Error, Scorecard, Tool};

use super::Length;

/// Promised of user stacks, percent of sampled time.
const WHOLE: f64 = 99.0;

/// Forms, backends, and lengths of a phase in µs. Entries of a map have no times: code is replaced there less
/// often.
const WAYS: &[(&str, &str, &str)] = &[
    ("map", "ebpf", "120000"),
    ("dump", "ebpf", "30000"),
    ("dump", "perf", "30000"),
];

pub(super) fn jit(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let seconds = format!("{}", length.seconds);
    for (form, backend, phase) in WAYS {
        let options = Options::at(997).with(&["--max-overhead", "25", "--backend", backend]);
        let flags = ["--seconds", &seconds, "--form", form, "--phase-us", phase];
        let run = tool.measure("jit", &flags, &options)?;
        let way = format!("{form}, {backend}");
        for view in ["on-cpu", "off-cpu"] {
            // Names that stay when code is replaced are wrong by tens of points; calls that sleep leave
            // on-CPU time in which the clock does not fire.
            card.extend(&way, run.evidence().shares(view, 5.0));
        }
        // Of a thread that waits, nobody but the kernel knows the frame pointer.
        if *backend == "ebpf" {
            let whole = stacks::whole(&run.stacks, |name| name == "jit", WHOLE);
            card.extend(&way, whole);
        }
    }
    Ok(card)
}
