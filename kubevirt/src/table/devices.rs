//! Fields of a domain's devices.

use super::forms::{IPV4, LABEL, MAC, NAME, PCI, SERIAL, TEXT};
use super::{Json, Object, Shape, later, must, never, warned, whole, yes};

const ABSENT: &str = "see docs/handlers.md for devices of the node";

pub(crate) static DEVICES: Object = Object(&[
    yes("disks", Shape::List(&Shape::Object(&DISK), 64)),
    yes("interfaces", Shape::List(&Shape::Object(&INTERFACE), 15)),
    yes("inputs", Shape::List(&Shape::Object(&INPUT), 16)),
    yes("watchdog", Shape::Object(&WATCHDOG)),
    yes("rng", Shape::Object(&Object(&[]))),
    yes("video", Shape::Object(&VIDEO)),
    yes("panicDevices", Shape::List(&Shape::Object(&PANIC), 4)),
    yes("autoattachPodInterface", Shape::Bool),
    yes("autoattachGraphicsDevice", Shape::Bool),
    yes("autoattachSerialConsole", Shape::Bool),
    warned("logSerialConsole", Shape::Bool, "what the serial console shows is always logged: `kubectl logs` has it"),
    yes("autoattachMemBalloon", Shape::Bool),
    yes("autoattachInputDevice", Shape::Bool),
    yes("blockMultiQueue", Shape::Bool),
    yes("networkInterfaceMultiqueue", Shape::Bool),
    yes("useVirtioTransitional", Shape::Bool),
    // Nothing is plugged into a VM that runs.
    yes("disableHotplug", Shape::Bool),
    later("autoattachVSOCK", Json::Bool, ""),
    later("filesystems", Json::List, "annotation virtlet.cloud/shared-fs shows a guest the pod's volumes"),
    later("tpm", Json::Object, "a RuntimeClass whose handler has `tpm = true` gives its VMs one"),
    later("hostDevices", Json::List, ABSENT),
    later("gpus", Json::List, ABSENT),
    never("sound", Json::Object, ""),
    never("clientPassthrough", Json::Object, ""),
    never("downwardMetrics", Json::Object, ""),
]);

/// Of anything that is on or off.
pub(crate) static STATE: Object = Object(&[yes("enabled", Shape::Bool)]);

static DISK: Object = Object(&[
    must("name", Shape::Text(&LABEL)),
    yes("disk", Shape::Object(&TARGET)),
    yes("cdrom", Shape::Object(&CDROM)),
    yes("bootOrder", Shape::Int(1, u32::MAX as i64)),
    yes("serial", Shape::Text(&SERIAL)),
    yes("cache", Shape::Word(&["none", "writethrough", "writeback"])),
    yes("io", Shape::Word(&["native", "threads", "default"])),
    yes("errorPolicy", Shape::Word(&["stop", "ignore", "report", "enospace"])),
    yes("shareable", Shape::Bool),
    yes("blockSize", Shape::Object(&BLOCK_SIZE)),
    later("lun", Json::Object, "use disk"),
    later("dedicatedIOThread", Json::Bool, ""),
    later("tag", Json::Text, ""),
    later("changedBlockTracking", Json::Bool, ""),
]);

static TARGET: Object = Object(&[
    // `usb` is refused by name (`rules::disks`).
    yes("bus", Shape::Word(BUSES)),
    yes("readonly", Shape::Bool),
    yes("pciAddress", Shape::Text(&PCI)),
]);

static CDROM: Object =
    Object(&[yes("bus", Shape::Word(BUSES)), yes("readonly", Shape::Bool), later("tray", Json::Text, "it is closed")]);

const BUSES: &[&str] = &["virtio", "scsi", "sata", "usb"];

static BLOCK_SIZE: Object = Object(&[yes("custom", Shape::Object(&CUSTOM)), yes("matchVolume", Shape::Object(&STATE))]);

static CUSTOM: Object =
    Object(&[must("logical", SECTOR), must("physical", SECTOR), yes("discardGranularity", whole(u32::MAX as i64))]);

const SECTOR: Shape = Shape::Int(512, 2 << 20);

static INTERFACE: Object = Object(&[
    must("name", Shape::Text(&NAME)),
    yes("bridge", Shape::Object(&Object(&[]))),
    yes("sriov", Shape::Object(&Object(&[]))),
    warned(
        "masquerade",
        Shape::Object(&Object(&[])),
        "taken as `bridge`: the guest has the pod's own address, not a private one",
    ),
    // Others than virtio are refused by name (`rules::networks`).
    yes("model", Shape::Word(&["virtio", "e1000", "e1000e", "igb", "rtl8139", "ne2k_pci", "pcnet"])),
    yes("macAddress", Shape::Text(&MAC)),
    yes("bootOrder", Shape::Int(1, u32::MAX as i64)),
    yes("pciAddress", Shape::Text(&PCI)),
    yes("acpiIndex", Shape::Int(1, 16383)),
    yes("ports", Shape::List(&Shape::Object(&PORT), 256)),
    yes("portRanges", Shape::List(&Shape::Object(&PORT_RANGE), 64)),
    yes("dhcpOptions", Shape::Object(&DHCP)),
    yes("state", Shape::Word(&["up", "down", "absent"])),
    later("tag", Json::Text, ""),
    never("slirp", Json::Object, "use bridge"),
    never("macvtap", Json::Object, "use bridge, with annotation virtlet.cloud/data-path: macvtap"),
    never("passt", Json::Object, "use bridge"),
    never("passtBinding", Json::Object, "use bridge"),
    never("binding", Json::Object, "there are no binding plugins; use bridge or sriov"),
]);

static PORT: Object = Object(&[
    yes("name", Shape::Text(&LABEL)),
    yes("protocol", Shape::Word(&["TCP", "UDP"])),
    must("port", Shape::Int(1, 65535)),
]);

static PORT_RANGE: Object = Object(&[
    yes("protocol", Shape::Word(&["TCP", "UDP"])),
    must("start", Shape::Int(1, 65535)),
    must("end", Shape::Int(1, 65535)),
]);

static DHCP: Object = Object(&[
    yes("bootFileName", Shape::Text(&TEXT)),
    yes("tftpServerName", Shape::Text(&TEXT)),
    yes("ntpServers", Shape::List(&Shape::Text(&IPV4), 16)),
    yes("privateOptions", Shape::List(&Shape::Object(&PRIVATE), 31)),
]);

static PRIVATE: Object = Object(&[must("option", Shape::Int(224, 254)), must("value", Shape::Text(&TEXT))]);

static INPUT: Object = Object(&[
    must("name", Shape::Text(&NAME)),
    yes("bus", Shape::Word(&["usb", "virtio"])),
    must("type", Shape::Word(&["tablet"])),
]);

static WATCHDOG: Object = Object(&[
    must("name", Shape::Text(&NAME)),
    must("i6300esb", Shape::Object(&WATCHDOG_ACTION)),
    never("diag288", Json::Object, "that is s390x's; use i6300esb"),
]);

static WATCHDOG_ACTION: Object = Object(&[yes("action", Shape::Word(&["poweroff", "reset", "shutdown"]))]);

static VIDEO: Object = Object(&[must("type", Shape::Word(&["vga", "cirrus", "virtio", "ramfb", "bochs"]))]);

static PANIC: Object = Object(&[yes("model", Shape::Word(&["hyperv", "isa", "pvpanic"]))]);
