//! `vm`: KubeVirt's objects in files, and the pods that they are here. Asks no cluster and no daemon: the crate `kubevirt` has the rules.

mod files;
mod told;

use std::io::{self, Write};

use kubevirt::convert::convert;
use kubevirt::render::Options;
use kubevirt::{Document, Judged, Level};
use serde_json::{Value, json};

use self::files::Manifest;
use super::cli::{Cluster, Firmware, Form, Manifests, Notation, VmCommand, VmConvert, VmLint, VmRender};
use super::document;
use super::error::{CtlError, none_of};
use super::tell::tell_line;

/// Does one of the commands.
///
/// # Errors
/// When a file cannot be read, or an object would be refused.
pub(super) fn run(command: &VmCommand, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    match command {
        VmCommand::Lint(wanted) => lint(wanted, out),
        VmCommand::Render(wanted) => render(wanted, out),
        VmCommand::Convert(wanted) => convert_all(wanted, out),
        // Done by `vms`.
        VmCommand::InCluster(_) => Ok(()),
    }
}

fn lint(wanted: &VmLint, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let manifests = files::read(&wanted.manifests)?;
    let (documents, judged) = judge(&manifests, &wanted.cluster);
    let all = told::of(&manifests, &documents, &judged);
    let text = match wanted.output {
        None => all.iter().map(|told| format!("{told}\n")).collect(),
        Some(notation) => {
            let form = if notation == Notation::Json { Form::Json } else { Form::Yaml };
            document::of(all.iter().map(told::Told::value).collect(), form).map_err(|error| vec![error])?
        }
    };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|cause| vec![cause.into()])?;
    let refused = judged.iter().filter(|judged| is_refused(judged, &wanted.cluster)).count();
    match refused {
        0 => Ok(()),
        refused => Err(vec![CtlError::ObjectsRefused { refused, all: documents.len() }]),
    }
}

fn render(wanted: &VmRender, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let manifests = files::read(&wanted.manifests)?;
    let (documents, judged) = judge(&manifests, &wanted.cluster);
    let mut errors = Vec::new();
    for told in told::of(&manifests, &documents, &judged) {
        if told.finding.level == Level::Error || wanted.cluster.strict {
            errors.push(CtlError::Object(told.to_string()));
        } else {
            tell_line(&format!("virtletctl: {told}"));
        }
    }
    none_of(errors)?;
    let objects: Vec<Value> = judged.into_iter().flat_map(|judged| judged.objects).collect();
    print(wanted.output, objects, out)
}

fn convert_all(wanted: &VmConvert, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let manifests = files::read(&wanted.manifests)?;
    let documents = manifests.iter().flat_map(|manifest| &manifest.documents);
    let objects = documents.flat_map(|document| convert(document, &wanted.group)).collect();
    print(wanted.output, objects, out)
}

/// All objects together: a preset, a Secret or a claim may be in another file.
fn judge(manifests: &[Manifest], cluster: &Cluster) -> (Vec<Document>, Vec<Judged>) {
    let documents: Vec<Document> = manifests.iter().flat_map(|manifest| manifest.documents.clone()).collect();
    let judged = kubevirt::render(&documents, &options(cluster));
    (documents, judged)
}

fn options(cluster: &Cluster) -> Options {
    let mut options = Options { image: cluster.image.clone(), ..Options::default() };
    for class in &cluster.runtime_class {
        let name = class.name.clone();
        match class.firmware {
            Firmware::Any => options.runtime_class = name,
            Firmware::Efi => options.efi = Some(name),
            Firmware::SecureBoot => options.secure_boot = Some(name),
        }
    }
    options
}

fn is_refused(judged: &Judged, cluster: &Cluster) -> bool {
    judged.is_refused() || (cluster.strict && !judged.findings.is_empty())
}

/// Objects as kubectl takes them: documents, or in JSON a list. Nothing of them is escaped but as their notation has it.
fn print(notation: Notation, objects: Vec<Value>, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let text = match notation {
        Notation::Json => document::json(&json!({ "apiVersion": "v1", "kind": "List", "items": objects })),
        Notation::Yaml => yaml(&objects).map_err(|cause| vec![cause.into()])?,
    };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|cause| vec![cause.into()])
}

fn yaml(objects: &[Value]) -> io::Result<String> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(object).map_err(io::Error::other)?);
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
