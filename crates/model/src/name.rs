//! Names of code, for every format and view.

use crate::{Frame, FrameKind, Recording, StackEnd};

/// The name of an address without symbols: `module+0x1f3a`, or `[0x7f…]` without a module.
///
/// Code made at run time has no file that an offset could refer to: it is named by its address.
pub fn address(recording: &Recording, frame: &Frame) -> String {
    let module = frame
        .module
        .filter(|_| frame.kind != FrameKind::Jit)
        .and_then(|m| recording.modules.get(m.0 as usize));
    match module {
        Some(m) => format!("{}+0x{:x}", m.name(), frame.address),
        None => format!("[0x{:x}]", frame.address),
    }
}

/// The frame at the root of a stack that did not reach its root.
pub fn truncated(end: StackEnd) -> String {
    format!("[truncated:{}]", end.name())
}

/// The frame of a stack that has none.
pub fn no_frames(end: StackEnd) -> String {
    if end.is_whole() {
        "[no stack]".to_string()
    } else {
        truncated(end)
    }
}

/// Whether a kernel function only takes a thread off its CPU. Such functions are at the leaf of
/// every stack that waits, and therefore say nothing there.
pub fn is_scheduler(name: &str) -> bool {
    const NAMES: [&str; 7] = [
        "__schedule",
        "schedule",
        "schedule_idle",
        "schedule_timeout",
        "schedule_preempt_disabled",
        "__traceiter_sched_switch",
        "__cond_resched",
    ];
    NAMES.contains(&name) || name.starts_with("preempt_schedule")
}
