//! A process with a known trouble, as data.

/// Program of a scenario.
#[derive(Clone, Copy, Debug)]
pub enum Play {
    /// A truth program, with its flags: all its processes.
    Truth(&'static str, &'static [&'static str]),
    /// A case of the truth program `trouble`: the victim alone.
    Trouble(&'static str),
    /// A case of `trouble.py`, where there is a Python: the victim alone.
    Script(&'static str),
    /// A case of `trouble.py` that needs an installed program: the program's name, and the case.
    Program(&'static str, &'static str),
}

/// The right verdict.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    /// Whether something is wrong.
    pub bottleneck: bool,
    /// State of the time: one of these; empty: any, or none.
    pub states: &'static [&'static str],
    /// Its reason: one of these; empty: any.
    pub reasons: &'static [&'static str],
    /// How the function's name begins, or ends after a dot: one of these; empty: any.
    pub functions: &'static [&'static str],
    /// Words that the verdict has to hold, all of them, in whatever case.
    pub words: &'static [&'static str],
}

/// A process and its trouble.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Its trouble in words.
    pub about: &'static str,
    /// Its program.
    pub play: Play,
    /// The right verdict.
    pub right: Right,
    /// Whether it is one of the few that every test run makes.
    pub short: bool,
    /// Backends without kernel programs that can answer it: the reason of the wait, or that it computes. Words,
    /// and with the proc backend the function that computes, are beyond them.
    pub lower: &'static [&'static str],
}
