//! Writes the tree of a Swift name as the language's own demangler does.

use super::super::budget::Budget;
use super::generics::parameter_name;
use super::tree::{Id, Kind, Tree};

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
        let more = roots[i + 1..].iter().any(|r| tree.kind(*r) != Kind::Suffix);
        if tree.kind(*root) == Kind::Forwarder && more {
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
            Kind::Text | Kind::Identifier | Kind::Module | Kind::Operator => self.push_text(id),
            Kind::Parameter | Kind::Attribute | Kind::Forwarder => self.push_text(id),
            Kind::LoweredAttribute => self.push_text(id),
            Kind::Type => self.print_child(id, 0),
            Kind::Modified | Kind::LoweredParameter | Kind::LoweredResult | Kind::BoxField => {
                self.text_and_children(id)
            }
            Kind::Phrase => self.phrase(id),
            Kind::Suffix => self.push(&format!(" with unmangled suffix {:?}", node.text)),
            Kind::Local => {
                self.print_child(id, 0)?;
                self.push(&format!(" #{}", node.number + 1))
            }
            Kind::Private => {
                self.push("(")?;
                self.list(&node.children, "")?;
                let space = if node.children.is_empty() { "" } else { " " };
                self.push(&format!("{space}in {})", node.text))
            }
            Kind::Related => {
                self.push(&format!("related decl '{}' for ", node.text))?;
                self.print_child(id, 0)
            }
            Kind::Specialization => {
                self.push_text(id)?;
                self.push(" <")?;
                self.list(&node.children, ", ")?;
                self.push("> of ")
            }
            Kind::Specialized => self.text_and_children(id),
            Kind::Conformance => {
                self.print_child(id, 0)?;
                self.push(" : ")?;
                self.print_child(id, 1)?;
                self.push(" in ")?;
                self.print_child(id, 2)
            }
            Kind::PathNames => self.list(&node.children, "."),
            Kind::OpaqueOf => {
                self.push("<<opaque return type of ")?;
                self.print_child(id, 0)?;
                self.push(">>")
            }
            Kind::Signature => self.signature(id),
            Kind::Requirement => {
                self.print_child(id, 0)?;
                self.push_text(id)?;
                self.print_child(id, 1)?;
                self.push(if node.text == ".shape == " {
                    ".shape"
                } else {
                    ""
                })
            }
            Kind::Layout => {
                self.print_child(id, 0)?;
                self.push(": ")?;
                self.push_text(id)
            }
            Kind::Lowered => self.lowered(id),
            kind if kind.is_context() || kind == Kind::BoundFunction => self.entity(id),
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
        let of_kind = |wanted: fn(Kind) -> bool| -> Vec<Id> {
            let nodes = tree.get(id).children.iter().copied();
            nodes.filter(|c| wanted(tree.kind(*c))).collect()
        };
        let counts = of_kind(|k| k == Kind::Count);
        let markers = of_kind(|k| matches!(k, Kind::PackMarker | Kind::ValueMarker));
        let rest = of_kind(|k| matches!(k, Kind::Requirement | Kind::Layout));
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
            Some((_, Kind::PackMarker)) => {
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
        let of = |wanted: Kind| {
            parts
                .iter()
                .copied()
                .filter(move |p| tree.kind(*p) == wanted)
        };
        for part in parts {
            if matches!(tree.kind(*part), Kind::LoweredAttribute | Kind::Signature) {
                self.print(*part)?;
                self.push(" ")?;
            }
        }
        let pattern = of(Kind::PatternSubstitutions).next();
        if let Some(pattern) = pattern {
            self.push("@substituted ")?;
            self.print_child(pattern, 0)?;
            self.push(" ")?;
        }
        self.push("(")?;
        let parameters: Vec<Id> = of(Kind::LoweredParameter).collect();
        self.list(&parameters, ", ")?;
        self.push(") -> ")?;
        if of(Kind::LoweredSending).next().is_some() {
            self.push("sending ")?;
        }
        self.push("(")?;
        let results: Vec<Id> = of(Kind::LoweredResult).collect();
        self.list(&results, ", ")?;
        self.push(")")?;
        let types = pattern.and_then(|p| self.child(p, 1));
        let invocation = of(Kind::InvocationSubstitutions).next();
        let invocation = invocation.and_then(|i| self.child(i, 0));
        for types in types.into_iter().chain(invocation) {
            self.push(" for <")?;
            self.list(&tree.get(types).children, "")?;
            self.push(">")?;
        }
        Some(())
    }
}
