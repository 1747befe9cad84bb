//! Reads Python objects of another process: dicts, attributes, texts, sets, types.
//!
//! A page is read once in each snapshot and cached, as objects of a kind lie side by side. Between two snapshots only
//! the addresses of the pages stay, because an agent watches many processes. No value
//! is trusted: every count is bounded, and every pointer may be invalid.

use rustc_hash::FxHashMap;

use super::super::{Facts, code, layout::Objects as Texts};
use super::offsets::{Attributes, Offsets};
use crate::runtime::process_memory::Memory;

/// Maximum entries of a dict, and of a set.
const MAX_KEYS: u64 = 1 << 16;
const MAX_MEMBERS: u64 = 1 << 20;
/// Maximum interpreters of a process.
const MAX_INTERPRETERS: usize = 64;
/// Maximum cached attribute names.
const MAX_NAMES: usize = 1 << 12;
/// Maximum cached pages, 4 KiB each: 16 MiB while a process is read.
const MAX_PAGES: usize = 1 << 12;
const PAGE: u64 = 4096;

/// Offset of the dict in a module.
const MODULE_DICT: u64 = 16;
/// Offsets in an integer: its size, and its lowest digit. From 3.12 on the size follows three bits.
const INTEGER_SIZE: u64 = 16;
const INTEGER_DIGIT: u64 = 24;
/// Offsets in a type: name, bytes of an instance, flags, base type, offset of the instances' dict.
const TYPE_NAME: u64 = 24;
const TYPE_BYTES: u64 = 32;
const TYPE_FLAGS: u64 = 168;
const TYPE_BASE: u64 = 256;
const TYPE_DICT: u64 = 288;
/// Type flags: instances have inline values; they have a dict before them; the type was created at
/// run time.
const INLINE_VALUES: u64 = 1 << 2;
const MANAGED_DICT: u64 = 1 << 4;
pub(super) const HEAP_TYPE: u64 = 1 << 9;

/// Page cache of a process's memory.
#[derive(Default)]
pub(in super::super) struct PageCache {
    /// Index of a page in `bytes` if it could be read, and whether it was used.
    offsets: FxHashMap<u64, (Option<usize>, bool)>,
    bytes: Vec<u8>,
    /// Pages that the last snapshot used.
    used: Vec<u64>,
    /// Attribute names by the address of their objects, which live as long as their class.
    names: FxHashMap<u64, Box<str>>,
}

impl PageCache {
    /// Drops all cached pages.
    pub(in super::super) fn clear(&mut self) {
        self.offsets.clear();
        self.bytes.clear();
    }

    /// Frees the pages. Their addresses stay for [`PageCache::renew`].
    pub(super) fn release(&mut self) {
        let pages = std::mem::take(&mut self.offsets).into_iter();
        let used = pages.filter(|(_, (at, used))| *used && at.is_some());
        self.used = used.map(|(page, _)| page).collect();
        self.bytes = Vec::new();
    }

    /// Reads all pages that the last snapshot used in one call: a snapshot mostly needs the pages of the last one.
    pub(super) fn renew(&mut self, memory: &mut dyn Memory) {
        let pages = std::mem::take(&mut self.used);
        self.clear();
        let wanted: Vec<_> = pages.iter().map(|page| (*page, PAGE as usize)).collect();
        self.bytes.resize(pages.len() * PAGE as usize, 0);
        let readable = memory.read_all(&wanted, &mut self.bytes);
        let read = pages.into_iter().zip(readable).enumerate();
        let read = read.filter(|(_, (_, readable))| *readable);
        self.offsets
            .extend(read.map(|(i, (page, _))| (page, (Some(i * PAGE as usize), false))));
    }

    /// Returns the bytes of a page.
    fn page(&mut self, page: u64, memory: &mut dyn Memory) -> Option<&[u8]> {
        if self.offsets.len() >= MAX_PAGES {
            self.clear();
        }
        let bytes = &mut self.bytes;
        let (at, asked) = self.offsets.entry(page).or_insert_with(|| {
            let at = bytes.len();
            bytes.resize(at + PAGE as usize, 0);
            let read = memory.read(page, &mut bytes[at..]);
            if !read {
                bytes.truncate(at);
            }
            (read.then_some(at), true)
        });
        *asked = true;
        let at = (*at)?;
        Some(&self.bytes[at..at + PAGE as usize])
    }
}

/// Reader of the Python objects of a process.
pub(in super::super) struct Objects<'l> {
    pub(in super::super) memory: &'l mut dyn Memory,
    pub(in super::super) pages: &'l mut PageCache,
    pub(in super::super) offsets: &'l Offsets,
    pub(in super::super) texts: &'l Texts,
}

/// Keys of a dict, and the layout of its entries.
struct Keys {
    entries: u64,
    size: u64,
    key: u64,
    n: u64,
}

impl Objects<'_> {
    /// Fills `to` from `at` on; returns whether it could.
    pub(super) fn read(&mut self, mut at: u64, mut to: &mut [u8]) -> bool {
        while !to.is_empty() {
            let (page, from) = (at & !(PAGE - 1), (at & (PAGE - 1)) as usize);
            let n = to.len().min(PAGE as usize - from);
            let Some(bytes) = self.pages.page(page, self.memory) else {
                return false;
            };
            let (now, rest) = to.split_at_mut(n);
            now.copy_from_slice(&bytes[from..from + n]);
            (at, to) = (at.wrapping_add(n as u64), rest);
        }
        true
    }

    /// Reads the words from `at` on.
    pub(in super::super) fn words<const N: usize>(&mut self, at: u64) -> Option<[u64; N]> {
        let mut words = [0u64; N];
        for (i, word) in words.iter_mut().enumerate() {
            let mut bytes = [0u8; 8];
            let at = at.checked_add(8 * i as u64)?;
            if at < PAGE || at % 8 != 0 || !self.read(at, &mut bytes) {
                return None;
            }
            *word = u64::from_le_bytes(bytes);
        }
        Some(words)
    }

    pub(in super::super) fn word(&mut self, at: u64) -> Option<u64> {
        self.words(at).map(|[word]| word)
    }

    /// Reads the word at `at` if it can be an address, so that offsets can be added safely.
    pub(in super::super) fn pointer(&mut self, at: u64) -> Option<u64> {
        self.word(at).filter(|to| to >> 47 == 0)
    }

    pub(super) fn byte(&mut self, at: u64) -> Option<u8> {
        let mut byte = [0u8; 1];
        self.read(at, &mut byte).then_some(byte[0])
    }

    /// Reads four bytes, signed.
    pub(super) fn half(&mut self, at: u64) -> Option<i32> {
        let mut bytes = [0u8; 4];
        self.read(at, &mut bytes).then(|| i32::from_le_bytes(bytes))
    }

    /// Reads the type of an object.
    pub(in super::super) fn type_of(&mut self, object: u64) -> Option<u64> {
        self.pointer(object.checked_add(8)?)
    }

    /// Reads the name of a type; for C types with the module.
    pub(in super::super) fn type_name(&mut self, class: u64) -> Option<String> {
        let at = self.word(class.checked_add(TYPE_NAME)?)?;
        let mut name = Vec::new();
        for i in 0..128 {
            match self.byte(at.checked_add(i)?)? {
                0 => return String::from_utf8(name).ok(),
                byte => name.push(byte),
            }
        }
        None
    }

    pub(super) fn type_flags(&mut self, class: u64) -> Option<u64> {
        self.word(class.checked_add(TYPE_FLAGS)?)
    }

    /// Reads the bytes of an instance.
    pub(super) fn instance_bytes(&mut self, class: u64) -> Option<u64> {
        self.word(class.checked_add(TYPE_BYTES)?)
    }

    /// Reads the base type of `class`; 0: none.
    pub(super) fn base(&mut self, class: u64) -> Option<u64> {
        self.word(class.checked_add(TYPE_BASE)?)
    }

    /// Reads the content of a `str` object.
    pub(in super::super) fn text(&mut self, object: u64) -> Option<String> {
        let texts = self.texts;
        code::text(texts, object, &mut |at, to: &mut [u8]| self.read(at, to)).ok()
    }

    /// Reads the members of a list.
    pub(super) fn list(&mut self, object: u64) -> Option<Vec<u64>> {
        let [n, first] = self.words(object.checked_add(16)?)?;
        let all = 0..n.min(MAX_KEYS);
        all.map(|i| self.word(first.checked_add(8 * i)?)).collect()
    }

    /// Reads the number of members of a list.
    pub(super) fn list_len(&mut self, object: u64) -> Option<u64> {
        self.word(object.checked_add(16)?)
    }

    /// Reads the first member of a list.
    pub(super) fn list_first(&mut self, object: u64) -> Option<u64> {
        let first = self.pointer(object.checked_add(24)?)?;
        self.pointer(first)
    }

    pub(super) fn tuple_first(&mut self, object: u64) -> Option<u64> {
        self.pointer(object.checked_add(self.offsets.tuple_first)?)
    }

    /// Reads the members of a set.
    pub(super) fn set(&mut self, object: u64) -> Option<Vec<u64>> {
        let [used, mask, table] = self.words(object.checked_add(24)?)?;
        let slots = mask.checked_add(1)?;
        if !slots.is_power_of_two() || slots > MAX_MEMBERS || used > slots {
            return None;
        }
        // Read it in one piece and uncached: it is the only large object here.
        let mut bytes = vec![0u8; 16 * slots as usize];
        if !self.memory.read(table, &mut bytes) {
            return None;
        }
        let key = |entry: &[u8]| u64::from_le_bytes(entry[..8].try_into().expect("eight bytes"));
        let all = bytes.chunks_exact(16).map(key);
        Some(all.filter(|key| *key != 0 && key % 8 == 0).collect())
    }

    /// Returns each interpreter's state, and its `sys.modules`, in a process with load bias `bias`.
    pub(in super::super) fn interpreters(&mut self, facts: &Facts, bias: u64) -> Vec<(u64, u64)> {
        let walk = &facts.layout.walk;
        let (head, next) = (u64::from(walk.interp_head), u64::from(walk.interp_next));
        let modules = u64::from(self.offsets.modules);
        let runtime = facts.runtime.wrapping_add(bias);
        let mut at = self.pointer(runtime.wrapping_add(head));
        let mut found = Vec::new();
        for _ in 0..MAX_INTERPRETERS {
            let Some(interpreter) = at.filter(|at| *at != 0) else {
                break;
            };
            if let Some(modules) = self.pointer(interpreter + modules) {
                found.push((interpreter, modules));
            }
            at = self.pointer(interpreter + next);
        }
        found
    }

    /// Reads the dict of module `name`, as `sys.modules` has it.
    pub(in super::super) fn module_dict(&mut self, modules: u64, name: &str) -> Option<u64> {
        let module = self.item(modules, name)?;
        self.pointer(module.checked_add(MODULE_DICT)?)
    }

    /// Reads all values of a dict.
    pub(in super::super) fn dict_values(&mut self, dict: u64) -> Option<Vec<u64>> {
        let [keys, values] = self.words(dict.checked_add(32)?)?;
        let keys = self.keys(keys)?;
        let all = (0..keys.n).filter_map(|i| self.value(&keys, values, i));
        Some(all.collect())
    }

    /// Reads an integer of one digit, 30 bits, that is not negative.
    pub(in super::super) fn small_integer(&mut self, object: u64) -> Option<u32> {
        let size = self.word(object.checked_add(INTEGER_SIZE)?)?;
        let digits = match self.offsets.attributes {
            Attributes::Dict | Attributes::Before => size,
            Attributes::Tagged | Attributes::Inline if size & 3 == 2 => return None,
            Attributes::Tagged | Attributes::Inline => size >> 3,
        };
        let digit = self.half(object.checked_add(INTEGER_DIGIT)?)?;
        (digits == 1).then_some(digit.try_into().ok()).flatten()
    }

    /// The number of entries of a dict and its keys' address, which change with its content.
    pub(in super::super) fn dict_version(&mut self, dict: u64) -> Option<[u64; 2]> {
        let [used, _, keys] = self.words(dict.checked_add(16)?)?;
        Some([used, keys])
    }

    /// Reads the value of `name` in a dict.
    pub(in super::super) fn item(&mut self, dict: u64, name: &str) -> Option<u64> {
        let [keys, values] = self.words(dict.checked_add(32)?)?;
        let keys = self.keys(keys)?;
        let i = (0..keys.n).find(|i| {
            let key = self.key(&keys, *i);
            key.is_some_and(|key| self.is_text(key, name))
        })?;
        self.value(&keys, values, i)
    }

    /// Reads the value of attribute `name` in an instance's dict.
    fn instance_item(&mut self, dict: u64, name: &str) -> Option<u64> {
        let [keys, values] = self.words(dict.checked_add(32)?)?;
        let keys = self.keys(keys)?;
        let i = (0..keys.n).find(|i| self.is_named(&keys, *i, name))?;
        self.value(&keys, values, i)
    }

    fn key(&mut self, keys: &Keys, i: u64) -> Option<u64> {
        self.word(keys.entries + i * keys.size + keys.key)
    }

    /// Reads the value of entry `i`; `values` are those of a dict that shares its keys, or 0.
    fn value(&mut self, keys: &Keys, values: u64, i: u64) -> Option<u64> {
        match values {
            0 => self.word(keys.entries + i * keys.size + keys.key + 8),
            values => {
                let head = u64::from(self.offsets.attributes == Attributes::Inline) * 8;
                self.word(values.checked_add(head + 8 * i)?)
            }
        }
        .filter(|value| *value != 0)
    }

    fn keys(&mut self, at: u64) -> Option<Keys> {
        let keys = if self.offsets.short_heads {
            let [shape, _, n] = self.words(at.checked_add(8)?)?;
            let general = shape >> 16 & 0xff == 0;
            let indices = 1u64.checked_shl((shape >> 8 & 0xff) as u32)?;
            Keys {
                entries: at.checked_add(32)?.checked_add(indices)?,
                size: if general { 24 } else { 16 },
                key: if general { 8 } else { 0 },
                n,
            }
        } else {
            let [slots, _, _, n] = self.words(at.checked_add(8)?)?;
            let width = match slots {
                0..=0xff => 1,
                0x100..=0xffff => 2,
                _ => 4,
            };
            Keys {
                entries: at.checked_add(40)?.checked_add(slots.checked_mul(width)?)?,
                size: 24,
                key: 8,
                n,
            }
        };
        (keys.n <= MAX_KEYS && keys.entries >> 47 == 0).then_some(keys)
    }

    /// Whether the key of entry `i`, in keys that a class shares with its instances, is `name`.
    fn is_named(&mut self, keys: &Keys, i: u64, name: &str) -> bool {
        let Some(key) = self.key(keys, i) else {
            return false;
        };
        if let Some(known) = self.pages.names.get(&key) {
            return **known == *name;
        }
        let text = self.text(key);
        let is = text.as_deref() == Some(name);
        if let Some(text) = text.filter(|_| self.pages.names.len() < MAX_NAMES) {
            self.pages.names.insert(key, text.into());
        }
        is
    }

    /// Whether `object` is the text `name`.
    fn is_text(&mut self, object: u64, name: &str) -> bool {
        let length = object.checked_add(16).and_then(|at| self.word(at));
        length == Some(name.len() as u64) && self.text(object).as_deref() == Some(name)
    }

    /// Reads attribute `name` of an instance of a Python class, or of a class derived from a C
    /// class that gives its instances a dict.
    pub(in super::super) fn attribute(&mut self, object: u64, name: &str) -> Option<u64> {
        let class = self.type_of(object)?;
        let flags = self.type_flags(class)?;
        let before = |words: u64| object.checked_sub(8 * words);
        let managed = self.offsets.attributes != Attributes::Dict && flags & MANAGED_DICT != 0;
        if !managed {
            let offset = self.word(class.checked_add(TYPE_DICT)?)?;
            if offset == 0 || offset > 1 << 16 {
                return None;
            }
            return match self.word(object.checked_add(offset)?)? {
                0 => None,
                dict => self.instance_item(dict, name),
            };
        }
        let word = self.word(before(3)?)?;
        let values = match self.offsets.attributes {
            Attributes::Tagged if word & 1 == 1 => word + 1,
            _ if word != 0 => return self.instance_item(word, name),
            Attributes::Before => self.word(before(4)?)?,
            Attributes::Inline if flags & INLINE_VALUES != 0 => {
                let values = object.checked_add(self.instance_bytes(class)?)?;
                if self.byte(values + 3)? != 1 {
                    return None;
                }
                values + 8
            }
            _ => return None,
        };
        let keys = self.word(class.checked_add(self.offsets.shared_keys.into())?)?;
        let keys = self.keys(keys)?;
        let i = (0..keys.n).find(|i| self.is_named(&keys, *i, name))?;
        self.word(values.checked_add(8 * i)?)
            .filter(|value| *value != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory that keeps the addresses that were read.
    #[derive(Default)]
    struct Read(Vec<u64>);

    impl Memory for Read {
        fn read(&mut self, at: u64, to: &mut [u8]) -> bool {
            self.0.push(at);
            to.fill(7);
            true
        }
    }

    #[test]
    fn a_cache_keeps_no_page_between_snapshots() {
        let (mut pages, mut memory) = (PageCache::default(), Read::default());
        for page in [0x1000, 0x2000, 0x1000] {
            assert_eq!(pages.page(page, &mut memory).map(|p| p[0]), Some(7));
        }
        pages.release();
        assert_eq!((pages.bytes.capacity(), pages.offsets.capacity()), (0, 0));
        memory.0.clear();
        pages.renew(&mut memory);
        memory.0.sort_unstable();
        assert_eq!(memory.0, [0x1000, 0x2000]);
        // The next snapshot needs one of them only.
        assert!(pages.page(0x1000, &mut memory).is_some());
        assert_eq!(memory.0.len(), 2);
        pages.release();
        assert_eq!(pages.used, [0x1000]);
    }
}
