//! Devices of a domain.

use super::{Rule, Text, count, rule};

/// Powers of two that a disk's blocks may have.
const SECTORS: &str = "[512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576, 2097152]";
const PORTS: &str = "not supported with masquerade: ports would not be enforced; use a NetworkPolicy";
const USB: &str = "not supported yet: use virtio, scsi or sata";

pub(super) fn rules() -> Vec<Rule> {
    [disks(), block_size(), interfaces()].concat()
}

fn disks() -> Vec<Rule> {
    let all = "domain.devices.disks[]";
    let (disk, cdrom) = (format!("{all}.disk"), format!("{all}.cdrom"));
    vec![
        rule(all, "", "is both disk and cdrom; write one of them", "!has(self.disk) || !has(self.cdrom)"),
        rule(&disk, "bus", USB, "!has(self.bus) || self.bus != 'usb'"),
        rule(
            &disk,
            "readonly",
            "no disk on sata is read-only; use virtio or scsi",
            "!has(self.readonly) || !self.readonly || !has(self.bus) || self.bus != 'sata'",
        ),
        rule(
            &disk,
            "pciAddress",
            "is for disks on virtio",
            "!has(self.pciAddress) || self.pciAddress == '' || !has(self.bus) || self.bus in ['', 'virtio']",
        ),
        rule(&cdrom, "bus", USB, "!has(self.bus) || self.bus != 'usb'"),
        rule(&cdrom, "bus", "a CD is on sata or scsi", "!has(self.bus) || self.bus != 'virtio'"),
        rule(&cdrom, "readonly", "a CD is read-only", "!has(self.readonly) || self.readonly"),
    ]
}

fn block_size() -> Vec<Rule> {
    let at = "domain.devices.disks[].blockSize";
    let custom = format!("{at}.custom");
    vec![
        rule(at, "", "needs one of custom and matchVolume", format!("{} == 1", count(&["custom", "matchVolume"]))),
        rule(&custom, "logical", "is not a power of two", format!("self.logical in {SECTORS}")),
        rule(&custom, "physical", "is not a power of two", format!("self.physical in {SECTORS}")),
        rule(&custom, "logical", "is more than physical", "self.logical <= self.physical"),
        rule(
            &custom,
            "discardGranularity",
            "is not a multiple of logical",
            "!has(self.discardGranularity) || self.discardGranularity % self.logical == 0",
        ),
    ]
}

fn interfaces() -> Vec<Rule> {
    let at = "domain.devices.interfaces[]";
    let bindings = count(&["bridge", "sriov", "masquerade"]);
    let refused = count(&["slirp", "macvtap", "passt", "passtBinding", "binding"]);
    let mut rules = vec![
        rule(at, "", "needs a binding: bridge, sriov or masquerade", format!("{bindings} + {refused} >= 1")),
        rule(at, "", "has several bindings; write one of bridge, sriov and masquerade", format!("{bindings} <= 1")),
        Rule {
            at: at.to_owned(),
            field: "model",
            holds: "!has(self.model) || self.model in ['', 'virtio']".to_owned(),
            text: Text::Made("'not supported yet: \"' + self.model + '\"; NICs are virtio'"),
        },
        rule(at, "state", "not supported: NICs stay; leave the NIC out", "!has(self.state) || self.state != 'absent'"),
        rule(at, "state", "cannot be set with sriov", "!has(self.sriov) || !has(self.state) || self.state == ''"),
        rule(
            at,
            "macAddress",
            "is nobody's",
            "!has(self.macAddress) || self.macAddress == '' || !self.macAddress.matches('^[0:-]+$')",
        ),
        rule(
            "domain.devices.interfaces[].dhcpOptions",
            "privateOptions",
            "has an option twice",
            "!has(self.privateOptions) || self.privateOptions.all(o, self.privateOptions.exists_one(p, p.option == o.option))",
        ),
        rule("domain.devices.interfaces[].portRanges[]", "", "ends before it starts", "self.start <= self.end"),
    ];
    for list in ["ports", "portRanges"] {
        rules.push(rule(
            at,
            list,
            PORTS,
            format!("!has(self.masquerade) || !has(self.{list}) || self.{list}.size() == 0"),
        ));
    }
    rules
}
