//! Names of functions, remembered from one recording of a session to the next.
//!
//! Reading a program's debug information takes from milliseconds to a second. So it is not done for
//! each recording that has a new address, but only so often that it takes a small share of the time.
//! Until then such functions stand by their addresses.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wallscope_binfmt::kallsyms;
use wallscope_model::name;
use wallscope_model::{Frame, FrameKind, Function, FunctionId, Line, Module, Recording};

use crate::{Sources, resolve};

/// Reading names may take one part in so many of the time.
const SHARE: u32 = 50;

/// Most addresses with names of one generation. Beyond it a new generation begins, and the one before the last is
/// forgotten.
const MAX_KNOWN: usize = 30_000;

/// Functions of an address with their lines, innermost first.
type Called = Vec<(Function, u32)>;

/// Module, kind and address of a frame.
type Key = (Option<Module>, FrameKind, u64);

/// Names that were found so far.
#[derive(Default)]
pub struct Names {
    /// Those that were used since the generation began.
    known: HashMap<Key, Called>,
    /// Those of the generation before.
    former: HashMap<Key, Called>,
    /// The kernel's symbols of code.
    kernel: Option<Arc<str>>,
    next: Option<Instant>,
}

impl Names {
    /// The functions of an address, if they are remembered.
    fn called(&mut self, key: &Key) -> Option<&Called> {
        if let Some((key, called)) = self.former.remove_entry(key) {
            self.known.insert(key, called);
        }
        self.known.get(key)
    }

    /// Names the frames of `recording`, as far as they are known or may be looked up now.
    pub fn name(&mut self, recording: &mut Recording, mut sources: Sources) {
        let mut ids: HashMap<Function, FunctionId> = (0u32..)
            .zip(&recording.functions)
            .map(|(i, f)| (f.clone(), FunctionId(i)))
            .collect();
        let key = |frame: &Frame, modules: &[Module]| {
            let module = frame
                .module
                .and_then(|m| modules.get(m.0 as usize))
                .cloned();
            (module, frame.kind, frame.address)
        };
        let mut unknown = Vec::new();
        for i in 0..recording.frames.len() {
            let frame = &recording.frames[i];
            if !frame.lines.is_empty() {
                continue;
            }
            let key = key(frame, &recording.modules);
            match self.called(&key) {
                None => unknown.push((i, key)),
                Some(called) => {
                    let functions = &mut recording.functions;
                    let lines = called.iter().map(|(function, line)| Line {
                        function: *ids.entry(function.clone()).or_insert_with(|| {
                            functions.push(function.clone());
                            FunctionId((functions.len() - 1) as u32)
                        }),
                        line: *line,
                    });
                    recording.frames[i].lines = lines.collect();
                }
            }
        }
        if self.known.len() > MAX_KNOWN {
            self.former = std::mem::take(&mut self.known);
        }
        let begin = Instant::now();
        if unknown.is_empty() || self.next.is_some_and(|next| begin < next) {
            return;
        }
        if unknown
            .iter()
            .any(|(_, (_, kind, _))| *kind == FrameKind::Kernel)
        {
            let text = self
                .kernel
                .get_or_insert_with(|| code(&kallsyms::read().unwrap_or_default()));
            sources.kallsyms = Some(Arc::clone(text));
        }
        // What cannot be named is told by `wallscope record`, which counts it by cause.
        let _ = resolve(recording, sources);
        for (i, key) in unknown {
            let frame = &recording.frames[i];
            let mut called: Called = frame
                .lines
                .iter()
                .map(|l| (recording.functions[l.function.0 as usize].clone(), l.line))
                .collect();
            if called.is_empty() {
                // It is not looked up again, and stands as it would without a name.
                let address = name::address(recording, frame);
                let function = Function {
                    name: address.as_str().into(),
                    system_name: address.as_str().into(),
                    file: "".into(),
                    start_line: 0,
                };
                called.push((function, 0));
            }
            self.known.insert(key, called);
        }
        let took = begin.elapsed().max(Duration::from_millis(1));
        self.next = Some(Instant::now() + took * SHARE);
    }
}

/// The lines of `/proc/kallsyms` that name code, and of the others those that may end it: half of the text, or less.
fn code(text: &str) -> Arc<str> {
    let mut kept = String::new();
    let mut after_code = false;
    for line in text.split_inclusive('\n') {
        let is_code = kallsyms::parse_line(line.trim_end()).is_some_and(|s| s.is_code());
        if is_code || after_code {
            kept.push_str(line);
        }
        after_code = is_code;
    }
    kept.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wallscope_model::{ModuleId, ModuleKind};

    #[test]
    fn names_in_use_outlive_a_generation() {
        let key = |address| (None, FrameKind::Native, address);
        let mut names = Names::default();
        for address in 0..2 {
            names.known.insert(key(address), Vec::new());
        }
        names.former = std::mem::take(&mut names.known);
        assert!(names.called(&key(1)).is_some());
        names.former = std::mem::take(&mut names.known);
        assert!(names.called(&key(1)).is_some() && names.called(&key(0)).is_none());
    }

    #[test]
    fn data_stays_only_where_it_ends_code() {
        let text = "1000 T a\n2000 t b\t[m]\n3000 D c\n4000 d e\n5000 t f\nno symbol\n";
        let kept = code(text);
        assert_eq!(
            &*kept,
            "1000 T a\n2000 t b\t[m]\n3000 D c\n5000 t f\nno symbol\n"
        );
    }

    #[test]
    fn what_has_no_name_is_looked_up_once() {
        let recording = || Recording {
            modules: vec![Module {
                kind: ModuleKind::Elf,
                path: "/no/such/file".into(),
                build_id: "".into(),
                pid: 0,
            }],
            frames: vec![Frame {
                kind: FrameKind::Native,
                module: Some(ModuleId(0)),
                address: 0x1234,
                lines: Vec::new(),
            }],
            ..Recording::default()
        };
        let mut names = Names::default();
        let mut first = recording();
        names.name(&mut first, Sources::default());
        assert!(first.frames[0].lines.is_empty());
        let mut second = recording();
        names.name(&mut second, Sources::default());
        let line = second.frames[0].lines[0];
        let function = &second.functions[line.function.0 as usize];
        assert_eq!(&*function.name, "file+0x1234");
    }
}
