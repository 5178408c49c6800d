//! What a node is set up with, as JSON, for programs that judge a node without a daemon: `virtletctl doctor`.
//!
//! `main` calls it for `controld describe`. Nothing is changed, and no daemon of ours is asked. A key that is here stays; more
//! may come.

use std::path::Path;

use serde_json::{Value, json};
use vmspec::settings::Accel;

use crate::config::{CgroupDriver, Config};
use crate::hypervisor::{self, LibvirtError};

/// The settings that say where things are, with those that are made of others.
#[must_use]
pub fn settings(config: &Config) -> Value {
    let accel = match config.machine.accel {
        Accel::Auto => "auto",
        Accel::Kvm => "kvm",
        Accel::Qemu => "qemu",
    };
    let driver = match config.cgroup_driver.unwrap_or_else(CgroupDriver::of_node) {
        CgroupDriver::Systemd => "systemd",
        CgroupDriver::Cgroupfs => "cgroupfs",
    };
    json!({
        "run_dir": text(&config.run_dir),
        "state_dir": text(&config.state_dir),
        "images_dir": text(&config.images_dir()),
        "images_reserve": config.images.limits.reserve,
        "cri_socket": text(&config.cri_socket()),
        "tap_socket": text(&config.tap_socket()),
        "handoff_socket": text(&config.handoff_socket()),
        "libvirt_uri": config.libvirt_uri,
        "emulator": text(&config.emulator),
        "vmwrapper": text(&config.vmwrapper),
        "fswrapper": text(&config.fswrapper),
        "virtiofsd": text(&config.virtiofsd),
        "accel": accel,
        "cgroup_driver": driver,
        "cgroup_driver_set": config.cgroup_driver.is_some(),
        "handlers": config.handler_names(),
        "runtime_endpoint": config.proxy.runtime_endpoint.as_ref().map(ToString::to_string),
    })
}

/// The versions of libvirt and its QEMU, and what they lack for us. Blocks until libvirt answers, however long that takes: who
/// does not want to wait ends the process.
///
/// # Errors
/// When libvirt does not answer, or is too old.
pub fn libvirt(config: &Config) -> Result<Value, LibvirtError> {
    let features = hypervisor::ask_features(&config.libvirt_uri)?;
    let qemu = features.qemu.map(|version| version.to_string());
    Ok(json!({ "libvirt": features.version.to_string(), "qemu": qemu, "lacks": features.lacks() }))
}

/// All of them were UTF-8 in the file.
fn text(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_told_as_they_come_out() {
        let config = Config {
            run_dir: "/run/other".into(),
            state_dir: "/srv/virtlet".into(),
            cgroup_driver: Some(CgroupDriver::Systemd),
            ..Config::default()
        };
        insta::assert_snapshot!(format!("{:#}", settings(&config)), @r#"
        {
          "accel": "auto",
          "cgroup_driver": "systemd",
          "cgroup_driver_set": true,
          "cri_socket": "/run/other/cri.sock",
          "emulator": "/usr/bin/qemu-system-x86_64",
          "fswrapper": "/usr/lib/virtlet/fswrapper",
          "handlers": [
            "virtlet"
          ],
          "handoff_socket": "/run/other/handoff.sock",
          "images_dir": "/srv/virtlet/images",
          "images_reserve": 2147483648,
          "libvirt_uri": "qemu:///system",
          "run_dir": "/run/other",
          "runtime_endpoint": null,
          "state_dir": "/srv/virtlet",
          "tap_socket": "/run/other/control.sock",
          "virtiofsd": "/usr/libexec/virtiofsd",
          "vmwrapper": "/usr/lib/virtlet/vmwrapper"
        }
        "#);
    }
}
