//! Manual pages and completions are made of the whole text of `--help`.

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wallscope"))
        .args(args)
        .env("COLUMNS", "200")
        .output()
        .expect("the binary runs")
}

fn text(args: &[&str]) -> String {
    let out = run(args);
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && err.is_empty(), "{args:?}: {err}");
    String::from_utf8(out.stdout).expect("text")
}

/// The verbs that `--help` lists.
fn verbs() -> Vec<String> {
    let help = text(&["--help"]);
    let (_, rest) = help.split_once("Commands:\n").expect("a list of verbs");
    let lines = rest.lines().take_while(|l| !l.is_empty());
    let names = lines.filter_map(|l| l.strip_prefix("  ")?.split_whitespace().next());
    names.filter(|n| *n != "help").map(str::to_string).collect()
}

/// The long options that a verb's `--help` lists.
fn options(verb: &str) -> Vec<String> {
    let help = text(&[verb, "--help"]);
    let lines = help.lines().map(str::trim_start);
    let named = lines.filter(|l| l.starts_with('-'));
    named
        .filter_map(|l| l.split([' ', ',', '[']).find(|w| w.starts_with("--")))
        .map(str::to_string)
        .collect()
}

#[test]
fn every_verb_has_a_page_with_all_of_its_options_and_examples() {
    let verbs = verbs();
    assert!(verbs.len() >= 7, "{verbs:?}");
    let index = text(&["man"]).replace('\\', "");
    assert!(
        index.contains(".TH WALLSCOPE 1 \"\" \"wallscope "),
        "{index}"
    );
    assert!(index.contains("Exit codes: 0 done"));
    for verb in &verbs {
        assert!(index.contains(&format!("wallscope-{verb}(1)")), "{verb}");
        let page = text(&["man", verb]).replace('\\', "");
        let title = format!(".TH WALLSCOPE-{} 1", verb.to_uppercase());
        assert!(page.contains(&title), "{page}");
        assert!(page.contains(&format!("\nwallscope {verb} ")), "{page}");
        assert!(page.contains(".SH EXAMPLES\n"), "{page}");
        let options = options(verb);
        assert!(options.iter().any(|o| o == "--help"), "{verb}");
        for option in options {
            assert!(page.contains(&option), "{verb}: no {option} in:\n{page}");
        }
    }
}

#[test]
fn the_pages_are_written_into_a_folder_and_can_be_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("text");
    assert_eq!(text(&["man", "-o", path]), "");
    let mut pages: Vec<_> = std::fs::read_dir(path)
        .expect("the folder")
        .map(|e| {
            e.expect("an entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    pages.sort();
    let mut wanted: Vec<_> = verbs().iter().map(|v| format!("wallscope-{v}.1")).collect();
    wanted.push("wallscope.1".to_string());
    wanted.sort();
    assert_eq!(pages, wanted);

    if Command::new("groff").arg("--version").output().is_err() {
        println!("skipped: setting the manual pages (groff is not installed)");
        return;
    }
    for page in pages {
        let set = Command::new("groff")
            .args(["-man", "-Tutf8", "-Kutf8", &page])
            .current_dir(path)
            .output()
            .expect("groff runs");
        let complaints = String::from_utf8_lossy(&set.stderr);
        assert!(
            set.status.success() && complaints.is_empty(),
            "{page}: {complaints}"
        );
    }
}

#[test]
fn completions_know_every_verb_and_a_shell_takes_them() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&["completions", shell]);
        for verb in verbs() {
            assert!(script.contains(&verb), "{shell}: {verb}");
        }
        assert!(script.contains("off-cpu-period"), "{shell}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("wallscope.bash");
    std::fs::write(&script, text(&["completions", "bash"])).expect("a file");
    // What bash offers after `wallscope export --format `, asked as readline would.
    let ask = format!(
        ". '{}'; COMP_WORDS=(wallscope export --format ''); COMP_CWORD=3; \
         _wallscope wallscope '' --format; echo \"${{COMPREPLY[@]}}\"",
        script.display()
    );
    match Command::new("bash").args(["--norc", "-c", &ask]).output() {
        Err(e) => println!("skipped: asking bash for completions ({e})"),
        Ok(out) => {
            let offers = String::from_utf8_lossy(&out.stdout).into_owned();
            assert!(
                offers.contains("folded") && offers.contains("svg"),
                "{offers}"
            );
        }
    }
}

#[test]
fn what_is_not_there_is_told() {
    let out = run(&["man", "recrod"]);
    assert_eq!(out.status.code(), Some(2));
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(
        err.contains("there is no verb 'recrod'") && err.contains("record, replay, recover"),
        "{err}"
    );
    let out = run(&["man", "-o", "none/such"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("cannot write into 'none/such'"));
}
