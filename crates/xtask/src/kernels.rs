//! Other kernels: boots each in an emulator with the tool, the truth programs and nothing else, and
//! makes the experiments there.
//!
//! `cargo xtask kernels VMLINUZ…` packs this binary, `wallscope` and the truth programs with the
//! libraries they need into an initial file system, and starts `qemu-system-x86_64` with it; inside,
//! this binary is the first process. The emulator is some twenty times slower than the machine, and its
//! clocks run unevenly: it tells whether the programs load and the ledgers close, and shares
//! only roughly. KVM is not used, as within a virtual machine it may hang. The image needs a serial
//! console and BTF built in; no module is loaded. Of Debian's kernels:
//!
//! ```sh
//! apt-get download linux-image-6.1.0-44-amd64 && dpkg-deb -x linux-image-*.deb kernel
//! cargo xtask kernels kernel/boot/vmlinuz-*
//! ```

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use wallscope_testkit::checks::{self, Length};
use wallscope_testkit::{Error, Tool, program};

use crate::archive::Archive;
use crate::{Outcome, installed, release_tool};

/// The emulator.
pub const EMULATOR: &str = "qemu-system-x86_64";
/// The experiments of a kernel unless others are named: those that need no disk, no quota, no other
/// program.
const USUAL: &[&str] = &[
    "mix", "shares", "convoy", "rpc", "chain", "hands", "crowd", "micro", "migrate", "lengths",
    "short", "span", "execs", "rename", "odd",
];
/// The first word of each line by which the inside tells the outside.
const TELLS: &str = "KERNELS:";

/// The task: `arguments` are kernel images and names of experiments. Whether all passed in all.
///
/// # Errors
/// No emulator, nothing to boot, or no room for the file system.
pub fn run(arguments: &[&str]) -> Outcome<bool> {
    let (names, images): (Vec<&str>, Vec<&str>) =
        arguments.iter().partition(|a| checks::by_name(a).is_some());
    if images.is_empty() {
        return Err("name a kernel: cargo xtask kernels VMLINUZ… [EXPERIMENT…]".into());
    }
    let emulator = installed(EMULATOR)
        .ok_or_else(|| format!("{EMULATOR} is missing: apt-get install qemu-system-x86"))?;
    let tool = release_tool()?;
    let folder = tempfile::tempdir()?;
    let disk = folder.path().join("initrd");
    pack(&tool, &disk)?;
    let names = if names.is_empty() { USUAL } else { &names };
    let mut good = true;
    for image in images {
        println!("== {image}");
        good &= boot(&emulator, Path::new(image), &disk, names)?;
    }
    Ok(good)
}

/// Boots one kernel and repeats the output from inside. Whether all of `names` passed.
fn boot(emulator: &Path, image: &Path, disk: &Path, names: &[&str]) -> Outcome<bool> {
    // On a busy machine the emulated timer may be late for the check that it works.
    let words = format!(
        "console=ttyS0 quiet panic=-1 no_timer_check rdinit=/init -- inside {}",
        names.join(" ")
    );
    let mut passed = 0;
    emulate(emulator, [image, disk], (&words, "2G"), |line| {
        passed += usize::from(line.starts_with(TELLS) && line.ends_with(" passed"));
        println!("{line}");
    })?;
    println!("{passed} of {} passed", names.len());
    Ok(passed == names.len())
}

/// Boots a kernel with an initial file system, its command line `words` and so much memory, until it powers off. Each
/// line of its console goes to `told`.
///
/// # Errors
/// The emulator does not start, or cannot be read.
pub fn emulate(
    emulator: &Path,
    [image, disk]: [&Path; 2],
    (words, memory): (&str, &str),
    mut told: impl FnMut(&str),
) -> Outcome<()> {
    let mut child = Command::new(emulator)
        .args(["-machine", "q35,accel=tcg", "-cpu", "Haswell", "-smp", "2"])
        .args(["-m", memory, "-nographic", "-no-reboot", "-nic", "none"])
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(disk)
        .args(["-append", words])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    for line in BufReader::new(child.stdout.take().expect("it is piped")).split(b'\n') {
        told(String::from_utf8_lossy(&line?).trim_end());
    }
    child.wait()?;
    Ok(())
}

/// Writes the initial file system: a cpio archive in the kernel's format.
fn pack(tool: &Tool, disk: &Path) -> Outcome<()> {
    let own = std::env::current_exe()?;
    let truth = program::path();
    let mut files: Vec<(PathBuf, PathBuf)> = vec![
        (own.clone(), "/init".into()),
        (tool.path().into(), "/wallscope".into()),
    ];
    for entry in fs::read_dir(truth.parent().ok_or("the truth programs have no folder")?)? {
        let path = entry?.path();
        let library = path.extension().is_some_and(|e| e == "so");
        if library || path == truth {
            files.push((path.clone(), path));
        }
    }
    let mut libraries = BTreeSet::new();
    for (path, _) in &files {
        libraries.extend(libraries_of(path)?);
    }
    files.extend(libraries.into_iter().map(|path| (path.clone(), path)));

    let mut archive = Archive::create(disk)?;
    for folder in ["/proc", "/sys", "/dev", "/tmp"] {
        archive.folder(Path::new(folder))?;
    }
    // Where the first process finds its output before anything is mounted.
    archive.entry(Path::new("/dev/console"), 0o020_600, (5, 1), &[])?;
    for (from, to) in files {
        archive.folder(to.parent().unwrap_or(Path::new("/")))?;
        let mode = from.metadata()?.permissions().mode();
        archive.entry(&to, 0o100_000 | mode & 0o7777, (0, 0), &fs::read(&from)?)?;
    }
    archive.finish()?;
    Ok(())
}

/// The libraries, the loader among them, that the loader would map for a program.
fn libraries_of(path: &Path) -> Outcome<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(path).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = text.split_whitespace().filter(|w| w.starts_with('/'));
    Ok(words.map(PathBuf::from).collect())
}

/// The first process inside: mounts file systems, makes the experiments, reports, and powers off.
///
/// # Errors
/// What keeps it from even beginning.
pub fn inside(names: &[&str]) -> Outcome<bool> {
    for (what, at) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
    ] {
        mount(what, at)?;
    }
    fs::create_dir_all("/dev/shm")?;
    // Hosts without them are hosts too.
    let _ = mount("tracefs", "/sys/kernel/tracing");
    let _ = mount("cgroup2", "/sys/fs/cgroup");
    raise_loopback()?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    println!("Linux {}", release.trim());
    let tool = Tool::at("/wallscope");
    // Beside the experiments: the tool's own judgement of this kernel.
    let told = tool.run(&["doctor"])?;
    println!("{}", String::from_utf8_lossy(&told.stdout));
    let tried = tool.run(&["record", "-d", "1", "-a", "-o", "/tmp/all.pb.gz"])?;
    println!("{}", String::from_utf8_lossy(&tried.stderr));
    for name in names {
        let check = checks::by_name(name).ok_or_else(|| format!("no experiment {name}"))?;
        let outcome = match (check.run)(&tool, Length::SHORT) {
            Ok(card) => {
                println!("{card}");
                if card.passed() {
                    "passed".to_string()
                } else {
                    format!("{} rows failed", card.failures())
                }
            }
            Err(Error::CannotRunHere(why)) => format!("cannot run here: {why}"),
            Err(error) => error.to_string(),
        };
        println!("{TELLS} {name}: {outcome}");
    }
    io::stdout().flush()?;
    rustix::system::reboot(rustix::system::RebootCommand::PowerOff)?;
    Ok(true)
}

fn mount(kind: &str, at: &str) -> io::Result<()> {
    let (kind, at) = (CString::new(kind)?, CString::new(at)?);
    // SAFETY: the strings outlive the call, and no data is passed.
    let done = unsafe {
        libc::mount(
            kind.as_ptr(),
            at.as_ptr(),
            kind.as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Switches the loopback interface on.
fn raise_loopback() -> io::Result<()> {
    // SAFETY: an interface request of zeros is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: the call reads the request, which outlives it.
    let done = unsafe {
        libc::ioctl(
            std::os::fd::AsRawFd::as_raw_fd(&socket),
            libc::SIOCSIFFLAGS,
            &raw const request,
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
