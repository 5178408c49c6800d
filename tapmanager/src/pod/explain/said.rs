//! What the plugins of a network said: their last result, in one line. Pure.

use serde_json::Value;

use super::list;
use crate::cni::ResultView;

/// The result in the order in which CNI has it. One that cannot be read is on record from another release.
pub(super) fn said(result: &Value) -> String {
    let Ok(ResultView { interfaces, ips, routes, dns }) = ResultView::of(result) else {
        return "its result cannot be read".to_owned();
    };
    let links = |in_pod: bool| {
        let names = interfaces.iter().filter(|link| link.sandbox.is_some() == in_pod).map(|link| link.name.as_str());
        names.map(|name| format!("`{name}`")).collect::<Vec<_>>()
    };
    let mut parts = Vec::new();
    for (links, place) in [(links(true), "in the pod"), (links(false), "on the node")] {
        if !links.is_empty() {
            parts.push(format!("{} {place}", links.join(" and ")));
        }
    }
    for ip in ips {
        let via = ip.gateway.map(|gateway| format!(" with gateway {gateway}")).unwrap_or_default();
        parts.push(format!("address {}{via}", ip.address));
    }
    for route in routes {
        let via = route.gateway.map_or_else(|| "the gateway".to_owned(), |gateway| gateway.to_string());
        let more = [
            ("mtu", route.mtu),
            ("advmss", route.advmss),
            ("priority", route.priority),
            ("table", route.table),
            ("scope", route.scope),
        ];
        let more = more.iter().filter_map(|(what, number)| Some(format!(" {what} {}", (*number)?)));
        parts.push(format!("route {} via {via}{}", route.dst, more.collect::<String>()));
    }
    if !dns.servers.is_empty() {
        parts.push(format!("resolver {}", list(&dns.servers)));
    }
    if parts.is_empty() {
        return "its result says nothing".to_owned();
    }
    format!("its result says: {}", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_is_said_in_its_order() {
        let result = json!({
            "cniVersion": "1.0.0",
            "interfaces": [
                {"name": "br0"},
                {"name": "veth1", "mac": "02:00:00:00:00:01"},
                {"name": "eth0", "mac": "02:00:00:00:00:02", "sandbox": "/run/netns/x"}
            ],
            "ips": [{"address": "10.1.0.2/24", "gateway": "10.1.0.1", "interface": 2}, {"address": "fd00::2/64"}],
            "routes": [
                {"dst": "0.0.0.0/0", "mtu": 1400},
                {"dst": "192.0.2.0/24", "gw": "10.1.0.9", "advmss": 1300, "priority": 5, "table": 9, "scope": 253}
            ],
            "dns": {"nameservers": ["192.0.2.53"]}
        });
        insta::assert_snapshot!(said(&result), @"its result says: `eth0` in the pod; `br0` and `veth1` on the node; address 10.1.0.2/24 with gateway 10.1.0.1; address fd00::2/64; route 0.0.0.0/0 via the gateway mtu 1400; route 192.0.2.0/24 via 10.1.0.9 advmss 1300 priority 5 table 9 scope 253; resolver 192.0.2.53");
    }

    #[test]
    fn results_that_say_nothing_or_nonsense_are_told_apart() {
        assert_eq!(said(&json!({"cniVersion": "1.0.0"})), "its result says nothing");
        assert_eq!(said(&json!({"cniVersion": "1.0.0", "ips": "all"})), "its result cannot be read");
    }
}
