//! Handles that the code of disks shares.

use uuid::Uuid;

use super::claims::Claims;
use super::sizes::Sizes;
use crate::hypervisor::Hypervisor;
use crate::images::Images;
use crate::store::Store;

/// What disks use of the node, and what is known of them.
#[derive(Debug)]
pub struct Uses {
    pub(super) store: Store,
    pub(super) hypervisor: Hypervisor,
    pub(super) images: Images,
    /// This controld's mark, which keys at libvirt carry.
    pub(super) instance: Uuid,
    /// Which machine may have which device.
    pub(super) claims: Claims,
    /// Sizes of the disks that running machines have.
    pub(super) sizes: Sizes,
}

impl Uses {
    #[must_use]
    pub fn new(store: Store, hypervisor: Hypervisor, images: Images, instance: Uuid) -> Self {
        Self { store, hypervisor, images, instance, claims: Claims::default(), sizes: Sizes::default() }
    }
}
