//! Facts of processes as they become known, as observations.

use wallscope_observe::Observation;
use wallscope_unwind::native::TableSink;

use super::{observation_sink::ObservationSink, processes::Processes};

/// Observes files, and processes that are new, or known better than before.
pub fn observe_processes<S: TableSink>(
    processes: &mut Processes<S>,
    sink: &mut dyn ObservationSink,
) {
    for module in processes.take_modules() {
        sink.observe(Observation::Module(module));
    }
    for file in processes.take_unwinder_files() {
        sink.observe(Observation::UnwinderFile(file));
    }
    for process in processes.take_facts() {
        sink.observe(Observation::Process(process));
    }
}

/// Observes programs that processes have become, and runtimes that make code. A recording that ends in order
/// asks for both at its end.
pub fn observe_programs<S: TableSink>(
    processes: &mut Processes<S>,
    sink: &mut dyn ObservationSink,
) {
    for program in processes.take_programs() {
        sink.observe(Observation::ProgramName(program));
    }
    for maker in processes.jit_mut().take_makers() {
        sink.observe(Observation::CodeMaker(maker));
    }
}
