//! Code that switches stacks or frames while its unwind information still describes the old one.
//!
//! * **`swapcontext`** of glibc: seven instructions load registers of the other context before it
//!   pushes the address at which that context continues. The unwind information reads the return
//!   address from the stack, where the other context has an unrelated word. (The information for
//!   `setcontext` is correct.)
//! * **Exceptions** in libgcc: after it finds the handler's frame, it writes the handler's
//!   registers and return address over those saved in the thrower's frame. Only then the stack goes
//!   back (`__builtin_eh_return`). In between, the information leads through the thrower's frame to
//!   the handler's caller.
//!
//! Either would give a stack of callers that did not call, and that may look complete. So these few
//! instructions get no rule.

use crate::native::abi::{End, KIND_REG};
use crate::native::cfi::{FunctionRows, SectionRows};
use crate::native::image::Image;
use crate::native::rules::RuleSet;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Register};
use memchr::memmem;
use object::read::ReadRef;

/// Maximum bytes of a function that is examined.
const MAX_FUNCTION_BYTES: u32 = 64 << 10;

/// Removes the rules of such instructions from `rows`.
pub(super) fn remove_wrong_rules<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    rows: &mut SectionRows,
    rules: &RuleSet,
) {
    let swaps = image.may_export("swapcontext");
    let returns = eh_return_rules(rules);
    for i in 0..rows.ranges.len() {
        let range = &rows.ranges[i];
        let (start, length) = (range.start, range.end - range.start);
        if length > MAX_FUNCTION_BYTES {
            continue;
        }
        let own = &rows.rows[range.first as usize..(range.first + range.count) as usize];
        let code = || image.bytes(u64::from(start), u64::from(length));
        let found = if swaps && own.len() == 1 && SWAPCONTEXT_BYTES.contains(&length) {
            // A single row says that the function never moves the stack pointer.
            code().and_then(swapcontext_range)
        } else if own.len() > 3
            && let Some(row) = own.iter().find(|r| returns.contains(&r.1))
        {
            code().and_then(|code| handler_install_range(code, row.0 - start))
        } else {
            None
        };
        if let Some((from, to)) = found {
            remove_rules(rows, i, start + from, start + to);
        }
    }
}

/// Gives range `i` no rule between two offsets in the file.
fn remove_rules(rows: &mut SectionRows, i: usize, from: u32, to: u32) {
    let FunctionRows {
        start,
        end,
        first,
        count,
    } = rows.ranges[i];
    let old = rows.rows[first as usize..(first + count) as usize].to_vec();
    let after = (old.iter().take_while(|r| r.0 <= to).last()).map(|r| (to, r.1));
    let begin = rows.rows.len() as u32;
    rows.rows.extend(old.iter().filter(|r| r.0 < from));
    rows.rows.push((from, End::BadRule as u32));
    rows.rows.extend(after.filter(|_| to < end));
    rows.rows.extend(old.iter().filter(|r| r.0 > to));
    rows.ranges[i] = FunctionRows {
        start,
        end,
        first: begin,
        count: rows.rows.len() as u32 - begin,
    };
}

/// `mov %rbx,0x80(%rdi)`, the first instruction; `endbr64` may precede it.
const FIRST_INSTRUCTION: &[u8] = &[0x48, 0x89, 0x9f, 0x80, 0, 0, 0];
const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
/// `mov 0xa0(%rdx),%rsp`: loads the other context's stack pointer.
const LOAD_OTHER_STACK: &[u8] = &[0x48, 0x8b, 0xa2, 0xa0, 0, 0, 0];
/// Bytes of the function, in any glibc version.
const SWAPCONTEXT_BYTES: std::ops::Range<u32> = 0x80..0x400;

/// Returns the offsets within the function after the stack switch and after the push.
fn swapcontext_range(code: &[u8]) -> Option<(u32, u32)> {
    const MAX_INSTRUCTIONS: usize = 16;
    if !code
        .strip_prefix(ENDBR64)
        .unwrap_or(code)
        .starts_with(FIRST_INSTRUCTION)
    {
        return None;
    }
    let from = memmem::find(code, LOAD_OTHER_STACK)? + LOAD_OTHER_STACK.len();
    let mut decoder = Decoder::new(64, &code[from..], DecoderOptions::NONE);
    let push = (decoder.iter().take(MAX_INSTRUCTIONS))
        .find(|i| i.code() == Code::Push_r64 && i.op0_register() == Register::RCX)?;
    // The information holds again at the instruction after the push.
    Some((from as u32, from as u32 + push.next_ip() as u32))
}

/// Returns the ids of the rules that `__builtin_eh_return` uses for the target stack: CFA = rcx +
/// 8.
fn eh_return_rules(rules: &RuleSet) -> Vec<u32> {
    const RCX: u8 = 2;
    let all = rules.rules().iter().zip(0..);
    all.filter(|(r, _)| r.kind == KIND_REG && r.reg == RCX && r.cfa_off == 8)
        .map(|(_, id)| id)
        .collect()
}

/// Returns the offsets from the call that overwrites the frame to `at`, where the stack goes back.
/// It is the first call after the last branch that leaves this range, which is taken if no handler
/// was found.
fn handler_install_range(code: &[u8], at: u32) -> Option<(u32, u32)> {
    let mut first = None;
    for i in &mut Decoder::new(64, code.get(..at as usize)?, DecoderOptions::NONE) {
        match i.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => {
                first = first.or(Some(i.ip()));
            }
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                let to = i.near_branch_target();
                first = first.filter(|first| (*first..=u64::from(at)).contains(&to));
            }
            FlowControl::Next => {}
            _ => first = None,
        }
    }
    Some((first? as u32, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::table::{self, UnwindMethod};

    /// Checks this machine's C library, which is glibc.
    #[test]
    fn the_c_library_s_own_is_not_believed_where_it_has_two_stacks() {
        unsafe extern "C" {
            fn swapcontext(a: *mut libc::c_void, b: *const libc::c_void) -> libc::c_int;
        }
        // SAFETY: all zeros is a value of it.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        let at = swapcontext as *const libc::c_void;
        // SAFETY: writes to `info`; its names stay valid while the library is loaded.
        assert_ne!(unsafe { libc::dladdr(at, &raw mut info) }, 0);
        // SAFETY: as above.
        let path = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
        let bytes = std::fs::read(path.to_str().unwrap()).unwrap();
        let (image, _) = Image::parse(bytes.as_slice()).unwrap();
        let (start, _) = image.offset_of(at as u64 - info.dli_fbase as u64).unwrap();
        let code = &bytes[start as usize..];
        let (from, to) = swapcontext_range(&code[..SWAPCONTEXT_BYTES.end as usize]).unwrap();
        assert_eq!(code[to as usize - 1], 0x51, "it ends with the push");

        let mut rules = RuleSet::new(1 << 16);
        let Ok(UnwindMethod::Table(table)) = table::from_bytes(&bytes, &mut rules) else {
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

    /// Checks each function of libgcc that returns to a handler.
    #[test]
    fn libgcc_is_not_believed_from_where_it_overwrites_its_frame() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut paths = maps
            .lines()
            .filter_map(|line| line.split_whitespace().last());
        let bytes = std::fs::read(paths.find(|p| p.contains("/libgcc_s.so")).unwrap()).unwrap();
        let mut rules = RuleSet::new(1 << 16);
        let Ok(UnwindMethod::Table(table)) = table::from_bytes(&bytes, &mut rules) else {
            panic!("a table");
        };
        let back = eh_return_rules(&rules);
        let rows: Vec<(u32, u32)> = table.iter().collect();
        let mut found = 0;
        for pair in rows.windows(2).filter(|pair| back.contains(&pair[1].1)) {
            let ((from, rule), (to, _)) = (pair[0], pair[1]);
            assert_eq!(rule, End::BadRule as u32, "before {to:#x}");
            // A call of five bytes, some instructions earlier.
            assert_eq!(bytes[from as usize], 0xe8, "at {from:#x}");
            assert!((32..256).contains(&(to - from)), "{from:#x} to {to:#x}");
            found += 1;
        }
        // Raise, resume, resume or rethrow, forced.
        assert_eq!(found, 4);
    }

    #[test]
    fn other_functions_that_load_a_stack_are_not_meant() {
        let mut code = LOAD_OTHER_STACK.to_vec();
        code.push(0x51);
        assert_eq!(swapcontext_range(&code), None);
        let own = [
            FIRST_INSTRUCTION,
            LOAD_OTHER_STACK,
            &[0x48, 0x8b, 0x5a, 0x08, 0x51, 0xc3],
        ]
        .concat();
        assert_eq!(swapcontext_range(&own), Some((14, 19)));
        let checked = [ENDBR64, &own].concat();
        assert_eq!(swapcontext_range(&checked), Some((18, 23)));
        assert_eq!(swapcontext_range(&own[..18]), None);
    }
}
