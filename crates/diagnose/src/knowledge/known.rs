//! A row of a table of names, and the way a name is matched with it.

/// Declares a table of [`Known`] names: `"pattern", "meaning", "origin", Seen;` a row.
macro_rules! table {
    ($(#[$doc:meta])* $name:ident {
        $($pattern:literal, $meaning:literal, $origin:literal, $seen:ident;)*
    }) => {
        $(#[$doc])*
        pub const $name: &[$crate::knowledge::known::Known] = &[
            $($crate::knowledge::known::Known {
                pattern: $pattern,
                meaning: $meaning,
                origin: $origin,
                seen: $crate::knowledge::known::NameSource::$seen,
            }),*
        ];
    };
}
pub(super) use table;

/// A name that rules know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The name. `name*` matches names that begin so, `*name` those that end so, `*name*` those
    /// that contain it.
    pub pattern: &'static str,
    /// Meaning of a thread that is found there.
    pub meaning: &'static str,
    /// The software that has the function, with its source file or version where that helps.
    pub origin: &'static str,
    /// How the authors know it.
    pub seen: NameSource,
}

/// How a name came into a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameSource {
    /// A test or a live experiment of this repository shows it.
    Live,
    /// It was seen in a recording of a real service; the changelog names the service.
    Service,
    /// It was taken from the software's source code or documentation.
    Source,
}

impl Known {
    /// Whether `name` is meant.
    pub fn matches(&self, name: &str) -> bool {
        let (begin, rest) = match self.pattern.strip_prefix('*') {
            Some(rest) => (false, rest),
            None => (true, self.pattern),
        };
        let (end, text) = match rest.strip_suffix('*') {
            Some(text) => (false, text),
            None => (true, rest),
        };
        match (begin, end) {
            (true, true) => name == text,
            (true, false) => name.starts_with(text),
            (false, true) => name.ends_with(text),
            (false, false) => name.contains(text),
        }
    }

    /// The software that has the function: `PostgreSQL` of `PostgreSQL, proc.c`.
    pub(crate) fn software(&self) -> &'static str {
        self.origin.split(',').next().unwrap_or_default()
    }

    /// The part of `name` after this row's prefix; `None`: the row is no prefix of it.
    pub(super) fn rest_of<'n>(&self, name: &'n str) -> Option<&'n str> {
        name.strip_prefix(self.pattern.strip_suffix('*')?)
    }
}

/// The row of `table` that means `name`.
pub(crate) fn find(table: &'static [Known], name: &str) -> Option<&'static Known> {
    table.iter().find(|known| known.matches(name))
}

/// Whether a row of `table` means `name`.
pub(crate) fn knows(table: &'static [Known], name: &str) -> bool {
    find(table, name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_the_whole_name_or_a_part_of_it() {
        let row = |pattern| Known {
            pattern,
            meaning: "",
            origin: "",
            seen: NameSource::Source,
        };
        assert!(row("main").matches("main") && !row("main").matches("main2"));
        assert!(row("ha_*").matches("ha_commit") && !row("ha_*").matches("xha_commit"));
        assert!(row("*_pause").matches("sys_pause") && !row("*_pause").matches("pause"));
        assert!(row("*lock*").matches("unlock_all") && !row("*lock*").matches("loc"));
    }
}
