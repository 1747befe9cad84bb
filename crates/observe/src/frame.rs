//! Frames: the units in which a log is written and checked.
//!
//! ```text
//! length    u32, bytes of the payload
//! crc32     u32, of the sequence number and the payload
//! sequence  u32, from 0
//! payload   observations, none of them divided between frames
//! ```
//!
//! All numbers are little-endian. Differences between records begin anew with each frame.

use std::io::{self, Read};

/// Maximum bytes of a frame's payload.
pub const MAX_PAYLOAD: usize = 256 << 10;

/// Bytes before the payload.
pub(crate) const HEAD: usize = 12;

/// Makes a frame of `payload`.
pub(crate) fn put(sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD + payload.len());
    frame.extend((payload.len() as u32).to_le_bytes());
    frame.extend(crc(sequence, payload).to_le_bytes());
    frame.extend(sequence.to_le_bytes());
    frame.extend(payload);
    frame
}

fn crc(sequence: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&sequence.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// Why a frame could not be read.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The bytes end within it.
    Cut,
    /// It claims to be longer than any frame.
    Long(u32),
    /// Its checksum is wrong.
    Checksum,
    /// Its sequence number is not the next one.
    Order(u32),
    /// The bytes cannot be read.
    Io(io::Error),
}

/// Reads the frame with this sequence number into `payload`; `false`: there are no more bytes.
///
/// # Errors
/// The bytes that follow are not that frame.
pub(crate) fn get(
    from: &mut impl Read,
    sequence: u32,
    payload: &mut Vec<u8>,
) -> Result<bool, Fault> {
    payload.clear();
    let mut head = [0; HEAD];
    match fill(from, &mut head)? {
        0 => return Ok(false),
        HEAD => {}
        _ => return Err(Fault::Cut),
    }
    let word = |at: usize| {
        let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
        u32::from_le_bytes(bytes)
    };
    let (length, expected, number) = (word(0), word(4), word(8));
    if length as usize > MAX_PAYLOAD {
        return Err(Fault::Long(length));
    }
    payload.resize(length as usize, 0);
    if fill(from, payload)? < payload.len() {
        return Err(Fault::Cut);
    }
    if crc(number, payload) != expected {
        return Err(Fault::Checksum);
    }
    if number != sequence {
        return Err(Fault::Order(number));
    }
    Ok(true)
}

/// Reads until `to` is full or the bytes end. Returns the number of bytes read.
fn fill(from: &mut impl Read, to: &mut [u8]) -> Result<usize, Fault> {
    let mut n = 0;
    while n < to.len() {
        match from.read(&mut to[n..]) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Fault::Io(e)),
        }
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_it_was_written_and_nothing_else_is() {
        let frame = put(3, b"payload");
        let mut payload = Vec::new();
        assert!(matches!(get(&mut &frame[..], 3, &mut payload), Ok(true)));
        assert_eq!(payload, b"payload");
        assert!(matches!(get(&mut &[][..], 3, &mut payload), Ok(false)));
        for cut in 1..frame.len() {
            let read = get(&mut &frame[..cut], 3, &mut payload);
            assert!(matches!(read, Err(Fault::Cut)), "cut to {cut}: {read:?}");
        }
        for at in 0..frame.len() {
            let mut damaged = frame.clone();
            damaged[at] ^= 1;
            let read = get(&mut &damaged[..], 3, &mut payload);
            assert!(read.is_err(), "damaged at {at}");
        }
        assert!(matches!(
            get(&mut &frame[..], 4, &mut payload),
            Err(Fault::Order(3))
        ));
    }

    #[test]
    fn a_length_beyond_the_most_is_not_allocated() {
        let frame = [0xff; HEAD];
        let mut payload = Vec::new();
        let read = get(&mut &frame[..], 0, &mut payload);
        assert!(matches!(read, Err(Fault::Long(u32::MAX))));
        assert_eq!(payload.capacity(), 0);
    }
}
