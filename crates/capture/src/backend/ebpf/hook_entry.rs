//! Cost of entering and leaving a kernel program at a tracepoint, measured on this host.
//!
//! A program times itself, and cannot time its own entry. So a call that meets one of our hooks, in which the
//! program has nothing to do, is made before the hooks are attached and after: the difference is the entry. It
//! includes the look-up by which each program finds out whether a thread is measured. The shortest of several
//! stretches counts, so that other work on the machine does not.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::time::Instant;

/// Calls in a stretch, and stretches: 2 ms in all (measured, Linux 6.18 in a virtual machine).
const CALLS: u32 = 200;
const STRETCHES: u32 = 30;

/// Cost assumed on kernels without such a hook (before 6.3), ns: measured on Linux 6.18 in a virtual machine.
const USUAL_NS: f64 = 40.0;

/// First half of a measurement: the time of the call without hooks.
pub struct HookEntry {
    /// A socket on which reads find nothing, and its other end, without which they would fail.
    socket: Option<(UnixDatagram, UnixDatagram)>,
    bare_ns: f64,
}

impl HookEntry {
    /// Times the call while no hook is attached.
    pub fn before_attaching() -> HookEntry {
        let pair = UnixDatagram::pair().ok();
        let socket = pair.filter(|(end, _)| end.set_nonblocking(true).is_ok());
        let bare_ns = socket.as_ref().map_or(0.0, |(end, _)| call_ns(end));
        HookEntry { socket, bare_ns }
    }

    /// Times the call again, with the hooks. Returns the cost of the entry, ns.
    pub fn attached(self) -> f64 {
        let Some((end, _other)) = &self.socket else {
            return USUAL_NS;
        };
        let entry = call_ns(end) - self.bare_ns;
        // Other values mean that there is no hook, or that something else ran all the time.
        if entry > 5.0 && entry < 1000.0 {
            entry
        } else {
            USUAL_NS
        }
    }
}

/// A read of a socket on which nothing has come, ns.
fn call_ns(socket: &UnixDatagram) -> f64 {
    let mut byte = [0];
    let stretch = |_| {
        let began = Instant::now();
        for _ in 0..CALLS {
            let read = socket.recv(&mut byte);
            debug_assert!(read.is_err_and(|e| e.kind() == ErrorKind::WouldBlock));
        }
        began.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..STRETCHES).map(stretch).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_hooks_the_usual_figure_is_taken_or_next_to_nothing_measured() {
        let entry = HookEntry::before_attaching().attached();
        assert!(entry > 5.0 && entry < 1000.0, "{entry} ns");
    }
}
