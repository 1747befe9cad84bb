//! Refuses targets that cannot be measured before anything is recorded, and names the remedy.

use std::io;
use wallscope_procfs::kernel_file;

use crate::{
    Error,
    counter::EventSpec,
    host_capabilities::{self, PerfRestrictions, attempts},
};

/// Perf events were asked for and are refused.
pub fn of_events(e: &io::Error) -> Error {
    let restrictions = PerfRestrictions::now();
    let (why, remedy) = match attempts::perf_clock() {
        // Perf events of own processes are allowed.
        Ok(()) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => (
            format!(
                "{e}, though own ones are allowed: the target is another user's, or has rights that you have not"
            ),
            "run as the target's user or as root",
        ),
        Ok(()) => (
            e.to_string(),
            "see wallscope doctor for what this host allows",
        ),
        Err(own) => (restrictions.why(&own), restrictions.remedy(&own)),
    };
    Error::NotPermitted {
        what: format!(
            "perf events of the target (perf_event_open; kernel.perf_event_paranoid is {})",
            restrictions.paranoid_in_words()
        ),
        why,
        remedy: format!("{remedy}; --backend proc does without; see wallscope doctor"),
    }
}

/// Stacks at events were asked for and there will be no perf events; `reason`: why not.
pub fn of_stacks_at(events: &[EventSpec], reason: &str) -> Result<(), Error> {
    if events.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = events.iter().map(|e| e.name.as_str()).collect();
    Err(Error::NoEvent {
        name: names.join(","),
        why: format!(
            "the proc backend ({reason}) only polls threads; the ebpf and perf backends take stacks at \
             events, see wallscope doctor"
        ),
    })
}

/// Refuses a `/proc` with other process ids than ours: the named process would not be the measured one.
pub fn of_foreign_proc() -> Result<(), Error> {
    host_capabilities::proc_is_ours().map_err(|e| Error::NotPermitted {
        what: "what is read of processes (/proc)".into(),
        why: e.to_string(),
        remedy: host_capabilities::PROC_REMEDY.into(),
    })
}

/// The scheduler counters of the target's first process cannot be read.
pub fn of_books(pid: u32) -> Error {
    let file = format!("/proc/{pid}/task/{pid}/schedstat");
    let (why, remedy) = match kernel_file::read_to_string(&file) {
        Ok(text) => (
            format!("they read {:?}", text.trim()),
            "without them nothing can be measured; `wallscope doctor` tells what this host allows",
        ),
        Err(e) if e.kind() == io::ErrorKind::NotFound => (
            format!("{e}, though the process exists: /proc hides it (hidepid)"),
            "run as the process's user or as root, or mount /proc without hidepid",
        ),
        Err(e) => (
            e.to_string(),
            "run as the process's user or as root; `wallscope doctor` tells what this host allows",
        ),
    };
    Error::NotPermitted {
        what: format!("the scheduler's books of pid {pid} ({file})"),
        why,
        remedy: remedy.into(),
    }
}
