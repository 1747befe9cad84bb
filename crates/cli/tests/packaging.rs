//! The files of packages fit the program: flags, configuration, paths, rights.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use wallscope_agent::config::{Config, DEFAULT_FILE};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(file(name)).expect("a file of the repository")
}

fn unit() -> String {
    text("packaging/systemd/wallscope-agent.service")
}

fn manifest() -> String {
    text("packaging/kubernetes/agent.yaml")
}

/// The value of a key that stands once in a unit.
fn setting<'a>(unit: &'a str, key: &str) -> &'a str {
    let mut values = unit
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let value = values.next().unwrap_or_else(|| panic!("{key} is missing"));
    assert!(values.next().is_none(), "{key} stands twice");
    value
}

/// Lines of a manifest below the line `key`, as long as they are indented further, without that indent.
fn below(manifest: &str, key: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines = manifest.lines().skip_while(|line| line.trim() != key);
    let outer = indent(lines.next().unwrap_or_else(|| panic!("{key} is missing")));
    let inner = lines.take_while(|line| line.trim().is_empty() || indent(line) > outer);
    inner
        .map(|line| format!("{}\n", line.trim_start()))
        .collect()
}

/// Runs `wallscope agent … check` with the arguments of a package, but with the configuration in `config`.
fn check(arguments: &[&str], config: &Path) {
    let named = arguments.iter().position(|word| *word == DEFAULT_FILE);
    let mut arguments = arguments.to_vec();
    let named = named.expect("the arguments name the installed configuration");
    arguments[named] = config.to_str().expect("text");
    let out = Command::new(env!("CARGO_BIN_EXE_wallscope"))
        .args(&arguments)
        .arg("check")
        .output()
        .expect("the binary runs");
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{arguments:?}: {err}");
    assert!(String::from_utf8_lossy(&out.stdout).contains("fine."));
}

#[test]
fn the_unit_starts_the_agent_with_flags_and_a_configuration_that_it_accepts() {
    let unit = unit();
    let command: Vec<&str> = setting(&unit, "ExecStart").split(' ').collect();
    let [program, arguments @ ..] = command.as_slice() else {
        panic!("ExecStart is empty");
    };
    assert_eq!(*program, "/usr/bin/wallscope");
    check(arguments, &file("crates/agent/agent.toml"));
    assert_eq!(text("packaging/debian/conffiles").trim_end(), DEFAULT_FILE);
}

#[test]
fn the_manifest_starts_the_agent_with_flags_and_a_configuration_that_it_accepts() {
    let manifest = manifest();
    let line = manifest
        .lines()
        .find_map(|line| line.trim().strip_prefix("args: "));
    let arguments: Vec<String> = serde_json::from_str(line.expect("arguments")).expect("a list");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("agent.toml");
    fs::write(&config, below(&manifest, "agent.toml: |")).expect("a file");
    check(&arguments, &config);
}

#[test]
fn folders_of_packages_are_those_of_the_configuration() {
    let config = Config::read(&file("crates/agent/agent.toml")).expect("a configuration");
    let unit = unit();
    let below_var = Path::new("/var/lib").join(setting(&unit, "StateDirectory"));
    assert_eq!(below_var, config.store.dir);
    let below_run = Path::new("/run").join(setting(&unit, "RuntimeDirectory"));
    assert_eq!(below_run, config.agent.run_dir);
    let purged = format!("rm -rf {}\n", config.store.dir.display());
    assert!(text("packaging/debian/postrm").contains(&purged));

    let manifest = manifest();
    let of_pods = Config::parse(Path::new("agent.yaml"), &below(&manifest, "agent.toml: |"));
    let of_pods = of_pods.expect("a configuration");
    let mounts = below(&manifest, "volumeMounts:");
    for folder in [&of_pods.store.dir, &of_pods.agent.run_dir] {
        let mount = format!("mountPath: {}\n", folder.display());
        assert!(mounts.contains(&mount), "{mount}");
    }
    let address = of_pods.metrics.listen;
    for probe in ["livenessProbe:", "readinessProbe:"] {
        let probe = below(&manifest, probe);
        assert!(probe.contains(&format!("port: {}\n", address.port())));
        assert!(probe.contains(&format!("host: {}\n", address.ip())));
    }
    let tag = format!("image: wallscope:{}\n", env!("CARGO_PKG_VERSION"));
    assert!(manifest.contains(&tag), "{tag}");
}

#[test]
fn the_agent_has_the_least_capabilities_and_equal_ones_everywhere() {
    let unit = unit();
    let set = |key| {
        setting(&unit, key)
            .split(' ')
            .map(String::from)
            .collect::<BTreeSet<_>>()
    };
    let given = set("AmbientCapabilities");
    assert_eq!(given, set("CapabilityBoundingSet"));
    let capabilities = below(&manifest(), "capabilities:");
    assert!(capabilities.contains("drop: [\"ALL\"]\n"), "{capabilities}");
    let added = capabilities
        .lines()
        .filter_map(|line| line.strip_prefix("- "));
    let added: BTreeSet<String> = added.map(|name| format!("CAP_{name}")).collect();
    assert_eq!(given, added);
    let least = "BPF PERFMON SYS_PTRACE SYSLOG SETUID SETGID CHECKPOINT_RESTORE DAC_READ_SEARCH";
    let least: BTreeSet<String> = least.split(' ').map(|name| format!("CAP_{name}")).collect();
    assert_eq!(given, least);
    assert!(!manifest().contains("privileged: true"));
    assert_ne!(setting(&unit, "User"), "root");
}

#[test]
fn systemd_finds_the_unit_little_exposed() {
    let unit = file("packaging/systemd/wallscope-agent.service");
    let command = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold=40"])
        .arg(unit)
        .output();
    let Ok(out) = command else {
        println!("skipped: the exposure of the unit (systemd-analyze is not installed)");
        return;
    };
    let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    if text.contains("unrecognized option") {
        println!("skipped: the exposure of the unit (systemd before 250)");
        return;
    }
    // The threshold is ten times the exposure: 4.0.
    assert!(out.status.success(), "{text}");
    assert!(text.contains("Overall exposure level"), "{text}");
}

#[test]
fn kubernetes_knows_every_field_of_the_manifests() {
    let files =
        ["agent.yaml", "pod-names.yaml"].map(|name| file("packaging/kubernetes").join(name));
    let command = Command::new("kubernetes-validate")
        .arg("--strict")
        .args(files)
        .output();
    match command {
        Err(_) => println!("skipped: the manifests (kubernetes-validate is not installed)"),
        Ok(out) => {
            let err = String::from_utf8_lossy(&out.stderr);
            assert!(out.status.success(), "{err}");
        }
    }
}

#[test]
fn scripts_of_the_package_are_for_any_shell() {
    for name in ["postinst", "postrm", "prerm"] {
        let script = file("packaging/debian").join(name);
        let out = Command::new("sh")
            .arg("-n")
            .arg(&script)
            .output()
            .expect("sh runs");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        assert!(text(&format!("packaging/debian/{name}")).starts_with("#!/bin/sh\nset -e\n"));
    }
}
