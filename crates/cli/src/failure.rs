//! Failure of a verb: the contract's exit code and one message.

use std::{io, process::ExitCode};

/// A verb's failure.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    error: Option<anyhow::Error>,
}

impl Failure {
    /// A wrong command line that clap does not detect: exit code 2.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure {
            code: 2,
            error: Some(anyhow::Error::msg(message.into())),
        }
    }

    /// A file that cannot be read: exit code 5.
    pub fn unreadable(message: impl Into<String>) -> Failure {
        Failure {
            code: 5,
            error: Some(anyhow::Error::msg(message.into())),
        }
    }

    /// A failure with an exit code of its own.
    pub fn of(code: u8, error: anyhow::Error) -> Failure {
        Failure {
            code,
            error: Some(error),
        }
    }

    /// A failure without a message. Either the measured command failed and `code` is its exit status, or a
    /// warning about an incomplete file was already printed.
    pub fn told(code: u8) -> Failure {
        Failure { code, error: None }
    }

    /// The reader of our output closed it: exit code 0, no message.
    pub fn reader_gone() -> Failure {
        Failure {
            code: 0,
            error: None,
        }
    }

    /// Tells the user, and returns the exit code.
    pub fn report(self) -> ExitCode {
        if let Some(error) = self.error {
            eprintln!("wallscope: {error:#}{}", remedy(&error));
        }
        ExitCode::from(self.code)
    }
}

/// All other errors: exit code 1.
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure {
            code: 1,
            error: Some(error),
        }
    }
}

/// The remedy for a cause that may occur with any message: a file over the size limit.
fn remedy(error: &anyhow::Error) -> &'static str {
    let too_large = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<io::Error>();
        io.is_some_and(|e| e.kind() == io::ErrorKind::FileTooLarge)
    };
    match error.chain().any(too_large) {
        true => {
            "; `ulimit -f` shows how large files may get here, `ulimit -f unlimited` lifts that"
        }
        false => "",
    }
}
