//! Attributes that decide whether, and from which file, an item is compiled.

use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Lit, Meta, Token};

/// Whether the item is compiled for tests or fuzzing alone.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<Meta>().is_ok_and(|predicate| !possible(&predicate).when_true)
    })
}

/// The file that `#[path]` names.
pub(crate) fn path(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find(|attribute| attribute.path().is_ident("path")).and_then(|attribute| match &attribute.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// The values that a predicate can have outside of tests and fuzzing.
#[derive(Clone, Copy)]
struct Possible {
    when_true: bool,
    when_false: bool,
}

fn possible(predicate: &Meta) -> Possible {
    let Meta::List(list) = predicate else {
        let test = predicate.path().is_ident("test") || predicate.path().is_ident("fuzzing");
        return Possible { when_true: !test, when_false: true };
    };
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default();
    let parts: Vec<Possible> = parts.iter().map(possible).collect();
    match list.path.get_ident().map(ToString::to_string).as_deref() {
        Some("all") => Possible {
            when_true: parts.iter().all(|part| part.when_true),
            when_false: parts.iter().any(|part| part.when_false),
        },
        Some("any") => Possible {
            when_true: parts.iter().any(|part| part.when_true),
            when_false: parts.iter().all(|part| part.when_false),
        },
        Some("not") => Possible {
            when_true: parts.iter().any(|part| part.when_false),
            when_false: parts.iter().any(|part| part.when_true),
        },
        _ => Possible { when_true: true, when_false: true },
    }
}
