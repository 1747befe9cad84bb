//! Values of template arguments in D names.

use super::Parser;

impl Parser<'_> {
    /// Consumes a value of a type that begins with `kind` and is called `type_name`.
    pub(super) fn value(&mut self, out: &mut String, type_name: &str, kind: u8) -> Option<()> {
        self.budget.enter()?;
        match self.peek()? {
            b'n' => {
                self.at += 1;
                self.push(out, "null")?;
            }
            b'N' => {
                self.at += 1;
                self.push(out, "-")?;
                self.integer(out, kind)?;
            }
            b'i' => {
                self.at += 1;
                self.peek().filter(u8::is_ascii_digit)?;
                self.integer(out, kind)?;
            }
            b'0'..=b'9' => self.integer(out, kind)?,
            b'e' => {
                self.at += 1;
                self.real(out)?;
            }
            b'c' => {
                self.at += 1;
                self.real(out)?;
                self.push(out, "+")?;
                if !self.take(b"c") {
                    return None;
                }
                self.real(out)?;
                self.push(out, "i")?;
            }
            b'a' | b'w' | b'd' => self.string(out)?,
            b'A' => {
                self.at += 1;
                self.elements(out, kind)?;
            }
            b'S' => {
                self.at += 1;
                self.structure(out, type_name)?;
            }
            b'f' => {
                self.at += 1;
                if !self.is_name(self.at + 2) {
                    return None;
                }
                self.mangled(out)?;
            }
            _ => return None,
        }
        self.budget.leave();
        Some(())
    }

    /// Elements of an array or associative array.
    fn elements(&mut self, out: &mut String, kind: u8) -> Option<()> {
        let count = self.number()?;
        self.push(out, "[")?;
        for i in 0..count {
            if i > 0 {
                self.push(out, ", ")?;
            }
            self.value(out, "", 0)?;
            if kind == b'H' {
                self.push(out, ":")?;
                self.value(out, "", 0)?;
            }
        }
        self.push(out, "]")
    }

    fn structure(&mut self, out: &mut String, type_name: &str) -> Option<()> {
        let count = self.number()?;
        self.push(out, type_name)?;
        self.push(out, "(")?;
        for i in 0..count {
            if i > 0 {
                self.push(out, ", ")?;
            }
            self.value(out, "", 0)?;
        }
        self.push(out, ")")
    }

    fn integer(&mut self, out: &mut String, kind: u8) -> Option<()> {
        let start = self.at;
        if matches!(kind, b'a' | b'u' | b'w') {
            let value = self.number()?;
            let text = match (kind, u8::try_from(value)) {
                (b'a', Ok(c @ 0x20..0x7f)) => char::from(c).to_string(),
                (b'a', _) => format!("\\x{value:02x}"),
                (b'u', _) => format!("\\u{value:04x}"),
                _ => format!("\\U{value:08x}"),
            };
            return self.push(out, &format!("'{text}'"));
        }
        if kind == b'b' {
            let value = self.number()?;
            return self.push(out, if value != 0 { "true" } else { "false" });
        }
        let digits = self.rest().iter().take_while(|b| b.is_ascii_digit());
        self.at += digits.count();
        let text = &self.text[start..self.at];
        self.push_bytes(out, text)?;
        let suffix = match kind {
            b'h' | b't' | b'k' => "u",
            b'l' => "L",
            b'm' => "uL",
            _ => "",
        };
        self.push(out, suffix)
    }

    /// A floating-point number in hexadecimal.
    fn real(&mut self, out: &mut String) -> Option<()> {
        for (mangled, name) in [(&b"NAN"[..], "NaN"), (b"INF", "Inf"), (b"NINF", "-Inf")] {
            if self.take(mangled) {
                return self.push(out, name);
            }
        }
        if self.take(b"N") {
            self.push(out, "-")?;
        }
        let first = self.next().filter(u8::is_ascii_hexdigit)?;
        self.push(out, "0x")?;
        self.push_bytes(out, &[first])?;
        self.push(out, ".")?;
        let length = self.rest().iter().take_while(|b| b.is_ascii_hexdigit());
        let digits = &self.rest()[..length.count()];
        self.at += digits.len();
        self.push_bytes(out, digits)?;
        if !self.take(b"P") {
            return None;
        }
        self.push(out, "p")?;
        if self.take(b"N") {
            self.push(out, "-")?;
        }
        let length = self.rest().iter().take_while(|b| b.is_ascii_digit());
        let digits = &self.rest()[..length.count()];
        self.at += digits.len();
        self.push_bytes(out, digits)
    }

    /// A string: its kind, length and `_`, then its bytes in hexadecimal.
    fn string(&mut self, out: &mut String) -> Option<()> {
        let kind = self.next()?;
        let length = self.number()?;
        if !self.take(b"_") {
            return None;
        }
        self.push(out, "\"")?;
        for _ in 0..length {
            let pair = self.rest().get(..2)?;
            let digits = std::str::from_utf8(pair).ok()?;
            let byte = u8::from_str_radix(digits, 16).ok()?;
            self.at += 2;
            match byte {
                b'\t' => self.push(out, "\\t")?,
                b'\n' => self.push(out, "\\n")?,
                b'\r' => self.push(out, "\\r")?,
                0x0c => self.push(out, "\\f")?,
                0x0b => self.push(out, "\\v")?,
                0x20..0x7f => self.push(out, char::from(byte).encode_utf8(&mut [0; 4]))?,
                _ => {
                    self.push(out, "\\x")?;
                    self.push(out, digits)?;
                }
            }
        }
        self.push(out, "\"")?;
        match kind {
            b'a' => Some(()),
            _ => self.push(out, char::from(kind).encode_utf8(&mut [0; 4])),
        }
    }
}
