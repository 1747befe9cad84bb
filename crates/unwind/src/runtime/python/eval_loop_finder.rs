//! Finds the cold part of the eval loop. The compiler may split the loop. The part that it
//! treats as cold may run most of the time.
//!
//! `strip` removes the part's symbol. Its unwind information remains: the cold part is the range with its own FDE
//! that the loop jumps into. Jumps are those of x86-64.

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use rustc_hash::FxHashMap;

use super::super::image::{Image, SymbolRange};

/// Minimum jumps into the cold part: bytes that look like a jump may be data.
const MIN_JUMPS: usize = 4;

/// The cold part of the function with the hot part `hot`: the range with an FDE that most of its jumps enter. `None`: the
/// function is not split, or cannot be read.
pub(super) fn cold_part(image: &Image<'_>, hot: SymbolRange) -> Option<SymbolRange> {
    let targets = outside_jumps(image.at(hot.address, hot.size as usize)?, hot);
    let (eh_frame, address) = image.section_at(".eh_frame")?;
    let section = EhFrame::new(eh_frame, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut found: FxHashMap<(u64, u64), usize> = FxHashMap::default();
    let mut entries = section.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let (start, bytes) = (fde.initial_address(), fde.len());
        let end = start.saturating_add(bytes);
        let from = targets.partition_point(|t| *t < start);
        let into = targets[from..].iter().take_while(|t| **t < end).count();
        // A jump to the start of a range may be a tail call. It does not count.
        let first = targets[from..].iter().take_while(|t| **t == start).count();
        if into - first >= MIN_JUMPS {
            found.insert((start, bytes), into);
        }
    }
    let most = found.into_iter().max_by_key(|(_, n)| *n)?;
    let (address, size) = most.0;
    Some(SymbolRange { address, size })
}

/// Targets outside of the function `hot` of the jumps in its `code`, ascending.
fn outside_jumps(code: &[u8], hot: SymbolRange) -> Vec<u64> {
    let mut targets = Vec::new();
    for (i, bytes) in code.windows(6).enumerate() {
        // jmp and jcc with 32-bit displacement
        let (length, distance) = match bytes {
            [0xe9, rest @ ..] => (5, rest),
            [0x0f, 0x80..=0x8f, rest @ ..] => (6, rest),
            _ => continue,
        };
        let distance = i32::from_le_bytes(distance[..4].try_into().expect("four bytes"));
        let end = hot.address.wrapping_add(i as u64 + length);
        let target = end.wrapping_add_signed(distance.into());
        if target.wrapping_sub(hot.address) >= hot.size {
            targets.push(target);
        }
    }
    targets.sort_unstable();
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_out_of_a_function_are_found() {
        let mut code = vec![0x90; 32];
        // At 4: jmp to 0x2000; at 12: je to 0x1010, which is inside; at 20: jne to 0x3000.
        code[4] = 0xe9;
        code[5..9].copy_from_slice(&(0x2000i32 - 0x1009).to_le_bytes());
        code[12..14].copy_from_slice(&[0x0f, 0x84]);
        code[14..18].copy_from_slice(&(0x1010i32 - 0x1012).to_le_bytes());
        code[20..22].copy_from_slice(&[0x0f, 0x85]);
        code[22..26].copy_from_slice(&(0x3000i32 - 0x101a).to_le_bytes());
        let hot = SymbolRange {
            address: 0x1000,
            size: 32,
        };
        assert_eq!(outside_jumps(&code, hot), [0x2000, 0x3000]);
    }
}
