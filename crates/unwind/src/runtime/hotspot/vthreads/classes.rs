//! Classes of the VM: found by name among those of the boot loader, with the field offsets of their
//! objects.
//!
//! No offset is built in. Each class lists its fields with their offsets: in its objects, or for
//! static fields in its mirror object.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::{
    method::{Stream, class_name, constant, number},
    parking::{MAX_STREAM_BYTES, decode_stream},
    structs::{Layout, Tables},
    vm::Vm,
};
use crate::runtime::{memory::Memory, tasks};

/// Maximum loaders, classes of one loader, cached classes, and superclasses.
const MAX_LOADERS: usize = 1 << 16;
const MAX_CLASSES: usize = 1 << 17;
const MAX_CACHED: usize = 1 << 14;
const MAX_SUPERCLASSES: usize = 16;
/// Bytes of a class's record that contain all fields needed for the search.
const RECORD: usize = 192;

/// A Java class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Class {
    /// Its name (`java.lang.VirtualThread`), then those of its superclasses.
    pub(super) names: Vec<String>,
    /// Bytes of an instance. Arrays are not used here.
    pub(super) size: usize,
    /// Address of the pointer to its mirror object.
    mirror: u64,
    fields: FxHashMap<String, u32>,
}

impl Class {
    /// Its own name.
    pub(super) fn name(&self) -> &str {
        self.names.first().map_or("", |n| n)
    }

    /// Whether it is the class `name`, or a subclass of it.
    pub(super) fn is(&self, name: &str) -> bool {
        self.names.iter().any(|n| n == name)
    }

    /// The offset of a field. The class's own field hides one of a superclass.
    pub(super) fn field(&self, name: &str) -> Option<usize> {
        self.fields.get(name).map(|at| *at as usize)
    }

    /// The address of its mirror object, which holds the static fields.
    pub(super) fn statics(&self, memory: &mut Memory<'_>) -> Option<u64> {
        memory.word(self.mirror).filter(|at| *at != 0)
    }
}

/// Cache of classes.
#[derive(Clone, Debug)]
pub(super) struct Classes {
    /// Address of the list of loaders.
    graph: u64,
    loader: LoaderOffsets,
    class: ClassOffsets,
    /// In an array of bytes: the first.
    bytes: u64,
    /// The smallest byte of the numbers that describe fields.
    least: u8,
    /// The boot loader, and the newest of its classes already searched.
    own: u64,
    newest: u64,
    /// With the address of the name, which identifies the class if the address is reused.
    known: FxHashMap<u64, (u64, Arc<Class>)>,
    /// Classes already checked in this snapshot.
    fresh: FxHashSet<u64>,
}

/// Offsets in a loader's record.
#[derive(Clone, Copy, Debug)]
struct LoaderOffsets {
    next: u64,
    first_class: u64,
    /// The loader itself.
    object: u64,
    /// Whether it belongs to a hidden class.
    holder: Option<u64>,
}

/// Offsets in a class.
#[derive(Clone, Copy, Debug)]
struct ClassOffsets {
    next: u64,
    name: u64,
    superclass: u64,
    size: u64,
    mirror: u64,
    pool: u64,
    fields: u64,
}

impl Classes {
    /// Builds the offsets from the tables.
    ///
    /// # Errors
    /// The missing field.
    pub(super) fn of(tables: &Tables, layout: &Layout, least: u8) -> Result<Classes, String> {
        let need = |of: &str, field: &str| {
            let found = tables.get(of, field);
            found.ok_or_else(|| format!("its tables lack {of}::{field}"))
        };
        Ok(Classes {
            graph: need("ClassLoaderDataGraph", "_head")?,
            loader: LoaderOffsets {
                next: need("ClassLoaderData", "_next")?,
                first_class: need("ClassLoaderData", "_klasses")?,
                object: need("ClassLoaderData", "_class_loader")?,
                holder: tables.get("ClassLoaderData", "_has_class_mirror_holder"),
            },
            class: ClassOffsets {
                next: need("Klass", "_next_link")?,
                name: layout.class_name,
                superclass: need("Klass", "_super")?,
                size: need("Klass", "_layout_helper")?,
                mirror: need("Klass", "_java_mirror")?,
                pool: need("InstanceKlass", "_constants")?,
                fields: need("InstanceKlass", "_fieldinfo_stream")?,
            },
            bytes: need("Array<u1>", "_data")?,
            least,
            own: 0,
            newest: 0,
            known: FxHashMap::default(),
            fresh: FxHashSet::default(),
        })
    }

    /// Checks that all cached classes are unchanged.
    pub(super) fn renew(&mut self, memory: &mut dyn tasks::Memory) {
        self.fresh.clear();
        let all: Vec<(u64, u64)> = self.known.iter().map(|(at, k)| (*at, k.0)).collect();
        let wanted: Vec<_> = all
            .iter()
            .map(|(at, _)| (at + self.class.name, 8))
            .collect();
        let mut bytes = vec![0u8; 8 * wanted.len()];
        let readable = memory.read_all(&wanted, &mut bytes);
        for ((now, ok), (at, name)) in bytes.chunks_exact(8).zip(readable).zip(all) {
            if ok && now == name.to_le_bytes() {
                self.fresh.insert(at);
            }
        }
    }

    /// Returns the class at `address`.
    pub(super) fn at(
        &mut self,
        address: u64,
        vm: &Vm,
        memory: &mut Memory<'_>,
    ) -> Option<Arc<Class>> {
        if let Some((_, class)) = self.known.get(&address)
            && self.fresh.contains(&address)
        {
            return Some(Arc::clone(class));
        }
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        let name = memory.word(address.checked_add(self.class.name)?)?;
        self.fresh.insert(address);
        if let Some((as_before, class)) = self.known.get(&address)
            && *as_before == name
        {
            return Some(Arc::clone(class));
        }
        let class = Arc::new(self.read(address, vm, memory)?);
        if self.known.len() >= MAX_CACHED {
            self.known.clear();
        }
        self.known.insert(address, (name, Arc::clone(&class)));
        Some(class)
    }

    fn read(&self, address: u64, vm: &Vm, memory: &mut Memory<'_>) -> Option<Class> {
        let mut class = Class {
            size: (memory.half(address.checked_add(self.class.size)?)? & !7) as usize,
            mirror: memory.word(address.checked_add(self.class.mirror)?)?,
            ..Class::default()
        };
        let mut at = address;
        while at != 0 && class.names.len() < MAX_SUPERCLASSES {
            class.names.push(class_name(&vm.layout, at, memory)?);
            for (name, offset) in self.own_fields(at, &vm.layout, memory)? {
                class.fields.entry(name).or_insert(offset);
            }
            at = memory.word(at.checked_add(self.class.superclass)?)?;
        }
        Some(class)
    }

    fn own_fields(
        &self,
        class: u64,
        layout: &Layout,
        memory: &mut Memory<'_>,
    ) -> Option<Vec<(String, u32)>> {
        let pool = memory.word(class.checked_add(self.class.pool)?)?;
        let at = memory.word(class.checked_add(self.class.fields)?)?;
        let mut stream = Stream::new(at.checked_add(self.bytes)?, MAX_STREAM_BYTES, memory);
        let fields = decode_stream(|| number(self.least, || stream.byte()))?;
        let named = fields.into_iter().filter_map(|(index, offset)| {
            let index = u16::try_from(index).ok()?;
            Some((constant(layout, pool, index, memory)?, offset))
        });
        Some(named.collect())
    }

    /// Finds the class `name` of the boot loader. New classes come first in its list, so classes
    /// already searched are not searched again.
    pub(super) fn find(&mut self, name: &str, vm: &Vm, memory: &mut Memory<'_>) -> Option<u64> {
        if self.own == 0 {
            self.own = self.own_loader(memory)?;
        }
        let first = memory.word(self.own + self.loader.first_class)?;
        let mut at = first;
        let mut record = [0u8; RECORD];
        let next = usize::try_from(self.class.next).ok()?;
        for _ in 0..MAX_CLASSES {
            if at == 0 || at == self.newest {
                break;
            }
            memory.bytes(at, &mut record)?;
            if class_name(&vm.layout, at, memory).is_some_and(|n| n == name) {
                return Some(at);
            }
            at = super::heap::word(&record, next)?;
        }
        self.newest = first;
        None
    }

    /// Finds the boot loader, which has no class loader object.
    fn own_loader(&self, memory: &mut Memory<'_>) -> Option<u64> {
        let mut at = memory.word(self.graph)?;
        for _ in 0..MAX_LOADERS {
            if at == 0 {
                return None;
            }
            let handle = memory.word(at.checked_add(self.loader.object)?)?;
            let is_own = handle == 0 || memory.word(handle)? == 0;
            let mut held = [0u8];
            if let Some(holder) = self.loader.holder {
                memory.bytes(at + holder, &mut held)?;
            }
            if is_own && held[0] == 0 {
                return Some(at);
            }
            at = memory.word(at + self.loader.next)?;
        }
        None
    }
}
