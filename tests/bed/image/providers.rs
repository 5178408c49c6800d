//! Each kind of source but [registries](super::registries), as the real one serves it: found by name, verified, freshened without a download, searched.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::image_node::{ImageNode, STORE};
use tests::peers::disk::{Disk, sum};
use tests::peers::nginx::Nginx;
use tests::peers::openstack::{Glance, Keystone, PASSWORD};
use tests::peers::simplestreams::Streams;
use tests::peers::{lago, virt_builder};
use tests::store_view::StoreView;
use tonic::Code;

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] = &[
    Case { name: "image::virt_builder_reads_the_same_repository", deadline: DEADLINE, run: virt_builder },
    Case { name: "image::virt_builder_reads_the_same_sources", deadline: DEADLINE, run: sources },
    Case { name: "image::sstream_query_reads_the_same_mirror", deadline: DEADLINE, run: streams },
    Case { name: "image::lago_has_templates", deadline: DEADLINE, run: lago },
    Case { name: "image::glance_has_images", deadline: DEADLINE, run: glance },
    Case { name: "image::glance_asks_keystone_who_we_are", deadline: DEADLINE, run: keystone },
];

fn virt_builder(bed: &Bed) -> Result<()> {
    let nginx = Nginx::start(bed)?;
    let dir = nginx.root().join("vb");
    let mut repository = virt_builder::Repository::create(&dir, &bed.dir.join("gpg"))?;
    let disks = bed.dir.join("disks");
    let [old, new, arm] = [("old", 1), ("new", 2), ("arm", 3)].map(|(name, mark)| Disk::create(&disks, name, mark));
    let (old, new, arm) = (old?, new?, arm?);
    repository.add("bed-1", "x86_64", 1, &old, "aliases=bed\nnotes=One line\n and another\n")?;
    repository.add("bed-1", "aarch64", 1, &arm, "hidden=true\n")?;
    repository.publish()?;
    let url = nginx.plain("vb/index.asc");
    let sections = format!(
        "[[images.providers]]\nid = 'vb'\ntype = 'virt-builder'\nuri = '{url}'\nkeyring = '{}'\nfingerprint = '{}'",
        repository.key.export()?.display(),
        repository.key.fingerprint
    );
    let node = ImageNode::start(bed, "", &sections)?;
    node.translate("bed", "virt-builder://vb/bed-1")?;
    ensure!(node.pull("bed")? == old.id, "another image");

    // The real one reads the same, and downloads the same.
    let listed = repository.listed_by_virt_builder(&url)?;
    let theirs: Vec<_> = listed["templates"].as_array().into_iter().flatten().map(|one| &one["os-version"]).collect();
    ensure!(theirs.iter().all(|name| *name == "bed-1"), "virt-builder lists {listed}");
    let fetched = repository.fetched_by_virt_builder(&url, "bed-1.x86_64.1")?;
    ensure!(
        sum("sha512sum", &fetched)? == sum("sha512sum", &old.path.with_extension("qcow2.xz"))?,
        "virt-builder has another file"
    );
    let found = node.search("bed")?;
    ensure!(found.len() == 1 && found[0].name == "bed-1" && found[0].cached, "found {found:?}");
    ensure!(found[0].signed_by.eq_ignore_ascii_case(&repository.key.fingerprint), "signed by {}", found[0].signed_by);

    nginx.forget()?;
    node.pull("bed")?;
    let asked = nginx.asked(1)?;
    ensure!(asked.len() == 1 && asked[0].status == 304, "asked {asked:?}");

    // A newer revision, first by somebody else.
    let mut newer = virt_builder::Repository::create(&dir, &bed.dir.join("gpg-of-another"))?;
    newer.add("bed-1", "x86_64", 2, &new, "")?;
    newer.publish()?;
    let refused = node.pull("bed").err().context("an index of another key was taken")?;
    ensure!(refused.code() == Code::Unknown && refused.message().starts_with("SignatureValidationFailed"), "{refused}");
    ensure!(node.status("bed", "")?.is_some_and(|image| image.id == old.id), "the old image is gone");
    repository.add("bed-1", "x86_64", 2, &new, "")?;
    repository.publish()?;
    ensure!(node.pull("bed")? == new.id, "the old revision");
    StoreView::settled(Path::new(STORE))?.assert_no_orphans()
}

/// `repos.d` as virt-builder has it: two files of it, an index of its own kind and one of Simple Streams.
fn sources(bed: &Bed) -> Result<()> {
    let nginx = Nginx::start(bed)?;
    let disks = bed.dir.join("disks");
    let [one, two, three] = [("one", 1), ("two", 2), ("three", 3)].map(|(name, mark)| Disk::create(&disks, name, mark));
    let (one, two, three) = (one?, two?, three?);
    let mut native = virt_builder::Repository::create(&nginx.root().join("vb"), &bed.dir.join("gpg"))?;
    native.add("bed-1", "x86_64", 1, &one, "")?;
    native.add("bed-1", "aarch64", 1, &two, "")?;
    native.publish()?;
    let mut streams = Streams::create(bed, &nginx.root().join("streams"), &bed.dir.join("gpg-of-streams"))?;
    streams.add("bookworm", "amd64", "20250101", &three)?;
    streams.publish()?;
    let of_streams = virt_builder::source("streams", &nginx.plain("streams/"), &streams.key.export()?);
    let of_native = native.source("bed.example", &nginx.plain("vb/index.asc"))?;
    virt_builder::introduce(&[
        ("b.conf", &format!("# two\n{of_native}proxy=no\n")),
        ("a.conf", &format!("{of_streams}format=simplestreams\nproxy=system\n")),
    ])?;
    let theirs = virt_builder::listed()?;
    let of = |image: &Value| Some((image["os-version"].as_str()?.to_owned(), platform(image["arch"].as_str()?)?));
    let listed: Option<BTreeSet<_>> = theirs["templates"].as_array().into_iter().flatten().map(of).collect();
    let listed = listed.filter(|listed| listed.len() == 3).with_context(|| format!("virt-builder lists {theirs}"))?;

    // A file of no use takes nothing from the others.
    fs::write(Path::new(virt_builder::REPOSITORIES).join("c.conf"), "junk")?;
    let keys = format!("images.untranslated = false\nimages.virt_builder_repos = ['{}']", virt_builder::REPOSITORIES);
    let node = ImageNode::start(bed, &keys, "")?;
    let found: BTreeSet<_> = node.search("")?.into_iter().map(|image| (image.name, image.platform)).collect();
    ensure!(found == listed, "virt-builder lists {theirs}, we {found:?}");
    let told = "c.conf`, line 1: neither a source nor a setting";
    ensure!(node.controld.log()?.contains(told), "not a word on the file that is no use");
    for (name, disk) in [("bed-1", &one), ("bookworm", &three)] {
        ensure!(node.pull(name)? == disk.id, "{name}: another image");
    }
    node.translate("by-rule", "virt-builder://bed.example/bed-1")?;
    ensure!(node.pull("by-rule")? == one.id, "by rule: another image");
    Ok(())
}

/// An architecture, as virt-builder or Debian calls it.
fn platform(architecture: &str) -> Option<String> {
    let known = [("x86_64", "linux/amd64"), ("amd64", "linux/amd64"), ("aarch64", "linux/arm64/v8")];
    known.iter().find(|(name, _)| *name == architecture).map(|(_, platform)| (*platform).to_owned())
}

fn streams(bed: &Bed) -> Result<()> {
    let nginx = Nginx::start(bed)?;
    let mut streams = Streams::create(bed, &nginx.root().join("source"), &bed.dir.join("gpg"))?;
    let disks = bed.dir.join("disks");
    let (old, new) = (Disk::create(&disks, "old", 1)?, Disk::create(&disks, "new", 2)?);
    streams.add("bookworm", "amd64", "20250101", &old)?;
    streams.publish()?;
    let (source, mirror) = (nginx.plain("source"), nginx.root().join("mirror"));
    streams.mirror(&source, &mirror)?;
    let url = nginx.plain("mirror");
    let sections = format!(
        "[[images.providers]]\nid = 'streams'\ntype = 'simplestreams'\nuri = '{url}/'\nkeyring = '{}'\nfingerprint = '{}'",
        streams.key.export()?.display(),
        streams.key.fingerprint
    );
    let node = ImageNode::start(bed, "", &sections)?;
    node.translate("bookworm", "simplestreams://streams/bookworm")?;
    ensure!(node.pull("bookworm")? == old.id, "another image");
    let theirs = streams.queried(&url)?;
    ensure!(theirs[0]["sha256"].as_str().is_some_and(|sum| old.id.ends_with(sum)), "sstream-query reads {theirs}");

    let disk = |path: &str| path.ends_with("disk.img");
    nginx.forget()?;
    node.pull("bookworm")?;
    ensure!(!nginx.asked(1)?.iter().any(|asked| disk(&asked.path)), "the disk was fetched again");
    streams.add("bookworm", "amd64", "20250202", &new)?;
    streams.publish()?;
    streams.mirror(&source, &mirror)?;
    ensure!(node.pull("bookworm")? == new.id, "the old version");
    // A mirror that lies about a file.
    fs::write(mirror.join("bookworm/20250202/amd64/disk.img"), fs::read(&old.path)?)?;
    node.remove("bookworm", "")?;
    let refused = node.pull("bookworm").err().context("another file than the signed one was taken")?;
    ensure!(refused.code() == Code::FailedPrecondition && refused.message().contains("DigestMismatch"), "{refused}");
    let view = StoreView::settled(Path::new(STORE))?;
    ensure!(view.data.is_empty(), "left: {view:?}");
    Ok(())
}

fn lago(bed: &Bed) -> Result<()> {
    let nginx = Nginx::start(bed)?;
    let mut repository = lago::Repository::create(&nginx.root().join("lago"))?;
    let disks = bed.dir.join("disks");
    let (old, new) = (Disk::create(&disks, "old", 1)?, Disk::create(&disks, "new", 2)?);
    repository.add("el7-base", "v1", 1.5, &old, true)?;
    repository.add("el7-base", "v2", 2.5, &new, false)?;
    repository.publish(&nginx.plain("lago/"))?;
    let provider = format!(
        "[[images.providers]]\nid = 'lago'\ntype = 'lago'\nuri = '{}'\nallow_weak_hashes = true",
        nginx.plain("lago/repo.metadata")
    );
    let node = ImageNode::start(bed, "images.untranslated = false", &provider)?;
    ensure!(node.pull("el7-base")? == new.id, "not the newest");
    ensure!(node.pull("el7-base:v1")? == old.id, "not the version");
    let found = node.search("el7")?;
    ensure!(found.len() == 1 && found[0].name.contains("el7-base"), "found {found:?}");
    ensure!(!format!("{found:?}").contains("guess"), "a password is shown");
    StoreView::settled(Path::new(STORE))?.assert_no_orphans()
}

fn glance(bed: &Bed) -> Result<()> {
    let glance = Glance::start(bed)?;
    let disks = bed.dir.join("disks");
    let [amd, arm, newer] = [("amd", 1), ("arm", 2), ("newer", 3)].map(|(name, mark)| Disk::create(&disks, name, mark));
    let (amd, arm, newer) = (amd?, arm?, newer?);
    glance.upload("vm", &arm, &json!({"architecture": "aarch64"}))?;
    let id = glance.upload("vm", &amd, &json!({"architecture": "x86_64"}))?;
    glance.create("empty", &json!({"architecture": "x86_64"}))?;
    let sections = format!("[[images.providers]]\nid = 'glance'\ntype = 'glance'\nendpoint = '{}'", glance.url());
    let node = ImageNode::start(bed, "", &sections)?;
    for name in ["vm", id.as_str()] {
        node.translate("vm", &format!("glance+http://glance/{name}"))?;
        ensure!(node.pull("vm")? == amd.id, "{name}: another image");
    }
    node.translate("empty", "glance+http://glance/empty")?;
    let refused = node.pull("empty").err().context("an image without bytes was taken")?;
    // Known and of no use: nobody else is asked for that name.
    ensure!(refused.code() == Code::FailedPrecondition && refused.message().contains("`queued`"), "{refused}");
    // Names are not unique: the newest counts. What is here already is not fetched again.
    node.translate("vm", "glance+http://glance/vm")?;
    let fetched = || -> Result<usize> { Ok(glance.daemon.log()?.matches("/file HTTP").count()) };
    let before = fetched()?;
    node.pull("vm")?;
    ensure!(fetched()? == before, "the bytes were fetched again");
    glance.upload("vm", &newer, &json!({"architecture": "x86_64"}))?;
    ensure!(node.pull("vm")? == newer.id, "the older image of that name");
    StoreView::settled(Path::new(STORE))?.assert_no_orphans()
}

fn keystone(bed: &Bed) -> Result<()> {
    let keystone = Keystone::start(bed)?;
    let glance = Glance::behind(bed, &keystone)?;
    let disk = Disk::create(&bed.dir.join("disks"), "disk", 1)?;
    glance.upload("vm", &disk, &json!({}))?;
    let (password, credential) = (bed.dir.join("password"), bed.dir.join("credential"));
    let made = keystone.application_credential()?;
    fs::write(&password, PASSWORD)?;
    fs::write(&credential, json!({"id": made.id, "secret": made.secret}).to_string())?;
    let wrong = bed.dir.join("wrong");
    fs::write(&wrong, "not-this-one")?;
    let of = |id: &str, login: &str| {
        format!(
            "[[images.providers]]\nid = '{id}'\ntype = 'glance'\nauth_url = '{}'\nregion = 'here'\n{login}\n",
            keystone.url()
        )
    };
    let by_password =
        |file: &Path| format!("username = 'admin'\nproject = 'admin'\npassword_file = '{}'", file.display());
    let sections = [
        of("by-password", &by_password(&password)),
        of("by-credential", &format!("application_credential_file = '{}'", credential.display())),
        of("by-guess", &by_password(&wrong)),
    ];
    let node = ImageNode::start(bed, "", &sections.concat())?;
    for (id, works) in [("by-password", true), ("by-credential", true), ("by-guess", false)] {
        node.translate("vm", &format!("glance+http://{id}/vm"))?;
        match (node.pull("vm"), works) {
            (Ok(pulled), true) => ensure!(pulled == disk.id, "{id}: another image"),
            (Err(refused), false) => ensure!(refused.code() == Code::PermissionDenied, "{id}: {refused}"),
            (outcome, _) => anyhow::bail!("{id}: {outcome:?}"),
        }
        node.remove("vm", "")?;
    }
    let log = node.controld.log()?;
    ensure!(!log.contains("not-this-one") && !log.contains(&made.secret), "a secret in the log");
    Ok(())
}
