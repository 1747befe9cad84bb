//! Parts of a frame's text: function, place, file, module, thread.

/// `module+0x1f3a` and `[0x7f…]`: an address without a name.
pub(super) fn unresolved(name: &str) -> Option<(&str, u64)> {
    let hex = |t: &str| {
        let digits = !t.is_empty() && t.bytes().all(|c| c.is_ascii_hexdigit());
        digits.then(|| u64::from_str_radix(t, 16).ok()).flatten()
    };
    if let Some(address) = name.strip_prefix("[0x").and_then(|t| t.strip_suffix(']')) {
        return Some(("", hex(address)?));
    }
    let (module, address) = name.rsplit_once("+0x")?;
    let named = !module.is_empty() && !module.contains(['(', ' ', '<']);
    named.then_some((module, hex(address)?))
}

/// Splits bcc's `function+0x12 [module]`; the offset within the function is dropped.
pub(super) fn placed(name: &str) -> Option<(&str, &str)> {
    let (place, module) = name.strip_suffix(']')?.rsplit_once(" [")?;
    let (function, at) = place.rsplit_once("+0x")?;
    let is_place = !at.is_empty() && at.bytes().all(|c| c.is_ascii_hexdigit());
    (is_place && !function.is_empty() && !module.is_empty()).then_some((function, module))
}

/// py-spy's `thread (12): name` and `process 12:"command"`; ids may be hexadecimal.
pub(super) fn py_spy<'t>(text: &'t str, prefix: &str, end: char) -> Option<(u32, &'t str)> {
    let (id, rest) = text.strip_prefix(prefix)?.split_once(end)?;
    let id = match id.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => id.parse().ok()?,
    };
    Some(((id & 0xffff_ffff) as u32, rest))
}

/// py-spy's `function (file.py:12)`.
pub(super) fn located(name: &str) -> (&str, &str, u32) {
    let inner = || {
        let (function, rest) = name.strip_suffix(')')?.rsplit_once(" (")?;
        let (file, line) = rest.rsplit_once(':')?;
        Some((function, file, line.parse().ok()?))
    };
    inner().unwrap_or((name, "", 0))
}
