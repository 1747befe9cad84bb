use super::*;

#[test]
fn names_fit_in_degrees() {
    let of = |asked: &str, raw: &str| {
        fit(asked, is_pattern(asked), raw.as_bytes(), Origin::Nim).map(|f| f.0)
    };
    assert_eq!(of("main", "main"), Some(Fit::Exact));
    assert_eq!(of("memcpy", "memcpy@@GLIBC_2.14"), Some(Fit::Exact));
    assert_eq!(of("ns::f(int)", "_ZN2ns1fEi"), Some(Fit::Whole));
    assert_eq!(of("ns::f", "_ZN2ns1fEi"), Some(Fit::Bare));
    assert_eq!(of("f", "_ZN2ns1fEi"), Some(Fit::Tail));
    assert_eq!(of("s::f", "_ZN2ns1fEi"), None);
    assert_eq!(of("ns::*", "_ZN2ns1fEi"), Some(Fit::Exact));
    assert_eq!(of("g", "_ZN2ns1fEi"), None);
    assert_eq!(
        of("std.stdio.File.close", "_D3std5stdio4File5closeMFNeZv"),
        Some(Fit::Bare)
    );
    assert_eq!(
        of("File.close", "_D3std5stdio4File5closeMFNeZv"),
        Some(Fit::Tail)
    );
    assert_eq!(
        of("main.Tree.insert", "$s4main4TreeC6insert3keySbSi_tF"),
        Some(Fit::Bare)
    );
    assert_eq!(of("alpha.fooBar", "fooBar__alpha_u25"), Some(Fit::Whole));
}
