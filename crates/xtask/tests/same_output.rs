//! `same-output` finds differences between two binaries, here two scripts that stand for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use xtask::same_output::compare;

/// Held by each test: a process that another test starts meanwhile would have the script open for writing, and a file
/// that is open so cannot be run.
static ALONE: Mutex<()> = Mutex::new(());

/// A script that lists formats and views as the real binary does, and otherwise runs `body`.
fn binary(folder: &Path, name: &str, body: &str) -> PathBuf {
    let path = folder.join(name);
    let text = format!(
        "#!/bin/sh\n\
         case \"$*\" in\n\
         *--format*no-such-value*) echo '[possible values: folded, html]' >&2; exit 2 ;;\n\
         *--view*no-such-value*) echo '[possible values: wall]' >&2; exit 2 ;;\n\
         esac\n\
         echo said >&2\n\
         {body}\n"
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn recordings(folder: &Path) -> PathBuf {
    let path = folder.join("recordings");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("a"), "a").unwrap();
    fs::write(path.join("b"), "b").unwrap();
    path
}

#[test]
fn equal_outputs_have_no_difference() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let files = recordings(folder.path());
    let old = binary(folder.path(), "old", "basename \"$*\"");
    let new = binary(folder.path(), "new", "echo other >&2; basename \"$*\"");
    let compared = compare(&old, &new, &files).unwrap();
    // report, ladder, two formats, and folded by view with and without labels.
    assert_eq!((compared.files, compared.outputs), (2, 12));
    assert_eq!(compared.different, Vec::<String>::new());
}

#[test]
fn another_output_or_exit_code_is_named() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let files = recordings(folder.path());
    let old = binary(folder.path(), "old", "echo same");
    let new = binary(
        folder.path(),
        "new",
        "case \"$*\" in *ladder*/a) exit 5 ;; *folded*/b) echo some ;; *) echo same ;; esac",
    );
    let compared = compare(&old, &new, &files).unwrap();
    let expected = [
        "a: ladder --json: ended with 5, was 0",
        "b: export --format folded --view wall --with thread,state,reason: \
         byte 1 of 5, was 5 bytes: was `same\\n`, is `some\\n`",
        "b: export --format folded --view wall: byte 1 of 5, was 5 bytes: was `same\\n`, is `some\\n`",
        "b: export --format folded: byte 1 of 5, was 5 bytes: was `same\\n`, is `some\\n`",
    ];
    assert_eq!(compared.different, expected);
}

#[test]
fn of_a_page_only_the_data_counts() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let files = recordings(folder.path());
    let page = |code: &str, data: &str| {
        format!("echo '<script id=\"data\">{data}</script><script>{code}</script>'")
    };
    let old = binary(folder.path(), "old", &page("1", "x"));
    let code = format!(
        "case \"$*\" in *html*) {} ;; *) {} ;; esac",
        page("2", "x"),
        page("1", "x")
    );
    let new = binary(folder.path(), "new", &code);
    assert!(compare(&old, &new, &files).unwrap().different.is_empty());
    let data = format!(
        "case \"$*\" in *html*) {} ;; *) {} ;; esac",
        page("1", "y"),
        page("1", "x")
    );
    let new = binary(folder.path(), "other", &data);
    let compared = compare(&old, &new, &files).unwrap();
    assert_eq!(compared.different.len(), 2, "{compared:?}");
}

#[test]
fn nothing_to_compare_is_an_error() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let old = binary(folder.path(), "old", "echo same");
    assert!(compare(&old, &old, &empty).is_err());
    let files = recordings(folder.path());
    assert!(compare(Path::new("/bin/true"), &old, &files).is_err());
}
