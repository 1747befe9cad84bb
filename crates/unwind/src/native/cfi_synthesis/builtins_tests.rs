use super::*;
use crate::native::abi::RULE_FP;

/// The rule at `offset`: `None`, by frame pointer; else the CFA offset, the slot of rbp in
/// words, and the register of the return address.
fn at(rows: &[(u32, u32)], rules: &RuleSet, offset: u32) -> Option<(i32, i16, u8)> {
    let after = rows.partition_point(|r| r.0 <= offset);
    let id = rows[after - 1].1;
    if id == RULE_FP {
        return None;
    }
    let rule = rules.rules()[id as usize];
    assert_eq!((rule.kind, rule.reg), (KIND_FP, 7));
    let kept = if rule.saved == 0 { 0 } else { rule.slot[RBP] };
    Some((rule.cfa_off, kept, rule.ra))
}

/// Four functions in V8's layout.
fn code() -> Vec<u8> {
    let functions: [&[u8]; 4] = [
        &[
            0xf6, 0xc2, 0x01, // 0: test $1, %dl
            0x75, 0x01, // 3: jne 6
            0xc3, // 5: ret
            0x55, // 6: push %rbp
            0x48, 0x89, 0xe5, // 7: mov %rsp, %rbp
            0x6a, 0x1e, // 10: push $30
            0xff, 0xd1, // 12: call *%rcx
            0x48, 0x89, 0xec, // 14: mov %rbp, %rsp
            0x5d, // 17: pop %rbp
            0xc3, // 18: ret
        ],
        &[
            0x41, 0x5a, // 64: pop %r10
            0x50, // 66: push %rax
            0x50, // 67: push %rax
            0x41, 0x52, // 68: push %r10
            0xff, 0xe1, // 70: jmp *%rcx
        ],
        &[
            0x50, // 128: push %rax
            0xff, 0xd1, // 129: call *%rcx
            0x58, // 131: pop %rax
            0x75, 0x01, // 132: jne 135
            0x50, // 134: push %rax
            0x58, // 135: pop %rax
            0xff, 0xe1, // 136: jmp *%rcx
        ],
        &[
            0x50, // 192: push %rax
            0x48, 0x89, 0xec, // 193: mov %rbp, %rsp
            0x5d, // 196: pop %rbp
            0x41, 0x58, // 197: pop %r8
            0x48, 0x8d, 0x24, 0xdc, // 199: lea (%rsp, %rbx, 8), %rsp
            0x41, 0x50, // 203: push %r8
            0xc3, // 205: ret
        ],
    ];
    let mut code = Vec::new();
    for function in functions {
        code.extend(function);
        code.resize(code.len().next_multiple_of(ALIGNMENT), FILL);
    }
    code
}

fn follow(symbols: &[u64]) -> (Vec<(u32, u32)>, RuleSet) {
    let bytes = code();
    let stretch = CodeRange {
        address: 0x40_0000,
        offset: 0x1000,
        bytes: &bytes,
    };
    let mut rules = RuleSet::new(1000);
    let symbols = symbols.iter().map(|s| 0x40_0000 + s);
    let mut rows = synthesise_builtins(&stretch, symbols, &mut rules);
    for row in &mut rows {
        row.0 -= 0x1000;
    }
    assert_eq!(rows[0].0, 0);
    (rows, rules)
}

#[test]
fn what_has_made_no_frame_is_left_by_the_stack() {
    let (rows, rules) = follow(&[0, 64, 128, 192, 1 << 40]);
    let at = |offset| at(&rows, &rules, offset);
    for frameless in [0, 3, 5, 6, 18, 64, 70, 128] {
        assert_eq!(at(frameless), Some((8, 0, 0)), "{frameless}");
    }
    assert_eq!(at(7), Some((16, -2, 0)));
    for in_foreign_frame in [10, 12, 13, 14, 17] {
        assert_eq!(at(in_foreign_frame), None, "{in_foreign_frame}");
    }
    // While arguments go below the return address, r10 holds it.
    for moved in [66, 67, 68] {
        assert_eq!(at(moved), Some((0, 0, RA_IN_REG | 10)), "{moved}");
    }
    // A call without a frame; then two paths with different CFA offsets.
    assert_eq!(at(129), Some((16, 0, 0)));
    assert_eq!(at(132), Some((8, 0, 0)));
    assert_eq!(at(135), None);
    // A tail call expects the return address on top.
    assert_eq!(at(136), Some((8, 0, 0)));
    // The frame was there from the start.
    for in_foreign_frame in [192, 193, 196] {
        assert_eq!(at(in_foreign_frame), None, "{in_foreign_frame}");
    }
    assert_eq!(at(197), Some((8, 0, 0)));
    assert_eq!(at(203), Some((0, 0, RA_IN_REG | 8)));
    assert_eq!(at(205), Some((8, 0, 0)));
    // Between functions.
    for nothing in [19, 63, 72, 140, 206] {
        assert_eq!(at(nothing), None, "{nothing}");
    }
}

#[test]
fn without_symbols_functions_are_told_by_what_lies_between_them() {
    let (rows, rules) = follow(&[]);
    assert_eq!(at(&rows, &rules, 66), Some((0, 0, RA_IN_REG | 10)));
    assert_eq!(at(&rows, &rules, 129), Some((16, 0, 0)));
    // No padding stands before the first one.
    assert_eq!(at(&rows, &rules, 0), None);
}

#[test]
fn any_bytes_are_survived() {
    use proptest::prelude::*;
    proptest!(|(bytes in prop::collection::vec(any::<u8>(), 1..400), entries in prop::collection::vec(0u64..400, 1..8))| {
        let code = CodeRange { address: 0x1000, offset: 0, bytes: &bytes };
        let mut rules = RuleSet::new(1000);
        let rows = synthesise_builtins(&code, entries.iter().map(|e| 0x1000 + e), &mut rules);
        prop_assert_eq!(rows[0].0, 0);
        prop_assert!(rows.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 != w[1].1));
    });
}
