use super::*;

#[test]
fn the_way_to_a_goroutine_is_read_from_the_instructions() {
    // call *%rdi; mov %fs:-8, %rcx; mov 48(%rcx), %rbx …, as in Go 1.19.
    let code = [
        0xff, 0xd7, 0x64, 0x48, 0x8b, 0x04, 0x25, 0xf8, 0xff, 0xff, 0xff, 0x48, 0x8b, 0x58, 0x30,
        0x48, 0x8b, 0x83, 0xc0, 0, 0, 0, 0x64, 0x48, 0x89, 0x04, 0x25, 0xf8, 0xff, 0xff, 0xff,
        0x48, 0x8b, 0x60, 0x38, 0xc3,
    ];
    let expected = GoroutineSwitch {
        tls: -8,
        m: 48,
        current: 192,
        sp: 56,
    };
    assert_eq!(GoroutineSwitch::of(&code, 0), Some(expected));
    assert_eq!(GoroutineSwitch::of(&code[..20], 0), None);
}

#[test]
fn a_return_address_in_a_register_is_found() {
    // pop %r12; syscall; push %r12, as around clone.
    let (before, within) = ([0x31, 0xc9, 0x41, 0x5c], [0x0f, 0x05, 0x41, 0x54]);
    assert_eq!(popped_and_pushed(&before, &within), Some(12));
    assert_eq!(popped_and_pushed(&[0x5f], &[0x0f, 0x05, 0x57]), Some(7));
    // Another register is pushed, or none.
    assert_eq!(popped_and_pushed(&before, &[0x0f, 0x05, 0x41, 0x55]), None);
    assert_eq!(popped_and_pushed(&before, &[0x0f, 0x05, 0xc3]), None);
}

#[test]
fn the_goroutine_in_the_frame_of_a_call_to_c_is_found() {
    // mov 56(%rsi),%rsp; sub $64,%rsp; mov %rdi,48(%rsp); …; mov %rdi,40(%rsp)
    let code = [
        0x48, 0x8b, 0x66, 0x38, 0x48, 0x83, 0xec, 0x40, 0x48, 0x89, 0x7c, 0x24, 0x30, 0x48, 0x89,
        0x7c, 0x24, 0x28,
    ];
    assert_eq!(saved_goroutine_offset(&code), 48);
    assert_eq!(saved_goroutine_offset(&code[..8]), 0);
    assert_eq!(
        saved_goroutine_offset(&code[4..]),
        0,
        "no stack_switch_end before it"
    );
}

#[test]
fn where_a_return_address_is_on_the_stack_that_was_left_is_told() {
    let cross = GoroutineSwitch {
        tls: -8,
        m: 48,
        current: 192,
        sp: 56,
    };
    let end = |depth| match cross.row(depth, 48) {
        RuleRow::Rule(rule) => Some((rule.slot[3], rule.slot[4])),
        _ => None,
    };
    assert_eq!(end(None), Some((0, 48)));
    assert_eq!(end(Some(0)), Some((8, 48)));
    assert_eq!(end(Some(8)), Some((16, 48)));
    assert_eq!(end(Some(1 << 20)), None);
    // Go 1.19 and 1.21, then from 1.24 on.
    assert_eq!(
        saved_stack_slot(&[0x90, 0x48, 0x89, 0x54, 0x24, 0x28]),
        Some((6, 40))
    );
    assert_eq!(
        saved_stack_slot(&[0x90, 0x48, 0x89, 0x14, 0x24]),
        Some((5, 0))
    );
    assert_eq!(saved_stack_slot(&[0x48, 0x89, 0x3c, 0x24]), None);
}

#[test]
fn a_switch_of_stacks_is_found() {
    assert_eq!(stack_switch_end(&[0x90, 0x48, 0x89, 0xdc, 0x90]), Some(4));
    assert_eq!(stack_switch_end(&[0x49, 0x8b, 0x66, 0x38]), Some(4));
    assert_eq!(stack_switch_end(&[0x48, 0x8b, 0x5a, 0x38]), None);
}
