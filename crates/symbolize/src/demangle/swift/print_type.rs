//! Writes types.

use super::print::Printer;
use super::tree::{Id, NodeKind};

impl Printer<'_> {
    pub(super) fn type_node(&mut self, id: Id) -> Option<()> {
        let node = self.tree.get(id);
        match node.kind {
            NodeKind::Tuple => {
                self.push("(")?;
                self.list(&node.children, ", ")?;
                self.push(")")
            }
            NodeKind::Element => {
                if !node.text.is_empty() {
                    self.push(&node.text)?;
                    self.push(": ")?;
                }
                self.print_child(id, 0)?;
                self.push(if node.number == 1 { "..." } else { "" })
            }
            NodeKind::FunctionType => self.function_type(id, None),
            NodeKind::Member => {
                self.print_child(id, 0)?;
                self.push(".")?;
                self.print_child(id, 1)
            }
            NodeKind::AssociatedName => {
                if !node.children.is_empty() {
                    self.print_child(id, 0)?;
                    self.push(".")?;
                }
                self.push(&node.text)
            }
            NodeKind::BoundGeneric => self.bound_generic(id),
            NodeKind::Metatype | NodeKind::ExistentialMetatype => {
                self.push(&node.text)?;
                let inner = self.child(id, 0)?;
                if node.kind == NodeKind::ExistentialMetatype {
                    self.print(inner)?;
                    return self.push(".Type");
                }
                self.in_parentheses(inner)?;
                let existential = self.is_existential(inner);
                self.push(if existential { ".Protocol" } else { ".Type" })
            }
            NodeKind::ProtocolList if node.children.is_empty() => self.push("Any"),
            NodeKind::ProtocolList => self.list(&node.children, " & "),
            NodeKind::ProtocolListWithClass => {
                self.print_child(id, 1)?;
                self.push(" & ")?;
                let list = self.child(id, 0)?;
                self.list(&self.tree.get(list).children, " & ")
            }
            NodeKind::ProtocolListWithObject => {
                let list = self.child(id, 0)?;
                if !self.tree.get(list).children.is_empty() {
                    self.print(list)?;
                    self.push(" & ")?;
                }
                self.push("Swift.AnyObject")
            }
            NodeKind::ConstrainedExistential => {
                self.push("any ")?;
                self.print_child(id, 0)?;
                self.push("<")?;
                self.list(&node.children[1..], ", ")?;
                self.push(">")
            }
            NodeKind::GenericType => {
                self.print_child(id, 0)?;
                let inner = self.child(id, 1)?;
                if self.needs_space(inner) {
                    self.push(" ")?;
                }
                self.print(inner)
            }
            NodeKind::OpaqueType => {
                self.print_child(id, 0)?;
                self.push(&format!(".{}", node.number))
            }
            NodeKind::Pack => {
                self.push(&node.text)?;
                self.list(&node.children, ", ")?;
                self.push("}")
            }
            NodeKind::FixedArray => {
                self.push("Builtin.FixedArray<")?;
                self.list(&node.children, ", ")?;
                self.push(">")
            }
            NodeKind::Box => self.box_type(id),
            // Marks and other parts that no operator consumed.
            _ => None,
        }
    }

    fn box_type(&mut self, id: Id) -> Option<()> {
        let tree = self.tree;
        if let Some(signature) = self.child(id, 1) {
            self.print(signature)?;
            self.push(" ")?;
        }
        let fields = self.child(id, 0)?;
        self.push("{ ")?;
        self.list(&tree.get(fields).children, ", ")?;
        self.push(" }")?;
        if let Some(arguments) = self.child(id, 2) {
            self.push(" <")?;
            self.list(&tree.get(arguments).children, ", ")?;
            self.push(">")?;
        }
        Some(())
    }

    /// A function type. `labels` are those of its parameters.
    pub(super) fn function_type(&mut self, id: Id, labels: Option<Id>) -> Option<()> {
        let tree = self.tree;
        let node = tree.get(id);
        let (result, rest) = node.children.split_last()?;
        let (parameters, annotations) = rest.split_last()?;
        let of = |kind: NodeKind| annotations.iter().copied().find(|a| tree.kind(*a) == kind);
        self.push(&node.text)?;
        let isolation = of(NodeKind::Isolation);
        let outside = isolation.filter(|i| tree.get(*i).text.starts_with('@'));
        if let Some(isolation) = outside {
            self.isolation(isolation)?;
        }
        if let Some(differentiable) = of(NodeKind::Differentiable) {
            self.push(&tree.get(differentiable).text)?;
        }
        if let Some(isolation) = isolation.filter(|_| outside.is_none()) {
            self.isolation(isolation)?;
        }
        if of(NodeKind::Sendable).is_some() {
            self.push("@Sendable ")?;
        }
        self.parameters(*parameters, labels)?;
        if of(NodeKind::Async).is_some() {
            self.push(" async")?;
        }
        if let Some(throws) = of(NodeKind::Throws) {
            self.push(&tree.get(throws).text)?;
            if let Some(error) = self.child(throws, 0) {
                self.print(error)?;
                self.push(")")?;
            }
        }
        self.push(" -> ")?;
        if of(NodeKind::SendingResult).is_some() {
            self.push("sending ")?;
        }
        self.print(*result)
    }

    fn isolation(&mut self, id: Id) -> Option<()> {
        let tree = self.tree;
        self.push(&tree.get(id).text)?;
        if let Some(actor) = self.child(id, 0) {
            self.print(actor)?;
            self.push(" ")?;
        }
        Some(())
    }

    fn parameters(&mut self, id: Id, labels: Option<Id>) -> Option<()> {
        let tree = self.tree;
        let inner = tree.unwrap_type(id);
        self.push("(")?;
        if tree.kind(inner) == NodeKind::Tuple {
            let labels = labels.map_or(&[][..], |l| &tree.get(l).children);
            for (i, element) in tree.get(inner).children.iter().enumerate() {
                if i > 0 {
                    self.push(", ")?;
                }
                if let Some(label) = labels.get(i) {
                    let label = tree.get(*label);
                    let is_named = label.kind == NodeKind::Identifier;
                    self.push(if is_named { &label.text } else { "_" })?;
                    self.push(": ")?;
                }
                self.print(*element)?;
            }
        } else {
            self.print(inner)?;
        }
        self.push(")")
    }

    /// A type with arguments; the usual ones are written as in source.
    fn bound_generic(&mut self, id: Id) -> Option<()> {
        let tree = self.tree;
        let (first, arguments) = tree.get(id).children.split_first()?;
        let nominal = tree.unwrap_type(*first);
        match arguments {
            // A type seen as a protocol that it conforms to.
            _ if tree.kind(nominal) == NodeKind::Protocol => {
                self.list(arguments, ", ")?;
                self.push(" as ")?;
                self.print(nominal)
            }
            [wrapped] if tree.is_swift(nominal, "Optional") => {
                self.in_parentheses(*wrapped)?;
                self.push("?")
            }
            [element] if tree.is_swift(nominal, "Array") => {
                self.push("[")?;
                self.print(*element)?;
                self.push("]")
            }
            [key, value] if tree.is_swift(nominal, "Dictionary") => {
                self.push("[")?;
                self.print(*key)?;
                self.push(" : ")?;
                self.print(*value)?;
                self.push("]")
            }
            _ => {
                self.print(nominal)?;
                self.push("<")?;
                self.list(arguments, ", ")?;
                self.push(">")
            }
        }
    }

    /// A type, in parentheses if a suffix would else bind to its last part.
    fn in_parentheses(&mut self, id: Id) -> Option<()> {
        if self.is_simple(id) {
            return self.print(id);
        }
        self.push("(")?;
        self.print(id)?;
        self.push(")")
    }

    fn is_simple(&self, id: Id) -> bool {
        let inner = self.tree.unwrap_type(id);
        let node = self.tree.get(inner);
        match node.kind {
            NodeKind::ProtocolList => node.children.len() <= 1,
            NodeKind::ProtocolListWithObject => {
                let list = node.children[0];
                self.tree.get(list).children.is_empty()
            }
            NodeKind::Text => node.text != "some",
            NodeKind::Tuple
            | NodeKind::FixedArray
            | NodeKind::Parameter
            | NodeKind::Member
            | NodeKind::BoundGeneric
            | NodeKind::Metatype
            | NodeKind::ExistentialMetatype
            | NodeKind::GenericType
            | NodeKind::Pack
            | NodeKind::Box => true,
            kind => kind.is_nominal(),
        }
    }

    fn is_existential(&self, id: Id) -> bool {
        let inner = self.tree.unwrap_type(id);
        matches!(
            self.tree.kind(inner),
            NodeKind::ExistentialMetatype
                | NodeKind::ProtocolList
                | NodeKind::ProtocolListWithClass
                | NodeKind::ProtocolListWithObject
        )
    }

    /// Whether a space separates a type from the name or signature before it.
    pub(super) fn needs_space(&self, id: Id) -> bool {
        let inner = self.tree.unwrap_type(id);
        let node = self.tree.get(inner);
        let is_function = node.kind == NodeKind::FunctionType && node.text.is_empty();
        !is_function && node.kind != NodeKind::GenericType
    }
}
