//! Everything that a recording can be written as: the written formats of
//! [`wallscope_formats::FORMATS`], then the presentations of this crate.

use std::io::{self, Write};

use wallscope_analysis::view::{Analysis, Idle};
use wallscope_formats::{Format, WriteOptions};
use wallscope_model::Recording;

use crate::text::Headline;
use crate::{json, markdown, page, svg};

/// A presentation: written for people or scripts, never read back.
pub struct Presentation {
    name: &'static str,
    about: &'static str,
    one_view: bool,
    write: Writer,
}

/// Writes a recording; returns sentences on the parts that the presentation leaves out.
type Writer = fn(&Recording, &ExportOptions, &mut dyn Write) -> io::Result<Vec<String>>;

/// Every presentation.
const PRESENTATIONS: &[Presentation] = &[
    Presentation {
        name: "html",
        about: "the page that wallscope view --idle show writes",
        one_view: false,
        write: |rec, options, out| {
            let page = page::PageOptions {
                verdict: options.verdict,
                // An export has no option to hide idle time.
                idle: Idle::Show,
                ..page::PageOptions::default()
            };
            page::write(rec, &page, out)?;
            Ok(Vec::new())
        },
    },
    Presentation {
        name: "json",
        about: "the report as JSON, as report --json: for scripts",
        one_view: false,
        write: |rec, options, out| {
            let text = json::render(&Analysis::new(rec, Idle::Show), &options.headline);
            out.write_all(text.as_bytes())?;
            Ok(vec![
                "stacks, time slices and host facts (pprof holds all)".to_string(),
            ])
        },
    },
    Presentation {
        name: "markdown",
        about: "a summary for a pull request or a chat, as report --md",
        one_view: false,
        write: |rec, options, out| {
            let text = markdown::render(&Analysis::new(rec, Idle::Show), &options.headline);
            out.write_all(text.as_bytes())?;
            Ok(vec![
                "all but the largest rows and stacks (pprof holds all)".to_string(),
            ])
        },
    },
    Presentation {
        name: "svg",
        about: "a still flame graph of one view: for a README, a ticket, a slide",
        one_view: true,
        write: |rec, options, out| {
            svg::write(rec, options.format.view, out)?;
            Ok(Vec::new())
        },
    },
];

/// Options of an export; each kind of export reads its own.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions<'a> {
    /// Options of formats; its view also holds for presentations of one view.
    pub format: WriteOptions,
    /// The sentence on top, for presentations that people read.
    pub headline: Headline,
    /// The verdict on top of the page.
    pub verdict: Option<&'a page::Verdict>,
}

/// A way to write a recording.
#[derive(Clone, Copy)]
pub enum Export {
    /// A profile format.
    Format(&'static Format),
    /// A presentation.
    Presentation(&'static Presentation),
}

impl Export {
    /// Every way to write a recording: formats first.
    pub fn all() -> impl Iterator<Item = Export> {
        let presentations = PRESENTATIONS.iter().map(Export::Presentation);
        Format::written().map(Export::Format).chain(presentations)
    }

    /// The export of that name.
    pub fn named(name: &str) -> Option<Export> {
        Export::all().find(|e| e.name() == name)
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Export::Format(f) => f.name,
            Export::Presentation(p) => p.name,
        }
    }

    /// One line of help.
    pub fn about(self) -> &'static str {
        match self {
            Export::Format(f) => f.about,
            Export::Presentation(p) => p.about,
        }
    }

    /// Whether it is binary (and not to be written to a terminal).
    pub fn is_binary(self) -> bool {
        match self {
            Export::Format(f) => f.binary,
            Export::Presentation(_) => false,
        }
    }

    /// Whether it holds one view of the recording's time, and not all.
    pub fn is_one_view(self) -> bool {
        match self {
            Export::Format(f) => f.one_view,
            Export::Presentation(p) => p.one_view,
        }
    }

    /// Writes `recording`; returns sentences on the parts that the format has no place for.
    ///
    /// ```
    /// use wallscope_render::export::{Export, ExportOptions};
    ///
    /// let recording = wallscope_synthetic::recording(4);
    /// let svg = Export::named("svg").expect("a row of the table");
    /// let mut out = Vec::new();
    /// svg.write(&recording, &ExportOptions::default(), &mut out)?;
    /// assert!(String::from_utf8(out).expect("text").contains("<svg"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(
        self,
        recording: &Recording,
        options: &ExportOptions,
        out: &mut dyn Write,
    ) -> io::Result<Vec<String>> {
        match self {
            Export::Format(f) => f.write(recording, &options.format, out),
            Export::Presentation(p) => (p.write)(recording, options, out),
        }
    }
}
