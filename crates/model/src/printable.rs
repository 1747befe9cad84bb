//! Names that are safe to print: files and processes of others choose them.
//!
//! A terminal obeys control characters, and every program that lays out text obeys bidirectional
//! overrides, which show one name as another. Outputs for people replace these characters; JSON
//! escapes them, so that a reader gets the name unchanged. Nothing here changes a recorded name.

use std::borrow::Cow;

/// Whether programs that show text obey `c` instead of showing it: control characters (C0, DEL, C1),
/// line and paragraph separators, bidirectional controls (Unicode's UAX 9), invisible format
/// characters and tags. Joiners, which several scripts need, are none.
pub fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
            | '\u{e0000}'..='\u{e007f}')
}

/// The text with U+FFFD in the place of each character that would be obeyed.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace(is_obeyed, "\u{fffd}"))
}

/// Serialised JSON with every character beyond ASCII that would be obeyed as a `\u` escape. Such
/// characters stand only within strings there, so the values stay as they are.
pub fn escape_json(json: &str) -> Cow<'_, str> {
    let is_risky = |c: char| (c == '\u{7f}' || !c.is_ascii()) && is_obeyed(c);
    if !json.contains(is_risky) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_risky(c) {
            let mut units = [0u16; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obeyed_characters_are_replaced_and_others_stay() {
        let plain = "std::vec<T>::push äöü 函数 क्‍ष 🦀\u{200d}";
        assert!(matches!(printable(plain), Cow::Borrowed(text) if text == plain));
        let hostile = "a\u{1b}[31m\u{9b}2J\u{202e}b\u{2066}\r\n\0\u{7f}\u{2028}\u{e0041}";
        assert_eq!(
            printable(hostile),
            "a\u{fffd}[31m\u{fffd}2J\u{fffd}b\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn json_keeps_the_text() {
        let escaped = escape_json("{\"a\":\"x\u{9b}\u{202e}\u{e0041}é\u{7f}\"}");
        assert_eq!(escaped, "{\"a\":\"x\\u009b\\u202e\\udb40\\udc41é\\u007f\"}");
    }
}
