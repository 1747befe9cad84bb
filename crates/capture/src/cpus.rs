//! The CPUs of this machine.

use std::{fs, io};

/// CPUs that are online, by number, ascending.
///
/// # Errors
/// `/sys/devices/system/cpu/online` cannot be read.
pub(crate) fn online() -> io::Result<Vec<u32>> {
    fs::read_to_string("/sys/devices/system/cpu/online").map(|text| parse(&text))
}

/// The numbers of a list such as `0-3,8`. What is no number is left out.
fn parse(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        if let (Ok(low), Ok(high)) = (low.parse::<u32>(), high.parse::<u32>()) {
            cpus.extend(low..=high.min(low.saturating_add(8191)));
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_numbers_are_read() {
        assert_eq!(parse("0-1\n"), [0, 1]);
        assert_eq!(parse("0,2-3"), [0, 2, 3]);
        assert!(parse("").is_empty());
    }
}
