//! Demangles D names, by the language's published ABI, in the notation of binutils.
//!
//! Attributes of the function itself and its return type are left out, those of types are kept.
//! Names in which any part is not understood have no demangled form.

#[cfg(test)]
mod tests;
mod types;
mod value;

use super::budget::Budget;

/// The symbol of a program's `main`.
const MAIN: &str = "_Dmain";
/// Maximum depth of nested names, types and values.
const MAX_DEPTH: u32 = 128;
/// Digits that tell a length from the start of a name, in names of compilers before 2.077.
const MAX_LENGTH_DIGITS: usize = 8;

/// Whether `name` looks like a mangled one.
pub(super) fn is_mangled(name: &[u8]) -> bool {
    let begins = |rest: &[u8]| {
        rest.first()
            .is_some_and(|b| b.is_ascii_digit() || *b == b'_')
    };
    name == MAIN.as_bytes() || name.strip_prefix(b"_D").is_some_and(begins)
}

/// Returns the declaration with the mangled name `name`.
pub(super) fn demangle(name: &str) -> Option<String> {
    if name == MAIN {
        return Some("D main".to_owned());
    }
    if !name.starts_with("_D") {
        return None;
    }
    let mut parser = Parser {
        text: name.as_bytes(),
        at: 0,
        backref_limit: name.len(),
        budget: Budget::new(MAX_DEPTH),
    };
    let mut out = String::new();
    parser.mangled(&mut out)?;
    (parser.at == name.len()).then_some(out)
}

/// Whether the modifiers of a function's `this` (`const`, `shared`) are shown after it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Modifiers {
    Shown,
    Hidden,
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    /// Type back references must stand before this offset, so that none repeats itself.
    backref_limit: usize,
    budget: Budget,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn take(&mut self, expected: &[u8]) -> bool {
        let found = self.rest().starts_with(expected);
        if found {
            self.at += expected.len();
        }
        found
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Appends `text` to `out`, within the budget.
    fn push(&mut self, out: &mut String, text: &str) -> Option<()> {
        self.budget.spend(text.len())?;
        out.push_str(text);
        Some(())
    }

    /// Inserts `text` before `out`, within the budget.
    fn prepend(&mut self, out: &mut String, text: &str) -> Option<()> {
        self.budget.spend(text.len() + out.len())?;
        out.insert_str(0, text);
        Some(())
    }

    /// Appends bytes of the symbol, which is valid UTF-8 as a whole.
    fn push_bytes(&mut self, out: &mut String, bytes: &[u8]) -> Option<()> {
        self.push(out, std::str::from_utf8(bytes).ok()?)
    }

    fn number(&mut self) -> Option<usize> {
        let mut value: Option<usize> = None;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            let so_far = value.unwrap_or(0).checked_mul(10)?;
            value = Some(so_far.checked_add(usize::from(digit - b'0'))?);
            self.at += 1;
        }
        value
    }

    /// `_D` QualifiedName (Type | `Z`). The type is the function's return type or the variable's.
    fn mangled(&mut self, out: &mut String) -> Option<()> {
        if !self.take(b"_D") {
            return None;
        }
        self.qualified(out, Modifiers::Shown)?;
        if self.take(b"Z") {
            return Some(());
        }
        if self.rest().starts_with(b"M") {
            return self.parameters_of_context_function(out);
        }
        let mut discarded = String::new();
        self.parse_type(&mut discarded)
    }

    /// Whether a name begins at `at`.
    fn is_name(&self, at: usize) -> bool {
        let rest = self.text.get(at..).unwrap_or_default();
        match rest {
            [b'0'..=b'9', ..] => true,
            [b'_', b'_', b'T' | b'U', ..] => true,
            [b'Q', ..] => {
                let distance = decode_backref(&rest[1..]).map(|(distance, _)| distance);
                let target = distance.and_then(|d| at.checked_sub(d));
                target.is_some_and(|t| self.text[t].is_ascii_digit())
            }
            _ => false,
        }
    }

    /// Names, each with the parameters of a function if it is one.
    fn qualified(&mut self, out: &mut String, modifiers: Modifiers) -> Option<()> {
        self.budget.enter()?;
        let mut count = 0;
        loop {
            self.budget.spend(1)?;
            // Anonymous scopes.
            if self.peek() == Some(b'0') {
                while self.take(b"0") {}
            } else {
                if count > 0 {
                    self.push(out, ".")?;
                }
                count += 1;
                self.identifier(out)?;
                if self.peek() == Some(b'M') || self.peek().is_some_and(is_convention) {
                    self.parameters_of_name(out, modifiers)?;
                }
            }
            if !self.is_name(self.at) {
                break;
            }
        }
        self.budget.leave();
        Some(())
    }

    /// The parameters after a name. A type may follow it instead: then nothing is consumed.
    fn parameters_of_name(&mut self, out: &mut String, modifiers: Modifiers) -> Option<()> {
        let (start, length) = (self.at, out.len());
        let mut suffix = String::new();
        let mut parsed = Some(());
        if self.take(b"M") {
            parsed = self.type_modifiers(&mut suffix);
        }
        let depth = self.budget.depth();
        let parsed = parsed.and_then(|()| {
            let parts = self.function_without_return()?;
            self.push(out, &parts.parameters)?;
            if modifiers == Modifiers::Shown {
                self.push(out, &suffix)?;
            }
            Some(())
        });
        if self.budget.is_exhausted() {
            return None;
        }
        if parsed.is_none() || self.rest().is_empty() {
            self.at = start;
            out.truncate(length);
            self.budget.restore_depth(depth);
        }
        Some(())
    }

    /// The type of a function with a context (a lambda, for one) that refers back to an earlier type:
    /// appends its parameters. binutils 2.40 does not know these.
    fn parameters_of_context_function(&mut self, out: &mut String) -> Option<()> {
        let mut modifiers = String::new();
        self.at += 1;
        self.type_modifiers(&mut modifiers)?;
        self.type_backref(out, |parser, out| {
            let parts = parser.function_without_return()?;
            parser.push(out, &parts.parameters)?;
            parser.parse_type(&mut String::new())
        })?;
        self.push(out, &modifiers)
    }

    fn identifier(&mut self, out: &mut String) -> Option<()> {
        self.budget.spend(1)?;
        match self.rest() {
            [b'Q', ..] => {
                let target = self.backref()?;
                let back = std::mem::replace(&mut self.at, target);
                let length = self.number()?;
                self.plain_name(out, length)?;
                self.at = back;
                return Some(());
            }
            [b'_', b'_', b'T' | b'U', ..] => return self.template(out, None),
            _ => {}
        }
        let length = self.number().filter(|n| *n > 0)?;
        let name = self.rest().get(..length)?;
        if length >= 5 && (name.starts_with(b"__T") || name.starts_with(b"__U")) {
            return self.template(out, Some(length));
        }
        // This parent only distinguishes declarations of one name in one function.
        let digits = name.strip_prefix(b"__S");
        if digits.is_some_and(|d| !d.is_empty() && d.iter().all(u8::is_ascii_digit)) {
            self.at += length;
            self.budget.enter()?;
            self.identifier(out)?;
            self.budget.leave();
            return Some(());
        }
        self.plain_name(out, length)
    }

    /// A name of `length` bytes; special ones are spelled as in the language.
    fn plain_name(&mut self, out: &mut String, length: usize) -> Option<()> {
        let rest = self.rest();
        let name = rest.get(..length)?;
        let described = match (name, rest.get(length)) {
            (b"__init", Some(b'Z')) => "initializer for ",
            (b"__vtbl", Some(b'Z')) => "vtable for ",
            (b"__Class", Some(b'Z')) => "ClassInfo for ",
            (b"__Interface", Some(b'Z')) => "Interface for ",
            (b"__ModuleInfo", Some(b'Z')) => "ModuleInfo for ",
            _ => "",
        };
        self.at += length;
        if !described.is_empty() {
            self.prepend(out, described)?;
            // The dot before the special name.
            out.pop();
            return Some(());
        }
        match name {
            b"__ctor" => self.push(out, "this"),
            b"__dtor" => self.push(out, "~this"),
            b"__postblit" if rest[length..].starts_with(b"MFZ") => {
                self.at += 3;
                self.push(out, "this(this)")
            }
            _ => self.push_bytes(out, name),
        }
    }

    /// `__T` Name Arguments `Z`, which takes `length` bytes if the length is known.
    fn template(&mut self, out: &mut String, length: Option<usize>) -> Option<()> {
        let start = self.at;
        self.budget.enter()?;
        self.at += 3;
        if !self.is_name(self.at) || self.peek() == Some(b'0') {
            return None;
        }
        self.identifier(out)?;
        let mut arguments = String::new();
        self.template_arguments(&mut arguments)?;
        self.push(out, "!(")?;
        self.push(out, &arguments)?;
        self.push(out, ")")?;
        self.budget.leave();
        let as_long = length.is_none_or(|l| self.at - start == l);
        as_long.then_some(())
    }

    fn template_arguments(&mut self, out: &mut String) -> Option<()> {
        let mut count = 0;
        while self.peek().is_some() {
            if self.take(b"Z") {
                return Some(());
            }
            if count > 0 {
                self.push(out, ", ")?;
            }
            count += 1;
            // A specialised parameter.
            self.take(b"H");
            match self.next()? {
                b'S' => self.symbol_argument(out)?,
                b'T' => self.parse_type(out)?,
                b'V' => self.value_argument(out)?,
                b'X' => {
                    let length = self.number()?;
                    let name = self.rest().get(..length)?;
                    self.at += length;
                    self.push_bytes(out, name)?;
                }
                _ => return None,
            }
        }
        None
    }

    fn value_argument(&mut self, out: &mut String) -> Option<()> {
        let mut kind = self.peek()?;
        if kind == b'Q' {
            let at = self.at;
            let target = self.backref()?;
            kind = self.text[target];
            self.at = at;
        }
        let mut type_name = String::new();
        self.parse_type(&mut type_name)?;
        self.value(out, &type_name, kind)
    }

    /// A template argument that is a symbol. Compilers before 2.077 put its length before it; the
    /// digits may run into those of the name's own length.
    fn symbol_argument(&mut self, out: &mut String) -> Option<()> {
        if self.rest().starts_with(b"_D") && self.is_name(self.at + 2) {
            return self.mangled(out);
        }
        if self.peek() == Some(b'Q') {
            return self.qualified(out, Modifiers::Hidden);
        }
        let start = self.at;
        let whole = self.number().filter(|n| *n > 0)?;
        let end = self.at;
        let length = out.len();
        let depth = self.budget.depth();
        let mut size = whole;
        for digits in (1..=(end - start).min(MAX_LENGTH_DIGITS)).rev() {
            let from = start + digits;
            let fits = self.symbol_at(out, from).is_some() && self.at - from == size;
            if fits {
                return Some(());
            }
            out.truncate(length);
            self.budget.restore_depth(depth);
            size /= 10;
        }
        // No length at all.
        self.symbol_at(out, start)
    }

    fn symbol_at(&mut self, out: &mut String, at: usize) -> Option<()> {
        self.at = at;
        if self.is_name(at) {
            self.qualified(out, Modifiers::Hidden)
        } else if self.rest().starts_with(b"_D") && self.is_name(at + 2) {
            self.mangled(out)
        } else {
            None
        }
    }

    /// Consumes `Q` and its distance. Returns the offset that it refers to.
    fn backref(&mut self) -> Option<usize> {
        let at = self.at;
        if !self.take(b"Q") {
            return None;
        }
        let (distance, length) = decode_backref(self.rest())?;
        self.at += length;
        at.checked_sub(distance)
    }
}

/// Decodes a distance in base 26: capital letters, then a small one. Returns it and its length.
fn decode_backref(text: &[u8]) -> Option<(usize, usize)> {
    let mut value: usize = 0;
    for (i, byte) in text.iter().enumerate() {
        value = value.checked_mul(26)?;
        match byte {
            b'a'..=b'z' => {
                value = value.checked_add(usize::from(byte - b'a'))?;
                return (value > 0).then_some((value, i + 1));
            }
            b'A'..=b'Z' => value = value.checked_add(usize::from(byte - b'A'))?,
            _ => return None,
        }
    }
    None
}

/// Whether a calling convention begins with `byte`.
fn is_convention(byte: u8) -> bool {
    matches!(byte, b'F' | b'U' | b'V' | b'W' | b'R' | b'Y')
}
