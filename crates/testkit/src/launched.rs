//! Truth programs that `record` starts itself.

use std::time::Duration;

use crate::tool::{Options, Run};
use crate::{Error, Tool, program};

impl Tool {
    /// Lets `record` start a truth program, and reads the recording. `command`: the program and its flags.
    ///
    /// # Errors
    /// The reason why the experiment cannot be made.
    pub fn measure_launched(&self, command: &[&str], options: &Options) -> Result<Run, Error> {
        let program = program::path().to_string_lossy();
        let recorder = self.record(&[&["--", &*program], command].concat(), options)?;
        let limit = Duration::from_secs(120);
        let ready = recorder.output_line(limit)?;
        if !ready.starts_with("READY ") {
            return Err(Error::Protocol(format!(
                "{command:?} said {ready:?}, not READY"
            )));
        }
        let truth = recorder.output_line(limit)?;
        let truth = serde_json::from_str(&truth)
            .map_err(|error| Error::Protocol(format!("the truth of {command:?}: {error}")))?;
        Run::read(truth, recorder.ends_with(0)?)
    }
}
