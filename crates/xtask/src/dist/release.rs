//! Version and time of a release.

use std::process::Command;

use crate::{Outcome, root};

/// A release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Release {
    /// Version of the workspace.
    pub version: &'static str,
    /// Time in all archives, s since 1970.
    pub time: u64,
}

impl Release {
    /// The release of this work tree, with the time of `SOURCE_DATE_EPOCH` or of the last commit.
    ///
    /// # Errors
    /// `SOURCE_DATE_EPOCH` is no number; without it, git knows no commit here.
    pub(super) fn current() -> Outcome<Release> {
        let told = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(told) => told,
            Err(_) => last_commit()?,
        };
        let time = told.trim().parse();
        Ok(Release {
            version: env!("CARGO_PKG_VERSION"),
            time: time
                .map_err(|_| format!("SOURCE_DATE_EPOCH is no number of seconds: {told:?}"))?,
        })
    }

    /// The time by a pattern of `strftime`, UTC.
    ///
    /// # Errors
    /// The time lies outside of the calendar.
    pub(super) fn formatted(&self, pattern: &str) -> Outcome<String> {
        let time = jiff::Timestamp::from_second(i64::try_from(self.time)?)?;
        Ok(time.strftime(pattern).to_string())
    }
}

fn last_commit() -> Outcome<String> {
    let git = Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(root())
        .output()?;
    if !git.status.success() {
        return Err("git knows no commit here: set SOURCE_DATE_EPOCH to seconds since 1970".into());
    }
    Ok(String::from_utf8(git.stdout)?)
}
