//! V8's call tree: nodes with their callers → stacks.

use rustc_hash::FxHashMap;
use serde::Deserialize;
use wallscope_model::{FrameId, FrameKind};

use super::super::ReadError;
use super::super::import::{Called, Import};

/// The code of a node.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CallFrame {
    pub function_name: Option<String>,
    pub url: Option<String>,
    /// Line of the function, counted from 0; absent or negative if unknown.
    pub line_number: Option<i64>,
}

/// A node of the tree in the form of the inspector protocol: callers name their `children`, or
/// children their `parent`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Node {
    pub id: i64,
    #[serde(default)]
    pub call_frame: CallFrame,
    #[serde(default)]
    pub hit_count: u64,
    #[serde(default)]
    pub children: Vec<i64>,
    #[serde(default)]
    pub parent: Option<i64>,
}

/// The meaning of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Function,
    /// `(root)`, which calls all others and is no function.
    Root,
    /// `(idle)`: the thread waits for work.
    Idle,
}

/// A node's stack.
pub(crate) struct TreeStack {
    /// Leaf first.
    pub frames: Vec<FrameId>,
    pub idle: bool,
    /// Whether a caller, or the node itself, is not in the tree.
    pub broken: bool,
}

/// The nodes of a profile.
#[derive(Default)]
pub(crate) struct CallTree {
    nodes: FxHashMap<i64, (FrameId, Role)>,
    parents: FxHashMap<i64, i64>,
}

impl CallTree {
    /// Takes in a node.
    pub(crate) fn add(&mut self, node: &Node, to: &mut Import) -> Result<(), ReadError> {
        for child in &node.children {
            self.parents.insert(*child, node.id);
        }
        if let Some(parent) = node.parent {
            self.parents.insert(node.id, parent);
        }
        let f = &node.call_frame;
        let line = f.line_number.and_then(|l| u32::try_from(l + 1).ok());
        let url = f.url.as_deref().unwrap_or_default();
        self.function(
            node.id,
            f.function_name.as_deref(),
            (url, line.unwrap_or(0)),
            to,
        )
    }

    /// Takes in a node with its code at `url`, in a line that counts from 1; 0 where unknown.
    pub(super) fn function(
        &mut self,
        id: i64,
        name: Option<&str>,
        (url, line): (&str, u32),
        to: &mut Import,
    ) -> Result<(), ReadError> {
        let name = name.filter(|n| !n.is_empty()).unwrap_or("(anonymous)");
        let kind = if url.is_empty() {
            FrameKind::Native
        } else {
            FrameKind::Jit
        };
        let role = match name {
            "(root)" => Role::Root,
            "(idle)" => Role::Idle,
            _ => Role::Function,
        };
        let frame = to.named(
            kind,
            Called {
                name,
                file: url,
                line,
                ..Called::default()
            },
        )?;
        self.nodes.insert(id, (frame, role));
        Ok(())
    }

    /// Names the caller of a node.
    pub(super) fn call(&mut self, parent: i64, child: i64) {
        self.parents.insert(child, parent);
    }

    /// The stack of a node. It is not kept: the stacks of a deep tree have more frames than fit in memory.
    pub(crate) fn stack(&self, id: i64) -> Result<TreeStack, ReadError> {
        let mut frames = Vec::new();
        let mut at = Some(id);
        let mut broken = false;
        while let Some(n) = at {
            let Some((frame, role)) = self.nodes.get(&n) else {
                broken = true;
                break;
            };
            // No path is longer than there are nodes.
            if frames.len() > self.nodes.len() {
                return Err(ReadError::Damaged {
                    what: format!("node {id} is its own caller"),
                });
            }
            if *role != Role::Root || frames.is_empty() {
                frames.push(*frame);
            }
            at = self.parents.get(&n).copied();
        }
        Ok(TreeStack {
            frames,
            idle: matches!(self.nodes.get(&id), Some((_, Role::Idle))),
            broken,
        })
    }
}
