//! No pod has an address of the node: the node would take itself for the pod, in probes, in port-forward and behind Services. Nor one that
//! leads every node to itself.

use std::net::IpAddr;

use proto::tap::{NetworkAsk, PodNet, unfit_for_pod};
use vmspec::error::{Error, Kind, Result};

use crate::node_addresses::NodeAddresses;

/// Refuses what no pod can have. New pods alone: what earlier ones were let have, they keep.
///
/// # Errors
/// When one asks for such an address.
pub fn check_fit(networks: &[NetworkAsk]) -> Result<()> {
    let asked = networks.iter().flat_map(|ask| &ask.ips);
    match asked.map(|ip| ip.ip()).find_map(|ip| Some((ip, unfit_for_pod(ip)?))) {
        Some((ip, sort)) => Err(Error::new(
            Kind::Invalid,
            format!("the pod asks a network for `{ip}`, which is {sort} and can be no pod's"),
        )),
        None => Ok(()),
    }
}

/// Refuses what the pod asks its networks for.
pub(super) fn check_asked(networks: &[NetworkAsk], own: &NodeAddresses) -> Result<()> {
    for ask in networks {
        if let Some(address) = ask.ips.iter().map(|ip| ip.ip()).find(|ip| own.has(*ip)) {
            let network = ask.network.as_deref().unwrap_or_default();
            let what = format!(
                "the pod asks network `{network}` for `{address}`, which is an address of this node; ask for another one"
            );
            return Err(Error::new(Kind::Invalid, what));
        }
    }
    Ok(())
}

/// Refuses what the default network gave the pod.
pub(super) fn check_given(net: &PodNet, own: &NodeAddresses) -> Result<()> {
    let Some(address) = net.addresses().into_iter().find(|ip: &IpAddr| own.has(*ip)) else { return Ok(()) };
    let network = net.nics.first().map(|nic| nic.network.as_str()).unwrap_or_default();
    let what = format!(
        "network `{network}` gave the pod `{address}`, which is an address of this node; take those of nodes out of the \
         network's ranges"
    );
    Err(Error::new(Kind::Denied, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> NodeAddresses {
        ["192.0.2.1", "fd00::1"].iter().map(|address| address.parse::<IpAddr>().expect("an address")).collect()
    }

    #[test]
    fn a_pod_asks_for_no_address_that_leads_a_node_to_itself() {
        let asks = |ip: &str| {
            let ask = NetworkAsk { ips: vec![ip.parse().expect("an address")], ..NetworkAsk::default() };
            check_fit(&[NetworkAsk::default(), ask]).map_err(|error| error.to_string())
        };
        assert_eq!(asks("10.9.0.7/24"), Ok(()));
        for (ip, sort) in [("127.0.0.1", "loopback"), ("fe80::7/64", "link-local"), ("::ffff:127.0.0.1", "loopback")] {
            let said = asks(ip).expect_err(ip);
            assert!(said.contains(&format!("is a {sort} address and can be no pod's")), "{said}");
        }
    }

    #[test]
    fn a_pod_asks_for_no_address_of_the_node() {
        let asks = |ips: &[&str]| {
            let ips = ips.iter().map(|ip| ip.parse().expect("an address")).collect();
            let ask = NetworkAsk { network: Some("lab".into()), ips, ..NetworkAsk::default() };
            check_asked(&[NetworkAsk::default(), ask], &own()).map_err(|error| error.to_string())
        };
        assert_eq!(asks(&["192.0.2.2/24", "fd00::2/64"]), Ok(()));
        let text = "the pod asks network `lab` for `fd00::1`, which is an address of this node; ask for another one";
        assert_eq!(asks(&["192.0.2.2/24", "fd00::1/64"]), Err(text.to_owned()));
        assert!(asks(&["::ffff:192.0.2.1/128"]).is_err());
    }

    #[test]
    fn a_pod_is_given_no_address_of_the_node() {
        let given = |addresses: [&str; 2]| {
            let net = serde_json::json!({
                "netns": "/run/netns/x", "dns": {"servers": [], "searches": [], "options": []},
                "nics": [{
                    "name": "eth0", "network": "pods", "mac": "02:00:00:00:00:01", "mtu": 1500, "queues": 1,
                    "addresses": addresses, "routes": []
                }]
            });
            let net: PodNet = serde_json::from_value(net).expect("a network");
            check_given(&net, &own()).map_err(|error| error.to_string())
        };
        assert_eq!(given(["192.0.2.2/24", "fd00::2/64"]), Ok(()));
        let text = "network `pods` gave the pod `192.0.2.1`, which is an address of this node; take those of nodes out of \
                    the network's ranges";
        assert_eq!(given(["192.0.2.1/24", "fd00::2/64"]), Err(text.to_owned()));
        assert!(given(["192.0.2.2/24", "fd00::1/64"]).is_err());
    }
}
