use super::*;

fn body(bytes: &[u8]) -> Body {
    let stretch = Stretch {
        start: 0x1000,
        bytes,
    };
    read(&[stretch], Prologue::Plain).unwrap()
}

#[test]
fn endbr64_is_left_behind() {
    // endbr64; push %rbp; mov %rsp,%rbp; pop %rbp; ret
    let b = body(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3]);
    assert_eq!(
        b.entry,
        Entry {
            at: 0x1004,
            pushed: 0,
            stepped: false
        }
    );
    assert_eq!(b.exits.len(), 1);
    assert_eq!(b.exits[0].leave, ExitKind::Return);
    assert!(b.whole);
}

#[test]
fn a_cheap_instruction_is_looked_for() {
    // sub $0x18,%rsp; mov %rdi,%rax; call next; add $0x18,%rsp; ret 8
    let b = body(&[
        0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0xf8, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x18, 0xc2,
        8, 0,
    ]);
    assert_eq!(
        b.entry,
        Entry {
            at: 0x1007,
            pushed: 0x18,
            stepped: false
        }
    );
    assert_eq!((b.first.at, b.first.stepped), (0x1000, true));
    assert_eq!(b.exits[0].leave, ExitKind::Return);
}

#[test]
fn the_head_of_a_loop_is_no_entry() {
    // xor %eax,%eax; 2: inc %eax; cmp %edi,%eax; jne 2; ret
    let b = body(&[0x31, 0xc0, 0xff, 0xc0, 0x39, 0xf8, 0x75, 0xfa, 0xc3]);
    assert_eq!((b.entry.at, b.entry.stepped), (0x1000, true));
}

#[test]
fn a_stack_that_grows_does_not_count_twice() {
    // cmp 0x10(%r14),%rsp; jbe 1f; push %rbp; pop %rbp; ret; 1: call next; jmp start
    let bytes = [
        0x49, 0x3b, 0x66, 0x10, 0x76, 3, 0x55, 0x5d, 0xc3, 0xe8, 0, 0, 0, 0, 0xeb, 0xf0,
    ];
    let stretch = Stretch {
        start: 0x1000,
        bytes: &bytes,
    };
    assert_eq!(
        read(&[stretch], Prologue::ChecksStack).unwrap().entry.at,
        0x1006
    );
    assert_eq!(read(&[stretch], Prologue::Plain).unwrap().entry.at, 0x1004);
}

#[test]
fn ways_out_are_found() {
    // test %edi,%edi; je +0x100; jmp *%rax; notrack jmp *%rax; jmp *0x10(,%rcx,8); jmp +0x200
    let b = body(&[
        0x85, 0xff, 0x0f, 0x84, 0, 1, 0, 0, 0xff, 0xe0, 0x3e, 0xff, 0xe0, 0xff, 0x24, 0xcd, 0x10,
        0, 0, 0, 0xe9, 0, 2, 0, 0,
    ]);
    let leaves: Vec<_> = b.exits.iter().map(|e| e.leave).collect();
    assert_eq!(
        leaves,
        [
            ExitKind::Branch {
                to: 0x1108,
                condition: 4
            },
            ExitKind::Indirect(Indirect {
                base: 10,
                index: 255,
                scale: 0,
                memory: false,
                displacement: 0
            }),
            ExitKind::Indirect(Indirect {
                base: 255,
                index: 11,
                scale: 8,
                memory: true,
                displacement: 0x10
            }),
            ExitKind::Jump { to: 0x1219 },
        ]
    );
}

#[test]
fn parts_put_elsewhere_belong_to_it() {
    let main = [0x55, 0x0f, 0x84, 0xf9, 0x0f, 0, 0, 0x5d, 0xc3]; // push; je 0x2000; pop; ret
    let cold = [0xe9, 0x02, 0xf0, 0xff, 0xff]; // jmp 0x1007
    let stretches =
        [(0x1000, &main[..]), (0x2000, &cold[..])].map(|(start, bytes)| Stretch { start, bytes });
    let b = read(&stretches, Prologue::Plain).unwrap();
    assert_eq!(b.exits.len(), 1, "{b:?}");
}

#[test]
fn nonsense_is_reported() {
    assert!(!body(&[0x55, 0x06, 0xc3]).whole);
    assert_eq!(read(&[], Prologue::Plain), None);
    assert!(begins_at(
        Stretch {
            start: 0,
            bytes: &[0x48, 0x89, 0xe5, 0x5d]
        },
        3
    ));
    assert!(!begins_at(
        Stretch {
            start: 0,
            bytes: &[0x48, 0x89, 0xe5, 0x5d]
        },
        2
    ));
}
