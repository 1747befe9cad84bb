//! DWARF call frame information → rows.
//!
//! A rule that the kernel programs cannot follow becomes `BadRule`, never an approximation.

use crate::native::abi::{End, KIND_DEREF, KIND_PLT, KIND_REG, RA_IN_REG, Rule, SAVED_REGS};
use crate::native::rules::{RuleRow, RuleSet};
use gimli::{
    CfaRule, CieOrFde, EndianSlice, LittleEndian, Register, RegisterRule, UnwindContext,
    UnwindContextStorage, UnwindSection, UnwindTableRow,
};
use rustc_hash::FxHashMap;

type Bytes<'d> = EndianSlice<'d, LittleEndian>;

const RBP: u16 = 6;
const RSP: u16 = 7;
const RIP: u16 = 16;

/// Capacity for the nesting that compilers produce. gimli reports deeper nesting, which becomes
/// `BadRule`.
struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 40];
    type Stack = Box<[UnwindTableRow<usize, Storage>; 12]>;
}

/// The rows of one function: `rows[first .. first + count]`, between two file offsets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionRows {
    pub start: u32,
    pub end: u32,
    pub first: u32,
    pub count: u32,
}

/// All rows of a section, in the section's order.
#[derive(Default)]
pub(crate) struct SectionRows {
    pub ranges: Vec<FunctionRows>,
    /// (file offset, rule id)
    pub rows: Vec<(u32, u32)>,
}

impl SectionRows {
    /// Adds a function with one row throughout.
    pub(crate) fn push_single(&mut self, start: u32, end: u32, rule: u32) {
        let first = self.rows.len() as u32;
        self.rows.push((start, rule));
        self.ranges.push(FunctionRows {
            start,
            end,
            first,
            count: 1,
        });
    }
}

/// Reads all functions of `section`. `offset_of` maps an address to its offset in the file and the
/// number of bytes that follow there. Damage ends the reading without an error: rows before it
/// stand, and the rest has no information.
pub(crate) fn read<'d, S>(
    section: &S,
    bases: &gimli::BaseAddresses,
    offset_of: impl Fn(u64) -> Option<(u64, u64)>,
    rules: &mut RuleSet,
) -> SectionRows
where
    S: UnwindSection<Bytes<'d>>,
    S::Offset: gimli::UnwindOffset<usize>,
{
    let mut out = SectionRows::default();
    let mut ctx: UnwindContext<usize, Storage> = UnwindContext::new_in();
    let mut cies = FxHashMap::default();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial.parse(|section, bases, at| {
            let at: S::Offset = at;
            cies.entry(gimli::UnwindOffset::into(at))
                .or_insert_with(|| section.cie_from_offset(bases, at))
                .clone()
        });
        let Ok(fde) = fde else { continue };
        let Some((offset, room)) = offset_of(fde.initial_address()) else {
            continue;
        };
        let len = fde.len().min(room);
        if len == 0 || offset.saturating_add(len) > u32::MAX as u64 {
            continue;
        }
        let (start, end) = (offset as u32, (offset + len) as u32);
        let first = out.rows.len();
        let signal = fde.is_signal_trampoline();
        let usable = fde.cie().return_address_register() == Register(RIP);
        let mut damaged = !usable;
        if usable {
            match fde.rows(section, bases, &mut ctx) {
                Err(_) => damaged = true,
                Ok(mut table) => loop {
                    match table.next_row() {
                        Ok(None) => break,
                        Err(_) => {
                            damaged = true;
                            break;
                        }
                        Ok(Some(row)) => {
                            // The file's own instructions compute the address, so it may have any
                            // value.
                            let from = row.start_address().wrapping_sub(fde.initial_address());
                            let at = start as u64 + from.min(len);
                            let last = out.rows[first..].last().map_or(start, |r| r.0);
                            if at >= end as u64 || at < last as u64 {
                                damaged |= at < last as u64;
                                break;
                            }
                            let rule = rules.id(convert(row, section, signal));
                            out.rows.push((at as u32, rule));
                        }
                    }
                },
            }
        }
        if damaged {
            // A function with damaged information cannot be trusted at all.
            out.rows.truncate(first);
            out.rows.push((start, End::BadRule as u32));
        }
        if out.rows.len() > first {
            out.ranges.push(FunctionRows {
                start,
                end,
                first: first as u32,
                count: (out.rows.len() - first) as u32,
            });
        }
    }
    out
}

fn convert<'d, S: UnwindSection<Bytes<'d>>>(
    row: &UnwindTableRow<usize, Storage>,
    section: &S,
    signal: bool,
) -> RuleRow {
    const BAD: RuleRow = RuleRow::End(End::BadRule);
    let Some(mut rule) = cfa(row.cfa(), section) else {
        // If the return address is undefined, the CFA does not matter.
        return match row.register(Register(RIP)) {
            Some(RegisterRule::Undefined) => RuleRow::End(End::Root),
            _ => BAD,
        };
    };
    if signal {
        let kernel_frame = rule.kind == KIND_DEREF
            && rule.reg == RSP as u8
            && rule.cfa_off == 160
            && rule.cfa_add == 0;
        return if kernel_frame { RuleRow::Signal } else { BAD };
    }
    let mut have_ra = false;
    for (register, how) in row.registers() {
        if register.0 == RIP {
            match how {
                RegisterRule::Undefined => return RuleRow::End(End::Root),
                RegisterRule::Offset(-8) => {}
                RegisterRule::Register(r) if r.0 < 16 => rule.ra = RA_IN_REG | r.0 as u8,
                _ => return BAD,
            }
            have_ra = true;
        } else if register.0 == RSP {
            // The caller's rsp is the CFA by definition; another rule means another stack.
            match how {
                RegisterRule::ValOffset(0) => {}
                _ => return BAD,
            }
        } else if let Some(i) = SAVED_REGS.iter().position(|r| *r == register.0) {
            let bit = 1 << i;
            let slot = match how {
                RegisterRule::SameValue | RegisterRule::Undefined => continue,
                RegisterRule::Offset(n) => Some((*n, false)),
                RegisterRule::Expression(e) => e
                    .get(section)
                    .ok()
                    .and_then(|e| breg(e.0.slice()))
                    .filter(|(reg, _, rest)| *reg == RBP as u8 && rest.is_empty())
                    .map(|(_, off, _)| (off, true)),
                _ => None,
            };
            let word = slot
                .filter(|(n, _)| n % 8 == 0)
                .and_then(|(n, rel)| Some((i16::try_from(n / 8).ok()?, rel)));
            match word {
                Some((word, rel)) => {
                    rule.saved |= bit;
                    rule.slot[i] = word;
                    if rel {
                        rule.rbp_rel |= bit;
                    }
                }
                None => rule.lost |= bit,
            }
        }
    }
    if have_ra { RuleRow::Rule(rule) } else { BAD }
}

fn cfa<'d, S: UnwindSection<Bytes<'d>>>(how: &CfaRule<usize>, section: &S) -> Option<Rule> {
    let rule = Rule::default();
    match how {
        CfaRule::RegisterAndOffset { register, offset } => {
            // Register 0 without an offset is gimli's value for a missing rule.
            if register.0 > 15 || (register.0 == 0 && *offset == 0) {
                return None;
            }
            Some(Rule {
                kind: KIND_REG,
                reg: register.0 as u8,
                cfa_off: i32::try_from(*offset).ok()?,
                ..rule
            })
        }
        CfaRule::Expression(e) => {
            let e = e.get(section).ok()?;
            let (reg, offset, rest) = breg(e.0.slice())?;
            let rule = Rule {
                reg,
                cfa_off: i32::try_from(offset).ok()?,
                ..rule
            };
            match *rest {
                [] => Some(Rule {
                    kind: KIND_REG,
                    ..rule
                }),
                // deref
                [0x06] => Some(Rule {
                    kind: KIND_DEREF,
                    ..rule
                }),
                // deref, plus_uconst n
                [0x06, 0x23, n @ 0..=0x7f] => Some(Rule {
                    kind: KIND_DEREF,
                    cfa_add: n as i16,
                    ..rule
                }),
                // plus ((rip & 15) >= n) << 3: the expression that linkers write for their PLT
                [
                    0x80,
                    0x00,
                    0x3f,
                    0x1a,
                    n @ 0x30..=0x4f,
                    0x2a,
                    0x33,
                    0x24,
                    0x22,
                ] if reg == RSP as u8 => Some(Rule {
                    kind: KIND_PLT,
                    cfa_add: (n - 0x30) as i16,
                    ..rule
                }),
                _ => None,
            }
        }
    }
}

/// Splits `DW_OP_bregN offset` off the start of an expression.
fn breg(bytes: &[u8]) -> Option<(u8, i64, &[u8])> {
    let (op, mut rest) = bytes.split_first()?;
    if !(0x70..0x80).contains(op) {
        return None;
    }
    let (mut value, mut shift) = (0i64, 0);
    loop {
        let (byte, tail) = rest.split_first()?;
        rest = tail;
        if shift >= 56 {
            return None;
        }
        value |= ((byte & 0x7f) as i64) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            if byte & 0x40 != 0 {
                value |= -1 << shift;
            }
            return Some((op - 0x70, value, rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::breg;

    #[test]
    fn breg_reads_signed_offsets() {
        assert_eq!(breg(&[0x76, 0x78, 0x06]), Some((6, -8, &[0x06][..])));
        assert_eq!(breg(&[0x77, 0xa0, 0x01]), Some((7, 160, &[][..])));
        assert_eq!(breg(&[0x77, 0x80]), None);
        assert_eq!(breg(&[0x10, 0x00]), None);
        assert_eq!(breg(&[0x77; 20][..1]), None);
    }
}
