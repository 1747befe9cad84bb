//! Exports that people and scripts read.

use wallscope_model::Recording;
use wallscope_render::export::{Export, ExportOptions};
use wallscope_synthetic as synthetic;

fn write(rec: &Recording, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let export = Export::named(name).unwrap();
    export
        .write(rec, &ExportOptions::default(), &mut out)
        .unwrap();
    out
}

#[test]
fn what_people_read_is_written_too() {
    let rec = synthetic::recording(1);
    assert!(write(&rec, "json").starts_with(b"{"));
    assert!(write(&rec, "markdown").starts_with(b"**"));
    assert!(write(&rec, "html").starts_with(b"<!"));
    assert!(write(&rec, "svg").starts_with(b"<svg"));
}

#[test]
fn every_name_is_there_once() {
    let mut names: Vec<_> = Export::all().map(Export::name).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}
