//! Garbage collection.

use wallscope_model::{GC_KEY, LedgerSlices, Pause, PauseGroup};

use super::*;

fn pauses(count: u64, length_ns: u64) -> PauseGroup {
    let mut group = PauseGroup {
        pid: 1,
        operation: "G1CollectFull".into(),
        kind: "full".into(),
        cause: "G1 Compaction Pause".into(),
        ..PauseGroup::default()
    };
    for n in 0..count {
        group.add(Pause {
            start_ns: n * TENTH,
            length_ns,
        });
    }
    group
}

#[test]
fn a_program_that_its_collector_stops_is_told_so() {
    // One thread of the program, and one that collects meanwhile.
    let mut rec = recording(&[
        (15, 0, 0, BlockReason::Gc, 85),
        (85, 0, 0, BlockReason::Lock, 15),
    ]);
    rec.pauses.push(pauses(85, TENTH));
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.reason), ("collection", Some("gc")));
    assert!(v.cause.contains("full collections (G1 Compaction Pause)"));
    let evidence = v.parts.evidence.join("; ");
    assert!(evidence.contains("85 pauses, mean 100 ms"), "{evidence}");
    assert!(
        evidence.contains("blocked time is counted (exact)"),
        "{evidence}"
    );
    assert!(v.parts.advice.is_some_and(|advice| advice.contains("-Xmx")));
}

#[test]
fn a_total_that_stacks_tell_in_part_is_not_called_exact() {
    let mut rec = recording(&[
        (15, 0, 0, BlockReason::Gc, 85),
        (85, 0, 0, BlockReason::Lock, 15),
    ]);
    let note = "garbage collection: 1.00 s of waits count as gc and not as lock";
    rec.domain.notes.push(note.into());
    let v = climb(&rec).verdict;
    assert_eq!(v.rule, "collection");
    let evidence = v.parts.evidence.join("; ");
    assert!(
        evidence.contains("the part of garbage collection estimated by stacks"),
        "{evidence}"
    );
}

#[test]
fn a_program_with_few_collections_is_not() {
    let mut rec = recording(&[
        (92, 0, 0, BlockReason::Gc, 8),
        (10, 0, 0, BlockReason::Poll, 90),
    ]);
    rec.pauses.push(pauses(80, TENTH / 10));
    assert_ne!(climb(&rec).verdict.rule, "collection");
}

#[test]
fn collecting_on_a_cpu_is_labelled_and_waiting_is_not() {
    let mut rec = recording(&[(40, 0, 0, BlockReason::Lock, 60)]);
    let own = rec.stacks[0].frames[2];
    let function = rec.frames[own.0 as usize].lines[0].function;
    rec.functions[function.0 as usize].name = "v8::internal::Heap::CollectGarbage(int)".into();
    crate::collections::mark(&mut rec);
    for sample in &rec.samples {
        let labels = sample.labels.map(|l| rec.label_sets[l.0 as usize].clone());
        let collector = labels.and_then(|l| l.iter().find(|l| &*l.key == GC_KEY).cloned());
        let collector = collector.map(|l| l.value);
        let expected = (sample.state == State::OnCpu).then(|| LabelValue::Text("V8".into()));
        assert_eq!(collector, expected, "{:?}", sample.state);
    }
}

#[test]
fn the_impact_is_of_the_program_s_own_threads() {
    // One thread of the program, and one that only collects.
    let mut rec = recording(&[
        (40, 0, 0, BlockReason::Gc, 60),
        (55, 0, 0, BlockReason::Lock, 5),
    ]);
    let collector = rec.stacks[1].frames[2].0 as usize;
    let function = rec.frames[collector].lines[0].function;
    rec.functions[function.0 as usize].name = "G1ParTask::work(unsigned int)".into();
    rec.pauses.push(pauses(60, TENTH));
    crate::collections::mark(&mut rec);
    let v = climb(&rec).verdict;
    assert_eq!(v.rule, "collection");
    let impact = "an end of these waits saves at most 60 % of 10.0 s of active time of the program's own threads";
    assert!(v.parts.impact.starts_with(impact), "{}", v.parts.impact);
}

#[test]
fn workers_that_only_their_library_tells_compute_for_the_collection() {
    let mut rec = recording(&[
        (40, 0, 0, BlockReason::Gc, 60),
        (50, 0, 0, BlockReason::Lock, 10),
    ]);
    let at = rec
        .samples
        .iter()
        .position(|s| s.context.0 == 1 && s.state == State::OnCpu);
    let mut labels = crate::labels::SampleLabels::of(GC_KEY);
    labels.add(&mut rec, at.expect("it computes"), "HotSpot");
    let evidence = climb(&rec).verdict.parts.evidence.join("; ");
    let told = "all threads together compute 5.0 s for the collection";
    assert!(evidence.contains(told), "{evidence}");
}

#[test]
fn a_collector_s_thread_that_mostly_waits_is_not_the_program_s_own() {
    let impact = |name: &str| {
        let mut rec = recording(&[
            (40, 0, 0, BlockReason::Gc, 60),
            (1, 0, 0, BlockReason::Lock, 99),
        ]);
        let own = rec.stacks[1].frames[2].0 as usize;
        let function = rec.frames[own].lines[0].function;
        rec.functions[function.0 as usize].name = name.into();
        climb(&rec).verdict.parts.impact
    };
    let told = impact("ConcurrentGCThread::run()");
    assert!(told.contains("60 % of 10.0 s of active time"), "{told}");
    let told = impact("serve");
    assert!(told.contains("30 % of 20.0 s of active time"), "{told}");
}

#[test]
fn a_stall_that_only_the_stack_tells_moves_from_lock_to_gc() {
    let mut rec = recording(&[
        (40, 0, 0, BlockReason::Lock, 60),
        (10, 0, 0, BlockReason::Lock, 90),
    ]);
    let stall = "ZPageAllocator::alloc_page_stall(ZPageAllocation*)";
    rename(&mut rec, 1, FrameKind::Native, "pthread_cond_wait");
    let own = rec.stacks[0].frames[2].0 as usize;
    let function = rec.frames[own].lines[0].function;
    rec.functions[function.0 as usize].name = stall.into();
    rec.ledger_slices = LedgerSlices::of_samples(&rec.samples);
    crate::collections::mark(&mut rec);
    let of = |thread: usize| {
        let blocked = rec.contexts[thread].ledger.blocked;
        let reasons = [BlockReason::Lock, BlockReason::Gc];
        reasons.map(|r| blocked[r as usize] / TENTH)
    };
    assert_eq!((of(0), of(1)), ([0, 60], [90, 0]));
    let in_slices: u64 = (rec.ledger_slices.iter())
        .map(|row| row.blocked[BlockReason::Gc as usize])
        .sum();
    assert_eq!(in_slices / TENTH, 60);
    assert!(rec.domain.notes[0].contains("an estimate"));
}

#[test]
fn the_domain_says_that_pauses_of_go_are_not_known_by_thread() {
    let limits = |operation: &str| {
        let mut rec = recording(&[(90, 0, 0, BlockReason::Lock, 10)]);
        rec.pauses.push(PauseGroup {
            operation: operation.into(),
            ..pauses(3, TENTH)
        });
        crate::collections::mark(&mut rec);
        rec.domain.limits
    };
    assert!(limits("G1CollectFull").is_empty());
    let told = limits(wallscope_model::GO_COLLECTION);
    assert_eq!(told.len(), 1);
    assert!(told[0].what.contains("stopped each thread"), "{told:?}");
}

#[test]
fn a_safepoint_that_collects_nothing_is_named() {
    let mut rec = recording(&[(40, 0, 0, BlockReason::Lock, 60)]);
    rename(
        &mut rec,
        1,
        FrameKind::Native,
        "SafepointSynchronize::block(JavaThread*)",
    );
    rec.pauses.push(PauseGroup {
        operation: "ThreadDump".into(),
        kind: "".into(),
        cause: "".into(),
        ..pauses(60, TENTH)
    });
    let v = climb(&rec).verdict;
    assert!(v.cause.contains("safepoints for ThreadDump"), "{}", v.cause);
    assert!(v.parts.evidence.join("; ").contains("60 pauses"));
}
