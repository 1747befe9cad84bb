//! Variables of mapped files: names of the locks that lie in them.

use rustc_hash::FxHashMap;
use wallscope_binfmt::{
    elf::{self, Elf},
    mapped::MappedFile,
};
use wallscope_procfs::{
    maps::Mapping,
    target_file::{MappedAt, TargetRoot, open_mapped},
};
use wallscope_symbolize::demangle;

/// Most variables that are kept, some 3 MiB, unless one file has more. A session in windows meets other files with
/// each deployment, and a browser has 100,000 variables.
const MAX_KEPT: usize = 32_768;

/// A variable of a file.
struct Named {
    start: u64,
    size: u64,
    /// As the file has it.
    name: Box<[u8]>,
}

/// Device, inode and path: a new version of a program has another inode.
type FileKey = ((u32, u32), u64, String);

/// Variables of the files in which locks were met.
pub(super) struct Variables {
    files: FxHashMap<FileKey, Vec<Named>>,
    kept: usize,
    max: usize,
}

impl Default for Variables {
    fn default() -> Variables {
        Variables {
            files: FxHashMap::default(),
            kept: 0,
            max: MAX_KEPT,
        }
    }
}

impl Variables {
    /// The variable of `file`, which process `pid` has mapped, at the first of the virtual addresses that lies in
    /// one, and the offset in it.
    pub fn at(&mut self, pid: u32, file: &Mapping, addresses: [u64; 2]) -> Option<(String, u64)> {
        let variables = self.of(pid, file);
        addresses.into_iter().find_map(|address| {
            let after = variables.partition_point(|v| v.start <= address);
            let variable = variables.get(after.checked_sub(1)?)?;
            let offset = address - variable.start;
            (offset < variable.size.max(1)).then(|| (demangle(&variable.name), offset))
        })
    }

    fn of(&mut self, pid: u32, file: &Mapping) -> &[Named] {
        let key = (file.device, file.inode, file.path.clone());
        if !self.files.contains_key(&key) {
            let read = read(pid, file);
            if self.kept + read.len() > self.max {
                self.files.clear();
                self.kept = 0;
            }
            self.kept += read.len();
            self.files.insert(key.clone(), read);
        }
        &self.files[&key]
    }
}

/// Variables of the file that process `pid` has mapped at `m`; none where it cannot be opened.
fn read(pid: u32, m: &Mapping) -> Vec<Named> {
    let root = TargetRoot::of_process(pid).ok();
    let file = open_mapped(&MappedAt::of_mapping(pid, m), root.as_ref());
    let Some(bytes) = file.ok().and_then(|f| MappedFile::map(&f).ok()) else {
        return Vec::new();
    };
    let Ok(elf) = Elf::parse(&bytes) else {
        return Vec::new();
    };
    let named = |v: elf::Variable<'_>| Named {
        start: v.address,
        size: v.size,
        name: v.name.into(),
    };
    let mut all: Vec<Named> = elf.variables().map(named).collect();
    all.sort_by_key(|v| v.start);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_other_files_go_beyond_the_limit() {
        let mut all = Variables {
            max: usize::MAX,
            ..Variables::default()
        };
        let pid = std::process::id();
        let maps = wallscope_procfs::maps::read(pid).unwrap();
        let own = maps.iter().find(|m| m.is_file()).unwrap();
        let first = all.of(pid, own).first().map(|v| v.start).unwrap();
        let found = all.at(pid, own, [first, 0]);
        assert!(found.is_some_and(|(name, offset)| !name.is_empty() && offset == 0));

        // Another version at the same path is another file.
        let version = |n: u64| Mapping {
            inode: own.inode + n,
            ..own.clone()
        };
        let each = all.kept;
        all.of(pid, &version(1));
        assert_eq!((all.files.len(), all.kept), (2, 2 * each));
        all.max = 2 * each;
        all.of(pid, &version(2));
        assert_eq!((all.files.len(), all.kept), (1, each));
    }
}
