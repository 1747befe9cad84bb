//! DIR arguments: the windows that an agent kept, merged into one recording.
//!
//! `--from` and `--until` choose the windows, or `DIR@FROM..UNTIL` where a verb takes several (`diff`).

use std::path::{Path, PathBuf};

use jiff::{Timestamp, Zoned};
use wallscope_agent::store::{self, Selected, Stored, TimeRange};
use wallscope_analysis::select::Selection;
use wallscope_model::Recording;

use crate::failure::Failure;

/// The options that choose windows; part of every verb that takes FILE.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Choice {
    /// Of an agent's directory: windows from this time on (14:00, 14:00:30, -10m, RFC 3339)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,
    /// Of an agent's directory: windows before this time; default: five minutes after --from
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<String>,
    /// Only this service
    #[arg(long, value_name = "NAME")]
    service: Vec<String>,
}

/// A directory of windows, with the times that its argument names.
pub struct Directory {
    path: PathBuf,
    times: Option<(String, String)>,
}

impl Directory {
    /// The directory that a FILE argument names, if it names one.
    pub fn of(argument: &Path) -> Option<Directory> {
        if argument.is_dir() {
            let path = argument.to_owned();
            return Some(Directory { path, times: None });
        }
        let (path, times) = argument.to_str()?.rsplit_once('@')?;
        let (from, until) = times.split_once("..")?;
        let is_dir = Path::new(path).is_dir() && !argument.exists();
        is_dir.then(|| Directory {
            path: path.into(),
            times: Some((from.to_string(), until.to_string())),
        })
    }
}

impl Choice {
    /// The windows of `dir`, merged; the services are selected.
    pub fn recording(&self, dir: &Directory) -> Result<Recording, Failure> {
        let unusable = |e: store::StoreError| Failure::unreadable(e.to_string());
        let windows = store::list(&dir.path).map_err(unusable)?;
        let range = self.range(dir, &windows)?;
        let Selected {
            recording,
            windows,
            warnings,
        } = store::merged(&dir.path, range).map_err(unusable)?;
        for warning in warnings {
            eprintln!("wallscope: warning: {warning}");
        }
        let w = &recording.window;
        let at = |ns: u64| local(ns).strftime("%Y-%m-%d %H:%M:%S").to_string();
        eprintln!(
            "wallscope: {windows} windows, {} to {}",
            at(w.start_unix_ns),
            at(w.start_unix_ns.saturating_add(w.length_ns()))
        );
        Ok(recording)
    }

    /// The selected services of a recording.
    pub fn services(&self, recording: Recording) -> Result<Recording, Failure> {
        let selection = Selection {
            services: self.service.clone(),
            ..Selection::default()
        };
        let selected = selection
            .apply(recording)
            .map_err(|e| Failure::usage(e.to_string()))?;
        if !selected.unmet.is_empty() {
            eprintln!("wallscope: warning: --service meets nothing in this recording");
        }
        Ok(selected.recording)
    }

    /// Whether windows of a directory are chosen by options.
    pub fn has_times(&self) -> bool {
        self.from.is_some() || self.until.is_some()
    }

    fn range(&self, dir: &Directory, windows: &[Stored]) -> Result<TimeRange, Failure> {
        let given = |text: &str| Some(text.to_string()).filter(|t| !t.is_empty());
        let (from, until) = match &dir.times {
            Some((from, until)) => (given(from), given(until)),
            None => (self.from.clone(), self.until.clone()),
        };
        let last = windows.last().map_or(0, |w| w.name.end_ms());
        // Without times, the directory's last minutes: it may be a copy of an older one.
        let now = match (&from, &until) {
            (None, None) => local(last.unsigned_abs() * 1_000_000),
            _ => Zoned::now(),
        };
        store::parse_range(from.as_deref(), until.as_deref(), &now)
            .map_err(|e| Failure::usage(e.to_string()))
    }
}

/// A time of the wall clock, ns since the epoch, in the local time zone.
fn local(unix_ns: u64) -> Zoned {
    let at = Timestamp::from_nanosecond(i128::from(unix_ns)).unwrap_or(Timestamp::UNIX_EPOCH);
    at.to_zoned(jiff::tz::TimeZone::system())
}
