//! The networks that a pod has through Multus, from what Multus leaves on the node.
//!
//! Multus answers ADD with the default network's result alone. Its delegates run through libcni with a cache of their
//! own (`cniDir` of its configuration, /var/lib/cni/multus), so when ADD has returned there are, in that directory:
//! - `<sandbox>`: the delegates in order, as JSON, the default network first;
//! - `results/<network>-<sandbox>-<link>`: an entry of libcni's cache for each.
//!
//! Both are internal to Multus and no interface. So the entries count, each checked like an entry of this daemon's
//! cache. The list gives their order if it is there and can be read, else the names of the links do. A list that names
//! a delegate without an entry is an error: a VM that misses a NIC must not start.
//!
//! Called by [`super::Cni::delegated`]. Blocks on the disk.

use std::cmp::Ordering;
use std::path::Path;

use common::Reason;
use proto::tap::{IdentError, IfName, PodId};
use serde::Deserialize;

use super::cache::{Cache, Entry};
use super::conf::dir::read_bounded;
use super::device::Said;
use super::result::ResultView;

/// Longest list of delegates: each carries its configuration twice.
const MAX_LIST: u64 = 4 << 20;
/// Most links that one pod is given.
const MAX_DELEGATES: usize = 64;

/// What a delegate made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delegated {
    /// Name of its network.
    pub(crate) network: String,
    /// The link that it was asked for.
    pub(crate) ifname: IfName,
    /// Its result.
    pub(crate) view: ResultView,
    /// What its configuration says of devices.
    pub(crate) said: Said,
}

/// A delegate in Multus' list; everything else in it is ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Listed {
    #[serde(rename = "Conf")]
    conf: Option<Named>,
    #[serde(rename = "ConfList")]
    list: Option<Named>,
    #[serde(rename = "ifnameRequest")]
    link: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

/// What Multus gave to the pod besides `main`, the link of its own result, in the order of the pod's networks.
pub(super) fn delegated(dir: &Path, pod: &PodId, main: &IfName) -> Result<Vec<Delegated>, Reason> {
    let infix = format!("-{}-", pod.as_str());
    let entries = Cache::new(dir.to_owned()).select(|name| !name.starts_with('.') && name.contains(&infix));
    let mut found = Vec::new();
    let unusable = Reason::because("the results of Multus' delegates cannot be used");
    for entry in entries.map_err(&unusable)? {
        let entry = entry.map_err(&unusable)?;
        // One directory may serve as our own cache as well.
        if entry.container_id == pod.as_str() && entry.if_name != main.as_str() && !entry.is_ours() {
            found.push(read(entry)?);
        }
    }
    if found.len() > MAX_DELEGATES {
        return Err(Reason::new(format!("Multus has {} results of the pod, more than {MAX_DELEGATES}", found.len())));
    }
    found.sort_by(|a, b| natural(a.ifname.as_str(), b.ifname.as_str()));
    let mut ordered = Vec::new();
    for (network, link) in listed(dir, pod) {
        match found.iter().position(|one| one.ifname.as_str() == link && one.network == network) {
            Some(at) => ordered.push(found.remove(at)),
            None => {
                return Err(Reason::new(format!(
                    "Multus says that link `{link}` is of network `{network}`, but `{}` has no result of it; is that \
                     the `cniDir` of Multus?",
                    dir.display()
                )));
            }
        }
    }
    ordered.append(&mut found);
    Ok(ordered)
}

fn read(entry: Entry) -> Result<Delegated, Reason> {
    let conf = entry.configuration();
    let network = entry.network_name;
    let fail =
        |cause: IdentError| Reason::new(format!("Multus' delegate `{network}` has a link that cannot be")).with(cause);
    let ifname = entry.if_name.parse().map_err(fail)?;
    let view = ResultView::of(&entry.result);
    let unusable = || Reason::new(format!("the result of Multus' delegate `{network}` cannot be used"));
    let view = view.map_err(|cause| unusable().with(cause))?;
    let said = Said::of_delegate(conf.as_ref(), &entry.capability_args).map_err(|cause| unusable().with(cause))?;
    Ok(Delegated { network, ifname, view, said })
}

/// Network and link of each delegate but the first, which is the default network; none if there is no list that is
/// understood.
fn listed(dir: &Path, pod: &PodId) -> Vec<(String, String)> {
    let bytes = read_bounded(&dir.join(pod.as_str()), MAX_LIST).ok().flatten();
    let list = bytes.and_then(|bytes| serde_json::from_slice::<Vec<Listed>>(&bytes).ok()).unwrap_or_default();
    let of = |(place, listed): (usize, Listed)| {
        let names = [listed.list, listed.conf].into_iter().flatten().map(|named| named.name);
        let network = names.into_iter().find(|name| !name.is_empty())?;
        let link = if listed.link.is_empty() { format!("net{place}") } else { listed.link };
        Some((network, link))
    };
    list.into_iter().enumerate().skip(1).filter_map(of).collect()
}

/// `net2` before `net10`.
fn natural(a: &str, b: &str) -> Ordering {
    let split = |name: &str| {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = name.get(stem.len()..).and_then(|digits| digits.parse::<u64>().ok());
        (stem.to_owned(), number, name.to_owned())
    };
    split(a).cmp(&split(b))
}

#[cfg(test)]
mod tests;
