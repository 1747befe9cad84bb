//! Operators on whole declarations: metadata, witnesses, thunks and attributes of functions.

use Operand::{
    Any, Associated, Conformance, Context, Entity, Name, Nominal, Path, Protocol, Signature, Type,
};

use super::parser::Parser;
use super::tree::{Id, NodeKind};

/// An operand that an operator takes from the stack.
#[derive(Clone, Copy)]
enum Operand {
    Type,
    Nominal,
    Entity,
    Context,
    Protocol,
    Conformance,
    Name,
    /// Name of an associated type.
    Associated,
    /// Several of them.
    Path,
    Any,
    /// A generic signature, if there is one. It is not shown.
    Signature,
}

/// Letters, operands from the top of the stack down, and text, with `{0}` for the first operand.
type Operation = (&'static str, &'static [Operand], &'static str);

#[rustfmt::skip]
const PHRASES: &[Operation] = &[
    ("N", &[Type], "type metadata for {0}"),
    ("Ma", &[Type], "type metadata accessor for {0}"),
    ("MA", &[Conformance], "reflection metadata associated type descriptor {0}"),
    ("Mb", &[Type], "canonical specialized generic type metadata accessor for {0}"),
    ("MB", &[Type], "reflection metadata builtin descriptor {0}"),
    ("Mc", &[Conformance], "protocol conformance descriptor for {0}"),
    ("MC", &[Nominal], "reflection metadata superclass descriptor {0}"),
    ("MD", &[Type], "demangling cache variable for type metadata for {0}"),
    ("Mf", &[Type], "full type metadata for {0}"),
    ("MF", &[Type], "reflection metadata field descriptor {0}"),
    ("Mg", &[Any], "opaque type descriptor accessor for {0}"),
    ("Mh", &[Any], "opaque type descriptor accessor impl for {0}"),
    ("Mi", &[Type], "type metadata instantiation function for {0}"),
    ("MI", &[Type], "type metadata instantiation cache for {0}"),
    ("Mj", &[Any], "opaque type descriptor accessor key for {0}"),
    ("MJ", &[Any], "cache variable for noncanonical specialized generic type metadata for {0}"),
    ("Mk", &[Any], "opaque type descriptor accessor var for {0}"),
    ("MK", &[Any], "metadata instantiation cache for {0}"),
    ("Ml", &[Type], "type metadata singleton initialization cache for {0}"),
    ("ML", &[Type], "lazy cache variable for type metadata for {0}"),
    ("Mm", &[Type], "metaclass for {0}"),
    ("MM", &[Type], "specialized generic metaclass for {0}"),
    ("Mn", &[Type], "nominal type descriptor for {0}"),
    ("MN", &[Type], "noncanonical specialized generic type metadata for {0}"),
    ("Mo", &[Type], "class metadata base offset for {0}"),
    ("Mp", &[Protocol], "protocol descriptor for {0}"),
    ("MP", &[Type], "generic type metadata pattern for {0}"),
    ("Mq", &[Any], "uniquable {0}"),
    ("MQ", &[Any], "opaque type descriptor for {0}"),
    ("Mr", &[Type], "type metadata completion function for {0}"),
    ("Ms", &[Type], "ObjC resilient class stub for {0}"),
    ("MS", &[Protocol], "protocol self-conformance descriptor for {0}"),
    ("Mt", &[Type], "full ObjC resilient class stub for {0}"),
    ("Mu", &[Type], "method lookup function for {0}"),
    ("MU", &[Type], "ObjC metadata update function for {0}"),
    ("MV", &[Entity], "property descriptor for {0}"),
    ("MXE", &[Context], "extension descriptor {0}"),
    ("MXM", &[Context], "module descriptor {0}"),
    ("MXX", &[Context], "anonymous descriptor {0}"),
    ("MXY", &[Any, Context], "anonymous descriptor {1}"),
    ("Mz", &[Type], "flag for loading of canonical specialized generic type metadata for {0}"),
    ("Hc", &[Conformance], "protocol conformance descriptor runtime record for {0}"),
    ("Hn", &[Type], "nominal type descriptor runtime record for {0}"),
    ("Ho", &[Any], "opaque type descriptor runtime record for {0}"),
    ("Hr", &[Protocol], "protocol descriptor runtime record for {0}"),
    ("WC", &[Entity], "enum case for {0}"),
    ("WV", &[Type], "value witness table for {0}"),
    ("Wvd", &[Entity], "direct field offset for {0}"),
    ("Wvi", &[Entity], "indirect field offset for {0}"),
    ("WS", &[Protocol], "protocol self-conformance witness table for {0}"),
    ("WP", &[Conformance], "protocol witness table for {0}"),
    ("Wp", &[Conformance], "protocol witness table pattern for {0}"),
    ("WG", &[Conformance], "generic protocol witness table for {0}"),
    ("WI", &[Conformance], "instantiation function for generic protocol witness table for {0}"),
    ("Wr", &[Conformance], "resilient protocol witness table for {0}"),
    ("Wl", &[Conformance, Type], "lazy protocol witness table accessor for type {1} and conformance {0}"),
    ("WL", &[Conformance, Type], "lazy protocol witness table cache variable for type {1} and conformance {0}"),
    ("Wa", &[Conformance], "protocol witness table accessor for {0}"),
    ("Wt", &[Name, Conformance], "associated type metadata accessor for {0} in {1}"),
    ("WT", &[Type, Path, Conformance], "associated type witness table accessor for {1} : {0} in {2}"),
    ("Wb", &[Type, Conformance], "base witness table accessor for {0} in {1}"),
    ("WOy", &[Signature, Type], "outlined copy of {0}"),
    ("WOe", &[Signature, Type], "outlined consume of {0}"),
    ("WOr", &[Signature, Type], "outlined retain of {0}"),
    ("WOs", &[Signature, Type], "outlined release of {0}"),
    ("WOb", &[Signature, Type], "outlined init with take of {0}"),
    ("WOB", &[Signature, Type], "outlined init with take of {0}"),
    ("WOc", &[Signature, Type], "outlined init with copy of {0}"),
    ("WOC", &[Signature, Type], "outlined init with copy of {0}"),
    ("WOd", &[Signature, Type], "outlined assign with take of {0}"),
    ("WOD", &[Signature, Type], "outlined assign with take of {0}"),
    ("WOf", &[Signature, Type], "outlined assign with copy of {0}"),
    ("WOF", &[Signature, Type], "outlined assign with copy of {0}"),
    ("WOh", &[Signature, Type], "outlined destroy of {0}"),
    ("WOH", &[Signature, Type], "outlined destroy of {0}"),
    ("WOi", &[Signature, Type], "outlined enum tag store of {0}"),
    ("WOj", &[Signature, Type], "outlined enum project data for load of {0}"),
    ("WOg", &[Signature, Type], "outlined enum get tag of {0}"),
    ("Tc", &[Entity], "curry thunk of {0}"),
    ("Tj", &[Entity], "dispatch thunk of {0}"),
    ("Tq", &[Entity], "method descriptor for {0}"),
    ("TTI", &[Entity], "identity thunk of {0}"),
    ("TC", &[Type], "coroutine continuation prototype for {0}"),
    ("TV", &[Entity, Entity], "vtable thunk for {0} dispatching to {1}"),
    ("TW", &[Entity, Conformance], "protocol witness for {0} in conformance {1}"),
    ("TS", &[Entity], "protocol self-conformance witness for {0}"),
    ("TU", &[Type, Any], "{1} with global actor constraint {0}"),
    ("Tl", &[Associated], "associated type descriptor for {0}"),
    ("TL", &[Protocol], "protocol requirements base descriptor for {0}"),
    ("TM", &[Associated], "default associated type metadata accessor for {0}"),
    ("Tn", &[Protocol, Path, Type], "associated conformance descriptor for {2}.{1}: {0}"),
    ("TN", &[Protocol, Path, Type], "default associated conformance accessor for {2}.{1}: {0}"),
    ("Tb", &[Protocol, Type], "base conformance descriptor for {1}: {0}"),
];

/// Letters of attributes, and their text before the function.
const ATTRIBUTES: &[(&str, &str)] = &[
    ("To", "@objc "),
    ("TO", "@nonobjc "),
    ("TD", "dynamic "),
    ("Td", "super "),
    ("TE", "distributed thunk "),
    ("TF", "distributed accessor for "),
    ("Tm", "merged "),
    ("TX", "dynamically replaceable variable for "),
    ("Tx", "dynamically replaceable key for "),
    ("TI", "dynamically replaceable thunk for "),
    ("Tu", "async function pointer to "),
    ("Twb", "back deployment thunk for "),
    ("TwB", "back deployment fallback for "),
    ("Twc", "coro function pointer to "),
    ("Twd", "default override of "),
    ("TwS", "#_hasSymbol query for "),
    ("HF", "accessible function runtime record for "),
];

impl Parser<'_> {
    /// An operator that begins with `first`, which is consumed.
    pub(super) fn operation(&mut self, first: u8) -> Option<Id> {
        let rest = &self.text[self.at - 1..];
        let begins = |letters: &str| rest.starts_with(letters.as_bytes());
        if let Some((letters, text)) = ATTRIBUTES.iter().find(|(l, _)| begins(l)) {
            self.at += letters.len() - 1;
            return self.make(NodeKind::Attribute, *text, Vec::new());
        }
        if let Some((letters, operands, text)) = PHRASES.iter().find(|(l, ..)| begins(l)) {
            self.at += letters.len() - 1;
            return self.phrase(operands, text);
        }
        match first {
            b'T' => self.thunk(),
            b'W' => self.once(),
            _ => None,
        }
    }

    fn phrase(&mut self, operands: &[Operand], text: &'static str) -> Option<Id> {
        let mut children = Vec::with_capacity(operands.len());
        for operand in operands {
            children.push(match operand {
                Type => self.pop(NodeKind::Type)?,
                Nominal => self.pop_nominal()?,
                Entity => self.pop_if(NodeKind::is_entity)?,
                Context => self.pop_context()?,
                Protocol => self.pop_protocol()?,
                Conformance => self.pop_conformance()?,
                Name => self.pop_if(NodeKind::is_name)?,
                Any => self.stack.pop()?,
                Associated => self.associated_name()?,
                Path => self.path()?,
                Signature => {
                    self.pop(NodeKind::Signature);
                    continue;
                }
            });
        }
        self.make(NodeKind::Phrase, text, children)
    }

    /// Pops the path to an associated type.
    fn path(&mut self) -> Option<Id> {
        let mut names = self.associated_path()?;
        names.reverse();
        self.make(NodeKind::PathNames, "", names)
    }

    fn thunk(&mut self) -> Option<Id> {
        match self.next()? {
            letter @ (b'A' | b'a') => {
                let text = match letter {
                    b'A' => "partial apply forwarder",
                    _ => "partial apply ObjC forwarder",
                };
                self.make(NodeKind::Forwarder, text, Vec::new())
            }
            letter @ (b'Q' | b'Y') => {
                let number = self.index()?;
                let event = if letter == b'Q' { "await" } else { "suspend" };
                let text = format!("({number}) {event} resume partial function for ");
                self.make(NodeKind::Attribute, text, Vec::new())
            }
            letter @ (b'R' | b'r' | b'y') => self.reabstraction(letter),
            b'g' => self.specialization("generic specialization"),
            b'G' => self.specialization("generic not re-abstracted specialization"),
            b'B' => self.specialization("generic specialization"),
            b's' => self.specialization("generic pre-specialization"),
            b'i' => self.specialization("inlined generic function"),
            b't' => self.specialization_with_dropped_arguments(),
            b'p' => self.partial_specialization("generic partial specialization"),
            b'P' => self.partial_specialization("generic not-reabstracted partial specialization"),
            b'f' => self.signature_specialization(),
            b'v' => {
                let number = self.index()?;
                let what = match self.take(b'r') {
                    true => "read-only object",
                    false => "variable",
                };
                let text = format!("outlined {what} #{number} of ");
                self.make(NodeKind::Attribute, text, Vec::new())
            }
            b'e' => self.bridged_method(),
            letter @ (b'K' | b'k') => self.key_path(letter),
            letter @ (b'H' | b'h') => self.key_path_operator(letter),
            letter @ (b'z' | b'Z') => self.completion_handler(letter),
            _ => None,
        }
    }

    fn reabstraction(&mut self, letter: u8) -> Option<Id> {
        let signature = self.pop(NodeKind::Signature);
        let receiver = match letter {
            b'y' => Some(self.pop(NodeKind::Type)?),
            _ => None,
        };
        let to = self.pop(NodeKind::Type)?;
        let from = self.pop(NodeKind::Type)?;
        let text = match (letter, signature.is_some()) {
            (b'R', false) => "reabstraction thunk helper from {1} to {0}",
            (b'R', true) => "reabstraction thunk helper {2} from {1} to {0}",
            (b'r', false) => "reabstraction thunk from {1} to {0}",
            (b'r', true) => "reabstraction thunk {2} from {1} to {0}",
            (_, false) => "reabstraction thunk from {1} to {0} self {2}",
            (_, true) => "reabstraction thunk {3} from {1} to {0} self {2}",
        };
        let children = [to, from]
            .into_iter()
            .chain(receiver)
            .chain(signature)
            .collect();
        self.make(NodeKind::Phrase, text, children)
    }

    fn bridged_method(&mut self) -> Option<Id> {
        let start = self.at;
        self.next().filter(|b| b"opam".contains(b))?;
        while let Some(b'n' | b'b' | b'g') = self.peek() {
            self.at += 1;
        }
        let kinds = std::str::from_utf8(&self.text[start..self.at]).ok()?;
        let text = format!("outlined bridged method ({kinds}) of ");
        if !self.take(b'_') {
            return None;
        }
        self.make(NodeKind::Attribute, text, Vec::new())
    }

    /// Pops types while there are some, in their order.
    fn types_before(&mut self) -> Vec<Id> {
        let mut types = Vec::new();
        while let Some(ty) = self.pop(NodeKind::Type) {
            types.push(ty);
        }
        types.reverse();
        types
    }

    fn key_path(&mut self, letter: u8) -> Option<Id> {
        let rest = &self.text[self.at..];
        let text = match (rest, letter) {
            ([b'm', b'u', ..], _) => "key path unapplied method ",
            ([b'M', b'A', ..], _) => "key path applied method ",
            (_, b'K') => "key path getter for ",
            _ => "key path setter for ",
        };
        if text.ends_with("method ") {
            self.at += 2;
        }
        let serialized = if self.take(b'q') { ", serialized" } else { "" };
        let types = self.types_before();
        if types.is_empty() {
            return None;
        }
        let signature = self.pop(NodeKind::Signature);
        let declaration = self.stack.pop()?;
        let count = types.len() + usize::from(signature.is_some());
        let operands: String = (1..=count).map(|i| format!("{{{i}}}")).collect();
        let text = format!("{text}{{0}} : {operands}{serialized}");
        let children = [declaration].into_iter().chain(signature).chain(types);
        self.make(NodeKind::Phrase, text, children.collect())
    }

    fn key_path_operator(&mut self, letter: u8) -> Option<Id> {
        let serialized = self.take(b'q');
        let signature = self.pop(NodeKind::Signature);
        let types = self.types_before();
        if serialized || !self.stack.is_empty() || types.len() > 9 {
            return None;
        }
        let operator = if letter == b'H' { "equality" } else { "hash" };
        let places: Vec<_> = (0..types.len()).map(|i| format!("{{{i}}}")).collect();
        let generics = match signature {
            Some(_) => format!("{{{}}}", types.len()),
            None => String::new(),
        };
        let places = places.join(", ");
        let text = format!("key path index {operator} operator for {generics}({places})");
        let children = types.into_iter().chain(signature).collect();
        self.make(NodeKind::Phrase, text, children)
    }

    fn completion_handler(&mut self, letter: u8) -> Option<Id> {
        let suffix = match self.index()? {
            0 => "",
            1 => " nonzero on error",
            2 => " zero on error",
            _ => return None,
        };
        let signature = self.pop(NodeKind::Signature);
        let result = self.pop(NodeKind::Type)?;
        let lowered = self.pop(NodeKind::Type)?;
        let checked = if letter == b'Z' { "checked " } else { "" };
        let generics = if signature.is_some() { "{2}" } else { "" };
        let text = format!(
            "{checked}@objc completion handler block implementation for {generics}{{0}} with \
             result type {{1}}{suffix}"
        );
        let children = [lowered, result].into_iter().chain(signature).collect();
        self.make(NodeKind::Phrase, text, children)
    }

    /// `WZ` and `Wz`: the initialisation of global variables.
    fn once(&mut self) -> Option<Id> {
        let what = match self.next()? {
            b'Z' => "function",
            b'z' => "token",
            _ => return None,
        };
        let mut names = Vec::new();
        while self.pop_mark(NodeKind::FirstElement) {
            names.push(self.pop_if(NodeKind::is_name)?);
        }
        names.reverse();
        self.pop_context()?;
        let places: Vec<_> = (0..names.len()).map(|i| format!("{{{i}}}")).collect();
        let places = match places.as_slice() {
            [] => return None,
            [one] => one.clone(),
            _ if places.len() > 9 => return None,
            _ => format!("({})", places.join(", ")),
        };
        let text = format!("one-time initialization {what} for {places}");
        self.make(NodeKind::Phrase, text, names)
    }

    pub(super) fn value_witness(&mut self) -> Option<Id> {
        let code = [self.next()?, self.next()?];
        let witness = match &code {
            b"al" => "allocateBuffer",
            b"ca" => "assignWithCopy",
            b"ta" => "assignWithTake",
            b"de" => "deallocateBuffer",
            b"xx" => "destroy",
            b"XX" => "destroyBuffer",
            b"Xx" => "destroyArray",
            b"CP" => "initializeBufferWithCopyOfBuffer",
            b"Cp" => "initializeBufferWithCopy",
            b"cp" => "initializeWithCopy",
            b"TK" => "initializeBufferWithTakeOfBuffer",
            b"Tk" => "initializeBufferWithTake",
            b"tk" => "initializeWithTake",
            b"pr" => "projectBuffer",
            b"xs" => "storeExtraInhabitant",
            b"xg" => "getExtraInhabitantIndex",
            b"Cc" => "initializeArrayWithCopy",
            b"Tt" => "initializeArrayWithTakeFrontToBack",
            b"tT" => "initializeArrayWithTakeBackToFront",
            b"ug" => "getEnumTag",
            b"up" => "destructiveProjectEnumData",
            b"ui" => "destructiveInjectEnumTag",
            b"et" => "getEnumTagSinglePayload",
            b"st" => "storeEnumTagSinglePayload",
            _ => return None,
        };
        let ty = self.pop(NodeKind::Type)?;
        let text = format!("{witness} value witness for {{0}}");
        self.make(NodeKind::Phrase, text, vec![ty])
    }
}
