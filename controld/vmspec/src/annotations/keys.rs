//! Every annotation that this program knows, and what becomes of it.

/// `VirtletVCPUCount`.
pub const VCPU_COUNT: &str = "VirtletVCPUCount";
/// `VirtletDiskDriver`.
pub const DISK_DRIVER: &str = "VirtletDiskDriver";
/// `VirtletCPUModel`.
pub const CPU_MODEL: &str = "VirtletCPUModel";
/// `VirtletLibvirtCPUSetting`.
pub(super) const CPU_SETTING: &str = "VirtletLibvirtCPUSetting";
/// `VirtletRootVolumeSize`.
pub(super) const ROOT_VOLUME_SIZE: &str = "VirtletRootVolumeSize";
/// `VirtletSystemUUID`.
pub const SYSTEM_UUID: &str = "VirtletSystemUUID";
/// `VirtletCloudInitMetaData`.
pub(super) const META_DATA: &str = "VirtletCloudInitMetaData";
/// `VirtletCloudInitUserData`.
pub const USER_DATA: &str = "VirtletCloudInitUserData";
/// `VirtletCloudInitUserDataScript`.
pub(super) const SCRIPT: &str = "VirtletCloudInitUserDataScript";
/// `VirtletCloudInitImageType`.
pub const SEED_TYPE: &str = "VirtletCloudInitImageType";
/// `VirtletCloudInitUserDataOverwrite`.
pub(super) const OVERWRITE: &str = "VirtletCloudInitUserDataOverwrite";
/// `VirtletCloudInitUserDataSource`.
pub const SOURCE: &str = "VirtletCloudInitUserDataSource";
/// `VirtletCloudInitUserDataSourceKey`.
pub const SOURCE_KEY: &str = "VirtletCloudInitUserDataSourceKey";
/// `VirtletCloudInitUserDataSourceEncoding`.
pub(super) const SOURCE_ENCODING: &str = "VirtletCloudInitUserDataSourceEncoding";
/// `VirtletSSHKeySource`.
pub(super) const SSH_KEY_SOURCE: &str = "VirtletSSHKeySource";
/// `VirtletFilesFromDataSource`.
pub(super) const FILES_SOURCE: &str = "VirtletFilesFromDataSource";
/// How the guest comes by ConfigMaps, Secrets and the like.
pub(super) const CONFIG_DELIVERY: &str = "virtlet.cloud/config-delivery";
/// `VirtletSSHKeys`.
pub const SSH_KEYS: &str = "VirtletSSHKeys";
/// `VirtletForceDHCPNetworkConfig`.
pub(super) const FORCE_DHCP: &str = "VirtletForceDHCPNetworkConfig";
/// How the guest comes by its addresses.
pub(super) const NETWORK_CONFIG: &str = "virtlet.cloud/network-config";
/// Networks beside the default one.
pub(super) const NETWORKS: &str = "virtlet.cloud/networks";
/// MAC addresses of links where their networks take one. Not under our domain: the operator writes it, and nodes that do not know it leave it.
pub const MACS: &str = "virtlet.k8s/macs";
/// How links and taps are joined.
pub(super) const DATA_PATH: &str = "virtlet.cloud/data-path";
/// Whether the guest is held to its own addresses.
pub(super) const ANTI_SPOOF: &str = "virtlet.cloud/anti-spoof";

/// Whether the seed brings the agent for `exec`.
pub(super) const GUEST_AGENT: &str = "virtlet.cloud/guest-agent";

/// Whether the agent runs the container's own command.
pub(super) const RUN_COMMAND: &str = "virtlet.cloud/run-command";

/// How the guest comes by the pod's volumes.
pub(super) const SHARED_FS: &str = "virtlet.cloud/shared-fs";

/// EmptyDirs that the guest has as disks.
pub const EMPTYDIR_DISKS: &str = "virtlet.cloud/emptydir-disks";

/// What a block volume at `/` is.
pub const ROOT_DEVICE: &str = "virtlet.cloud/root-device";

/// Whether the root disk is the pod's or one of each container.
pub const ROOT_LIFETIME: &str = "virtlet.cloud/root-lifetime";
/// Virtlet's: who owns what the guest sees of volumes by 9p.
pub(super) const CHOWN_9P: &str = "VirtletChown9pfsMounts";

/// Virtual CPUs that a running machine can be given.
pub const MAX_VCPUS: &str = "virtlet.cloud/max-vcpus";
/// Memory that a running guest can be given.
pub(super) const MAX_MEMORY: &str = "virtlet.cloud/max-memory";

/// Names the runtime handler of a pod's image: kubelet gives the image service a pod's annotations.
pub const IMAGE_HANDLER: &str = "virtlet.cloud/image-runtime-handler";

/// Before the kebab-case names.
const DOMAIN: &str = "virtlet.cloud/";
/// Before Virtlet's own names.
const VIRTLET: &str = "Virtlet";

/// What becomes of a known annotation.
#[derive(Debug, Clone, Copy)]
pub(super) enum Use {
    /// It has a parser of its own.
    Read,
    /// The image service reads it.
    Images,
    /// In Virtlet's proposals, not in Virtlet.
    Never,
}

/// All keys by their canonical names.
pub(super) const KNOWN: &[(&str, Use)] = &[
    (VCPU_COUNT, Use::Read),
    (DISK_DRIVER, Use::Read),
    (CPU_MODEL, Use::Read),
    (CPU_SETTING, Use::Read),
    (ROOT_VOLUME_SIZE, Use::Read),
    (SYSTEM_UUID, Use::Read),
    (SEED_TYPE, Use::Read),
    (META_DATA, Use::Read),
    (USER_DATA, Use::Read),
    (OVERWRITE, Use::Read),
    (SCRIPT, Use::Read),
    (SOURCE, Use::Read),
    (SOURCE_KEY, Use::Read),
    (SOURCE_ENCODING, Use::Read),
    (SSH_KEYS, Use::Read),
    (SSH_KEY_SOURCE, Use::Read),
    (FILES_SOURCE, Use::Read),
    (CHOWN_9P, Use::Read),
    (FORCE_DHCP, Use::Read),
    ("VirtletVMIdentitySet", Use::Never),
    ("VirtletVMIdentityName", Use::Never),
    ("VirtletKeepVMEnvVars", Use::Never),
    (NETWORK_CONFIG, Use::Read),
    (CONFIG_DELIVERY, Use::Read),
    (ROOT_LIFETIME, Use::Read),
    (ROOT_DEVICE, Use::Read),
    (NETWORKS, Use::Read),
    (DATA_PATH, Use::Read),
    (ANTI_SPOOF, Use::Read),
    (GUEST_AGENT, Use::Read),
    (RUN_COMMAND, Use::Read),
    (SHARED_FS, Use::Read),
    (EMPTYDIR_DISKS, Use::Read),
    (MAX_VCPUS, Use::Read),
    (MAX_MEMORY, Use::Read),
    (IMAGE_HANDLER, Use::Images),
];

/// Whether a key claims to be one of ours.
pub(super) fn is_ours(key: &str) -> bool {
    key.starts_with(VIRTLET) || key.starts_with(DOMAIN)
}

/// The canonical name of a known key.
pub(super) fn canonical(key: &str) -> Option<&'static str> {
    KNOWN.iter().map(|(name, _)| *name).find(|name| *name == key || alias(name).is_some_and(|alias| alias == key))
}

/// The other name of a key that has one.
pub(super) fn alias(canonical: &str) -> Option<String> {
    canonical.strip_prefix(VIRTLET).map(|name| format!("{DOMAIN}{}", kebab(name)))
}

/// The known name, in the unknown one's own style, that takes the fewest edits.
pub(super) fn nearest(unknown: &str) -> String {
    // Long enough for every known name, short enough that a hostile one costs nothing.
    let unknown: String = unknown.chars().take(super::MAX_SHOWN).collect();
    let names = KNOWN.iter().flat_map(|(name, _)| [Some((*name).to_owned()), alias(name)]).flatten();
    let same_style = |name: &String| name.starts_with(DOMAIN) == unknown.starts_with(DOMAIN);
    names.filter(same_style).min_by_key(|name| distance(&unknown, name)).unwrap_or_default()
}

/// `CloudInitUserData` to `cloud-init-user-data`, `VCPUCount` to `vcpu-count`.
fn kebab(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut kebab = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| letters.get(at));
        let after = letters.get(at + 1);
        // A word starts at a capital after a small letter, and at the last capital of a row.
        let starts_word = letter.is_ascii_uppercase()
            && before.is_some_and(|before| !before.is_ascii_uppercase() || after.is_some_and(char::is_ascii_lowercase));
        if starts_word {
            kebab.push('-');
        }
        kebab.push(letter.to_ascii_lowercase());
    }
    kebab
}

/// Levenshtein's distance, letter case aside.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_lowercase().chars().enumerate() {
        let mut next = vec![i + 1];
        let mut last = i + 1;
        for ((y, up), diagonal) in b.iter().zip(row.iter().skip(1)).zip(&row) {
            last = (last + 1).min(up + 1).min(diagonal + usize::from(x != *y));
            next.push(last);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_mechanical() {
        let aliases: Vec<String> = KNOWN.iter().filter_map(|(name, _)| alias(name)).collect();
        insta::assert_snapshot!(aliases.join("\n"), @"
        virtlet.cloud/vcpu-count
        virtlet.cloud/disk-driver
        virtlet.cloud/cpu-model
        virtlet.cloud/libvirt-cpu-setting
        virtlet.cloud/root-volume-size
        virtlet.cloud/system-uuid
        virtlet.cloud/cloud-init-image-type
        virtlet.cloud/cloud-init-meta-data
        virtlet.cloud/cloud-init-user-data
        virtlet.cloud/cloud-init-user-data-overwrite
        virtlet.cloud/cloud-init-user-data-script
        virtlet.cloud/cloud-init-user-data-source
        virtlet.cloud/cloud-init-user-data-source-key
        virtlet.cloud/cloud-init-user-data-source-encoding
        virtlet.cloud/ssh-keys
        virtlet.cloud/ssh-key-source
        virtlet.cloud/files-from-data-source
        virtlet.cloud/chown9pfs-mounts
        virtlet.cloud/force-dhcp-network-config
        virtlet.cloud/vm-identity-set
        virtlet.cloud/vm-identity-name
        virtlet.cloud/keep-vm-env-vars
        ");
    }

    #[test]
    fn every_key_is_documented() {
        let document = include_str!("../../../../docs/annotations.md");
        let missing: Vec<&str> =
            KNOWN.iter().map(|(name, _)| *name).filter(|name| !document.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "not in docs/annotations.md: {missing:?}");
    }

    #[test]
    fn every_documented_example_is_taken() {
        let document = include_str!("../../../../docs/annotations.md");
        let blocks = document.split("\n```yaml\n").skip(1).filter_map(|rest| rest.split("\n```").next());
        let examples: Vec<&str> = blocks.filter(|block| !block.starts_with("spec:")).collect();
        assert!(examples.len() > 5, "examples are found");
        for example in examples {
            let all = serde_saphyr::from_str(example).expect("a map of strings");
            super::super::PodAnnotations::parse(&all).expect(example);
        }
    }

    #[test]
    fn the_nearest_name_is_of_the_same_style() {
        for (unknown, known) in [
            ("VirtletVCPUcount", VCPU_COUNT),
            ("VirtletSSHKey", SSH_KEYS),
            ("VirtletCloudInitUserdataScript", SCRIPT),
            ("virtlet.cloud/ssh-key", "virtlet.cloud/ssh-keys"),
            ("virtlet.cloud/VCPUCount", "virtlet.cloud/vcpu-count"),
            ("Virtlet", SSH_KEYS),
        ] {
            assert_eq!(nearest(unknown), known, "{unknown}");
        }
        assert!(!nearest(&format!("Virtlet{}", "x".repeat(1 << 20))).is_empty());
    }
}
