//! Conditions as JUnit XML, which every continuous integration shows: one test case each.

use wallscope_analysis::diff::{Outcome, Verdict};
use wallscope_model::printable::is_obeyed;

fn escape(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '&' => "&amp;".to_string(),
            '<' => "&lt;".to_string(),
            '>' => "&gt;".to_string(),
            '"' => "&quot;".to_string(),
            c if is_obeyed(c) => " ".to_string(),
            c => c.to_string(),
        })
        .collect()
}

/// The judged conditions; those that could not be decided are skipped tests with the reason.
pub fn render(outcomes: &[Outcome]) -> String {
    let count = |v: &[Verdict]| outcomes.iter().filter(|o| v.contains(&o.verdict)).count();
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"wallscope diff\" \
         tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">\n",
        outcomes.len(),
        count(&[Verdict::Fired]),
        count(&[Verdict::Undecided, Verdict::Nothing])
    );
    for o in outcomes {
        let name = escape(&o.condition);
        let says = escape(&o.says);
        out.push_str(&format!(
            "<testcase classname=\"wallscope.diff\" name=\"{name}\">"
        ));
        out.push_str(&match o.verdict {
            Verdict::Fired => format!("<failure message=\"{says}\"/>"),
            Verdict::Undecided | Verdict::Nothing => format!("<skipped message=\"{says}\"/>"),
            Verdict::Holds => format!("<system-out>{says}</system-out>"),
        });
        out.push_str("</testcase>\n");
    }
    out.push_str("</testsuite>\n</testsuites>\n");
    out
}
