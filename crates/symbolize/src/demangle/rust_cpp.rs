//! Demangles Rust and C++ names with the crates of their communities.

use std::fmt::Write;

use super::capped::Capped;

/// Maximum dots in a name at which its mangling may end.
const MAX_DOTS: usize = 8;

/// Returns the function with the mangled name `name`.
pub(super) fn demangle(name: &str) -> Option<String> {
    rust(name).or_else(|| cpp(name))
}

fn rust(name: &str) -> Option<String> {
    let parsed = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Capped::default();
    // An error means that the cap was reached.
    let _ = write!(out, "{parsed:#}");
    Some(out.finish())
}

fn cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") && !name.starts_with("_GLOBAL_") {
        return None;
    }
    // Suffixes that compilers append to copies of a function (`.cold`, `.constprop.0`) are not part
    // of the mangling; they are shown as binutils does. A dot may also be part of it, as in GCC's
    // coroutine frames.
    let dots = name.match_indices('.').map(|(at, _)| at);
    let (symbol, clone) = dots.chain([name.len()]).take(MAX_DOTS).find_map(|at| {
        let (base, clone) = name.split_at(at);
        let symbol = cpp_demangle::BorrowedSymbol::new(base.as_bytes()).ok()?;
        Some((symbol, clone))
    })?;
    let mut out = Capped::default();
    let whole = symbol.structured_demangle(&mut out, &cpp_demangle::DemangleOptions::new());
    if whole.is_err() && !out.full {
        return None;
    }
    if !clone.is_empty() {
        let _ = write!(out, " [clone {clone}]");
    }
    Some(out.finish())
}
