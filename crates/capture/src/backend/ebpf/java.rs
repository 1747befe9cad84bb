//! Facts about Java VMs for the programs: monitors of threads, sleeps, and places at which VMs stop threads.

use libbpf_rs::{MapCore, MapFlags};

use super::Programs;
use crate::event::{MonitorPlace, OPERATION_BYTES, VmPlaces};

impl Programs {
    /// Tells the programs where Java threads keep the monitors that they wait to enter.
    pub fn add_java_threads(&mut self, threads: &[MonitorPlace]) {
        let mut known = 0;
        for t in threads {
            let (object, parking) = t.parked.unzip();
            let parking = parking.unwrap_or_default();
            let words = [t.pending, t.owner, object.unwrap_or(0), parking.base];
            let how = parking.below | u32::from(parking.long) << 16;
            let halves = [parking.blocker, parking.class, parking.shift, how];
            let mut value = [0u8; 48];
            for (to, word) in value.chunks_exact_mut(8).zip(words) {
                to.copy_from_slice(&word.to_ne_bytes());
            }
            for (to, half) in value[32..].chunks_exact_mut(4).zip(halves) {
                to.copy_from_slice(&half.to_ne_bytes());
            }
            // If the map is full, the thread's waits count as waits for futexes, like those of any other thread.
            let key = t.tid.to_ne_bytes();
            let told = (self.skel.maps.java_threads).update(&key, &value, MapFlags::ANY);
            known += u32::from(told.is_ok());
        }
        if let Some(state) = self.skel.maps.bss_data.as_deref_mut() {
            state.java_known += known;
        }
    }

    /// Tells the programs of futexes that threads sleep on: (process, address).
    pub fn add_sleeps(&mut self, sleeps: &[(u32, u64)]) {
        let mut known = 0;
        for (pid, address) in sleeps {
            let mut key = [0u8; 16];
            key[..8].copy_from_slice(&address.to_ne_bytes());
            key[8..12].copy_from_slice(&pid.to_ne_bytes());
            // If the map is full, the sleep counts as a wait for a lock, as it did before.
            let told = self.skel.maps.sleeps.update(&key, &[1], MapFlags::ANY);
            known += u32::from(told.is_ok());
        }
        if let Some(state) = self.skel.maps.bss_data.as_deref_mut() {
            state.sleeps_known += known;
        }
    }

    /// Tells the programs where VMs stop their threads.
    pub fn add_vms(&mut self, all: &[VmPlaces]) {
        let mut known = 0;
        for new in all {
            for operation in &new.operations {
                let key = words(&[operation.table, new.file]);
                let mut value = [0u8; OPERATION_BYTES + 8];
                for (to, byte) in value[..OPERATION_BYTES - 1]
                    .iter_mut()
                    .zip(operation.name.bytes())
                {
                    *to = byte;
                }
                value[OPERATION_BYTES] = operation.collects.into();
                // If the map is full, waits for this operation count as waits for locks, like any others.
                let _ = (self.skel.maps.operations).update(&key, &value, MapFlags::ANY);
            }
            let p = &new.places;
            let value = words(&[
                p.barrier,
                p.operation_lock,
                p.heap_lock,
                p.critical_lock,
                p.current,
                p.next,
                p.bias,
                p.causes[0],
                p.causes[1],
                p.collections[0],
                p.collections[1],
                p.collections[2],
                new.file,
                0,
                0,
                0,
                0,
                0,
                0,
            ]);
            let key = new.pid.to_ne_bytes();
            let told = self.skel.maps.vms.update(&key, &value, MapFlags::ANY);
            known += u32::from(told.is_ok());
        }
        if let Some(state) = self.skel.maps.bss_data.as_deref_mut() {
            state.vms_known += known;
        }
    }
}

/// These words as the programs read them.
fn words(all: &[u64]) -> Vec<u8> {
    all.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
