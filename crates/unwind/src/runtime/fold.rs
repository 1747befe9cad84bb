//! Folds managed frames into a native stack: they replace the interpreter's own frames.
//!
//! Each call of the interpreter is one native frame and one or more managed ones. Both lists have
//! the same order, so they are matched call by call. The match starts at the root if the native
//! stack is complete, since at the leaf the interpreter may just be entering or leaving a function.
//! Otherwise it starts at the leaf.

/// A managed frame, reduced to its role in the match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Managed {
    /// Whether it is the outermost function of an interpreter call.
    pub entry: bool,
}

/// One frame of the folded stack: an index into either list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A native frame.
    Native(usize),
    /// A managed frame.
    Managed(usize),
}

/// Role of a native frame for the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Not part of the runtime.
    Other,
    /// A call of the interpreter.
    Interpreter,
    /// Only passes calls on.
    Glue,
    /// Switches between stacks within the thread, or starts one (a greenlet).
    Switch,
}

/// The number of `roles`, innermost first, that belong to the running stack. Behind the start of a
/// greenlet lie remains of other stacks. `None`: all of them.
pub fn running_frames(roles: &[Role]) -> Option<usize> {
    // At the leaf it may be switching; the start of this stack has called the interpreter.
    let called = roles.iter().position(|r| *r == Role::Interpreter)?;
    let is_switch = |r: &Role| *r == Role::Switch;
    let begins = called + roles[called..].iter().position(is_switch)?;
    let run = roles[begins..].iter().take_while(|r| is_switch(r));
    Some(begins + run.count())
}

/// End of both lists at which the match starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchFrom {
    /// At the root, which the native stack has reached.
    Root,
    /// At the leaf.
    Leaf,
}

/// Treatment of the runtime's own frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterpreterFrames {
    /// They go.
    Drop,
    /// They stay beside the frames of the programs that they run.
    Keep,
}

/// Folds `managed` into `roles`, the native frames; both are innermost first.
pub fn fold(
    roles: &[Role],
    managed: &[Managed],
    from: MatchFrom,
    own: InterpreterFrames,
) -> Vec<Entry> {
    let keep = own == InterpreterFrames::Keep;
    // Runs of managed frames, one a call.
    let mut calls = Vec::new();
    let mut begin = 0;
    for (i, frame) in managed.iter().enumerate() {
        if frame.entry || i + 1 == managed.len() {
            calls.push(begin..i + 1);
            begin = i + 1;
        }
    }
    let interpreters = roles.iter().filter(|r| **r == Role::Interpreter).count();
    // Interpreter frame k matches run k - skipped; the first `ahead` surplus runs come first.
    let (skipped, ahead) = match from {
        MatchFrom::Root => (
            interpreters.saturating_sub(calls.len()),
            calls.len().saturating_sub(interpreters),
        ),
        MatchFrom::Leaf => (0, 0),
    };
    let mut runs = calls.into_iter();
    let mut joined = Vec::with_capacity(roles.len() + managed.len());
    for run in runs.by_ref().take(ahead) {
        joined.extend(run.map(Entry::Managed));
    }
    let mut met = 0;
    // Whether all frames since the last matched call only pass calls on.
    let mut explained = false;
    // Start in `joined` of frames that may pass on the next call.
    let mut pending: Option<usize> = None;
    for (i, role) in roles.iter().enumerate() {
        match role {
            Role::Interpreter => {
                let run = if met < skipped { None } else { runs.next() };
                met += 1;
                explained = run.is_some();
                if let (Some(from), true, false) = (pending.take(), explained, keep) {
                    joined.truncate(from);
                }
                if !explained || keep {
                    joined.push(Entry::Native(i));
                }
                joined.extend(run.into_iter().flatten().map(Entry::Managed));
            }
            Role::Glue if explained && !keep => {}
            // At the leaf it is the running function.
            Role::Glue if i > 0 => {
                pending = pending.or(Some(joined.len()));
                joined.push(Entry::Native(i));
            }
            _ => {
                (explained, pending) = (false, None);
                joined.push(Entry::Native(i));
            }
        }
    }
    for run in runs {
        joined.extend(run.map(Entry::Managed));
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use Entry::{Managed as M, Native as N};
    use InterpreterFrames::{Drop, Keep};
    use MatchFrom::{Leaf, Root};
    use Role::{Glue as G, Interpreter as I, Other as O, Switch as S};

    fn managed(entries: &[u8]) -> Vec<Managed> {
        entries.iter().map(|e| Managed { entry: *e == 1 }).collect()
    }

    #[test]
    fn each_call_gets_its_functions() {
        // Two Python functions of one call, called through glue, call a C function.
        let roles = [O, I, G, O, I, O];
        let joined = fold(&roles, &managed(&[0, 1, 1]), Root, Drop);
        assert_eq!(joined, [N(0), M(0), M(1), N(3), M(2), N(5)]);
        let kept = fold(&roles, &managed(&[0, 1, 1]), Root, Keep);
        assert_eq!(kept, [N(0), N(1), M(0), M(1), N(2), N(3), N(4), M(2), N(5)]);
    }

    #[test]
    fn what_passes_calls_on_goes_unless_it_is_what_runs() {
        let joined = fold(&[O, G, G, I, O], &managed(&[1]), Root, Drop);
        assert_eq!(joined, [N(0), M(0), N(4)]);
        let joined = fold(&[G, I, O, G], &managed(&[1]), Root, Drop);
        assert_eq!(joined, [N(0), M(0), N(2), N(3)]);
        let joined = fold(&[O, G, O, I], &managed(&[1]), Root, Drop);
        assert_eq!(joined, [N(0), N(1), N(2), M(0)]);
    }

    #[test]
    fn a_call_that_has_just_begun_is_left_native() {
        let joined = fold(&[I, I, O], &managed(&[1]), Root, Drop);
        assert_eq!(joined, [N(0), M(0), N(2)]);
    }

    #[test]
    fn a_native_stack_that_was_cut_is_matched_from_the_leaf() {
        let joined = fold(&[O, I], &managed(&[0, 1, 1]), Leaf, Drop);
        assert_eq!(joined, [N(0), M(0), M(1), M(2)]);
    }

    #[test]
    fn a_greenlet_has_a_stack_of_its_own() {
        // It calls a C function and was started by two frames; below is the stack that switched to
        // it.
        let roles = [O, I, G, S, S, G, I, S, S, I, O];
        assert_eq!(running_frames(&roles), Some(5));
        let joined = fold(&roles[..5], &managed(&[0, 1]), Root, Drop);
        assert_eq!(joined, [N(0), M(0), M(1), N(3), N(4)]);
        // About to switch; and a thread's first stack.
        assert_eq!(running_frames(&[S, S, I, S, O]), Some(4));
        assert_eq!(running_frames(&[S, S, I, O]), None);
        assert_eq!(running_frames(&[O, I, O]), None);
    }

    #[test]
    fn without_interpreter_frames_nothing_is_lost() {
        assert_eq!(
            fold(&[O], &managed(&[1, 1]), Root, Drop),
            [M(0), M(1), N(0)]
        );
        assert_eq!(fold(&[O, I], &[], Root, Drop), [N(0), N(1)]);
    }
}
