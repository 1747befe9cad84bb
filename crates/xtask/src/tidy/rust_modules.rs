//! Edges between Rust files: each path is followed to the file that defines the name.
//!
//! Names are resolved as the compiler does within one crate: modules, imports, globs, `crate`,
//! `self` and `super`. Not followed are methods and fields, which no path names, and names that a
//! macro makes.

use std::collections::{BTreeMap, HashMap};

use super::edges::{Edges, add};
use super::rust_facts::Scope;
use super::sources::Source;
use crate::tokens::Language;

/// The edges within each crate, binary and example.
pub fn edges(sources: &[Source]) -> Edges {
    let files = sources.iter().filter(|s| s.is_code_in(Language::Rust));
    let scopes: Scopes = files.map(|s| (s.path.as_str(), &s.rust.scope)).collect();
    let mut edges = Edges::new();
    for root in scopes.keys().filter(|path| is_root(path)) {
        House::new(&scopes, root).edges(&mut edges);
    }
    edges
}

/// The names of each file.
type Scopes<'a> = BTreeMap<&'a str, &'a Scope>;

fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["crates", _, "src", name] => ["lib.rs", "main.rs"].contains(&name),
        ["crates", _, "src", "bin", _] | ["crates", _, "examples", _] => true,
        ["crates", _, "src", "bin", _, name] | ["crates", _, "examples", _, name] => {
            name == "main.rs"
        }
        _ => false,
    }
}

/// A module of a crate.
struct Module<'a> {
    file: &'a str,
    parent: Option<usize>,
    children: HashMap<&'a str, usize>,
    scope: &'a Scope,
}

/// All modules of one crate, its root first.
struct House<'a> {
    modules: Vec<Module<'a>>,
    /// Files of macros by name: a macro is known in all modules after it.
    macros: HashMap<&'a str, &'a str>,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target<'a> {
    Module(usize),
    /// An item, by the file that defines it.
    Item(&'a str),
}

/// Which of two things of one name is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// A module, if there is one: more segments follow.
    Module,
    /// An item, if there is one.
    Item,
}

/// Questions under way, so that imports in a circle end.
type OpenQuestions<'a> = Vec<(usize, &'a str, Wanted)>;

impl<'a> House<'a> {
    fn new(scopes: &Scopes<'a>, root: &'a str) -> Self {
        let mut house = House {
            modules: Vec::new(),
            macros: HashMap::new(),
        };
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        house.add(scopes, root, scopes[root], (None, folder.to_string()));
        house
    }

    /// Adds a module and all below it. `folder` is where the files of its modules lie.
    fn add(
        &mut self,
        scopes: &Scopes<'a>,
        file: &'a str,
        scope: &'a Scope,
        (parent, folder): (Option<usize>, String),
    ) -> usize {
        let own = self.modules.len();
        self.modules.push(Module {
            file,
            parent,
            children: HashMap::new(),
            scope,
        });
        for name in &scope.macros {
            self.macros.insert(name, file);
        }
        for (name, inner) in &scope.inline {
            let child = self.add(scopes, file, inner, (Some(own), format!("{folder}/{name}")));
            self.modules[own].children.insert(name, child);
        }
        for (name, path) in &scope.files {
            let beside = file.rsplit_once('/').map_or("", |(folder, _)| folder);
            let candidates = match path {
                Some(path) => vec![format!("{beside}/{path}")],
                None => vec![
                    format!("{folder}/{name}.rs"),
                    format!("{folder}/{name}/mod.rs"),
                ],
            };
            let found = candidates
                .iter()
                .find_map(|path| scopes.get_key_value(path.as_str()));
            if let Some((path, scope)) = found {
                let below = format!("{folder}/{name}");
                let child = self.add(scopes, path, scope, (Some(own), below));
                self.modules[own].children.insert(name, child);
            }
        }
        own
    }

    fn edges(&self, edges: &mut Edges) {
        for (own, module) in self.modules.iter().enumerate() {
            let imports = module.scope.imports.iter().filter(|i| !i.reexport);
            let paths = imports.map(|i| &i.path).chain(&module.scope.paths);
            for path in paths {
                let name = path.last().map_or("", String::as_str);
                if let Some(Target::Item(file)) = self.resolve(own, path, &mut Vec::new()) {
                    add(edges, module.file, file, name);
                } else if let Some(file) = self.macros.get(name) {
                    add(edges, module.file, file, name);
                }
            }
        }
    }

    fn resolve(
        &self,
        from: usize,
        path: &'a [String],
        asked: &mut OpenQuestions<'a>,
    ) -> Option<Target<'a>> {
        let (first, rest) = path.split_first()?;
        let wanted = |rest: &[String]| match rest.is_empty() {
            true => Wanted::Item,
            false => Wanted::Module,
        };
        let mut target = match first.as_str() {
            "crate" => Target::Module(0),
            "self" => Target::Module(from),
            "super" => Target::Module(self.modules[from].parent?),
            name => self.look_up(from, name, wanted(rest), asked)?,
        };
        for (at, name) in rest.iter().enumerate() {
            target = match target {
                Target::Module(module) if name == "super" => {
                    Target::Module(self.modules[module].parent?)
                }
                Target::Module(module) => {
                    self.look_up(module, name, wanted(&rest[at + 1..]), asked)?
                }
                // A variant, an associated function.
                Target::Item(_) => return Some(target),
            };
        }
        Some(target)
    }

    /// What a name means in a module; nothing if that is being asked already.
    fn look_up(
        &self,
        own: usize,
        name: &'a str,
        wanted: Wanted,
        asked: &mut OpenQuestions<'a>,
    ) -> Option<Target<'a>> {
        let question = (own, name, wanted);
        if asked.contains(&question) {
            return None;
        }
        asked.push(question);
        let found = self
            .defined(own, name, wanted)
            .or_else(|| self.imported(own, name, wanted, asked));
        asked.pop();
        found
    }

    fn defined(&self, own: usize, name: &str, wanted: Wanted) -> Option<Target<'a>> {
        let module = &self.modules[own];
        let child = module
            .children
            .get(name)
            .map(|child| Target::Module(*child));
        let here = module.scope.items.iter().any(|item| item == name);
        let item = here.then_some(Target::Item(module.file));
        match wanted {
            Wanted::Module => child.or(item),
            Wanted::Item => item.or(child),
        }
    }

    fn imported(
        &self,
        own: usize,
        name: &'a str,
        wanted: Wanted,
        asked: &mut OpenQuestions<'a>,
    ) -> Option<Target<'a>> {
        let scope: &'a Scope = self.modules[own].scope;
        let named = scope
            .imports
            .iter()
            .filter(|i| i.name.as_deref() == Some(name));
        for import in named {
            if let Some(found) = self.resolve(own, &import.path, asked) {
                return Some(found);
            }
        }
        for import in scope.imports.iter().filter(|i| i.name.is_none()) {
            let target = self.resolve(own, &import.path, asked);
            if let Some(Target::Module(target)) = target
                && let Some(found) = self.look_up(target, name, wanted, asked)
            {
                return Some(found);
            }
        }
        None
    }
}
