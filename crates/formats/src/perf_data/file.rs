//! The parts of a `perf.data` file: its events, its records, its sections about the machine.
//!
//! A file has a header with the places of all parts. A file that was written to a pipe has records
//! only, and its events and sections are records among them. Both become one [`File`].

use std::borrow::Cow;
use std::ops::Range;

use super::super::{Bounds, ReadError};
use super::attribute::{Attribute, kind};
use super::order::{Fields, Order};
use super::records::{self, Records};

/// Bytes of the header.
const HEADER: usize = 104;
/// Places of sections in the header: offset, then size.
const ATTRIBUTES: usize = 24;
const DATA: usize = 40;
const FEATURES: usize = 72;
/// Bytes of the header of a file that was written to a pipe.
const PIPE_HEADER: usize = 16;
/// Maximum events of a file; a file with more is malformed.
const MAX_EVENTS: usize = 1 << 16;

/// Numbers of sections about the machine.
pub(super) mod feature {
    pub const BUILD_ID: u32 = 2;
    pub const OSRELEASE: u32 = 4;
    pub const VERSION: u32 = 5;
    pub const ARCH: u32 = 6;
    pub const NRCPUS: u32 = 7;
    pub const CMDLINE: u32 = 11;
    pub const EVENT_DESC: u32 = 12;
    pub const PMU_MAPPINGS: u32 = 16;
    pub const DIR_FORMAT: u32 = 24;
    /// simpleperf's own: facts about the recording, and names of its events.
    pub const SIMPLEPERF_META_INFO: u32 = 129;
}

/// An event of the file.
#[derive(Clone, Debug)]
pub(super) struct EventDescription {
    pub attribute: Attribute,
    /// Empty where the file does not name it.
    pub name: String,
    pub ids: Vec<u64>,
}

/// The parts of a file.
pub(super) struct File<'a> {
    pub order: Order,
    pub events: Vec<EventDescription>,
    pub records: Cow<'a, [u8]>,
    features: Vec<(u32, Vec<u8>)>,
    /// The file ends before parts that its header names, or a part is damaged.
    pub cut: bool,
}

/// A section's bounds, if it lies within the file.
fn section(bytes: &[u8], at: usize, order: Order) -> Option<Range<usize>> {
    let start = usize::try_from(order.long(bytes, at)?).ok()?;
    let size = usize::try_from(order.long(bytes, at.checked_add(8)?)?).ok()?;
    let end = start.checked_add(size)?;
    (end <= bytes.len()).then_some(start..end)
}

impl<'a> File<'a> {
    /// Splits a file into its parts.
    ///
    /// # Errors
    /// [`ReadError::Truncated`] and [`ReadError::Damaged`] where the events are not described,
    /// [`ReadError::UnknownLayout`] where their layout is unknown, [`ReadError::TooLarge`].
    pub(super) fn parse(bytes: &'a [u8], bounds: Bounds) -> Result<File<'a>, ReadError> {
        let order = Order::of(bytes);
        let mut file = if order.long(bytes, 8) == Some(PIPE_HEADER as u64) {
            from_pipe(bytes, order, bounds)?
        } else {
            from_header(bytes, order, bounds)?
        };
        file.name_events();
        if file.events.is_empty() {
            return Err(ReadError::damaged(
                "its header does not describe its events",
            ));
        }
        for event in &file.events {
            event.attribute.check()?;
        }
        Ok(file)
    }

    /// The bytes of a section about the machine, empty where the file has none.
    pub(super) fn feature(&self, number: u32) -> &[u8] {
        let own = self.features.iter().rev().find(|(n, _)| *n == number);
        own.map_or(&[], |(_, bytes)| bytes)
    }

    /// A section that is one text.
    pub(super) fn text(&self, number: u32) -> String {
        text(&mut Fields::new(self.feature(number), self.order)).unwrap_or_default()
    }

    /// A section that is a list of texts.
    pub(super) fn texts(&self, number: u32) -> Vec<String> {
        let mut f = Fields::new(self.feature(number), self.order);
        let n = f.int().unwrap_or(0);
        (0..n).map_while(|_| text(&mut f)).collect()
    }

    /// CPUs online: the second number of its section.
    pub(super) fn cpus(&self) -> u32 {
        self.order
            .int(self.feature(feature::NRCPUS), 4)
            .unwrap_or(0)
    }

    /// Whether simpleperf wrote the file.
    pub(super) fn is_simpleperf(&self) -> bool {
        !self.feature(feature::SIMPLEPERF_META_INFO).is_empty()
    }

    /// Names events as the sections do.
    fn name_events(&mut self) {
        let described = descriptions(self.feature(feature::EVENT_DESC), self.order);
        let same_number = described.len() == self.events.len();
        let simpleperf = simpleperf_names(self.feature(feature::SIMPLEPERF_META_INFO));
        let pmus = self.pmus();
        for (i, event) in self.events.iter_mut().enumerate() {
            let by_id = |d: &&(String, Vec<u64>)| {
                let (own, other) = (event.ids.first(), d.1.first());
                own.is_some() && own == other
            };
            let by_place = || described.get(i).filter(|_| same_number);
            if let Some((name, _)) = described.iter().find(by_id).or_else(by_place) {
                event.name.clone_from(name);
            }
            let a = event.attribute;
            let simple = simpleperf
                .iter()
                .find(|(_, k, c)| (*k, *c) == (a.kind, a.config));
            if let Some((name, ..)) = simple.filter(|_| event.name.is_empty()) {
                event.name.clone_from(name);
            }
            if event.name.is_empty() {
                event.name = name_of(&a);
            }
        }
        self.tell_pmus_apart(&pmus);
    }

    /// Hybrid CPUs have one event for each kind of core. If both have one name, the PMU's name is put before it.
    fn tell_pmus_apart(&mut self, pmus: &[(u32, String)]) {
        let names: Vec<String> = self.events.iter().map(|e| e.name.clone()).collect();
        for (i, event) in self.events.iter_mut().enumerate() {
            let a = event.attribute;
            let pmu = (a.config >> 32) as u32;
            let generic = matches!(a.kind, kind::HARDWARE | kind::HARDWARE_CACHE) && pmu != 0;
            let twice = (names.iter().enumerate()).any(|(j, n)| j != i && *n == event.name);
            if generic && twice && !event.name.contains('/') {
                let own = pmus.iter().find(|(number, _)| *number == pmu);
                let pmu = own.map_or(format!("pmu{pmu}"), |(_, name)| name.clone());
                event.name = format!("{pmu}/{}/", event.name);
            }
        }
    }

    /// Numbers and names of PMUs.
    fn pmus(&self) -> Vec<(u32, String)> {
        let mut f = Fields::new(self.feature(feature::PMU_MAPPINGS), self.order);
        let n = f.int().unwrap_or(0);
        (0..n)
            .map_while(|_| Some((f.int()?, text(&mut f)?)))
            .collect()
    }
}

/// A file with a header.
fn from_header(bytes: &[u8], order: Order, bounds: Bounds) -> Result<File<'_>, ReadError> {
    if bytes.len() < HEADER {
        return Err(ReadError::Truncated);
    }
    let size = order.long(bytes, 16).unwrap_or(0) as usize;
    let undescribed = || ReadError::damaged("its header does not describe its events");
    let own = section(bytes, ATTRIBUTES, order)
        .filter(|own| (Attribute::MIN_SIZE + 16..=4096).contains(&size) && own.len() % size == 0)
        .filter(|own| own.len() / size <= MAX_EVENTS)
        .ok_or_else(undescribed)?;
    let mut events = Vec::new();
    let mut cut = false;
    for at in own.step_by(size) {
        let entry = &bytes[at..at + size];
        let (attribute, length) = Attribute::parse(entry, order).ok_or_else(undescribed)?;
        if length > size - 16 {
            return Err(undescribed());
        }
        let ids = section(bytes, at + size - 16, order);
        cut |= ids.is_none();
        events.push(EventDescription {
            attribute,
            name: String::new(),
            ids: words(&bytes[ids.unwrap_or(0..0)], order),
        });
    }
    let (data, whole) = data_section(bytes, order)?;
    let end = data.end;
    let unpacked = records::unpack(&bytes[data], order, bounds.decompressed)?;
    cut |= !whole || unpacked.cut;
    // If perf did not end the records, no sections follow them.
    let (features, all) = match whole {
        true => features(bytes, end, order),
        false => (Vec::new(), true),
    };
    Ok(File {
        order,
        events,
        records: unpacked.bytes,
        features,
        cut: cut || !all,
    })
}

/// The bounds of the records, and whether perf itself ended them.
fn data_section(bytes: &[u8], order: Order) -> Result<(Range<usize>, bool), ReadError> {
    let start = order.long(bytes, DATA).unwrap_or(0);
    let size = order.long(bytes, DATA + 8).unwrap_or(0);
    let len = bytes.len() as u64;
    if start > len {
        return Err(ReadError::Truncated);
    }
    if start < HEADER as u64 {
        return Err(ReadError::damaged(
            "its header says that its data lies within the header",
        ));
    }
    // perf writes the size when it ends.
    let end = start
        .checked_add(size)
        .filter(|end| size > 0 && *end <= len);
    Ok((start as usize..end.unwrap_or(len) as usize, end.is_some()))
}

/// The sections in the table at `table`, and whether all of them lie in the file.
fn features(bytes: &[u8], table: usize, order: Order) -> (Vec<(u32, Vec<u8>)>, bool) {
    let mut all = true;
    let mut found = Vec::new();
    let present = (0..256u32).filter(|bit| {
        let word = order.long(bytes, FEATURES + 8 * (*bit as usize / 64));
        word.unwrap_or(0) >> (bit % 64) & 1 == 1
    });
    let mut held = 0;
    for (i, bit) in present.enumerate() {
        match section(bytes, table + 16 * i, order) {
            // Sections of a damaged file may all be the whole file.
            Some(own) if held + own.len() <= bytes.len() => {
                held += own.len();
                found.push((bit, bytes[own].to_vec()));
            }
            _ => all = false,
        }
    }
    (found, all)
}

/// A file that was written to a pipe.
fn from_pipe(bytes: &[u8], order: Order, bounds: Bounds) -> Result<File<'_>, ReadError> {
    let unpacked = records::unpack(&bytes[PIPE_HEADER..], order, bounds.decompressed)?;
    let (mut events, mut features) = (Vec::new(), Vec::new());
    let (mut names, mut build_ids) = (Vec::new(), Vec::new());
    let mut records = Records::new(&unpacked.bytes, order);
    loop {
        let at = records.at;
        let Some(record) = records.next() else { break };
        match record.kind {
            records::ATTRIBUTE if events.len() < MAX_EVENTS => {
                let undescribed = || ReadError::damaged("its events are not described");
                let (attribute, size) =
                    Attribute::parse(record.body, order).ok_or_else(undescribed)?;
                events.push(EventDescription {
                    attribute,
                    name: String::new(),
                    ids: words(&record.body[size..], order),
                });
            }
            records::BUILD_ID => build_ids.extend_from_slice(&unpacked.bytes[at..records.at]),
            records::EVENT_UPDATE => names.extend(renamed(record.body, order)),
            records::FEATURE => {
                if let Some(number) = order.long(record.body, 0) {
                    features.push((number as u32, record.body[8..].to_vec()));
                }
            }
            _ => {}
        }
    }
    if !build_ids.is_empty() {
        features.push((feature::BUILD_ID, build_ids));
    }
    for event in &mut events {
        let own = names.iter().find(|(id, _)| event.ids.contains(id));
        if let Some((_, name)) = own {
            event.name.clone_from(name);
        }
    }
    Ok(File {
        order,
        events,
        records: unpacked.bytes,
        features,
        cut: unpacked.cut,
    })
}

/// The identifier and the new name of an event.
fn renamed(body: &[u8], order: Order) -> Option<(u64, String)> {
    const NAME: u64 = 2;
    (order.long(body, 0)? == NAME).then_some(())?;
    Some((order.long(body, 8)?, c_text(body.get(16..)?)))
}

/// Names and identifiers of events as the section that describes them has them.
fn descriptions(data: &[u8], order: Order) -> Vec<(String, Vec<u64>)> {
    let mut f = Fields::new(data, order);
    let (Some(events), Some(size)) = (f.int(), f.int()) else {
        return Vec::new();
    };
    (0..events)
        .map_while(|_| {
            f.bytes(u64::from(size))?;
            let ids = f.int()?;
            let name = text(&mut f)?;
            let ids = f.words(u64::from(ids))?.iter().collect();
            Some((name, ids))
        })
        .collect()
}

/// Names, types and configurations of events as simpleperf writes them.
fn simpleperf_names(data: &[u8]) -> Vec<(String, u32, u64)> {
    let mut words = data.split(|c| *c == 0);
    let list = loop {
        match (words.next(), words.next()) {
            (Some(b"event_type_info"), Some(list)) => break list,
            (Some(_), Some(_)) => {}
            _ => return Vec::new(),
        }
    };
    let list = String::from_utf8_lossy(list);
    let event = |line: &str| {
        let mut parts = line.rsplitn(3, ',');
        let (config, kind) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some((parts.next()?.to_string(), kind, config))
    };
    list.lines().filter_map(event).collect()
}

/// A name for an event without one in the file.
fn name_of(a: &Attribute) -> String {
    let name = match (a.kind, a.config as u32) {
        (kind::HARDWARE, 0) => "cycles",
        (kind::HARDWARE, 1) => "instructions",
        (kind::SOFTWARE, 0) => "cpu-clock",
        (kind::SOFTWARE, 1) => "task-clock",
        (kind::SOFTWARE, 2) => "page-faults",
        (kind::SOFTWARE, 3) => "context-switches",
        (kind::SOFTWARE, 9) => "dummy",
        (kind::TRACEPOINT, id) => return format!("tracepoint {id}"),
        (kind, _) => return format!("event {kind}:{:#x}", a.config),
    };
    name.to_string()
}

fn words(bytes: &[u8], order: Order) -> Vec<u64> {
    let f = Fields::new(bytes, order).words(bytes.len() as u64 / 8);
    f.map(|w| w.iter().collect()).unwrap_or_default()
}

/// A text with its length before it.
fn text(f: &mut Fields) -> Option<String> {
    let size = f.int()?;
    Some(c_text(f.bytes(u64::from(size))?))
}

/// A text up to its first zero byte.
pub(super) fn c_text(bytes: &[u8]) -> String {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Finds the event of a record.
pub(super) struct Identity {
    by_id: rustc_hash::FxHashMap<u64, usize>,
    /// Bytes from the beginning of a sample, and from the end of any other record; `None`: the file
    /// has one event, or its other records do not say.
    in_sample: Option<usize>,
    in_trailer: Option<usize>,
    single: bool,
}

impl Identity {
    /// # Errors
    /// [`ReadError::UnknownLayout`] if samples of several events cannot be distinguished.
    pub(super) fn new(events: &[EventDescription]) -> Result<Identity, ReadError> {
        let mut by_id = rustc_hash::FxHashMap::default();
        for (i, e) in events.iter().enumerate() {
            by_id.extend(e.ids.iter().map(|id| (*id, i)));
        }
        let first = &events[0].attribute;
        let alike = |place: fn(&Attribute) -> Option<usize>| {
            let same = events.iter().all(|e| place(&e.attribute) == place(first));
            same.then(|| place(first))
        };
        let single = events.len() == 1;
        let in_sample = alike(Attribute::id_in_sample);
        if !single && in_sample.flatten().is_none() {
            return Err(ReadError::UnknownLayout {
                what: "it has several events, and its samples do not say of which they are"
                    .to_string(),
            });
        }
        Ok(Identity {
            by_id,
            in_sample: in_sample.flatten(),
            in_trailer: alike(Attribute::id_in_trailer).flatten(),
            single,
        })
    }

    /// The event with this identifier.
    pub(super) fn of(&self, id: u64) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// The event of a sample; `None` where the file does not describe it.
    pub(super) fn of_sample(&self, body: &[u8], order: Order) -> Option<usize> {
        if self.single {
            return Some(0);
        }
        match order.long(body, self.in_sample?)? {
            // perf made the sample itself.
            0 => Some(0),
            id => self.of(id),
        }
    }

    /// The event of any other record. All events have one layout for these, so an unknown event is taken to be
    /// the first.
    pub(super) fn of_other(&self, body: &[u8], order: Order) -> usize {
        let at = self.in_trailer.and_then(|n| body.len().checked_sub(n));
        let id = at.and_then(|at| order.long(body, at));
        id.and_then(|id| self.of(id)).unwrap_or(0)
    }
}
