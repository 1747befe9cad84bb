//! Writes declarations with their context, which stands before a name (`Module.Type.name`) or, if
//! the name is a description, after it (`closure #1 in …`).

use super::print::Printer;
use super::tree::{Id, NodeKind};

/// How the type of a declaration is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TypeStyle {
    Hidden,
    /// `name : Type`
    Colon,
    /// `name(Type) -> Type`
    Function,
}

/// Whether the written declaration is the context of another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Alone,
    Prefix,
}

/// How to write a declaration.
struct Style {
    types: TypeStyle,
    /// Whether its second child is its name.
    named: bool,
    /// Text after the name, or instead of it.
    extra: String,
    /// Text instead of a name.
    name: &'static str,
}

impl Style {
    fn named(types: TypeStyle) -> Self {
        Style {
            types,
            named: true,
            extra: String::new(),
            name: "",
        }
    }

    fn described(types: TypeStyle, extra: impl Into<String>) -> Self {
        Style {
            types,
            named: false,
            extra: extra.into(),
            name: "",
        }
    }
}

impl Printer<'_> {
    /// Writes a declaration.
    pub(super) fn entity(&mut self, id: Id) -> Option<()> {
        // Alone, every context is written.
        self.placed(id, Position::Alone).map(|_| ())
    }

    /// Writes a declaration, or returns the context that must follow.
    fn placed(&mut self, id: Id, place: Position) -> Option<Option<Id>> {
        let node = self.tree.get(id);
        match node.kind {
            NodeKind::Module => {
                self.push(&node.text)?;
                Some(None)
            }
            NodeKind::Extension => {
                self.push("(extension in ")?;
                self.print_child(id, 0)?;
                self.push("):")?;
                self.print_child(id, 1)?;
                if let Some(signature) = self.child(id, 2) {
                    self.print(signature)?;
                }
                Some(None)
            }
            NodeKind::Anonymous => {
                self.print_child(id, 1)?;
                self.push(".(unknown context at ")?;
                self.print_child(id, 0)?;
                self.push(")")?;
                let types = self.child(id, 2)?;
                if !self.tree.get(types).children.is_empty() {
                    self.push("<")?;
                    self.list(&self.tree.get(types).children, "")?;
                    self.push(">")?;
                }
                Some(None)
            }
            NodeKind::Static => {
                self.push("static ")?;
                self.print_child(id, 0)?;
                Some(None)
            }
            NodeKind::OpaqueOf => {
                self.print(id)?;
                Some(None)
            }
            NodeKind::Accessor => {
                let storage = self.child(id, 0)?;
                self.storage(storage, place, &node.text)
            }
            NodeKind::Variable | NodeKind::Subscript => self.storage(id, place, ""),
            NodeKind::BoundFunction => {
                let function = self.child(id, 0)?;
                let style = self.style(self.tree.unwrap_type(function))?;
                self.styled(id, place, style)
            }
            _ => {
                let style = self.style(id)?;
                self.styled(id, place, style)
            }
        }
    }

    fn storage(&mut self, id: Id, place: Position, extra: &str) -> Option<Option<Id>> {
        let style = match self.tree.kind(id) {
            NodeKind::Variable => Style {
                extra: extra.to_owned(),
                ..Style::named(TypeStyle::Colon)
            },
            NodeKind::Subscript => Style {
                types: match extra {
                    "" => TypeStyle::Function,
                    _ => TypeStyle::Colon,
                },
                named: false,
                extra: extra.to_owned(),
                name: "subscript",
            },
            _ => return None,
        };
        self.styled(id, place, style)
    }

    fn style(&self, id: Id) -> Option<Style> {
        let node = self.tree.get(id);
        Some(match node.kind {
            kind if kind.is_nominal() => Style::named(TypeStyle::Hidden),
            NodeKind::Function => Style::named(TypeStyle::Function),
            NodeKind::Initializer => Style::described(TypeStyle::Function, node.text.clone()),
            NodeKind::Special => Style::described(TypeStyle::Hidden, node.text.clone()),
            NodeKind::Closure => {
                let text = format!("{}{}", node.text, node.number + 1);
                Style::described(TypeStyle::Function, text)
            }
            NodeKind::DefaultArgument => {
                let text = format!("default argument {}", node.number);
                Style::described(TypeStyle::Hidden, text)
            }
            _ => return None,
        })
    }

    fn styled(&mut self, id: Id, place: Position, style: Style) -> Option<Option<Id>> {
        let tree = self.tree;
        let (id, arguments) = match tree.kind(id) {
            NodeKind::BoundFunction => {
                let (function, arguments) = tree.get(id).children.split_first()?;
                (tree.unwrap_type(*function), Some(arguments))
            }
            _ => (id, None),
        };
        let name = self.child(id, 1).filter(|_| style.named);
        let is_local = name.is_some_and(|n| tree.kind(n) == NodeKind::Local);
        let is_phrase = style.extra.contains(' ') || is_local;
        if place == Position::Prefix && (style.types != TypeStyle::Hidden || is_phrase) {
            return Some(Some(id));
        }
        let context = self.child(id, 0)?;
        let mut after = Some(context);
        if !is_phrase {
            let before = self.out.len();
            after = self.context(context)?;
            if self.out.len() != before {
                self.push(".")?;
            }
        }
        self.name(id, &style, is_phrase)?;
        self.entity_type(id, &style, (is_phrase, arguments))?;
        if place == Position::Prefix {
            return Some(after);
        }
        if let Some(after) = after {
            let is_part = matches!(tree.kind(id), NodeKind::DefaultArgument)
                || (tree.kind(id) == NodeKind::Special && is_phrase);
            self.push(if is_part { " of " } else { " in " })?;
            self.print(after)?;
        }
        Some(None)
    }

    /// Writes a context before a name, or returns the part that must follow.
    fn context(&mut self, id: Id) -> Option<Option<Id>> {
        match self.tree.kind(id) {
            kind if kind.is_context() || kind == NodeKind::BoundFunction => {
                self.placed(id, Position::Prefix)
            }
            _ => {
                self.print(id)?;
                Some(None)
            }
        }
    }

    fn name(&mut self, id: Id, style: &Style, is_phrase: bool) -> Option<()> {
        let mut extra = style.extra.as_str();
        let private = self.tree.child_of(id, NodeKind::Private);
        let has_name = style.named || !style.name.is_empty() || private.is_some();
        if has_name {
            if is_phrase && !extra.is_empty() {
                self.push(extra)?;
                self.push(" of ")?;
                extra = "";
            }
            let before = self.out.len();
            if !style.name.is_empty() {
                self.push(style.name)?;
            } else {
                if style.named {
                    let name = self.child(id, 1)?;
                    if self.tree.kind(name) != NodeKind::Private {
                        self.print(name)?;
                    }
                }
                if let Some(private) = private {
                    self.print(private)?;
                }
            }
            if self.out.len() != before && !extra.is_empty() {
                self.push(".")?;
            }
        }
        self.push(extra)
    }

    fn entity_type(
        &mut self,
        id: Id,
        style: &Style,
        (is_phrase, arguments): (bool, Option<&[Id]>),
    ) -> Option<()> {
        if style.types == TypeStyle::Hidden {
            return Some(());
        }
        let tree = self.tree;
        let ty = tree.unwrap_type(tree.child_of(id, NodeKind::Type)?);
        let mut function = ty;
        if tree.kind(ty) == NodeKind::GenericType {
            function = tree.unwrap_type(self.child(ty, 1)?);
        }
        let node = tree.get(function);
        let is_function = node.kind == NodeKind::FunctionType
            && matches!(&*node.text, "" | "@convention(c) " | "@convention(thin) ");
        if style.types == TypeStyle::Colon || !is_function {
            self.push(" : ")?;
        } else if is_phrase || self.needs_space(ty) {
            self.push(" ")?;
        }
        let labels = tree.child_of(id, NodeKind::Labels);
        if labels.is_none() && arguments.is_none() {
            return self.print(ty);
        }
        if let Some(arguments) = arguments {
            self.push("<")?;
            self.list(arguments, ", ")?;
            self.push(">")?;
        }
        if tree.kind(ty) == NodeKind::GenericType {
            if arguments.is_none() {
                self.print_child(ty, 0)?;
            }
            if self.needs_space(function) {
                self.push(" ")?;
            }
        }
        if node.kind != NodeKind::FunctionType {
            return None;
        }
        self.function_type(function, labels)
    }
}
