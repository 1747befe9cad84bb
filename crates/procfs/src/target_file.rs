//! Opens the files that a target names, with the rights of the target.
//!
//! A recorder often runs as root, and a target chooses the names of many files that the recorder
//! reads: perf maps, jitdumps, debug files, source files. A name that leads to a file which the
//! target itself may not read must not be opened with root's rights. Three rules hold here:
//!
//! * **The mapping is the permission.** The kernel has checked the target's right to a file that it
//!   has mapped. Such a file is opened by the mapping itself ([`open_mapped`]).
//! * **A name is opened with the target's rights.** A thread of its own takes the target's file
//!   system user, group and supplementary groups, gives up every capability, and looks the name up
//!   within the target's root directory ([`TargetRoot::open`]).
//! * **A check and a read concern one file.** The name is resolved once, to a descriptor that gives
//!   no access. The type, owner and size are read from it, and it is then opened for reading by its
//!   number. A file that is exchanged meanwhile changes nothing, and a device or FIFO is never opened.
//!
//! This module does not decide which files are of use, and does not follow paths in files.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::maps::{self, Mapping};
use crate::process;

/// User and group that the kernel gives to files and processes of which it knows neither.
const NOBODY: u32 = 65534;
/// Attempts to resolve a name while directories on its way are being renamed.
const MAX_ATTEMPTS: usize = 16;
/// Openings with other rights come one after the other, as each changes an attribute of this process
/// and then restores it.
static OPENING: Mutex<()> = Mutex::new(());

/// A path that a target, or a recording of one, names. Nothing outside this module can open it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPath(PathBuf);

impl TargetPath {
    /// The path `path`, as the target sees it.
    pub fn new(path: impl Into<PathBuf>) -> TargetPath {
        TargetPath(path.into())
    }

    /// The path as text, for messages.
    pub fn display(&self) -> std::path::Display<'_> {
        self.0.display()
    }
}

/// Purpose of an opening, which decides the kind of file that is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A perf map or a jitdump: no symbolic link, owned by the target's user or by root, at most 1 GiB.
    RuntimeNames,
    /// A program, a library, or their debug file: at most 64 GiB, of which only the pages that are used
    /// are read.
    Object,
    /// Source text to show: at most 64 MiB.
    Source,
}

impl Purpose {
    fn max_bytes(self) -> u64 {
        match self {
            Purpose::RuntimeNames => 1 << 30,
            Purpose::Object => 64 << 30,
            Purpose::Source => 64 << 20,
        }
    }

    fn follows_links(self) -> bool {
        self != Purpose::RuntimeNames
    }

    fn needs_owner(self) -> bool {
        self == Purpose::RuntimeNames
    }
}

/// Reason for which a file of a target was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no such file.
    #[error("no such file")]
    Absent,
    /// The target's user may not read it.
    #[error("not readable with the target's rights")]
    NotPermitted,
    /// The last part of the path is a symbolic link.
    #[error("a symbolic link")]
    Link,
    /// It is a directory, a device, a FIFO or a socket.
    #[error("not a regular file")]
    NotRegular,
    /// It belongs neither to the target's user nor to root.
    #[error("owned by another user")]
    Owner,
    /// It is larger than its purpose allows.
    #[error("too large")]
    TooLarge,
    /// This process has root's rights and cannot give them up for an opening.
    #[error("the target's rights cannot be taken on")]
    RightsNotTaken,
    /// The kernel cannot resolve paths within a root directory (before Linux 5.6, or forbidden).
    #[error("the kernel cannot look up paths within the target's root")]
    NoLookup,
    /// Another error.
    #[error("{0}")]
    Io(io::Error),
}

impl Refusal {
    /// Whether the file does not exist. This is no loss: most names that are tried do not exist.
    pub fn is_absent(&self) -> bool {
        matches!(self, Refusal::Absent)
    }
}

impl From<Errno> for Refusal {
    fn from(e: Errno) -> Refusal {
        match e {
            Errno::NOENT | Errno::NOTDIR => Refusal::Absent,
            Errno::ACCESS | Errno::PERM => Refusal::NotPermitted,
            Errno::LOOP => Refusal::Link,
            Errno::NOSYS => Refusal::NoLookup,
            e => Refusal::Io(e.into()),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(e: io::Error) -> Refusal {
        match e.raw_os_error() {
            Some(code) => Errno::from_raw_os_error(code).into(),
            None => Refusal::Io(e),
        }
    }
}

/// The identity by which the kernel decides which files may be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Rights {
    /// Rights of process `pid`: its file system user and group and its supplementary groups.
    ///
    /// # Errors
    /// `NotFound` where there is no such process.
    pub fn of_process(pid: u32) -> io::Result<Rights> {
        let status = process::status(pid)?;
        let (Some(uid), Some(gid)) = (status.file_ids.user, status.file_ids.group) else {
            let text = format!("/proc/{pid}/status names no user and group");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        };
        Ok(Rights {
            uid,
            gid,
            groups: status.file_ids.more_groups,
        })
    }

    /// Rights of a user and a group, without supplementary groups.
    pub fn of_user(uid: u32, gid: u32) -> Rights {
        Rights {
            uid,
            gid,
            groups: Vec::new(),
        }
    }

    /// Rights of an unknown user: only files that every user may read.
    pub fn of_nobody() -> Rights {
        Rights::of_user(NOBODY, NOBODY)
    }

    /// Rights to open a file that is named in a profile which belongs to the owner of `profile`.
    pub fn of_owner(profile: &Metadata) -> Rights {
        Rights::of_user(profile.uid(), profile.gid())
    }

    /// Whether they are root's, without the capabilities.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Runs `open` with these rights and without capabilities.
    ///
    /// A process without capabilities over files keeps its rights: they are no more than those of an
    /// ordinary user.
    fn take<T: Send>(
        &self,
        open: impl FnOnce() -> Result<T, Refusal> + Send,
    ) -> Result<T, Refusal> {
        if !overrides_permissions() {
            return open();
        }
        let _alone = OPENING.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: takes plain numbers.
        let dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) };
        // A thread that has given up its capabilities cannot get them back, so each opening has its own thread.
        let taken = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("wallscope-open".into());
            let thread = thread.spawn_scoped(scope, || {
                self.assume().map_err(|_| Refusal::RightsNotTaken)?;
                open()
            });
            match thread.map(|t| t.join()) {
                Ok(Ok(opened)) => opened,
                Ok(Err(_)) => Err(Refusal::Io(io::Error::other("the opening thread failed"))),
                Err(e) => Err(Refusal::Io(e)),
            }
        });
        // The kernel makes a process non-dumpable when one of its threads changes its file system user.
        // This process gains no secret by the change, so the old state is restored.
        if dumpable == 1 {
            // SAFETY: takes plain numbers.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) };
        }
        taken
    }

    /// Makes these rights those of the calling thread.
    fn assume(&self) -> io::Result<()> {
        let groups: &[u32] = &self.groups;
        // SAFETY: the raw system call changes the calling thread only, where glibc's function would
        // change all threads; it reads `groups.len()` ids from a valid pointer.
        let done = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both calls take plain numbers and change the calling thread only. They return the
        // former value whether or not they succeed, so each is asked a second time with an invalid id,
        // which changes nothing.
        let (uid, gid) = unsafe {
            libc::setfsgid(self.gid);
            libc::setfsuid(self.uid);
            (
                libc::setfsuid(u32::MAX) as u32,
                libc::setfsgid(u32::MAX) as u32,
            )
        };
        if (uid, gid) != (self.uid, self.gid) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let none = CapabilitySet::empty();
        let sets = CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        };
        rustix::thread::set_capabilities(None, sets)?;
        Ok(())
    }
}

/// Whether this thread may read files that its user may not.
fn overrides_permissions() -> bool {
    let over_files = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    match rustix::thread::capabilities(None) {
        Ok(sets) => sets.effective.intersects(over_files) || rustix::process::geteuid().is_root(),
        Err(_) => true,
    }
}

/// A root directory with the rights of a target that sees its files there. It is kept open, so that
/// names can be looked up after the target has ended.
#[derive(Debug)]
pub struct TargetRoot {
    directory: OwnedFd,
    rights: Rights,
}

impl TargetRoot {
    /// The root directory and the rights of process `pid`.
    ///
    /// # Errors
    /// `NotFound` where there is no such process; `PermissionDenied` where it may not be inspected.
    pub fn of_process(pid: u32) -> io::Result<TargetRoot> {
        let rights = Rights::of_process(pid)?;
        TargetRoot::at(Path::new(&format!("/proc/{pid}/root")), rights)
    }

    /// User and group of the target.
    pub fn user(&self) -> (u32, u32) {
        (self.rights.uid, self.rights.gid)
    }

    /// The directory at `path` as the root of a target with these `rights`.
    ///
    /// # Errors
    /// The error of opening the directory.
    #[expect(clippy::disallowed_methods, reason = "the descriptor gives no access")]
    pub fn at(path: &Path, rights: Rights) -> io::Result<TargetRoot> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(TargetRoot { directory, rights })
    }

    /// This process's own root directory, for a target with these `rights`.
    ///
    /// # Errors
    /// The error of opening the directory.
    pub fn of_host(rights: Rights) -> io::Result<TargetRoot> {
        TargetRoot::at(Path::new("/"), rights)
    }

    /// This process's own root directory, with the rights of this target.
    ///
    /// # Errors
    /// The error of opening the directory.
    pub fn host(&self) -> io::Result<TargetRoot> {
        TargetRoot::of_host(self.rights.clone())
    }

    /// Opens the regular file at `path` for reading, with the target's rights. Symbolic links are
    /// followed within this root, as the target would follow them.
    ///
    /// ```
    /// use std::io::Read;
    /// use wallscope_procfs::target_file::{Purpose, Refusal, TargetPath, TargetRoot};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("perf.map");
    /// std::fs::write(&path, "1000 40 f\n")?;
    /// let root = TargetRoot::of_process(std::process::id())?;
    /// let mut text = String::new();
    /// root.open(&TargetPath::new(&path), Purpose::RuntimeNames)?.read_to_string(&mut text)?;
    /// assert_eq!(text, "1000 40 f\n");
    /// // A directory is no file, and a name that leads nowhere is absent.
    /// assert!(root.open(&TargetPath::new(folder.path()), Purpose::RuntimeNames).is_err());
    /// let absent = root.open(&TargetPath::new("/nowhere"), Purpose::RuntimeNames);
    /// assert!(absent.is_err_and(|refusal: Refusal| refusal.is_absent()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The reason for which the file is not opened.
    pub fn open(&self, path: &TargetPath, purpose: Purpose) -> Result<File, Refusal> {
        self.rights.take(|| {
            let found = self.resolve(&path.0, purpose)?;
            self.check(&found.metadata()?, purpose)?;
            open_descriptor(found.as_fd())
        })
    }

    /// Whether `file`, which a target has mapped, is acceptable for `purpose`.
    ///
    /// # Errors
    /// The reason for which it is not.
    pub fn accepts(&self, file: &File, purpose: Purpose) -> Result<(), Refusal> {
        self.check(&file.metadata()?, purpose)
    }

    fn check(&self, meta: &Metadata, purpose: Purpose) -> Result<(), Refusal> {
        if meta.file_type().is_symlink() {
            return Err(Refusal::Link);
        }
        if !meta.is_file() {
            return Err(Refusal::NotRegular);
        }
        if purpose.needs_owner() && ![0, self.rights.uid].contains(&meta.uid()) {
            return Err(Refusal::Owner);
        }
        if meta.len() > purpose.max_bytes() {
            return Err(Refusal::TooLarge);
        }
        Ok(())
    }

    /// Resolves `path` to a descriptor that gives no access to the file.
    #[expect(
        clippy::disallowed_methods,
        reason = "the descriptor gives no access yet"
    )]
    fn resolve(&self, path: &Path, purpose: Purpose) -> Result<File, Refusal> {
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        if !purpose.follows_links() {
            flags |= OFlags::NOFOLLOW;
        }
        let within = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mut attempts = 0;
        loop {
            attempts += 1;
            match rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), within) {
                Ok(fd) => return Ok(File::from(fd)),
                Err(Errno::AGAIN) if attempts < MAX_ATTEMPTS => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// Opens for reading the file that the descriptor `found` refers to, which itself gives no access.
#[expect(
    clippy::disallowed_methods,
    reason = "opened by descriptor, after its checks"
)]
fn open_descriptor(found: BorrowedFd<'_>) -> Result<File, Refusal> {
    let by_number = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(File::from(rustix::fs::open(
        by_number,
        flags,
        Mode::empty(),
    )?))
}

/// Opens the regular file at `path` with the rights of this process.
#[expect(
    clippy::disallowed_methods,
    reason = "the descriptor gives no access yet"
)]
fn open_with_own_rights(path: &Path) -> Result<(File, Metadata), Refusal> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let meta = found.metadata()?;
    if !meta.is_file() {
        return Err(Refusal::NotRegular);
    }
    Ok((open_descriptor(found.as_fd())?, meta))
}

/// A file that a process has mapped.
#[derive(Clone, Copy, Debug)]
pub struct MappedAt<'a> {
    /// The process.
    pub pid: u32,
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Device number as `makedev(major, minor)`.
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
    /// Path of the file as the process sees it.
    pub path: &'a str,
}

impl<'a> MappedAt<'a> {
    /// The file of mapping `m` of process `pid`.
    pub fn of_mapping(pid: u32, m: &'a Mapping) -> MappedAt<'a> {
        MappedAt {
            pid,
            start: m.start,
            end: m.end,
            device: rustix::fs::makedev(m.device.0, m.device.1),
            inode: m.inode,
            path: &m.path,
        }
    }
}

/// Opens exactly the mapped file `m`, even if it was deleted. If the kernel does not allow that, it opens
/// the file at the mapping's path, provided that its inode is the mapped one. The rights are those of
/// `root`; without a root, those of an unknown user.
///
/// # Errors
/// The reason for which none of these ways opens a file.
pub fn open_mapped(m: &MappedAt<'_>, root: Option<&TargetRoot>) -> Result<File, Refusal> {
    let by_mapping = format!("/proc/{}/map_files/{:x}-{:x}", m.pid, m.start, m.end);
    // The process has moved this part of the file there: the mapping contains only that part.
    let is_moved = rustix::fs::readlink(&by_mapping, Vec::new())
        .is_ok_and(|link| maps::is_memory(&link.to_string_lossy()) && !maps::is_memory(m.path));
    if !is_moved && let Ok((file, _)) = open_with_own_rights(Path::new(&by_mapping)) {
        return Ok(file);
    }
    let path = m.path.strip_suffix(" (deleted)").unwrap_or(m.path);
    let named = TargetPath::new(path);
    let by_name = match root {
        Some(root) => root.open(&named, Purpose::Object),
        // The process ended before its rights were known.
        None => TargetRoot::of_host(Rights::of_nobody())
            .map_err(Refusal::from)
            .and_then(|host| host.open(&named, Purpose::Object)),
    };
    let is_mapped = |meta: Metadata| {
        // Some file systems show one device in mappings and another for files.
        meta.ino() == m.inode && (root.is_some() || meta.dev() == m.device)
    };
    let refusal = match by_name {
        Ok(file) if file.metadata().is_ok_and(is_mapped) => return Ok(file),
        Ok(_) => Refusal::Absent,
        Err(e) => e,
    };
    // The executable can be opened through the process where a mapping cannot.
    if process::exe(m.pid).is_ok_and(|exe| exe == Path::new(path))
        && let Ok((file, meta)) = open_with_own_rights(Path::new(&format!("/proc/{}/exe", m.pid)))
        && meta.ino() == m.inode
    {
        return Ok(file);
    }
    Err(refusal)
}

/// Opens the regular file that this program's user names: a command to run, a file in an argument.
/// The user's own rights hold. A device or FIFO is not opened.
///
/// # Errors
/// `InvalidInput` if it is not a regular file; otherwise the kernel's error.
pub fn open_named_by_user(path: &Path) -> io::Result<File> {
    match open_with_own_rights(path) {
        Ok((file, _)) => Ok(file),
        Err(Refusal::NotRegular) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not a regular file", path.display()),
        )),
        Err(Refusal::Absent) => Err(io::ErrorKind::NotFound.into()),
        Err(Refusal::NotPermitted) => Err(io::ErrorKind::PermissionDenied.into()),
        Err(Refusal::Io(e)) => Err(e),
        Err(other) => Err(io::Error::other(other.to_string())),
    }
}

#[cfg(test)]
#[path = "target_file_tests.rs"]
mod tests;
