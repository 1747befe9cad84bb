//! V8's profiles: lists of nodes, trees under `head`, deltas and timestamps.

use serde_json::{Value, json};
use wallscope_model::{State, Unit};

use super::{SEEDS, Sums, Tree, gzip, read_as, refusal, sums};
use wallscope_synthetic::Random;

/// A profile: samples in the order of the file with their times, µs.
pub(super) struct Profile {
    pub tree: Tree,
    pub start: i64,
    pub end: i64,
    pub samples: Vec<(usize, i64)>,
}

impl Profile {
    pub(super) fn random(random: &mut Random) -> Profile {
        let tree = Tree::random(random);
        let start = 1_000_000 + random.below(1000) as i64;
        let mut at = start;
        let mut samples: Vec<(usize, i64)> = (0..1 + random.below(60))
            .map(|_| {
                at += random.below(2000) as i64;
                (random.below(tree.len() as u64) as usize, at)
            })
            .collect();
        let end = at + random.below(3000) as i64;
        // Neighbours change places: their deltas become negative.
        for i in 1..samples.len() {
            if random.below(5) == 0 {
                samples.swap(i - 1, i);
            }
        }
        Profile {
            tree,
            start,
            end,
            samples,
        }
    }

    /// Each sample lasts until the next one in time, the last until the end.
    fn expected(&self, end: Option<i64>) -> Sums {
        let mut order = self.samples.clone();
        order.sort_by_key(|(_, at)| *at);
        let mut sums = Sums::default();
        for (i, (node, at)) in order.iter().enumerate() {
            let next = order.get(i + 1).map(|(_, at)| *at).or(end).unwrap_or(*at);
            sums.add(self.tree.folded(*node, "_[j]"), (next - at) as u64 * 1000);
        }
        sums
    }

    pub(super) fn deltas(&self) -> Vec<i64> {
        let mut last = self.start;
        let delta = |(_, at): &(usize, i64)| at - std::mem::replace(&mut last, *at);
        self.samples.iter().map(delta).collect()
    }

    pub(super) fn ids(&self) -> Vec<usize> {
        self.samples.iter().map(|(node, _)| node + 2).collect()
    }

    /// Nodes of the inspector protocol; (root) calls the tree.
    pub(super) fn nodes(&self, by_parent: bool) -> Vec<Value> {
        let root =
            json!({"id": 1, "callFrame": {"functionName": "(root)", "scriptId": "0", "url": ""}});
        let mut nodes = vec![root];
        for (i, name) in self.tree.names.iter().enumerate() {
            nodes.push(json!({"id": i + 2, "hitCount": 0, "callFrame":
                {"functionName": name, "scriptId": 7, "url": "file:///a.js", "lineNumber": i}}));
        }
        for (i, parent) in self.tree.parents.iter().enumerate() {
            let caller = parent.map_or(0, |p| p + 1);
            if by_parent {
                nodes[i + 1]["parent"] = json!(caller + 1);
            } else {
                let children = nodes[caller].as_object_mut().unwrap();
                let list = children.entry("children").or_insert(json!([]));
                list.as_array_mut().unwrap().push(json!(i + 2));
            }
        }
        nodes
    }

    /// The nested tree of old files.
    fn head(&self) -> Value {
        fn node(p: &Profile, at: Option<usize>) -> Value {
            let children: Vec<Value> = (0..p.tree.len())
                .filter(|i| p.tree.parents[*i] == at)
                .filter(|i| at.is_some() || *i == 0)
                .map(|i| node(p, Some(i)))
                .collect();
            let name = at.map_or("(root)", |i| p.tree.names[i].as_str());
            json!({"functionName": name, "url": if at.is_some() {"file:///a.js"} else {""},
                "lineNumber": 3, "callUID": 9, "hitCount": 1, "scriptId": "1",
                "children": children, "id": at.map_or(1, |i| i + 2)})
        }
        node(self, None)
    }
}

#[test]
fn each_layout_of_a_cpu_profile_adds_up_to_its_window() {
    for seed in SEEDS {
        let p = Profile::random(&mut Random(seed));
        let (deltas, ids) = (p.deltas(), p.ids());
        let expected = p.expected(Some(p.end)).0;
        let times: Vec<i64> = p.samples.iter().map(|(_, at)| *at).collect();
        let first = times.iter().min().unwrap();
        let total: u64 = expected.values().sum();
        assert_eq!(total, (p.end - first) as u64 * 1000);
        for by_parent in [false, true] {
            let file = json!({"nodes": p.nodes(by_parent), "startTime": p.start, "endTime": p.end,
                "samples": ids, "timeDeltas": deltas});
            let text = serde_json::to_vec_pretty(&file).unwrap();
            let read = read_as(&gzip(&text), None).unwrap();
            assert_eq!(sums(&read), expected, "seed {seed}");
            assert!(read.warnings.is_empty(), "{:?}", read.warnings);
            let counted = read_as(&text, Some("samples")).unwrap();
            assert_eq!(sums(&counted).values().sum::<u64>(), p.samples.len() as u64);
        }
        for unit in [1e6, 1.0] {
            let file = json!({"typeId": "CPU", "title": "t", "head": p.head(), "samples": ids,
                "timestamps": times, "startTime": p.start as f64 / unit, "endTime": p.end as f64 / unit});
            let read = read_as(file.to_string().as_bytes(), None).unwrap();
            assert_eq!(sums(&read), expected, "seed {seed}, unit {unit}");
        }
    }
}

#[test]
fn lengths_that_are_not_in_the_file_are_said_and_not_made_up() {
    for seed in SEEDS {
        let p = Profile::random(&mut Random(seed));
        let mut file = json!({"nodes": p.nodes(false), "startTime": p.start,
            "samples": p.ids(), "timeDeltas": p.deltas()});
        let open = read_as(file.to_string().as_bytes(), None).unwrap();
        assert_eq!(sums(&open), p.expected(None).0);
        assert!(open.warnings.iter().any(|w| w.contains("nothing follows")));
        // Without any delta they are counts.
        file["timeDeltas"] = json!([]);
        let counts = read_as(file.to_string().as_bytes(), None).unwrap();
        assert_eq!(counts.recording.domain.unit, Unit::Count("samples".into()));
        assert_eq!(sums(&counts).values().sum::<u64>(), p.samples.len() as u64);
        // Of a short list the rest has no time.
        let known = p.samples.len() / 2;
        if known < 2 {
            continue;
        }
        file["timeDeltas"] = json!(&p.deltas()[..known]);
        file["endTime"] = json!(p.end + 1_000_000);
        let short = read_as(file.to_string().as_bytes(), None).unwrap();
        let mut half = p;
        half.samples.truncate(known);
        assert_eq!(sums(&short), half.expected(None).0);
        assert!(short.warnings.iter().any(|w| w.contains("have no time")));
    }
}

#[test]
fn deep_trees_heap_profiles_and_hit_counts_are_read() {
    let depth = 3000;
    let mut text = String::from(r#"{"head":"#);
    for i in 0..depth {
        text += &format!(
            r#"{{"functionName":"f{i}","url":"a.js","id":{i},"hitCount":{i},"children":["#
        );
    }
    text += &"]}".repeat(depth);
    text += "}";
    let deep = read_as(text.as_bytes(), None).unwrap();
    let total: u64 = (0..depth as u64).sum();
    assert_eq!(sums(&deep).values().sum::<u64>(), total);
    let heap = json!({"head": {"callFrame": {"functionName": "(root)", "url": ""}, "selfSize": 0, "id": 1,
        "children": [{"callFrame": {"functionName": "make", "url": "a.js", "lineNumber": 4}, "selfSize": 640,
            "id": 2, "children": []}]}, "samples": [{"size": 64, "nodeId": 2, "ordinal": 1}]});
    let heap = read_as(heap.to_string().as_bytes(), None).unwrap();
    assert_eq!(heap.recording.domain.unit, Unit::Bytes);
    assert_eq!(sums(&heap)["make_[j]"], 640);
}

#[test]
fn a_node_that_is_not_there_is_damage_and_idle_time_is_idle() {
    let file = |node: u32| {
        json!({"nodes": [{"id": 1, "callFrame": {"functionName": "(root)"}, "children": [2]},
            {"id": 2, "callFrame": {"functionName": "(idle)"}}],
            "startTime": 0, "endTime": 30, "samples": [node, 2], "timeDeltas": [0, 10]})
        .to_string()
    };
    let e = refusal(file(9).as_bytes()).to_string();
    assert!(e.contains("does not hold"), "{e}");
    let idle = read_as(file(2).as_bytes(), None).unwrap().recording;
    assert!(
        idle.samples
            .iter()
            .all(|s| s.idle && s.state == State::Blocked)
    );
    assert_eq!(idle.samples[0].ns, 30_000);
}

/// The case of a file with negative deltas: 1.000 s, the window's length.
#[test]
fn the_fixture_with_negative_deltas_is_one_second() {
    let read = crate::support::read(include_bytes!("../../fixtures/negative.cpuprofile"));
    let sums = sums(&read);
    assert_eq!(sums.values().sum::<u64>(), 1_000_000_000, "{sums:?}");
}
