//! Finds the eval loop in stripped files: the longest function that `vm_exec` calls. Unwind
//! information gives the lengths of functions.

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};

use super::super::image::{Image, SymbolRange};

/// Minimum bytes of the eval loop. If the compiler inlined the loop into its caller, every callee
/// is shorter.
const MIN_LOOP_BYTES: u64 = 8 << 10;

/// The longest function that the one at `whole` calls.
pub(super) fn longest_callee(image: &Image<'_>, whole: SymbolRange) -> Option<SymbolRange> {
    let targets = call_targets(image.at(whole.address, whole.size as usize)?, whole.address);
    let (frames, at) = image.section_at(".eh_frame")?;
    let section = EhFrame::new(frames, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(at);
    let mut longest: Option<SymbolRange> = None;
    let mut entries = section.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else {
            continue;
        };
        let (address, size) = (fde.initial_address(), fde.len());
        let is_called = targets.binary_search(&address).is_ok();
        if is_called && size >= MIN_LOOP_BYTES && longest.is_none_or(|l| l.size < size) {
            longest = Some(SymbolRange { address, size });
        }
    }
    longest.filter(|l| l.size > whole.size)
}

/// Call targets in the code at `address`, ascending.
fn call_targets(code: &[u8], address: u64) -> Vec<u64> {
    let mut targets: Vec<u64> = (code.windows(5).enumerate())
        .filter(|(_, bytes)| bytes[0] == 0xe8)
        .map(|(i, bytes)| {
            let distance = i32::from_le_bytes(bytes[1..].try_into().expect("four bytes"));
            let end = address.wrapping_add(i as u64 + 5);
            end.wrapping_add_signed(distance.into())
        })
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_is_found() {
        let mut code = vec![0x90; 16];
        code[3] = 0xe8;
        code[4..8].copy_from_slice(&(0x2000i32 - 0x1008).to_le_bytes());
        assert_eq!(call_targets(&code, 0x1000), [0x2000]);
    }
}
