//! Containers.

use proto::cri;
use vmspec::error::Result;
use vmspec::plan::MachinePlan;
use vmspec::{CommandConfig, ContainerConfig, Device, Mount, MountOptions, ProcessConfig, Resources, SandboxConfig};

use super::{huge_pages, image_volume, invalid, selects, sorted, unified, unsorted};
use crate::model::{Container, ContainerState, Exit};

/// CRI's number of `MountPropagation::PRIVATE`.
const PRIVATE: i32 = 0;

/// What kubelet wants of a container.
///
/// # Errors
/// When it lacks what every container has, or wants what a machine cannot have.
pub fn container_config(config: cri::ContainerConfig) -> Result<ContainerConfig> {
    let metadata = config.metadata.ok_or_else(|| invalid("container config has no metadata"))?;
    if metadata.name.is_empty() {
        return Err(invalid("container metadata has no name"));
    }
    let image =
        config.image.filter(|image| !image.image.is_empty()).ok_or_else(|| invalid("container has no image"))?;
    if config.windows.is_some() {
        return Err(invalid("container is for Windows nodes"));
    }
    if config.stop_signal != 0 {
        return Err(invalid("a machine is stopped by its power button; unset the stop signal"));
    }
    let linux = config.linux.unwrap_or_default();
    let security = linux.security_context.unwrap_or_default();
    if security.run_as_group.is_some() && security.run_as_user.is_none() && security.run_as_username.is_empty() {
        return Err(invalid("run_as_group is set and neither run_as_user nor run_as_username is"));
    }
    Ok(ContainerConfig {
        name: metadata.name,
        attempt: metadata.attempt,
        image: image.image,
        user_image: image.user_specified_image,
        labels: sorted(config.labels),
        annotations: sorted(config.annotations),
        mounts: config.mounts.into_iter().map(mount).collect::<Result<_>>()?,
        log_path: config.log_path,
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        resources: linux.resources.map(super::resources).transpose()?,
        process: ProcessConfig {
            env: config.envs.into_iter().map(variable).collect::<Result<_>>()?,
            working_dir: config.working_dir,
            user: user(&security),
            groups: security.supplemental_groups.iter().filter_map(|group| u32::try_from(*group).ok()).collect(),
        },
        devices: config.devices.into_iter().map(device).collect(),
        cdi: config.cdi_devices.into_iter().map(|device| device.name).collect(),
        command: CommandConfig {
            argv: [config.command, config.args].concat(),
            read_only_root: security.readonly_rootfs,
        },
    })
}

/// What it is, is seen when the machine is made.
fn device(device: cri::Device) -> Device {
    // kubelet says `r` of a volume that is to be read only, else `mrw`.
    let read_only = !device.permissions.contains('w');
    Device { host_path: device.host_path, container_path: device.container_path, read_only }
}

fn variable(cri::KeyValue { key, value }: cri::KeyValue) -> Result<String> {
    let value = String::from_utf8(value).map_err(|_bytes| invalid(format!("variable `{key}` is not UTF-8")))?;
    Ok(format!("{key}={value}"))
}

/// As the guest's agent reads it.
fn user(security: &cri::LinuxContainerSecurityContext) -> String {
    let number = |number: &Option<cri::Int64Value>| number.as_ref().map(|number| number.value.to_string());
    let user = if security.run_as_username.is_empty() {
        number(&security.run_as_user).unwrap_or_default()
    } else {
        security.run_as_username.clone()
    };
    number(&security.run_as_group).map_or(user.clone(), |group| format!("{user}:{group}"))
}

/// The resources that a container is to have in place of its own.
///
/// # Errors
/// When they are not those of a Linux node, or none that a machine has.
pub fn update(request: cri::UpdateContainerResourcesRequest) -> Result<Resources> {
    let linux = request.linux.ok_or_else(|| invalid("request has no resources of a Linux node"))?;
    if linux.memory_limit_in_bytes < 0 {
        return Err(invalid(
            "a machine's memory cannot be without limit; leave the limit at 0 to keep it, or name one",
        ));
    }
    super::resources(linux)
}

fn mount(mount: cri::Mount) -> Result<Mount> {
    let at = &mount.container_path;
    let image = mount.image.as_ref().map(|image| image_volume::of(&mount, image)).transpose()?;
    if image.is_none() && mount.host_path.is_empty() {
        return Err(invalid(format!("mount at `{at}` has no host path")));
    }
    // Whatever is said of it, CRI has an image volume read-only.
    let readonly = mount.readonly || image.is_some();
    if mount.recursive_read_only && (!readonly || mount.propagation != PRIVATE) {
        return Err(invalid(format!("mount at `{at}` is recursively read-only, but not read-only and private")));
    }
    let options = MountOptions::parse(&mount.mount_options).map_err(|other| {
        invalid(format!(
            "mount at `{at}` has the option `{other}`, and those of a VM's volumes are `noexec`, `nodev` and `nosuid`; leave it out"
        ))
    })?;
    Ok(Mount {
        container_path: mount.container_path,
        host_path: mount.host_path,
        readonly,
        recursive_read_only: mount.recursive_read_only,
        selinux_relabel: mount.selinux_relabel,
        propagation: mount.propagation,
        options,
        image,
    })
}

/// A container as a list shows it. `default_handler` is that of images of containers which do not say.
#[must_use]
pub fn container_entry(container: &Container, default_handler: &str) -> cri::Container {
    cri::Container {
        id: container.id.to_string(),
        pod_sandbox_id: container.sandbox.to_string(),
        metadata: Some(metadata(&container.config)),
        image: Some(image(container, default_handler)),
        image_ref: container.image_id.clone(),
        state: state(container.state).into(),
        created_at: container.created_at,
        labels: unsorted(&container.config.labels),
        annotations: unsorted(&container.config.annotations),
        image_id: container.image_id.clone(),
    }
}

/// A container as its status shows it. `repo_digest` is how a registry would name its image; `default_handler` as in
/// [`container_entry`].
#[must_use]
pub fn container_status(
    container: &Container,
    sandbox: &SandboxConfig,
    repo_digest: Option<&str>,
    default_handler: &str,
) -> cri::ContainerStatus {
    let config = &container.config;
    let ended = |pick: fn(&Exit) -> i64| container.exit.as_ref().map(pick).unwrap_or_default();
    let resources = config.resources.as_ref().map(|resources| cri::LinuxContainerResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit_in_bytes: resources.memory_limit,
        oom_score_adj: resources.oom_score_adj,
        cpuset_cpus: resources.cpuset_cpus.clone(),
        cpuset_mems: resources.cpuset_mems.clone(),
        hugepage_limits: resources.huge_pages.map(huge_pages::limit).into_iter().collect(),
        unified: unified::told(resources),
        ..Default::default()
    });
    let (reason, message) = match (&container.exit, container.pause) {
        (Some(exit), _) => (exit.reason.as_str(), exit.message.as_str()),
        (None, Some(pause)) => (pause.as_str(), pause.message()),
        (None, None) => ("", ""),
    };
    cri::ContainerStatus {
        id: container.id.to_string(),
        metadata: Some(metadata(config)),
        state: state(container.state).into(),
        created_at: container.created_at,
        started_at: container.started_at,
        finished_at: ended(|exit| exit.finished_at),
        exit_code: container.exit.as_ref().map(|exit| exit.code).unwrap_or_default(),
        image: Some(image(container, default_handler)),
        image_ref: repo_digest.unwrap_or(&container.image_id).to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        labels: unsorted(&config.labels),
        annotations: unsorted(&config.annotations),
        mounts: config.mounts.iter().map(|mount| echo_mount(mount, &container.machine)).collect(),
        log_path: container.log_path(sandbox).map(|path| path.display().to_string()).unwrap_or_default(),
        resources: resources.map(|linux| cri::ContainerResources { linux: Some(linux), windows: None }),
        image_id: container.image_id.clone(),
        user: None,
        stop_signal: 0,
    }
}

/// Whether a list with this filter shows the container.
#[must_use]
pub fn matches_container(filter: Option<&cri::ContainerFilter>, container: &Container) -> bool {
    filter.is_none_or(|filter| {
        container.id.to_string().starts_with(&filter.id)
            && container.sandbox.as_str().starts_with(&filter.pod_sandbox_id)
            && filter.state.as_ref().is_none_or(|wanted| wanted.state == i32::from(state(container.state)))
            && selects(&filter.label_selector, &container.config.labels)
    })
}

/// kubelet finds an image in use by its id and handler: the handler here is that of the image in the store.
fn image(container: &Container, default_handler: &str) -> cri::ImageSpec {
    let config = &container.config;
    let shown = config.image_name();
    let handler = if container.image_handler.is_empty() { default_handler } else { &container.image_handler };
    cri::ImageSpec {
        image: shown.to_owned(),
        user_specified_image: config.user_image.clone(),
        runtime_handler: handler.to_owned(),
        ..Default::default()
    }
}

fn echo_mount(mount: &Mount, plan: &MachinePlan) -> cri::Mount {
    cri::Mount {
        image: mount.image.as_ref().map(|image| image_volume::shown(mount, image, plan)),
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        readonly: mount.readonly,
        recursive_read_only: mount.recursive_read_only,
        selinux_relabel: mount.selinux_relabel,
        propagation: mount.propagation,
        mount_options: mount.options.words().map(str::to_owned).collect(),
        ..Default::default()
    }
}

pub(super) fn metadata(config: &ContainerConfig) -> cri::ContainerMetadata {
    cri::ContainerMetadata { name: config.name.clone(), attempt: config.attempt }
}

fn state(state: ContainerState) -> cri::ContainerState {
    match state {
        ContainerState::Created | ContainerState::Starting => cri::ContainerState::ContainerCreated,
        ContainerState::Running => cri::ContainerState::ContainerRunning,
        // kubelet stops what it does not know to be off before it makes another.
        ContainerState::Uncertain => cri::ContainerState::ContainerUnknown,
        ContainerState::Exited => cri::ContainerState::ContainerExited,
    }
}
