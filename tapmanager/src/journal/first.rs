//! Reads records of the first release (version 1), so that an update of the daemon finds its pods again.
//!
//! Pure; called by [`super::understood`] alone. The first release gave each pod one network by `tc` with one queue, and
//! had no anti-spoofing. Such a record is written in the second release's form at its next change.

use std::path::PathBuf;

use proto::tap::{Attach, DataPath, NetworkAsk, PodNet, PodPhase};
use serde::Deserialize;
use serde_json::Value;

use super::record::{Attachment, Record, SECOND};
use crate::cni::NetworkList;
use crate::net::Choices;

/// Version of these.
pub(super) const FIRST: u32 = 1;
/// The one link that plugins were asked for.
const LINK: &str = "eth0";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FirstRecord {
    #[serde(rename = "version")]
    _version: u32,
    phase: PodPhase,
    request: Attach,
    netns: PathBuf,
    network: NetworkList,
    result: Option<Value>,
    net: Option<PodNet>,
    /// How many times in a row DEL failed for want of a plugin. What counts now is when it failed first, which is not
    /// known, so the count begins anew.
    #[serde(rename = "plugin_missing")]
    _plugin_missing: u32,
}

impl From<FirstRecord> for Record {
    fn from(first: FirstRecord) -> Self {
        let FirstRecord { phase, request, netns, network, result, mut net, .. } = first;
        for nic in net.iter_mut().flat_map(|net| &mut net.nics) {
            network.name().clone_into(&mut nic.network);
        }
        let ifname = LINK.parse().expect("four letters and a digit are a name");
        Self {
            version: SECOND,
            boot: None,
            phase,
            request,
            netns,
            choices: Choices { data_path: DataPath::Tc, queues: 1, anti_spoof: false },
            attachments: vec![Attachment { network, ifname, ask: NetworkAsk::default(), begun: None, result }],
            net,
            notes: Vec::new(),
            failing: None,
        }
    }
}
