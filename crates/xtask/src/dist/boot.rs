//! The fresh system with the package in it, booted in an emulator with systemd as its first process.
//!
//! `boot.sh` runs there as a service and makes the steps: start, reload, restart after a crash, a clock that steps by an
//! hour and back, a machine that sleeps and wakes. The emulator is some twenty times slower than a machine: the unit's
//! time to start is lengthened, and nothing is said of cost.

use std::fs;
use std::path::Path;

use crate::archive::Archive;
use crate::kernels::{EMULATOR, emulate};
use crate::{Outcome, installed};

/// Makes the steps.
const STEPS: &str = include_str!("boot.sh");
/// Runs them.
const SERVICE: &str = "[Unit]\nAfter=wallscope-agent.service\n[Service]\nExecStart=/usr/local/sbin/steps\n\
                       [Install]\nWantedBy=multi-user.target\n";
/// The emulator is slow to load the kernel programs.
const PATIENCE: &str = "[Service]\nTimeoutStartSec=20min\nWatchdogSec=30min\n";
/// The first word of each step's line.
const TELLS: &str = "STEP: ";
/// Folders that stay empty: nothing of them is needed, and the system lies in memory.
const LEFT_OUT: [&str; 8] = [
    "/proc",
    "/sys",
    "/dev",
    "/var/cache/apt",
    "/var/lib/apt/lists",
    "/usr/share/doc",
    "/usr/share/locale",
    "/usr/share/man",
];

/// Boots `system`, where the package and systemd are installed and the agent is enabled, with the kernel `image`.
/// Whether each step succeeded.
///
/// # Errors
/// There is no emulator, or the system cannot be read or packed.
pub fn boot(system: &Path, image: &Path) -> Outcome<bool> {
    let emulator = installed(EMULATOR)
        .ok_or_else(|| format!("{EMULATOR} is missing: apt-get install qemu-system-x86"))?;
    put(system, "usr/local/sbin/steps", STEPS, 0o755)?;
    put(system, "etc/systemd/system/steps.service", SERVICE, 0o644)?;
    let patience = "etc/systemd/system/wallscope-agent.service.d/patience.conf";
    put(system, patience, PATIENCE, 0o644)?;
    let wants = system.join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants)?;
    let link = wants.join("steps.service");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink("/etc/systemd/system/steps.service", link)?;

    let folder = tempfile::tempdir()?;
    let disk = folder.path().join("initrd");
    let mut archive = Archive::create(&disk)?;
    archive.tree(system, &|path| {
        !LEFT_OUT.iter().any(|out| Path::new(out) == path)
    })?;
    // Where the first process finds its output before anything is mounted.
    archive.entry(Path::new("/dev/console"), 0o020_600, (5, 1), &[])?;
    archive.finish()?;

    let words = "console=ttyS0 quiet panic=-1 no_timer_check rdinit=/lib/systemd/systemd \
                 systemd.show_status=0";
    let (mut good, mut failed, mut ended) = (0, 0, false);
    emulate(&emulator, [image, &disk], (words, "3G"), |line| {
        let Some((_, said)) = line.split_once(TELLS) else {
            println!("    {line}");
            return;
        };
        good += usize::from(said.starts_with("ok "));
        failed += usize::from(said.starts_with("FAILED "));
        ended |= said.starts_with("end");
        println!("{said}");
    })?;
    println!("{good} steps in the booted system, {failed} failed");
    Ok(ended && failed == 0)
}

/// Writes a file into the system.
fn put(system: &Path, path: &str, text: &str, mode: u32) -> Outcome<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = system.join(path);
    fs::create_dir_all(path.parent().ok_or("no folder")?)?;
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    Ok(())
}
