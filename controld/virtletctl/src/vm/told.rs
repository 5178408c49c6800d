//! What is found in objects of files, as lines and as values.

use std::fmt;
use std::path::Path;

use kubevirt::{Document, Finding, Judged};
use serde_json::{Value, json};

use super::Manifest;
use crate::text::shown;

/// A finding, with where it is.
#[derive(Debug)]
pub(super) struct Told<'a> {
    file: &'a Path,
    document: &'a Document,
    pub(super) finding: &'a Finding,
}

/// All findings, in the order of files and objects.
pub(super) fn of<'a>(manifests: &'a [Manifest], documents: &'a [Document], judged: &'a [Judged]) -> Vec<Told<'a>> {
    let files = manifests.iter().flat_map(|manifest| manifest.documents.iter().map(|_| manifest.file.as_path()));
    let mut all = Vec::new();
    for ((file, document), judged) in files.zip(documents).zip(judged) {
        all.extend(judged.findings.iter().map(|finding| Told { file, document, finding }));
    }
    all
}

impl Told<'_> {
    pub(super) fn value(&self) -> Value {
        let Self { file, document, finding } = self;
        json!({
            "file": file.display().to_string(),
            "document": document.number,
            "kind": document.kind_name(),
            "name": document.name(),
            "level": finding.level.word(),
            "path": finding.path.as_str(),
            "text": finding.text,
        })
    }
}

/// `web.yaml: document 2, VirtualMachineInstance web: error: spec.x: text`.
impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, document, finding } = self;
        let (kind, name) = (document.kind_name(), document.name());
        let line = format!("{}: document {}, {kind} {name}: {finding}", file.display(), document.number);
        f.write_str(&shown(&line))
    }
}
