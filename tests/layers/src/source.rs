//! What the text of one module says: which modules it declares, which items it defines, and which paths it names.

use std::collections::BTreeMap;

use proc_macro2::{Ident, Spacing, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Arm, Attribute, Field, FieldValue, ImplItem, Item, ItemMod, ItemUse, Local, Macro, UseTree, Variant};

use crate::attributes;

/// A path's segments, as written.
pub(crate) type Segments = Vec<String>;

#[derive(Debug, Default)]
pub(crate) struct Source {
    pub(crate) children: Vec<Child>,
    /// Items, each with its line.
    pub(crate) items: BTreeMap<String, usize>,
    /// Names that `use` brings in, each with its path.
    pub(crate) imports: BTreeMap<String, Segments>,
    /// Paths of `use path::*`.
    pub(crate) globs: Vec<Segments>,
    pub(crate) mentions: Vec<Mention>,
}

/// A module that a module declares.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) body: Body,
}

#[derive(Debug)]
pub(crate) enum Body {
    Inline(Source),
    /// In a file: the one that `#[path]` names, or the usual one.
    File(Option<String>),
}

/// A path that a module names.
#[derive(Debug, Clone)]
pub(crate) struct Mention {
    pub(crate) path: Segments,
    pub(crate) line: usize,
}

/// Reads the items of one module.
pub(crate) fn read(items: &[Item]) -> Source {
    let mut source = Source::default();
    for item in items.iter().filter(|item| !attributes::is_for_tests(attributes_of(item))) {
        if let Some(name) = name_of(item) {
            source.items.insert(name.to_string(), name.span().start().line);
        }
        source.visit_item(item);
    }
    source
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes::is_for_tests(attributes_of(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let body = match &module.content {
            Some((_, items)) => Body::Inline(read(items)),
            None => Body::File(attributes::path(&module.attrs)),
        };
        self.children.push(Child { name: module.ident.to_string(), line: module.ident.span().start().line, body });
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.import(&item.tree, Vec::new());
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => return,
        };
        if !attributes::is_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast Field) {
        if !attributes::is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, field: &'ast FieldValue) {
        if !attributes::is_for_tests(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast Variant) {
        if !attributes::is_for_tests(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_arm(&mut self, arm: &'ast Arm) {
        if !attributes::is_for_tests(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_local(&mut self, local: &'ast Local) {
        if !attributes::is_for_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let line = path.segments.first().map_or(0, |segment| segment.ident.span().start().line);
        self.mention(path.segments.iter().map(|segment| segment.ident.to_string()).collect(), line);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        visit::visit_macro(self, call);
        self.scan(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        visit::visit_attribute(self, attribute);
        if let syn::Meta::List(list) = &attribute.meta {
            self.scan(list.tokens.clone());
        }
    }
}

impl Source {
    fn mention(&mut self, path: Segments, line: usize) {
        if path.len() > 1 {
            self.mentions.push(Mention { path, line });
        }
    }

    /// The paths of a `use`: `path` is what stands left of `tree`.
    fn import(&mut self, tree: &UseTree, mut path: Segments) {
        match tree {
            UseTree::Path(next) => {
                path.push(next.ident.to_string());
                self.import(&next.tree, path);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, path.clone())),
            UseTree::Glob(glob) => {
                self.mentions.push(Mention { path: path.clone(), line: glob.star_token.span.start().line });
                self.globs.push(path);
            }
            UseTree::Name(name) => self.bind(path, &name.ident, None),
            UseTree::Rename(rename) => self.bind(path, &rename.ident, Some(&rename.rename)),
        }
    }

    fn bind(&mut self, mut path: Segments, name: &Ident, rename: Option<&Ident>) {
        if name != "self" || path.is_empty() {
            path.push(name.to_string());
        }
        let bound = rename.map(ToString::to_string).or_else(|| path.last().cloned()).unwrap_or_default();
        self.mentions.push(Mention { path: path.clone(), line: name.span().start().line });
        self.imports.entry(bound).or_insert(path);
    }

    /// Paths within tokens that are not parsed: a macro's, an attribute's.
    fn scan(&mut self, tokens: TokenStream) {
        let (mut path, mut line, mut colons) = (Segments::new(), 0, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.mention(std::mem::take(&mut path), line);
                        line = name.span().start().line;
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons = if colons == 1 || punct.spacing() == Spacing::Joint { colons + 1 } else { 0 };
                }
                other => {
                    self.mention(std::mem::take(&mut path), line);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.scan(group.stream());
                    }
                }
            }
        }
        self.mention(path, line);
    }
}

fn name_of(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::TraitAlias(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
