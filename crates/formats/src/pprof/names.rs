//! Numbers in columns of a file → their meaning. The file has a name for each number, so a file of
//! another version is read as far as its names are known.

use wallscope_model::{BlockReason, FrameKind, ModuleKind, Part, StackEnd, State, UnknownCause};

use super::extension as ext;

/// Names of the frame kinds, in the order of their numbers.
pub(super) const FRAME_KINDS: [(FrameKind, &str); 8] = [
    (FrameKind::Native, "native"),
    (FrameKind::Kernel, "kernel"),
    (FrameKind::Jit, "jit"),
    (FrameKind::Python, "python"),
    (FrameKind::Java, "java"),
    (FrameKind::JavaScript, "javascript"),
    (FrameKind::Php, "php"),
    (FrameKind::Ruby, "ruby"),
];

/// Names of the module kinds, in the order of their numbers.
pub(super) const MODULE_KINDS: [(ModuleKind, &str); 5] = [
    (ModuleKind::Elf, "elf"),
    (ModuleKind::Kernel, "kernel"),
    (ModuleKind::Vdso, "vdso"),
    (ModuleKind::Jit, "jit"),
    (ModuleKind::Source, "source"),
];

/// The meaning of numbers in columns; an unknown name has none.
pub(super) struct Names {
    pub(super) states: Vec<Option<State>>,
    pub(super) reasons: Vec<Option<BlockReason>>,
    pub(super) parts: Vec<Option<Part>>,
    pub(super) unknown_causes: Vec<Option<UnknownCause>>,
    pub(super) stack_ends: Vec<Option<StackEnd>>,
    pub(super) frame_kinds: Vec<Option<FrameKind>>,
    pub(super) module_kinds: Vec<Option<ModuleKind>>,
}

impl Names {
    pub(super) fn new(n: ext::Names, warnings: &mut Vec<String>) -> Names {
        fn list<T>(
            names: Vec<String>,
            value: impl Fn(&str) -> Option<T>,
            warnings: &mut Vec<String>,
        ) -> Vec<Option<T>> {
            let lookup = |name: String| {
                let value = value(&name);
                if value.is_none() {
                    warnings.push(format!(
                        "the file uses the term \"{}\", which this wallscope does not know: it \
                         comes from a newer one",
                        name.escape_debug()
                    ));
                }
                value
            };
            // No version has more names; a hostile file may.
            names.into_iter().take(64).map(lookup).collect()
        }
        let mut unknown = Vec::new();
        let names = Names {
            states: list(n.states, State::from_name, &mut unknown),
            reasons: list(n.reasons, BlockReason::from_name, &mut unknown),
            parts: list(n.parts, Part::from_name, &mut unknown),
            unknown_causes: list(n.unknown_causes, UnknownCause::from_name, &mut unknown),
            stack_ends: list(n.stack_ends, StackEnd::from_name, &mut unknown),
            frame_kinds: list(n.frame_kinds, |s| by_name(&FRAME_KINDS, s), &mut unknown),
            module_kinds: list(n.module_kinds, |s| by_name(&MODULE_KINDS, s), &mut unknown),
        };
        warnings.extend(unknown.into_iter().take(8));
        names
    }

    pub(super) fn part(&self, n: u32) -> Option<Part> {
        pick(&self.parts, n)
    }

    pub(super) fn state(&self, n: u32) -> State {
        pick(&self.states, n).unwrap_or(State::Unknown)
    }

    pub(super) fn reason(&self, n: u32) -> BlockReason {
        pick(&self.reasons, n).unwrap_or(BlockReason::Other)
    }
}

fn by_name<T: Copy>(list: &[(T, &str)], name: &str) -> Option<T> {
    list.iter().find(|(_, n)| *n == name).map(|(v, _)| *v)
}

/// The meaning of a number; `None` where it has none.
pub(super) fn pick<T: Copy>(list: &[Option<T>], n: u32) -> Option<T> {
    list.get(n as usize).copied().flatten()
}
