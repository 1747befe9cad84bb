//! Types of Swift names.

use super::parser::{Dialect, Parser};
use super::tree::{Id, NodeKind};

/// Maximum bits or elements of a builtin type.
const MAX_BUILTIN: usize = 4096;

impl Parser<'_> {
    pub(super) fn builtin_type(&mut self) -> Option<Id> {
        let name = match self.next()? {
            b'A' => "Builtin.ImplicitActor".to_owned(),
            b'b' => "Builtin.BridgeObject".to_owned(),
            b'B' => "Builtin.UnsafeValueBuffer".to_owned(),
            b'c' => "Builtin.RawUnsafeContinuation".to_owned(),
            b'D' => "Builtin.DefaultActorStorage".to_owned(),
            b'd' => "Builtin.NonDefaultDistributedActorStorage".to_owned(),
            b'e' => "Builtin.Executor".to_owned(),
            b'I' => "Builtin.IntLiteral".to_owned(),
            b'j' => "Builtin.Job".to_owned(),
            b'O' => "Builtin.UnknownObject".to_owned(),
            b'o' => "Builtin.NativeObject".to_owned(),
            b'P' => "Builtin.PackIndex".to_owned(),
            b'p' => "Builtin.RawPointer".to_owned(),
            b't' => "Builtin.SILToken".to_owned(),
            b'w' => "Builtin.Word".to_owned(),
            b'f' => format!("Builtin.FPIEEE{}", self.builtin_size()?),
            b'i' => format!("Builtin.Int{}", self.builtin_size()?),
            b'v' => {
                let count = self.builtin_size()?;
                let element = self.pop_type_child()?;
                let name = self.tree.get(element).text.strip_prefix("Builtin.")?;
                format!("Builtin.Vec{count}x{name}")
            }
            b'V' => {
                let element = self.pop(NodeKind::Type)?;
                let size = self.pop(NodeKind::Type)?;
                return self.make_type(NodeKind::FixedArray, "", vec![size, element]);
            }
            _ => return None,
        };
        self.make_type(NodeKind::Text, name, Vec::new())
    }

    fn builtin_size(&mut self) -> Option<usize> {
        let size = self.index()?.checked_sub(1)?;
        (1..=MAX_BUILTIN).contains(&size).then_some(size)
    }

    /// `$`: an integer as a type.
    pub(super) fn integer_type(&mut self) -> Option<Id> {
        let negative = self.take(b'n');
        let value = self.index()?;
        let sign = if negative && value > 0 { "-" } else { "" };
        self.make_type(NodeKind::Text, format!("{sign}{value}"), Vec::new())
    }

    pub(super) fn modified_type(&mut self, modifier: &'static str) -> Option<Id> {
        let inner = self.pop_type_child()?;
        self.make_type(NodeKind::Modified, modifier, vec![inner])
    }

    pub(super) fn metatype(&mut self, kind: NodeKind, text: &'static str) -> Option<Id> {
        let inner = self.pop(NodeKind::Type)?;
        self.make_type(kind, text, vec![inner])
    }

    pub(super) fn tuple(&mut self) -> Option<Id> {
        let mut elements = Vec::new();
        if !self.pop_mark(NodeKind::EmptyList) {
            loop {
                let first = self.pop_mark(NodeKind::FirstElement);
                let variadic = usize::from(self.pop_mark(NodeKind::Variadic));
                let label = self.pop(NodeKind::Identifier);
                let label = label.map_or("".into(), |l| self.tree.get(l).text.clone());
                let inner = self.pop(NodeKind::Type)?;
                elements.push(self.make_numbered(
                    NodeKind::Element,
                    label,
                    variadic,
                    vec![inner],
                )?);
                if first {
                    break;
                }
            }
        }
        elements.reverse();
        self.make_type(NodeKind::Tuple, "", elements)
    }

    /// Pops types up to a mark, in their order.
    pub(super) fn type_list(&mut self) -> Option<Vec<Id>> {
        let mut types = Vec::new();
        if !self.pop_mark(NodeKind::EmptyList) {
            loop {
                let first = self.pop_mark(NodeKind::FirstElement);
                types.push(self.pop(NodeKind::Type)?);
                if first {
                    break;
                }
            }
        }
        types.reverse();
        Some(types)
    }

    pub(super) fn protocol_list(&mut self) -> Option<Id> {
        let mut protocols = Vec::new();
        if !self.pop_mark(NodeKind::EmptyList) {
            loop {
                let first = self.pop_mark(NodeKind::FirstElement);
                protocols.push(self.pop_protocol()?);
                if first {
                    break;
                }
            }
        }
        protocols.reverse();
        self.make(NodeKind::ProtocolList, "", protocols)
    }

    /// A function type with all its annotations, which were pushed after its parameters.
    pub(super) fn function_type(&mut self, convention: &'static str) -> Option<Id> {
        let mut children = Vec::new();
        for kind in [
            NodeKind::SendingResult,
            NodeKind::Isolation,
            NodeKind::Differentiable,
            NodeKind::Throws,
            NodeKind::Sendable,
            NodeKind::Async,
        ] {
            children.extend(self.pop(kind));
        }
        children.push(self.parameters()?);
        children.push(self.parameters()?);
        self.make_type(NodeKind::FunctionType, convention, children)
    }

    /// The type of parameters or of a result; an empty list is `()`.
    fn parameters(&mut self) -> Option<Id> {
        if self.pop_mark(NodeKind::EmptyList) {
            return self.make_type(NodeKind::Tuple, "", Vec::new());
        }
        self.pop(NodeKind::Type)
    }

    /// Pops the labels of a function's parameters, if it has some. `None` inside: there are none.
    pub(super) fn labels(&mut self, function: Option<Id>) -> Option<Option<Id>> {
        if self.dialect == Dialect::Stable && self.pop_mark(NodeKind::EmptyList) {
            return Some(Some(self.make(NodeKind::Labels, "", Vec::new())?));
        }
        let Some(parameters) = function.and_then(|f| self.parameters_of(f)) else {
            return Some(None);
        };
        let is_tuple = self.tree.kind(parameters) == NodeKind::Tuple;
        let elements = match is_tuple {
            true => self.tree.get(parameters).children.clone(),
            false => Vec::new(),
        };
        let count = if is_tuple { elements.len() } else { 1 };
        if count == 0 {
            return Some(None);
        }
        if self.dialect == Dialect::LabelsInTypes {
            return self.labels_of_elements(&elements);
        }
        let mut labels = Vec::new();
        for _ in 0..count {
            let is_label = |k| matches!(k, NodeKind::Identifier | NodeKind::FirstElement);
            labels.push(self.pop_if(is_label)?);
        }
        labels.reverse();
        self.labels_unless_empty(labels)
    }

    /// Moves the labels of Swift 4.0 from the tuple to the function.
    fn labels_of_elements(&mut self, elements: &[Id]) -> Option<Option<Id>> {
        let mut labels = Vec::new();
        for element in elements {
            let label = std::mem::take(&mut self.tree.get_mut(*element).text);
            labels.push(match label.is_empty() {
                true => self.mark(NodeKind::FirstElement)?,
                false => self.make(NodeKind::Identifier, label, Vec::new())?,
            });
        }
        self.labels_unless_empty(labels)
    }

    fn labels_unless_empty(&mut self, mut labels: Vec<Id>) -> Option<Option<Id>> {
        let named = labels
            .iter()
            .any(|l| self.tree.kind(*l) == NodeKind::Identifier);
        if !named {
            labels.clear();
        }
        Some(Some(self.make(NodeKind::Labels, "", labels)?))
    }

    /// The parameters of a function's type.
    fn parameters_of(&self, function: Id) -> Option<Id> {
        let mut inner = self.tree.unwrap_type(function);
        if self.tree.kind(inner) == NodeKind::GenericType {
            inner = self.tree.unwrap_type(self.tree.child(inner, 1)?);
        }
        let node = self.tree.get(inner);
        if node.kind != NodeKind::FunctionType || !node.text.is_empty() {
            return None;
        }
        let parameters = node.children[node.children.len() - 2];
        Some(self.tree.unwrap_type(parameters))
    }

    /// `X` and a letter.
    pub(super) fn special_type(&mut self) -> Option<Id> {
        match self.next()? {
            b'E' => self.function_type(""),
            b'A' | b'K' => self.function_type("@autoclosure "),
            b'f' => self.function_type("@convention(thin) "),
            b'L' => self.function_type("@escaping @convention(block) "),
            b'B' => self.function_type("@convention(block) "),
            b'C' => self.function_type("@convention(c) "),
            b'o' => self.modified_outer("unowned "),
            b'u' => self.modified_outer("unowned(unsafe) "),
            b'w' => self.modified_outer("weak "),
            b'b' => self.modified_outer("@box "),
            b'D' => {
                self.pop(NodeKind::Type)?;
                self.make_type(NodeKind::Text, "Self", Vec::new())
            }
            b'M' => {
                let representation = self.representation()?;
                self.metatype(NodeKind::Metatype, representation)
            }
            b'm' => {
                let representation = self.representation()?;
                self.metatype(NodeKind::ExistentialMetatype, representation)
            }
            b'p' => self.metatype(NodeKind::ExistentialMetatype, ""),
            b'c' => {
                let class = self.pop(NodeKind::Type)?;
                let list = self.protocol_list()?;
                self.make_type(NodeKind::ProtocolListWithClass, "", vec![list, class])
            }
            b'l' => {
                let list = self.protocol_list()?;
                self.make_type(NodeKind::ProtocolListWithObject, "", vec![list])
            }
            b'P' => self.constrained_existential(),
            b'x' => self.box_type(Vec::new()),
            b'X' => {
                let signature = self.pop(NodeKind::Signature)?;
                let arguments = self.type_list()?;
                let arguments = self.make(NodeKind::List, "", arguments)?;
                self.box_type(vec![signature, arguments])
            }
            b'Y' => self.nominal_type(NodeKind::OtherType),
            b'Z' => {
                let types = self.type_list()?;
                let types = self.make(NodeKind::List, "", types)?;
                let name = self.pop(NodeKind::Identifier)?;
                let parent = self.pop_context()?;
                self.make(NodeKind::Anonymous, "", vec![name, parent, types])
            }
            b'e' => self.make_type(NodeKind::Text, "<ERROR TYPE>", Vec::new()),
            _ => None,
        }
    }

    fn modified_outer(&mut self, modifier: &'static str) -> Option<Id> {
        let inner = self.pop(NodeKind::Type)?;
        self.make_type(NodeKind::Modified, modifier, vec![inner])
    }

    fn representation(&mut self) -> Option<&'static str> {
        match self.next()? {
            b't' => Some("@thin "),
            b'T' => Some("@thick "),
            b'o' => Some("@objc_metatype "),
            _ => None,
        }
    }

    fn box_type(&mut self, generics: Vec<Id>) -> Option<Id> {
        let mut fields = Vec::new();
        for ty in self.type_list()? {
            let inner = self.tree.first(ty)?;
            let node = self.tree.get(inner);
            let is_mutable = node.kind == NodeKind::Modified && node.text == "inout ";
            let (keyword, ty) = match is_mutable {
                true => ("var ", self.tree.first(inner)?),
                false => ("let ", ty),
            };
            fields.push(self.make(NodeKind::BoxField, keyword, vec![ty])?);
        }
        let fields = self.make(NodeKind::List, "", fields)?;
        let children = [fields].into_iter().chain(generics).collect();
        self.make_type(NodeKind::Box, "", children)
    }

    /// `Y` and a letter.
    pub(super) fn type_annotation(&mut self) -> Option<Id> {
        match self.next()? {
            b'a' => self.mark(NodeKind::Async),
            b'A' => self.make(NodeKind::Isolation, "@isolated(any) ", Vec::new()),
            b'b' => self.mark(NodeKind::Sendable),
            b'C' => self.make(NodeKind::Isolation, "nonisolated(nonsending) ", Vec::new()),
            b'c' => {
                let actor = self.pop_type_child()?;
                self.make(NodeKind::Isolation, "@", vec![actor])
            }
            b'g' => self.modified_type("@const "),
            b'i' => self.modified_type("isolated "),
            b'j' => {
                let attribute = match self.next()? {
                    b'd' => "@differentiable ",
                    b'f' => "@differentiable(_forward) ",
                    b'r' => "@differentiable(reverse) ",
                    b'l' => "@differentiable(_linear) ",
                    _ => return None,
                };
                self.make(NodeKind::Differentiable, attribute, Vec::new())
            }
            b'k' => self.modified_type("@noDerivative "),
            b'K' => {
                let error = self.pop_type_child()?;
                self.make(NodeKind::Throws, " throws(", vec![error])
            }
            b't' => self.modified_type("_const "),
            b'T' => self.mark(NodeKind::SendingResult),
            b'u' => self.modified_type("sending "),
            _ => None,
        }
    }
}
