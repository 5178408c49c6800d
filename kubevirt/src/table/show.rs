//! The table as rows, for documents and tests.

use super::{Object, Shape, Verdict, objects};

/// A field of a VirtualMachineInstance's spec, or of another kind's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its path, with `[]` behind lists.
    pub path: String,
    pub verdict: Verdict,
}

/// All fields: those of the spec of a VirtualMachineInstance, and those that other kinds have beside it, whose names are before theirs.
#[must_use]
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    add(&objects::SPEC, "spec", &mut rows);
    for (kind, object) in [
        ("VirtualMachine spec", &objects::MACHINE_SPEC),
        ("VirtualMachineInstanceReplicaSet spec", &objects::REPLICA_SET_SPEC),
        ("VirtualMachineInstancePreset spec", &objects::PRESET_SPEC),
    ] {
        for field in object.0.iter().filter(|field| field.name != "template" && field.name != "domain") {
            add(&Object(std::slice::from_ref(field)), kind, &mut rows);
        }
    }
    rows
}

fn add(object: &Object, at: &str, rows: &mut Vec<Row>) {
    for field in object.0 {
        let path = format!("{at}.{}", field.name);
        rows.push(Row { path: path.clone(), verdict: field.verdict });
        below(field.shape, &path, rows);
    }
}

fn below(shape: Shape, path: &str, rows: &mut Vec<Row>) {
    match shape {
        Shape::Object(object) => add(object, path, rows),
        Shape::List(of, _) => below(*of, &format!("{path}[]"), rows),
        _ => {}
    }
}
