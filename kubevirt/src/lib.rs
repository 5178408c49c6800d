//! KubeVirt's objects, and the ordinary pods that they are here.
//!
//! [`document`] reads manifests, [`table`] has every field of KubeVirt's v1 with what becomes of it, [`types`] are those fields as values,
//! [`rules`] what holds between them, [`preset`] what presets add, [`render`] makes pods, [`convert`] rewrites manifests of older
//! days, and [`schema`] is the table as an API server judges by it. Pure: nothing here asks a node or a cluster. `virtletctl vm` uses it, and whoever looks after such objects in a cluster may.
//!
//! What is wrong is told all at once, as a [`Finding`] for each thing, with the path of its field.

#![forbid(unsafe_code)]

pub mod convert;
pub mod document;
mod finding;
mod judge;
mod kind;
mod names;
mod path;
pub mod preset;
pub mod render;
mod rules;
pub mod schema;
pub mod table;
pub mod types;

pub use proto::vm::guest;
pub use vmspec::annotations::keys::MACS;

pub use self::document::{Document, ReadError, read};
pub use self::finding::{Finding, Level};
pub use self::judge::{Judged, lint, render, render_instance};
pub use self::kind::{GROUP, Kind, OTHER_GROUP};
pub use self::names::{PRESETS, VMI, cut, hash};
pub use self::path::Path;
