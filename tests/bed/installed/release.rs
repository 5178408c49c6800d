//! What `make release` leaves: all files, their checksums, what the programs are made of, and manifests that kubectl puts together.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::case::{Bed, Case};
use tests::command::{command, finish, run};

use super::node::TOOL_DEADLINE;

/// Of no commit, so that a clone without its history will do.
const EPOCH: &str = "1700000000";
const IMAGE: &str = "registry.example.com/virtlet-install:1.0";
const FILES: [&str; 16] = [
    "LICENSE",
    "NOTICES",
    "SHA256SUMS",
    "admission-policy.yaml",
    "alerts.yaml",
    "daemonset.yaml",
    "krew.yaml",
    "kustomization.yaml",
    "reporter.yaml",
    "runtimeclass.yaml",
    "virtlet-1.0-x86_64.tar.xz",
    "virtlet-1.0.cdx.json",
    "virtlet-install.tar",
    "virtlet_1.0_amd64.deb",
    "virtletctl-1.0-x86_64.tar.gz",
    "virtletctl_1.0_amd64.deb",
];

pub(super) const CASES: &[Case] = &[Case {
    name: "installed::a_release_is_whole_and_the_same_bytes_when_it_is_made_again",
    deadline: TOOL_DEADLINE,
    run: whole,
}];

fn whole(bed: &Bed) -> Result<()> {
    let (first, second) = (bed.dir.join("first"), bed.dir.join("second"));
    for dir in [&first, &second] {
        make(bed, dir)?;
    }
    let sums = |dir: &Path| fs::read_to_string(dir.join("SHA256SUMS"));
    ensure!(sums(&first)? == sums(&second)?, "other bytes:\n{}\n{}", sums(&first)?, sums(&second)?);

    let entries = fs::read_dir(&first)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let entries = entries.collect::<Result<BTreeSet<String>>>()?;
    ensure!(entries == FILES.map(str::to_owned).into(), "other files: {entries:?}");
    let checked = run(command("sha256sum", ["--check", "--strict", "SHA256SUMS"]).current_dir(&first))?;
    ensure!(checked.lines().count() == FILES.len() - 1, "not all files have a checksum: {checked}");
    carried(&first)?;
    made_of(bed, &first)?;
    put_together(bed, &first)?;
    plugin(bed, &first)
}

fn make(bed: &Bed, dir: &Path) -> Result<()> {
    let script = bed.config.source("deploy/release.sh")?;
    let mut make = command("bash", [script.as_os_str(), bed.config.dist()?.as_os_str(), dir.as_os_str()]);
    make.envs([("VERSION", "1.0"), ("SOURCE_DATE_EPOCH", EPOCH), ("IMAGE", IMAGE)]);
    // Quicker, and the same is inside. Crates are those that the programs were built of.
    make.envs([("COMPRESS", "none"), ("LEVEL", "0"), ("CARGO_NET_OFFLINE", "true")]);
    let made = finish(&mut make, TOOL_DEADLINE)?;
    ensure!(made.code == Some(0), "no release: {}", made.stderr);
    Ok(())
}

/// The notices are in the packages and in the tarball, which has the licence, too.
fn carried(dir: &Path) -> Result<()> {
    let notices = fs::read_to_string(dir.join("NOTICES"))?;
    for named in ["tokio 1.", " (of std)", "GNU C Library", "GNU LESSER GENERAL PUBLIC LICENSE"] {
        ensure!(notices.contains(named), "`{named}` is not in the notices");
    }
    for package in ["virtlet", "virtletctl"] {
        let file = dir.join(format!("{package}_1.0_amd64.deb"));
        let list = run(&mut command("dpkg-deb", ["--contents".as_ref(), file.as_os_str()]))?;
        for name in ["copyright", "NOTICES.gz"] {
            let path = format!("./usr/share/doc/{package}/{name}");
            ensure!(list.lines().any(|line| line.ends_with(&path)), "no `{path}` in: {list}");
        }
    }
    let list = run(command("tar", ["-tJf", "virtlet-1.0-x86_64.tar.xz"]).current_dir(dir))?;
    let links = ["usr/bin/kubectl-virtlet", "usr/bin/kubectl_complete-virtlet"];
    for path in links.into_iter().chain(["usr/share/doc/virtlet/LICENSE", "usr/share/doc/virtlet/NOTICES.gz"]) {
        ensure!(list.lines().any(|line| line == path), "no `{path}` in: {list}");
    }
    Ok(())
}

/// The document has each program with the checksum of its file, and knows all that it says they use.
fn made_of(bed: &Bed, dir: &Path) -> Result<()> {
    let document: Value = serde_json::from_str(&fs::read_to_string(dir.join("virtlet-1.0.cdx.json"))?)?;
    let components = document["components"].as_array().context("no components")?;
    let mut programs = 0;
    for program in components.iter().filter(|one| one["type"] == "application") {
        let name = program["name"].as_str().context("no name")?;
        let said = run(&mut command("sha256sum", [bed.config.dist()?.join(name)]))?;
        let sum = program.pointer("/hashes/0/content").and_then(Value::as_str).context("no checksum")?;
        ensure!(said.starts_with(sum), "another `{name}`: {sum}, {said}");
        programs += 1;
    }
    ensure!(programs == 9, "{programs} programs");
    let reference = |one: &Value| one["bom-ref"].as_str().map(str::to_owned);
    let mut known: BTreeSet<String> = components.iter().filter_map(reference).collect();
    known.extend(document.pointer("/metadata/component").and_then(reference));
    let edges = document["dependencies"].as_array().context("no dependencies")?;
    let used = edges.iter().flat_map(|edge| edge["dependsOn"].as_array().into_iter().flatten());
    let unknown: Vec<_> = used.filter(|one| one.as_str().is_none_or(|one| !known.contains(one))).collect();
    ensure!(known.len() > 300 && unknown.is_empty(), "{} components; not among them: {unknown:?}", known.len());
    Ok(())
}

/// By kubectl: as it is, and below a kustomization that names another image.
fn put_together(bed: &Bed, dir: &Path) -> Result<()> {
    let kubectl = bed.config.peer("kubectl")?;
    let built = |dir: &Path| run(&mut command(&kubectl, ["kustomize".as_ref(), dir.as_os_str()]));
    let plain = built(dir)?;
    ensure!(plain.matches(&format!("image: {IMAGE}\n")).count() == 2, "not the image: {plain}");
    for kind in ["kind: DaemonSet\n", "kind: RuntimeClass\n"] {
        ensure!(plain.contains(kind), "no `{}`: {plain}", kind.trim());
    }
    let above = bed.dir.join("above");
    fs::create_dir(&above)?;
    let images = "images: [{name: registry.example.com/virtlet-install, newName: mirror.example.com/vi, newTag: '2'}]";
    fs::write(above.join("kustomization.yaml"), format!("resources: [../first]\n{images}\n"))?;
    let other = built(&above)?;
    ensure!(other.matches("image: mirror.example.com/vi:2\n").count() == 2, "not the other image: {other}");
    let policy = above.join("policy");
    fs::create_dir(&policy)?;
    let resources = "resources: [../../first, admission-policy.yaml]\n";
    fs::write(policy.join("kustomization.yaml"), resources)?;
    fs::copy(dir.join("admission-policy.yaml"), policy.join("admission-policy.yaml"))?;
    let chosen = built(&policy)?;
    ensure!(chosen.contains("kind: MutatingAdmissionPolicyBinding\n"), "no policy: {chosen}");
    // And the sources' own, whose image has no name yet.
    let sources = built(&bed.config.source("deploy")?)?;
    ensure!(sources.contains("image: virtlet-install:VERSION\n"), "{sources}");
    Ok(())
}

/// What krew unpacks is the archive that the manifest has the checksum of, and kubectl runs it as a plugin and completes its words.
fn plugin(bed: &Bed, dir: &Path) -> Result<()> {
    let manifest = fs::read_to_string(dir.join("krew.yaml"))?;
    let sum = run(command("sha256sum", ["virtletctl-1.0-x86_64.tar.gz"]).current_dir(dir))?;
    let sum = sum.split(' ').next().unwrap_or_default();
    for said in
        ["version: \"v1.0.0\"", &format!("sha256: \"{sum}\""), "/virtletctl-1.0-x86_64.tar.gz\"", "bin: virtletctl"]
    {
        ensure!(manifest.contains(said), "no `{said}`: {manifest}");
    }
    ensure!(!manifest.contains("\"@"), "not all is written: {manifest}");
    let place = bed.dir.join("plugin");
    fs::create_dir(&place)?;
    let archive = dir.join("virtletctl-1.0-x86_64.tar.gz");
    run(&mut command("tar", ["-xzf".as_ref(), archive.as_os_str(), "-C".as_ref(), place.as_os_str()]))?;
    for name in ["kubectl-virtlet", "kubectl_complete-virtlet"] {
        symlink("virtletctl", place.join(name))?;
    }
    let kubectl = bed.config.peer("kubectl")?;
    let path = format!("{}:/usr/bin:/bin", place.display());
    let asked = |words: &[&str]| run(command(&kubectl, words).env("PATH", &path).env("KUBECONFIG", "/none"));
    let version = asked(&["virtlet", "version", "--client"])?;
    ensure!(version.starts_with("Client: virtletctl "), "{version}");
    let completed = asked(&["__complete", "virtlet", "-n", "prod", "fsl"])?;
    ensure!(completed.starts_with("fslist\t") && completed.contains(":4"), "{completed}");
    Ok(())
}
