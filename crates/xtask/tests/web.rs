//! The page's bundles are those of its sources.

use xtask::web;

/// SHA-256 of `CODE`, by sha256sum.
const SUM: &str = "07e31bc72b2ad3dba52c286fff0df6aee22da664b9ff525abb56e08ac5368c77";
const CODE: &str = "f();\n";

fn bundle(code: &str) -> String {
    format!("/* cargo xtask web: esbuild 1.0.0, sources aa, code {SUM} */\n{code}")
}

#[test]
fn bundles_are_current() {
    assert_eq!(web::faults().unwrap(), Vec::<String>::new());
}

#[test]
fn a_stale_or_edited_bundle_is_found() {
    let fault = |text: &str, release, sources| web::fault(text, release, sources);
    assert_eq!(fault(&bundle(CODE), "1.0.0", "aa"), None);
    let other_source = fault(&bundle(CODE), "1.0.0", "bb");
    assert!(other_source.is_some_and(|f| f.contains("stale")));
    let other_release = fault(&bundle(CODE), "1.1.0", "aa");
    assert!(other_release.is_some_and(|f| f.contains("stale")));
    let edited = fault(&bundle("g();\n"), "1.0.0", "aa");
    assert!(edited.is_some_and(|f| f.contains("edited")));
    assert!(fault("", "1.0.0", "aa").is_some());
}
