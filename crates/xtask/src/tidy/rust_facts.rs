//! What the rules need to know of a Rust file: its names, its functions, its structs.
//!
//! Code behind `#[cfg(test)]` and `#[test]` is left out. Attributes are left out too: clap and
//! serde name functions in them, which makes no module depend on another that did not already.

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, FnArg, Item, Signature, Type, UseTree, Visibility};

use super::definition::{Function, Struct};

/// A name that a `use` brings in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// Where it comes from, segment by segment.
    pub path: Vec<String>,
    /// What it is called here; `None` for `*`.
    pub name: Option<String>,
    /// Others may take it from here (`pub use`), so it is no use by itself.
    pub reexport: bool,
}

/// A module of a file: the file itself, or an inline one in it.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Items defined here.
    pub items: Vec<String>,
    /// Macros defined here by `macro_rules!`.
    pub macros: Vec<String>,
    /// Modules in files of their own: name, and the path in their `#[path]`.
    pub files: Vec<(String, Option<String>)>,
    /// Inline modules.
    pub inline: Vec<(String, Scope)>,
    /// Imports, those within functions too.
    pub imports: Vec<Import>,
    /// Paths that the code names.
    pub paths: Vec<Vec<String>>,
}

/// All facts of a file.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Its names.
    pub scope: Scope,
    /// Its functions with a body.
    pub functions: Vec<Function>,
    /// Its structs with named fields.
    pub structs: Vec<Struct>,
}

/// The facts of a file.
///
/// # Errors
/// Where it does not parse.
pub fn facts(text: &str) -> Result<Facts, String> {
    let file = syn::parse_file(text).map_err(|error| {
        let line = error.span().start().line;
        format!("line {line}: {error}")
    })?;
    let mut reader = Reader::default();
    for item in &file.items {
        reader.visit_item(item);
    }
    reader.facts.scope = reader.scope;
    Ok(reader.facts)
}

#[derive(Default)]
struct Reader {
    facts: Facts,
    scope: Scope,
    /// Type of the `impl` that is being read.
    owner: Option<String>,
    /// Within an `impl` of a trait: its signatures are not ours to choose.
    of_trait: bool,
    /// Depth of function bodies: names of items in them are not the module's.
    depth: usize,
}

impl Reader {
    fn function(&mut self, signature: &Signature, visibility: Option<&Visibility>, end: usize) {
        let first = signature.span().start().line;
        let own = signature.ident.to_string();
        let typed = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(typed) => Some(&*typed.ty),
            FnArg::Receiver(_) => None,
        });
        let foreign = self.of_trait || signature.abi.is_some();
        self.facts.functions.push(Function {
            name: match &self.owner {
                Some(owner) => format!("{owner}::{own}"),
                None => own,
            },
            line: first,
            lines: end + 1 - first,
            parameters: if foreign { 0 } else { typed.clone().count() },
            flags: match visibility {
                Some(visibility) if !foreign && !is_private(visibility) => {
                    typed.filter(|ty| is_bool(ty)).count()
                }
                _ => 0,
            },
        });
    }

    fn import(&mut self, tree: &UseTree, before: &[String], reexport: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        let named = |path: Vec<String>, name: Option<String>| {
            // `use a::b::{self}` brings in `b`.
            let path = match path.split_last() {
                Some((last, parent)) if last == "self" && !parent.is_empty() => parent.to_vec(),
                _ => path,
            };
            let name = match name {
                Some(name) if name == "self" => path.last().cloned(),
                name => name,
            };
            Import {
                path,
                name,
                reexport,
            }
        };
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &with(&path.ident), reexport),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, before, reexport);
                }
            }
            UseTree::Name(name) => {
                let import = named(with(&name.ident), Some(name.ident.to_string()));
                self.scope.imports.push(import);
            }
            UseTree::Rename(rename) => {
                let import = named(with(&rename.ident), Some(rename.rename.to_string()));
                self.scope.imports.push(import);
            }
            UseTree::Glob(_) => self.scope.imports.push(named(before.to_vec(), None)),
        }
    }

    /// Paths within the tokens of a macro call, which is not parsed further.
    fn paths_in(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        let mut after_dot = false;
        for tree in tokens {
            match tree {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.take_path(&mut path);
                    }
                    if !after_dot {
                        path.push(ident.to_string());
                    }
                    (colons, after_dot) = (0, false);
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.take_path(&mut path);
                    colons = 0;
                    after_dot = matches!(&other, TokenTree::Punct(punct) if punct.as_char() == '.');
                    if let TokenTree::Group(group) = other {
                        self.paths_in(group.stream());
                    }
                }
            }
        }
        self.take_path(&mut path);
    }

    fn take_path(&mut self, path: &mut Vec<String>) {
        if !path.is_empty() {
            self.scope.paths.push(std::mem::take(path));
        }
    }

    fn define(&mut self, name: &syn::Ident) {
        if self.depth == 0 {
            self.scope.items.push(name.to_string());
        }
    }

    fn module(&mut self, item: &syn::ItemMod) {
        let name = item.ident.to_string();
        let Some((_, items)) = &item.content else {
            self.scope.files.push((name, path_attribute(&item.attrs)));
            return;
        };
        let outer = std::mem::take(&mut self.scope);
        for item in items {
            self.visit_item(item);
        }
        let inner = std::mem::replace(&mut self.scope, outer);
        self.scope.inline.push((name, inner));
    }
}

impl<'a> Visit<'a> for Reader {
    fn visit_attribute(&mut self, _: &'a Attribute) {}

    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_item(&mut self, item: &'a Item) {
        if is_test(attributes(item)) {
            return;
        }
        match item {
            Item::Const(item) => self.define(&item.ident),
            Item::Enum(item) => self.define(&item.ident),
            Item::Fn(item) => self.define(&item.sig.ident),
            Item::Static(item) => self.define(&item.ident),
            Item::Struct(item) => self.define(&item.ident),
            Item::Trait(item) => self.define(&item.ident),
            Item::TraitAlias(item) => self.define(&item.ident),
            Item::Type(item) => self.define(&item.ident),
            Item::Union(item) => self.define(&item.ident),
            Item::Macro(item) => {
                if let Some(name) = &item.ident {
                    self.scope.macros.push(name.to_string());
                }
            }
            Item::ForeignMod(item) => {
                for foreign in &item.items {
                    if let syn::ForeignItem::Fn(foreign) = foreign {
                        self.define(&foreign.sig.ident);
                    }
                }
            }
            _ => {}
        }
        match item {
            Item::Mod(item) => self.module(item),
            item => visit::visit_item(self, item),
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, &[], !is_private(&item.vis));
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        let end = item.block.span().end().line;
        self.function(&item.sig, Some(&item.vis), end);
        let owner = self.owner.take();
        visit::visit_item_fn(self, item);
        self.owner = owner;
    }

    fn visit_item_impl(&mut self, item: &'a syn::ItemImpl) {
        let outer = (self.owner.take(), self.of_trait);
        self.owner = type_name(&item.self_ty);
        self.of_trait = item.trait_.is_some();
        visit::visit_item_impl(self, item);
        (self.owner, self.of_trait) = outer;
    }

    fn visit_item_trait(&mut self, item: &'a syn::ItemTrait) {
        let outer = self.owner.replace(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.owner = outer;
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            let end = item.block.span().end().line;
            self.function(&item.sig, Some(&item.vis), end);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        let end = item.span().end().line;
        self.function(
            &item.sig,
            Some(&Visibility::Public(Default::default())),
            end,
        );
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_block(&mut self, block: &'a syn::Block) {
        self.depth += 1;
        visit::visit_block(self, block);
        self.depth -= 1;
    }

    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        if let syn::Fields::Named(fields) = &item.fields {
            self.facts.structs.push(Struct {
                name: item.ident.to_string(),
                line: item.ident.span().start().line,
                fields: match mirrors_an_interface(&item.attrs) {
                    true => 0,
                    false => fields.named.len(),
                },
            });
        }
        visit::visit_item_struct(self, item);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_none() {
            let segments = path.segments.iter().map(|s| s.ident.to_string());
            self.scope.paths.push(segments.collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'a syn::Macro) {
        self.visit_path(&item.path);
        self.paths_in(item.tokens.clone());
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item exists in tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        if attribute.path().is_ident("test") {
            return true;
        }
        let condition = match attribute.path().is_ident("cfg") {
            true => attribute.meta.require_list().ok(),
            false => None,
        };
        condition.is_some_and(|list| {
            let words = list.tokens.to_string();
            let mut words = words.split(|c: char| !c.is_alphanumeric() && c != '_');
            let has_test = words.clone().any(|word| word == "test");
            has_test && !words.any(|word| word == "not")
        })
    })
}

/// Whether the fields of a struct are given from outside: arguments of the command line, messages
/// on the wire, documents with a schema, mirrors of C headers.
fn mirrors_an_interface(attributes: &[Attribute]) -> bool {
    let lists = attributes.iter().filter_map(|a| a.meta.require_list().ok());
    lists.into_iter().any(|list| {
        let words = list.tokens.to_string();
        let has = |wanted: &[&str]| {
            let mut words = words.split(|c: char| !c.is_alphanumeric());
            words.any(|word| wanted.contains(&word))
        };
        let given = [
            "Args",
            "Parser",
            "Subcommand",
            "Message",
            "Serialize",
            "Deserialize",
        ];
        (list.path.is_ident("derive") && has(&given)) || (list.path.is_ident("repr") && has(&["C"]))
    })
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|a| a.path().is_ident("path"))?;
    let value = &attribute.meta.require_name_value().ok()?.value;
    match value {
        syn::Expr::Lit(literal) => match &literal.lit {
            syn::Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

fn is_private(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Inherited)
}

fn is_bool(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident("bool"))
}

fn type_name(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()),
        Type::Reference(reference) => type_name(&reference.elem),
        _ => None,
    }
}
