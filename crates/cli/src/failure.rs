//! How a verb fails: the contract's exit code and one message.

use std::{io, process::ExitCode};

/// A verb's failure.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    error: Option<anyhow::Error>,
}

impl Failure {
    /// A use of the command line that clap cannot see is wrong: exit code 2.
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

    /// There is nothing to say, or it was said: the measured command failed, whose status is ours, or a
    /// warning told of a file that is not whole.
    pub fn told(code: u8) -> Failure {
        Failure { code, error: None }
    }

    /// The reader of our output has gone away: no failure of ours, and nothing to say.
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

/// Whatever else goes wrong: exit code 1.
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure {
            code: 1,
            error: Some(error),
        }
    }
}

/// What to do about a cause that the same message everywhere would not tell.
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
