//! Functions, variables and their parts in Swift names.

use super::parser::Parser;
use super::tree::{Id, NodeKind};

impl Parser<'_> {
    pub(super) fn function(&mut self) -> Option<Id> {
        let signature = self.pop(NodeKind::Signature);
        let mut ty = self.function_type("")?;
        let labels = self.labels(Some(ty))?;
        if let Some(signature) = signature {
            ty = self.make_type(NodeKind::GenericType, "", vec![signature, ty])?;
        }
        let name = self.pop_if(NodeKind::is_name)?;
        let context = self.pop_context()?;
        let children = [context, name].into_iter().chain(labels).chain([ty]);
        self.make(NodeKind::Function, "", children.collect())
    }

    pub(super) fn variable(&mut self) -> Option<Id> {
        let ty = self.pop(NodeKind::Type)?;
        let labels = self.labels(Some(ty))?;
        let name = self.pop_if(NodeKind::is_name)?;
        let context = self.pop_context()?;
        let children = [context, name].into_iter().chain(labels).chain([ty]);
        let variable = self.make(NodeKind::Variable, "", children.collect())?;
        self.accessor(variable)
    }

    pub(super) fn subscript(&mut self) -> Option<Id> {
        let private = self.pop(NodeKind::Private);
        let ty = self.pop(NodeKind::Type)?;
        let labels = self.labels(Some(ty))?;
        let context = self.pop_context()?;
        let children = [context]
            .into_iter()
            .chain(labels)
            .chain([ty])
            .chain(private);
        let subscript = self.make(NodeKind::Subscript, "", children.collect())?;
        self.accessor(subscript)
    }

    fn accessor(&mut self, storage: Id) -> Option<Id> {
        let description = match self.next()? {
            b'p' => return Some(storage),
            b'm' => "materializeForSet",
            b's' => "setter",
            b'g' => "getter",
            b'G' => "getter",
            b'w' => "willset",
            b'W' => "didset",
            b'r' => "read",
            b'y' => "read2",
            b'M' => "modify",
            b'x' => "modify2",
            b'b' => "borrow",
            b'z' => "mutate",
            b'i' => "init",
            b'a' => match self.next()? {
                b'O' => "owningMutableAddressor",
                b'o' => "nativeOwningMutableAddressor",
                b'P' => "nativePinningMutableAddressor",
                b'u' => "unsafeMutableAddressor",
                _ => return None,
            },
            b'l' => match self.next()? {
                b'O' => "owningAddressor",
                b'o' => "nativeOwningAddressor",
                b'p' => "nativePinningAddressor",
                b'u' => "unsafeAddressor",
                _ => return None,
            },
            _ => return None,
        };
        self.make(NodeKind::Accessor, description, vec![storage])
    }

    /// `f` and a letter.
    pub(super) fn function_entity(&mut self) -> Option<Id> {
        match self.next()? {
            b'D' => {
                let context = self.pop_context()?;
                let is_class = self.tree.kind(context) == NodeKind::Class;
                let name = if is_class {
                    "__deallocating_deinit"
                } else {
                    "deinit"
                };
                self.make(NodeKind::Special, name, vec![context])
            }
            b'Z' => {
                let context = self.pop_context()?;
                let is_class = self.tree.kind(context) == NodeKind::Class;
                let name = match is_class {
                    true => "__isolated_deallocating_deinit",
                    false => "deinit",
                };
                self.make(NodeKind::Special, name, vec![context])
            }
            b'd' => self.special("deinit"),
            b'E' => self.special("__ivar_destroyer"),
            b'e' => self.special("__ivar_initializer"),
            b'i' => self.special("variable initialization expression"),
            b'P' => self.special("property wrapper backing initializer"),
            b'W' => self.special("property wrapper init from projected value"),
            b'F' => self.special("property wrapped field init accessor"),
            b'C' => self.initializer("__allocating_init"),
            b'c' => self.initializer("init"),
            b'U' => self.closure("closure #"),
            b'u' => self.closure("implicit closure #"),
            b'A' => {
                let number = self.index()?;
                let context = self.pop_context()?;
                self.make_numbered(NodeKind::DefaultArgument, "", number, vec![context])
            }
            _ => None,
        }
    }

    fn special(&mut self, description: &'static str) -> Option<Id> {
        let context = self.pop_context()?;
        self.make(NodeKind::Special, description, vec![context])
    }

    fn initializer(&mut self, name: &'static str) -> Option<Id> {
        let private = self.pop(NodeKind::Private);
        let ty = self.pop(NodeKind::Type)?;
        let labels = self.labels(Some(ty))?;
        let context = self.pop_context()?;
        // Only an object of a class is allocated.
        let name = match self.tree.kind(context) {
            NodeKind::Class => name,
            _ => "init",
        };
        let children = [context]
            .into_iter()
            .chain(labels)
            .chain([ty])
            .chain(private);
        self.make(NodeKind::Initializer, name, children.collect())
    }

    fn closure(&mut self, description: &'static str) -> Option<Id> {
        let number = self.index()?;
        let ty = self.pop(NodeKind::Type)?;
        let context = self.pop_context()?;
        self.make_numbered(NodeKind::Closure, description, number, vec![context, ty])
    }
}
