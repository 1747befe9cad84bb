//! Demangles Nim names, which are C names: `fooBar__tables_u12` is `tables.fooBar`.
//!
//! Nim 1.4 and later append the module, with `Z` between folders, and a number. Earlier compilers
//! append a hash of the signature, which does not tell the module.

use wallscope_binfmt::elf::{Elf, SymbolTable};

use super::origin::Origin;

/// Every program and library of Nim has this function.
const NIM_MAIN: &[u8] = b"NimMain";
/// Characters of a hash in base 64, in which some digits are written with two characters.
const HASH_LENGTH: std::ops::RangeInclusive<usize> = 20..=32;

/// Characters of operators, by the words that encode them.
const OPERATORS: &[(&str, char)] = &[
    ("backslash", '\\'),
    ("percent", '%'),
    ("dollar", '$'),
    ("emark", '!'),
    ("qmark", '?'),
    ("minus", '-'),
    ("slash", '/'),
    ("tilde", '~'),
    ("colon", ':'),
    ("roof", '^'),
    ("star", '*'),
    ("plus", '+'),
    ("amp", '&'),
    ("dot", '.'),
    ("bar", '|'),
    ("eq", '='),
    ("lt", '<'),
    ("gt", '>'),
    ("at", '@'),
];

/// Whether a symbol shows that its module was made by Nim.
pub(crate) fn shows_nim(symbol: &[u8]) -> bool {
    symbol == NIM_MAIN
}

/// Returns the origin of a file's names, by its symbol tables.
pub fn name_origin(elf: &Elf<'_>) -> Origin {
    let mut tables = [SymbolTable::Static, SymbolTable::Dynamic].into_iter();
    match tables.any(|table| elf.symbols(table).any(|s| shows_nim(s.name))) {
        true => Origin::Nim,
        false => Origin::Native,
    }
}

/// Returns `module.name` for a symbol of a Nim program; `None` if it is no name of Nim.
pub(super) fn demangle(symbol: &str) -> Option<String> {
    // Copies that the C compiler makes have a suffix (`.part.0`).
    let (symbol, clone) = symbol.split_at(symbol.find('.').unwrap_or(symbol.len()));
    // `mul___alpha_3`: a name that ends in an underscore, and the separator.
    let at = symbol.rfind("__")?;
    let (name, end) = (&symbol[..at], &symbol[at + 2..]);
    let name = Some(spelled(name)).filter(|n| !n.is_empty())?;
    let shown = match module(end) {
        Some(module) => format!("{module}.{name}"),
        None if is_hash(end) => name,
        None => return None,
    };
    Some(match clone {
        "" => shown,
        clone => format!("{shown} [clone {clone}]"),
    })
}

/// The last part of a module's path, if `end` is one and a number (`pureZos_12`, `tables_u12`).
fn module(end: &str) -> Option<String> {
    let (path, number) = end.rsplit_once('_')?;
    let digits = number.strip_prefix('u').unwrap_or(number);
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let is_path = path.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let last = path.rsplit('Z').next()?;
    let begins = last.starts_with(|c: char| c.is_ascii_alphabetic());
    (is_number && is_path && begins).then(|| last.to_owned())
}

/// Whether `end` is the hash of a signature, perhaps with a number.
fn is_hash(end: &str) -> bool {
    let hash = end.split('_').next().unwrap_or(end);
    let has = |class: fn(&u8) -> bool| hash.bytes().any(|b| class(&b));
    HASH_LENGTH.contains(&hash.len())
        && hash.bytes().all(|b| b.is_ascii_alphanumeric())
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
}

/// A name as in source. A mangled name ends in an underscore only if the source name has characters other
/// than letters, digits and underscores. These are written as words (`plus`) or in hexadecimal (`X5B`).
fn spelled(mangled: &str) -> String {
    let Some(mut rest) = mangled.strip_suffix('_') else {
        return mangled.to_owned();
    };
    let mut name = String::new();
    while !rest.is_empty() {
        if let Some((c, left)) = special(rest) {
            name.push(c);
            rest = left;
        } else if name.chars().all(|c| c == ':') && !name.is_empty() {
            // A name that the compiler made: `:anonymous`.
            name.push_str(rest);
            rest = "";
        } else if let Some(setter) = rest.strip_suffix("eq").filter(|_| name.is_empty()) {
            name.push_str(setter);
            name.push('=');
            rest = "";
        } else {
            return mangled.to_owned();
        }
    }
    name
}

fn special(text: &str) -> Option<(char, &str)> {
    if let Some(code) = text.strip_prefix('X').and_then(|t| t.get(..2)) {
        let byte = u8::from_str_radix(code, 16)
            .ok()
            .filter(u8::is_ascii_graphic)?;
        return Some((char::from(byte), &text[3..]));
    }
    let word = OPERATORS.iter().find(|(word, _)| text.starts_with(word));
    word.map(|(word, c)| (*c, &text[word.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nim_names() {
        for (symbol, name) in [
            ("fooBar__alpha_25", "alpha.fooBar"),
            ("fooBar__alpha_u25", "alpha.fooBar"),
            (
                "addCallback__pureZasyncfutures_212",
                "asyncfutures.addCallback",
            ),
            ("X5BX5Deq___alpha_99", "alpha.[]="),
            ("amp___pureZasyncdispatch_3157", "asyncdispatch.&"),
            ("pluseqplus___alpha_4", "alpha.+=+"),
            ("colonanonymous___alpha_1515", "alpha.:anonymous"),
            ("valueeq___my_module_7", "my_module.value="),
            (
                "copyString__system_1.part.0",
                "system.copyString [clone .part.0]",
            ),
            ("fooBar__9b5KvZ0aXb9cXJpQ2LmN0Rw", "fooBar"),
        ] {
            assert_eq!(demangle(symbol).as_deref(), Some(name), "{symbol}");
        }
        for symbol in [
            "NimMain",
            "__do_global_dtors_aux",
            "foo__bar",
            "a__b_c",
            "__x_1",
            "é__",
        ] {
            assert_eq!(demangle(symbol), None, "{symbol}");
        }
    }
}
