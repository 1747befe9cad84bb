//! Specialisations of Swift functions, for types or for the use of their arguments.

use super::parser::{Nesting, Parser};
use super::tree::{Id, NodeKind};

/// Attributes of a specialisation.
struct Attributes {
    serialized: bool,
    /// Only the representation of the function's type changed.
    representation: bool,
}

impl Parser<'_> {
    fn specialization_attributes(&mut self) -> Option<Attributes> {
        // Compilers before 6.3 marked removed metatypes.
        self.take(b'm');
        let serialized = self.take(b'q');
        let demoted = self.take(b'a');
        let representation = self.take(b'r');
        self.next().filter(u8::is_ascii_digit)?;
        (!demoted).then_some(Attributes {
            serialized,
            representation,
        })
    }

    pub(super) fn specialization(&mut self, description: &'static str) -> Option<Id> {
        let attributes = self.specialization_attributes()?;
        let types = self.type_list()?;
        self.make_specialization(description, attributes, types)
    }

    pub(super) fn partial_specialization(&mut self, description: &'static str) -> Option<Id> {
        let attributes = self.specialization_attributes()?;
        let ty = self.pop(NodeKind::Type)?;
        self.make_specialization(description, attributes, vec![ty])
    }

    /// The first `t` is consumed.
    pub(super) fn specialization_with_dropped_arguments(&mut self) -> Option<Id> {
        loop {
            self.natural();
            if !self.take(b't') {
                break;
            }
        }
        let description = match self.next()? {
            b'g' | b'B' => "generic specialization",
            b'G' => "generic not re-abstracted specialization",
            _ => return None,
        };
        self.specialization(description)
    }

    fn make_specialization(
        &mut self,
        description: &'static str,
        attributes: Attributes,
        mut parameters: Vec<Id>,
    ) -> Option<Id> {
        if attributes.representation {
            return self.make(
                NodeKind::Attribute,
                "representation changed of ",
                Vec::new(),
            );
        }
        if attributes.serialized {
            let serialized = self.make(NodeKind::Text, "serialized", Vec::new())?;
            parameters.insert(0, serialized);
        }
        self.make(NodeKind::Specialization, description, parameters)
    }

    /// `Tf`: a kind for each argument, `_`, and a kind for the result.
    pub(super) fn signature_specialization(&mut self) -> Option<Id> {
        let description = "function signature specialization";
        let attributes = self.specialization_attributes()?;
        if attributes.representation {
            return self.make_specialization(description, attributes, Vec::new());
        }
        let mut arguments = Vec::new();
        while !self.take(b'_') {
            let place = format!("Arg[{}] = ", arguments.len());
            arguments.push(self.specialized_argument(place)?);
        }
        if !self.take(b'n') {
            arguments.push(self.specialized_argument("Return = ".to_owned())?);
        }
        // Constants are on the stack, the last one on top.
        for argument in arguments.iter().flatten().rev() {
            let constants = self.tree.get(*argument).children.clone();
            for constant in constants.into_iter().rev() {
                self.constant_operands(constant)?;
            }
        }
        let shown = arguments.into_iter().flatten().collect();
        self.make_specialization(description, attributes, shown)
    }

    /// A kind of argument; `None` inside if the argument is as before.
    fn specialized_argument(&mut self, place: String) -> Option<Option<Id>> {
        let text = match self.next()? {
            b'n' => return Some(None),
            b'c' => {
                let text = "[Closure Propagated : {i}, Argument Types : [{t*}]";
                let closure = self.make(NodeKind::Phrase, text, Vec::new())?;
                return Some(Some(self.make(
                    NodeKind::Specialized,
                    place,
                    vec![closure],
                )?));
            }
            b'C' => {
                let text = format!("[Same As Argument {}]", self.natural()?);
                return self.specialized_text(place, text);
            }
            b'p' => {
                let constants = self.constants()?;
                return Some(Some(self.make(NodeKind::Specialized, place, constants)?));
            }
            b'e' => self.argument_changes("Existential To Protocol Constrained Generic", b"DGOX"),
            b'd' => self.argument_changes("Dead", b"GOX"),
            b'g' => self.argument_changes("Owned To Guaranteed", b"X"),
            b'o' => self.argument_changes("Guaranteed To Owned", b"X"),
            b'x' => "Exploded".to_owned(),
            b'i' => "Value Promoted from Box".to_owned(),
            b's' => "Stack Promoted from Box".to_owned(),
            b'r' => "InOut Converted to Out".to_owned(),
            _ => return None,
        };
        self.specialized_text(place, text)
    }

    fn specialized_text(&mut self, place: String, text: String) -> Option<Option<Id>> {
        let text = format!("{place}{text}");
        Some(Some(self.make(NodeKind::Specialized, text, Vec::new())?))
    }

    /// Changes to an argument after `first`; `letters` may follow.
    fn argument_changes(&mut self, first: &str, letters: &[u8]) -> String {
        let mut text = first.to_owned();
        for (letter, change) in [
            (b'D', "Dead"),
            (b'G', "Owned To Guaranteed"),
            (b'O', "Guaranteed To Owned"),
            (b'X', "Exploded"),
        ] {
            if letters.contains(&letter) && self.take(letter) {
                text.push_str(" and ");
                text.push_str(change);
            }
        }
        text
    }

    /// Constants passed for one argument. `{i}` is an identifier, `{t}` a type.
    fn constants(&mut self) -> Option<Vec<Id>> {
        let mut constants = Vec::new();
        loop {
            let text = match self.peek() {
                Some(b'f') => "[Constant Propagated Function : {i}]".to_owned(),
                Some(b'g') => "[Constant Propagated Global : {i}]".to_owned(),
                Some(b'S') => "[Constant Propagated Struct : {t}]".to_owned(),
                Some(b'k') => "[Constant Propagated KeyPath : {i}<{t},{t}>]".to_owned(),
                Some(kind @ (b'i' | b'd')) => {
                    self.at += 1;
                    let name = if kind == b'i' { "Integer" } else { "Float" };
                    let digits = self.peek().filter(u8::is_ascii_digit).and(self.natural());
                    let text = format!("[Constant Propagated {name} : {}]", digits?);
                    constants.push(self.make(NodeKind::Text, text, Vec::new())?);
                    continue;
                }
                Some(b's') => {
                    self.at += 1;
                    let encoding = match self.peek()? {
                        b'b' => "u8",
                        b'w' => "u16",
                        b'c' => "objc",
                        _ => return None,
                    };
                    format!("[Constant Propagated String : {encoding}'{{i}}']")
                }
                _ => return Some(constants),
            };
            self.at += 1;
            constants.push(self.make(NodeKind::Phrase, text, Vec::new())?);
        }
    }

    /// Pops the operands of a constant, and numbers their places in its text.
    fn constant_operands(&mut self, constant: Id) -> Option<()> {
        if self.tree.kind(constant) != NodeKind::Phrase {
            return Some(());
        }
        let mut text = self.tree.get(constant).text.clone().into_owned();
        let mut children = Vec::new();
        if text.contains("{t*}") {
            let mut types = Vec::new();
            while let Some(ty) = self.pop(NodeKind::Type) {
                types.push(ty);
            }
            let places: Vec<_> = (1..=types.len())
                .rev()
                .map(|i| format!("{{{i}}}"))
                .collect();
            if types.len() > 9 {
                return None;
            }
            children.push(self.constant_name()?);
            children.extend(types);
            text = text
                .replace("{t*}", &places.join(", "))
                .replace("{i}", "{0}");
        } else {
            let mut types = Vec::new();
            for _ in 0..text.matches("{t}").count() {
                types.push(self.pop(NodeKind::Type)?);
            }
            if text.contains("{i}") {
                let name = self.constant_name()?;
                let node = self.tree.get_mut(name);
                // An underscore was put before the digits of a string.
                if let Some(digits) = node.text.strip_prefix('_').filter(|_| text.contains('\'')) {
                    node.text = digits.to_owned().into();
                }
                children.push(name);
                text = text.replace("{i}", "{0}");
            }
            types.reverse();
            for ty in types {
                let place = format!("{{{}}}", children.len());
                text = text.replacen("{t}", &place, 1);
                children.push(ty);
            }
        }
        let node = self.tree.get_mut(constant);
        node.text = text.into();
        node.children = children;
        Some(())
    }

    /// Pops the name of a function or a string. A name that is mangled itself is shown demangled.
    fn constant_name(&mut self) -> Option<Id> {
        let identifier = self.pop(NodeKind::Identifier)?;
        let text = self.tree.get(identifier).text.clone();
        let shown = match self.nesting {
            Nesting::Outer => super::demangle_at(&text, Nesting::Inner),
            Nesting::Inner => None,
        };
        let shown = shown.unwrap_or_else(|| text.into_owned());
        self.make(NodeKind::Text, shown, Vec::new())
    }
}
