//! Where a function without a name begins.
//!
//! Stripping takes names away, but not the descriptions by which exceptions are unwound: each is of one
//! function, from its first byte to its last. So code without symbols is told apart by function, as the code
//! with symbols is, and not by the address of each instruction. A part that the compiler put elsewhere
//! (`function.cold`) has a description of its own, and counts for itself.
//!
//! Not done: code that has no entry in `.eh_frame_hdr`.

use gimli::{BaseAddresses, EhFrame, EhFrameHdr, NativeEndian, UnwindSection};
use wallscope_binfmt::elf::Elf;

/// First address of the function at each of `addresses`; all are virtual.
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
