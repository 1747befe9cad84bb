//! FILE arguments: a path or `-`, in any format that can be read, or an agent's directory.

use std::io::{ErrorKind, IsTerminal as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use wallscope_formats::{Format, Options, Read, ReadError, open};
use wallscope_model::Recording;
use wallscope_procfs::target_file::Rights;

use crate::failure::Failure;
use crate::import_postprocess::{self, CopiedStacks};
use crate::windows::{Choice, Directory};

/// How files are to be read; part of every verb that takes FILE.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Reading {
    /// Which of the file's values to read: an event of record -e, or the name that another tool's file gives
    /// it (for folded stacks: the kind of the numbers)
    #[arg(long, value_name = "NAME")]
    value: Option<String>,
    #[command(flatten)]
    windows: Choice,
}

/// Whether standard input has been read; it cannot be read twice.
static STDIN_READ: AtomicBool = AtomicBool::new(false);

/// Whether a file that was read ended in the middle.
static CUT: AtomicBool = AtomicBool::new(false);

/// Whether any file read so far was incomplete. Its readable part is shown, and the exit code says that
/// the rest is missing.
pub fn was_cut() -> bool {
    CUT.load(Ordering::Relaxed)
}

/// Reads the recording in `path`, or the windows in it where it is a directory; warnings go to stderr.
pub fn recording(path: &Path, reading: &Reading) -> Result<Recording, Failure> {
    let recording = match Directory::of(path) {
        Some(dir) => reading.windows.recording(&dir)?,
        None if reading.windows.has_times() => {
            return Err(Failure::usage(format!(
                "--from and --until choose windows of an agent's directory, and '{}' is none; \
                 use --time for a part of a recording",
                path.display()
            )));
        }
        None => file_recording(path, reading)?,
    };
    reading.windows.services(recording)
}

/// Says why the content of a file cannot be used, and the remedy.
fn unusable(name: &str, e: &ReadError) -> Failure {
    let next = match e {
        ReadError::Empty => {
            "was the recording stopped before it was written? Record again".to_string()
        }
        ReadError::Unrecognised { .. } => {
            let names: Vec<_> = Format::read().map(|f| f.name).collect();
            format!(
                "wallscope reads {} (see wallscope export --help)",
                names.join(", ")
            )
        }
        ReadError::Truncated => "copy it again, or record again".to_string(),
        ReadError::TooLarge { .. } => {
            "is it a profile at all? If so, record for less time".to_string()
        }
        ReadError::NotRead { convert, .. } => format!("convert it: {convert}"),
        ReadError::UnknownLayout { .. } => {
            "update wallscope, or save the file in an older version of its format".to_string()
        }
        ReadError::Ambiguous { choose, .. } => choose.clone(),
        ReadError::NoValues => "was anything running while it was made?".to_string(),
        ReadError::NoSuchValue { .. } => "choose one of them with --value".to_string(),
        // `Damaged`, and causes that a later version of the reader adds.
        _ => "copy it again, or make it again".to_string(),
    };
    Failure::unreadable(format!("cannot use {name}: {e}; {next}"))
}

/// Reads the recording in a file.
fn file_recording(path: &Path, reading: &Reading) -> Result<Recording, Failure> {
    let name = if path == Path::new("-") {
        "standard input".to_string()
    } else {
        format!("'{}'", path.display())
    };
    let owner = owner(path);
    let mut unwinder = CopiedStacks::new(owner.clone());
    let options = Options {
        value: reading.value.clone(),
        unwind: Some(&mut unwinder),
        ..Options::default()
    };
    let read = if path == Path::new("-") {
        if std::io::stdin().is_terminal() {
            return Err(Failure::usage(
                "standard input is a terminal: name a file, or pipe one in".to_string(),
            ));
        }
        if STDIN_READ.swap(true, Ordering::Relaxed) {
            return Err(Failure::usage(
                "standard input can be read once: write it to a file, and name that",
            ));
        }
        open(std::io::stdin(), options)
    } else if is_address(path) {
        let body = fetch(&path.to_string_lossy()).map_err(|e| {
            Failure::unreadable(format!(
                "cannot read {name}: {e}; is it served there? Try curl -v"
            ))
        })?;
        open(body, options)
    } else {
        let file = file(path).map_err(|e| {
            let next = match e.kind() {
                ErrorKind::NotFound => {
                    "check the path, or record one: wallscope record -o FILE -- CMD"
                }
                ErrorKind::PermissionDenied => &not_permitted(path),
                _ => "check the file and its disk",
            };
            Failure::unreadable(format!("cannot read {name}: {e}; {next}"))
        })?;
        open(file, options)
    };
    let Read {
        mut recording,
        warnings,
        unnamed,
        cut,
        ..
    } = read.map_err(|e| unusable(&name, &e))?;
    CUT.fetch_or(cut, Ordering::Relaxed);
    for warning in &warnings {
        eprintln!("wallscope: warning: {name}: {warning}");
    }
    if let Some(unnamed) = unnamed {
        import_postprocess::name(&mut recording, unnamed, owner);
    }
    Ok(recording)
}

/// The rights with which files named by the profile in `path` are opened: those of the profile's owner.
/// For standard input that is the owner of the file or pipe. A profile from the web has no owner.
pub fn owner(path: &Path) -> Rights {
    let meta = match path == Path::new("-") {
        true => std::fs::metadata("/proc/self/fd/0"),
        false => std::fs::metadata(path),
    };
    meta.map_or_else(|_| Rights::of_nobody(), |meta| Rights::of_owner(&meta))
}

/// Whether a FILE argument is an HTTP or HTTPS address.
pub fn is_address(path: &Path) -> bool {
    path.to_str()
        .is_some_and(|p| p.starts_with("http://") || p.starts_with("https://"))
}

/// Fetches `address`: Go programs and others serve profiles under `/debug/pprof/`. The server answers
/// after the profile's length, so there is no timeout for the answer. Certificates are checked against
/// the machine's trusted authorities (`SSL_CERT_FILE` names further ones).
fn fetch(address: &str) -> anyhow::Result<impl std::io::Read + Send + 'static> {
    let tls = ureq::tls::TlsConfig::builder()
        .root_certs(ureq::tls::RootCerts::PlatformVerifier)
        .build();
    let answer = ureq::get(address)
        .config()
        .tls_config(tls)
        .timeout_connect(Some(std::time::Duration::from_secs(10)))
        .build()
        .call()?;
    Ok(answer.into_body().into_reader())
}

/// Owner and mode of a file that may not be read, and the command that helps.
fn not_permitted(path: &Path) -> String {
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(meta) => format!(
            "it belongs to user {}, mode {:04o}; `sudo chown $(id -u) {shown}` makes it yours",
            meta.uid(),
            meta.mode() & 0o7777
        ),
        Err(_) => format!("its folder is closed to you; `sudo cp {shown} .` brings it here"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the user names the profile, which may be a FIFO"
)]
fn file(path: &Path) -> std::io::Result<std::fs::File> {
    let file = std::fs::File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    Ok(file)
}
