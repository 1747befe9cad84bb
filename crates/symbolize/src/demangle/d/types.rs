//! Types and parameters of D names.

use super::{Modifiers, Parser, is_convention};

/// A function type in the order of its parts in a declaration.
#[derive(Default)]
pub(super) struct FunctionParts {
    convention: &'static str,
    attributes: String,
    /// The parameters with their parentheses.
    pub(super) parameters: String,
}

impl Parser<'_> {
    /// Consumes a type and appends it to `out`.
    pub(super) fn parse_type(&mut self, out: &mut String) -> Option<()> {
        self.budget.enter()?;
        match self.peek()? {
            b'O' => self.wrapped(out, 1, "shared(")?,
            b'x' => self.wrapped(out, 1, "const(")?,
            b'y' => self.wrapped(out, 1, "immutable(")?,
            b'N' => match self.text.get(self.at + 1)? {
                b'g' => self.wrapped(out, 2, "inout(")?,
                b'h' => self.wrapped(out, 2, "__vector(")?,
                b'n' => {
                    self.at += 2;
                    self.push(out, "typeof(*null)")?;
                }
                _ => return None,
            },
            b'A' | b'G' | b'H' => self.array(out)?,
            b'P' => {
                self.at += 1;
                if self.peek().is_some_and(is_convention) {
                    self.function_type(out)?;
                    self.push(out, "function")?;
                } else {
                    self.parse_type(out)?;
                    self.push(out, "*")?;
                }
            }
            b'F' | b'U' | b'W' | b'V' | b'R' | b'Y' => {
                self.function_type(out)?;
                self.push(out, "function")?;
            }
            b'S' | b'C' | b'E' | b'T' => {
                self.at += 1;
                self.qualified(out, Modifiers::Hidden)?;
            }
            b'D' => self.delegate(out)?,
            b'B' => self.tuple(out)?,
            b'Q' => self.type_backref(out, Parser::parse_type)?,
            _ => self.basic_type(out)?,
        }
        self.budget.leave();
        Some(())
    }

    /// A type within parentheses, after `skip` bytes.
    fn wrapped(&mut self, out: &mut String, skip: usize, opening: &str) -> Option<()> {
        self.at += skip;
        self.push(out, opening)?;
        self.parse_type(out)?;
        self.push(out, ")")
    }

    fn array(&mut self, out: &mut String) -> Option<()> {
        match self.next()? {
            b'A' => {
                self.parse_type(out)?;
                self.push(out, "[]")
            }
            b'G' => {
                let start = self.at;
                self.number()?;
                let count = &self.text[start..self.at];
                self.parse_type(out)?;
                self.push(out, "[")?;
                self.push_bytes(out, count)?;
                self.push(out, "]")
            }
            _ => {
                let mut key = String::new();
                self.parse_type(&mut key)?;
                self.parse_type(out)?;
                self.push(out, "[")?;
                self.push(out, &key)?;
                self.push(out, "]")
            }
        }
    }

    fn delegate(&mut self, out: &mut String) -> Option<()> {
        self.at += 1;
        let mut modifiers = String::new();
        self.type_modifiers(&mut modifiers)?;
        if self.peek() == Some(b'Q') {
            self.type_backref(out, Parser::function_type)?;
        } else {
            self.function_type(out)?;
        }
        self.push(out, "delegate")?;
        self.push(out, &modifiers)
    }

    fn tuple(&mut self, out: &mut String) -> Option<()> {
        self.at += 1;
        let count = self.number()?;
        self.push(out, "Tuple!(")?;
        for i in 0..count {
            if i > 0 {
                self.push(out, ", ")?;
            }
            self.parse_type(out)?;
        }
        self.push(out, ")")
    }

    fn basic_type(&mut self, out: &mut String) -> Option<()> {
        let name = match self.next()? {
            b'n' => "typeof(null)",
            b'v' => "void",
            b'g' => "byte",
            b'h' => "ubyte",
            b's' => "short",
            b't' => "ushort",
            b'i' => "int",
            b'k' => "uint",
            b'l' => "long",
            b'm' => "ulong",
            b'f' => "float",
            b'd' => "double",
            b'e' => "real",
            b'o' => "ifloat",
            b'p' => "idouble",
            b'j' => "ireal",
            b'q' => "cfloat",
            b'r' => "cdouble",
            b'c' => "creal",
            b'b' => "bool",
            b'a' => "char",
            b'u' => "wchar",
            b'w' => "dchar",
            b'z' => match self.next()? {
                b'i' => "cent",
                b'k' => "ucent",
                _ => return None,
            },
            _ => return None,
        };
        self.push(out, name)
    }

    /// Parses the type that `Q` refers to with `parse`. References within it must stand before it.
    pub(super) fn type_backref(
        &mut self,
        out: &mut String,
        parse: fn(&mut Self, &mut String) -> Option<()>,
    ) -> Option<()> {
        if self.at >= self.backref_limit {
            return None;
        }
        let limit = std::mem::replace(&mut self.backref_limit, self.at);
        let target = self.backref()?;
        let back = std::mem::replace(&mut self.at, target);
        let parsed = parse(self, out);
        self.at = back;
        self.backref_limit = limit;
        parsed
    }

    /// `const`, `immutable`, `shared` and `inout` of a function's context.
    pub(super) fn type_modifiers(&mut self, out: &mut String) -> Option<()> {
        loop {
            match self.rest() {
                [b'x', ..] => {
                    self.at += 1;
                    return self.push(out, " const");
                }
                [b'y', ..] => {
                    self.at += 1;
                    return self.push(out, " immutable");
                }
                [b'O', ..] => {
                    self.at += 1;
                    self.push(out, " shared")?;
                }
                [b'N', b'g', ..] => {
                    self.at += 2;
                    self.push(out, " inout")?;
                }
                [b'N', ..] => return None,
                _ => return Some(()),
            }
        }
    }

    /// Convention, attributes and parameters; the return type follows.
    pub(super) fn function_without_return(&mut self) -> Option<FunctionParts> {
        let convention = match self.next()? {
            b'F' => "",
            b'U' => "extern(C) ",
            b'W' => "extern(Windows) ",
            b'V' => "extern(Pascal) ",
            b'R' => "extern(C++) ",
            b'Y' => "extern(Objective-C) ",
            _ => return None,
        };
        let mut parts = FunctionParts {
            convention,
            ..FunctionParts::default()
        };
        self.attributes(&mut parts.attributes)?;
        parts.parameters.push('(');
        self.parameters(&mut parts.parameters)?;
        parts.parameters.push(')');
        Some(parts)
    }

    fn attributes(&mut self, out: &mut String) -> Option<()> {
        while let [b'N', kind, ..] = self.rest() {
            let name = match kind {
                b'a' => "pure ",
                b'b' => "nothrow ",
                b'c' => "ref ",
                b'd' => "@property ",
                b'e' => "@trusted ",
                b'f' => "@safe ",
                b'i' => "@nogc ",
                b'j' => "return ",
                b'l' => "scope ",
                b'm' => "@live ",
                // These letters begin the first parameter.
                b'g' | b'h' | b'k' | b'n' => return Some(()),
                _ => return None,
            };
            self.at += 2;
            self.push(out, name)?;
        }
        Some(())
    }

    fn function_type(&mut self, out: &mut String) -> Option<()> {
        self.budget.enter()?;
        let parts = self.function_without_return()?;
        self.push(out, parts.convention)?;
        self.parse_type(out)?;
        self.push(out, &parts.parameters)?;
        self.push(out, " ")?;
        self.push(out, &parts.attributes)?;
        self.budget.leave();
        Some(())
    }

    fn parameters(&mut self, out: &mut String) -> Option<()> {
        let mut count = 0;
        loop {
            match self.peek()? {
                b'X' => {
                    self.at += 1;
                    return self.push(out, "...");
                }
                b'Y' => {
                    self.at += 1;
                    return self.push(out, if count > 0 { ", ..." } else { "..." });
                }
                b'Z' => {
                    self.at += 1;
                    return Some(());
                }
                _ => {}
            }
            if count > 0 {
                self.push(out, ", ")?;
            }
            count += 1;
            self.parameter(out)?;
        }
    }

    fn parameter(&mut self, out: &mut String) -> Option<()> {
        // Compilers since 2.098 write `return` first.
        loop {
            if self.take(b"M") {
                self.push(out, "scope ")?;
            } else if self.take(b"Nk") {
                self.push(out, "return ")?;
            } else {
                break;
            }
        }
        let storage = match self.peek()? {
            b'I' => "in ",
            b'J' => "out ",
            b'K' => "ref ",
            b'L' => "lazy ",
            _ => "",
        };
        if !storage.is_empty() {
            self.at += 1;
            self.push(out, storage)?;
        }
        if storage == "in " && self.take(b"K") {
            self.push(out, "ref ")?;
        }
        self.parse_type(out)
    }
}
