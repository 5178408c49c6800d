//! What is written down of one pod. A field that is not known makes a record unreadable.

use std::path::PathBuf;

use proto::tap::{Attach, IfName, NetworkAsk, PodId, PodNet, PodPhase};
use serde::{Deserialize, Serialize};

use crate::cni::NetworkList;
use crate::net::Choices;

/// Version of the files. Any change of meaning raises it.
pub(crate) const FORMAT: u32 = 4;
/// Of a record that says what only this form can: options of DHCP that a pod wants told. MAC addresses that are wishes are settled before.
pub(super) const VERSION: u32 = FORMAT;
/// Of all others, so that a release that knows no more than these finds their pods.
pub(super) const THIRD: u32 = 3;
/// The one before: it knew neither who owns a pod, nor how far an ADD came, nor what its guest is not told, all of which are
/// left out; and its own notes had another form.
pub(super) const SECOND: u32 = 2;

/// One pod, as written down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(super) version: u32,
    /// The boot of the node in which it was made (`/proc/sys/kernel/random/boot_id`). The first release wrote none.
    pub(crate) boot: Option<String>,
    /// How far it was when this was written.
    pub(crate) phase: PodPhase,
    /// What was asked for.
    pub(crate) request: Attach,
    /// File of the pod's namespace. It is ours from the intent on: it did not exist before.
    pub(crate) netns: PathBuf,
    /// What the request left open, as it was decided.
    pub(crate) choices: Choices,
    /// The networks in the order of ADD. Those whose DEL is done are taken off.
    pub(crate) attachments: Vec<Attachment>,
    /// What the pod was given.
    pub(crate) net: Option<PodNet>,
    /// What of its networks its guest has otherwise than a process would, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    /// Since when it cannot be taken away.
    pub(crate) failing: Option<Failing>,
}

/// A network of a pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attachment {
    /// The network configuration of ADD, because DEL has to use the same.
    pub(crate) network: NetworkList,
    /// Name of the link that its plugins are asked to make.
    pub(crate) ifname: IfName,
    /// What was asked for.
    pub(crate) ask: NetworkAsk,
    /// Of how many plugins ADD was begun, if it failed at one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) begun: Option<usize>,
    /// The plugins' final result, verbatim, for DEL.
    pub(crate) result: Option<serde_json::Value>,
}

/// A pod that could not be taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Failing {
    /// When the first try failed, in seconds since 1970.
    pub(crate) since: u64,
    /// Tries that failed.
    pub(crate) tries: u32,
    /// Why the last one failed.
    pub(crate) why: String,
}

impl Record {
    /// The intent to attach `request`'s pod in the boot `boot`.
    pub(crate) fn intent(
        request: Attach,
        boot: String,
        netns: PathBuf,
        choices: Choices,
        attachments: Vec<Attachment>,
    ) -> Self {
        Self {
            version: if request.dhcp.is_empty() { THIRD } else { VERSION },
            boot: Some(boot),
            phase: PodPhase::Attaching,
            request,
            netns,
            choices,
            attachments,
            net: None,
            notes: Vec::new(),
            failing: None,
        }
    }

    /// The version that it is of.
    pub(crate) const fn version(&self) -> u32 {
        self.version
    }

    /// The pod.
    pub(crate) const fn pod(&self) -> &PodId {
        &self.request.pod
    }

    /// Forgets the networks whose ADD cannot have begun: each result was written before the next ADD began.
    pub(crate) fn keep_begun(&mut self) {
        let done = self.attachments.iter().take_while(|attachment| attachment.result.is_some()).count();
        self.attachments.truncate(done + 1);
    }
}
