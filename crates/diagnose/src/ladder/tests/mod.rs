//! The ladder over made-up recordings.

use std::sync::Arc;

use wallscope_model::{
    Above, Actor, ActorId, BlockReason, Context, ContextId, FileLock, Frame, FrameId, FrameKind,
    Function, FunctionId, Hop, HostFacts, HostSample, Label, LabelValue, LabelsId, Ledger, Line,
    Module, ModuleId, ModuleKind, Peer, Process, Recording, Role, Sample, SliceValue, Slices,
    Stack, StackEnd, StackId, State, TaskGroup, TaskTime, WaitSeen, Window,
};

use super::{Ladder, Reading, Verdict};

mod callers;
mod causes;
mod collections;
mod cpu;
mod event_loops;
mod impact;
mod locks;
mod roots;
mod single_waits;
mod words;

const TENTH: u64 = 100_000_000;

fn climb(rec: &Recording) -> Ladder {
    Ladder::new(rec)
}

/// A recording of 10 s on two CPUs. Each thread: (on-CPU, woken, throttled, reason, blocked) in
/// tenths of a second; each of its states has samples in `program::<thread>` called through libc.
fn recording(threads: &[(u64, u64, u64, BlockReason, u64)]) -> Recording {
    let mut rec = Recording {
        window: Window {
            start_ns: 0,
            end_ns: 100 * TENTH,
            ..Window::default()
        },
        slices: Slices {
            start_ns: 0,
            width_ns: 5 * TENTH,
            count: 20,
        },
        ..Recording::default()
    };
    rec.domain.cpus = 2;
    rec.modules = ["/srv/app/program", "/usr/lib/x86_64-linux-gnu/libc.so.6"]
        .map(|path| Module {
            kind: ModuleKind::Elf,
            path: path.into(),
            build_id: "".into(),
            pid: 0,
        })
        .to_vec();
    let function = |rec: &mut Recording, name: String, module: u32| {
        rec.functions.push(Function {
            name: Arc::from(name.as_str()),
            system_name: Arc::from(name.as_str()),
            file: "".into(),
            start_line: 0,
        });
        rec.frames.push(Frame {
            kind: FrameKind::Native,
            module: Some(ModuleId(module)),
            address: rec.frames.len() as u64,
            lines: vec![Line {
                function: FunctionId(rec.functions.len() as u32 - 1),
                line: 1,
            }],
        });
        FrameId(rec.frames.len() as u32 - 1)
    };
    let libc = function(&mut rec, "wait_in_libc".into(), 1);
    let std = function(&mut rec, "<std::sync::Mutex<T>>::lock".into(), 0);
    for (i, (on_cpu, woken, throttled, reason, blocked)) in threads.iter().enumerate() {
        let own = function(&mut rec, format!("program::f{i}"), 0);
        rec.stacks.push(Stack {
            frames: vec![libc, std, own],
            end: StackEnd::Root,
        });
        let mut l = Ledger::default();
        l.on_cpu.user = on_cpu * TENTH;
        l.runnable.woken = woken * TENTH;
        l.runnable.throttled = throttled * TENTH;
        l.blocked[*reason as usize] = blocked * TENTH;
        l.wall_ns = (on_cpu + woken + throttled + blocked) * TENTH;
        rec.contexts.push(Context {
            pid: 1,
            tid: i as u32,
            name: Arc::from(format!("t{i}").as_str()),
            start_ns: 0,
            end_ns: 100 * TENTH,
            ledger: l,
        });
        let parts = [
            (State::OnCpu, None, on_cpu),
            (State::Runnable, None, &(woken + throttled)),
            (State::Blocked, Some(*reason), blocked),
        ];
        for (state, reason, tenths) in parts.into_iter().filter(|(.., t)| **t > 0) {
            rec.samples.push(Sample {
                context: ContextId(i as u32),
                stack: StackId(rec.stacks.len() as u32 - 1),
                state,
                reason,
                part: None,
                idle: false,
                cpu: None,
                labels: None,
                count: tenths * 10,
                ns: tenths * TENTH,
                slices: (0..20)
                    .map(|slice| SliceValue {
                        slice,
                        count: tenths * 10 / 20,
                        ns: tenths * TENTH / 20,
                    })
                    .collect(),
            });
        }
    }
    rec
}

/// Sample 1 of `rec` was ended by `actor`.
fn ended_by(rec: &mut Recording, actor: Actor) {
    rec.actors.push(actor);
    rec.hops.push(Hop {
        above: Above::Sample(1),
        role: Role::Woke,
        actor: ActorId(rec.actors.len() as u32 - 1),
        stack: None,
        reason: None,
        part: None,
        labels: None,
        count: rec.samples[1].count,
        ns: rec.samples[1].ns,
    });
}

/// Names the frame at `depth` of the first stack, and sets its kind.
fn rename(rec: &mut Recording, depth: usize, kind: FrameKind, name: &str) {
    let frame = rec.stacks[0].frames[depth].0 as usize;
    rec.frames[frame].kind = kind;
    let function = rec.frames[frame].lines[0].function;
    rec.functions[function.0 as usize].name = name.into();
}
