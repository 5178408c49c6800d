//! Disks of machines beside the files that [`volumes`](crate::volumes) has of each pod: what pods name is looked at when a container is made, made
//! ready for each start, and looked after while the machine runs.
//!
//! A container's service and its life call this. Which disks a machine has is decided in [`vmspec::draft`], and stands in the plan; here is
//! what the node has to do with it. Nothing here opens a device but for a persistent root disk, and what a pod can change is not trusted
//! from one look to the next.
//!
//! - [`block_devices`]: by which device a path of the node leads to, and how it is used in a start. [`host_disks`], [`raw_device`]: those that a
//!   pod names itself.
//! - [`persistent`]: a root disk that is a volume. [`claims`]: which machine may have a device.
//! - [`emptydir`], [`flexvolume`], [`image_volumes`], [`volume_disks`]: what else a disk is. [`looks`]: how many look at volumes at once. [`volume_name`]: what a volume is called.
//! - [`now`]: how each of them is used in a start.
//! - [`growth`]: disks that grow under a machine that runs.

pub(crate) mod block_devices;
mod claims;
pub(crate) mod emptydir;
pub(crate) mod flexvolume;
pub(crate) mod growth;
pub(crate) mod host_disks;
pub(crate) mod image_volumes;
pub(crate) mod looks;
pub(crate) mod now;
pub(crate) mod persistent;
mod raw_device;
mod sizes;
mod uses;
pub(crate) mod volume_disks;
mod volume_name;

pub use self::uses::Uses;
