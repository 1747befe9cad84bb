//! Damaged files that can still be read are rendered without a panic.

use std::io::Read as _;

use proptest::prelude::*;
use wallscope_analysis::view::{Analysis, Idle};
use wallscope_formats::{Bounds, pprof, read};
use wallscope_model::scale::scale;
use wallscope_render::text::{self, Headline, Style};
use wallscope_render::{json, markdown};
use wallscope_synthetic::any::random;

/// The uncompressed file of a random recording.
fn file(seed: u64) -> Vec<u8> {
    let rec = random(seed);
    let packed = pprof::write(&rec, &scale(&rec), Vec::new()).unwrap();
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_end(&mut out)
        .unwrap();
    out
}

/// Renders a file in every form, if it can be read.
fn render(bytes: &[u8]) -> bool {
    let Ok(read) = read(bytes, Bounds::default()) else {
        return false;
    };
    let analysis = Analysis::new(&read.recording, Idle::Hide);
    let headline = Headline::default();
    let style = Style {
        width: Some(40),
        colour: true,
        unicode: true,
    };
    let _ = text::render(&analysis, &headline, &style);
    let _ = json::render(&analysis, &headline);
    let _ = markdown::render(&analysis, &headline);
    true
}

proptest! {
    #[test]
    fn damaged_files_do_no_harm(seed in any::<u64>(), flips in prop::collection::vec(any::<(u32, u8)>(), 1..20)) {
        let mut raw = file(seed);
        for (at, with) in flips {
            let at = at as usize % raw.len();
            raw[at] ^= with;
        }
        render(&raw);
    }
}

#[test]
fn whole_files_are_rendered() {
    assert!((0..10).all(|seed| render(&file(seed))));
}
