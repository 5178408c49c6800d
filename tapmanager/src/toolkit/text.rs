//! What is printed for people. Pure. Text that came from a plugin is shown without its control characters.

use std::fmt::Write as _;
use std::time::Duration;

use proto::tap::{
    CheckReport, CollectReport, Nic, NicKind, PodDetail, PodId, PodNet, PodPhase, PodSummary, ServerStatus, Tap, Vfio,
};

use crate::cni::Survey;

pub(super) fn net(pod: &PodId, net: &PodNet) -> String {
    let mut text = format!("pod {}: namespace {}\n", pod.as_str(), net.netns.display());
    for nic in &net.nics {
        text.push_str(&of_nic(nic));
    }
    let words = |words: &[String]| words.join(" ");
    let servers: Vec<String> = net.dns.servers.iter().map(ToString::to_string).collect();
    for (name, value) in
        [("servers", words(&servers)), ("search", words(&net.dns.searches)), ("options", words(&net.dns.options))]
    {
        if !value.is_empty() {
            line(&mut text, &format!("resolver {name}: {value}"));
        }
    }
    text
}

pub(super) fn networks(survey: &Survey) -> String {
    let mut text = String::new();
    for (place, network) in survey.networks.iter().enumerate() {
        let default = if place == 0 { " (default)" } else { "" };
        line(&mut text, &format!("network {}{default}", network.name));
        for (what, plugins) in [("plugin", &network.plugins), ("IPAM plugin", &network.ipam)] {
            for plugin in plugins {
                let path = plugin.path.as_ref().map_or_else(String::new, |path| format!(": {}", path.display()));
                let trouble = plugin.trouble.as_ref().map_or_else(String::new, |trouble| format!("; {trouble}"));
                line(&mut text, &format!("  {what} {}{path}{trouble}", plugin.kind));
            }
        }
    }
    for trouble in survey.broken.iter().chain(&survey.trouble) {
        line(&mut text, &format!("trouble: {trouble}"));
    }
    text
}

fn of_nic(nic: &Nic) -> String {
    let Nic { name, network, mac, mtu, kind, addresses, routes } = nic;
    let mut text = String::new();
    let how = match kind {
        NicKind::Tap(Tap { data_path, queues }) => {
            let plural = if *queues == 1 { "" } else { "s" };
            format!("{queues} queue{plural}, joined by {}", data_path.name())
        }
        NicKind::Vfio(Vfio { device }) => format!("virtual function {device}, passed through"),
    };
    line(&mut text, &format!("nic {name}: network {network}, mac {mac}, mtu {mtu}, {how}"));
    for address in addresses {
        line(&mut text, &format!("  address {address}"));
    }
    for route in routes {
        let to = if route.dst.prefix() == 0 { "default".to_owned() } else { route.dst.to_string() };
        let via = route.gateway.map_or_else(|| "on the link".to_owned(), |gateway| format!("via {gateway}"));
        line(&mut text, &format!("  route {to} {via}"));
    }
    text
}

pub(super) fn detail(detail: &PodDetail) -> String {
    let PodDetail { summary, net: given, explanation, request: _ } = detail;
    let mut text = match given {
        Some(given) => net(&summary.pod, given),
        None => format!("pod {}: {}, has no network\n", summary.pod.as_str(), phase(summary.phase)),
    };
    if let Some(trouble) = &summary.trouble {
        line(&mut text, &format!("trouble: {trouble}"));
    }
    if !explanation.is_empty() {
        text.push_str("why:\n");
    }
    for reason in explanation {
        line(&mut text, &format!("  {reason}"));
    }
    text
}

pub(super) fn check(report: &CheckReport) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        line(&mut text, finding);
    }
    if report.findings.is_empty() {
        line(&mut text, &format!("as it was given: {}", report.checked.join("; ")));
    }
    text
}

pub(super) fn collected(report: &CollectReport) -> String {
    let mut text = String::new();
    for removed in &report.removed {
        line(&mut text, &format!("removed: {removed}"));
    }
    for kept in &report.kept {
        line(&mut text, &format!("kept: {kept}"));
    }
    if text.is_empty() {
        line(&mut text, "there was nothing to take away");
    }
    text
}

pub(super) fn status(status: &ServerStatus) -> String {
    let ServerStatus { server, ready, reason, pods, recovering, tokens_refused, plugin_micros } = status;
    let mut text = String::new();
    let word = if *ready { "ready" } else { "not ready" };
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    line(&mut text, &format!("{server}: {word}{why}"));
    let spent = Duration::from_micros(*plugin_micros).as_secs_f64();
    let recovering = if *recovering == 0 { String::new() } else { format!(" ({recovering} being recovered)") };
    line(
        &mut text,
        &format!("pods {pods}{recovering}, tokens refused {tokens_refused}, {spent:.1} s spent in plugins"),
    );
    text
}

pub(super) fn list(pods: &[PodSummary]) -> String {
    let rows: Vec<[String; 5]> = std::iter::once(["POD", "NAME", "PHASE", "IP", "TROUBLE"].map(str::to_owned))
        .chain(pods.iter().map(row))
        .collect();
    table(&rows)
}

/// Rows in columns that are as wide as their widest cells.
pub(super) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        line(&mut text, cells.join("  ").trim_end());
    }
    text
}

fn row(pod: &PodSummary) -> [String; 5] {
    let PodSummary { pod, namespace, name, owner: _, phase: stands, recovering, ip, trouble } = pod;
    [
        pod.as_str().to_owned(),
        printable(&format!("{namespace}/{name}")),
        if *recovering { format!("{}, recovering", phase(*stands)) } else { phase(*stands).to_owned() },
        ip.map_or_else(|| "-".to_owned(), |ip| ip.to_string()),
        printable(trouble.as_deref().unwrap_or_default()),
    ]
}

pub(super) fn detached(pods: &[PodId]) -> String {
    pods.iter().fold(String::new(), |mut text, pod| {
        line(&mut text, &format!("pod {}: detached", pod.as_str()));
        text
    })
}

const fn phase(phase: PodPhase) -> &'static str {
    match phase {
        PodPhase::Attaching => "attaching",
        PodPhase::Attached => "attached",
        PodPhase::Detaching => "detaching",
    }
}

pub(super) fn line(text: &mut String, words: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", printable(words));
}

/// On one line, and harmless to a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
