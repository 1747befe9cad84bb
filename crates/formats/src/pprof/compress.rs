//! Compression of written recordings: fast, or small for files that are kept.

use std::io::{self, Write};

use flate2::{Compression, write::GzEncoder};
use wallscope_model::Recording;
use wallscope_model::scale::Scaled;

use super::write::encode;

/// Writes `recording`, its samples scaled as in `scaled`, as gzip-compressed pprof.
///
/// # Errors
/// Errors of `out`.
pub fn write<W: Write>(recording: &Recording, scaled: &Scaled, out: W) -> io::Result<W> {
    encode(recording, scaled, GzEncoder::new(out, Compression::fast()))
}

/// Like [`write()`], with a sixth fewer bytes and some 40 ms more of CPU time for each MB: for files that are kept.
///
/// # Errors
/// Errors of `out`.
pub fn write_small<W: Write>(recording: &Recording, scaled: &Scaled, out: W) -> io::Result<W> {
    let level = Compression::default();
    encode(recording, scaled, GzEncoder::new(out, level))
}
