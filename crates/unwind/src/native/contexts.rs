//! `swapcontext` of glibc, where its description does not say that the stack changes.
//!
//! Seven instructions load registers of the other context before the address where that one goes on is pushed.
//! There the description still reads it from the stack, where some word of the other context's lies: a caller that
//! nobody called, and a stack that looks whole. (`setcontext` is described as it is.)

use crate::native::abi::End;
use crate::native::cfi::{Range, Rows};
use crate::native::image::Image;
use iced_x86::{Code, Decoder, DecoderOptions, Register};
use memchr::memmem;
use object::read::ReadRef;

/// `mov %rbx,0x80(%rdi)`: what it begins with, and where `endbr64` may stand before.
const BEGIN: &[u8] = &[0x48, 0x89, 0x9f, 0x80, 0, 0, 0];
const TARGET: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
/// `mov 0xa0(%rdx),%rsp`: the stack of the other context.
const OTHER_STACK: &[u8] = &[0x48, 0x8b, 0xa2, 0xa0, 0, 0, 0];
/// How long it is, in any version.
const LENGTH: std::ops::Range<u32> = 0x80..0x400;

/// Takes from the description of `swapcontext` what it says of those instructions.
pub(super) fn mend<'d, R: ReadRef<'d>>(image: &Image<'d, R>, rows: &mut Rows) {
    if !image.may_export("swapcontext") {
        return;
    }
    for i in 0..rows.ranges.len() {
        let range = &rows.ranges[i];
        // One row: it is said to do nothing to the stack.
        if range.count != 1 || !LENGTH.contains(&(range.end - range.start)) {
            continue;
        }
        let (start, end) = (range.start, range.end);
        let rule = rows.rows[range.first as usize].1;
        let Some(code) = image.bytes(u64::from(start), u64::from(end - start)) else {
            continue;
        };
        let Some((from, to)) = undescribed(code) else {
            continue;
        };
        let first = rows.rows.len() as u32;
        rows.rows.extend([
            (start, rule),
            (start + from, End::BadRule as u32),
            (start + to, rule),
        ]);
        rows.ranges[i] = Range {
            start,
            end,
            first,
            count: 3,
        };
    }
}

/// From behind the change of stacks to behind the push, by offsets within the function.
fn undescribed(code: &[u8]) -> Option<(u32, u32)> {
    const MOST: usize = 16;
    if !code.strip_prefix(TARGET).unwrap_or(code).starts_with(BEGIN) {
        return None;
    }
    let from = memmem::find(code, OTHER_STACK)? + OTHER_STACK.len();
    let mut decoder = Decoder::new(64, &code[from..], DecoderOptions::NONE);
    let push = (decoder.iter().take(MOST))
        .find(|i| i.code() == Code::Push_r64 && i.op0_register() == Register::RCX)?;
    // Until it is carried out: where its last byte is, the description holds again.
    Some((from as u32, from as u32 + push.next_ip() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::rules::RuleSet;
    use crate::native::table::{self, Code as Kind};

    /// This machine's own, where it is glibc's.
    #[test]
    fn the_c_library_s_own_is_not_believed_where_it_has_two_stacks() {
        unsafe extern "C" {
            fn swapcontext(a: *mut libc::c_void, b: *const libc::c_void) -> libc::c_int;
        }
        // SAFETY: all zeros is a value of it.
        let mut told: libc::Dl_info = unsafe { std::mem::zeroed() };
        let at = swapcontext as *const libc::c_void;
        // SAFETY: writes to `told`, whose names live as long as the library is loaded.
        assert_ne!(unsafe { libc::dladdr(at, &raw mut told) }, 0);
        // SAFETY: as above.
        let path = unsafe { std::ffi::CStr::from_ptr(told.dli_fname) };
        let bytes = std::fs::read(path.to_str().unwrap()).unwrap();
        let (image, _) = Image::parse(bytes.as_slice()).unwrap();
        let (start, _) = image.offset_of(at as u64 - told.dli_fbase as u64).unwrap();
        let code = &bytes[start as usize..];
        let (from, to) = undescribed(&code[..LENGTH.end as usize]).unwrap();
        assert_eq!(code[to as usize - 1], 0x51, "it ends with the push");

        let mut rules = RuleSet::new(1 << 16);
        let Ok(Kind::Table(table)) = table::from_bytes(&bytes, &mut rules) else {
            panic!("a table");
        };
        let rows: Vec<(u32, u32)> = table.iter().collect();
        let rule = |at: u32| rows[rows.partition_point(|r| r.0 <= start as u32 + at) - 1].1;
        let bad = End::BadRule as u32;
        assert_ne!(rule(0), bad);
        assert_ne!(rule(from - 1), bad);
        assert_eq!((rule(from), rule(to - 1)), (bad, bad));
        assert_ne!(rule(to), bad);
    }

    #[test]
    fn other_functions_that_load_a_stack_are_not_meant() {
        let mut code = OTHER_STACK.to_vec();
        code.push(0x51);
        assert_eq!(undescribed(&code), None);
        let own = [BEGIN, OTHER_STACK, &[0x48, 0x8b, 0x5a, 0x08, 0x51, 0xc3]].concat();
        assert_eq!(undescribed(&own), Some((14, 19)));
        let checked = [TARGET, &own].concat();
        assert_eq!(undescribed(&checked), Some((18, 23)));
        assert_eq!(undescribed(&own[..18]), None);
    }
}
