//! V8's table of function code (from version 13 on).
//!
//! A function names its table entry by a number. The table's address is in an object common to all
//! isolates of a process, at an offset that is not exported. A small V8 function reads it, and its
//! instructions reveal the location: a pointer at an address of the file, and an offset in the
//! object behind it.

use iced_x86::{Code as Op, Decoder, DecoderOptions, Register};

use super::super::image::Image;
use super::super::memory::Memory;

/// The V8 function that reads the table's address.
const READER_SYMBOL: &str = "_ZN2v88internal17ExternalReference25js_dispatch_table_addressEv";
/// Maximum bytes of that function that are examined.
const MAX_READER_BYTES: usize = 32;
/// Unused low bits of an entry's number.
const NUMBER_SHIFT: u32 = 8;
/// Bytes of an entry, and the offset of its code pointer, which has 16 extra low bits.
const ENTRY_BYTES: u64 = 16;
const ENTRY_CODE: u64 = 8;
const CODE_SHIFT: u32 = 16;

/// Location of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodeTable {
    /// Address in the file of the pointer to the object that all isolates share.
    pub(super) common: u64,
    /// Offset of the table's address in that object.
    pub(super) begin: u64,
}

impl CodeTable {
    /// Reads the location from the file's own code; `None`: it is stripped, or has other code.
    pub(super) fn of(image: &Image<'_>) -> Option<CodeTable> {
        let place = image.symbol(READER_SYMBOL)?;
        let len = usize::try_from(place.size).ok()?.min(MAX_READER_BYTES);
        CodeTable::read_by(image.at(place.address, len)?, place.address)
    }

    /// Decodes the code at `address`: it loads a pointer of the file, then a word behind it.
    fn read_by(code: &[u8], address: u64) -> Option<CodeTable> {
        let mut common = None;
        for at in Decoder::with_ip(64, code, address, DecoderOptions::NONE) {
            match (at.code(), common) {
                (Op::Endbr64 | Op::Push_r64, None) => {}
                (Op::Mov_r64_rm64, None) if at.is_ip_rel_memory_operand() => {
                    common = Some((at.op0_register(), at.ip_rel_memory_address()));
                }
                // The frame pointer.
                (Op::Mov_r64_rm64 | Op::Mov_rm64_r64, None)
                    if at.op0_register() == Register::RBP => {}
                (Op::Mov_r64_rm64, Some((register, common)))
                    if at.memory_base() == register && at.memory_index() == Register::None =>
                {
                    let begin = at.memory_displacement64();
                    return (begin < 1 << 20).then_some(CodeTable { common, begin });
                }
                _ => return None,
            }
        }
        None
    }

    /// The code object's tagged pointer of entry `number`. `known`: the table's address in this
    /// process.
    pub(super) fn code(
        self,
        memory: &mut Memory<'_>,
        bias: u64,
        known: &mut Option<u64>,
        number: u64,
    ) -> Option<u64> {
        let begin = match *known {
            Some(begin) => begin,
            None => {
                let common = memory.word(self.common.wrapping_add(bias))?;
                let begin = memory.word(common.checked_add(self.begin)?)?;
                *known = (begin != 0).then_some(begin);
                (*known)?
            }
        };
        // The word behind the number in the function does not belong to it.
        let index = u64::from(number as u32 >> NUMBER_SHIFT);
        let entry = begin.checked_add(index * ENTRY_BYTES + ENTRY_CODE)?;
        // The entry uses the tag bit for another purpose.
        Some(memory.word(entry)? >> CODE_SHIFT | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_where_v8s_own_code_reads_it() {
        // mov 0x1000(%rip),%rax; mov 0x3270(%rax),%rax; ret
        let code = [
            0x48, 0x8b, 0x05, 0, 0x10, 0, 0, 0x48, 0x8b, 0x80, 0x70, 0x32, 0, 0, 0xc3,
        ];
        let table = CodeTable {
            common: 0x5_1007,
            begin: 0x3270,
        };
        assert_eq!(CodeTable::read_by(&code, 0x5_0000), Some(table));
        // That code behind endbr64; push %rbp; mov %rsp,%rbp.
        let mut framed = vec![0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5];
        framed.extend(code);
        assert_eq!(CodeTable::read_by(&framed, 0x4_fff8), Some(table));
        // Another register; or another instruction first.
        let mut other = code;
        other[9] = 0x82;
        assert_eq!(CodeTable::read_by(&other, 0x5_0000), None);
        for code in [&[0xc3][..], &code[..7], &code[7..], &[]] {
            assert_eq!(CodeTable::read_by(code, 0x5_0000), None, "{code:x?}");
        }
    }

    #[test]
    fn a_number_leads_to_a_code_object() {
        let table = CodeTable {
            common: 0x1_0000,
            begin: 0x20,
        };
        let mut read = |at: u64, to: &mut [u8]| {
            let word: u64 = match at {
                0x9_0000 => 0xa_0000,
                0xa_0020 => 0xb_0000,
                0xb_0038 => 0x7f12_3450 << 16 | 3,
                0xb_0048 => 0x7f12_5551 << 16 | 7,
                _ => return false,
            };
            to.copy_from_slice(&word.to_le_bytes());
            true
        };
        let mut memory = Memory(&mut read);
        let mut known = None;
        let mut code = |number| table.code(&mut memory, 0x8_0000, &mut known, number);
        assert_eq!(code(0x300), Some(0x7f12_3451));
        assert_eq!(code(0xdead_0000_0400), Some(0x7f12_5551));
        assert_eq!(code(0x500), None);
    }
}
