//! The calling-context tree: stacks that begin alike share their beginning.
//!
//! Nodes come out in depth-first order with siblings from heavy to light, so that a parent stands
//! before its children and a subtree is one run of nodes. Everything here is iterative: a stack may
//! be thousands of frames deep.

use rustc_hash::FxHashMap;

/// Grows a tree path by path.
pub(crate) struct Builder {
    parent: Vec<u32>,
    entry: Vec<u32>,
    weight: Vec<u64>,
    children: FxHashMap<u64, u32>,
    last_path: Vec<u32>,
    last_nodes: Vec<u32>,
}

/// The finished tree. Node 0 is the root, above all frames.
pub(crate) struct Trie {
    /// By node, how many levels it lies higher than a child of the node before it would.
    pub pops: Vec<u32>,
    /// By node, the number of its entry; 0 at the root.
    pub entry: Vec<u32>,
    /// From the builder's node numbers to this tree's.
    pub renumbered: Vec<u32>,
    /// From the builder's node numbers to the place in which nodes are *left* by a depth-first
    /// walk: a subtree is one run of these too, its top the last of them.
    pub left_at: Vec<u32>,
}

impl Builder {
    /// A tree of nothing but its root.
    pub fn new() -> Self {
        Builder {
            parent: vec![0],
            entry: vec![0],
            weight: vec![0],
            children: FxHashMap::default(),
            last_path: Vec::new(),
            last_nodes: Vec::new(),
        }
    }

    /// Adds `weight` to the stack `path` (entries, outermost first); gives the node of its leaf.
    pub fn add(&mut self, path: &[u32], weight: u64) -> u32 {
        let alike = path
            .iter()
            .zip(&self.last_path)
            .take_while(|(a, b)| a == b)
            .count();
        self.last_path.truncate(alike);
        self.last_nodes.truncate(alike);
        let mut node = self.last_nodes.last().copied().unwrap_or(0);
        for &entry in &path[alike..] {
            let key = u64::from(node) << 32 | u64::from(entry);
            let next = self.parent.len() as u32;
            let child = *self.children.entry(key).or_insert(next);
            if child == next {
                self.parent.push(node);
                self.entry.push(entry);
                self.weight.push(0);
            }
            node = child;
            self.last_path.push(entry);
            self.last_nodes.push(node);
        }
        self.weight[node as usize] += weight;
        node
    }

    /// Orders the nodes.
    pub fn finish(self) -> Trie {
        let Builder {
            parent,
            entry,
            mut weight,
            children,
            ..
        } = self;
        drop(children);
        let n = parent.len();
        // A child is always younger than its parent.
        for node in (1..n).rev() {
            weight[parent[node] as usize] += weight[node];
        }
        let mut first = vec![0u32; n + 1];
        for &p in &parent[1..] {
            first[p as usize + 1] += 1;
        }
        for i in 0..n {
            first[i + 1] += first[i];
        }
        let mut fill = first.clone();
        let mut child = vec![0u32; n - 1];
        for node in 1..n {
            let slot = &mut fill[parent[node] as usize];
            child[*slot as usize] = node as u32;
            *slot += 1;
        }
        for p in 0..n {
            child[first[p] as usize..first[p + 1] as usize]
                .sort_by_key(|&c| (std::cmp::Reverse(weight[c as usize]), entry[c as usize]));
        }

        let mut trie = Trie {
            pops: Vec::with_capacity(n),
            entry: Vec::with_capacity(n),
            renumbered: vec![0; n],
            left_at: vec![0; n],
        };
        trie.pops.push(0);
        trie.entry.push(0);
        let mut open: Vec<(u32, u32)> = vec![(0, first[0])];
        let mut left = 0;
        let mut pops = 0;
        while let Some((node, next)) = open.last_mut() {
            if *next < first[*node as usize + 1] {
                let c = child[*next as usize];
                *next += 1;
                trie.renumbered[c as usize] = trie.entry.len() as u32;
                trie.entry.push(entry[c as usize]);
                trie.pops.push(std::mem::take(&mut pops));
                open.push((c, first[c as usize]));
            } else {
                trie.left_at[*node as usize] = left;
                left += 1;
                pops += 1;
                open.pop();
            }
        }
        trie
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtrees_are_runs_and_heavy_comes_first() {
        let mut b = Builder::new();
        let light = b.add(&[1, 2], 10);
        let heavy = b.add(&[1, 3, 4], 30);
        let other = b.add(&[5], 100);
        let own = b.add(&[1], 5);
        let t = b.finish();
        // root, 5, 1, 3, 4, 2
        assert_eq!(t.entry, [0, 5, 1, 3, 4, 2]);
        assert_eq!(t.pops, [0, 0, 1, 0, 0, 2]);
        let at = |n: u32| t.renumbered[n as usize];
        assert_eq!((at(other), at(own), at(heavy), at(light)), (1, 2, 4, 5));
        let left = |n: u32| t.left_at[n as usize];
        assert_eq!(
            (left(other), left(heavy), left(light), left(own)),
            (0, 1, 3, 4)
        );
    }

    #[test]
    fn depth_does_not_matter() {
        let mut b = Builder::new();
        let path: Vec<u32> = (0..100_000).map(|i| i % 7).collect();
        let leaf = b.add(&path, 1);
        assert_eq!(b.add(&path, 1), leaf);
        let t = b.finish();
        assert_eq!(t.entry.len(), 100_001);
        assert!(t.pops.iter().all(|p| *p == 0));
    }
}
