//! Events of our own threads.

use super::*;

#[test]
fn a_busy_thread_of_our_own_is_sampled() {
    let cpus = crate::cpus::online().unwrap();
    // SAFETY: no arguments.
    let tid = unsafe { libc::gettid() } as u32;
    let clock = ThreadEvents::open(&cpus, 997, 1024, DATA_PAGES).and_then(|mut clock| {
        clock.join(tid, 1.0)?;
        Ok(clock)
    });
    let mut clock = match clock {
        Ok(clock) => clock,
        Err(e) => {
            println!("skipped: perf events of own threads are refused: {e}");
            return;
        }
    };
    let (mut samples, mut last, mut born) = (Vec::new(), 0, false);
    std::thread::spawn(|| {}).join().unwrap();
    while samples.len() < 6 * SAME as usize || !born {
        for (time, record) in clock.drain(Vec::new(), clock::now()) {
            assert!(time >= last, "in time order");
            last = time;
            match record {
                Record::Sample(r) if r.tid == tid => samples.push(r),
                Record::Born(birth) => born |= birth.parent_tid == tid,
                _ => {}
            }
        }
    }
    for r in &samples {
        assert_eq!((r.pid, r.tid), (std::process::id(), tid));
        assert!(!r.stack.is_empty());
    }
    let distances: Vec<u64> = samples.iter().map(|r| r.period_ns).collect();
    let mean = 1_000_000_000 / 997;
    let range = mean - mean / period_jitter::SAMPLE_JITTER_DIVISOR
        ..=mean + mean / period_jitter::SAMPLE_JITTER_DIVISOR;
    assert!(distances.iter().all(|d| range.contains(d)));
    let changed = distances.windows(2).filter(|d| d[0] != d[1]).count();
    assert!(changed >= 3, "always the same: {distances:?}");
    clock.leave(tid);
    assert!(clock.events.is_empty());
}

#[test]
fn more_threads_than_descriptors_are_refused() {
    let Ok(mut clock) = ThreadEvents::open(&[0], 99, RESERVED + 1, DATA_PAGES) else {
        println!("skipped: perf events of own threads are refused");
        return;
    };
    let refused = clock
        .join(std::process::id(), 1.0)
        .expect_err("there is no room");
    assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
}
