//! Machine code of functions: address → inlined functions and source positions.

use super::function::{Positions, inlining, position};
use super::heap::{Heap, number};

/// Maximum bytes of a code object.
const MOST_CODE: u64 = 64 << 20;
/// Maximum bytes of a position table.
const MOST_TABLE: usize = 4 << 20;
/// Maximum functions inlined into one, and maximum depth.
const MOST_INLINED: usize = 1 << 14;
const MOST_DEPTH: usize = 64;

/// A code object.
#[derive(Debug)]
pub(super) struct Code {
    start: u64,
    size: u64,
    table: Vec<u8>,
    /// By inlining id − 1: the call position, and the inlined function's SharedFunctionInfo;
    /// `None`: the compiled function itself.
    inlined: Vec<(u64, Option<u64>)>,
}

/// A function at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The inlined function's SharedFunctionInfo; `None`: the compiled function.
    pub(super) inlined: Option<u64>,
    /// Position in its source, characters.
    pub(super) position: Option<u32>,
}

impl Code {
    /// Reads the code object at `address`, a tagged pointer.
    pub(super) fn read(heap: &mut Heap<'_>, address: u64) -> Option<Code> {
        let l = heap.layout.code?;
        let at = heap.object_of(address, heap.layout.kinds.code)?;
        let start = if l.within {
            at + l.start
        } else {
            heap.memory.word(at + l.start)?
        };
        let size = u64::from(heap.memory.half(at + l.size)?);
        if size > MOST_CODE {
            return None;
        }
        let table = heap.memory.word(at + l.positions)?;
        let table = match heap.object(table) {
            Some((table, _)) => heap.array(table, 1, MOST_TABLE)?,
            None => Vec::new(),
        };
        let data = heap.memory.word(at + l.deoptimization)?;
        let inlined = inlined(heap, data).unwrap_or_default();
        Some(Code {
            start,
            size,
            table,
            inlined,
        })
    }

    /// Whether `address` lies in its code.
    pub(super) fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.size
    }

    /// The functions at `address`, innermost first; never empty.
    pub(super) fn at(&self, address: u64) -> Vec<Step> {
        let offset = address.wrapping_sub(self.start);
        let row = Positions::new(&self.table)
            .take_while(|row| row.reaches(offset))
            .last()
            .unwrap_or_default();
        let (mut id, mut at) = (row.inlining(), row.position());
        let mut steps = Vec::new();
        while id > 0 {
            let Some((site, function)) = self.inlined.get(usize::from(id) - 1) else {
                break;
            };
            // More steps than inlined functions: the data is cyclic.
            if steps.len() >= self.inlined.len().min(MOST_DEPTH) {
                steps.clear();
                at = None;
                break;
            }
            steps.push(Step {
                inlined: *function,
                position: at,
            });
            // Ids are unordered: the outer function may have a higher one.
            id = inlining(*site);
            at = position(*site);
        }
        steps.push(Step {
            inlined: None,
            position: at,
        });
        steps
    }
}

/// Reads the functions inlined into code with this deoptimisation data.
fn inlined(heap: &mut Heap<'_>, data: u64) -> Option<Vec<(u64, Option<u64>)>> {
    let l = heap.layout.code?;
    // Baseline code has its bytecode in this field.
    let (data, kind) = heap.object(data)?;
    if kind == heap.layout.kinds.bytecode {
        return None;
    }
    let item = |n: u64| data + heap.layout.array_data + 8 * n;
    let (count, literals, sites) = (item(l.inlined_count), item(l.literals), item(l.inlining));
    let count = number(heap.memory.word(count)?)? as usize;
    if count == 0 || count > MOST_INLINED {
        return None;
    }
    let literals = heap.memory.word(literals)?;
    let (literals, _) = heap.object(literals)?;
    let literals = heap.array(literals, 8, 1 << 20)?;
    let sites = heap.memory.word(sites)?;
    let (sites, _) = heap.object(sites)?;
    let sites = heap.array(sites, 1, MOST_TABLE)?;
    let word = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?));
    sites
        .chunks_exact(16)
        .map(|site| {
            let function = i32::from_le_bytes(site[8..12].try_into().ok()?);
            let function = match usize::try_from(function) {
                Ok(n) if n < count => Some(word(literals.get(8 * n..)?)?),
                _ => None,
            };
            Some((word(site)?, function))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inlined_functions_are_told_from_the_inside_out() {
        let site = |position: u64, inlining: u64| (position + 1) << 1 | inlining << 31;
        let code = Code {
            start: 0x1000,
            size: 0x100,
            // One row: offset 0, position 9 in the second inlined function.
            table: {
                let mut bytes = vec![2u8];
                let mut n = site(9, 2) << 1;
                while n >= 0x80 {
                    bytes.push(n as u8 | 0x80);
                    n >>= 7;
                }
                bytes.push(n as u8);
                bytes
            },
            inlined: vec![(site(30, 0), Some(0x501)), (site(20, 1), Some(0x601))],
        };
        assert!(code.holds(0x10ff) && !code.holds(0x1100) && !code.holds(0xfff));
        let step = |inlined, position| Step {
            inlined,
            position: Some(position),
        };
        assert_eq!(
            code.at(0x1010),
            [step(Some(0x601), 9), step(Some(0x501), 20), step(None, 30)]
        );
    }
}
