//! Sends the windows of one outbox.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use wallscope_formats::{Format, Options, ReadError, WriteOptions, open};
use wallscope_model::Recording;

use super::Backoff;
use super::pyroscope;
use crate::config::{Target, TargetKind};
use crate::http::{Body, Client, ClientError, ClientOptions};
use crate::metrics::TargetFigures;
use crate::store::{Outbox, StoreError, Stored};

/// Why a window was not delivered.
#[derive(Debug, thiserror::Error)]
pub enum CourierError {
    /// The receiver did not take it.
    #[error(transparent)]
    Http(#[from] ClientError),
    /// The outbox cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The window cannot be read.
    #[error("cannot read the window: {0}")]
    Window(#[from] ReadError),
    /// The window cannot be put into the receiver's form.
    #[error("cannot encode the window: {0}")]
    Encode(std::io::Error),
}

impl CourierError {
    /// Whether the window can never be delivered.
    fn is_final(&self) -> bool {
        match self {
            CourierError::Http(e) => e.is_refusal(),
            CourierError::Window(_) | CourierError::Encode(_) => true,
            CourierError::Store(_) => false,
        }
    }
}

/// Outcome of one step of a courier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The outbox is empty.
    Empty,
    /// A window left the outbox.
    Done,
    /// An attempt failed; the next one is due after this time.
    Wait(Duration),
}

/// Figures of a courier.
#[derive(Clone, Debug, Default)]
pub struct CourierFigures {
    /// For metrics.
    pub figures: TargetFigures,
    /// The last error, until a window is delivered.
    pub error: Option<String>,
}

/// Empties the outbox of one target.
#[derive(Debug)]
pub struct Courier {
    target: Target,
    outbox: Outbox,
    client: Client,
    backoff: Backoff,
    state: CourierFigures,
}

impl Courier {
    /// A courier for `target`.
    ///
    /// # Errors
    /// [`ClientError`] if a file of the target or its proxy cannot be used.
    pub fn new(target: Target, outbox: Outbox, seed: u64) -> Result<Courier, ClientError> {
        let client = Client::new(ClientOptions {
            token_file: target.token_file.clone(),
            ca_file: target.ca_file.clone(),
            proxy: target.proxy.as_ref().map(|p| p.0.clone()),
            headers: target.headers.clone(),
            timeout: target.timeout.0,
        })?;
        Ok(Courier {
            target,
            outbox,
            client,
            backoff: Backoff::new(seed),
            state: CourierFigures::default(),
        })
    }

    /// The figures so far.
    pub fn figures(&self) -> &CourierFigures {
        &self.state
    }

    /// Sends the oldest window, if there is one.
    pub fn step(&mut self) -> Step {
        let pending = match self.outbox.pending() {
            Ok(pending) => pending,
            Err(e) => return self.failed(&CourierError::Store(e)),
        };
        self.state.figures.pending = pending.len() as u64;
        self.state.figures.pending_bytes = pending.iter().map(|w| w.bytes).sum();
        let Some(window) = pending.first() else {
            return Step::Empty;
        };
        match self.deliver(window) {
            Ok(()) => {
                self.state.figures.delivered += 1;
                self.state.error = None;
            }
            Err(e) if e.is_final() => {
                self.state.figures.refused += 1;
                self.state.error = Some(format!("{}: {e}", window.name.file_name()));
            }
            Err(e) => return self.failed(&e),
        }
        self.backoff.succeeded();
        match self.outbox.remove(&window.name.file_name()) {
            Ok(_) => {
                let figures = &mut self.state.figures;
                figures.pending -= 1;
                figures.pending_bytes = figures.pending_bytes.saturating_sub(window.bytes);
                Step::Done
            }
            Err(e) => self.failed(&CourierError::Store(e)),
        }
    }

    fn failed(&mut self, e: &CourierError) -> Step {
        self.state.figures.failures += 1;
        self.state.error = Some(e.to_string());
        let asked = match e {
            CourierError::Http(ClientError::Status { retry_after, .. }) => *retry_after,
            _ => None,
        };
        Step::Wait(self.backoff.failed(asked))
    }

    fn deliver(&mut self, window: &Stored) -> Result<(), CourierError> {
        let url = &self.target.url.0;
        if self.target.kind == TargetKind::Wallscope {
            let Some(bytes) = read(&window.path)? else {
                return Ok(());
            };
            let url = format!("{url}/v1/windows/{}", window.name.key.path());
            let body = Body {
                content_type: "application/gzip",
                bytes: &bytes,
            };
            return Ok(self.client.put(&url, body)?);
        }
        let Some(bytes) = read(&window.path)? else {
            return Ok(());
        };
        let recording = open(&bytes[..], Options::default())?.recording;
        let (path, content_type, bytes) = self.encoded(&recording)?;
        let was_sent = self.outbox.mark_sent(&window.name)?;
        let body = Body {
            content_type,
            bytes: &bytes,
        };
        self.client.post(&format!("{url}{path}"), body)?;
        self.state.figures.maybe_twice += u64::from(was_sent);
        self.outbox.unmark_sent(&window.name)?;
        Ok(())
    }

    /// Path, media type and content for receivers without keys.
    fn encoded(
        &self,
        window: &Recording,
    ) -> Result<(&'static str, &'static str, Vec<u8>), CourierError> {
        if self.target.kind == TargetKind::Pyroscope {
            let body = pyroscope::push(window).map_err(CourierError::Encode)?;
            return Ok((pyroscope::PATH, "application/json", body));
        }
        let mut body = Vec::new();
        let unsupported = || CourierError::Encode(ErrorKind::Unsupported.into());
        let format = Format::named("otlp").ok_or_else(unsupported)?;
        format
            .write(window, &WriteOptions::default(), &mut body)
            .map_err(CourierError::Encode)?;
        Ok(("/v1development/profiles", "application/x-protobuf", body))
    }
}

/// The file's content; `None`: the store dropped it meanwhile.
fn read(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    #[expect(clippy::disallowed_methods, reason = "a window of our own store")]
    let bytes = std::fs::read(path);
    match bytes {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StoreError::Io {
            doing: "read",
            path: path.to_owned(),
            source,
        }),
    }
}
