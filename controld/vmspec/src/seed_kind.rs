//! What kinds of seeds there are, which way ConfigMaps and Secrets take, and who tells a guest its addresses.

use super::words::words;

words! {
    /// How a guest is told what its pod wants of it.
    #[derive(Default)]
    SeedKind or NoSeedKind "not one of nocloud, configdrive, none, ignition" {
        /// A disk with label `cidata`, for cloud-init.
        #[default]
        NoCloud = "nocloud",
        /// A disk with label `config-2` as OpenStack has it, for cloud-init and others.
        ConfigDrive = "configdrive",
        /// Not at all.
        None = "none",
        /// User-data alone, by the firmware's interface, for Ignition.
        Ignition = "ignition",
    }
}

words! {
    /// How a guest comes by the ConfigMaps, Secrets, projected volumes and downward API of its pod.
    #[derive(Default)]
    ConfigDelivery or NoConfigDelivery "not one of share, seed, none" {
        /// As by other volumes.
        #[default]
        Share = "share",
        /// By copies that cloud-init writes.
        Seed = "seed",
        /// Not at all.
        None = "none",
    }
}

words! {
    /// What a seed's network-config says about NICs that the guest can be sent DHCP on. The others are always told.
    #[derive(Default)]
    NetworkConfig or NoNetworkConfig "not one of auto, dhcp, static, none" {
        /// As [`Self::Dhcp`] where the node answers with everything that the file could tell, else as [`Self::Static`].
        #[default]
        Auto = "auto",
        /// Ask for the addresses.
        Dhcp = "dhcp",
        /// Addresses and routes as they are.
        Static = "static",
        /// There is no such file.
        None = "none",
    }
}
