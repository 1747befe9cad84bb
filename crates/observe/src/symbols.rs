//! A symboliser's results: taken from a recording that it has worked on, and put into one that is
//! rebuilt.
//!
//! Frames are known by kind, module and address, not by their place: a recorder of another version may
//! make frames in another order.

use std::collections::HashMap;

use wallscope_model::{Frame, FrameKind, Function, FunctionId, Line, ModuleId, Recording};

use crate::{
    facts::{NamedLine, Symbol, SymbolLine},
    observation::Observation,
};

/// A recording before the symboliser worked on it.
pub struct Unresolved {
    functions: usize,
    /// Places of the frames without lines, and their modules.
    frames: Vec<(usize, Option<ModuleId>)>,
}

impl Unresolved {
    /// Remembers `recording` as it is now.
    pub fn of(recording: &Recording) -> Unresolved {
        let frames = recording.frames.iter().enumerate();
        Unresolved {
            functions: recording.functions.len(),
            frames: (frames.filter(|(_, f)| f.lines.is_empty()))
                .map(|(place, f)| (place, f.module))
                .collect(),
        }
    }

    /// The names found since, as observations in the order in which they are to be read.
    pub fn found<'r>(
        &'r self,
        recording: &'r Recording,
    ) -> impl Iterator<Item = Observation<'static>> + 'r {
        let functions = recording.functions[self.functions..].iter();
        let functions = functions.map(|f| Observation::SymbolFunction(f.clone()));
        let symbols = self.frames.iter().filter_map(move |(place, before)| {
            let frame = &recording.frames[*place];
            let named = !frame.lines.is_empty() || frame.module != *before;
            named.then(|| Observation::Symbol(self.symbol(recording, frame, *before)))
        });
        functions.chain(symbols)
    }

    fn symbol(&self, recording: &Recording, frame: &Frame, before: Option<ModuleId>) -> Symbol {
        let moved = frame.module.filter(|_| frame.module != before);
        let line = |l: &Line| {
            let place = l.function.0 as usize;
            match place.checked_sub(self.functions) {
                Some(number) => SymbolLine::Found(number as u32, l.line),
                None => SymbolLine::Known(NamedLine {
                    function: recording.functions[place].clone(),
                    line: l.line,
                }),
            }
        };
        Symbol {
            kind: frame.kind,
            module: before.map(|m| m.0),
            address: frame.address,
            moved_to: moved.map(|m| recording.modules[m.0 as usize].clone()),
            lines: frame.lines.iter().map(line).collect(),
        }
    }
}

/// A symboliser's results, as a log has them.
#[derive(Default)]
pub struct Symbols {
    functions: Vec<Function>,
    symbols: Vec<Symbol>,
}

impl Symbols {
    /// Takes an observation that is a symbol, or a function of one.
    pub fn observe(&mut self, observation: &Observation<'_>) {
        match observation {
            Observation::SymbolFunction(function) => self.functions.push(function.clone()),
            Observation::Symbol(symbol) => self.symbols.push(symbol.clone()),
            _ => {}
        }
    }

    /// Names the frames of `recording` that have no lines. Returns the number of symbols without a frame.
    pub fn apply(self, recording: &mut Recording) -> u64 {
        let mut ids: HashMap<Function, FunctionId> = HashMap::new();
        for (place, f) in recording.functions.iter().enumerate() {
            ids.entry(f.clone()).or_insert(FunctionId(place as u32));
        }
        let functions = &mut recording.functions;
        let mut id = |function: &Function| {
            *ids.entry(function.clone()).or_insert_with(|| {
                functions.push(function.clone());
                FunctionId(functions.len() as u32 - 1)
            })
        };
        let found: Vec<FunctionId> = self.functions.iter().map(&mut id).collect();
        let mut frames: HashMap<(FrameKind, Option<ModuleId>, u64), usize> = HashMap::new();
        for (place, f) in recording.frames.iter().enumerate() {
            if f.lines.is_empty() {
                frames.insert((f.kind, f.module, f.address), place);
            }
        }
        let mut strangers = 0;
        for symbol in &self.symbols {
            let key = (symbol.kind, symbol.module.map(ModuleId), symbol.address);
            let Some(place) = frames.get(&key) else {
                strangers += 1;
                continue;
            };
            let line = |l: &SymbolLine| {
                let (function, line) = match l {
                    SymbolLine::Found(number, line) => (*found.get(*number as usize)?, *line),
                    SymbolLine::Known(known) => (id(&known.function), known.line),
                };
                Some(Line { function, line })
            };
            let frame = &mut recording.frames[*place];
            frame.lines = symbol.lines.iter().filter_map(line).collect();
            if let Some(module) = &symbol.moved_to {
                let modules = &mut recording.modules;
                let known = modules.iter().position(|m| m == module);
                let place = known.unwrap_or_else(|| {
                    modules.push(module.clone());
                    modules.len() - 1
                });
                frame.module = Some(ModuleId(place as u32));
            }
        }
        strangers
    }
}

#[cfg(test)]
mod tests {
    use wallscope_model::{Module, ModuleKind};

    use super::*;

    fn function(name: &str) -> Function {
        Function {
            name: name.into(),
            system_name: name.into(),
            file: "".into(),
            start_line: 0,
        }
    }

    fn frame(kind: FrameKind, address: u64) -> Frame {
        Frame {
            kind,
            module: Some(ModuleId(0)),
            address,
            lines: Vec::new(),
        }
    }

    /// Two frames to be named, one that has a name, and one that nothing names.
    fn recording() -> Recording {
        let module = |path: &str| Module {
            kind: ModuleKind::Kernel,
            path: path.into(),
            build_id: "".into(),
            pid: 0,
        };
        let mut named = frame(FrameKind::Java, 3);
        named.lines = vec![Line {
            function: FunctionId(0),
            line: 8,
        }];
        Recording {
            modules: vec![module("[kernel]")],
            functions: vec![function("known")],
            frames: vec![
                frame(FrameKind::Native, 1),
                named,
                frame(FrameKind::Kernel, 1),
                frame(FrameKind::Native, 9),
            ],
            ..Recording::default()
        }
    }

    #[test]
    fn what_was_found_names_the_same_frames_in_any_order() {
        let mut resolved = recording();
        let before = Unresolved::of(&resolved);
        resolved.functions.push(function("new"));
        let line = |function, line| Line {
            function: FunctionId(function),
            line,
        };
        resolved.frames[0].lines = vec![line(1, 5), line(0, 6)];
        resolved.frames[2].lines = vec![line(1, 0)];
        resolved.modules.push(Module {
            path: "[ext4]".into(),
            ..resolved.modules[0].clone()
        });
        resolved.frames[2].module = Some(ModuleId(1));
        let mut symbols = Symbols::default();
        for observation in before.found(&resolved) {
            symbols.observe(&observation);
        }
        let mut rebuilt = recording();
        rebuilt.frames.swap(0, 2);
        assert_eq!(symbols.apply(&mut rebuilt), 0);
        rebuilt.frames.swap(0, 2);
        assert_eq!(rebuilt, resolved);
    }

    #[test]
    fn symbols_of_no_frame_are_counted() {
        let mut symbols = Symbols::default();
        symbols.observe(&Observation::Symbol(Symbol {
            kind: FrameKind::Native,
            module: None,
            address: 77,
            moved_to: None,
            lines: vec![SymbolLine::Found(99, 1)],
        }));
        let mut rebuilt = recording();
        assert_eq!(symbols.apply(&mut rebuilt), 1);
        assert_eq!(rebuilt, recording());
    }
}
