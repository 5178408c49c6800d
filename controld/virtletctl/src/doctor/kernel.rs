//! What of the kernel machines and their networks need.
//!
//! Devices are opened, not only looked for. What is in a module counts as there if the kernel can load it: it does so itself when
//! tapmanager asks for the first object of that kind.

mod namespaces;

use std::fs::OpenOptions;

use super::facts::{Facts, TapSettings};
use super::finding::{Finding, State};
use super::host::{Host, Kind};
use super::modules::{Has, Modules};

/// What the data path `tc` is made of.
const TC: [&str; 3] = ["sch_ingress", "cls_bpf", "act_mirred"];

pub(super) fn look(host: &Host, facts: &Facts) -> Vec<Finding> {
    let taps = facts.tapmanager.as_ref().ok();
    let mut findings = vec![tun(host), vhost_net(host, taps)];
    let modules = match Modules::read(host) {
        Ok(modules) => modules,
        Err(error) => {
            let checks = ["kernel.tc", "kernel.bridge", "kernel.macvtap"];
            findings.extend(checks.map(|check| Finding::unknown(check, &error)));
            findings.push(namespaces::look(host));
            return findings;
        }
    };
    let path = taps.map_or("tc", |taps| taps.data_path.as_str());
    let all = [
        ("kernel.tc", "tc", &TC[..]),
        ("kernel.bridge", "bridge", &["bridge"]),
        ("kernel.macvtap", "macvtap", &["macvtap"]),
    ];
    findings.extend(all.map(|(check, name, needed)| data_path(check, name, needed, name == path, &modules)));
    findings.push(namespaces::look(host));
    findings
}

fn tun(host: &Host) -> Finding {
    const CHECK: &str = "kernel.tun";
    match OpenOptions::new().read(true).write(true).open(host.at("/dev/net/tun")) {
        Ok(_) => Finding::ok(CHECK, "`/dev/net/tun` can be opened"),
        Err(error) => Finding::failure(
            CHECK,
            format!("`/dev/net/tun` cannot be opened: {error}; no machine gets a network"),
            "modprobe tun; echo tun >/etc/modules-load.d/virtlet.conf",
        ),
    }
}

fn vhost_net(host: &Host, taps: Option<&TapSettings>) -> Finding {
    const CHECK: &str = "kernel.vhost-net";
    match host.look("/dev/vhost-net") {
        Ok(Some(looks)) if looks.kind == Kind::Device => Finding::ok(CHECK, "`/dev/vhost-net` is there"),
        Ok(_) if taps.is_some_and(|taps| taps.vhost == "off") => Finding::ok(CHECK, "turned off in tapmanager.toml"),
        Ok(_) => Finding::warning(
            CHECK,
            "there is no `/dev/vhost-net`: QEMU itself moves all frames, which is slower",
            "modprobe vhost_net; echo vhost_net >>/etc/modules-load.d/virtlet.conf",
        ),
        Err(error) => Finding::unknown(CHECK, error),
    }
}

/// `wanted` is what pods get that do not name a data path.
fn data_path(check: &'static str, name: &str, needed: &[&str], wanted: bool, modules: &Modules) -> Finding {
    let of = |wrong: &[Has]| -> Vec<&str> {
        needed.iter().copied().filter(|module| wrong.contains(&modules.has(module))).collect()
    };
    let use_of = if wanted { "the data path of this node" } else { "only pods with this data path need it" };
    let (missing, unknown) = (of(&[Has::No, Has::Closed]), of(&[Has::Unknown]));
    if missing.is_empty() && unknown.is_empty() {
        return Finding::ok(check, format!("the kernel has {} ({use_of})", needed.join(", ")));
    }
    let kernel = &modules.kernel;
    if missing.is_empty() {
        let why = format!("{} not loaded, and there is no list of what kernel {kernel} has", unknown.join(", "));
        let mend = format!("try it: `tapmanager attach --data-path {name} --conf FILE` leaves nothing behind");
        return Finding { mend: Some(mend), ..Finding::unknown(check, format!("{why} ({use_of})")) };
    }
    let closed = missing.iter().any(|module| modules.has(module) == Has::Closed);
    let (why, mend) = if closed {
        let load = format!("name {} in /etc/modules-load.d, and reboot", missing.join(", "));
        ("cannot load", load)
    } else {
        let other =
            format!("boot a kernel with {}, or choose another `data_path` in tapmanager.toml", missing.join(", "));
        ("does not have", other)
    };
    let state = if wanted { State::Failure } else { State::Warning };
    let seen = format!("kernel {kernel} {why} {} ({use_of})", missing.join(", "));
    Finding { state, ..Finding::failure(check, seen, mend) }
}

#[cfg(test)]
mod tests;
