//! Instrumented profiles beside sampled ones.

use wallscope_analysis::inflation;
use wallscope_formats::{Options, open};
use wallscope_model::{Recording, View};

fn read(bytes: &[u8], value: Option<&str>) -> Recording {
    let options = Options {
        value: value.map(str::to_string),
        ..Options::default()
    };
    open(bytes, options).unwrap().recording
}

/// A program that `gprof` says spends 50 ms in `leaf` under `mid_a` and 20 ms under `mid_b`, beside
/// sampled profiles of it: time of callers, inflated time, noise.
#[test]
fn instrumented_shares_stand_beside_sampled_ones() {
    let gprof = read(include_bytes!("fixtures/gprof.txt"), None);
    assert!(inflation::is_instrumented(&gprof));
    assert_eq!(inflation::view_of(&gprof), View::OnCpu);
    let sampled = |text: &str| read(text.as_bytes(), Some("samples"));
    let row = |rec: &Recording, name: &str| {
        let rows = inflation::rows(&gprof, rec, View::Wall);
        rows.into_iter().find(|r| &*r.name == name).unwrap()
    };
    // Sampled, half of it is computed in `mid_b` itself: `leaf` is inflated twofold. What is below
    // `leaf` and unknown to gprof is `leaf`'s.
    let half = sampled("main;mid_b 500\nmain;mid_a;leaf 300\nmain;mid_a;leaf;clear_page_[k] 200\n");
    let leaf = row(&half, "leaf");
    assert_eq!((leaf.calls, leaf.own), (900, 70_000_000));
    assert!((leaf.instrumented - 1.0).abs() < 1e-9 && (leaf.sampled - 0.5).abs() < 1e-9);
    let (low, high) = leaf.inflation();
    assert!(
        low > 1.7 && low < 2.0 && high > 2.0 && high < 2.3,
        "{low} {high}"
    );
    let mid = row(&half, "mid_b");
    assert!(mid.differs() && mid.inflation().1 < 0.1, "{mid:?}");
    let text = wallscope_render::inflation::text(&gprof, &half, View::Wall);
    assert!(
        text.starts_with("Instrumentation inflates leaf: 100 %"),
        "{text}"
    );
    // All in `leaf`: the same.
    let same = row(&sampled("main;mid_a;leaf 1000\n"), "leaf");
    assert!(!same.differs(), "{same:?}");
    assert!(inflation::rows(&gprof, &sampled("other 3\n"), View::Wall).is_empty());
    assert!(!inflation::is_instrumented(&half));
}
