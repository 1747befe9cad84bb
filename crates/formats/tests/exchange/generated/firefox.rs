//! Processed profiles of the Firefox Profiler in each layout from version 1 to the newest.

use serde_json::{Value, json};
use wallscope_model::{State, Unit};

use super::{SEEDS, Sums, Tree, read_as, refusal, sums};
use wallscope_synthetic::Random;

/// The newest version that is documented (CHANGELOG-formats.md).
const NEWEST: u32 = 70;

/// Versions before and after each change that the reader depends on.
const VERSIONS: [u32; 18] = [
    1, 4, 13, 28, 29, 36, 40, 41, 49, 50, 53, 55, 56, 58, 59, 60, 66, NEWEST,
];

/// A profile of two threads in milliseconds, before it is laid out.
struct Profile {
    tree: Tree,
    threads: Vec<Vec<Sample>>,
    interval: f64,
}

struct Sample {
    node: usize,
    /// ms.
    time: f64,
    weight: u64,
}

impl Profile {
    fn random(random: &mut Random) -> Profile {
        let tree = Tree::random(random);
        let threads = (0..2)
            .map(|_| {
                let mut time = 5.0;
                (0..random.below(40) + 1)
                    .map(|_| {
                        time += random.below(40) as f64 / 4.0;
                        Sample {
                            node: random.below(tree.len() as u64) as usize,
                            time,
                            weight: 1 + random.below(3),
                        }
                    })
                    .collect()
            })
            .collect();
        Profile {
            tree,
            threads,
            interval: 1.0 + random.below(8) as f64 / 2.0,
        }
    }

    /// Values where a sample of weight 1 is `unit`.
    fn expected(&self, unit: u64) -> Sums {
        let mut sums = Sums::default();
        for s in self.threads.iter().flatten() {
            sums.add(self.tree.folded(s.node, ""), s.weight * unit);
        }
        sums
    }

    /// The stack table: the tree, from `offset` on.
    fn stack_table(&self, version: u32) -> Value {
        let n = self.tree.len();
        let parents = &self.tree.parents;
        let frames: Vec<usize> = (0..n).collect();
        let mut table = json!({"length": n, "frame": frames});
        if version >= 66 {
            let offset = |(i, p): (usize, &Option<usize>)| p.map_or(0, |p| i - p);
            let offsets: Vec<usize> = parents.iter().enumerate().map(offset).collect();
            table["prefixOffset"] = json!(offsets);
        } else {
            table["prefix"] = json!(parents);
        }
        if (13..53).contains(&version) {
            table["category"] = json!(vec![0; n]);
        }
        table
    }

    /// Stack, frame, function and resource table. Strings are the names, then a file and a library.
    fn tables(&self, version: u32) -> serde_json::Map<String, Value> {
        let n = self.tree.len();
        let ids: Vec<usize> = (0..n).collect();
        let mut frames = json!({"length": n, "func": ids, "address": vec![-1; n], "category": vec![0; n],
            "line": vec![7; n], "inlineDepth": vec![0; n]});
        let mut funcs = json!({"length": n, "name": ids, "isJS": vec![false; n], "resource": vec![0; n],
            "relevantForJS": vec![false; n]});
        let mut resources = json!({"length": 1, "name": [n + 1], "host": [null], "type": [1]});
        if version >= 58 {
            funcs["source"] = json!(vec![0; n]);
        } else if version >= 4 {
            funcs["fileName"] = json!(vec![n; n]);
        }
        if version >= 70 {
            frames["lib"] = json!(vec![0; n]);
        } else {
            resources["lib"] = json!([0]);
        }
        let table = json!({"stackTable": self.stack_table(version), "frameTable": frames,
            "funcTable": funcs, "resourceTable": resources});
        table.as_object().unwrap().clone()
    }

    fn strings(&self) -> Vec<String> {
        let mut strings = self.tree.names.clone();
        strings.extend(["src/app.rs".to_string(), "libapp.so".to_string()]);
        strings
    }

    fn samples(&self, thread: usize, version: u32) -> Value {
        let list = &self.threads[thread];
        let stack: Vec<usize> = list.iter().map(|s| s.node).collect();
        let weights: Vec<u64> = list.iter().map(|s| s.weight).collect();
        let mut samples = json!({"length": list.len(), "stack": stack, "weightType": "samples"});
        let key = if version < 29 { "duration" } else { "weight" };
        samples[key] = json!(weights);
        let times: Vec<f64> = list.iter().map(|s| s.time).collect();
        if version >= 50 && thread == 1 {
            let mut last = 0.0;
            let delta = |t: &f64| t - std::mem::replace(&mut last, *t);
            samples["timeDeltas"] = json!(times.iter().map(delta).collect::<Vec<_>>());
        } else {
            samples["time"] = json!(times);
        }
        samples
    }

    /// The file as that version has it.
    fn file(&self, version: u32) -> Value {
        let libs =
            json!([{"name": "libapp.so", "path": "/opt/libapp.so", "debugName": "libapp.so"}]);
        let mut shared = serde_json::Map::new();
        if version >= 56 {
            shared.insert("stringArray".into(), json!(self.strings()));
        }
        if version >= 58 {
            let sources = json!({"length": 1, "filename": [self.tree.len()]});
            shared.insert("sources".into(), sources);
        }
        if version >= 60 {
            shared.extend(self.tables(version));
        }
        let mut threads = Vec::new();
        for i in 0..self.threads.len() {
            let mut thread = json!({"name": format!("t{i}"), "pid": "77", "tid": 77 + i,
                "processName": "app", "samples": self.samples(i, version),
                "markers": {"length": 0, "data": []}});
            let fields = thread.as_object_mut().unwrap();
            if version < 60 {
                fields.extend(self.tables(version));
            }
            if version < 56 {
                fields.insert("stringArray".into(), json!(self.strings()));
            }
            if version < 41 {
                fields.insert("libs".into(), libs.clone());
            }
            threads.push(thread);
        }
        let mut file = json!({"meta": {"preprocessedProfileVersion": version, "interval": self.interval,
            "startTime": 1_700_000_000_000.0, "product": "demo"}, "threads": threads, "counters": []});
        if version >= 41 {
            file["libs"] = libs;
        }
        if !shared.is_empty() {
            file["shared"] = Value::Object(shared);
        }
        file
    }
}

#[test]
fn each_version_has_the_same_stacks_files_and_libraries() {
    for seed in SEEDS {
        let p = Profile::random(&mut Random(seed));
        let expected = p.expected((p.interval * 1e6) as u64).0;
        for version in VERSIONS {
            let text = p.file(version).to_string();
            let read = read_as(text.as_bytes(), None).unwrap();
            assert_eq!(sums(&read), expected, "version {version}, seed {seed}");
            assert!(read.warnings.is_empty(), "{:?}", read.warnings);
            let rec = &read.recording;
            let modules: Vec<&str> = rec.modules.iter().map(|m| &*m.path).collect();
            assert_eq!(modules, ["/opt/libapp.so"], "version {version}");
            if version >= 4 {
                let file = rec.functions.iter().all(|f| &*f.file == "src/app.rs");
                assert!(file, "version {version}");
            }
            let lines = rec.frames.iter().flat_map(|f| &f.lines);
            assert!(lines.into_iter().all(|l| l.line == 7));
            assert_eq!(rec.contexts.len(), 2);
        }
    }
}

#[test]
fn a_newer_version_is_said_and_unknown_columns_are_refused() {
    let p = Profile::random(&mut Random(3));
    let mut file = p.file(NEWEST);
    file["meta"]["preprocessedProfileVersion"] = json!(NEWEST + 1);
    let read = read_as(file.to_string().as_bytes(), None).unwrap();
    assert_eq!(sums(&read), p.expected((p.interval * 1e6) as u64).0);
    assert!(
        read.warnings[0].contains("version 71"),
        "{:?}",
        read.warnings
    );
    let table = file["shared"]["stackTable"].as_object_mut().unwrap();
    let offsets = table.remove("prefixOffset").unwrap();
    table.insert("parentDistance".into(), offsets);
    let e = refusal(file.to_string().as_bytes()).to_string();
    assert!(e.contains("stackTable.parentDistance"), "{e}");
    // Nor are callers guessed where a known version has none.
    file["meta"]["preprocessedProfileVersion"] = json!(NEWEST);
    let e = refusal(file.to_string().as_bytes()).to_string();
    assert!(e.contains("prefixOffset"), "{e}");
}

#[test]
fn samples_of_unknown_length_are_counts_and_other_weights_what_they_say() {
    for seed in SEEDS {
        let p = Profile::random(&mut Random(seed));
        let mut file = p.file(53);
        file["meta"]["interval"] = json!(0);
        let counts = read_as(file.to_string().as_bytes(), None).unwrap();
        assert_eq!(counts.recording.domain.unit, Unit::Count("samples".into()));
        assert_eq!(sums(&counts), p.expected(1).0);
        for (name, unit) in [("tracing-ms", 1_000_000), ("bytes", 1)] {
            for t in file["threads"].as_array_mut().unwrap() {
                t["samples"]["weightType"] = json!(name);
            }
            let read = read_as(file.to_string().as_bytes(), None).unwrap();
            assert_eq!(sums(&read), p.expected(unit).0, "{name}");
        }
        for t in file["threads"].as_array_mut().unwrap() {
            t["samples"]["weightType"] = json!("joules");
        }
        let e = refusal(file.to_string().as_bytes()).to_string();
        assert!(e.contains("joules"), "{e}");
    }
}

#[test]
fn cpu_time_between_samples_is_on_cpu_and_the_rest_unknown() {
    let file = |cpu: Value| {
        json!({"meta": {"preprocessedProfileVersion": 60, "interval": 1.0,
                "sampleUnits": {"time": "ms", "threadCPUDelta": "µs"}},
            "shared": {"stringArray": ["f"], "stackTable": {"length": 1, "frame": [0], "prefix": [null]},
                "frameTable": {"length": 1, "func": [0], "line": [null]},
                "funcTable": {"length": 1, "name": [0]}, "resourceTable": {"length": 0, "lib": []}},
            "threads": [{"name": "t", "pid": "1", "tid": 1, "samples": {"length": 3, "stack": [0, 0, 0],
                "time": [0, 4, 6], "weight": null, "weightType": "samples", "threadCPUDelta": cpu}}]})
    };
    let rec = read_as(file(json!([900, 3000, null])).to_string().as_bytes(), None)
        .unwrap()
        .recording;
    let sum = |state| {
        rec.samples
            .iter()
            .filter(|s| s.state == state)
            .map(|s| s.ns)
            .sum::<u64>()
    };
    // The first delta has no sample before it: its sample is an interval, as is the last.
    assert_eq!(sum(State::OnCpu), 3_000_000);
    assert_eq!(sum(State::Unknown), 1_000_000 + 1_000_000 + 1_000_000);
}

#[test]
fn references_beyond_a_table_are_damage() {
    let p = Profile::random(&mut Random(1));
    for (table, column) in [
        ("stackTable", "frame"),
        ("frameTable", "func"),
        ("funcTable", "name"),
    ] {
        let mut file = p.file(60);
        let list = file["shared"][table][column].as_array_mut().unwrap();
        list.iter_mut().for_each(|v| *v = json!(4000));
        let e = refusal(file.to_string().as_bytes()).to_string();
        assert!(e.contains("refers to"), "{table}.{column}: {e}");
    }
}

#[test]
fn the_fixtures_of_four_layouts_are_one_profile() {
    let fixtures: [(&[u8], usize); 4] = [
        (include_bytes!("../../fixtures/firefox-v53.json"), 0),
        (include_bytes!("../../fixtures/firefox-v60.json"), 0),
        (include_bytes!("../../fixtures/firefox-v66.json"), 0),
        (include_bytes!("../../fixtures/firefox-v70.json"), 1),
    ];
    for (bytes, libraries) in fixtures {
        let read = crate::support::read(bytes);
        let expected = [("root;leafB", 1_000_000), ("root;mid;leafA", 3_000_000)];
        let expected = expected.map(|(k, v)| (k.to_string(), v));
        assert_eq!(sums(&read), expected.into_iter().collect());
        let rec = &read.recording;
        assert!(rec.functions.iter().all(|f| &*f.file == "src/app.rs"));
        assert_eq!(rec.modules.len(), libraries);
    }
}
