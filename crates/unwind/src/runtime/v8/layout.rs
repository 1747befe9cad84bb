//! Offsets in V8's objects.
//!
//! The build exports most of them as constants for post-mortem debuggers. V8 derives these from its
//! sources, and some versions lack some of them. Values that are equal in all such versions are
//! here.

use std::collections::BTreeMap;

/// Offsets in objects, types of objects, and tags of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) function_shared: u8,
    pub(crate) function_code: u8,
    pub(crate) frame_bytecode: u8,

    pub(super) map_kind: u64,
    pub(super) array_length: u64,
    pub(super) array_data: u64,
    pub(super) text: Text,
    pub(super) shared: SharedFunction,
    pub(super) script: Script,
    pub(super) scope: ScopeInfo,
    pub(super) bytecode_positions: u64,
    pub(super) bytecode_data: u64,
    pub(super) code: Option<Code>,
    /// Functions have an index into a table, not a code object.
    pub(super) by_table: bool,
    pub(super) kinds: Kinds,
}

/// Offsets in the object that all closures of a function share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharedFunction {
    /// Its name, or its scope, which has the name.
    pub(super) name: u64,
    /// Its bytecode.
    pub(super) data: u64,
    pub(super) script: u64,
}

/// Offsets in a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) name: u64,
    pub(super) source: u64,
    pub(super) line_ends: u64,
}

/// Words of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScopeInfo {
    /// Words before its variables.
    pub(super) first: u64,
    /// Index of the number of variables.
    pub(super) locals: u64,
    /// Index of its function's start position; `None`: it must be searched.
    pub(super) place: Option<u64>,
}

/// Types, tags and offsets of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Text {
    /// Types from this one on are no texts.
    pub(super) first_other: u16,
    pub(super) tags: TextTags,
    pub(super) length: u64,
    pub(super) one_byte_data: u64,
    pub(super) two_byte_data: u64,
    pub(super) first: u64,
    pub(super) second: u64,
    pub(super) actual: u64,
    pub(super) parent: u64,
    pub(super) offset: u64,
    pub(super) external_data: u64,
}

/// Bits of a text's type: masks, and the values under them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TextTags {
    /// Mask of how it is stored.
    pub(super) representation: u16,
    pub(super) sequential: u16,
    pub(super) cons: u16,
    pub(super) sliced: u16,
    pub(super) thin: u16,
    pub(super) external: u16,
    /// Mask of how wide its characters are.
    pub(super) encoding: u16,
    pub(super) one_byte: u16,
}

/// Offsets in code objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) deoptimization: u64,
    pub(super) positions: u64,
    pub(super) start: u64,
    pub(super) size: u64,
    /// The instructions follow the header; otherwise a pointer leads to them.
    pub(super) within: bool,
    /// Indices in the deoptimisation data.
    pub(super) inlined_count: u64,
    pub(super) literals: u64,
    pub(super) inlining: u64,
}

/// Types of objects; 0: not in this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kinds {
    pub(super) shared: u16,
    pub(super) scope: u16,
    pub(super) script: u16,
    pub(super) bytecode: u16,
    pub(super) interpreter_data: u16,
    pub(super) code: u16,
    pub(super) fixed_array: u16,
}

const WORD: u64 = 8;

/// The values that a build exports, by name.
struct Exports<'a>(&'a BTreeMap<&'a str, i32>);

impl Exports<'_> {
    fn value(&self, name: &str) -> Option<i32> {
        self.0.get(format!("v8dbg_{name}").as_str()).copied()
    }

    fn need(&self, name: &str) -> Result<u16, String> {
        let value = self.value(name);
        value
            .ok_or_else(|| format!("its build does not say {name}"))
            .map(|v| v as u16)
    }

    /// Offset of a field. The name includes the field's type, which depends on the version.
    fn field(&self, of: &str, field: &str) -> Option<u64> {
        let begin = format!("v8dbg_class_{of}__{field}__");
        let (name, value) = self.0.range(begin.as_str()..).next()?;
        name.starts_with(&begin).then_some(*value as u64)
    }

    /// Offset of a field that every build exports.
    fn place(&self, of: &str, name: &str) -> Result<u64, String> {
        self.field(of, name)
            .filter(|v| *v < 4096)
            .ok_or_else(|| format!("its build does not say where {of}::{name} is"))
    }

    /// Types, tags and offsets of texts, which have their length at `length`.
    fn text(&self, length: u64) -> Result<Text, String> {
        let tag = |name: &str, usual: i32| self.value(name).unwrap_or(usual) as u16;
        Ok(Text {
            first_other: self.need("FirstNonstringType")?,
            tags: TextTags {
                representation: self.need("StringRepresentationMask")?,
                sequential: self.need("SeqStringTag")?,
                cons: self.need("ConsStringTag")?,
                sliced: tag("SlicedStringTag", 3),
                thin: tag("ThinStringTag", 5),
                external: tag("ExternalStringTag", 2),
                encoding: self.need("StringEncodingMask")?,
                one_byte: self.need("OneByteStringTag")?,
            },
            length,
            one_byte_data: self
                .field("SeqOneByteString", "chars")
                .unwrap_or(length + 4),
            two_byte_data: self
                .field("SeqTwoByteString", "chars")
                .unwrap_or(length + 4),
            first: self.field("ConsString", "first").unwrap_or(length + 4),
            second: (self.field("ConsString", "second")).unwrap_or(length + 4 + WORD),
            actual: self.field("ThinString", "actual").unwrap_or(length + 4),
            parent: self.field("SlicedString", "parent").unwrap_or(length + 4),
            offset: (self.field("SlicedString", "offset")).unwrap_or(length + 4 + WORD),
            external_data: (self.field("ExternalString", "resource")).unwrap_or(length + 4) + WORD,
        })
    }

    /// Types of objects.
    fn kinds(&self) -> Result<Kinds, String> {
        let kind = |name: &str| self.value(name).unwrap_or(0) as u16;
        Ok(Kinds {
            shared: self.need("type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE")?,
            scope: self.need("type_ScopeInfo__SCOPE_INFO_TYPE")?,
            script: self.need("type_Script__SCRIPT_TYPE")?,
            bytecode: kind("type_BytecodeArray__BYTECODE_ARRAY_TYPE"),
            interpreter_data: kind("type_InterpreterData__INTERPRETER_DATA_TYPE"),
            code: kind("type_Code__CODE_TYPE"),
            fixed_array: kind("type_FixedArray__FIXED_ARRAY_TYPE"),
        })
    }
}

impl Layout {
    /// Builds the layout from the exported values, or names a missing one.
    pub(crate) fn of(all: &BTreeMap<&str, i32>, version: [u32; 3]) -> Result<Layout, String> {
        let exports = Exports(all);
        let field = |of: &str, name: &str| exports.field(of, name);
        let place = |of: &str, name: &str| exports.place(of, name);
        let value = |name: &str| exports.value(name);
        if value("SmiShiftSize") != Some(31) {
            return Err("its pointers are compressed, or of 32 bits".into());
        }
        if (value("off_fp_function"), value("off_fp_context")) != (Some(-16), Some(-8)) {
            return Err("its frames are of an unknown form".into());
        }
        let bytecode_array = value("off_fp_bytecode_array").unwrap_or(-32);
        let frame_bytecode = value("off_fp_bytecode_offset").unwrap_or(bytecode_array - 8);
        let small = |v: u64, what: &str| {
            u8::try_from(v).map_err(|_| format!("{what} lies {v} bytes into it, too far"))
        };
        let shared = place("JSFunction", "shared")?;
        let by_table = by_table(&exports);
        let own_code = field("JSFunction", "code")
            .or(field("JSFunction", "raw_code"))
            .unwrap_or(match version {
                v if v >= [11, 7, 368] => shared - WORD,
                _ => shared + 3 * WORD,
            });
        let array_length = place("FixedArrayBase", "length").unwrap_or(WORD);
        let text_length = place("String", "length")?;
        let script_name = place("Script", "name")?;
        // From 12 on the table comes first, behind a wrapper.
        let bytecode_positions = field("BytecodeArray", "source_position_table")
            .or(field("BytecodeArray", "wrapper").map(|w| w + WORD))
            .unwrap_or(array_length + 3 * WORD);
        let scope_first = u64::from(exports.need("scopeinfo_idx_first_vars")?);
        let scope_locals = u64::from(exports.need("scopeinfo_idx_ncontextlocals")?);
        Ok(Layout {
            function_shared: small(shared, "what a function shares")?,
            function_code: small(own_code, "a function's code")?,
            frame_bytecode: small(frame_bytecode.unsigned_abs().into(), "a frame's bytecode")?,
            map_kind: place("Map", "instance_type")?,
            array_length,
            array_data: field("FixedArray", "data")
                .or(field("FixedArray", "objects"))
                .unwrap_or(2 * WORD),
            text: exports.text(text_length)?,
            shared: SharedFunction {
                name: place("SharedFunctionInfo", "name_or_scope_info")?,
                data: field("SharedFunctionInfo", "function_data").unwrap_or(WORD),
                script: field("SharedFunctionInfo", "script_or_debug_info")
                    .or(field("SharedFunctionInfo", "script"))
                    .ok_or("its build does not say where a function's script is")?,
            },
            script: Script {
                name: script_name,
                source: field("Script", "source").unwrap_or(script_name - WORD),
                line_ends: field("Script", "line_ends").unwrap_or(0),
            },
            scope: ScopeInfo {
                first: scope_first,
                locals: scope_locals,
                // Newer versions store them between the variable count and the variables.
                place: (scope_first == scope_locals + 3).then_some(scope_locals + 1),
            },
            bytecode_positions,
            bytecode_data: field("BytecodeArray", "data")
                // Between them: three numbers of four bytes and one of two.
                .unwrap_or(bytecode_positions + WORD + 14),
            code: code(&exports, version),
            by_table,
            kinds: exports.kinds()?,
        })
    }
}

/// Whether functions refer to their code by an index into a table. Code objects store that index
/// too, between the instruction start and the flags.
fn by_table(exports: &Exports<'_>) -> bool {
    let field = |of: &str, name: &str| exports.field(of, name);
    let (start, flags) = (field("Code", "instruction_start"), field("Code", "flags"));
    let apart = start.zip(flags).and_then(|(s, f)| f.checked_sub(s + WORD));
    field("Code", "wrapper").is_some() && apart == Some(4)
}

/// Offsets of a code object's tables; `None`: unknown for this version.
fn code(exports: &Exports<'_>, version: [u32; 3]) -> Option<Code> {
    let field = |of: &str, name: &str| exports.field(of, name);
    let positions = field("Code", "source_position_table");
    let size = field("Code", "instruction_size");
    let start = field("Code", "instruction_start");
    // Up to 10 the instructions follow in the object; from 11 on they are separate.
    let within = version[0] < 11 && field("Code", "wrapper").is_none();
    // From 12 on: deoptimisation data, positions, wrapper.
    let positions = positions.or(field("Code", "wrapper").map(|w| w - WORD));
    let (positions, start, size) = match (positions, start, size) {
        (Some(p), Some(start), Some(size)) => (p, start, size),
        (None, Some(start), Some(size)) if within => (size - 2 * WORD, start, size),
        (Some(p), start, size) if !within => {
            let start = start.unwrap_or(p + 2 * WORD);
            // The flags follow; up to 11.4 also two 2-byte numbers.
            let more = if version < [11, 4, 59] { 4 } else { 0 };
            (p, start, size.unwrap_or(start + WORD + 4 + more))
        }
        _ => return None,
    };
    let index = |name: &str, otherwise: u64| {
        let value = exports.value(&format!("DeoptimizationData{name}Index"));
        value.map_or(otherwise, |v| v as u64)
    };
    let count = index("InlinedFunctionCount", 1);
    Some(Code {
        deoptimization: field("Code", "deoptimization_data").unwrap_or(positions - WORD),
        positions,
        start,
        size,
        within,
        inlined_count: count,
        literals: index("LiteralArray", count + 1),
        inlining: index("InliningPositions", index("SharedFunctionInfo", 6) + 1),
    })
}
