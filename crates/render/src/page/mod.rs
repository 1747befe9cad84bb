//! The page: a recording as one HTML file that opens anywhere, offline.
//!
//! The recording's stacks become a calling-context tree and rows of time, scaled to the ledger's
//! exact totals. Those and the recording's words are written as compact columns, deflated, and
//! embedded as text beside the page's code. All views, filters and times are computed in the page
//! from these, so one file answers every question that the recording can. The code lies in `web/`;
//! `cargo xtask web` bundles it into `web/dist`.
//!
//! Why one file: its recipient has nothing else. The page makes no request: its content-security policy
//! forbids all of them and admits only the page's own script and style, by hash. The data lies in an
//! inert block of base64, so no name in a recording can become markup.
//!
//! What it does not do: it keeps no addresses below the function, no CPU numbers and no unscaled
//! values; above a million and a half source lines along stacks it keeps those of the leaves only.
//! The recording's own file keeps everything.

pub mod article;
mod columns;
pub(crate) mod entries;
mod html;
mod lengths;
mod meta;
mod options;
mod payload;
mod rows;
mod tasks;
mod timeline;
pub(crate) mod trie;
pub mod verdict;
mod waits;

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use sha2::{Digest, Sha256};
use wallscope_model::Recording;

pub use options::PageOptions;
pub use verdict::{Choice, Verdict};

/// The templates' marks, in the order in which they stand in them.
const MARKS: [&str; 6] = [
    "{{policy}}",
    "{{title}}",
    "{{style}}",
    "{{lead}}",
    "{{data}}",
    "{{script}}",
];

/// What stands above every kind of page.
const HEAD: &str = include_str!("../../web/head.html");
const TEMPLATE: &str = include_str!("../../web/page.html");
const STYLE: &str = include_str!("../../web/dist/page.css");

/// Writes `recording` as one self-contained HTML file to `out`.
///
/// # Errors
/// Those of `out`.
pub fn write(
    recording: &Recording,
    options: &PageOptions<'_>,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let title = match options.title {
        "" => recording.domain.target.as_str(),
        title => title,
    };
    let payload = payload::payload(recording, title, options);
    let lead = options.verdict.map(verdict::html).unwrap_or_default();
    let content = Content {
        title,
        lead: &lead,
        payload: &payload,
    };
    assemble(&RECORDING, &content, out)
}

/// A kind of page: its name after the title, its frame, and its script.
pub(crate) struct PageKind {
    called: &'static str,
    template: &'static str,
    script: &'static str,
}

/// The page of a recording.
const RECORDING: PageKind = PageKind {
    called: "wallscope",
    template: TEMPLATE,
    script: include_str!("../../web/dist/page.js"),
};

/// The page of a comparison.
pub(crate) const DELTA: PageKind = PageKind {
    called: "wallscope diff",
    template: include_str!("../../web/delta.html"),
    script: include_str!("../../web/dist/delta.js"),
};

/// Content of a page.
pub(crate) struct Content<'a> {
    /// Its title.
    pub title: &'a str,
    /// HTML that a reader sees before the data has arrived.
    pub lead: &'a str,
    /// The data of its script.
    pub payload: &'a [u8],
}

/// Writes a page around its data.
///
/// # Errors
/// Those of `out`.
pub(crate) fn assemble(
    kind: &PageKind,
    content: &Content<'_>,
    out: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let mut deflate = DeflateEncoder::new(Vec::new(), Compression::new(7));
    deflate.write_all(content.payload)?;
    let data = deflate.finish()?;
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; img-src data: blob:; base-uri \
         'none'; form-action 'none'",
        hash(kind.script),
        hash(STYLE)
    );
    let template = [HEAD, kind.template].concat();
    let mut rest = template.as_str();
    for mark in MARKS {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        match mark {
            "{{policy}}" => out.write_all(policy.as_bytes())?,
            "{{title}}" => write!(out, "{} – {}", title_text(content.title), kind.called)?,
            "{{lead}}" => out.write_all(content.lead.as_bytes())?,
            "{{style}}" => out.write_all(STYLE.as_bytes())?,
            "{{script}}" => out.write_all(kind.script.as_bytes())?,
            _ => {
                // In pieces, so that a large page is not held twice; a multiple of 3 bytes each.
                for piece in data.chunks(3 << 16) {
                    out.write_all(BASE64.encode(piece).as_bytes())?;
                }
            }
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

fn hash(text: &str) -> String {
    format!("sha256-{}", BASE64.encode(Sha256::digest(text)))
}

fn title_text(title: &str) -> String {
    html::escape(&title.chars().take(300).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(recording: &Recording) -> String {
        let mut out = Vec::new();
        write(recording, &PageOptions::default(), &mut out).expect("memory can be written");
        String::from_utf8(out).expect("a page is text")
    }

    #[test]
    fn code_stays_within_its_budget() {
        let size = page(&Recording::default()).len();
        assert!(size <= 150 * 1024, "{size} bytes of code");
    }

    #[test]
    fn the_template_has_every_mark_once_and_in_order() {
        for kind in [RECORDING, DELTA] {
            let template = [HEAD, kind.template].concat();
            let places: Vec<usize> = MARKS
                .iter()
                .map(|m| {
                    assert_eq!(template.matches(m).count(), 1, "{m}");
                    template.find(m).expect("just counted")
                })
                .collect();
            assert!(places.is_sorted());
            assert!(!kind.script.contains("</script"));
        }
        assert!(!STYLE.contains("</style"));
    }

    #[test]
    fn a_hostile_target_stays_text() {
        let mut recording = Recording::default();
        recording.domain.target = "</title><script>alert(1)</script>&\u{7}".into();
        let page = page(&recording);
        assert!(page.contains("&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp; "));
        assert!(!page.contains("<script>alert"));
    }

    /// The page computes intervals of filtered time by itself: `web/js/stats.js` must do so as
    /// the recorder does. The same cases with the same numbers stand in its test.
    #[test]
    #[allow(clippy::excessive_precision)]
    fn the_pages_intervals_are_the_recorders() {
        type Case<'a> = (&'a [f64], &'a [f64], f64, f64, f64);
        let even = [9.0, 10.0, 11.0, 10.0, 9.0, 10.0, 11.0, 10.0];
        let cases: [Case; 4] = [
            (
                &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
                &[10.0; 6],
                60.0,
                0.2140358849200057,
                0.5156671274516007,
            ),
            (&[0.0; 8], &even, 80.0, 0.0, 0.0654313396076468),
            (
                &[5.0, 5.0, 0.0, 5.0, 5.0, 1.0, 5.0, 2.0],
                &even,
                80.0,
                0.1747866154277782,
                0.5778607518908626,
            ),
            (
                &[3.0, 0.0],
                &[10.0, 0.0],
                10.0,
                0.018138916523693028,
                0.8339449324210138,
            ),
        ];
        for (part, whole, samples, low, high) in cases {
            let i = wallscope_model::stats::share_interval(part, whole, samples);
            assert!(
                (i.low - low).abs() < 1e-9 && (i.high - high).abs() < 1e-9,
                "{i:?}"
            );
        }
    }
}
