//! Births, programs and mappings, from two rings, in the order in which they came to pass.
//!
//! A child has the mappings that its parent had when it forked, no earlier and no later ones: a
//! server that starts and at once forks its workers is known whole only if its own new mappings are
//! taken in before its children's births. Both rings tell times of one clock, so their records are
//! merged. What is younger than the moment at which taking began may be missing in one of the rings
//! still, and waits for the next turn.

use std::cell::RefCell;

use libbpf_rs::RingBuffer;

use super::{intake::Intake, late, now, processes::Processes};
use crate::{
    backend::ebpf::{
        Programs,
        sideband::{Change, Sideband},
    },
    event::ThreadEvent,
};

/// Turns in a row, at most: what is left after them waits for the next event.
const TURNS: usize = 3;

/// What was taken and waits for its turn.
#[derive(Default)]
pub struct Upkeep {
    news: Vec<ThreadEvent>,
    changes: Vec<(u64, Change)>,
}

impl Upkeep {
    /// Takes all events that came and brings mappings and processes up to date with them. `ring`:
    /// `None` once it is closed and emptied, when nothing more can come.
    pub fn follow(
        &mut self,
        programs: &mut Programs,
        sideband: &mut Sideband,
        ring: Option<&RingBuffer<'_>>,
        processes: &mut Processes,
        intake: &RefCell<Intake>,
    ) {
        for _ in 0..TURNS {
            let upto = ring.map_or(u64::MAX, |_| now());
            // In this order: a mapping that is seen belongs to a process whose birth is seen then.
            self.changes.extend(sideband.drain());
            if let Some(ring) = ring {
                let _ = ring.consume();
            }
            self.news.append(&mut intake.borrow_mut().news);
            self.tell(upto, processes);
            if self.news.is_empty() && self.changes.is_empty() {
                break;
            }
        }
        let mut intake = intake.borrow_mut();
        intake.resources.settle(processes.managed());
        processes.settle();
        for hash in std::mem::take(&mut intake.unnamed) {
            if let Some(stack) = intake.managed.get(&hash) {
                processes.managed_mut().name(stack);
            }
        }
        for hash in std::mem::take(&mut intake.unnamed_vm) {
            if let Some(stack) = intake.user.get(&hash) {
                let frames = stack.frames.iter().copied();
                processes.managed_mut().java.name(frames, None);
                processes.managed_mut().scripts.name(&stack.frames, None);
            }
        }
        let java = &mut processes.managed_mut().java;
        intake.tell_java(java);
        programs.add_sleeps(&java.take_sleeps());
        java.look_at_threads();
        programs.add_java_threads(&java.take_threads());
        intake.tell_owners(java);
        programs.set_managed(processes.managed().processes());
        let most = late::MOST;
        for raw in intake
            .raws
            .iter_mut()
            .take(most)
            .filter(|r| r.mappings.is_none())
        {
            raw.mappings = processes.snapshot(raw.pid());
        }
        processes.unwind_late(&mut intake, false);
        if intake.raws.len() < most {
            programs.allow_raw(late::RATION);
        }
        // Last: what ended may have left stacks behind. Not before its birth.
        if self.news.is_empty() {
            for pid in std::mem::take(&mut intake.gone) {
                processes.thread_gone(pid);
            }
        }
    }

    /// Tells what came to pass until `upto`, in order.
    fn tell(&mut self, upto: u64, processes: &mut Processes) {
        self.news.sort_by_key(|e| e.time);
        self.changes.sort_by_key(|(time, _)| *time);
        let news = self.news.partition_point(|e| e.time <= upto);
        let changes = self.changes.partition_point(|(time, _)| *time <= upto);
        let mut changes = self.changes.drain(..changes).peekable();
        for e in self.news.drain(..news) {
            while let Some((_, change)) = changes.next_if(|(time, _)| *time <= e.time) {
                processes.change(change);
            }
            processes.news(&e);
        }
        changes.for_each(|(_, change)| processes.change(change));
    }
}
