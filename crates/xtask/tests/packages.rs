//! Published crates have the files that a stranger needs, and take nothing from outside their folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use xtask::root;

/// Crates for other programs. The remaining published crates serve the program `wallscope` alone.
const LIBRARIES: &[&str] = &[
    "wallscope-analysis",
    "wallscope-binfmt",
    "wallscope-diagnose",
    "wallscope-formats",
    "wallscope-model",
    "wallscope-observe",
    "wallscope-procfs",
    "wallscope-render",
    "wallscope-symbolize",
    "wallscope-unwind",
];

struct Crate {
    name: String,
    folder: PathBuf,
    facts: Value,
}

impl Crate {
    fn text(&self, key: &str) -> &str {
        self.facts[key].as_str().unwrap_or_default()
    }

    fn is_library(&self) -> bool {
        LIBRARIES.contains(&self.name.as_str())
    }
}

fn published() -> Vec<Crate> {
    let out = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let all: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let packages = all["packages"].as_array().expect("packages");
    let published = packages.iter().filter(|p| p["publish"].is_null());
    published
        .map(|facts| Crate {
            name: facts["name"].as_str().expect("a name").to_string(),
            folder: Path::new(facts["manifest_path"].as_str().expect("a path"))
                .parent()
                .expect("a folder")
                .to_path_buf(),
            facts: facts.clone(),
        })
        .collect()
}

/// All files below `folder` of Rust and C.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path
            .extension()
            .is_some_and(|e| ["rs", "h", "c"].iter().any(|x| e == *x))
        {
            found.push(path);
        }
    }
}

#[test]
fn published_crates_describe_themselves() {
    let crates = published();
    assert!(crates.len() > LIBRARIES.len());
    for library in LIBRARIES {
        assert!(
            crates.iter().any(|c| c.name == *library),
            "{library} is not published"
        );
    }
    for c in &crates {
        let name = &c.name;
        for key in [
            "description",
            "license",
            "repository",
            "readme",
            "rust_version",
        ] {
            assert!(!c.text(key).is_empty(), "{name}: {key} is missing");
        }
        for key in ["keywords", "categories"] {
            let list = c.facts[key].as_array().map_or(0, Vec::len);
            assert!((1..=5).contains(&list), "{name}: {list} {key}");
        }
        let readme = fs::read_to_string(c.folder.join("README.md")).expect("a README.md");
        assert!(
            readme.starts_with(&format!("# {name}\n")),
            "{name}: its README is another's"
        );
    }
}

#[test]
fn licences_are_true_and_their_texts_are_there() {
    for c in published() {
        let mut files = Vec::new();
        sources(&c.folder.join("src"), &mut files);
        sources(&c.folder.join("bpf"), &mut files);
        let of_kernel = files.iter().any(|path| {
            let text = fs::read_to_string(path).expect("text");
            text.starts_with("/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */")
        });
        let (licence, texts) = match of_kernel {
            true => (
                "(MIT OR Apache-2.0) AND (MIT OR GPL-2.0-only)",
                &["LICENSE-MIT", "LICENSE-APACHE", "LICENSE-GPL-2.0"][..],
            ),
            false => ("MIT OR Apache-2.0", &["LICENSE-MIT", "LICENSE-APACHE"][..]),
        };
        assert_eq!(c.text("license"), licence, "{}", c.name);
        for text in texts {
            let own = fs::read(c.folder.join(text)).expect(text);
            assert!(
                own == fs::read(root().join(text)).expect(text),
                "{}: {text}",
                c.name
            );
        }
        for path in files
            .iter()
            .filter(|p| p.extension().is_some_and(|e| e != "rs"))
        {
            let text = fs::read_to_string(path).expect("text");
            let first = text.lines().next().unwrap_or_default();
            assert!(
                first.contains("SPDX-License-Identifier"),
                "{}",
                path.display()
            );
        }
    }
}

#[test]
fn libraries_have_examples_and_tested_documentation() {
    for c in published().iter().filter(|c| c.is_library()) {
        let targets = c.facts["targets"].as_array().expect("targets");
        let examples = targets.iter().filter(|t| t["kind"][0] == "example");
        assert!(examples.count() > 0, "{}: no example", c.name);
        let mut files = Vec::new();
        sources(&c.folder.join("src"), &mut files);
        let tested = files.iter().any(|path| {
            let text = fs::read_to_string(path).expect("text");
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            let begins = lines.iter().any(|l| *l == "/// ```" || *l == "//! ```");
            begins
                && lines
                    .iter()
                    .any(|l| l.starts_with("/// assert") || l.starts_with("//! assert"))
        });
        assert!(tested, "{}: no doctest asserts", c.name);
    }
}

#[test]
fn no_published_crate_includes_a_file_from_outside() {
    for c in published() {
        let mut files = Vec::new();
        sources(&c.folder.join("src"), &mut files);
        sources(&c.folder.join("bpf"), &mut files);
        files.push(c.folder.join("build.rs"));
        for path in files {
            let Ok(text) = fs::read_to_string(&path) else {
                continue;
            };
            let folder = path.parent().expect("a folder");
            for line in text.lines() {
                let Some(named) = included(line) else {
                    continue;
                };
                let whole = fs::canonicalize(folder.join(named));
                let whole = whole.unwrap_or_else(|e| panic!("{}: {named}: {e}", path.display()));
                assert!(whole.starts_with(&c.folder), "{}: {named}", path.display());
            }
        }
    }
}

/// The relative path that a line of Rust or C includes, if it leaves the file's own folder.
fn included(line: &str) -> Option<&str> {
    let rest = [
        "include_str!(\"",
        "include_bytes!(\"",
        "include!(\"",
        "#include \"",
    ];
    let named = rest.iter().find_map(|begin| line.split_once(begin))?.1;
    let (named, _) = named.split_once('"')?;
    named.starts_with("..").then_some(named)
}
