//! `wallscope view`, as a shell sees it.

use std::path::Path;
use std::process::{Command, Output, Stdio};

const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../render/web/tests/fixtures/demo.pb.gz"
);

fn view(args: &[&str], folder: &Path, stdin: Stdio) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wallscope"))
        .arg("view")
        .args(args)
        .current_dir(folder)
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .stdin(stdin)
        .output()
        .expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn without_a_browser_it_writes_the_page_and_prints_where() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::copy(RECORDING, folder.path().join("rec.pb.gz")).expect("a copy");
    let out = view(&["rec.pb.gz"], folder.path(), Stdio::null());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(text(&out.stdout), "rec.html\n");
    assert_eq!(text(&out.stderr), "");
    let page = std::fs::read_to_string(folder.path().join("rec.html")).expect("the page");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.contains("default-src 'none'"));
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
}

#[test]
fn standard_input_and_a_place_of_ones_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = std::fs::File::open(RECORDING).expect("the recording");
    let out = view(
        &["-", "-o", "page.html", "--no-open"],
        folder.path(),
        file.into(),
    );
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert_eq!(text(&out.stdout), "page.html\n");
    assert!(folder.path().join("page.html").is_file());
}

#[test]
fn what_cannot_be_read_or_written_is_said_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("bad.pb.gz"), b"no recording").expect("a file");
    let out = view(&["bad.pb.gz"], folder.path(), Stdio::null());
    assert_eq!(out.status.code(), Some(5));
    assert!(text(&out.stderr).starts_with("wallscope: cannot use 'bad.pb.gz'"));
    let left = std::fs::read_dir(folder.path())
        .expect("the folder")
        .count();
    assert_eq!(left, 1, "only the input is left");

    let out = view(
        &["bad.pb.gz", "-o", "none/page.html"],
        folder.path(),
        Stdio::null(),
    );
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("choose another place with -o"));
}

#[test]
fn svg_takes_a_view_and_refuses_what_it_cannot_do() {
    let export = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_wallscope"))
            .args(["export", RECORDING, "--format", "svg"])
            .args(args)
            .output()
            .expect("the binary runs")
    };
    let out = export(&["--view", "off-cpu"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stdout).starts_with("<svg ") && text(&out.stdout).contains("off-cpu:"));
    let out = export(&["--with", "thread"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("--with is for --format folded"));
}
