//! A processed profile as it is written: tables of columns, in the threads or shared by them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::super::ReadError;

/// The newest known version of the format, which its changelog describes.
pub(super) const NEWEST: u32 = 70;

#[derive(Deserialize)]
pub(super) struct File {
    #[serde(default)]
    pub meta: Meta,
    #[serde(default)]
    pub libs: Vec<Lib>,
    #[serde(default)]
    pub threads: Vec<ProfileThread>,
    /// Tables of all threads: strings from version 56, sources from 58, all others from 60.
    #[serde(default)]
    pub shared: Tables,
}

/// A file that code came from.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Lib {
    pub name: Option<String>,
    pub path: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Meta {
    pub preprocessed_profile_version: Option<u32>,
    /// ms.
    pub interval: Option<f64>,
    /// ms since the epoch.
    pub start_time: f64,
    pub product: String,
    pub sample_units: Option<SampleUnits>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SampleUnits {
    /// `ms`, or `bytes` where times are offsets in a file (from version 54).
    pub time: String,
    #[serde(rename = "threadCPUDelta")]
    pub cpu: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProfileThread {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub process_name: Option<String>,
    #[serde(default)]
    pub pid: Value,
    #[serde(default)]
    pub tid: Value,
    #[serde(default)]
    pub samples: Samples,
    /// Before version 41.
    #[serde(default)]
    pub libs: Option<Vec<Lib>>,
    #[serde(default)]
    pub stack_table: StackTable,
    #[serde(default)]
    pub frame_table: FrameTable,
    #[serde(default)]
    pub func_table: FuncTable,
    #[serde(default)]
    pub resource_table: ResourceTable,
    #[serde(default)]
    pub string_array: Vec<String>,
    #[serde(default)]
    pub string_table: Vec<String>,
    #[serde(default)]
    pub js_allocations: Option<Length>,
    #[serde(default)]
    pub native_allocations: Option<Length>,
}

/// A table of which only the length counts.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Length {
    pub length: u64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Samples {
    pub stack: Vec<Option<u32>>,
    /// Times, ms. From version 50 on a file has either these or the differences between them.
    pub time: Vec<f64>,
    pub time_deltas: Vec<f64>,
    pub weight: Option<Vec<Option<f64>>>,
    /// The name of weights before version 29.
    pub duration: Option<Vec<Option<f64>>>,
    pub weight_type: Option<String>,
    #[serde(rename = "threadCPUDelta")]
    pub cpu: Option<Vec<Option<f64>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Tables {
    pub stack_table: StackTable,
    pub frame_table: FrameTable,
    pub func_table: FuncTable,
    pub resource_table: ResourceTable,
    pub sources: SourceTable,
    pub string_array: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct StackTable {
    /// The caller's stack, before version 66.
    pub prefix: Option<Vec<Option<u32>>>,
    /// The distance to the caller's stack, 0: none; from version 66.
    pub prefix_offset: Option<Vec<u32>>,
    pub frame: Vec<u32>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct FrameTable {
    pub func: Vec<u32>,
    /// Address in the lib, from its first byte in memory; -1: none.
    pub address: Vec<Option<i64>>,
    pub line: Vec<Option<u32>>,
    /// The frame's lib, from version 70 on; -1: none.
    pub lib: Option<Vec<Option<i64>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FuncTable {
    pub name: Vec<u32>,
    /// Before version 58.
    pub file_name: Vec<Option<u32>>,
    /// A row of the shared sources, from version 58.
    pub source: Vec<Option<u32>>,
    /// -1: none.
    pub resource: Vec<Option<i64>>,
    #[serde(rename = "isJS")]
    pub is_js: Vec<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ResourceTable {
    /// Before version 70.
    pub lib: Vec<Option<i64>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct SourceTable {
    pub filename: Vec<Option<u32>>,
}

/// The tables of a thread, from the thread itself or from the shared ones.
pub(super) struct ThreadTables<'f> {
    pub stacks: &'f StackTable,
    pub frames: &'f FrameTable,
    pub funcs: &'f FuncTable,
    pub resources: &'f ResourceTable,
    pub sources: &'f SourceTable,
    pub strings: &'f [String],
    pub libs: &'f [Lib],
    /// The file is truncated: a missing entry is no damage.
    pub cut: bool,
    /// Whether stacks, frames and functions are those of all threads.
    pub shared: bool,
}

/// Placeholder for a name that a truncated file lacks.
const CUT_OFF: &str = "[name cut off]";

impl<'f> ThreadTables<'f> {
    /// The tables that samples of `thread` refer to, in a file that is not truncated.
    pub(super) fn of(file: &'f File, thread: &'f ProfileThread) -> ThreadTables<'f> {
        let s = &file.shared;
        let shared = !s.stack_table.frame.is_empty();
        let strings = [&s.string_array, &thread.string_array, &thread.string_table];
        let libs = thread.libs.as_ref().filter(|_| file.libs.is_empty());
        ThreadTables {
            stacks: if shared {
                &s.stack_table
            } else {
                &thread.stack_table
            },
            frames: if shared {
                &s.frame_table
            } else {
                &thread.frame_table
            },
            funcs: if shared {
                &s.func_table
            } else {
                &thread.func_table
            },
            resources: if shared {
                &s.resource_table
            } else {
                &thread.resource_table
            },
            sources: &s.sources,
            strings: strings
                .into_iter()
                .find(|l| !l.is_empty())
                .map_or(&[], |l| l),
            libs: libs.unwrap_or(&file.libs),
            cut: false,
            shared,
        }
    }

    /// Checks that samples can be read.
    ///
    /// # Errors
    /// [`ReadError::UnknownLayout`] where stacks have no callers or functions no names.
    pub(super) fn check(&self) -> Result<(), ReadError> {
        let unknown = |what: &str| {
            Err(match self.cut {
                true => ReadError::Truncated,
                false => ReadError::UnknownLayout {
                    what: format!(
                        "{what} (version {NEWEST} of the Firefox Profiler's format is the newest known)"
                    ),
                },
            })
        };
        let stacks = self.stacks.frame.len();
        let callers = match (&self.stacks.prefix_offset, &self.stacks.prefix) {
            (Some(offsets), _) => offsets.len(),
            (None, Some(prefixes)) => prefixes.len(),
            (None, None) => 0,
        };
        if callers != stacks {
            return unknown("its table of stacks has no caller for each (prefix or prefixOffset)");
        }
        if stacks > 0 && (self.frames.func.is_empty() || self.funcs.name.is_empty()) {
            return unknown("its frames have no functions (frameTable.func, funcTable.name)");
        }
        Ok(())
    }

    /// The caller of a stack.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] for one before the first.
    pub(super) fn caller(&self, stack: usize) -> Result<Option<usize>, ReadError> {
        if let Some(offsets) = &self.stacks.prefix_offset {
            return match offsets.get(stack).map_or(0, |k| *k as usize) {
                0 => Ok(None),
                k => stack
                    .checked_sub(k)
                    .map(Some)
                    .ok_or_else(|| ReadError::Damaged {
                        what: format!("the caller of stack {stack} lies {k} before it"),
                    }),
            };
        }
        let prefix = self.stacks.prefix.as_ref().and_then(|p| *p.get(stack)?);
        Ok(prefix.map(|p| p as usize))
    }

    /// An entry of a column.
    ///
    /// # Errors
    /// [`ReadError::Damaged`] for one beyond its end, unless the file is truncated.
    pub(super) fn entry(
        &self,
        column: &[u32],
        at: usize,
        name: &str,
    ) -> Result<Option<usize>, ReadError> {
        match column.get(at) {
            Some(v) => Ok(Some(*v as usize)),
            None if self.cut => Ok(None),
            None => Err(ReadError::Damaged {
                what: format!(
                    "it refers to row {at} of {name}, which has {}",
                    column.len()
                ),
            }),
        }
    }

    /// A string.
    ///
    /// # Errors
    /// Those of [`ThreadTables::entry`].
    pub(super) fn string(&self, at: usize) -> Result<&'f str, ReadError> {
        match self.strings.get(at) {
            Some(s) => Ok(s),
            None if self.cut => Ok(CUT_OFF),
            None => Err(ReadError::Damaged {
                what: format!("it refers to string {at} of {}", self.strings.len()),
            }),
        }
    }

    /// The source file of a function, empty where it has none.
    pub(super) fn file(&self, func: usize) -> Result<&'f str, ReadError> {
        let own = self.funcs.file_name.get(func).copied().flatten();
        let source = self.funcs.source.get(func).copied().flatten();
        let index = match (own, source) {
            (Some(index), _) => Some(index),
            (None, Some(source)) => self
                .sources
                .filename
                .get(source as usize)
                .copied()
                .flatten(),
            (None, None) => None,
        };
        index.map_or(Ok(""), |index| self.string(index as usize))
    }

    /// The path of the library that a frame's code is in.
    pub(super) fn lib(&self, frame: usize, func: usize) -> Option<Cow<'f, str>> {
        let at =
            |list: &[Option<i64>], i: usize| usize::try_from(list.get(i).copied().flatten()?).ok();
        let index = match &self.frames.lib {
            Some(libs) => at(libs, frame)?,
            None => at(&self.resources.lib, at(&self.funcs.resource, func)?)?,
        };
        let lib = self.libs.get(index)?;
        let named = [&lib.path, &lib.name].into_iter().flatten();
        named
            .map(String::as_str)
            .find(|p| !p.is_empty())
            .map(Cow::Borrowed)
    }
}

/// Columns that stacks and weights depend on, by table; those of a newer version must be among them.
const COLUMNS: [(&str, &[&str]); 4] = [
    (
        "stackTable",
        &[
            "length",
            "frame",
            "prefix",
            "prefixOffset",
            "category",
            "subcategory",
        ],
    ),
    (
        "frameTable",
        &[
            "length",
            "address",
            "lib",
            "inlineDepth",
            "category",
            "subcategory",
            "func",
            "nativeSymbol",
            "innerWindowID",
            "line",
            "column",
            "originalLocation",
            "implementation",
            "optimizations",
        ],
    ),
    (
        "funcTable",
        &[
            "length",
            "name",
            "isJS",
            "relevantForJS",
            "resource",
            "source",
            "fileName",
            "lineNumber",
            "columnNumber",
            "originalLocation",
            "address",
        ],
    ),
    (
        "samples",
        &[
            "length",
            "stack",
            "time",
            "timeDeltas",
            "weight",
            "weightType",
            "threadCPUDelta",
            "argumentValues",
            "responsiveness",
            "eventDelay",
            "threadId",
        ],
    ),
];

/// Columns of a file's tables that no known version has: in a newer one stacks may depend on them.
pub(super) fn unknown_columns(file: &Value) -> BTreeSet<String> {
    let shared = file.get("shared").into_iter();
    let threads = file.get("threads").and_then(Value::as_array);
    let mut out = BTreeSet::new();
    for holder in shared.chain(threads.into_iter().flatten()) {
        for (table, known) in COLUMNS {
            let columns = holder.get(table).and_then(Value::as_object);
            let names = columns.into_iter().flat_map(|c| c.keys());
            let new = names.filter(|name| !known.contains(&name.as_str()));
            out.extend(new.map(|name| format!("{table}.{name}")));
        }
    }
    out
}
