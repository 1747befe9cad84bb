//! The domain of a recording by kernel programs.

use wallscope_observe::DescribedDomain;

use super::{
    super::{domain, pace::Pace, processes::Processes},
    setup::Setup,
};

impl Setup<'_> {
    /// The domain at the present `pace`, with these notes and those of the processes. `entry_ns`: the way
    /// into a kernel program and out of it, ns.
    pub fn domain(
        &self,
        pace: &Pace,
        entry_ns: f64,
        notes: &[String],
        processes: &Processes,
    ) -> DescribedDomain {
        let mut notes = notes.to_vec();
        notes.extend(processes.managed().java.notes());
        let label = |note: String| note + "; the label `program` tells which one it was";
        notes.extend(processes.several_programs().map(label));
        notes.extend(processes.never_read());
        notes.extend(processes.managed().scripts.notes());
        notes.extend(processes.jit().notes());
        notes.extend(processes.undescribed());
        domain::describe(&domain::Facts {
            kernel: self.kernel,
            options: self.options,
            mechanism: self.mechanism,
            timer: self.timer.describe(),
            cpus: self.cpus as u32,
            pace,
            taps: &self.taps,
            kernel_named: self.kernel_named,
            notes,
            runtimes: processes.managed().describe(),
            entry_ns,
        })
    }
}
