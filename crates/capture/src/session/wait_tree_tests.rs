//! Tests of the tree of a wait's parts.

use super::*;

const AT: Follow = Follow {
    root: 0,
    above: None,
    from: 0,
    to: 100,
    ns: 100,
    count: 1,
};

fn on_cpu(actor: u64, kernel: u64) -> Part {
    Part {
        kernel,
        ..Part::of(Role::OnCpu, &ActorKey::Record(actor))
    }
}

#[test]
fn equal_parts_of_one_parent_are_one() {
    let mut tree = WaitTree::default();
    let first = tree.add(&AT, on_cpu(1, 0), 10, 1);
    assert_eq!(tree.add(&AT, on_cpu(1, 0), 5, 2), first);
    let below = Follow { above: first, ..AT };
    assert_eq!(tree.add(&below, on_cpu(1, 0), 3, 0), Some(1));
    assert_eq!(
        tree.add(&Follow { root: 1, ..AT }, on_cpu(1, 0), 2, 0),
        Some(2)
    );
    let nodes = tree.take();
    let parts: Vec<_> = nodes
        .iter()
        .map(|n| (n.root, n.parent, n.ns, n.count))
        .collect();
    let expected = [(0, None, 15, 3), (0, Some(0), 3, 0), (1, None, 2, 0)];
    assert_eq!(parts, expected);
    assert!(tree.take().is_empty());
}

#[test]
fn computing_is_divided_by_the_stacks_that_were_sampled() {
    let mut tree = WaitTree::default();
    tree.add(&AT, on_cpu(1, 0), 100, 1);
    for (kernel, hits) in [(5, 1), (6, 2), (7, 3)] {
        let id = tree.add(&AT, on_cpu(1, kernel), 0, 0).expect("room");
        tree.hit(id, hits);
        tree.hit(id, 0);
    }
    // Another thread's, and another sample's, are divided on their own.
    tree.add(&AT, on_cpu(2, 0), 40, 1);
    let id = tree.add(&AT, on_cpu(2, 5), 0, 0).expect("room");
    tree.hit(id, 1);
    let other = Follow { root: 1, ..AT };
    tree.add(&other, on_cpu(1, 0), 70, 1);
    // Stacks without a whole that they belong to stay as they are.
    let id = tree.add(&other, on_cpu(3, 5), 9, 0).expect("room");
    tree.hit(id, 1);
    tree.place_computing();
    let ns: Vec<u64> = tree.nodes.iter().map(|n| n.ns).collect();
    // 100 ns by 1 : 2 : 3, without a rest.
    assert_eq!(ns, [0, 16, 34, 50, 0, 40, 70, 9]);
    // Samples count once.
    tree.place_computing();
    assert_eq!(tree.nodes.iter().map(|n| n.ns).collect::<Vec<_>>(), ns);
}

#[test]
fn parts_beyond_the_bound_stay_with_their_parent_and_are_counted() {
    let mut tree = WaitTree::default();
    for actor in 0..MAX_NODES as u64 {
        assert!(tree.add(&AT, on_cpu(actor, 0), 1, 0).is_some());
    }
    assert_eq!(
        (tree.add(&AT, on_cpu(u64::MAX, 0), 1, 0), tree.crowded),
        (None, 1)
    );
    // A part that is known has room.
    assert_eq!(
        (tree.add(&AT, on_cpu(7, 0), 1, 0), tree.crowded),
        (Some(7), 1)
    );
}

#[test]
fn parts_of_ended_threads_that_become_one_are_added_up() {
    let mut tree = WaitTree::default();
    for (actor, ns, hits) in [(1, 10, 2), (2, 20, 3)] {
        let id = tree.add(&AT, on_cpu(actor, 5), ns, 1).expect("room");
        tree.hit(id, hits);
    }
    let moves = Moves {
        records: [(1, 9), (2, 9)].into_iter().collect(),
        ..Moves::default()
    };
    tree.fold(&[0], &moves);
    let nodes = tree.take();
    let sums: Vec<_> = nodes.iter().map(|n| (n.ns, n.count, n.hits)).collect();
    assert_eq!(sums, [(30, 2, 5)]);
}
