use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use wallscope_model::Process;

use crate::config::{Config, Keep, Rule};

const ID: &str = "3f4e8a1b2c5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f7";
const SHORT: &str = "3f4e8a1b2c5d";
const UID: &str = "8dbc5577-d0e2-4706-8787-57d52c03ddf2";

/// Runtime, container, pod and unit in a few words.
fn read(path: &str) -> String {
    let p = place(path);
    let word = |w: Option<String>| w.unwrap_or("-".to_string());
    [p.runtime.map(String::from), p.container, p.pod, p.unit]
        .map(word)
        .join(" ")
}

#[test]
fn cgroup_paths_of_each_runtime() {
    let pod_slice = "kubepods-burstable-pod8dbc5577_d0e2_4706_8787_57d52c03ddf2.slice";
    for (path, expected) in [
        // Docker, drivers cgroupfs and systemd.
        (format!("/docker/{ID}"), format!("docker {SHORT} - -")),
        (
            format!("/system.slice/docker-{ID}.scope"),
            format!("docker {SHORT} - -"),
        ),
        // Docker, rootless.
        (
            format!("/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope"),
            format!("docker {SHORT} - -"),
        ),
        // A systemd within a container, and its units.
        (
            format!("/docker/{ID}/system.slice/cron.service"),
            format!("docker {SHORT} - cron.service"),
        ),
        // Containerd: ctr, nerdctl, and the form with colons.
        (format!("/default/{ID}"), format!("containerd {SHORT} - -")),
        (
            format!("/system.slice/nerdctl-{ID}.scope"),
            format!("containerd {SHORT} - -"),
        ),
        (
            format!(
                "/system.slice/containerd.service/kubepods-burstable-pod8dbc5577_d0e2_4706_8787_57d52c03ddf2.slice:cri-containerd:{ID}"
            ),
            format!("containerd {SHORT} {UID} -"),
        ),
        // Kubernetes, driver systemd: containerd, CRI-O, Docker.
        (
            format!(
                "/kubepods.slice/kubepods-burstable.slice/{pod_slice}/cri-containerd-{ID}.scope"
            ),
            format!("containerd {SHORT} {UID} -"),
        ),
        (
            format!("/kubepods.slice/kubepods-burstable.slice/{pod_slice}/crio-{ID}.scope"),
            format!("crio {SHORT} {UID} -"),
        ),
        (
            format!("/kubepods.slice/kubepods-burstable.slice/{pod_slice}/docker-{ID}.scope"),
            format!("docker {SHORT} {UID} -"),
        ),
        // Guaranteed pods have no slice of their class.
        (
            format!(
                "/kubepods.slice/kubepods-pod8dbc5577_d0e2_4706_8787_57d52c03ddf2.slice/crio-{ID}.scope"
            ),
            format!("crio {SHORT} {UID} -"),
        ),
        // Kubernetes, driver cgroupfs.
        (
            format!("/kubepods/besteffort/pod{UID}/{ID}"),
            format!("- {SHORT} {UID} -"),
        ),
        (
            format!("/kubepods/pod{UID}/{ID}"),
            format!("- {SHORT} {UID} -"),
        ),
        // A static pod: the hash of its file.
        (
            format!("/kubepods/burstable/pod2d2ffc2ea4b0a4bd2b2d6a5e3dbd8b4c/{ID}"),
            format!("- {SHORT} 2d2ffc2ea4b0a4bd2b2d6a5e3dbd8b4c -"),
        ),
        // A node in a container (kind): the inner container counts.
        (
            format!(
                "/docker/{}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod8dbc5577_d0e2_4706_8787_57d52c03ddf2.slice/cri-containerd-{ID}.scope",
                "a".repeat(64)
            ),
            format!("containerd {SHORT} {UID} -"),
        ),
        // Podman: root, with an inner group, and rootless.
        (
            format!("/machine.slice/libpod-{ID}.scope"),
            format!("podman {SHORT} - -"),
        ),
        (
            format!("/machine.slice/libpod-{ID}.scope/container"),
            format!("podman {SHORT} - -"),
        ),
        (
            format!(
                "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container"
            ),
            format!("podman {SHORT} - -"),
        ),
        (
            format!("/libpod_parent/{ID}"),
            format!("podman {SHORT} - -"),
        ),
        // Other containers.
        (
            "/lxc.payload.web/system.slice/nginx.service".into(),
            "lxc web - nginx.service".into(),
        ),
        (
            "/machine.slice/systemd-nspawn@build\\x2d1.service/payload".into(),
            "nspawn build-1 - -".into(),
        ),
        // Units.
        (
            "/system.slice/nginx.service".into(),
            "- - - nginx.service".into(),
        ),
        (
            "/system.slice/system-postgresql.slice/postgresql@15-main.service".into(),
            "- - - postgresql@15-main.service".into(),
        ),
        (
            "/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox.service".into(),
            "- - - app-firefox.service".into(),
        ),
        (
            "/user.slice/user-1000.slice/session-3.scope".into(),
            "- - - session-3.scope".into(),
        ),
        (
            "/system.slice/dev\\x2dhugepages.mount".into(),
            "- - - dev-hugepages.mount".into(),
        ),
        // Nothing.
        ("/".into(), "- - - -".into()),
        ("/init.scope".into(), "- - - -".into()),
        (
            format!("/system.slice/docker-{}.scope", &ID[..63]),
            format!("- - - docker-{}.scope", &ID[..63]),
        ),
        (
            "/kubepods/burstable/podnot-a-uid/x".into(),
            "- - - -".into(),
        ),
        ("/../../é\\x".into(), "- - - -".into()),
    ] {
        assert_eq!(read(&path), expected, "{path}");
    }
}

#[test]
fn both_versions_of_proc_pid_cgroup() {
    let v2 = "0::/system.slice/nginx.service\n";
    assert_eq!(path_of(v2), "/system.slice/nginx.service");
    let v1 =
        "12:pids:/docker/abc\n11:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc/init\n0::/\n";
    assert_eq!(path_of(v1), "/docker/abc/init");
    let v1 = "4:memory:/system.slice/nginx.service\n3:cpuset:/\n2:cpu,cpuacct:/\n";
    assert_eq!(path_of(v1), "/system.slice/nginx.service");
    assert_eq!(path_of(""), "");
}

/// Facts in one line each.
fn facts(cgroup: &str, environ: &[(&str, &str)], exe: &str, args: &str) -> Facts {
    Facts {
        cgroup: cgroup.to_string(),
        environ: environ
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect(),
        is_gone: false,
        context: Default::default(),
        comm: "comm".to_string(),
        exe: exe.to_string(),
        args: args
            .split(' ')
            .filter(|a| !a.is_empty())
            .map(str::to_string)
            .collect(),
    }
}

fn service_of(facts: &Facts) -> String {
    let mut labels = labels(facts, &BTreeSet::new(), &Pods::default());
    labels.remove(SERVICE).unwrap()
}

#[test]
fn the_first_source_names_the_service() {
    let attributes = (
        "OTEL_RESOURCE_ATTRIBUTES",
        "service.name=check%20out,service.version=2",
    );
    let unit = "/system.slice/system-postgresql.slice/postgresql@15-main.service";
    let published = Facts {
        context: [("service.name".to_string(), "published".to_string())].into(),
        ..facts(unit, &[("OTEL_SERVICE_NAME", "pay")], "/bin/x", "x")
    };
    assert_eq!(service_of(&published), "published");
    for (facts, expected) in [
        (
            facts(
                unit,
                &[("OTEL_SERVICE_NAME", "pay"), attributes],
                "/bin/x",
                "x",
            ),
            "pay",
        ),
        (facts(unit, &[attributes], "/bin/x", "x"), "check out"),
        (
            facts(unit, &[], "/usr/lib/postgresql/15/bin/postgres", "postgres"),
            "postgresql",
        ),
        (
            facts("/init.scope", &[], "/usr/lib/systemd/systemd", "/sbin/init"),
            "systemd",
        ),
        (
            facts(
                "/user.slice/user-0.slice/user@0.service/init.scope",
                &[],
                "/usr/lib/systemd/systemd",
                "x",
            ),
            "systemd",
        ),
        (
            facts("/user.slice/session-3.scope", &[], "/usr/bin/vim", "vim a"),
            "vim",
        ),
        (
            facts(
                &format!("/docker/{ID}/system.slice/cron.service"),
                &[],
                "/usr/sbin/cron",
                "cron",
            ),
            "cron",
        ),
        (facts("/", &[], "/opt/app (deleted)", "app"), "app"),
        (
            facts(
                "/",
                &[],
                "/usr/bin/python3.11",
                "python3 -u /srv/orders/main.py --port 80",
            ),
            "main",
        ),
        (
            facts("/", &[], "/usr/bin/python3", "python3 -m gunicorn app:app"),
            "gunicorn",
        ),
        (
            facts("/", &[], "/usr/bin/python3", "python3 -c print(1)"),
            "python3",
        ),
        (
            facts(
                "/",
                &[],
                "/usr/lib/jvm/bin/java",
                "java -Xmx1g -jar /srv/orders.jar",
            ),
            "orders",
        ),
        (facts("/", &[], "/usr/bin/node", "node server.js"), "server"),
        (
            facts("/", &[], "/usr/bin/shellcheck", "shellcheck a.sh"),
            "shellcheck",
        ),
        (facts("/", &[], "", ""), KERNEL),
        (facts("/", &[], "", "gone"), "comm"),
    ] {
        assert_eq!(service_of(&facts), expected, "{facts:?}");
    }
}

#[test]
fn attributes_become_labels_if_they_are_configured() {
    let facts = facts(
        "/",
        &[(
            "OTEL_RESOURCE_ATTRIBUTES",
            "a=1,service.version=2.0,secret=x,=,broken,e=%zz",
        )],
        "/bin/x",
        "x",
    );
    let attributes = BTreeSet::from(["service.version".to_string(), "e".to_string()]);
    let labels = labels(&facts, &attributes, &Pods::default());
    let expected = [("e", "%zz"), ("service", "x"), ("service.version", "2.0")];
    assert!(
        labels
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .eq(expected)
    );
}

fn rules(text: &str) -> Vec<Rule> {
    Config::parse(Path::new("a.toml"), text)
        .unwrap()
        .services
        .rules
}

#[test]
fn rules_apply_in_their_order() {
    let rules = rules(
        r#"
        [[services.rule]]
        match = { unit = "nginx\\.service" }
        set = { service = "edge", team = "web" }
        [[services.rule]]
        match = { service = "edge", exe = "/usr/.*" }
        drop = ["unit"]
        rename = { team = "owner" }
        [[services.rule]]
        match = { comm = "comm", missing = ".*" }
        set = { never = "set" }
        [[services.rule]]
        match = { exe = "/opt/secret" }
        exclude = true
        [[services.rule]]
        match = { exe = "/opt/nameless" }
        drop = ["service"]
        "#,
    );
    let run = |facts: &Facts| labelled(facts, &BTreeSet::new(), &Pods::default(), &rules);
    let Labelled::Labels(labels) = run(&facts(
        "/system.slice/nginx.service",
        &[],
        "/usr/sbin/nginx",
        "nginx",
    )) else {
        panic!("excluded");
    };
    assert_eq!(
        format!("{labels:?}"),
        r#"{"owner": "web", "service": "edge"}"#
    );
    assert_eq!(
        run(&facts("/", &[], "/opt/secret", "x")),
        Labelled::Excluded
    );
    // A service is always there.
    let Labelled::Labels(labels) = run(&facts("/", &[], "/opt/nameless", "x")) else {
        panic!("excluded");
    };
    assert_eq!(labels[SERVICE], "nameless");
}

#[test]
fn command_lines_lose_their_values() {
    for (line, expected) in [
        ("mysqld --user=root -psecret /data", "mysqld --user=… -p… …"),
        (
            "curl -H Authorization: Bearer abc --data x",
            "curl -H … --data …",
        ),
        ("java -Xmx1g -jar a.jar", "java -X… -j… …"),
        ("tool --token=a=b --a;b=c --", "tool --token=… … --"),
        ("", ""),
        ("app -", "app …"),
    ] {
        assert_eq!(redacted(line, Keep::Redacted), expected, "{line}");
    }
    assert_eq!(redacted("a --b", Keep::Program), "a");
    assert_eq!(redacted("a --b", Keep::All), "a --b");
}

#[test]
fn services_beyond_the_budget_are_other_and_places_become_free() {
    let mut c = Cardinality::new(2);
    c.next_window();
    assert_eq!(
        [
            c.admit("a"),
            c.admit("b"),
            c.admit("c"),
            c.admit("d"),
            c.admit("a")
        ],
        ["a", "b", OTHER, OTHER, "a"]
    );
    assert_eq!(c.beyond(), 2);
    for _ in 0..400 {
        c.next_window();
        c.admit("a");
    }
    assert_eq!((c.admit("c"), c.beyond()), ("c", 0));
    // Any number of names takes a bounded amount of memory.
    (0..100_000).for_each(|i| assert_eq!(c.admit(&format!("s{i}")), OTHER));
    assert_eq!(c.beyond(), 10_000);
}

#[test]
fn pods_are_named_by_the_kubelet() {
    let answer = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","items":[
        {{"metadata":{{"name":"checkout-7d4b9c6f5-x2x9k","namespace":"shop","uid":"{UID}",
          "labels":{{"pod-template-hash":"7d4b9c6f5"}},
          "ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"checkout-7d4b9c6f5"}}]}}}},
        {{"metadata":{{"name":"db-0","namespace":"shop","uid":"u2",
          "ownerReferences":[{{"kind":"StatefulSet","name":"db"}}]}}}},
        {{"metadata":{{"name":"etcd-node1","namespace":"kube-system","uid":"u3",
          "annotations":{{"kubernetes.io/config.hash":"2d2ffc2ea4b0a4bd2b2d6a5e3dbd8b4c"}},
          "ownerReferences":[{{"kind":"Node","name":"node1"}}]}}}},
        {{"metadata":{{"name":"alone","namespace":"x","uid":"u4"}},"spec":{{}}}}]}}"#
    );
    let pods = Pods::parse(answer.as_bytes()).unwrap();
    let workload = |uid: &str| pods.get(uid).map(|p| p.workload.as_str());
    assert_eq!(workload(UID), Some("checkout"));
    assert_eq!(workload("u2"), Some("db"));
    assert_eq!(
        workload("2d2ffc2ea4b0a4bd2b2d6a5e3dbd8b4c"),
        Some("etcd-node1")
    );
    assert_eq!(workload("u4"), Some("alone"));
    let facts = facts(
        &format!("/kubepods/burstable/pod{UID}/{ID}"),
        &[],
        "/app",
        "app",
    );
    let labels = labels(&facts, &BTreeSet::new(), &pods);
    let expected = r#"{"container": "3f4e8a1b2c5d", "namespace": "shop", "pod": "checkout-7d4b9c6f5-x2x9k", "service": "checkout"}"#;
    assert_eq!(format!("{labels:?}"), expected);
}

#[test]
fn what_was_gone_too_soon_has_the_labels_of_its_ancestor() {
    let mut window = wallscope_synthetic::windows::window(0);
    let process = |pid, parent, name: &str| Process {
        pid,
        parent,
        name: name.into(),
        ..Process::default()
    };
    // A shell of a unit, a child of its child, a group of ended ones, and one without a known parent.
    window.processes = vec![
        process(1 << 30, 10, "cut"),
        process(10, 1, "sh"),
        process(12, 11, "sed"),
        process(11, 10, "make"),
        process(13, 999, "orphan"),
    ];
    let context = window.contexts[0].clone();
    window.contexts = (window.processes.iter())
        .map(|p| wallscope_model::Context {
            pid: p.pid,
            tid: p.pid,
            ..context.clone()
        })
        .collect();
    (window.samples, window.histograms) = (Vec::new(), Vec::new());
    window.ledger_slices = Default::default();
    let mut labeller = Labeller::new(Config::default().services, Keep::All);
    let mut read = |p: &Process| match p.pid {
        10 => facts("/system.slice/backup.service", &[], "/bin/sh", "sh"),
        _ => Facts {
            comm: p.name.to_string(),
            is_gone: true,
            ..Facts::default()
        },
    };
    let window = apply(&mut labeller, window, &mut read);
    let services: Vec<_> = (0..5)
        .map(|c| window.context_label(wallscope_model::ContextId(c), SERVICE))
        .collect();
    let backup = Some("backup");
    assert_eq!(services, [backup, backup, backup, backup, Some("orphan")]);
}
