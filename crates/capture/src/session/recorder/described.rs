//! What a recorder says of itself and of the processes that it measures.

use wallscope_observe::{DescribedDomain, Observation};
use wallscope_procfs::kernel_file;

use super::super::{
    Options, domain, event_dispatch::EventDispatcher, pace::Pace, processes::Processes,
};
use crate::backend::ebpf::{KernelFeatures, Mechanism, event_sampling::SampledEvent, timer::Timer};

/// The kernel's number for its present boot; empty where it has none.
pub fn boot_id() -> String {
    let id = kernel_file::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}

/// What the domain is described from.
pub(super) struct Described<'r> {
    pub kernel: &'r KernelFeatures,
    pub options: &'r Options,
    pub mechanism: Mechanism,
    pub timer: &'r Timer,
    pub cpus: usize,
    pub pace: &'r Pace,
    pub taps: &'r [SampledEvent],
    pub kernel_named: bool,
    /// Entry into a kernel program, ns.
    pub entry_ns: f64,
}

impl Described<'_> {
    /// The domain, with these notes and those of the processes.
    pub fn with(&self, notes: &[String], processes: &Processes) -> DescribedDomain {
        let mut notes = notes.to_vec();
        notes.extend(processes.managed().java.notes());
        let label = |note: String| note + "; the label `program` tells which one it was";
        notes.extend(processes.several_programs().map(label));
        notes.extend(processes.managed().scripts.notes());
        notes.extend(processes.jit().notes());
        notes.extend(processes.undescribed());
        domain::describe(&domain::Facts {
            kernel: self.kernel,
            options: self.options,
            mechanism: self.mechanism,
            timer: self.timer.describe(),
            cpus: self.cpus as u32,
            pace: self.pace,
            taps: self.taps,
            kernel_named: self.kernel_named,
            notes,
            runtimes: processes.managed().describe(),
            entry_ns: self.entry_ns,
        })
    }
}

/// Observes files, processes and their programs that are new, or known better than before.
pub(super) fn observe_processes(processes: &mut Processes, intake: &mut EventDispatcher) {
    for module in processes.take_modules() {
        intake.observe(Observation::Module(module));
    }
    for file in processes.take_unwinder_files() {
        intake.observe(Observation::UnwinderFile(file));
    }
    for process in processes.take_facts() {
        intake.observe(Observation::Process(process));
    }
}
