//! Classes of frames, each with a colour.

use wallscope_model::{BlockReason, CODE_KINDS, Part, Recording, State, View};

use crate::page::entries::{Entry, EntryKind};

/// Frames of one colour.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    State(State),
    Part(Part),
    Reason(BlockReason),
    Own,
    Library,
    Kernel,
    Jit,
    Managed,
    Unknown,
}

impl Class {
    /// The colour, `#rrggbb`, as on the page.
    pub(super) fn colour(self) -> &'static str {
        match self {
            Class::State(state) => state.colour(),
            Class::Part(part) => part.colour(),
            Class::Reason(reason) => reason.facts().colour,
            Class::Own => of_code("own"),
            Class::Library => of_code("library"),
            Class::Kernel => of_code("kernel"),
            Class::Jit => of_code("jit"),
            Class::Managed => of_code("managed"),
            Class::Unknown => of_code("mark"),
        }
    }

    pub(super) fn title(self) -> String {
        match self {
            Class::State(State::OnCpu) => "on CPU".into(),
            Class::State(State::Unknown) => "not seen".into(),
            Class::State(state) => state.name().into(),
            Class::Part(part) => part.name().into(),
            Class::Reason(reason) => reason.name().replace('_', " "),
            Class::Own => "own code".into(),
            Class::Library => "library".into(),
            Class::Kernel => "kernel".into(),
            Class::Jit => "made at run time".into(),
            Class::Managed => "managed (Python, Java, PHP, Ruby)".into(),
            Class::Unknown => "not known".into(),
        }
    }

    /// The class of time in `state`, where a view is painted by time; `None`: by code.
    pub(super) fn of_time(view: View, state: State, reason: Option<&str>) -> Option<Class> {
        match view {
            View::Wall => Some(Class::State(state)),
            View::OnCpu => None,
            View::OffCpu | View::RunQueue => {
                let block = reason.and_then(BlockReason::from_name).map(Class::Reason);
                let part = || reason.and_then(Part::from_name).map(Class::Part);
                Some(block.or_else(part).unwrap_or(Class::State(state)))
            }
        }
    }

    pub(super) fn of_code(recording: &Recording, entry: &Entry) -> Class {
        let library = || {
            let module = entry.module.checked_sub(1);
            let path = module.and_then(|m| recording.modules.get(m as usize));
            path.is_some_and(|m| {
                let path = &*m.path;
                let folder = |name| path.contains(name);
                path == "[vdso]"
                    || path.ends_with(".so")
                    || path.contains(".so.")
                    || path.starts_with('<')
                    || ["/python3", "/site-packages/", "/dist-packages/"]
                        .into_iter()
                        .any(folder)
            })
        };
        match entry.kind {
            EntryKind::Kernel => Class::Kernel,
            EntryKind::Jit => Class::Jit,
            EntryKind::Mark => Class::Unknown,
            EntryKind::Native | EntryKind::Managed if library() => Class::Library,
            EntryKind::Managed => Class::Managed,
            EntryKind::Native => Class::Own,
        }
    }
}

/// Colour of a kind of code; that of time not seen if the model has no such kind.
fn of_code(kind: &str) -> &'static str {
    let known = CODE_KINDS.iter().find(|(name, _)| *name == kind);
    known.map_or(State::Unknown.colour(), |(_, colour)| *colour)
}
