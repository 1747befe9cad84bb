//! The tree of a demangled Swift name.

use std::borrow::Cow;

/// Index of a node in its [`Tree`].
pub(super) type Id = usize;

/// Meaning of a node. Brackets list its children, parentheses its text or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    // Marks that later operators consume.
    EmptyList,
    FirstElement,
    Variadic,
    Async,
    Sendable,
    /// (` throws`) or (` throws(`) [type].
    Throws,
    /// (attribute with its space), or (`@`) [type] for a global actor.
    Isolation,
    /// (attribute with its space).
    Differentiable,
    SendingResult,

    // Names of declarations.
    /// (name)
    Identifier,
    /// (number) [name]
    Local,
    /// (discriminator) [name?]
    Private,
    /// (letter) [name]
    Related,
    /// (operator and fixity)
    Operator,

    // Contexts.
    /// (name)
    Module,
    /// [context, name]
    Class,
    Struct,
    Enum,
    Protocol,
    Alias,
    OtherType,
    /// [module, type, signature?]
    Extension,
    /// [name, parent, types]
    Anonymous,
    /// [context, name, labels?, type]
    Function,
    Variable,
    /// [context, labels?, type, private name?]
    Subscript,
    /// (`init` or `__allocating_init`) [context, labels?, type, private name?]
    Initializer,
    /// (description) [variable or subscript]
    Accessor,
    /// (description, number) [context, type]
    Closure,
    /// (number) [context]
    DefaultArgument,
    /// (description) [context]
    Special,
    /// [entity]
    Static,
    /// [context]
    OpaqueOf,

    // Types.
    /// [type]
    Type,
    /// (whole text)
    Text,
    /// [size, element]
    FixedArray,
    /// [elements]
    Tuple,
    /// (label; number 1: variadic) [type]
    Element,
    /// (convention with its space) [annotations, parameters, result]
    FunctionType,
    /// (name; number 1: of a generic parameter)
    Parameter,
    /// [type, name]
    Member,
    /// (name) [protocol?]
    AssociatedName,
    /// [type] arguments
    BoundGeneric,
    /// [function] arguments
    BoundFunction,
    /// (representation with its space) [type]
    Metatype,
    ExistentialMetatype,
    /// [protocols]
    ProtocolList,
    /// [protocol list, class]
    ProtocolListWithClass,
    /// [protocol list]
    ProtocolListWithObject,
    /// [protocol list, requirements]
    ConstrainedExistential,
    /// (modifier with its space) [type]
    Modified,
    /// [signature, type]
    GenericType,
    /// (number) [opaque declaration, arguments]
    OpaqueType,
    /// [types]
    Pack,
    /// [box fields, signature and arguments?]
    Box,
    BoxField,
    /// [types or labels]
    List,
    Labels,

    // Generic signatures.
    /// [counts, markers, requirements]
    Signature,
    /// (number)
    Count,
    /// [parameter]
    PackMarker,
    /// [parameter, type]
    ValueMarker,
    /// (separator) [left, right]
    Requirement,
    /// (layout) [type]
    Layout,

    // Lowered function types.
    /// [attributes, substitutions, parameters, results]
    Lowered,
    /// (text)
    LoweredAttribute,
    /// (convention) [type]
    LoweredParameter,
    LoweredResult,
    LoweredSending,
    /// [signature, types]
    PatternSubstitutions,
    /// [types]
    InvocationSubstitutions,

    // Conformances of generic arguments; they are not shown.
    AnyConformance,
    ConformanceReference,
    Retroactive,

    // Whole symbols.
    /// [type, protocol, module]
    Conformance,
    /// [names]
    PathNames,
    /// (text with `{0}` for children)
    Phrase,
    /// (text) Precedes a function.
    Attribute,
    /// (text) Precedes a function and wraps those before it.
    Forwarder,
    /// (description) [parameters]
    Specialization,
    /// (kind) of a specialised argument [constants]
    Specialized,
    /// (suffix)
    Suffix,
}

impl NodeKind {
    /// Whether declarations may be within it.
    pub(super) fn is_context(self) -> bool {
        use NodeKind::*;
        matches!(
            self,
            Module
                | Extension
                | Anonymous
                | Function
                | Variable
                | Subscript
                | Initializer
                | Accessor
                | Closure
                | DefaultArgument
                | Special
                | Static
                | OpaqueOf
        ) || self.is_nominal()
    }

    /// Whether an operator on a declaration accepts it.
    pub(super) fn is_entity(self) -> bool {
        self == NodeKind::Type || self.is_context()
    }

    /// Whether it names a declaration.
    pub(super) fn is_name(self) -> bool {
        use NodeKind::*;
        matches!(self, Identifier | Local | Private | Related | Operator)
    }

    /// Whether it is a declared type.
    pub(super) fn is_nominal(self) -> bool {
        use NodeKind::*;
        matches!(self, Class | Struct | Enum | Protocol | Alias | OtherType)
    }

    /// Whether it belongs to a generic signature.
    pub(super) fn is_requirement(self) -> bool {
        use NodeKind::*;
        matches!(self, PackMarker | ValueMarker | Requirement | Layout)
    }

    /// Whether it describes the function after it.
    pub(super) fn is_attribute(self) -> bool {
        use NodeKind::*;
        matches!(self, Attribute | Forwarder | Specialization)
    }
}

/// A part of a name.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: NodeKind,
    pub(super) text: Cow<'static, str>,
    pub(super) number: usize,
    pub(super) children: Vec<Id>,
}

/// Nodes; they may share children.
#[derive(Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

impl Tree {
    pub(super) fn get(&self, id: Id) -> &Node {
        &self.nodes[id]
    }

    pub(super) fn get_mut(&mut self, id: Id) -> &mut Node {
        &mut self.nodes[id]
    }

    pub(super) fn kind(&self, id: Id) -> NodeKind {
        self.nodes[id].kind
    }

    pub(super) fn add(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// The first child of `id`.
    pub(super) fn first(&self, id: Id) -> Option<Id> {
        self.nodes[id].children.first().copied()
    }

    pub(super) fn child(&self, id: Id, index: usize) -> Option<Id> {
        self.nodes[id].children.get(index).copied()
    }

    /// The first child of `id` that is a `kind`.
    pub(super) fn child_of(&self, id: Id, kind: NodeKind) -> Option<Id> {
        let mut children = self.nodes[id].children.iter().copied();
        children.find(|c| self.kind(*c) == kind)
    }

    /// The type in a [`NodeKind::Type`], or the node itself.
    pub(super) fn unwrap_type(&self, id: Id) -> Id {
        match self.kind(id) {
            NodeKind::Type => self.first(id).unwrap_or(id),
            _ => id,
        }
    }

    /// Whether it is a declaration `name` of the module Swift.
    pub(super) fn is_swift(&self, id: Id, name: &str) -> bool {
        let is = |child: Option<Id>, kind, text: &str| {
            child.is_some_and(|c| self.kind(c) == kind && self.get(c).text == text)
        };
        is(self.child(id, 0), NodeKind::Module, "Swift")
            && is(self.child(id, 1), NodeKind::Identifier, name)
    }
}
