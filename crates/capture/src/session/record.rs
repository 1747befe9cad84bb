//! Chooses the requested backend, or else the best one that this host allows, and measures by it.

use super::{
    interface::{Captured, Observer, Options},
    recorder,
};
use crate::{
    Error,
    backend::{
        Backend,
        ebpf::KernelFeatures,
        proc::{self, PerfEvents},
    },
    host_capabilities,
    target::refuse_32_bit,
};

/// Measures `options.target` and returns everything that was seen.
///
/// # Errors
/// No such target, no privilege, a kernel that lacks a needed feature; nothing was recorded then.
pub fn record(options: &Options, observer: &mut dyn Observer) -> Result<Captured, Error> {
    refuse_32_bit(&options.target)?;
    let kernel = || KernelFeatures::inspect()?.with_all_that_is_needed();
    let lower = |why: String, perf, observer| match options.method.max_total_overhead {
        Some(_) => Err(Error::NoBudget { why }),
        None => proc::record(options, why, perf, observer),
    };
    match options.method.backend {
        Some(Backend::Ebpf) => recorder::record(options, &kernel()?, observer),
        Some(Backend::Perf) => lower("as asked".into(), PerfEvents::Must, observer),
        Some(Backend::Proc) => lower("as asked".into(), PerfEvents::Not, observer),
        None => {
            if let Some(why) = host_capabilities::ebpf_refused() {
                return lower(why, PerfEvents::May, observer);
            }
            match kernel().and_then(|kernel| recorder::record(options, &kernel, observer)) {
                // Both errors arise before anything is measured.
                Err(e @ (Error::NotSupported { .. } | Error::Bpf { .. })) => {
                    lower(format!("not by eBPF: {e}"), PerfEvents::May, observer)
                }
                other => other,
            }
        }
    }
}
