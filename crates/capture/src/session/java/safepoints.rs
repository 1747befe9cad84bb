//! Places at which Java VMs stop threads: told to the kernel programs, or asked where a thread is polled.

use std::{collections::hash_map::Entry, sync::Arc};

use wallscope_unwind::runtime::Facts;

use super::{Java, reader};
use crate::event::VmPlaces;

impl Java {
    /// Whether a thread of `pid` that waits for `futex` now is stopped or stalled by a collector.
    pub fn collector_stops(&mut self, pid: u32, futex: u64) -> bool {
        let Some((_, vm)) = self.vms.get_mut(&pid) else {
            return false;
        };
        let mut read = reader(pid);
        let places = match self.stops.places.entry(pid) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => match vm.safepoint_places(&mut read) {
                Some(places) => new.insert(places),
                None => return false,
            },
        };
        vm.collector_stops(places, futex, &mut read)
    }

    /// Returns the places at which VMs stop threads that the kernel programs do not know yet.
    pub fn new_stops(&mut self) -> Vec<VmPlaces> {
        let mut all = Vec::new();
        for (pid, (_, vm)) in &mut self.vms {
            if self.stops.told.contains(pid) {
                continue;
            }
            let (Some(places), Some(found)) = (
                vm.safepoint_places(&mut reader(*pid)),
                self.stops.files.get(pid),
            ) else {
                continue;
            };
            self.stops.told.insert(*pid);
            let known = self
                .stops
                .numbered
                .iter()
                .position(|f| Arc::ptr_eq(f, found));
            let file = known.unwrap_or(self.stops.numbered.len());
            let mut operations = Vec::new();
            if known.is_none() {
                self.stops.numbered.push(Arc::clone(found));
                if let Ok(Facts::HotSpot(facts)) = &**found {
                    operations = facts.operations().to_vec();
                }
            }
            all.push(VmPlaces {
                pid: *pid,
                places,
                file: file as u64,
                operations,
            });
        }
        all
    }
}
