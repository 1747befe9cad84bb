//! Adds windows to a store and keeps its caps.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use wallscope_formats::pprof;
use wallscope_model::scale::scale;
use wallscope_model::{Loss, Recording};

use super::files::{NEW, create, create_dir, remove_unfinished, sync_dir, write_atomically};
use super::outbox::{self, Outbox};
use super::read::scan;
use super::{StoreError, Stored, WindowKey, WindowName, version};

/// File of losses that no window has reported yet.
const UNTOLD: &str = "untold.json";
/// Loss of windows that could not be written.
const UNWRITTEN: &str = "windows that could not be written";
/// Loss of windows that were dropped before their age, because of the cap of bytes.
pub const DROPPED: &str = "windows dropped before their age: the store was full";

/// Limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Most bytes of all windows.
    pub bytes: u64,
    /// Age at which a window is dropped.
    pub age: Duration,
}

/// A store that is written.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    caps: Caps,
    outboxes: Vec<(String, Outbox)>,
    windows: VecDeque<Stored>,
    bytes: u64,
    /// Losses that no window has reported yet, by cause.
    untold: BTreeMap<String, u64>,
}

impl Store {
    /// Opens or makes the store `dir`, with an outbox for each of `targets`.
    ///
    /// # Errors
    /// [`StoreError`] if it cannot be written, or has a newer layout.
    pub fn open(dir: &Path, caps: Caps, targets: &[String]) -> Result<Store, StoreError> {
        create_dir(dir)?;
        version::mark(dir)?;
        remove_unfinished(dir)?;
        outbox::remove_others(dir, targets)?;
        let open = |t: &String| Ok((t.clone(), Outbox::open(dir, t)?));
        let windows: VecDeque<Stored> = scan(dir)?.into();
        Ok(Store {
            dir: dir.to_owned(),
            caps,
            outboxes: targets
                .iter()
                .map(open)
                .collect::<Result<_, StoreError>>()?,
            bytes: windows.iter().map(|w| w.bytes).sum(),
            windows,
            untold: read_untold(dir),
        })
    }

    /// Bytes of all windows.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The windows, oldest first.
    pub fn windows(&self) -> impl ExactSizeIterator<Item = &Stored> {
        self.windows.iter()
    }

    /// The outbox of each target.
    pub fn outboxes(&self) -> &[(String, Outbox)] {
        &self.outboxes
    }

    /// Losses that the next window will report, by cause.
    pub fn untold(&self) -> &BTreeMap<String, u64> {
        &self.untold
    }

    /// Counts a loss of the agent; the next window reports it.
    pub fn lost(&mut self, cause: &str, count: u64) {
        if count > 0 {
            *self.untold.entry(cause.to_string()).or_default() += count;
        }
    }

    /// Takes a loss over from the store as it was opened before.
    pub fn lost_if_unknown(&mut self, cause: &str, count: u64) {
        let own = self.untold.entry(cause.to_string()).or_default();
        *own = (*own).max(count);
    }

    /// Adds a window. It is durable when this returns.
    ///
    /// # Errors
    /// [`StoreError::Io`]; then the window is not there, and the next window reports the loss.
    pub fn add(&mut self, mut window: Recording, key: WindowKey) -> Result<Stored, StoreError> {
        let name = WindowName::new(&window.window, key);
        let stored = match self.make_room_and_write(&mut window, name) {
            Ok(stored) => stored,
            Err(e) => {
                self.lost(UNWRITTEN, 1);
                return Err(e);
            }
        };
        self.bytes += stored.bytes;
        self.windows.push_back(stored.clone());
        self.untold.clear();
        self.save_untold()?;
        // The window may be larger than the one before it. The next window reports the windows dropped here.
        self.drop_beyond(stored.name.end_ms(), 0)?;
        Ok(stored)
    }

    fn make_room_and_write(
        &mut self,
        window: &mut Recording,
        name: WindowName,
    ) -> Result<Stored, StoreError> {
        let usual = self.windows.back().map_or(0, |w| w.bytes);
        self.drop_beyond(name.end_ms(), usual)?;
        let own = window.losses.len();
        self.tell(window, own);
        match self.write(window, name.clone()) {
            Err(e) if e.is_full() => {
                // The newest minutes are worth more than the oldest.
                self.drop_oldest(usual.saturating_mul(2).max(1))?;
                self.tell(window, own);
                self.write(window, name)
            }
            result => result,
        }
    }

    /// Adds the unreported losses to the window, behind its `own` ones.
    fn tell(&self, window: &mut Recording, own: usize) {
        window.losses.truncate(own);
        let losses = self.untold.iter().map(|(cause, count)| Loss {
            cause: cause.clone(),
            count: *count,
        });
        window.losses.extend(losses);
    }

    /// Keeps the untold losses for the case that the agent ends before the next window.
    fn save_untold(&self) -> Result<(), StoreError> {
        let path = self.dir.join(UNTOLD);
        if self.untold.is_empty() {
            return match fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => Err(StoreError::io("remove", path)(e)),
                _ => Ok(()),
            };
        }
        let text = serde_json::to_vec(&self.untold).unwrap_or_default();
        match write_atomically(&path, |file| file.write_all(&text)) {
            // On a full disk the losses stay in memory, and those before them on the disk.
            Err(e) if e.is_full() => Ok(()),
            result => result,
        }
    }

    fn write(&self, window: &Recording, name: WindowName) -> Result<Stored, StoreError> {
        let file_name = name.file_name();
        let new = self.dir.join(format!("{NEW}{file_name}"));
        let path = self.dir.join(&file_name);
        let written = encode(window, &new).map_err(StoreError::io("write", new.clone()));
        let linked = written.and_then(|bytes| {
            for (_, outbox) in &self.outboxes {
                outbox.add(&new, &file_name)?;
            }
            fs::rename(&new, &path).map_err(StoreError::io("rename", new.clone()))?;
            sync_dir(&self.dir)?;
            Ok(bytes)
        });
        match linked {
            Ok(bytes) => Ok(Stored { path, name, bytes }),
            Err(e) => {
                // Makes room for the next window. The first error is reported.
                let _ = fs::remove_file(&new);
                for (_, outbox) in &self.outboxes {
                    let _ = outbox.remove(&file_name);
                }
                Err(e)
            }
        }
    }

    /// Drops windows that are too old at `now_ms`, and the oldest ones where `more` bytes do not fit.
    fn drop_beyond(&mut self, now_ms: i64, more: u64) -> Result<(), StoreError> {
        let age_ms = i64::try_from(self.caps.age.as_millis()).unwrap_or(i64::MAX);
        while let Some(oldest) = self.windows.front() {
            let is_old = oldest.name.end_ms() < now_ms.saturating_sub(age_ms);
            let is_full = self.bytes.saturating_add(more) > self.caps.bytes;
            // The newest window stays, however small the cap is.
            let is_last = more == 0 && self.windows.len() == 1;
            if is_last || !(is_old || is_full) {
                break;
            }
            if !is_old {
                self.lost(DROPPED, 1);
            }
            self.drop_front()?;
        }
        Ok(())
    }

    /// Drops the oldest windows until `bytes` are free.
    fn drop_oldest(&mut self, bytes: u64) -> Result<(), StoreError> {
        let goal = self.bytes.saturating_sub(bytes);
        while self.bytes > goal && !self.windows.is_empty() {
            self.lost(DROPPED, 1);
            self.drop_front()?;
        }
        Ok(())
    }

    fn drop_front(&mut self) -> Result<(), StoreError> {
        let Some(oldest) = self.windows.pop_front() else {
            return Ok(());
        };
        self.bytes -= oldest.bytes;
        let file_name = oldest.name.file_name();
        let waits = |(target, outbox): &(String, Outbox)| {
            (outbox.contains(&file_name)).then(|| undelivered(target))
        };
        let causes: Vec<String> = self.outboxes.iter().filter_map(waits).collect();
        for (cause, told) in told_by(&oldest.path, &causes) {
            // The target does not get the losses that this window reports.
            self.lost(&cause, 1 + told);
        }
        // Counted before the window is dropped: a crash in between counts a loss twice, and never hides one.
        self.save_untold()?;
        for (_, outbox) in &self.outboxes {
            outbox.remove(&file_name)?;
            outbox.unmark_sent(&oldest.name)?;
        }
        match fs::remove_file(&oldest.path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(StoreError::io("remove", oldest.path)(e))
            }
            _ => Ok(()),
        }
    }
}

/// The loss of windows that `target` never acknowledged.
pub fn undelivered(target: &str) -> String {
    format!("windows dropped before their delivery to {target}")
}

/// The count of each of `causes` among the losses that a window reports. A damaged window reports none.
fn told_by(window: &Path, causes: &[String]) -> Vec<(String, u64)> {
    let losses = match causes {
        [] => Vec::new(),
        _ => losses(window).unwrap_or_default(),
    };
    let count = |cause: &String| {
        let told = losses.iter().filter(|l| l.cause == *cause);
        (cause.clone(), told.map(|l| l.count).sum())
    };
    causes.iter().map(count).collect()
}

fn losses(window: &Path) -> Option<Vec<Loss>> {
    #[expect(clippy::disallowed_methods, reason = "the user names the directory")]
    let file = fs::File::open(window).ok()?;
    let read = wallscope_formats::open(file, Default::default()).ok()?;
    Some(read.recording.losses)
}

/// Losses that an ended agent did not report. A damaged file has none.
fn read_untold(dir: &Path) -> BTreeMap<String, u64> {
    #[expect(clippy::disallowed_methods, reason = "the user names the directory")]
    let text = fs::read(dir.join(UNTOLD)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Writes a window to the disk; returns its size.
fn encode(window: &Recording, path: &Path) -> io::Result<u64> {
    let mut out = BufWriter::new(create(path)?);
    pprof::write_small(window, &scale(window), &mut out)?;
    out.flush()?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_data()?;
    Ok(file.metadata()?.len())
}
