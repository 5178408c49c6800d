//! Firmware, clock, probes, and what the pod is told.

use std::net::IpAddr;

use crate::Path;
use crate::finding::Findings;
use crate::types::{Probe, Spec};

pub(super) fn check(spec: &Spec, at: &Path, found: &mut Findings) {
    let domain = at.field("domain");
    if let Some(loader) = &spec.domain.firmware.bootloader {
        let is_one = loader.bios.is_none() || loader.efi.is_none();
        found.unless(is_one, &domain.field("firmware").field("bootloader"), "is both bios and efi; write one of them");
    }
    if let Some(clock) = &spec.domain.clock {
        let is_one = clock.utc.is_none() || clock.timezone.is_none();
        found.unless(is_one, &domain.field("clock"), "has both utc and timezone; write one of them");
    }
    features(spec, &domain.field("features"), found);
    if spec.architecture.as_deref() == Some("arm64") {
        found.unless(spec.domain.cpu.topology().2 == 1, &domain.field("cpu").field("threads"), "is 1 on arm64");
    }
    for (probe, name) in [(&spec.liveness_probe, "livenessProbe"), (&spec.readiness_probe, "readinessProbe")] {
        if let Some(probe) = probe {
            self::probe(spec, probe, &at.field(name), found);
        }
    }
    let starts_paused = spec.start_strategy.is_some();
    let text = "cannot be set with livenessProbe, which would end the VM while it is paused";
    found.unless(!starts_paused || spec.liveness_probe.is_none(), &at.field("startStrategy"), text);
    eviction(spec, at, found);
    dns(spec, at, found);
}

fn features(spec: &Spec, at: &Path, found: &mut Findings) {
    let smm = spec.domain.features.as_ref().and_then(|features| features.smm);
    let is_off = smm.is_some_and(|smm| smm.enabled == Some(false));
    let is_secure = spec.domain.firmware.efi().is_some_and(|efi| efi.is_secure());
    found.unless(!(is_secure && is_off), &at.field("smm").field("enabled"), "secure boot needs it");
    let hyperv = spec.domain.features.as_ref().and_then(|features| features.hyperv.as_ref());
    let (synic, timer) = (hyperv.and_then(|it| it.synic), hyperv.and_then(|it| it.synictimer));
    if timer.is_some_and(|timer| timer.enabled != Some(false)) {
        let has = synic.is_some_and(|synic| synic.enabled != Some(false));
        found.unless(has, &at.field("hyperv").field("synictimer"), "needs synic");
    }
}

fn probe(spec: &Spec, probe: &Probe, at: &Path, found: &mut Findings) {
    found.unless(probe.ways() == 1, at, "needs one of httpGet, tcpSocket, exec and guestAgentPing");
    let is_of_network = probe.http_get.is_some() || probe.tcp_socket.is_some();
    let has_pods = spec
        .networks
        .iter()
        .any(|network| network.pod.is_some() || network.multus.as_ref().is_some_and(|multus| multus.is_default));
    found.unless(!is_of_network || has_pods, at, "needs a NIC on the pod's network");
}

fn eviction(spec: &Spec, at: &Path, found: &mut Findings) {
    let strategy = spec.eviction_strategy.as_deref().unwrap_or_default();
    if strategy == "LiveMigrate" || strategy == "External" {
        let text = format!("live migration is not offered, so \"{strategy}\" cannot be honoured; use None");
        found.error(&at.field("evictionStrategy"), text);
    }
}

fn dns(spec: &Spec, at: &Path, found: &mut Findings) {
    let servers = spec.dns_config.iter().flat_map(|config| config.nameservers.iter().flatten());
    let servers: Vec<&String> = servers.collect();
    let at_servers = at.field("dnsConfig").field("nameservers");
    found.unless(servers.len() <= 3, &at_servers, "has more than 3 servers");
    for (nth, server) in servers.iter().enumerate() {
        found.unless(server.parse::<IpAddr>().is_ok(), &at_servers.item(nth), "is no IP address");
    }
    let is_none = spec.dns_policy.as_deref() == Some("None");
    found.unless(!is_none || !servers.is_empty(), &at_servers, "is required when dnsPolicy is None");
}
