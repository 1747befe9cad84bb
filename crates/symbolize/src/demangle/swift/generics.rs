//! Generic signatures, arguments and conformances of Swift names.

use super::parser::Parser;
use super::tree::{Id, Node, NodeKind};

impl Parser<'_> {
    /// A type applied to arguments, which are listed for each level of nesting, innermost first.
    pub(super) fn bound_generic_type(&mut self) -> Option<Id> {
        let arguments = self.generic_arguments()?;
        let nominal = self.pop_nominal()?;
        let bound = self.apply(nominal, &arguments)?;
        let ty = self.make(NodeKind::Type, "", vec![bound]);
        self.substitutable(ty)
    }

    /// Pops lists of generic arguments, innermost first. Retroactive conformances are not shown.
    pub(super) fn generic_arguments(&mut self) -> Option<Vec<Vec<Id>>> {
        while self.pop_if(|k| k == NodeKind::Retroactive).is_some() {}
        let mut lists = Vec::new();
        loop {
            let mut types = Vec::new();
            while let Some(ty) = self.pop(NodeKind::Type) {
                types.push(ty);
            }
            types.reverse();
            lists.push(types);
            if self.pop_mark(NodeKind::EmptyList) {
                return Some(lists);
            }
            self.pop(NodeKind::FirstElement)?;
        }
    }

    /// Applies the lists to `entity` and the declarations around it.
    fn apply(&mut self, entity: Id, lists: &[Vec<Id>]) -> Option<Id> {
        // From the innermost declaration outwards; the last one keeps its context.
        let mut chain = vec![entity];
        let mut left = lists.len() - usize::from(takes_arguments(self.tree.get(entity)));
        while left > 0 {
            let inner = *chain.last()?;
            let context = match self.tree.kind(inner) {
                NodeKind::Extension => self.tree.child(inner, 1)?,
                _ => self.tree.first(inner)?,
            };
            if self.tree.kind(context) == NodeKind::Module {
                return None;
            }
            left -= usize::from(takes_arguments(self.tree.get(context)));
            chain.push(context);
        }
        let mut lists = lists.iter().rev();
        let mut outer: Option<Id> = None;
        for entity in chain.into_iter().rev() {
            let mut node: Node = self.tree.get(entity).clone();
            let kind = node.kind;
            let takes_arguments = takes_arguments(&node);
            if let Some(outer) = outer {
                let place = usize::from(kind == NodeKind::Extension);
                *node.children.get_mut(place)? = outer;
            }
            let mut rebuilt = self.make_numbered(kind, node.text, node.number, node.children)?;
            if takes_arguments {
                let arguments = lists.next()?;
                if !arguments.is_empty() {
                    let ty = self.make(NodeKind::Type, "", vec![rebuilt])?;
                    let children = [ty].into_iter().chain(arguments.iter().copied()).collect();
                    let bound = match kind {
                        NodeKind::Function | NodeKind::Initializer => NodeKind::BoundFunction,
                        kind if kind.is_nominal() => NodeKind::BoundGeneric,
                        _ => return None,
                    };
                    rebuilt = self.make(bound, "", children)?;
                }
            }
            outer = Some(rebuilt);
        }
        outer
    }

    pub(super) fn parameter_named(&mut self, depth: usize, index: usize) -> Option<Id> {
        self.make_numbered(
            NodeKind::Parameter,
            parameter_name(depth, index),
            1,
            Vec::new(),
        )
    }

    pub(super) fn generic_parameter(&mut self) -> Option<Id> {
        if self.take(b'd') {
            let depth = self.index()? + 1;
            let index = self.index()?;
            return self.parameter_named(depth, index);
        }
        if self.take(b'z') {
            return self.parameter_named(0, 0);
        }
        if self.take(b's') {
            return self.make(NodeKind::Parameter, "Self", Vec::new());
        }
        let index = self.index()?;
        self.parameter_named(0, index + 1)
    }

    fn parameter_type(&mut self) -> Option<Id> {
        let parameter = self.generic_parameter()?;
        self.make(NodeKind::Type, "", vec![parameter])
    }

    pub(super) fn parameter_counts(&mut self) -> Option<Vec<usize>> {
        let mut counts = Vec::new();
        while !self.take(b'l') {
            counts.push(match self.take(b'z') {
                true => 0,
                false => self.index()? + 1,
            });
        }
        Some(counts)
    }

    pub(super) fn signature(&mut self, counts: Vec<usize>) -> Option<Id> {
        let mut children = Vec::new();
        for count in counts {
            children.push(self.make_numbered(NodeKind::Count, "", count, Vec::new())?);
        }
        let first = children.len();
        while let Some(requirement) = self.pop_if(NodeKind::is_requirement) {
            children.push(requirement);
        }
        children[first..].reverse();
        self.make(NodeKind::Signature, "", children)
    }

    pub(super) fn requirement(&mut self) -> Option<Id> {
        let letter = self.next()?;
        let inverse = match letter {
            b'i' | b'I' => Some(self.index()?),
            _ => None,
        };
        let subject = match letter {
            b'c' | b't' | b'm' | b'p' => {
                let base = self.parameter_type()?;
                let member = self.member(Some(base));
                self.substitutable(member)?
            }
            b'C' | b'T' | b'M' | b'P' => {
                let base = self.parameter_type()?;
                let member = self.member_path(Some(base));
                self.substitutable(member)?
            }
            b'B' | b'S' | b'L' | b'Q' | b'I' => self.pop(NodeKind::Type)?,
            b'V' | b'v' | b'b' | b's' | b'l' | b'h' | b'i' => self.parameter_type()?,
            _ => {
                self.at -= 1;
                self.parameter_type()?
            }
        };
        match letter {
            b'V' => {
                let ty = self.pop(NodeKind::Type)?;
                self.make(NodeKind::ValueMarker, "", vec![subject, ty])
            }
            b'v' => self.make(NodeKind::PackMarker, "", vec![subject]),
            b'i' | b'I' => {
                let name = match inverse? {
                    0 => "Swift.Copyable".to_owned(),
                    1 => "Swift.Escapable".to_owned(),
                    bit => format!("Swift.<bit {bit}>"),
                };
                self.make(NodeKind::Layout, format!("~{name}"), vec![subject])
            }
            b'c' | b'C' | b'b' | b'B' => {
                let class = self.pop(NodeKind::Type)?;
                self.make(NodeKind::Requirement, ": ", vec![subject, class])
            }
            b't' | b'T' | b's' | b'S' => {
                let other = self.pop(NodeKind::Type)?;
                self.make(NodeKind::Requirement, " == ", vec![subject, other])
            }
            b'h' => {
                let other = self.pop(NodeKind::Type)?;
                self.make(NodeKind::Requirement, ".shape == ", vec![subject, other])
            }
            b'm' | b'M' | b'l' | b'L' => {
                let layout = self.layout()?;
                self.make(NodeKind::Layout, layout, vec![subject])
            }
            _ => {
                let protocol = self.pop_protocol()?;
                self.make(NodeKind::Requirement, ": ", vec![subject, protocol])
            }
        }
    }

    fn layout(&mut self) -> Option<String> {
        Some(match self.next()? {
            b'U' => "_UnknownLayout".to_owned(),
            b'R' => "_RefCountedObject".to_owned(),
            b'N' => "_NativeRefCountedObject".to_owned(),
            b'C' => "AnyObject".to_owned(),
            b'D' => "_NativeClass".to_owned(),
            b'T' => "_Trivial".to_owned(),
            b'B' => "_BridgeObject".to_owned(),
            b'E' => format!("_Trivial({}, {})", self.index()?, self.index()?),
            b'e' => format!("_Trivial({})", self.index()?),
            b'M' => format!("_TrivialAtMost({}, {})", self.index()?, self.index()?),
            b'm' => format!("_TrivialAtMost({})", self.index()?),
            b'S' => format!("_TrivialStride({})", self.index()?),
            _ => return None,
        })
    }

    /// Pops the name of an associated type, with its protocol if that is given.
    pub(super) fn associated_name(&mut self) -> Option<Id> {
        let protocol = self.pop(NodeKind::Type);
        if protocol.is_some_and(|p| !self.is_protocol(p)) {
            return None;
        }
        let name = self.pop(NodeKind::Identifier)?;
        let text = self.tree.get(name).text.clone();
        self.make(NodeKind::AssociatedName, text, Vec::from_iter(protocol))
    }

    /// A member of `base`, or of the type before it.
    fn member(&mut self, base: Option<Id>) -> Option<Id> {
        let name = self.associated_name()?;
        let base = match base {
            Some(base) => base,
            None => self.pop(NodeKind::Type)?,
        };
        self.make_type(NodeKind::Member, "", vec![base, name])
    }

    /// Pops names of associated types up to a mark, the outermost last.
    pub(super) fn associated_path(&mut self) -> Option<Vec<Id>> {
        let mut names = Vec::new();
        loop {
            let first = self.pop_mark(NodeKind::FirstElement);
            names.push(self.associated_name()?);
            if first {
                return Some(names);
            }
        }
    }

    fn member_path(&mut self, base: Option<Id>) -> Option<Id> {
        let names = self.associated_path()?;
        let mut base = match base {
            Some(base) => base,
            None => self.pop(NodeKind::Type)?,
        };
        for name in names.into_iter().rev() {
            base = self.make_type(NodeKind::Member, "", vec![base, name])?;
        }
        Some(base)
    }

    /// `Q` and a letter: associated, opaque and pack types.
    pub(super) fn associated_type(&mut self) -> Option<Id> {
        let ty = match self.next()? {
            b'a' => {
                let name = self.pop(NodeKind::Identifier)?;
                let base = self.pop_type_child()?;
                self.make_type(NodeKind::Member, "", vec![base, name])
            }
            b'O' => {
                let context = self.pop_context()?;
                return self.make(NodeKind::OpaqueOf, "", vec![context]);
            }
            b'o' => return self.opaque_type(),
            b'r' => return self.make_type(NodeKind::Text, "some", Vec::new()),
            b'R' => {
                self.index()?;
                return self.make_type(NodeKind::Text, "some", Vec::new());
            }
            b'x' => self.member(None),
            b'X' => self.member_path(None),
            b'y' => {
                let base = self.parameter_type()?;
                self.member(Some(base))
            }
            b'Y' => {
                let base = self.parameter_type()?;
                self.member_path(Some(base))
            }
            letter @ (b'z' | b'Z') => {
                let parameter = self.parameter_named(0, 0)?;
                let base = self.make(NodeKind::Type, "", vec![parameter])?;
                match letter {
                    b'z' => self.member(Some(base)),
                    _ => self.member_path(Some(base)),
                }
            }
            b'p' => {
                self.pop_type_child()?;
                let pattern = self.pop_type_child()?;
                return self.make_type(NodeKind::Modified, "repeat ", vec![pattern]);
            }
            b'e' => {
                self.index()?;
                let pack = self.pop_type_child()?;
                return self.make_type(NodeKind::Modified, "each ", vec![pack]);
            }
            b'P' => {
                let types = self.type_list()?;
                return self.make_type(NodeKind::Pack, "Pack{", types);
            }
            b'S' => {
                let text = match self.next()? {
                    b'd' => "@direct Pack{",
                    b'i' => "@indirect Pack{",
                    _ => return None,
                };
                let types = self.type_list()?;
                return self.make_type(NodeKind::Pack, text, types);
            }
            _ => None,
        };
        self.substitutable(ty)
    }

    fn opaque_type(&mut self) -> Option<Id> {
        let index = self.index()?;
        // The arguments are not shown.
        self.generic_arguments()?;
        let declaration = self.pop(NodeKind::OpaqueOf)?;
        let opaque = self.make_numbered(NodeKind::OpaqueType, "", index, vec![declaration])?;
        let ty = self.make(NodeKind::Type, "", vec![opaque]);
        self.substitutable(ty)
    }

    pub(super) fn constrained_existential(&mut self) -> Option<Id> {
        let mut children = Vec::new();
        loop {
            let first = self.pop_mark(NodeKind::FirstElement);
            children.push(self.pop_if(NodeKind::is_requirement)?);
            if first {
                break;
            }
        }
        children.push(self.pop(NodeKind::Type)?);
        children.reverse();
        self.make_type(NodeKind::ConstrainedExistential, "", children)
    }

    /// Pops the conformance of a type to a protocol, declared in a module.
    pub(super) fn pop_conformance(&mut self) -> Option<Id> {
        let signature = self.pop(NodeKind::Signature);
        let module = self.pop_module()?;
        let protocol = self.pop_protocol()?;
        let mut ty = self.pop(NodeKind::Type)?;
        if let Some(signature) = signature {
            ty = self.make_type(NodeKind::GenericType, "", vec![signature, ty])?;
        }
        self.make(NodeKind::Conformance, "", vec![ty, protocol, module])
    }

    /// `H` and a letter: conformances of generic arguments, which are not shown, and records.
    pub(super) fn conformance_operator(&mut self) -> Option<Id> {
        match self.next()? {
            b'A' => {
                self.index()?;
                self.pop_protocol()?;
                self.pop(NodeKind::Type)?;
                self.pop(NodeKind::AnyConformance)?;
            }
            b'C' => {
                self.pop_conformances()?;
                if self.pop(NodeKind::ConformanceReference).is_none() {
                    self.pop_module()?;
                    self.pop_protocol()?;
                }
                self.pop(NodeKind::Type)?;
            }
            b'D' => {
                self.index()?;
                self.pop_protocol()?;
                self.pop(NodeKind::Type)?;
            }
            b'I' => {
                self.index()?;
                self.pop_protocol()?;
                self.pop(NodeKind::AnyConformance)?;
            }
            b'O' => {
                self.pop(NodeKind::Type)?;
                self.pop(NodeKind::AnyConformance)?;
            }
            b'P' | b'p' => {
                self.pop_protocol()?;
                return self.mark(NodeKind::ConformanceReference);
            }
            b'X' => self.pop_conformances()?,
            _ => {
                self.at -= 1;
                return self.operation(b'H');
            }
        }
        self.mark(NodeKind::AnyConformance)
    }

    fn pop_conformances(&mut self) -> Option<()> {
        if self.pop_mark(NodeKind::EmptyList) {
            return Some(());
        }
        loop {
            let first = self.pop_mark(NodeKind::FirstElement);
            self.pop(NodeKind::AnyConformance)?;
            if first {
                return Some(());
            }
        }
    }

    pub(super) fn retroactive_conformance(&mut self) -> Option<Id> {
        self.index()?;
        self.pop(NodeKind::AnyConformance)?;
        self.mark(NodeKind::Retroactive)
    }
}

/// Whether a declaration has a list of generic arguments, be it empty.
fn takes_arguments(node: &Node) -> bool {
    use NodeKind::*;
    match node.kind {
        Variable | Subscript | Closure | DefaultArgument | Static | Extension => false,
        // Initial values do not, deinitialisers do.
        Special => !node.text.contains(' '),
        _ => true,
    }
}

/// `A`, `B`, … and the depth if it is not 0: `A1`.
pub(super) fn parameter_name(depth: usize, index: usize) -> String {
    let mut name = String::new();
    let mut rest = index;
    loop {
        name.push(char::from(b'A' + (rest % 26) as u8));
        rest /= 26;
        if rest == 0 {
            break;
        }
    }
    if depth > 0 {
        name.push_str(&depth.to_string());
    }
    name
}
