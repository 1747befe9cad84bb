//! Words that threads wait for, by stacks made by hand.

use wallscope_model::{
    Actor, ActorId, ContextId, Frame, FrameId, Function, FunctionId, Label, LabelsId, Line, Sample,
    Stack, StackEnd, StackId, State,
};

use super::*;

/// A recording with one wait a row: the word's name, and the functions, innermost first.
fn recording(waits: &[(&str, &[&str])]) -> Recording {
    let mut rec = Recording::default();
    for (word, functions) in waits {
        let frames = functions.iter().map(|name| {
            let function = FunctionId(rec.functions.len() as u32);
            rec.functions.push(Function {
                name: Arc::from(*name),
                system_name: Arc::from(""),
                file: Arc::from(""),
                start_line: 0,
            });
            rec.frames.push(Frame {
                kind: FrameKind::Native,
                module: None,
                address: 0,
                lines: vec![Line { function, line: 1 }],
            });
            FrameId((rec.frames.len() - 1) as u32)
        });
        let frames = frames.collect();
        rec.stacks.push(Stack {
            frames,
            end: StackEnd::Root,
        });
        rec.label_sets.push(vec![Label {
            key: "resource".into(),
            value: LabelValue::Text(Arc::from(*word)),
        }]);
        rec.samples.push(Sample {
            context: ContextId(0),
            stack: StackId((rec.stacks.len() - 1) as u32),
            state: State::Blocked,
            reason: Some(BlockReason::Lock),
            part: None,
            idle: false,
            cpu: None,
            labels: Some(LabelsId((rec.label_sets.len() - 1) as u32)),
            count: 1,
            ns: 1,
            slices: Vec::new(),
        });
    }
    rec
}

fn names(waits: &[(&str, &[&str])]) -> Vec<String> {
    let mut rec = recording(waits);
    name(&mut rec);
    let all = rec.samples.iter();
    all.map(|s| text_label(&rec, s.labels, "resource").unwrap().to_string())
        .collect()
}

#[test]
fn both_words_of_a_condition_are_one() {
    let wait = [
        "__futex_abstimed_wait_common",
        "pthread_cond_timedwait@@GLIBC_2.3.2",
        "take",
        "main",
    ];
    assert_eq!(
        names(&[
            ("futex ready+0x28 (prog)", &wait),
            ("futex ready+0x2c (prog)", &wait),
            (
                "futex 0x7f00102c (+0x3c of a block of 64 bytes, heap of process 7)",
                &wait
            ),
        ]),
        [
            "condition ready+0x28 (prog)",
            "condition ready+0x28 (prog)",
            "condition 0x7f001028 (+0x38 of a block of 64 bytes, heap of process 7)"
        ]
    );
}

#[test]
fn a_lock_that_is_taken_again_after_a_condition_is_a_lock() {
    let again = [
        "__GI___lll_lock_wait",
        "__pthread_mutex_cond_lock",
        "pthread_cond_wait",
        "main",
    ];
    let lock = ["__lll_lock_wait", "pthread_mutex_lock", "main"];
    let all = [
        ("futex guard+0x4 (prog)", &again[..]),
        ("futex guard+0x4 (prog)", &lock),
    ];
    assert_eq!(names(&all), ["futex guard+0x4 (prog)"; 2]);
}

#[test]
fn a_join_waits_for_a_thread_s_end_and_mixed_words_keep_their_names() {
    let join = [
        "__futex_abstimed_wait_common64",
        "__pthread_clockjoin_ex",
        "main",
    ];
    let wait = ["pthread_cond_wait", "main"];
    let named = names(&[
        ("futex 0x7f004994 (anonymous memory of process 7)", &join),
        ("futex 0x7f0010", &join),
        ("futex 0x7f0010", &wait),
        ("a Lock (process 7)", &wait),
    ]);
    assert_eq!(
        named[0],
        "end of a thread 0x7f004994 (anonymous memory of process 7)"
    );
    assert_eq!(
        named[1..],
        ["futex 0x7f0010", "futex 0x7f0010", "a Lock (process 7)"]
    );
}

#[test]
fn an_owner_by_a_lock_s_memory_is_believed_of_locks_that_keep_it() {
    let stacks: [(&str, &[&str]); 4] = [
        (
            "futex a",
            &["__GI___lll_lock_wait", "___pthread_mutex_lock", "transfer"],
        ),
        ("futex b", &["syscall", "wait_for_word"]),
        (
            "futex c",
            &[
                "__futex_abstimed_wait64",
                "pthread_rwlock_wrlock@GLIBC_2.34",
                "put",
            ],
        ),
        (
            "futex d",
            &[
                "std::sys::sync::mutex::futex::Mutex::lock_contended",
                "pthread_mutexed",
            ],
        ),
    ];
    let mut rec = recording(&stacks);
    rec.actors.push(Actor::Unknown);
    let label = |rec: &mut Recording, told: &str| {
        rec.label_sets.push(vec![Label {
            key: told_by::KEY.into(),
            value: LabelValue::Text(told.into()),
        }]);
        Some(LabelsId((rec.label_sets.len() - 1) as u32))
    };
    let hop = |above, role, labels| Hop {
        above,
        role,
        actor: ActorId(0),
        stack: None,
        reason: None,
        part: None,
        labels,
        count: 1,
        ns: 1,
    };
    let kinds = [
        told_by::MUTEX_THEN,
        told_by::MUTEX,
        told_by::RWLOCK_THEN,
        told_by::MUTEX,
    ];
    for (i, told) in (0..).zip(kinds) {
        let labels = label(&mut rec, told);
        let at = rec.hops.len() as u32;
        rec.hops.push(hop(Above::Sample(i), Role::Held, labels));
        rec.hops.push(hop(Above::Hop(at), Role::Blocked, None));
    }
    // What happened needs no such proof; nor does a word that the kernel keeps.
    rec.hops.push(hop(Above::Sample(1), Role::Held, None));
    let labels = label(&mut rec, told_by::FUTEX);
    rec.hops.push(hop(Above::Sample(1), Role::Held, labels));
    name(&mut rec);
    let above: Vec<Above> = rec.hops.iter().map(|h| h.above).collect();
    use Above::{Hop as H, Sample as S};
    assert_eq!(above, [S(0), H(0), S(2), H(2), S(1), S(1)]);
}

#[test]
fn a_c_library_without_debug_symbols_names_nobody_where_a_timed_mutex_waits() {
    use wallscope_model::{Module, ModuleId, ModuleKind};
    let mut rec = recording(&[("futex a", &["wait", "lock_full", "transfer"])]);
    for path in ["/lib/x86_64-linux-gnu/libc.so.6", "/srv/app/program"] {
        rec.modules.push(Module {
            kind: ModuleKind::Elf,
            path: path.into(),
            build_id: "".into(),
            pid: 0,
        });
    }
    let believed = |rec: &Recording, told| keeps_owner(rec, StackId(0), told);
    for (frame, module) in rec.frames.iter_mut().zip([0, 0, 1]) {
        frame.module = Some(ModuleId(module));
    }
    // Functions of other names wait there, and for something else.
    assert!(!believed(&rec, told_by::MUTEX));
    rec.frames[0].lines.clear();
    assert!(!believed(&rec, told_by::MUTEX_THEN));
    rec.functions[1].name = "libc.so.6+0x8c840".into();
    assert!(believed(&rec, told_by::MUTEX));
    assert!(believed(&rec, told_by::MUTEX_THEN));
    // Functions that wait for read-write locks are exported.
    assert!(!believed(&rec, told_by::RWLOCK));
    // In a file without symbols any lock may be meant.
    for frame in &mut rec.frames {
        (frame.module, frame.lines) = (Some(ModuleId(1)), Vec::new());
    }
    assert!(!believed(&rec, told_by::MUTEX));
}
