//! Tier `installed`: the packages on a booted Debian with AppArmor enforcing, its own libvirt, and kubelet as a service.

mod daemonset;
mod kubeadm;
mod node;
mod policy;
mod release;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Result, ensure};
use tests::case::{Bed, Case};
use tests::command::{command, finish, run};
use tests::installed::Packages;

/// The cases of this tier.
pub(crate) fn cases() -> impl Iterator<Item = Case> {
    CASES
        .iter()
        .chain(node::CASES)
        .chain(policy::CASES)
        .chain(release::CASES)
        .chain(kubeadm::CASES)
        .chain(daemonset::CASES)
        .copied()
}

const CASES: &[Case] = &[
    Case {
        name: "installed::a_package_does_not_replace_programs_whose_records_it_could_not_read",
        deadline: node::TOOL_DEADLINE,
        run: downgrade,
    },
    Case {
        name: "installed::a_tarball_has_what_the_packages_have_and_units_that_systemd_takes",
        deadline: node::TOOL_DEADLINE,
        run: tarball,
    },
];

/// By the package's own script before it is unpacked, on a root that has nothing but what that asks.
fn downgrade(bed: &Bed) -> Result<()> {
    let package = Packages::build(bed, "1.0")?.file("virtlet")?;
    let scripts = bed.dir.join("scripts");
    run(&mut command("dpkg-deb", ["--control".as_ref(), package.as_os_str(), scripts.as_os_str()]))?;
    let root = bed.dir.join("root");
    let (sbin, etc, state) = (root.join("usr/sbin"), root.join("etc/virtlet"), bed.dir.join("elsewhere"));
    for dir in [&sbin, &etc, &state] {
        fs::create_dir_all(dir)?;
    }
    for program in ["controld", "tapmanager"] {
        symlink(bed.config.dist()?.join(program), sbin.join(program))?;
        fs::write(etc.join(format!("{program}.toml")), format!("state_dir = {state:?}\n"))?;
    }
    let script = |name: &str, action: &str| {
        let script = scripts.join(name);
        let words = [script.as_os_str(), action.as_ref(), "1.1".as_ref()];
        finish(command("sh", words).env("DPKG_ROOT", &root), node::TOOL_DEADLINE)
    };
    // Of their own release, wherever it is; this release knows each form that it writes.
    fs::create_dir(state.join("volumes"))?;
    fs::create_dir(state.join("volumes/a-pod"))?;
    let same = script("preinst", "upgrade")?;
    ensure!(same.code == Some(0), "the same forms are refused: {}", same.stderr);

    for (program, says, refused) in [
        // Whatever it is: a sandbox without a machine, a line of the log, the file that is there without pods.
        ("controld", "echo sandboxes 99", Some("`sandboxes` have version 99, 1.0 reads version 1")),
        ("controld", "echo lines 2", Some("`lines` have version 2, 1.0 reads version 1")),
        ("controld", "echo instance 2", Some("`instance` have version 2, 1.0 reads version 1")),
        ("tapmanager", "echo network-instance 2", Some("`network-instance` have version 2, 1.0 reads version 1")),
        ("controld", "echo snapshots 1", Some("`snapshots` have version 1, 1.0 reads version 0")),
        // An older one, which does not know the word and would not look at what there is.
        ("controld", "[ $# = 1 ] && echo containers 99", Some("`containers` have version 99")),
        // It is asked by its own configuration, and has nothing on record.
        ("controld", "[ \"$2 $4\" = \"--recorded $DPKG_ROOT/etc/virtlet/controld.toml\" ] || echo containers 99", None),
        ("controld", "echo sandboxes 1", None),
    ] {
        let path = sbin.join(program);
        let real = bed.config.dist()?.join(program);
        fs::remove_file(&path)?;
        fs::write(&path, format!("#!/bin/sh\n{says}\n"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let ended = script("preinst", "upgrade")?;
        let told = refused.map(|what| format!("not downgraded from 1.1 to 1.0: records {what}"));
        let as_wanted = told
            .as_ref()
            .map_or(ended.code == Some(0), |told| ended.code != Some(0) && ended.stderr.contains(told.as_str()));
        ensure!(as_wanted, "{program} that says `{says}`: {:?} {}", ended.code, ended.stderr);
        fs::remove_file(&path)?;
        symlink(real, &path)?;
    }
    given_up(&scripts)
}

/// What dpkg calls after a refusal leaves daemons and units alone: whatever it would ask is not there to be asked.
fn given_up(scripts: &Path) -> Result<()> {
    let postinst = scripts.join("postinst");
    let words = [postinst.as_os_str(), "abort-upgrade".as_ref(), "1.0".as_ref()];
    let mut sh = command("/bin/sh", [std::ffi::OsStr::new("-x")]);
    let ended = finish(sh.args(words).env("PATH", "/nowhere"), node::TOOL_DEADLINE)?;
    let touched = ["systemctl", "deb-systemd"].iter().any(|word| ended.stderr.contains(word));
    ensure!(ended.code == Some(0) && !touched, "an upgrade that was given up: {:?} {}", ended.code, ended.stderr);
    Ok(())
}

/// Unpacked into a root of its own, which gets systemd's own units from this machine.
fn tarball(bed: &Bed) -> Result<()> {
    let script = bed.config.source("deploy/tarball.sh")?;
    let mut make = command("bash", [script.as_os_str(), bed.config.dist()?.as_os_str(), bed.dir.as_os_str()]);
    let made = finish(
        make.env("VERSION", "1.0").env("SOURCE_DATE_EPOCH", "1700000000").env("LEVEL", "0"),
        node::TOOL_DEADLINE,
    )?;
    ensure!(made.code == Some(0), "no tarball: {}", made.stderr);
    let root = bed.dir.join("root");
    fs::create_dir_all(root.join("usr/bin"))?;
    // As distributions have it that know but one directory of programs.
    symlink("bin", root.join("usr/sbin"))?;
    run(command("tar", ["-x", "-J", "-f", "virtlet-1.0-x86_64.tar.xz", "-C", "root"]).current_dir(&bed.dir))?;
    ensure!(root.join("usr/sbin").is_symlink(), "the tarball replaces a link by a directory");
    ensure!(!root.join("etc").exists(), "the tarball has files in `/etc`");
    for file in ["usr/bin/controld", "usr/bin/virtletctl", "usr/lib/virtlet/vmwrapper", "usr/lib/cni/virtlet-sriov"] {
        ensure!(root.join(file).exists(), "the tarball lacks `{file}`");
    }
    run(command("cp", ["-rn", "/usr/lib/systemd/system", "root/usr/lib/systemd/"]).current_dir(&bed.dir))?;
    let mut verify = command("systemd-analyze", ["verify", "--man=no", "--recursive-errors=no"]);
    let verified =
        finish(verify.arg("--root").arg(&root).args(["tapmanager.service", "controld.service"]), node::TOOL_DEADLINE)?;
    // Debian 12's systemd does not know the steps between restarts, and says so.
    let complaints = verified
        .stderr
        .lines()
        .filter(|line| (line.contains("controld") || line.contains("tapmanager")) && !line.contains("'Restart"));
    let complaints: Vec<&str> = complaints.collect();
    ensure!(verified.code == Some(0) && complaints.is_empty(), "systemd does not take the units: {}", verified.stderr);
    Ok(())
}
