//! Punycode as in Swift names: RFC 3492 with `_` before the encoded part, and `A` to `J` as digits.

const BASE: u32 = 36;
const T_MIN: u32 = 1;
const T_MAX: u32 = 26;
const SKEW: u32 = 38;
const DAMP: u32 = 700;
/// Maximum characters of a decoded name: each one is inserted in the middle of those before it.
const MAX_CHARACTERS: usize = 2048;

/// Decodes `text`; `None` if it is not valid.
pub(super) fn decode(text: &str) -> Option<String> {
    let (plain, encoded) = text.rsplit_once('_').unwrap_or(("", text));
    let mut out: Vec<char> = plain.chars().collect();
    if !plain.is_ascii() || out.len() > MAX_CHARACTERS {
        return None;
    }
    let (mut code, mut index, mut bias) = (0x80u32, 0u32, 72u32);
    let mut rest = encoded.bytes().peekable();
    while rest.peek().is_some() {
        let before = index;
        let mut weight = 1u32;
        for k in (BASE..).step_by(BASE as usize) {
            let digit = match rest.next()? {
                letter @ b'a'..=b'z' => u32::from(letter - b'a'),
                letter @ b'A'..=b'J' => u32::from(letter - b'A') + 26,
                _ => return None,
            };
            index = index.checked_add(digit.checked_mul(weight)?)?;
            let threshold = k.saturating_sub(bias).clamp(T_MIN, T_MAX);
            if digit < threshold {
                break;
            }
            weight = weight.checked_mul(BASE - threshold)?;
        }
        let count = u32::try_from(out.len()).ok()? + 1;
        bias = adapt(index - before, count, before == 0);
        code = code.checked_add(index / count)?;
        index %= count;
        out.insert(index as usize, character(code)?);
        if out.len() > MAX_CHARACTERS {
            return None;
        }
        index += 1;
    }
    Some(out.into_iter().collect())
}

/// Characters that are no letters of an identifier are moved to a range of surrogates.
fn character(code: u32) -> Option<char> {
    match code {
        0xd800..=0xd87f => char::from_u32(code - 0xd800),
        _ => char::from_u32(code),
    }
}

fn adapt(delta: u32, count: u32, first: bool) -> u32 {
    let mut delta = if first { delta / DAMP } else { delta / 2 };
    delta += delta / count;
    let mut k = 0;
    while delta > ((BASE - T_MIN) * T_MAX) / 2 {
        delta /= BASE - T_MIN;
        k += BASE;
    }
    k + (BASE - T_MIN + 1) * delta / (delta + SKEW)
}
