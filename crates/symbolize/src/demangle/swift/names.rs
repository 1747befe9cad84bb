//! Identifiers and substitutions of Swift names.

use super::parser::Parser;
use super::punycode;
use super::tree::{Id, NodeKind};

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
        let identifier = self.make(NodeKind::Identifier, name, Vec::new());
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
            b'o' => return self.make(NodeKind::Module, "__C", Vec::new()),
            b'C' => return self.make(NodeKind::Module, "__C_Synthesized", Vec::new()),
            b'g' => {
                let wrapped = self.pop(NodeKind::Type)?;
                let optional = self.swift_type(NodeKind::Enum, "Optional")?;
                let ty = self.make_type(NodeKind::BoundGeneric, "", vec![optional, wrapped]);
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

    fn swift_type(&mut self, kind: NodeKind, name: &'static str) -> Option<Id> {
        let module = self.make(NodeKind::Module, "Swift", Vec::new())?;
        let name = self.make(NodeKind::Identifier, name, Vec::new())?;
        self.make_type(kind, "", vec![module, name])
    }

    /// The name of an operator, with its characters encoded as letters.
    pub(super) fn operator_name(&mut self) -> Option<Id> {
        const CHARACTERS: &[u8; 26] = b"& @/= >    <*!|+?%-~   ^ .";
        let identifier = self.pop(NodeKind::Identifier)?;
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
        self.make(NodeKind::Operator, name, Vec::new())
    }

    pub(super) fn local_name(&mut self) -> Option<Id> {
        if self.take(b'L') {
            let discriminator = self.pop(NodeKind::Identifier)?;
            let name = self.pop_if(NodeKind::is_name)?;
            let text = self.tree.get(discriminator).text.clone();
            return self.make(NodeKind::Private, text, vec![name]);
        }
        if self.take(b'l') {
            let discriminator = self.pop(NodeKind::Identifier)?;
            let text = self.tree.get(discriminator).text.clone();
            return self.make(NodeKind::Private, text, Vec::new());
        }
        if let Some(letter @ (b'a'..=b'j' | b'A'..=b'J')) = self.peek() {
            self.at += 1;
            let name = self.pop_if(NodeKind::is_name)?;
            return self.make(
                NodeKind::Related,
                char::from(letter).to_string(),
                vec![name],
            );
        }
        let number = self.index()?;
        let name = self.pop_if(NodeKind::is_name)?;
        self.make_numbered(NodeKind::Local, "", number, vec![name])
    }
}

/// Types with a letter of their own: letter, kind, name.
const STANDARD: &[(u8, NodeKind, &str)] = &[
    (b'A', NodeKind::Struct, "AutoreleasingUnsafeMutablePointer"),
    (b'a', NodeKind::Struct, "Array"),
    (b'B', NodeKind::Protocol, "BinaryFloatingPoint"),
    (b'b', NodeKind::Struct, "Bool"),
    (b'D', NodeKind::Struct, "Dictionary"),
    (b'd', NodeKind::Struct, "Double"),
    (b'E', NodeKind::Protocol, "Encodable"),
    (b'e', NodeKind::Protocol, "Decodable"),
    (b'F', NodeKind::Protocol, "FloatingPoint"),
    (b'f', NodeKind::Struct, "Float"),
    (b'G', NodeKind::Protocol, "RandomNumberGenerator"),
    (b'H', NodeKind::Protocol, "Hashable"),
    (b'h', NodeKind::Struct, "Set"),
    (b'I', NodeKind::Struct, "DefaultIndices"),
    (b'i', NodeKind::Struct, "Int"),
    (b'J', NodeKind::Struct, "Character"),
    (b'j', NodeKind::Protocol, "Numeric"),
    (b'K', NodeKind::Protocol, "BidirectionalCollection"),
    (b'k', NodeKind::Protocol, "RandomAccessCollection"),
    (b'L', NodeKind::Protocol, "Comparable"),
    (b'l', NodeKind::Protocol, "Collection"),
    (b'M', NodeKind::Protocol, "MutableCollection"),
    (b'm', NodeKind::Protocol, "RangeReplaceableCollection"),
    (b'N', NodeKind::Struct, "ClosedRange"),
    (b'n', NodeKind::Struct, "Range"),
    (b'O', NodeKind::Struct, "ObjectIdentifier"),
    (b'P', NodeKind::Struct, "UnsafePointer"),
    (b'p', NodeKind::Struct, "UnsafeMutablePointer"),
    (b'Q', NodeKind::Protocol, "Equatable"),
    (b'q', NodeKind::Enum, "Optional"),
    (b'R', NodeKind::Struct, "UnsafeBufferPointer"),
    (b'r', NodeKind::Struct, "UnsafeMutableBufferPointer"),
    (b'S', NodeKind::Struct, "String"),
    (b's', NodeKind::Struct, "Substring"),
    (b'T', NodeKind::Protocol, "Sequence"),
    (b't', NodeKind::Protocol, "IteratorProtocol"),
    (b'U', NodeKind::Protocol, "UnsignedInteger"),
    (b'u', NodeKind::Struct, "UInt"),
    (b'V', NodeKind::Struct, "UnsafeRawPointer"),
    (b'v', NodeKind::Struct, "UnsafeMutableRawPointer"),
    (b'W', NodeKind::Struct, "UnsafeRawBufferPointer"),
    (b'w', NodeKind::Struct, "UnsafeMutableRawBufferPointer"),
    (b'X', NodeKind::Protocol, "RangeExpression"),
    (b'x', NodeKind::Protocol, "Strideable"),
    (b'Y', NodeKind::Protocol, "RawRepresentable"),
    (b'y', NodeKind::Protocol, "StringProtocol"),
    (b'Z', NodeKind::Protocol, "SignedInteger"),
    (b'z', NodeKind::Protocol, "BinaryInteger"),
];

/// Types of the concurrency library with a letter of their own.
const CONCURRENCY: &[(u8, NodeKind, &str)] = &[
    (b'A', NodeKind::Protocol, "Actor"),
    (b'C', NodeKind::Struct, "CheckedContinuation"),
    (b'c', NodeKind::Struct, "UnsafeContinuation"),
    (b'E', NodeKind::Struct, "CancellationError"),
    (b'e', NodeKind::Struct, "UnownedSerialExecutor"),
    (b'F', NodeKind::Protocol, "Executor"),
    (b'f', NodeKind::Protocol, "SerialExecutor"),
    (b'G', NodeKind::Struct, "TaskGroup"),
    (b'g', NodeKind::Struct, "ThrowingTaskGroup"),
    (b'h', NodeKind::Protocol, "TaskExecutor"),
    (b'I', NodeKind::Protocol, "AsyncIteratorProtocol"),
    (b'i', NodeKind::Protocol, "AsyncSequence"),
    (b'J', NodeKind::Struct, "UnownedJob"),
    (b'M', NodeKind::Class, "MainActor"),
    (b'P', NodeKind::Struct, "TaskPriority"),
    (b'S', NodeKind::Struct, "AsyncStream"),
    (b's', NodeKind::Struct, "AsyncThrowingStream"),
    (b'T', NodeKind::Struct, "Task"),
    (b't', NodeKind::Struct, "UnsafeCurrentTask"),
];
