//! Reads the operators of a Swift name.
//!
//! The mangling is in postfix order: operators take their operands from a stack of nodes and push
//! their result. The published grammar is `docs/ABI/Mangling.rst` of the Swift project.

use std::borrow::Cow;

use super::tree::{Id, Node, NodeKind, Tree};

/// Maximum nodes of one name.
const MAX_NODES: usize = 64 << 10;
/// Maximum bytes of identifiers of one name, with their words put in.
const MAX_TEXT_BYTES: usize = 256 << 10;

/// Age of a mangling.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Swift 4.0: argument labels are within the type.
    LabelsInTypes,
    /// Swift 4.2 and later.
    Stable,
}

/// Whether a name stands within another one. A specialised function's name holds those of the
/// closures that it was specialised for; they are demangled one level deep.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Nesting {
    Outer,
    Inner,
}

pub(super) struct Parser<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
    pub(super) dialect: Dialect,
    pub(super) nesting: Nesting,
    pub(super) tree: Tree,
    pub(super) stack: Vec<Id>,
    pub(super) substitutions: Vec<Id>,
    pub(super) words: Vec<String>,
    nodes: usize,
    text_bytes: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, dialect: Dialect, nesting: Nesting) -> Self {
        Parser {
            text: text.as_bytes(),
            at: 0,
            dialect,
            nesting,
            tree: Tree::default(),
            stack: Vec::new(),
            substitutions: Vec::new(),
            words: Vec::new(),
            nodes: 0,
            text_bytes: 0,
        }
    }

    /// Reads the whole name. Returns the nodes to print, attributes first.
    pub(super) fn run(&mut self) -> Option<Vec<Id>> {
        while self.at < self.text.len() {
            let node = self.operator()?;
            self.push(node)?;
        }
        let suffix = self.pop(NodeKind::Suffix);
        let mut attributes = Vec::new();
        while let Some(attribute) = self.pop_if(NodeKind::is_attribute) {
            attributes.push(attribute);
        }
        // The rest of the stack is the declaration. No compiler writes a name with more than one.
        if self.stack.len() > 1 || (self.stack.is_empty() && attributes.is_empty()) {
            return None;
        }
        let rest = self.stack.drain(..);
        Some(attributes.into_iter().chain(rest).chain(suffix).collect())
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(super) fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.at += 1;
        }
        found
    }

    pub(super) fn push(&mut self, node: Id) -> Option<()> {
        self.stack.push(node);
        (self.stack.len() <= MAX_NODES).then_some(())
    }

    pub(super) fn pop(&mut self, kind: NodeKind) -> Option<Id> {
        self.stack.pop_if(|id| self.tree.kind(*id) == kind)
    }

    pub(super) fn pop_if(&mut self, wanted: fn(NodeKind) -> bool) -> Option<Id> {
        self.stack.pop_if(|id| wanted(self.tree.kind(*id)))
    }

    /// Pops a mark; whether there was one.
    pub(super) fn pop_mark(&mut self, kind: NodeKind) -> bool {
        self.pop(kind).is_some()
    }

    pub(super) fn make(
        &mut self,
        kind: NodeKind,
        text: impl Into<Cow<'static, str>>,
        children: Vec<Id>,
    ) -> Option<Id> {
        self.make_numbered(kind, text, 0, children)
    }

    pub(super) fn make_numbered(
        &mut self,
        kind: NodeKind,
        text: impl Into<Cow<'static, str>>,
        number: usize,
        children: Vec<Id>,
    ) -> Option<Id> {
        let text = text.into();
        self.nodes += 1 + children.len();
        if let Cow::Owned(text) = &text {
            self.text_bytes += text.len();
        }
        if self.nodes > MAX_NODES || self.text_bytes > MAX_TEXT_BYTES {
            return None;
        }
        Some(self.tree.add(Node {
            kind,
            text,
            number,
            children,
        }))
    }

    pub(super) fn mark(&mut self, kind: NodeKind) -> Option<Id> {
        self.make(kind, "", Vec::new())
    }

    /// Makes a type of `kind`.
    pub(super) fn make_type(
        &mut self,
        kind: NodeKind,
        text: impl Into<Cow<'static, str>>,
        children: Vec<Id>,
    ) -> Option<Id> {
        let inner = self.make(kind, text, children)?;
        self.make(NodeKind::Type, "", vec![inner])
    }

    /// Enters `node` among the substitutions.
    pub(super) fn substitutable(&mut self, node: Option<Id>) -> Option<Id> {
        self.substitutions.push(node?);
        node
    }

    /// A decimal number, if there is one.
    pub(super) fn natural(&mut self) -> Option<usize> {
        let mut value: Option<usize> = None;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            let next = value.unwrap_or(0).checked_mul(10)?;
            value = Some(next.checked_add(usize::from(digit - b'0'))?);
            self.at += 1;
        }
        value.filter(|v| *v <= usize::from(u16::MAX) << 8)
    }

    /// An index: `_` is 0, `0_` is 1.
    pub(super) fn index(&mut self) -> Option<usize> {
        if self.take(b'_') {
            return Some(0);
        }
        let value = self.natural()?;
        self.take(b'_').then_some(value + 1)
    }

    fn operator(&mut self) -> Option<Id> {
        let byte = self.next()?;
        match byte {
            b'A' => self.multiple_substitutions(),
            b'B' => self.builtin_type(),
            b'C' => self.nominal_type(NodeKind::Class),
            b'D' => {
                let ty = self.pop(NodeKind::Type)?;
                self.make(NodeKind::Phrase, "{0}", vec![ty])
            }
            b'E' => self.extension(),
            b'F' => self.function(),
            b'G' => self.bound_generic_type(),
            b'H' => self.conformance_operator(),
            b'I' => self.lowered_function_type(),
            b'K' => self.make(NodeKind::Throws, " throws", Vec::new()),
            b'L' => self.local_name(),
            b'M' | b'T' | b'W' | b'N' => self.operation(byte),
            b'O' => self.nominal_type(NodeKind::Enum),
            b'P' => self.nominal_type(NodeKind::Protocol),
            b'Q' => self.associated_type(),
            b'R' => self.requirement(),
            b'S' => self.standard_substitution(),
            b'V' => self.nominal_type(NodeKind::Struct),
            b'X' => self.special_type(),
            b'Y' => self.type_annotation(),
            b'Z' => {
                let entity = self.pop_if(NodeKind::is_entity)?;
                self.make(NodeKind::Static, "", vec![entity])
            }
            b'a' => self.nominal_type(NodeKind::Alias),
            b'c' => self.function_type(""),
            b'd' => self.mark(NodeKind::Variadic),
            b'f' => self.function_entity(),
            b'g' => self.retroactive_conformance(),
            b'h' => self.modified_type("__shared "),
            b'i' => self.subscript(),
            b'l' => self.signature(vec![1]),
            b'm' => self.metatype(NodeKind::Metatype, ""),
            b'n' => self.modified_type("__owned "),
            b'o' => self.operator_name(),
            b'p' => {
                let list = self.protocol_list()?;
                self.make(NodeKind::Type, "", vec![list])
            }
            b'q' => {
                let parameter = self.generic_parameter()?;
                self.make(NodeKind::Type, "", vec![parameter])
            }
            b'r' => {
                let counts = self.parameter_counts()?;
                self.signature(counts)
            }
            b's' => self.make(NodeKind::Module, "Swift", Vec::new()),
            b't' => self.tuple(),
            b'u' => {
                let signature = self.pop(NodeKind::Signature)?;
                let inner = self.pop(NodeKind::Type)?;
                self.make_type(NodeKind::GenericType, "", vec![signature, inner])
            }
            b'v' => self.variable(),
            b'w' => self.value_witness(),
            b'x' => {
                let parameter = self.parameter_named(0, 0)?;
                self.make(NodeKind::Type, "", vec![parameter])
            }
            b'y' => self.mark(NodeKind::EmptyList),
            b'z' => self.modified_type("inout "),
            b'_' => self.mark(NodeKind::FirstElement),
            b'.' => {
                let rest = &self.text[self.at - 1..];
                self.at = self.text.len();
                let suffix = std::str::from_utf8(rest).ok()?.to_owned();
                self.make(NodeKind::Suffix, suffix, Vec::new())
            }
            b'$' => self.integer_type(),
            _ => {
                self.at -= 1;
                self.identifier()
            }
        }
    }

    /// Pops a module: the first identifier of a context is one.
    pub(super) fn pop_module(&mut self) -> Option<Id> {
        if let Some(identifier) = self.pop(NodeKind::Identifier) {
            let name = self.tree.get(identifier).text.clone();
            return self.make(NodeKind::Module, name, Vec::new());
        }
        self.pop(NodeKind::Module)
    }

    pub(super) fn pop_context(&mut self) -> Option<Id> {
        if let Some(module) = self.pop_module() {
            return Some(module);
        }
        if let Some(ty) = self.pop(NodeKind::Type) {
            let inner = self.tree.first(ty)?;
            return self.tree.kind(inner).is_context().then_some(inner);
        }
        self.pop_if(NodeKind::is_context)
    }

    pub(super) fn pop_type_child(&mut self) -> Option<Id> {
        let ty = self.pop(NodeKind::Type)?;
        self.tree.first(ty)
    }

    /// Pops a declared type.
    pub(super) fn pop_nominal(&mut self) -> Option<Id> {
        let nominal = self.pop_type_child()?;
        self.tree.kind(nominal).is_nominal().then_some(nominal)
    }

    pub(super) fn pop_protocol(&mut self) -> Option<Id> {
        if let Some(ty) = self.pop(NodeKind::Type) {
            return self.is_protocol(ty).then_some(ty);
        }
        let name = self.pop_if(NodeKind::is_name)?;
        let context = self.pop_context()?;
        self.make_type(NodeKind::Protocol, "", vec![context, name])
    }

    pub(super) fn is_protocol(&self, ty: Id) -> bool {
        let inner = self.tree.unwrap_type(ty);
        self.tree.kind(inner) == NodeKind::Protocol
    }

    pub(super) fn nominal_type(&mut self, kind: NodeKind) -> Option<Id> {
        let name = self.pop_if(NodeKind::is_name)?;
        let context = self.pop_context()?;
        let ty = self.make_type(kind, "", vec![context, name]);
        self.substitutable(ty)
    }

    fn extension(&mut self) -> Option<Id> {
        let signature = self.pop(NodeKind::Signature);
        let module = self.pop_module()?;
        let extended = self.pop_nominal()?;
        let children = [module, extended].into_iter().chain(signature).collect();
        self.make(NodeKind::Extension, "", children)
    }
}
