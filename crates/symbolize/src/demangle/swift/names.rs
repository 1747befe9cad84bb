//! Identifiers and substitutions of Swift names.

use super::parser::Parser;
use super::punycode;
use super::tree::{Id, Kind};

/// Words of identifiers that later ones may refer to.
const MAX_WORDS: usize = 26;
/// Maximum repetitions of a substitution.
const MAX_REPEAT: usize = 2048;
/// Maximum bytes of an identifier with its words put in.
const MAX_IDENTIFIER: usize = 16 << 10;

impl<'a> Parser<'a> {
    pub(super) fn identifier(&mut self) -> Option<Id> {
        self.peek().filter(u8::is_ascii_digit)?;
        let mut with_words = false;
        if self.take(b'0') {
            if self.take(b'0') {
                let name = self.punycoded()?;
                return self.named(name);
            }
            with_words = true;
        }
        let mut name = String::new();
        loop {
            while let Some(letter) = self
                .peek()
                .filter(|b| with_words && b.is_ascii_alphabetic())
            {
                self.at += 1;
                with_words = letter.is_ascii_lowercase();
                let word = usize::from(letter.to_ascii_lowercase() - b'a');
                name.push_str(self.words.get(word)?);
                if name.len() > MAX_IDENTIFIER {
                    return None;
                }
            }
            if self.take(b'0') {
                break;
            }
            let length = self.natural()?;
            let literal = self.literal(length)?;
            self.enter_words(literal);
            name.push_str(literal);
            if !with_words {
                break;
            }
        }
        self.named(name)
    }

    fn named(&mut self, name: String) -> Option<Id> {
        if name.is_empty() {
            return None;
        }
        let identifier = self.make(Kind::Identifier, name, Vec::new());
        self.substitutable(identifier)
    }

    /// Consumes `length` bytes.
    pub(super) fn literal(&mut self, length: usize) -> Option<&'a str> {
        let end = self.at.checked_add(length).filter(|_| length > 0)?;
        let literal = self.text.get(self.at..end)?;
        self.at = end;
        std::str::from_utf8(literal).ok()
    }

    fn punycoded(&mut self) -> Option<String> {
        let length = self.natural()?;
        self.take(b'_');
        punycode::decode(self.literal(length)?)
    }

    /// Enters the words of `literal`: they begin at capital letters and after underscores.
    fn enter_words(&mut self, literal: &str) {
        let bytes = literal.as_bytes();
        let mut start: Option<usize> = None;
        for i in 0..=bytes.len() {
            let byte = bytes.get(i).copied().unwrap_or(b'_');
            let capital = byte.is_ascii_uppercase() && i > 0 && !bytes[i - 1].is_ascii_uppercase();
            if let Some(from) = start
                && (byte == b'_' || capital)
            {
                let word = literal.get(from..i).filter(|w| w.len() >= 2);
                if let Some(word) = word.filter(|_| self.words.len() < MAX_WORDS) {
                    self.words.push(word.to_owned());
                }
                start = None;
            }
            if start.is_none() && byte != b'_' && !byte.is_ascii_digit() {
                start = Some(i);
            }
        }
    }

    /// `A`: one or several earlier nodes; the last one is the operator's result.
    pub(super) fn multiple_substitutions(&mut self) -> Option<Id> {
        let mut repeat: Option<usize> = None;
        loop {
            let letter = self.next()?;
            match letter {
                b'a'..=b'z' => {
                    let node = self.repeated(repeat, usize::from(letter - b'a'))?;
                    self.push(node)?;
                    repeat = None;
                }
                b'A'..=b'Z' => return self.repeated(repeat, usize::from(letter - b'A')),
                // The number is not a count but a large index.
                b'_' => {
                    let index = repeat.map_or(26, |r| r + 27);
                    return self.substitutions.get(index).copied();
                }
                _ => {
                    self.at -= 1;
                    repeat = Some(self.natural()?);
                }
            }
        }
    }

    fn repeated(&mut self, repeat: Option<usize>, index: usize) -> Option<Id> {
        let node = *self.substitutions.get(index)?;
        let count = repeat.unwrap_or(1);
        if count > MAX_REPEAT {
            return None;
        }
        for _ in 1..count {
            self.push(node)?;
        }
        Some(node)
    }

    pub(super) fn standard_substitution(&mut self) -> Option<Id> {
        match self.next()? {
            b'o' => return self.make(Kind::Module, "__C", Vec::new()),
            b'C' => return self.make(Kind::Module, "__C_Synthesized", Vec::new()),
            b'g' => {
                let wrapped = self.pop(Kind::Type)?;
                let optional = self.swift_type(Kind::Enum, "Optional")?;
                let ty = self.make_type(Kind::BoundGeneric, "", vec![optional, wrapped]);
                return self.substitutable(ty);
            }
            _ => self.at -= 1,
        }
        let repeat = self.natural().unwrap_or(1);
        if repeat > MAX_REPEAT {
            return None;
        }
        let concurrency = self.take(b'c');
        let letter = self.next()?;
        let table = if concurrency { CONCURRENCY } else { STANDARD };
        let (_, kind, name) = table.iter().find(|(l, ..)| *l == letter)?;
        let ty = self.swift_type(*kind, name)?;
        for _ in 1..repeat {
            self.push(ty)?;
        }
        Some(ty)
    }

    fn swift_type(&mut self, kind: Kind, name: &'static str) -> Option<Id> {
        let module = self.make(Kind::Module, "Swift", Vec::new())?;
        let name = self.make(Kind::Identifier, name, Vec::new())?;
        self.make_type(kind, "", vec![module, name])
    }

    /// The name of an operator, with its characters encoded as letters.
    pub(super) fn operator_name(&mut self) -> Option<Id> {
        const CHARACTERS: &[u8; 26] = b"& @/= >    <*!|+?%-~   ^ .";
        let identifier = self.pop(Kind::Identifier)?;
        let mut name = String::new();
        for c in self.tree.get(identifier).text.chars() {
            match c {
                'a'..='z' => match CHARACTERS[c as usize - 'a' as usize] {
                    b' ' => return None,
                    character => name.push(char::from(character)),
                },
                c if c.is_ascii() => return None,
                c => name.push(c),
            }
        }
        name.push_str(match self.next()? {
            b'i' => " infix",
            b'p' => " prefix",
            b'P' => " postfix",
            _ => return None,
        });
        self.make(Kind::Operator, name, Vec::new())
    }

    pub(super) fn local_name(&mut self) -> Option<Id> {
        if self.take(b'L') {
            let discriminator = self.pop(Kind::Identifier)?;
            let name = self.pop_if(Kind::is_name)?;
            let text = self.tree.get(discriminator).text.clone();
            return self.make(Kind::Private, text, vec![name]);
        }
        if self.take(b'l') {
            let discriminator = self.pop(Kind::Identifier)?;
            let text = self.tree.get(discriminator).text.clone();
            return self.make(Kind::Private, text, Vec::new());
        }
        if let Some(letter @ (b'a'..=b'j' | b'A'..=b'J')) = self.peek() {
            self.at += 1;
            let name = self.pop_if(Kind::is_name)?;
            return self.make(Kind::Related, char::from(letter).to_string(), vec![name]);
        }
        let number = self.index()?;
        let name = self.pop_if(Kind::is_name)?;
        self.make_numbered(Kind::Local, "", number, vec![name])
    }
}

/// Types with a letter of their own: letter, kind, name.
const STANDARD: &[(u8, Kind, &str)] = &[
    (b'A', Kind::Struct, "AutoreleasingUnsafeMutablePointer"),
    (b'a', Kind::Struct, "Array"),
    (b'B', Kind::Protocol, "BinaryFloatingPoint"),
    (b'b', Kind::Struct, "Bool"),
    (b'D', Kind::Struct, "Dictionary"),
    (b'd', Kind::Struct, "Double"),
    (b'E', Kind::Protocol, "Encodable"),
    (b'e', Kind::Protocol, "Decodable"),
    (b'F', Kind::Protocol, "FloatingPoint"),
    (b'f', Kind::Struct, "Float"),
    (b'G', Kind::Protocol, "RandomNumberGenerator"),
    (b'H', Kind::Protocol, "Hashable"),
    (b'h', Kind::Struct, "Set"),
    (b'I', Kind::Struct, "DefaultIndices"),
    (b'i', Kind::Struct, "Int"),
    (b'J', Kind::Struct, "Character"),
    (b'j', Kind::Protocol, "Numeric"),
    (b'K', Kind::Protocol, "BidirectionalCollection"),
    (b'k', Kind::Protocol, "RandomAccessCollection"),
    (b'L', Kind::Protocol, "Comparable"),
    (b'l', Kind::Protocol, "Collection"),
    (b'M', Kind::Protocol, "MutableCollection"),
    (b'm', Kind::Protocol, "RangeReplaceableCollection"),
    (b'N', Kind::Struct, "ClosedRange"),
    (b'n', Kind::Struct, "Range"),
    (b'O', Kind::Struct, "ObjectIdentifier"),
    (b'P', Kind::Struct, "UnsafePointer"),
    (b'p', Kind::Struct, "UnsafeMutablePointer"),
    (b'Q', Kind::Protocol, "Equatable"),
    (b'q', Kind::Enum, "Optional"),
    (b'R', Kind::Struct, "UnsafeBufferPointer"),
    (b'r', Kind::Struct, "UnsafeMutableBufferPointer"),
    (b'S', Kind::Struct, "String"),
    (b's', Kind::Struct, "Substring"),
    (b'T', Kind::Protocol, "Sequence"),
    (b't', Kind::Protocol, "IteratorProtocol"),
    (b'U', Kind::Protocol, "UnsignedInteger"),
    (b'u', Kind::Struct, "UInt"),
    (b'V', Kind::Struct, "UnsafeRawPointer"),
    (b'v', Kind::Struct, "UnsafeMutableRawPointer"),
    (b'W', Kind::Struct, "UnsafeRawBufferPointer"),
    (b'w', Kind::Struct, "UnsafeMutableRawBufferPointer"),
    (b'X', Kind::Protocol, "RangeExpression"),
    (b'x', Kind::Protocol, "Strideable"),
    (b'Y', Kind::Protocol, "RawRepresentable"),
    (b'y', Kind::Protocol, "StringProtocol"),
    (b'Z', Kind::Protocol, "SignedInteger"),
    (b'z', Kind::Protocol, "BinaryInteger"),
];

/// Types of the concurrency library with a letter of their own.
const CONCURRENCY: &[(u8, Kind, &str)] = &[
    (b'A', Kind::Protocol, "Actor"),
    (b'C', Kind::Struct, "CheckedContinuation"),
    (b'c', Kind::Struct, "UnsafeContinuation"),
    (b'E', Kind::Struct, "CancellationError"),
    (b'e', Kind::Struct, "UnownedSerialExecutor"),
    (b'F', Kind::Protocol, "Executor"),
    (b'f', Kind::Protocol, "SerialExecutor"),
    (b'G', Kind::Struct, "TaskGroup"),
    (b'g', Kind::Struct, "ThrowingTaskGroup"),
    (b'h', Kind::Protocol, "TaskExecutor"),
    (b'I', Kind::Protocol, "AsyncIteratorProtocol"),
    (b'i', Kind::Protocol, "AsyncSequence"),
    (b'J', Kind::Struct, "UnownedJob"),
    (b'M', Kind::Class, "MainActor"),
    (b'P', Kind::Struct, "TaskPriority"),
    (b'S', Kind::Struct, "AsyncStream"),
    (b's', Kind::Struct, "AsyncThrowingStream"),
    (b'T', Kind::Struct, "Task"),
    (b't', Kind::Struct, "UnsafeCurrentTask"),
];
