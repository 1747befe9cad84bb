//! Single waits in words: lengths, holds of a lock, missing pages.

use wallscope_model::histogram::{Histogram, HistogramRow};
use wallscope_model::{CgroupFacts, LockWait};

use super::*;

/// Two threads that wait for one lock, and a third; each wait by its length, ns, and number.
fn lock_waits(lengths: &[(u64, u64)]) -> Recording {
    let lock = BlockReason::Lock;
    let mut rec = recording(&[
        (5, 0, 0, lock, 95),
        (5, 0, 0, lock, 95),
        (50, 0, 0, BlockReason::Timer, 50),
    ]);
    let text = LabelValue::Text("futex table_lock (app)".into());
    rec.label_sets.push(vec![Label {
        key: "resource".into(),
        value: text,
    }]);
    let labels = Some(LabelsId(0));
    let mut histogram = Histogram::new(5);
    lengths
        .iter()
        .for_each(|(ns, n)| histogram.add(*ns, *n as f64));
    for i in [1, 3] {
        rec.samples[i].labels = labels;
        rec.histograms.push(HistogramRow {
            context: None,
            stack: Some(rec.samples[i].stack),
            state: State::Blocked,
            reason: Some(lock),
            part: None,
            histogram: histogram.clone(),
        });
        rec.locks.push(LockWait {
            context: rec.samples[i].context,
            labels,
            address: 1,
            total_ns: lengths.iter().map(|(ns, n)| ns * n).sum(),
            longest_ns: lengths.iter().map(|(ns, _)| *ns).max().unwrap_or(0),
            count: lengths.iter().map(|(_, n)| *n).sum(),
        });
    }
    rec
}

/// The waits of samples 1 and 3 are ended by these threads.
fn ended(rec: &mut Recording, by: [u32; 2]) {
    for (sample, thread) in [1, 3].into_iter().zip(by) {
        ended_by(rec, Actor::Context(ContextId(thread)));
        let hop = rec.hops.last_mut().expect("a hop");
        hop.above = Above::Sample(sample);
        hop.ns = rec.samples[sample as usize].ns;
    }
}

fn evidence(rec: &Recording) -> String {
    let v = climb(rec).verdict;
    assert_eq!(v.reason, Some("lock"), "{}", v.cause);
    v.parts.evidence.join("; ")
}

#[test]
fn long_waits_are_long_holds_only_if_the_holder_does_not_queue() {
    let long = [(250_000_000, 38)];
    let mut rec = lock_waits(&long);
    ended(&mut rec, [2, 2]);
    let said = evidence(&rec);
    assert!(said.contains("76 waits, mean 250 ms"), "{said}");
    assert!(said.contains(": long holds"), "{said}");
    // Two threads that take it in turn: a wait may be the sum of many holds.
    let mut rec = lock_waits(&long);
    ended(&mut rec, [1, 0]);
    let said = evidence(&rec);
    assert!(!said.contains("holds"), "{said}");
    // The second waits for the first, and that one for the holder.
    let mut rec = lock_waits(&long);
    ended(&mut rec, [2, 0]);
    let mut queued = rec.hops[1].clone();
    (queued.above, queued.role, queued.reason) =
        (Above::Hop(1), Role::Blocked, Some(BlockReason::Lock));
    let mut woke = rec.hops[0].clone();
    woke.above = Above::Hop(2);
    rec.hops.extend([queued, woke]);
    assert!(evidence(&rec).contains(": long holds"));
}

#[test]
fn short_waits_are_short_holds() {
    let mut rec = lock_waits(&[(200_000, 40_000)]);
    ended(&mut rec, [1, 0]);
    let said = evidence(&rec);
    assert!(said.contains(": many short holds"), "{said}");
}

#[test]
fn few_waits_with_half_of_the_time_are_told_by_their_number() {
    // Nine waits in ten are short; the others have nearly all of the time.
    let mut rec = lock_waits(&[(1_000_000, 2_000), (100_000_000, 30)]);
    ended(&mut rec, [1, 0]);
    let said = evidence(&rec);
    assert!(
        said.contains("longest 100 ms; the longest 1 % of them take half of the time"),
        "{said}"
    );
    // Waits of one length have no such part.
    let mut rec = lock_waits(&[(10_000_000, 400)]);
    ended(&mut rec, [1, 0]);
    let said = evidence(&rec);
    assert!(!said.contains("half of the time"), "{said}");
}

/// A thread that waits for pages with `function` of the kernel on its stack, at its memory limit.
fn missing_pages(function: &str, resource: &str) -> Verdict {
    let mut rec = recording(&[(20, 0, 0, BlockReason::PageFault, 80)]);
    rename(&mut rec, 0, FrameKind::Kernel, function);
    rec.label_sets.push(vec![Label {
        key: "resource".into(),
        value: LabelValue::Text(resource.into()),
    }]);
    rec.samples[1].labels = Some(LabelsId(0));
    for (at, hits) in [(0, 0), (100, 640_000)] {
        let cgroup = CgroupFacts {
            memory_bytes: Some(40 << 20),
            memory_limit_bytes: Some(40 << 20),
            memory_limit_hits: Some(hits),
            ..CgroupFacts::default()
        };
        let facts = HostFacts {
            cgroup: Some(cgroup),
            ..HostFacts::default()
        };
        let time_ns = at * TENTH;
        rec.host.push(HostSample { time_ns, facts });
    }
    climb(&rec).verdict
}

#[test]
fn a_page_is_called_a_files_or_swapped_out_only_where_the_kernel_says_so() {
    let old = "anonymous memory";
    let v = missing_pages("filemap_fault", old);
    assert_eq!(v.reason, Some("page_fault"), "{}", v.cause);
    assert!(
        v.cause.ends_with("for a page of a mapped file to be read"),
        "{}",
        v.cause
    );
    let root = v.parts.root.unwrap_or_default();
    assert!(
        root.contains("limit of 40 MiB, reached 640000 times"),
        "{root}"
    );
    let named = missing_pages("ext4_filemap_fault", "page of /srv/big.db").cause;
    assert!(named.ends_with("to be read (/srv/big.db)"), "{named}");
    let swapped = missing_pages("do_swap_page", old).cause;
    assert!(swapped.ends_with("to be read back from swap"), "{swapped}");
    let unknown = missing_pages("handle_mm_fault", old).cause;
    assert!(
        unknown.ends_with("for a page to be brought in"),
        "{unknown}"
    );
}
