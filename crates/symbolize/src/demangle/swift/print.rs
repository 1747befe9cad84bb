//! Writes the tree of a Swift name as the language's own demangler does.

use super::super::budget::Budget;
use super::generics::parameter_name;
use super::tree::{Id, NodeKind, Tree};

/// Maximum depth of the tree.
const MAX_DEPTH: u32 = 200;
/// Maximum generic parameters that are shown of one depth.
const MAX_PARAMETERS: usize = 128;

pub(super) struct Printer<'t> {
    pub(super) tree: &'t Tree,
    pub(super) out: String,
    budget: Budget,
}

/// Writes `roots` one after the other.
pub(super) fn print(tree: &Tree, roots: &[Id]) -> Option<String> {
    let mut printer = Printer {
        tree,
        out: String::new(),
        budget: Budget::new(MAX_DEPTH),
    };
    for (i, root) in roots.iter().enumerate() {
        printer.print(*root)?;
        let more = roots[i + 1..]
            .iter()
            .any(|r| tree.kind(*r) != NodeKind::Suffix);
        if tree.kind(*root) == NodeKind::Forwarder && more {
            printer.push(" for ")?;
        }
    }
    Some(printer.out)
}

impl Printer<'_> {
    pub(super) fn push(&mut self, text: &str) -> Option<()> {
        self.budget.spend(text.len())?;
        self.out.push_str(text);
        Some(())
    }

    fn push_text(&mut self, id: Id) -> Option<()> {
        let tree = self.tree;
        self.push(&tree.get(id).text)
    }

    pub(super) fn child(&self, id: Id, index: usize) -> Option<Id> {
        self.tree.child(id, index)
    }

    /// Writes `id`.
    pub(super) fn print(&mut self, id: Id) -> Option<()> {
        self.budget.enter()?;
        self.node(id)?;
        self.budget.leave();
        Some(())
    }

    pub(super) fn print_child(&mut self, id: Id, index: usize) -> Option<()> {
        let child = self.child(id, index)?;
        self.print(child)
    }

    /// Writes nodes with `separator` between them.
    pub(super) fn list(&mut self, nodes: &[Id], separator: &str) -> Option<()> {
        for (i, node) in nodes.iter().enumerate() {
            if i > 0 {
                self.push(separator)?;
            }
            self.print(*node)?;
        }
        Some(())
    }

    /// Writes text and then all children.
    fn text_and_children(&mut self, id: Id) -> Option<()> {
        self.push_text(id)?;
        let tree = self.tree;
        self.list(&tree.get(id).children, "")
    }

    fn node(&mut self, id: Id) -> Option<()> {
        let node = self.tree.get(id);
        match node.kind {
            NodeKind::Text | NodeKind::Identifier | NodeKind::Module | NodeKind::Operator => {
                self.push_text(id)
            }
            NodeKind::Parameter | NodeKind::Attribute | NodeKind::Forwarder => self.push_text(id),
            NodeKind::LoweredAttribute => self.push_text(id),
            NodeKind::Type => self.print_child(id, 0),
            NodeKind::Modified
            | NodeKind::LoweredParameter
            | NodeKind::LoweredResult
            | NodeKind::BoxField => self.text_and_children(id),
            NodeKind::Phrase => self.phrase(id),
            NodeKind::Suffix => self.push(&format!(" with unmangled suffix {:?}", node.text)),
            NodeKind::Local => {
                self.print_child(id, 0)?;
                self.push(&format!(" #{}", node.number + 1))
            }
            NodeKind::Private => {
                self.push("(")?;
                self.list(&node.children, "")?;
                let space = if node.children.is_empty() { "" } else { " " };
                self.push(&format!("{space}in {})", node.text))
            }
            NodeKind::Related => {
                self.push(&format!("related decl '{}' for ", node.text))?;
                self.print_child(id, 0)
            }
            NodeKind::Specialization => {
                self.push_text(id)?;
                self.push(" <")?;
                self.list(&node.children, ", ")?;
                self.push("> of ")
            }
            NodeKind::Specialized => self.text_and_children(id),
            NodeKind::Conformance => {
                self.print_child(id, 0)?;
                self.push(" : ")?;
                self.print_child(id, 1)?;
                self.push(" in ")?;
                self.print_child(id, 2)
            }
            NodeKind::PathNames => self.list(&node.children, "."),
            NodeKind::OpaqueOf => {
                self.push("<<opaque return type of ")?;
                self.print_child(id, 0)?;
                self.push(">>")
            }
            NodeKind::Signature => self.signature(id),
            NodeKind::Requirement => {
                self.print_child(id, 0)?;
                self.push_text(id)?;
                self.print_child(id, 1)?;
                self.push(if node.text == ".shape == " {
                    ".shape"
                } else {
                    ""
                })
            }
            NodeKind::Layout => {
                self.print_child(id, 0)?;
                self.push(": ")?;
                self.push_text(id)
            }
            NodeKind::Lowered => self.lowered(id),
            kind if kind.is_context() || kind == NodeKind::BoundFunction => self.entity(id),
            _ => self.type_node(id),
        }
    }

    /// Text with `{0}` to `{9}` for children.
    fn phrase(&mut self, id: Id) -> Option<()> {
        let tree = self.tree;
        let mut rest = &*tree.get(id).text;
        while let Some(open) = rest.find('{') {
            let place = rest
                .as_bytes()
                .get(open + 1)
                .filter(|b| b.is_ascii_digit())?;
            self.push(&rest[..open])?;
            self.print_child(id, usize::from(place - b'0'))?;
            rest = rest.get(open + 3..)?;
        }
        self.push(rest)
    }

    fn signature(&mut self, id: Id) -> Option<()> {
        let tree = self.tree;
        let of_kind = |wanted: fn(NodeKind) -> bool| -> Vec<Id> {
            let nodes = tree.get(id).children.iter().copied();
            nodes.filter(|c| wanted(tree.kind(*c))).collect()
        };
        let counts = of_kind(|k| k == NodeKind::Count);
        let markers = of_kind(|k| matches!(k, NodeKind::PackMarker | NodeKind::ValueMarker));
        let rest = of_kind(|k| matches!(k, NodeKind::Requirement | NodeKind::Layout));
        self.push("<")?;
        for (depth, count) in counts.iter().enumerate() {
            if depth > 0 {
                self.push("><")?;
            }
            for index in 0..tree.get(*count).number {
                if index > 0 {
                    self.push(", ")?;
                }
                if index >= MAX_PARAMETERS {
                    self.push("...")?;
                    break;
                }
                self.parameter(&parameter_name(depth, index), &markers)?;
            }
        }
        if !rest.is_empty() {
            self.push(" where ")?;
            self.list(&rest, ", ")?;
        }
        self.push(">")
    }

    /// A generic parameter, which may be a pack or a value.
    fn parameter(&mut self, name: &str, markers: &[Id]) -> Option<()> {
        let tree = self.tree;
        self.budget.spend(markers.len())?;
        let marker = markers.iter().copied().find(|m| {
            let parameter = tree.first(*m).map(|p| tree.unwrap_type(p));
            parameter.is_some_and(|p| tree.get(p).text == name)
        });
        match marker.map(|m| (m, tree.kind(m))) {
            Some((_, NodeKind::PackMarker)) => {
                self.push("each ")?;
                self.push(name)
            }
            Some((marker, _)) => {
                self.push("let ")?;
                self.push(name)?;
                self.push(": ")?;
                self.print_child(marker, 1)
            }
            None => self.push(name),
        }
    }

    /// A lowered function type: attributes, parameters, results.
    fn lowered(&mut self, id: Id) -> Option<()> {
        let tree = self.tree;
        let parts = &tree.get(id).children;
        let of = |wanted: NodeKind| {
            parts
                .iter()
                .copied()
                .filter(move |p| tree.kind(*p) == wanted)
        };
        for part in parts {
            if matches!(
                tree.kind(*part),
                NodeKind::LoweredAttribute | NodeKind::Signature
            ) {
                self.print(*part)?;
                self.push(" ")?;
            }
        }
        let pattern = of(NodeKind::PatternSubstitutions).next();
        if let Some(pattern) = pattern {
            self.push("@substituted ")?;
            self.print_child(pattern, 0)?;
            self.push(" ")?;
        }
        self.push("(")?;
        let parameters: Vec<Id> = of(NodeKind::LoweredParameter).collect();
        self.list(&parameters, ", ")?;
        self.push(") -> ")?;
        if of(NodeKind::LoweredSending).next().is_some() {
            self.push("sending ")?;
        }
        self.push("(")?;
        let results: Vec<Id> = of(NodeKind::LoweredResult).collect();
        self.list(&results, ", ")?;
        self.push(")")?;
        let types = pattern.and_then(|p| self.child(p, 1));
        let invocation = of(NodeKind::InvocationSubstitutions).next();
        let invocation = invocation.and_then(|i| self.child(i, 0));
        for types in types.into_iter().chain(invocation) {
            self.push(" for <")?;
            self.list(&tree.get(types).children, "")?;
            self.push(">")?;
        }
        Some(())
    }
}
