//! PHP functions: their names and files.

use super::super::python::{Code, Miss, check};

/// Maximum bytes of a text that is read from a target.
const MOST_TEXT: u64 = 4096;
/// Name of a file's code outside functions.
const MAIN: &str = "<main>";
/// Shown in place of the file for functions written in C.
const INTERNAL: &str = "php:internal";
/// The type byte of an internal function (`bpf/python_abi.h`).
const IS_INTERNAL: u8 = 1;

type Read<'r> = &'r mut dyn FnMut(u64, &mut [u8]) -> bool;

/// Reads the function at `address`; `file`: offset of its file in a function.
pub(super) fn read(file: u16, address: u64, seen: u32, read: Read<'_>) -> Result<Code, Miss> {
    let mut head = [0u8; 24];
    if !read(address, &mut head) {
        return Err(Miss::Unreadable);
    }
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let (name, class) = (word(8), word(16));
    if check(name, word(0) as u32) != seen {
        return Err(Miss::Changed);
    }
    let mut full = match name {
        0 => MAIN.to_owned(),
        at => text(at, read)?,
    };
    if class != 0 {
        let class = text(number(class.wrapping_add(8), read)?, read)?;
        full = format!("{class}::{full}");
    }
    if head[0] == IS_INTERNAL {
        return Ok(Code::of_told_lines(full, INTERNAL.into(), 0));
    }
    let at = address.wrapping_add(file.into());
    let path = text(number(at, read)?, read)?;
    let line = number(at.wrapping_add(8), read)? as u32;
    Ok(Code::of_told_lines(full, path, line))
}

fn number(at: u64, read: Read<'_>) -> Result<u64, Miss> {
    let mut bytes = [0u8; 8];
    match read(at, &mut bytes) {
        true => Ok(u64::from_le_bytes(bytes)),
        false => Err(Miss::Unreadable),
    }
}

/// Reads a text: its length, followed by its bytes.
fn text(at: u64, read: Read<'_>) -> Result<String, Miss> {
    let length = number(at.wrapping_add(16), read)?;
    if length > 1 << 40 {
        return Err(Miss::Changed);
    }
    let mut bytes = vec![0u8; length.min(MOST_TEXT) as usize];
    if !bytes.is_empty() && !read(at.wrapping_add(24), &mut bytes) {
        return Err(Miss::Unreadable);
    }
    // In an anonymous class's name, a zero precedes the part that makes it unique.
    let shown = bytes.split(|b| *b == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(shown).into_owned())
}
