//! Sandboxes.

use proto::cri;
use proto::tap::{Dns, HostPort, PortProtocol};
use vmspec::error::Result;
use vmspec::plan::Cgroup;
use vmspec::{NamespaceOptions, SandboxConfig};

use super::{invalid, selects, sorted, unsorted};
use crate::model::{Sandbox, SandboxState};

/// What kubelet wants of a sandbox.
///
/// # Errors
/// When it lacks what every sandbox has, or wants what no machine can have.
pub fn sandbox_config(request: cri::RunPodSandboxRequest) -> Result<SandboxConfig> {
    let config = request.config.ok_or_else(|| invalid("request has no sandbox config"))?;
    let metadata = config.metadata.ok_or_else(|| invalid("sandbox config has no metadata"))?;
    for (what, value) in [("name", &metadata.name), ("uid", &metadata.uid), ("namespace", &metadata.namespace)] {
        if value.is_empty() {
            return Err(invalid(format!("sandbox metadata has no {what}")));
        }
    }
    if config.windows.is_some() {
        return Err(invalid("sandbox is for Windows nodes"));
    }
    // kubelet lists the ports of all containers; those without a host port need nothing done.
    let host_ports = config.port_mappings.iter().filter(|port| port.host_port != 0).map(host_port);
    let host_ports = host_ports.collect::<Result<_>>()?;
    let linux = config.linux.unwrap_or_default();
    let security = linux.security_context.unwrap_or_default();
    if security.run_as_group.is_some() && security.run_as_user.is_none() {
        return Err(invalid("run_as_group is set and run_as_user is not"));
    }
    let namespaces = security.namespace_options.unwrap_or_default();
    // kubelet names the node's own for `hostUsers: true`, and none if the pod says nothing.
    if namespaces.userns_options.is_some_and(|users| users.mode != i32::from(cri::NamespaceMode::Node)) {
        return Err(invalid(
            "a machine can have no user namespace of the node's: its users are the guest's own; unset hostUsers",
        ));
    }
    Ok(SandboxConfig {
        name: metadata.name,
        uid: metadata.uid,
        namespace: metadata.namespace,
        attempt: metadata.attempt,
        hostname: config.hostname,
        log_directory: config.log_directory,
        dns: config.dns_config.map(dns).transpose()?,
        labels: sorted(config.labels),
        annotations: sorted(config.annotations),
        runtime_handler: request.runtime_handler,
        namespaces: NamespaceOptions {
            network: namespaces.network,
            pid: namespaces.pid,
            ipc: namespaces.ipc,
            target_id: namespaces.target_id,
        },
        host_ports,
        sysctls: sorted(linux.sysctls),
        cgroup_parent: Cgroup::of_pod(&linux.cgroup_parent)?,
        cpus: linux.resources.map(super::resources).transpose()?.and_then(|resources| resources.cpus()),
        memory_overhead: linux
            .overhead
            .and_then(|overhead| u64::try_from(overhead.memory_limit_in_bytes).ok())
            .filter(|bytes| *bytes > 0),
    })
}

fn host_port(mapping: &cri::PortMapping) -> Result<HostPort> {
    let port = |what: &str, value: i32| {
        let port = u16::try_from(value).ok().filter(|port| *port != 0);
        port.ok_or_else(|| invalid(format!("{what} {value} is not 1 to 65535")))
    };
    let host_ip = match mapping.host_ip.as_str() {
        "" => None,
        text => Some(text.parse().map_err(|_bad| invalid(format!("host IP `{text}` of a port is no IP address")))?),
    };
    let protocol = match cri::Protocol::try_from(mapping.protocol) {
        Ok(cri::Protocol::Tcp) => PortProtocol::Tcp,
        Ok(cri::Protocol::Udp) => PortProtocol::Udp,
        Ok(cri::Protocol::Sctp) => PortProtocol::Sctp,
        Err(_) => return Err(invalid(format!("protocol {} of a port is unknown", mapping.protocol))),
    };
    Ok(HostPort {
        host_ip,
        host_port: port("host port", mapping.host_port)?,
        container_port: port("container port", mapping.container_port)?,
        protocol,
    })
}

fn dns(config: cri::DnsConfig) -> Result<Dns> {
    let server =
        |text: String| text.parse().map_err(|_bad| invalid(format!("DNS server `{text}` is not an IP address")));
    Ok(Dns {
        servers: config.servers.into_iter().map(server).collect::<Result<_>>()?,
        searches: config.searches,
        options: config.options,
    })
}

/// A sandbox as a list shows it.
#[must_use]
pub fn sandbox_entry(sandbox: &Sandbox) -> cri::PodSandbox {
    cri::PodSandbox {
        id: sandbox.id.to_string(),
        metadata: Some(metadata(&sandbox.config)),
        state: state(sandbox.state).into(),
        created_at: sandbox.created_at,
        labels: unsorted(&sandbox.config.labels),
        annotations: unsorted(&sandbox.config.annotations),
        runtime_handler: sandbox.config.runtime_handler.clone(),
    }
}

/// A sandbox as its status shows it.
#[must_use]
pub fn sandbox_status(sandbox: &Sandbox) -> cri::PodSandboxStatus {
    let mut ips = sandbox.addresses().into_iter().map(|ip| ip.to_string());
    // kubelet replaces a ready sandbox that says it has no address, and keeps one that says nothing of it.
    let network = ips
        .next()
        .map(|ip| cri::PodSandboxNetworkStatus { ip, additional_ips: ips.map(|ip| cri::PodIp { ip }).collect() });
    let namespaces = &sandbox.config.namespaces;
    let options = cri::NamespaceOption {
        network: namespaces.network,
        pid: namespaces.pid,
        ipc: namespaces.ipc,
        target_id: namespaces.target_id.clone(),
        userns_options: None,
    };
    cri::PodSandboxStatus {
        id: sandbox.id.to_string(),
        metadata: Some(metadata(&sandbox.config)),
        state: state(sandbox.state).into(),
        created_at: sandbox.created_at,
        network,
        linux: Some(cri::LinuxPodSandboxStatus { namespaces: Some(cri::Namespace { options: Some(options) }) }),
        labels: unsorted(&sandbox.config.labels),
        annotations: unsorted(&sandbox.config.annotations),
        runtime_handler: sandbox.config.runtime_handler.clone(),
    }
}

/// Whether a list with this filter shows the sandbox. One that is only being made is not shown.
#[must_use]
pub fn matches_sandbox(filter: Option<&cri::PodSandboxFilter>, sandbox: &Sandbox) -> bool {
    if sandbox.state == SandboxState::Creating {
        return false;
    }
    filter.is_none_or(|filter| {
        sandbox.id.as_str().starts_with(&filter.id)
            && filter.state.as_ref().is_none_or(|wanted| wanted.state == i32::from(state(sandbox.state)))
            && selects(&filter.label_selector, &sandbox.config.labels)
    })
}

pub(super) fn metadata(config: &SandboxConfig) -> cri::PodSandboxMetadata {
    cri::PodSandboxMetadata {
        name: config.name.clone(),
        uid: config.uid.clone(),
        namespace: config.namespace.clone(),
        attempt: config.attempt,
    }
}

fn state(state: SandboxState) -> cri::PodSandboxState {
    match state {
        SandboxState::Ready => cri::PodSandboxState::SandboxReady,
        SandboxState::Creating | SandboxState::NotReady => cri::PodSandboxState::SandboxNotready,
    }
}
