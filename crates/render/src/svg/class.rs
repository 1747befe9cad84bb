//! Classes of frames, each with a colour.

use wallscope_model::{BlockReason, Part, Recording, State, View};

use crate::page::entries::{Entry, Kind};

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
    /// The colours of the page (`web/js/palette.js`).
    pub(super) fn colour(self) -> &'static str {
        match self {
            Class::State(State::OnCpu) => "#eba93b",
            Class::State(State::Runnable) => "#d98cb3",
            Class::State(State::Blocked) => "#6bb5e0",
            Class::State(State::Unknown) => "#909090",
            Class::Unknown => "#9a9a9a",
            Class::Part(Part::Woken) => "#e3a6c4",
            Class::Part(Part::Preempted) => "#d083ac",
            Class::Part(_) => "#bd6c9c",
            Class::Reason(reason) => reason.facts().colour,
            Class::Own => "#f0c75e",
            Class::Library => "#93cfa4",
            Class::Kernel => "#e89272",
            Class::Jit => "#b8a2dc",
            Class::Managed => "#7fa8f5",
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
            Kind::Kernel => Class::Kernel,
            Kind::Jit => Class::Jit,
            Kind::Mark => Class::Unknown,
            Kind::Native | Kind::Managed if library() => Class::Library,
            Kind::Managed => Class::Managed,
            Kind::Native => Class::Own,
        }
    }
}
