//! Errors of measuring: for the operator, each with cause, present value and next step.

use std::io;

/// Why a recording could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such process.
    #[error("no process with pid {pid}: it has ended, or never was; see `ps -p {pid}`")]
    NoSuchProcess {
        /// The pid that was asked for.
        pid: u32,
    },
    /// A number that names something else than a process to measure.
    #[error("pid {pid} cannot be measured: {why}")]
    NotAProcess {
        /// The pid that was asked for.
        pid: u32,
        /// Cause, and the target to name instead.
        why: String,
    },
    /// No such cgroup.
    #[error("no cgroup at {path}: {why}; `cat /proc/PID/cgroup` names a process's cgroups")]
    NoSuchCgroup {
        /// The path that was asked for.
        path: String,
        /// Cause.
        why: String,
    },
    /// Nothing of that name can be probed.
    #[error("cannot probe {asked}: {why}; {instead}")]
    NoFunction {
        /// As it was asked for.
        asked: String,
        /// Cause.
        why: String,
        /// What could be asked for instead.
        instead: String,
    },
    /// Probing would cost, or harm, more than is allowed.
    #[error("refused to probe {what}: {why}; {instead}")]
    Refused {
        /// The function.
        what: String,
        /// The figure, or the harm.
        why: String,
        /// Remedy.
        instead: String,
    },
    /// Stacks at an event cannot be had here.
    #[error(
        "cannot take stacks at {name}: {why}; leave it out of -e, or see `wallscope stat -e {name}`"
    )]
    NoEvent {
        /// The event.
        name: String,
        /// Cause.
        why: String,
    },
    /// The cost of the backend that is left cannot be limited.
    #[error(
        "--max-total-overhead binds the ebpf backend only, which is not used here ({why}); leave it out, or run \
         as root, or see `wallscope doctor`"
    )]
    NoBudget {
        /// Why another backend would measure.
        why: String,
    },
    /// The command could not be started.
    #[error("cannot start '{command}': {cause}; {}", to_start(.code))]
    Start {
        /// The command.
        command: String,
        /// 126: not executable; 127: not found.
        code: u8,
        /// Cause.
        cause: io::Error,
    },
    /// The host refuses a right that is needed.
    #[error("{what}: {why}; {remedy}")]
    NotPermitted {
        /// The attempt.
        what: String,
        /// The kernel's error.
        why: String,
        /// Remedy.
        remedy: String,
    },
    /// The kernel lacks something.
    #[error("{what} is not supported here (kernel {release}): {remedy}")]
    NotSupported {
        /// The missing feature.
        what: String,
        /// `uname -r`.
        release: String,
        /// Remedy.
        remedy: String,
    },
    /// The kernel refused a program or a map.
    #[error("{what}: {cause:#}")]
    Bpf {
        /// The attempt.
        what: String,
        /// libbpf's error.
        cause: libbpf_rs::Error,
    },
    /// Anything from the system.
    #[error("{what}: {cause}")]
    Io {
        /// The attempt.
        what: String,
        /// Cause.
        cause: io::Error,
    },
}

/// Advice for a command that does not start.
fn to_start(code: &u8) -> &'static str {
    match code {
        127 => "check its name and path; what a shell does needs one: -- sh -c 'A | B'",
        _ => "is it a program, or a script with its #! line, and may you run it?",
    }
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Error::Io {
            what: what.into(),
            cause: source.into(),
        }
    }

    pub(crate) fn bpf(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> Self {
        let what = what.into();
        move |cause| Error::Bpf { what, cause }
    }

    /// The contract's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::NoSuchProcess { .. }
            | Error::NotAProcess { .. }
            | Error::NoSuchCgroup { .. }
            | Error::NoFunction { .. } => 4,
            Error::Start { code, .. } => *code,
            Error::NotPermitted { .. }
            | Error::NotSupported { .. }
            | Error::Refused { .. }
            | Error::NoBudget { .. }
            | Error::NoEvent { .. } => 3,
            Error::Bpf { .. } | Error::Io { .. } => 1,
        }
    }
}
