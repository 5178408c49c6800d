//! What a guest is called: by its own label, and in DNS.
//!
//! CRI has the label alone. The name in DNS, which a pod has by its `subdomain` (as each of a StatefulSet does), stands in the hosts file that
//! kubelet writes for the pod's containers: a line `ADDRESS<TAB>NAME<TAB>LABEL` for each of the pod's addresses, or `ADDRESS<TAB>LABEL` for a pod that
//! has no such name. Called by [`super::drive`]. Pure.

use common::dns::{host_name, is_host_name};

use super::SeedInput;

/// What kubelet writes above the pod's `hostAliases`, which are names of others.
const ALIASES: &str = "# Entries added by HostAliases.";

/// The guest's name in DNS if it has one, else the sandbox's host name. cloud-init makes both the host name and the domain of it.
/// Distributions of Red Hat's family make the whole name the host name, which would then be cut or refused: a guest with one that Linux does
/// not take keeps its label.
pub(super) fn hostname<'a>(input: &SeedInput<'a>) -> &'a str {
    let own = host_name(input.hostname, input.pod_name);
    in_dns(input.hosts, own).unwrap_or(own)
}

/// The name of which this is the first label, if the hosts file has one.
fn in_dns<'a>(hosts: &'a str, own: &str) -> Option<&'a str> {
    hosts.lines().take_while(|line| *line != ALIASES).find_map(|line| {
        let mut fields = line.split('\t').skip(1);
        let (name, label, None) = (fields.next()?, fields.next()?, fields.next()) else { return None };
        let (first, _) = name.split_once('.')?;
        (first == own && label == own && is_host_name(name)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As kubelet has it (`managedHostsFileContent` in its `kubelet_pods.go`).
    fn hosts(own: &str) -> String {
        format!(
            "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
             fe00::\tip6-localnet\nfe00::\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n{own}\n\
             # Entries added by HostAliases.\n10.0.0.9\tother.example.com\tother\n10.0.0.8\tdb-1.example.com\tdb-1\n"
        )
    }

    #[test]
    fn the_name_in_dns_is_in_kubelets_hosts_file() {
        let name = "db-0.db.prod.svc.cluster.local";
        let both = hosts(&format!("10.77.0.2\t{name}\tdb-0\nfd00::2\t{name}\tdb-0\n"));
        assert_eq!(in_dns(&both, "db-0"), Some(name));
        assert_eq!(in_dns(&hosts("10.77.0.2\tdb-0\n"), "db-0"), None);
        // Only an alias says so.
        assert_eq!(in_dns(&hosts("10.77.0.2\tdb-1\n"), "db-1"), None);
        assert_eq!(in_dns("", "db-0"), None);
    }

    #[test]
    fn what_is_not_the_guests_name_in_dns_is_not_taken_for_it() {
        let line = |domain: usize| format!("10.77.0.2\tdb-0.{}\tdb-0", "a".repeat(domain));
        assert_eq!(in_dns(&hosts(&line(59)), "db-0").map(str::len), Some(64));
        for line in [
            "10.77.0.2\tdb-1.db.local\tdb-0",
            "10.77.0.2\tdb-0.db.local\tdb-1",
            "10.77.0.2\tdb-0\tdb-0",
            "10.77.0.2\tdb-0.db.local\tdb-0\tmore",
            "10.77.0.2 db-0.db.local db-0",
            "10.77.0.2\tdb-0.db.\tdb-0",
            "10.77.0.2\tdb-0.d_b.local\tdb-0",
            "10.77.0.2\tdb-0.db local\tdb-0",
            &line(60),
        ] {
            assert_eq!(in_dns(&hosts(&format!("{line}\n")), "db-0"), None, "{line}");
        }
    }
}
