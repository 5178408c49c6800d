//! CNI: which network pods get, and whether its plugins would be started, by the word of `tapmanager networks`; and what became
//! of the last pods that they were to add, by that of `tapmanager status`.
//!
//! A plugin that is asked for its STATUS asks its IPAM plugin in turn, and some of these answer that all is well without knowing
//! it. So it is told what no answer covers, and what the last ADDs came to.

use super::facts::{Facts, Network, Networks, Plugin, TapStatus};
use super::finding::Finding;
use super::host::Host;
use super::leases;

const CONFIGURATION: &str = "cni.configuration";
const PLUGINS: &str = "cni.plugins";
const ADDS: &str = "cni.adds";
/// What the name of the socket of the plugin `dhcp` ends with, unless a network names another.
const DHCP_SOCKET: &str = "/dhcp.sock";

pub(super) fn look(host: &Host, facts: &Facts) -> Vec<Finding> {
    let mut findings = match &facts.networks {
        Ok(networks) => judged(networks),
        Err(error) => [CONFIGURATION, PLUGINS].map(|check| Finding::unknown(check, error)).into(),
    };
    let default = facts.networks.as_ref().ok().and_then(|networks| networks.networks.first());
    let ipam = default.map(|network| network.ipam.as_slice()).unwrap_or_default();
    findings.push(match &facts.tap {
        Ok(status) => adds(status, ipam, dhcp_serves(host)),
        Err(error) => Finding::unknown(ADDS, error),
    });
    findings.push(leases::look(host, facts));
    findings
}

/// Whether something listens where the daemon of the plugin `dhcp` does, if that can be seen.
fn dhcp_serves(host: &Host) -> Option<bool> {
    let list = host.read("/proc/net/unix").ok().flatten()?;
    Some(list.lines().any(|line| line.ends_with(DHCP_SOCKET)))
}

/// What the last ADDs came to, and what nobody can answer before the next.
fn adds(status: &TapStatus, ipam: &[Plugin], dhcp_serves: Option<bool>) -> Finding {
    let mend = "mend what it says; journalctl -u tapmanager has more";
    let unknown = |plugin: &Plugin| match plugin.kind.as_str() {
        "dhcp" if dhcp_serves == Some(true) => None,
        "dhcp" => Some("whether the daemon of the plugin `dhcp` runs"),
        "host-local" => Some("whether `host-local` has addresses left"),
        _ => None,
    };
    let unknown: Vec<_> = ipam.iter().filter_map(unknown).collect();
    let unknown = match unknown.as_slice() {
        [] => String::new(),
        some => format!("; STATUS does not tell {}", some.join(", nor ")),
    };
    if !status.reason.is_empty() {
        return Finding::warning(ADDS, format!("{}{unknown}", status.reason), mend);
    }
    let seen = format!("no network's last ADD failed within the last hour{unknown}");
    if ipam.iter().any(|plugin| plugin.kind == "dhcp") && dhcp_serves == Some(false) {
        let mend = "start the daemon of the plugin `dhcp` (`dhcp daemon`), if the network names no socket of its own";
        return Finding::warning(ADDS, format!("{seen}: nobody listens at a socket named `dhcp.sock`"), mend);
    }
    Finding::ok(ADDS, seen)
}

fn judged(networks: &Networks) -> Vec<Finding> {
    let Some(default) = networks.networks.first() else {
        let why = networks.trouble.as_deref().unwrap_or("no network is configured");
        let mend = "install the CNI of the cluster, or deploy/10-virtlet.conflist in /etc/cni/net.d";
        return vec![Finding::failure(CONFIGURATION, why, mend), Finding::unknown(PLUGINS, "there is no network")];
    };
    let others = match networks.networks.len() {
        1 => String::new(),
        all => format!(", and {} others", all - 1),
    };
    let configuration = if networks.broken.is_empty() {
        Finding::ok(CONFIGURATION, format!("the default network is `{}`{others}", default.name))
    } else {
        let seen = format!("the default network is `{}`{others}; {}", default.name, networks.broken.join("; "));
        Finding::warning(CONFIGURATION, seen, "correct the files, or remove them")
    };
    let troubles = |network: &Network| -> Vec<String> {
        let told =
            network.plugins.iter().chain(&network.ipam).filter_map(|plugin| Some((plugin, plugin.trouble.as_ref()?)));
        told.map(|(plugin, trouble)| format!("plugin `{}`: {trouble}", plugin.kind)).collect()
    };
    let of_default = troubles(default);
    let of_others: Vec<_> = networks.networks.iter().skip(1).flat_map(troubles).collect();
    let mend = "install the plugins (Debian: containernetworking-plugins), or mend their permissions";
    let plugins = if !of_default.is_empty() {
        Finding::failure(PLUGINS, of_default.join("; "), mend)
    } else if !of_others.is_empty() {
        Finding::warning(PLUGINS, format!("of other networks than the default one: {}", of_others.join("; ")), mend)
    } else {
        let kinds: Vec<_> = default.plugins.iter().chain(&default.ipam).map(|plugin| plugin.kind.as_str()).collect();
        Finding::ok(PLUGINS, format!("{} can be started", kinds.join(", ")))
    };
    vec![configuration, plugins]
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::super::program::json;
    use super::*;

    fn told(text: &str) -> Vec<(State, String)> {
        let networks: Networks = json(text).expect("as tapmanager prints it");
        judged(&networks).into_iter().map(|finding| (finding.state, finding.seen)).collect()
    }

    #[test]
    fn the_default_network_decides() {
        let of = |first: &str, second: &str| {
            told(&format!(
                r#"{{"networks": [{{"name": "a", "plugins": [{{"type": "ptp", "path": null, "trouble": {first}}}]}},
                    {{"name": "b", "plugins": [{{"type": "vlan", "path": "/x", "trouble": {second}}}]}}],
                    "broken": [], "trouble": null}}"#
            ))
        };
        let well = of("null", "null");
        assert_eq!(well[0], (State::Ok, "the default network is `a`, and 1 others".into()));
        assert_eq!(well[1], (State::Ok, "ptp can be started".into()));
        assert_eq!(of(r#""gone""#, "null")[1], (State::Failure, "plugin `ptp`: gone".into()));
        assert_eq!(of("null", r#""gone""#)[1].0, State::Warning);
    }

    #[test]
    fn a_plugin_that_gives_addresses_is_looked_for_too() {
        let missing = told(
            r#"{"networks": [{"name": "a", "plugins": [{"type": "ptp", "path": "/x", "trouble": null}],
                "ipam": [{"type": "dhcp", "path": null, "trouble": "gone"}]}], "broken": [], "trouble": null}"#,
        );
        assert_eq!(missing[1], (State::Failure, "plugin `dhcp`: gone".into()));
    }

    #[test]
    fn what_the_last_adds_came_to_is_told_with_what_status_cannot_know() {
        let said = |reason: &str, kinds: &[&str], dhcp_serves| {
            let plugin = |kind: &&str| Plugin { kind: (*kind).to_owned(), trouble: None };
            let ipam: Vec<_> = kinds.iter().map(plugin).collect();
            let status = TapStatus { server: "tapmanager 1".into(), ready: true, reason: reason.into() };
            let found = adds(&status, &ipam, dhcp_serves);
            (found.state, found.seen)
        };
        let well = "no network's last ADD failed within the last hour";
        assert_eq!(said("", &["static"], None), (State::Ok, well.into()));
        let full = format!("{well}; STATUS does not tell whether `host-local` has addresses left");
        assert_eq!(said("", &["host-local"], None), (State::Ok, full));
        assert_eq!(said("", &["dhcp"], Some(true)), (State::Ok, well.into()));
        let dhcp = "STATUS does not tell whether the daemon of the plugin `dhcp` runs";
        assert_eq!(said("", &["dhcp"], None), (State::Ok, format!("{well}; {dhcp}")));
        let silent = format!("{well}; {dhcp}: nobody listens at a socket named `dhcp.sock`");
        assert_eq!(said("", &["dhcp"], Some(false)), (State::Warning, silent));
        let failed = said("the last 3 ADDs of network `a` failed", &["dhcp"], None);
        assert_eq!(failed, (State::Warning, format!("the last 3 ADDs of network `a` failed; {dhcp}")));
    }

    #[test]
    fn no_network_is_a_failure_and_a_broken_file_a_warning() {
        let none = told(r#"{"networks": [], "broken": ["x"], "trouble": "no network is configured"}"#);
        assert_eq!(none[0], (State::Failure, "no network is configured".into()));
        let broken = told(r#"{"networks": [{"name": "a", "plugins": []}], "broken": ["x"], "trouble": null}"#);
        assert_eq!(broken[0], (State::Warning, "the default network is `a`; x".into()));
    }
}
