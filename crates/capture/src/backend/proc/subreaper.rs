//! Finds processes after their parents have ended, such as daemons and background jobs of shells.
//!
//! The search goes from parents to their children; `/proc` has no other way to find descendants. We are the
//! parent of a command that we start. A process may ask to become the parent of all orphans among its
//! descendants (`PR_SET_CHILD_SUBREAPER`; any user may), and finds them among its children. When we end they
//! become children of the first process, as they would have without us.

use wallscope_procfs::process;

use super::target_tracker::children_of;

/// Makes orphans our children for as long as this lives.
pub struct Subreaper {
    /// The command itself: other code waits for it.
    command: u32,
}

impl Subreaper {
    /// Begins with `command`, which has been started; `None`: the kernel refuses.
    pub fn of(command: u32) -> Option<Subreaper> {
        ask(true).ok().map(|()| Subreaper { command })
    }

    /// The orphans that are alive.
    pub fn living(&self) -> Vec<u32> {
        let own = std::process::id();
        let threads = process::threads(own).unwrap_or_default();
        let mut children: Vec<u32> = threads
            .into_iter()
            .flat_map(|tid| children_of(own, tid))
            .filter(|pid| *pid != self.command)
            .collect();
        children.retain(|pid| !is_over(*pid));
        children
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        let _ = ask(false);
    }
}

fn ask(wanted: bool) -> rustix::io::Result<()> {
    rustix::process::set_child_subreaper(wanted.then(rustix::process::getpid))
}

/// Whether a child has ended. Reaps it if so: no other code waits for it.
fn is_over(pid: u32) -> bool {
    let over = process::stat(pid).is_ok_and(|s| s.state == 'Z');
    if let (true, Some(pid)) = (over, rustix::process::Pid::from_raw(pid as i32)) {
        let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
    }
    over
}
