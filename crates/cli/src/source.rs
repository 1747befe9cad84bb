//! Verbs that take a recording or something alive: a file is read, a live target is measured first.

use std::path::PathBuf;
use std::time::Duration;

use wallscope_capture::backend::Backend;
use wallscope_capture::session::{Method, Options, Stop, parse_duration};
use wallscope_capture::target::Target;
use wallscope_model::Recording;

use crate::failure::Failure;
use crate::input;
use crate::record::{measure, output};
use crate::target_args::TargetArgs;

/// Time for which `locks` and `why` measure a live target.
pub const BRIEFLY: Duration = Duration::from_secs(10);

/// A recording, or a target to record.
#[derive(Debug, clap::Args)]
pub struct Source {
    /// A recording; - reads standard input
    #[arg(conflicts_with = "target")]
    file: Option<PathBuf>,
    #[command(flatten)]
    reading: input::Reading,
    #[command(flatten)]
    live: Live,
}

/// A live target, and how to measure it. The verb has an argument `file` beside it.
#[derive(Debug, clap::Args)]
pub struct Live {
    #[command(flatten)]
    target: TargetArgs,
    /// How long to measure a live target; default: 10 s, for ladder 30 s
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// How to measure a live target; default: the best that is allowed here
    #[arg(long, value_enum, value_name = "HOW", conflicts_with = "file")]
    backend: Option<Backend>,
    /// Where to keep the recording of a live target; default: a dated name in this folder
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A recording that was read, or made now.
pub struct OpenedRecording {
    /// The recording.
    pub recording: Recording,
    /// Its file.
    pub path: PathBuf,
    /// Why measuring stopped, if it was made now.
    pub stop: Option<Stop>,
}

impl Source {
    /// The live target, if one was named.
    pub fn target(&self) -> Option<Target> {
        self.live.target.target()
    }

    /// The recording and its file. A live target is measured now with the defaults of `record`, for
    /// `usual` unless a time was given. `verb` is named in messages.
    ///
    /// # Errors
    /// Neither file nor target is named, the file is unreadable, or the target cannot be measured.
    pub fn recording(self, verb: &str, usual: Duration) -> Result<OpenedRecording, Failure> {
        match (&self.file, self.live.target.target()) {
            (Some(file), _) => Ok(OpenedRecording {
                recording: input::recording(file, &self.reading)?,
                path: file.clone(),
                stop: None,
            }),
            (None, Some(target)) => self.measured(target, usual),
            (None, None) => Err(Failure::usage(format!(
                "{verb} needs a recording, or a target: -p PID, --cgroup PATH, -a, or -- CMD ARGS…"
            ))),
        }
    }

    /// Whether neither a recording nor a target was named.
    pub fn is_empty(&self) -> bool {
        self.file.is_none() && self.live.target.target().is_none()
    }

    /// How long to measure, `usual` unless a time was given.
    pub fn length(&self, usual: Duration) -> Duration {
        self.live.duration.unwrap_or(usual)
    }

    /// A recording of `target`, made now as [`Source::recording`] does.
    ///
    /// # Errors
    /// Not to be measured, or not to be written.
    pub fn measured(self, target: Target, usual: Duration) -> Result<OpenedRecording, Failure> {
        self.live.measured(target, usual)
    }
}

impl Live {
    /// The live target, if one was named.
    pub fn target(&self) -> Option<Target> {
        self.target.target()
    }

    /// A recording of `target`, made now with the defaults of `record`, for `usual` unless a time was
    /// given.
    ///
    /// # Errors
    /// Not to be measured, or not to be written.
    pub fn measured(self, target: Target, usual: Duration) -> Result<OpenedRecording, Failure> {
        let method = Method {
            duration: Some(self.duration.unwrap_or(usual)),
            backend: self.backend,
            ..Method::default()
        };
        let options = Options::new(target, method);
        let output = output(self.output.as_deref())?;
        // The command's own status does not matter here.
        let recorded = measure(&options, output)?;
        Ok(OpenedRecording {
            recording: recorded.recording,
            path: recorded.path,
            stop: Some(recorded.stop),
        })
    }
}
