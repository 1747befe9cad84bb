//! Names of procedure linkage stubs: the little jumps through which a file calls others.
//!
//! Stubs have no symbols of their own. Each one jumps through a slot of the global offset table,
//! and a relocation says which symbol that slot is filled with. The stub is decoded to find its
//! slot, so the layouts of all linkers (`.plt`, `.plt.sec`, `.plt.got`, with or without `endbr64`)
//! are read alike. x86-64 only; on other machines there are no names.

use object::RelocationTarget;
use object::read::{Object, ObjectSymbol, ObjectSymbolTable};

use crate::elf::{Elf, SectionSpan};

/// A stub's place and the symbol that it calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PltEntry {
    /// First address of the stub.
    pub start: u64,
    /// One past its last address.
    pub end: u64,
    /// Name of the symbol it calls, without `@plt`.
    pub name: Vec<u8>,
}

/// Opcode of `jmp *disp32(%rip)`.
const JUMP_INDIRECT: [u8; 2] = [0xff, 0x25];
/// The instruction that indirect jumps may land on.
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

impl Elf<'_> {
    /// The stubs of this file with a known target, in ascending order. Empty if there are none or the
    /// machine is not x86-64.
    pub fn plt_entries(&self) -> Vec<PltEntry> {
        let mut entries = Vec::new();
        if !self.is_x86_64() {
            return entries;
        }
        let slots = self.got_slots();
        for (section, widths) in [
            (".plt", &[16][..]),
            (".plt.sec", &[16]),
            (".plt.got", &[8, 16]),
        ] {
            let (Some(span), Ok(Some(code))) = (self.section_span(section), self.section(section))
            else {
                continue;
            };
            // `.plt.got` has 16-byte stubs exactly where they begin with `endbr64`.
            let width = if widths.len() > 1 && code.starts_with(&ENDBR64) {
                16
            } else {
                widths[0]
            };
            let stubs = Stubs {
                span,
                code: &code,
                width,
            };
            stubs.collect(&slots, &mut entries);
        }
        entries.sort_by_key(|e| e.start);
        entries
    }

    /// Slots that dynamic relocations fill with a symbol's address: slot and name, sorted by slot.
    fn got_slots(&self) -> Vec<(u64, Vec<u8>)> {
        let file = self.inner();
        let (Some(relocations), Some(symbols)) =
            (file.dynamic_relocations(), file.dynamic_symbol_table())
        else {
            return Vec::new();
        };
        let mut slots: Vec<(u64, Vec<u8>)> = relocations
            .filter_map(|(slot, relocation)| {
                let RelocationTarget::Symbol(index) = relocation.target() else {
                    return None;
                };
                let name = symbols.symbol_by_index(index).ok()?.name_bytes().ok()?;
                (!name.is_empty()).then(|| (slot, name.to_vec()))
            })
            .collect();
        slots.sort();
        slots
    }
}

/// Stubs of one section.
struct Stubs<'a> {
    span: SectionSpan,
    code: &'a [u8],
    /// Bytes of a stub.
    width: usize,
}

impl Stubs<'_> {
    /// Adds the stubs that jump through one of `slots`.
    fn collect(&self, slots: &[(u64, Vec<u8>)], entries: &mut Vec<PltEntry>) {
        for (i, stub) in self.code.chunks_exact(self.width).enumerate() {
            let Some(start) = self.span.start.checked_add((i * self.width) as u64) else {
                return;
            };
            let Some(slot) = jump_slot(stub, start) else {
                continue;
            };
            let Ok(found) = slots.binary_search_by_key(&slot, |s| s.0) else {
                continue;
            };
            entries.push(PltEntry {
                start,
                end: start + self.width as u64,
                name: slots[found].1.clone(),
            });
        }
    }
}

/// The address that the indirect jump within `stub` reads its target from.
fn jump_slot(stub: &[u8], address: u64) -> Option<u64> {
    // Only `endbr64` and a `bnd` or `notrack` prefix can precede the jump. In lazy stubs of some linkers
    // the jump comes first. So the first match is the jump.
    let at = stub.windows(2).take(6).position(|w| w == JUMP_INDIRECT)?;
    let disp = stub.get(at + 2..at + 6)?;
    let disp = i32::from_le_bytes(disp.try_into().ok()?);
    address
        .checked_add(at as u64 + 6)?
        .checked_add_signed(i64::from(disp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_is_decoded_with_and_without_endbr() {
        let plain = [
            0xff, 0x25, 0xe2, 0x2f, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0xe0, 0xff, 0xff, 0xff,
        ];
        assert_eq!(jump_slot(&plain, 0x1030), Some(0x1036 + 0x2fe2));
        let endbr = [
            0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x76, 0x2f, 0, 0, 0x66, 0x0f, 0x1f, 0x44, 0, 0,
        ];
        assert_eq!(jump_slot(&endbr, 0x1050), Some(0x105a + 0x2f76));
        let bnd = [
            0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x75, 0x2f, 0, 0, 0x0f, 0x1f, 0x44, 0, 0,
        ];
        assert_eq!(jump_slot(&bnd, 0x1050), Some(0x105b + 0x2f75));
        assert_eq!(jump_slot(&[0x90; 16], 0x1050), None);
        assert_eq!(jump_slot(&plain, u64::MAX - 2), None);
    }
}
