//! `KIND/ID`: how the command line names a thing that is on no record.

use proto::orphans::Kind;

/// The kinds, as the command line and tables have them.
const KINDS: [(&str, Kind); 6] = [
    ("machine", Kind::Machine),
    ("disk", Kind::Disk),
    ("network", Kind::Network),
    ("console", Kind::Console),
    ("lease", Kind::Lease),
    ("record", Kind::Record),
];

/// What is named by `KIND/ID`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thing {
    /// What it is.
    pub kind: Kind,
    /// Tells it from others of its kind.
    pub id: String,
}

/// Reads a `KIND/ID`.
pub(super) fn thing(text: &str) -> Result<Thing, String> {
    let kinds = || KINDS.map(|(name, _)| name).join(", ");
    let (kind, id) = text.split_once('/').ok_or_else(|| format!("write KIND/ID; the kinds are {}", kinds()))?;
    let known = KINDS.iter().find(|(name, _)| *name == kind);
    let (_, kind) = known.ok_or_else(|| format!("no kind `{kind}`; the kinds are {}", kinds()))?;
    if id.is_empty() {
        return Err("write an id after the slash, as `virtletctl orphans` shows it".into());
    }
    Ok(Thing { kind: *kind, id: id.to_owned() })
}

/// The word for a kind.
pub(super) fn name_of(kind: Kind) -> &'static str {
    KINDS.iter().find(|(_, known)| *known == kind).map_or("unknown", |(name, _)| name)
}
