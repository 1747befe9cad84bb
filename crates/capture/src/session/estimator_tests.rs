//! Tests of entries that the estimator forgets, and of observations that it cannot take.

use super::*;

fn estimator() -> Estimator {
    Estimator::new(&Begin {
        slice_ns: 1_000_000,
        ..Begin::default()
    })
}

#[test]
fn what_no_sample_uses_for_long_is_forgotten_and_the_rest_is_kept() {
    let mut windows = estimator();
    windows.make_windows();
    for hash in [1, 2] {
        windows.sent(hash);
        windows.kernel.insert(hash, Box::default());
        windows.resources.insert(hash, "pipe".into());
        windows.ends.insert(hash as u32, hash);
    }
    for _ in 0..9 {
        windows.sent(2);
        let _ = windows.end_window();
    }
    assert_eq!(windows.kernel.keys().copied().collect::<Vec<_>>(), [2]);
    assert_eq!(windows.resources.keys().copied().collect::<Vec<_>>(), [2]);
    assert_eq!(windows.ends.keys().copied().collect::<Vec<_>>(), [2]);
    // A recording without windows forgets nothing.
    let mut whole = estimator();
    whole.kernel.insert(1, Box::default());
    assert_eq!(whole.end_window(), Forgotten::default());
    assert_eq!(whole.kernel.len(), 1);
}

#[test]
fn an_owner_at_the_end_without_evidence_is_malformed() {
    let mut estimator = estimator();
    let owner = |evidence| {
        Observation::LockOwner(LockOwner {
            record: 1,
            begin: 5,
            holder: LockHolder::Record(2),
            evidence,
            at_end: true,
        })
    };
    for _ in 0..2 {
        estimator.observe(&owner(0));
    }
    assert_eq!(estimator.malformed, 2);
    estimator.observe(&owner(1));
    assert_eq!(estimator.malformed, 2);
}

#[test]
fn a_histogram_of_no_known_class_is_malformed() {
    let mut estimator = estimator();
    for class in [0, 9999] {
        estimator.observe(&Observation::Histogram(wallscope_observe::Histogram {
            class,
            longest_ns: 1,
            counts: Vec::new(),
        }));
    }
    assert_eq!(estimator.malformed, 1);
}
