//! Addresses that the IPAM plugin `host-local` keeps for pods that are no more: a DEL that was lost leaves them, and releases of the plugin
//! before 1.10.0 give none back by GC. Each is one that no other pod gets.
//!
//! The plugin has a directory for each network, and in it a file for each address, which begins with the id that its ADD had. Other
//! runtimes may use the same networks, so only ids as controld makes them are judged: `vm` and 62 hex digits. A pod whose record was lost may
//! still run in the namespace that tapmanager made for it: its addresses are in use.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use super::facts::{Facts, OnRecord};
use super::finding::Finding;
use super::host::{Host, HostError};

const CHECK: &str = "cni.leases";
/// Where tapmanager keeps pods' network namespaces, unless its `netns_dir` says otherwise.
const NAMESPACES: &str = "/run/netns";
/// Addresses of one network that are told.
const TOLD: usize = 5;

pub(super) fn look(host: &Host, facts: &Facts) -> Finding {
    let networks = match &facts.networks {
        Ok(networks) => &networks.networks,
        Err(error) => return Finding::unknown(CHECK, error),
    };
    let dirs: BTreeSet<_> = networks.iter().flat_map(|network| network.leases.as_slice()).collect();
    if dirs.is_empty() {
        return Finding::ok(
            CHECK,
            "no network's configuration names `host-local`; those that delegate are not looked at",
        );
    }
    let on_record = match &facts.pods {
        Ok(on_record) => on_record,
        Err(error) => return Finding::unknown(CHECK, error),
    };
    let mut told = Vec::new();
    for dir in dirs {
        match left(host, dir, on_record) {
            Ok(left) if left.is_empty() => {}
            Ok(left) => told.push(line(dir, &left)),
            Err(error) => return Finding::unknown(CHECK, error),
        }
    }
    if told.is_empty() {
        return Finding::ok(CHECK, "each address that `host-local` keeps for a VM is that of a pod on record");
    }
    let mend = "remove these files of theirs, unless another tapmanager runs on this node; from its release 1.10.0 on, `host-local` \
                gives such addresses back itself where tapmanager has `cni_gc`";
    Finding::warning(CHECK, told.join("; "), mend)
}

/// The addresses in `dir` that are kept for sandboxes of a controld which are on no record.
fn left(host: &Host, dir: &Path, on_record: &OnRecord) -> Result<BTreeSet<IpAddr>, HostError> {
    let mut left = BTreeSet::new();
    let namespaces = host.names(NAMESPACES)?;
    let is_kept = |id: &str| namespaces.iter().any(|name| name.ends_with(id));
    for name in host.names(dir)? {
        let Ok(address) = name.parse::<IpAddr>() else { continue };
        let file = dir.join(name);
        let Some(text) = host.read(&file)? else { continue };
        let id = text.lines().next().unwrap_or_default().trim();
        // Of a pod that came after the others were asked for.
        let is_new = host.modified(&file)?.is_none_or(|modified| modified >= on_record.asked);
        if is_sandbox(id) && !is_new && !is_kept(id) && !on_record.pods.iter().any(|pod| pod.pod == id) {
            left.insert(address);
        }
    }
    Ok(left)
}

fn is_sandbox(id: &str) -> bool {
    id.len() == 64 && id.strip_prefix("vm").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn line(dir: &Path, left: &BTreeSet<IpAddr>) -> String {
    let mut shown: Vec<_> = left.iter().take(TOLD).map(ToString::to_string).collect();
    if let Some(more) = left.len().checked_sub(TOLD).filter(|more| *more > 0) {
        shown.push(format!("and {more} more"));
    }
    format!("in `{}`, `host-local` keeps addresses for pods on no record: {}", dir.display(), shown.join(", "))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::facts::{Network, Networks, OnRecord, PodLine};
    use super::super::finding::State;
    use super::super::program::ProgramError;
    use super::super::tests::{facts, tree};
    use super::*;

    fn id(digit: char) -> String {
        format!("vm{}", digit.to_string().repeat(62))
    }

    fn asked(at: SystemTime) -> Facts {
        let leases = vec!["/var/lib/cni/networks/pods".into(), "/srv/leases/other".into()];
        let network = Network { name: "pods".into(), plugins: Vec::new(), ipam: Vec::new(), leases };
        Facts {
            networks: Ok(Networks { networks: vec![network], ..Networks::default() }),
            pods: Ok(OnRecord { pods: vec![PodLine { pod: id('a') }], asked: at }),
            ..facts()
        }
    }

    fn later() -> Facts {
        asked(SystemTime::now() + Duration::from_secs(3600))
    }

    #[test]
    fn addresses_of_pods_on_no_record_are_told_and_no_others() {
        let dir = "var/lib/cni/networks/pods";
        let lease = |pod: &str| format!("{pod}\r\neth0");
        let files = [
            (format!("{dir}/10.0.0.2"), lease(&id('a'))),
            (format!("{dir}/10.0.0.3"), lease(&id('b'))),
            (format!("{dir}/fd00::3"), lease(&id('b'))),
            // Of one whose namespace is kept.
            (format!("{dir}/10.0.0.7"), lease(&id('e'))),
            (format!("run/netns/virtlet-0123abcd-{}", id('e')), String::new()),
            // Of another runtime's pods, and of none.
            (format!("{dir}/10.0.0.4"), lease(&"c".repeat(64))),
            (format!("{dir}/10.0.0.5"), lease("vm1")),
            (format!("{dir}/10.0.0.6"), String::new()),
            (format!("{dir}/last_reserved_ip.0"), "10.0.0.6".into()),
            (format!("{dir}/lock"), String::new()),
        ];
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let (_dir, host) = tree(&files);
        let found = look(&host, &later());
        let seen =
            "in `/var/lib/cni/networks/pods`, `host-local` keeps addresses for pods on no record: 10.0.0.3, fd00::3";
        assert_eq!((found.state, found.seen.as_str()), (State::Warning, seen));
        let found = look(&host, &asked(SystemTime::UNIX_EPOCH));
        assert_eq!(found.state, State::Ok, "of pods that came since: {}", found.seen);
    }

    #[test]
    fn many_are_counted() {
        let of = |number: u8| (format!("srv/leases/other/10.0.0.{number}"), id('d'));
        let files: Vec<_> = (1..=7).map(of).collect();
        let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let (_dir, host) = tree(&files);
        let found = look(&host, &later());
        assert!(found.seen.ends_with("10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5, and 2 more"), "{}", found.seen);
    }

    #[test]
    fn nothing_is_claimed_of_what_is_not_known() {
        let (_dir, host) = tree(&[]);
        assert_eq!(look(&host, &later()).state, State::Ok, "no pod had an address yet");
        let silent = ProgramError::Failed { code: Some(69), said: "no daemon".into() };
        let found = look(&host, &Facts { pods: Err(silent), ..later() });
        assert!(found.state == State::Warning && found.seen.contains("no daemon"), "{found:?}");
        let found = look(&host, &facts());
        assert_eq!(
            (found.state, found.seen.as_str()),
            (State::Ok, "no network's configuration names `host-local`; those that delegate are not looked at")
        );
    }
}
