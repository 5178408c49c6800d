//! A spec of an instance, but for its domain.

use super::{Rule, Text, count, rule};

/// Sources of a volume that are taken, and those that are refused, each with a text of its own.
const SOURCES: [&str; 9] = [
    "containerDisk",
    "persistentVolumeClaim",
    "ephemeral",
    "emptyDisk",
    "cloudInitNoCloud",
    "cloudInitConfigDrive",
    "configMap",
    "secret",
    "sysprep",
];
const REFUSED_SOURCES: [&str; 7] =
    ["serviceAccount", "downwardAPI", "hostDisk", "dataVolume", "downwardMetrics", "memoryDump", "containerPath"];
const USER_DATA: [&str; 3] = ["userData", "userDataBase64", "secretRef"];
const NETWORK_DATA: [&str; 3] = ["networkData", "networkDataBase64", "networkDataSecretRef"];

/// A refused source may be what it was to boot from.
const BOOTS: &str = "has(self.volumes) && self.volumes.exists(v, has(v.containerDisk) || has(v.persistentVolumeClaim) || has(v.ephemeral) \
     || has(v.dataVolume) || has(v.hostDisk)) \
     || has(self.domain.firmware) && has(self.domain.firmware.kernelBoot) \
     || has(self.domain.devices) && has(self.domain.devices.interfaces) \
     && self.domain.devices.interfaces.exists(n, has(n.bootOrder))";

/// Without networks and NICs there is one, unless it is not wanted.
const ON_POD_NETWORK: &str = "has(self.networks) && self.networks.exists(n, has(n.pod) || has(n.multus) && has(n.multus.default) && n.multus.default) \
     || (!has(self.networks) || self.networks.size() == 0) \
     && !(has(self.domain.devices) && (has(self.domain.devices.interfaces) && self.domain.devices.interfaces.size() > 0 \
     || has(self.domain.devices.autoattachPodInterface) && !self.domain.devices.autoattachPodInterface))";

pub(super) fn rules() -> Vec<Rule> {
    let mut rules = vec![
        rule(
            "",
            "volumes",
            "nothing to boot from: it takes a containerDisk, a persistentVolumeClaim or an ephemeral volume",
            BOOTS,
        ),
        rule(
            "",
            "startStrategy",
            "cannot be set with livenessProbe, which would end the VM while it is paused",
            "!has(self.startStrategy) || self.startStrategy == '' || !has(self.livenessProbe)",
        ),
        Rule {
            at: String::new(),
            field: "evictionStrategy",
            holds: "!has(self.evictionStrategy) || !(self.evictionStrategy in ['LiveMigrate', 'External'])".to_owned(),
            text: Text::Made(
                "'live migration is not offered, so \"' + self.evictionStrategy + '\" cannot be honoured; use None'",
            ),
        },
        rule(
            "",
            "domain.cpu.threads",
            "is 1 on arm64",
            "!has(self.architecture) || self.architecture != 'arm64' || !has(self.domain.cpu) || !has(self.domain.cpu.threads) \
             || self.domain.cpu.threads <= 1",
        ),
        rule(
            "",
            "networks",
            "have several default networks: one is `pod`, or `multus` with `default`",
            "!has(self.networks) || self.networks.filter(n, has(n.pod) || has(n.multus) && has(n.multus.default) && n.multus.default).size() \
             <= 1",
        ),
        rule(
            "",
            "volumes",
            "a VM has one volume of cloud-init",
            "!has(self.volumes) || self.volumes.filter(v, has(v.cloudInitNoCloud) || has(v.cloudInitConfigDrive)).size() <= 1",
        ),
        rule(
            "networks[]",
            "",
            "needs one of pod and multus",
            format!("has(self.resourceClaim) || {} == 1", count(&["pod", "multus"])),
        ),
        rule("accessCredentials[]", "", "needs sshPublicKey", "has(self.sshPublicKey) || has(self.userPassword)"),
        rule(
            "accessCredentials[].sshPublicKey.propagationMethod",
            "",
            "needs one of noCloud and configDrive",
            format!("has(self.qemuGuestAgent) || {} == 1", count(&["noCloud", "configDrive"])),
        ),
    ];
    rules.extend(["livenessProbe", "readinessProbe"].into_iter().flat_map(probe));
    rules.extend(volumes());
    rules
}

fn probe(name: &'static str) -> Vec<Rule> {
    let ways = count(&["httpGet", "tcpSocket", "exec", "guestAgentPing"]);
    let asks_network = format!("has(self.{name}) && (has(self.{name}.httpGet) || has(self.{name}.tcpSocket))");
    vec![
        rule(name, "", "needs one of httpGet, tcpSocket, exec and guestAgentPing", format!("{ways} == 1")),
        rule("", name, "needs a NIC on the pod's network", format!("!({asks_network}) || {ON_POD_NETWORK}")),
    ]
}

fn volumes() -> Vec<Rule> {
    let refused = count(&REFUSED_SOURCES);
    let mut rules = vec![
        rule("volumes[]", "", "has no source", format!("{} + {refused} >= 1", count(&SOURCES))),
        rule("volumes[]", "", "has several sources; write one volume for each", format!("{} <= 1", count(&SOURCES))),
        rule(
            "volumes[].containerDisk",
            "path",
            "not supported: an image has its one disk in /disk",
            "!has(self.path) || self.path == '' || self.path.matches('^/disk/[^/]+$')",
        ),
        rule(
            "volumes[].emptyDisk",
            "capacity",
            "is not from 16Mi to 16Ti",
            "quantity(string(self.capacity)).compareTo(quantity('16Mi')) >= 0 \
             && quantity(string(self.capacity)).compareTo(quantity('16Ti')) <= 0",
        ),
        rule(
            "volumes[].sysprep",
            "",
            "needs one of secret and configMap",
            format!("{} == 1", count(&["secret", "configMap"])),
        ),
    ];
    rules.extend(["volumes[].cloudInitNoCloud", "volumes[].cloudInitConfigDrive"].into_iter().flat_map(cloud_init));
    rules
}

fn cloud_init(at: &'static str) -> Vec<Rule> {
    let (user, network) = (said(USER_DATA), said(NETWORK_DATA));
    vec![
        rule(at, "", "needs userData, userDataBase64 or secretRef", format!("{user} + {network} >= 1")),
        rule(at, "", "has several of userData, userDataBase64 and secretRef", format!("{user} <= 1")),
        rule(
            at,
            "",
            "has several of networkData, networkDataBase64 and networkDataSecretRef",
            format!("{network} <= 1"),
        ),
    ]
}

/// How many of these ways of saying something there are; an empty text says nothing.
fn said([plain, base64, secret]: [&str; 3]) -> String {
    format!(
        "[has(self.{plain}) && self.{plain} != '', has(self.{base64}) && self.{base64} != '', has(self.{secret})].filter(is, is).size()"
    )
}
