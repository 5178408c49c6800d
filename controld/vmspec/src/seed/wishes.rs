//! What a seed is made of, by what kubelet, the pod and its runtime handler say.

use std::collections::BTreeMap;
use std::path::Path;

use common::Reason;
use proto::tap::PodNet;
use uuid::Uuid;

use super::{ConfigDelivery, GuestDisk, GuestMount, Seed, SeedInput, Sources, Volume, assemble, check_unread};
use crate::annotations::{PodAnnotations, Source};
use crate::error::{Error, Kind, Result};
use crate::plan::Share;
use crate::settings::Handler;
use crate::{ContainerConfig, Mount, SandboxConfig, pod_dir};

/// Where a container mounts what controld alone is to read.
pub const FOR_US: &str = "/run/virtlet/seed";
/// Where kubelet mounts the service account's token, which nearly every pod has. It lapses, so there are no copies of it.
pub const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// kubelet's directories of volumes that it fills itself, one for each kind.
const KINDS: [&str; 4] =
    ["kubernetes.io~configmap", "kubernetes.io~secret", "kubernetes.io~projected", "kubernetes.io~downward-api"];

/// What a pod's annotations name of the cluster's API, as it was read.
pub type Objects = BTreeMap<Source, Volume>;

/// Of what a seed is made.
#[derive(Debug, Clone, Copy)]
pub struct Wishes<'a> {
    pub sandbox: &'a SandboxConfig,
    pub container: &'a ContainerConfig,
    pub annotations: &'a PodAnnotations,
    /// What annotations name of the API.
    pub objects: &'a Objects,
    pub handler: &'a Handler,
    pub net: &'a PodNet,
    pub share: Option<&'a Share>,
    /// Disks of the guest's beside the root disk.
    pub disks: &'a [GuestDisk],
    /// What the guest's disk is known by, if that outlives the pod and has been seen.
    pub instance: Option<Uuid>,
}

impl Wishes<'_> {
    /// Makes the seed, with the program of the agent if that is to be in it. Of the node, `read` reads a volume of the pod by its name, `hosts`
    /// the beginning of kubelet's hosts file, and `is_file` says whether a path is there and no directory.
    ///
    /// # Errors
    /// Those of `read`, and when what the pod wants cannot reach the guest.
    pub fn assemble(
        self,
        agent: Option<&[u8]>,
        read: impl Fn(&str, &Mount) -> Result<Volume>,
        hosts: impl FnOnce() -> String,
        is_file: impl Fn(&Path) -> bool,
    ) -> Result<Seed> {
        let sources = sources(self, read)?;
        let hosts = hosts();
        let mounts = guest_mounts(self, is_file);
        let input = SeedInput { agent, hosts: &hosts, ..input(self, &sources, &mounts) };
        assemble(&input).map_err(not_made)
    }

    /// Finds what is wrong with the seed by all that is known without the node: volumes that are mounted are taken to be there, and are not read.
    ///
    /// # Errors
    /// When a volume is not mounted, or what the pod wants cannot reach the guest.
    pub fn check_unread(self) -> Result<()> {
        let sources = sources(self, |_, _| Ok(Volume::default()))?;
        let mounts = guest_mounts(self, |_| false);
        check_unread(&input(self, &sources, &mounts)).map_err(not_made)
    }
}

/// The pod's name of the volume, if it is one that kubelet fills itself for the pod with this UID. One of another pod is a `hostPath`.
#[must_use]
pub fn config_volume<'a>(mount: &'a Mount, uid: &str) -> Option<&'a str> {
    let (_, name) = mount.host_path.rsplit_once('/')?;
    KINDS.iter().any(|kind| pod_dir::is_volume(&mount.host_path, uid, kind, name)).then_some(name)
}

/// Whether the guest is not to see it.
#[must_use]
pub fn is_for_us(mount: &Mount) -> bool {
    Path::new(&mount.container_path).starts_with(FOR_US)
}

fn not_made(cause: Reason) -> Error {
    Error::because(Kind::Invalid, "the pod's cloud-init seed cannot be made", cause)
}

/// What a seed is made of, without the agent and kubelet's hosts file.
fn input<'a>(wishes: Wishes<'a>, sources: &'a Sources, mounts: &'a [GuestMount]) -> SeedInput<'a> {
    let Wishes { sandbox, container, annotations, handler, net, disks, instance, .. } = wishes;
    SeedInput {
        pod_name: &sandbox.name,
        namespace: &sandbox.namespace,
        uid: &sandbox.uid,
        instance,
        hostname: &sandbox.hostname,
        hosts: "",
        annotations,
        net,
        agent: None,
        kind: handler.defaults.seed_kind(annotations),
        delivery: handler.defaults.delivery(annotations),
        network: handler.defaults.network_config(annotations),
        credentials: handler.defaults.credentials,
        sources,
        env: &container.process.env,
        mounts,
        disks,
        has_agent: handler.defaults.has_agent(annotations),
    }
}

/// What annotations name, and copies, with what `read` finds in each volume.
fn sources(wishes: Wishes<'_>, read: impl Fn(&str, &Mount) -> Result<Volume>) -> Result<Sources> {
    let Wishes { sandbox, container, annotations, objects, handler, .. } = wishes;
    let of_kubelet = |mount| config_volume(mount, &sandbox.uid);
    let mut sources = Sources { named: objects.clone(), copies: Vec::new() };
    for (key, source) in annotations.seed_sources() {
        let Source::Volume(name) = source else { continue };
        if sources.named.contains_key(source) {
            continue;
        }
        let Some(mount) = container.mounts.iter().find(|mount| of_kubelet(*mount) == Some(name.as_str())) else {
            let what = format!(
                "annotation {key}: no volume {name:?} is mounted in this container that is a ConfigMap, a Secret, a projected \
                 volume or the downward API; mount it whole, at {FOR_US}/{name} if the guest is not to see it"
            );
            return Err(Error::new(Kind::Invalid, what));
        };
        sources.named.insert(source.clone(), read(name, mount)?);
    }
    if handler.defaults.delivery(annotations) == ConfigDelivery::Seed {
        for mount in container.mounts.iter().filter(|mount| mount.container_path != TOKEN && !is_for_us(mount)) {
            if let Some(name) = of_kubelet(mount) {
                sources.copies.push((mount.container_path.clone(), read(name, mount)?));
            }
        }
    }
    Ok(sources)
}

/// What cloud-init is to mount: nothing where the agent does.
fn guest_mounts(wishes: Wishes<'_>, is_file: impl Fn(&Path) -> bool) -> Vec<GuestMount> {
    let Wishes { annotations, handler, share, .. } = wishes;
    let share = share.filter(|_| !handler.defaults.has_agent(annotations));
    let mounts = share.iter().flat_map(|share| &share.mounts);
    (0..)
        .zip(mounts)
        .map(|(entry, mount)| GuestMount {
            entry,
            path: mount.path.clone(),
            read_only: mount.read_only,
            options: mount.options,
            is_file: is_file(&mount.source),
        })
        .collect()
}
