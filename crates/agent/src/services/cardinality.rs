//! A bounded number of services: the first ones keep their names, and the others are `other`.

use std::collections::{HashMap, HashSet};

/// The service of processes beyond the budget.
pub const OTHER: &str = "other";
/// Windows after which the place of a service that is gone is free: an hour of 10 s windows.
pub const IDLE_WINDOWS: u64 = 360;
/// Most distinct names beyond the budget that are counted.
const MAX_COUNTED: usize = 10_000;

/// The services that have names, and the last window of each.
#[derive(Clone, Debug, Default)]
pub struct Cardinality {
    max: usize,
    window: u64,
    services: HashMap<String, u64>,
    beyond: HashSet<u64>,
}

impl Cardinality {
    /// At most `max` services have names.
    pub fn new(max: u32) -> Cardinality {
        Cardinality {
            max: max as usize,
            ..Cardinality::default()
        }
    }

    /// Changes the budget; services that have names keep them.
    pub fn set_max(&mut self, max: u32) {
        self.max = max as usize;
    }

    /// Begins a window: places of services that are long gone become free.
    pub fn next_window(&mut self) {
        self.window += 1;
        self.beyond.clear();
        let oldest = self.window.saturating_sub(IDLE_WINDOWS);
        self.services.retain(|_, last| *last >= oldest);
    }

    /// The name under which `service` counts.
    pub fn admit<'a>(&mut self, service: &'a str) -> &'a str {
        if let Some(last) = self.services.get_mut(service) {
            *last = self.window;
            return service;
        }
        if self.services.len() < self.max {
            self.services.insert(service.to_string(), self.window);
            return service;
        }
        if self.beyond.len() < MAX_COUNTED {
            use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
            let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(service);
            self.beyond.insert(hash);
        }
        OTHER
    }

    /// Services of this window that count as [`OTHER`].
    pub fn beyond(&self) -> usize {
        self.beyond.len()
    }
}
