//! The guest's CPU.

use vmspec::Accelerator;
use vmspec::plan::{CpuModel, CpuSetting};

use super::{Doc, DomainError, DomainSpec};

pub(super) fn cpu(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    if let Some(setting) = &spec.plan.hardware.cpu_setting {
        return in_detail(doc, spec, setting);
    }
    let (model, named) = match (&spec.plan.hardware.cpu, spec.accel) {
        (Some(CpuModel::Named(name)), _) => ("custom", Some(name.as_str())),
        (Some(CpuModel::HostModel), _) => ("host-model", None),
        (Some(CpuModel::HostPassthrough), _) | (None, Accelerator::Kvm) => ("host-passthrough", None),
        (Some(CpuModel::Max), _) | (None, Accelerator::Qemu) => ("maximum", None),
    };
    let mut attributes = vec![("mode", model)];
    attributes.extend(named.map(|_| ("match", "exact")));
    // That there is such a model here was seen when the machine was planned.
    attributes.push(("check", "none"));
    attributes.extend((model == "host-passthrough").then_some(("migratable", "off")));
    doc.nest("cpu", &attributes, |doc| {
        if let Some(name) = named {
            doc.text("model", &[("fallback", "forbid")], name)?;
        }
        topology(doc, spec)?;
        for feature in &spec.plan.hardware.described.cpu_features {
            doc.leaf("feature", &[("policy", feature.policy.word()), ("name", &feature.name)])?;
        }
        // Machines in the guest: libvirt's model of a host has neither, and a host one of them at most.
        let nested: &[&str] = if model == "host-model" { &["vmx", "svm"] } else { &[] };
        let is_said = |name: &str| spec.plan.hardware.described.cpu_features.iter().any(|feature| feature.name == name);
        let mut nested = nested.iter().filter(|name| !is_said(name));
        nested.try_for_each(|name| doc.leaf("feature", &[("policy", "optional"), ("name", name)]))
    })
}

fn in_detail(doc: &mut Doc, spec: &DomainSpec, setting: &CpuSetting) -> Result<(), DomainError> {
    let mut attributes = vec![("mode", setting.mode.word())];
    attributes.extend(setting.matches.map(|matches| ("match", matches.word())));
    attributes.extend(setting.check.map(|check| ("check", check.word())));
    doc.nest("cpu", &attributes, |doc| {
        if let Some(model) = &setting.model {
            let mut attributes = Vec::new();
            attributes.extend(model.fallback.map(|fallback| ("fallback", fallback.word())));
            attributes.extend(model.vendor_id.as_deref().map(|id| ("vendor_id", id)));
            doc.text("model", &attributes, &model.name)?;
        }
        if let Some(vendor) = &setting.vendor {
            doc.text("vendor", &[], vendor)?;
        }
        match &setting.topology {
            Some(topology) => {
                let [sockets, dies, cores, threads] =
                    [topology.sockets, topology.dies, topology.cores, topology.threads].map(|level| level.to_string());
                let levels = [("sockets", &*sockets), ("dies", &*dies), ("cores", &*cores), ("threads", &*threads)];
                doc.leaf("topology", &levels)?;
            }
            None => topology(doc, spec)?,
        }
        if let Some(cache) = &setting.cache {
            let level = cache.level.map(|level| level.to_string());
            let mut attributes: Vec<_> = level.as_deref().map(|level| ("level", level)).into_iter().collect();
            attributes.push(("mode", cache.mode.word()));
            doc.leaf("cache", &attributes)?;
        }
        setting
            .features
            .iter()
            .try_for_each(|feature| doc.leaf("feature", &[("policy", feature.policy.word()), ("name", &feature.name)]))
    })
}

/// As it is described, with sockets for the vCPUs that come later, too. Else one socket of cores.
fn topology(doc: &mut Doc, spec: &DomainSpec) -> Result<(), DomainError> {
    let max = spec.plan.cpus.max;
    let (sockets, cores, threads) = match spec.plan.hardware.described.topology {
        Some(said) => (max / (said.cores * said.threads).max(1), said.cores, said.threads),
        None => (1, max, 1),
    };
    let [sockets, cores, threads] = [sockets, cores, threads].map(|level| level.to_string());
    doc.leaf("topology", &[("sockets", &sockets), ("cores", &cores), ("threads", &threads)])
}
