//! Lowered function types, which describe the thunks between calling conventions.

use super::parser::Parser;
use super::tree::{Id, NodeKind};

impl Parser<'_> {
    /// `I`: attributes, then a letter for each type before it.
    pub(super) fn lowered_function_type(&mut self) -> Option<Id> {
        let mut parts = Vec::new();
        if self.take(b's') {
            let types = self.generic_arguments()?;
            let [types] = <[_; 1]>::try_from(types).ok()?;
            let types = self.make(NodeKind::List, "", types)?;
            let signature = self.pop(NodeKind::Signature)?;
            parts.push(self.make(NodeKind::PatternSubstitutions, "", vec![signature, types])?);
        }
        if self.take(b'I') {
            let types = self.generic_arguments()?;
            let [types] = <[_; 1]>::try_from(types).ok()?;
            let types = self.make(NodeKind::List, "", types)?;
            parts.push(self.make(NodeKind::InvocationSubstitutions, "", vec![types])?);
        }
        let signature = self.pop(NodeKind::Signature);
        if signature.is_some() {
            self.take(b'P');
        }
        self.lowered_attributes(&mut parts)?;
        if self.take(b'T') {
            parts.push(self.mark(NodeKind::LoweredSending)?);
        }
        parts.extend(signature);
        let first = parts.len();
        self.lowered_operands(&mut parts)?;
        for operand in parts[first..].iter().rev() {
            let ty = self.pop(NodeKind::Type)?;
            self.tree.get_mut(*operand).children.push(ty);
        }
        self.make_type(NodeKind::Lowered, "", parts)
    }

    fn lowered_attributes(&mut self, parts: &mut Vec<Id>) -> Option<()> {
        self.attribute(parts, &[(b'e', "@escaping")])?;
        self.attribute(
            parts,
            &[(b'A', "@isolated(any)"), (b'N', "nonisolated(nonsending)")],
        )?;
        self.attribute(
            parts,
            &[
                (b'd', "@differentiable"),
                (b'l', "@differentiable(_linear)"),
                (b'f', "@differentiable(_forward)"),
                (b'r', "@differentiable(reverse)"),
            ],
        )?;
        let convention = match self.next()? {
            b'y' => "@callee_unowned",
            b'g' => "@callee_guaranteed",
            b'x' => "@callee_owned",
            b't' => "@convention(thin)",
            _ => return None,
        };
        parts.push(self.make(NodeKind::LoweredAttribute, convention, Vec::new())?);
        self.attribute(
            parts,
            &[
                (b'B', "@convention(block)"),
                (b'C', "@convention(c)"),
                (b'M', "@convention(method)"),
                (b'O', "@convention(objc_method)"),
                (b'J', "@convention(objc_method)"),
                (b'K', "@convention(closure)"),
                (b'W', "@convention(witness_method)"),
            ],
        )?;
        self.attribute(
            parts,
            &[
                (b'A', "@yield_once"),
                (b'I', "@yield_once_2"),
                (b'G', "@yield_many"),
            ],
        )?;
        self.attribute(parts, &[(b'h', "@Sendable")])?;
        self.attribute(parts, &[(b'H', "@async")])
    }

    /// Consumes one of `letters`, if it is there, and adds its attribute.
    fn attribute(&mut self, parts: &mut Vec<Id>, letters: &[(u8, &'static str)]) -> Option<()> {
        let next = self.peek();
        if let Some((_, text)) = letters.iter().find(|(letter, _)| Some(*letter) == next) {
            self.at += 1;
            parts.push(self.make(NodeKind::LoweredAttribute, *text, Vec::new())?);
        }
        Some(())
    }

    fn lowered_operands(&mut self, parts: &mut Vec<Id>) -> Option<()> {
        while let Some(convention) = self.peek().and_then(parameter_convention) {
            self.at += 1;
            let mut text = format!("{convention} ");
            for (letter, word) in [
                (b'w', "@noDerivative "),
                (b'T', "sending "),
                // An isolated parameter, and one that leads implicitly.
                (b'I', ""),
                (b'L', ""),
            ] {
                if self.take(letter) {
                    text.push_str(word);
                }
            }
            parts.push(self.make(NodeKind::LoweredParameter, text, Vec::new())?);
        }
        while let Some(convention) = self.peek().and_then(result_convention) {
            self.at += 1;
            let derivative = if self.take(b'w') {
                "@noDerivative "
            } else {
                ""
            };
            let text = format!("{convention} {derivative}");
            parts.push(self.make(NodeKind::LoweredResult, text, Vec::new())?);
        }
        while self.take(b'Y') {
            let convention = self.next().and_then(parameter_convention)?;
            let text = format!("@yields {convention} ");
            parts.push(self.make(NodeKind::LoweredResult, text, Vec::new())?);
        }
        if self.take(b'z') {
            let convention = self.next().and_then(result_convention)?;
            let text = format!("@error {convention} ");
            parts.push(self.make(NodeKind::LoweredResult, text, Vec::new())?);
        }
        self.take(b'_').then_some(())
    }
}

fn parameter_convention(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'i' => "@in",
        b'c' => "@in_constant",
        b'l' => "@inout",
        b'b' => "@inout_aliasable",
        b'n' => "@in_guaranteed",
        b'X' => "@in_cxx",
        b'x' => "@owned",
        b'g' => "@guaranteed",
        b'e' => "@deallocating",
        b'y' => "@unowned",
        b'v' => "@pack_owned",
        b'p' => "@pack_guaranteed",
        b'm' => "@pack_inout",
        _ => return None,
    })
}

fn result_convention(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'r' => "@out",
        b'o' => "@owned",
        b'd' => "@unowned",
        b'u' => "@unowned_inner_pointer",
        b'a' => "@autoreleased",
        b'k' => "@pack_out",
        b'l' => "@guaranteed_address",
        b'g' => "@guaranteed",
        b'm' => "@inout",
        _ => return None,
    })
}
