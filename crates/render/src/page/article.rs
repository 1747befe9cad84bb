//! A page of words and tables, in the style of the other pages, for verbs with a short answer. It has no
//! script. Its theme, dark or light, follows the reader's system.

use std::fmt::Write as _;
use std::io;

use super::html::escape;
use super::{STYLE, hash};

/// A page of text.
#[derive(Clone, Debug, Default)]
pub struct Article {
    /// The verb that made it.
    pub verb: &'static str,
    /// Its subject.
    pub title: String,
    /// The answer, in a sentence.
    pub finding: String,
    /// Additions to the answer: a word in front (may be empty), and a sentence.
    pub beside: Vec<(String, String)>,
    /// The rest.
    pub sections: Vec<Section>,
}

/// A part of an [`Article`].
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its heading.
    pub heading: String,
    /// Paragraphs.
    pub lines: Vec<String>,
    /// Commands, to be copied.
    pub commands: Vec<String>,
    /// Column heads, each with whether it holds numbers; empty: no table.
    pub columns: Vec<(&'static str, bool)>,
    /// Rows of the table.
    pub rows: Vec<Vec<String>>,
}

/// The pages' style, with the dark colours as the system prefers them.
fn own_style() -> String {
    let style = STYLE;
    let dark = (style.split_once(":root.dark{"))
        .and_then(|(_, rest)| rest.split_once('}'))
        .map_or(String::new(), |(colours, _)| {
            format!("@media (prefers-color-scheme:dark){{:root{{{colours}}}}}")
        });
    format!(
        "{style}{dark}main{{padding:4px 16px 24px;max-width:110ch}}main table{{margin:6px 0}}\
         main td{{overflow-wrap:anywhere}}main li{{margin:3px 0}}pre{{overflow-x:auto}}"
    )
}

/// Writes `article` as one HTML file.
///
/// # Errors
/// Those of `out`.
pub fn write(article: &Article, out: &mut (impl io::Write + ?Sized)) -> io::Result<()> {
    let style = own_style();
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         '{}'; img-src data:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>{} – wallscope {}</title>\n<style>{style}</style>\n</head>\n<body>\n\
         <header id=\"head\"><h1><span class=\"brand\">wallscope {}</span> <bdi>{}</bdi></h1>\
         </header>\n<main>\n<p class=\"finding\">{}</p>\n",
        hash(&style),
        escape(&article.title),
        escape(article.verb),
        escape(article.verb),
        escape(&article.title),
        escape(&article.finding),
    );
    if !article.beside.is_empty() {
        page.push_str("<ul>\n");
        for (name, says) in &article.beside {
            let name = match name.is_empty() {
                true => String::new(),
                false => format!("<b>{}</b>: ", escape(name)),
            };
            let _ = writeln!(page, "<li>{name}{}</li>", escape(says));
        }
        page.push_str("</ul>\n");
    }
    for section in &article.sections {
        let _ = writeln!(page, "<section><h3>{}</h3>", escape(&section.heading));
        for line in &section.lines {
            let _ = writeln!(page, "<p>{}</p>", escape(line));
        }
        for command in &section.commands {
            let _ = writeln!(page, "<pre><code>{}</code></pre>", escape(command));
        }
        table(section, &mut page);
        page.push_str("</section>\n");
    }
    page.push_str("</main>\n</body>\n</html>\n");
    out.write_all(page.as_bytes())
}

fn table(section: &Section, page: &mut String) {
    if section.columns.is_empty() || section.rows.is_empty() {
        return;
    }
    let class = |number: bool| if number { " class=\"number\"" } else { "" };
    page.push_str("<table><thead><tr>");
    for (head, number) in &section.columns {
        let _ = write!(page, "<th{}>{}</th>", class(*number), escape(head));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &section.rows {
        page.push_str("<tr>");
        for (cell, (_, number)) in row.iter().zip(&section.columns) {
            let _ = write!(page, "<td{}>{}</td>", class(*number), escape(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_program_calls_its_functions_stays_text() {
        let hostile = "</title><script>alert(1)</script>&\u{7}";
        let article = Article {
            verb: "ladder",
            title: hostile.into(),
            finding: hostile.into(),
            beside: vec![(hostile.into(), hostile.into())],
            sections: vec![Section {
                heading: hostile.into(),
                lines: vec![hostile.into()],
                commands: vec![hostile.into()],
                columns: vec![("share", true), ("where", false)],
                rows: vec![vec!["1".into(), hostile.into()]],
            }],
        };
        let mut out = Vec::new();
        write(&article, &mut out).unwrap();
        let page = String::from_utf8(out).unwrap();
        assert!(!page.contains("<script"), "no script of any kind");
        assert_eq!(page.matches("&lt;script&gt;").count(), 9);
        assert!(page.contains("default-src 'none'") && page.contains("prefers-color-scheme"));
    }

    #[test]
    fn the_dark_colours_follow_the_system() {
        let style = super::own_style();
        let (_, dark) = style
            .split_once("@media (prefers-color-scheme:dark){:root{")
            .expect("dark colours are found in the bundle");
        assert!(dark.contains("--ground") && dark.contains("color-scheme:dark}}"));
    }
}
