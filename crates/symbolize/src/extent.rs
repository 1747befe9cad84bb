//! Finds the end of a function with a symbol without a size, from its instructions.
//!
//! Assemblers give no size unless they are asked for one. If such a name reached to the next
//! symbol, it would also cover code behind the function that has lost its own name: the hidden
//! functions of a stripped C library (musl's), or compiled code without labels. So the function
//! ends where control flow ends: after a return or a jump elsewhere that no branch of its own
//! skips. Jump tables are not read. Code that only they reach may lose its name, but never gets a
//! wrong one.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Maximum bytes of instructions that are examined; nothing is known of code beyond.
const MOST: usize = 256 << 10;

/// Maximum distance of a jump within a function, bytes; a longer one leads to another function.
const WITHIN: u64 = 4 << 10;

/// Returns the address after the last instruction of the function that begins with `code`, at
/// `start`; the end of `code` if that cannot be determined.
pub(crate) fn end(code: &[u8], start: u64) -> u64 {
    let code = &code[..code.len().min(MOST)];
    let limit = start.saturating_add(code.len() as u64);
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    // The farthest target of a branch so far.
    let mut reach = start;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let next = instruction.next_ip();
        let ends = match instruction.flow_control() {
            FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => true,
            FlowControl::ConditionalBranch => {
                let to = instruction.near_branch_target();
                if (next..limit).contains(&to) {
                    reach = reach.max(to);
                }
                false
            }
            FlowControl::UnconditionalBranch => {
                let to = instruction.near_branch_target();
                if (next..limit).contains(&to) && to - next <= WITHIN {
                    reach = reach.max(to);
                }
                true
            }
            FlowControl::IndirectBranch => {
                // A jump table; its targets mostly follow directly.
                let table = instruction.op0_kind() == OpKind::Register
                    || instruction.memory_index() != Register::None;
                !table || next % 16 == 0 || is_padding(code, next - start)
            }
            FlowControl::Return | FlowControl::Exception => true,
            _ => false,
        };
        if ends && next > reach {
            return next;
        }
    }
    limit
}

/// Whether padding is at `at`: a form of `nop`, or `int3`.
fn is_padding(code: &[u8], at: u64) -> bool {
    let rest = usize::try_from(at).ok().and_then(|at| code.get(at..));
    match rest.unwrap_or_default() {
        [0x90 | 0xcc, ..] | [0x66, 0x90, ..] | [0x0f, 0x1f, ..] => true,
        [0x66, rest @ ..] => {
            let rest = rest.iter().position(|b| *b != 0x66).map(|n| &rest[n..]);
            matches!(rest, Some([0x0f, 0x1f, ..] | [0x2e, 0x0f, 0x1f, ..]))
        }
        _ => false,
    }
}

/// Whether `code` is the return trampoline of signal handlers: `rt_sigreturn`, system call 15.
/// Unwinders and debuggers recognise it by these bytes too.
pub(crate) fn returns_from_signal(code: &[u8]) -> bool {
    code.starts_with(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05])
        || code.starts_with(&[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_ends_behind_a_return_that_no_branch_passes() {
        // test %rdi,%rdi; je +1 (to the second ret); ret; ret; push %rbx
        let code = [0x48, 0x85, 0xff, 0x74, 0x01, 0xc3, 0xc3, 0x53];
        assert_eq!(end(&code, 0x1000), 0x1007);
        // A loop backwards, then a return.
        let code = [0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3, 0x90, 0x90];
        assert_eq!(end(&code, 0x1000), 0x1006);
    }

    #[test]
    fn a_jump_elsewhere_ends_it_and_one_within_does_not() {
        // jmp far away; push %rbx
        assert_eq!(end(&[0xe9, 0, 0, 0, 0x10, 0x53], 0x1000), 0x1005);
        // jmp +1 over a byte; nop; ret; ret
        assert_eq!(end(&[0xeb, 0x01, 0x90, 0xc3, 0xc3], 0x1000), 0x1004);
        // jmp *0x38(%rdi), as longjmp ends; jmp *%rax, as by a table; ret; ret
        assert_eq!(end(&[0xff, 0x67, 0x38, 0x53, 0xc3], 0x1000), 0x1003);
        assert_eq!(end(&[0xff, 0xe0, 0x53, 0xc3, 0xc3], 0x1000), 0x1004);
        // Only padding follows that jump.
        assert_eq!(end(&[0xff, 0xe0, 0x66, 0x90, 0xc3], 0x1000), 0x1002);
    }

    #[test]
    fn what_does_not_end_reaches_to_the_end() {
        assert_eq!(end(&[0x90; 40], 0x1000), 0x1028);
        assert_eq!(end(&[], 0x1000), 0x1000);
        // The system call does not return, which cannot be seen; user code never runs hlt.
        assert_eq!(end(&[0x0f, 0x05, 0xf4, 0x53], 0x1000), 0x1003);
    }

    #[test]
    fn ways_back_from_signals_are_known_by_their_bytes() {
        assert!(returns_from_signal(&[
            0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05, 0
        ]));
        assert!(!returns_from_signal(&[
            0x48, 0xc7, 0xc0, 0x0e, 0, 0, 0, 0x0f, 0x05, 0
        ]));
        assert!(!returns_from_signal(&[]));
    }
}
