//! Finds the start of functions without a name.
//!
//! Stripping removes names, but not unwind information. Each of its entries covers one function,
//! from its first byte to its last. So stripped code is grouped by function, as code with symbols
//! is, and not by the address of each instruction. A part that the compiler moved elsewhere
//! (`function.cold`) has an entry of its own, and counts as a function.
//!
//! Not done: code without an entry in `.eh_frame_hdr`.

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, NativeEndian, UnwindSection};
use wallscope_binfmt::elf::Elf;

/// Returns the first address of the function at each of `addresses`; all are virtual.
pub(crate) fn starts(elf: &Elf<'_>, addresses: &[u64]) -> Vec<Option<u64>> {
    let none = || vec![None; addresses.len()];
    if addresses.is_empty() || !elf.is_x86_64() {
        return none();
    }
    let part = |name| Some((elf.section_span(name)?.start, elf.section(name).ok()??));
    let (Some((hdr_at, hdr)), Some((frame_at, frame))) = (part(".eh_frame_hdr"), part(".eh_frame"))
    else {
        return none();
    };
    let bases = BaseAddresses::default()
        .set_eh_frame_hdr(hdr_at)
        .set_eh_frame(frame_at);
    let mut described = EhFrame::new(&frame, NativeEndian);
    described.set_address_size(8);
    let Ok(header) = EhFrameHdr::new(&hdr, NativeEndian).parse(&bases, 8) else {
        return none();
    };
    let Some(table) = header.table() else {
        return none();
    };
    let start = |address: &u64| {
        let fde = table.fde_for_address(&described, &bases, *address, EhFrame::cie_from_offset);
        Some(fde.ok()?.initial_address())
    };
    addresses.iter().map(start).collect()
}
