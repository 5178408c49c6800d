//! Registries: container disks in their forms, and who is let in.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::AuthConfig;
use serde_json::json;
use tests::case::{Bed, Case};
use tests::image_node::{ImageNode, STORE};
use tests::peers::disk::Disk;
use tests::peers::registry::{Child, Packing, Registry};
use tests::peers::tokens::{Asked, Tokens};
use tests::store_view::StoreView;
use tonic::Code;

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] = &[
    Case { name: "image::a_registry_has_container_disks", deadline: DEADLINE, run: disks },
    Case { name: "image::a_registry_wants_tokens", deadline: DEADLINE, run: tokens },
];

fn disks(bed: &Bed) -> Result<()> {
    let open = Registry::start(bed)?;
    let private = Registry::private(bed)?;
    let sections =
        format!("[[images.providers]]\nid = 'oci'\ntype = 'oci'\nplain_http = ['{}', '{}']", open.host, private.host);
    let node = ImageNode::start(bed, "", &sections)?;
    let disks = bed.dir.join("disks");
    let [amd, arm] = [Disk::create(&disks, "amd", 1)?, Disk::create(&disks, "arm", 2)?];
    let child = |packing| Child { disk: &amd, architecture: "amd64", packing, user: "" };
    for (tag, packing) in [("tar", Packing::Tar), ("gzip", Packing::Gzip), ("zstd", Packing::Zstd)] {
        let name = open.push(&format!("vm:{tag}"), &child(packing))?;
        node.translate(tag, &format!("oci://{name}"))?;
        ensure!(node.pull(tag).with_context(|| name.clone())? == amd.id, "{name}: another image");
    }
    let index = [child(Packing::Gzip), Child { disk: &arm, architecture: "arm64", packing: Packing::Gzip, user: "" }];
    let name = open.push_index("vm:index", &index)?;
    node.translate("index", &format!("oci://{name}"))?;
    ensure!(node.pull("index")? == amd.id, "another platform's image");
    let image = node.status("index", "")?.context("it is not here")?;
    let digest = format!("index@{}", open.digest("vm:index")?);
    ensure!(image.repo_digests.contains(&digest), "no `{digest}` in {:?}", image.repo_digests);

    // Again: whether the digest is the same, and not a byte of a layer.
    let blobs = open.asked("GET", "/blobs/")?;
    node.pull("index")?;
    ensure!(open.asked("GET", "/blobs/")? == blobs, "layers were fetched again");
    // Another image under the same tag.
    open.push("vm:index", &Child { disk: &arm, ..child(Packing::Gzip) })?;
    ensure!(node.pull("index")? == arm.id, "the tag's old image");

    let name = private.push("vm:latest", &child(Packing::Gzip))?;
    node.translate("private", &format!("oci://{name}"))?;
    let refused = node.pull("private").err().context("let in without a password")?;
    ensure!(refused.code() == Code::PermissionDenied, "{refused}");
    let login = |password: &str| Some(login(&private, password));
    let refused = node.pull_for("private", "", login("guess")).err().context("let in with a wrong password")?;
    ensure!(refused.code() == Code::PermissionDenied, "{refused}");
    ensure!(node.pull_for("private", "", login("secret"))? == amd.id, "another image");
    let log = node.controld.log()?;
    ensure!(!log.contains("guess"), "a password in the log");
    StoreView::settled(Path::new(STORE))?.assert_no_orphans()
}

/// A registry that believes what a token service has signed: each caller gets what it may, and no other caller's.
fn tokens(bed: &Bed) -> Result<()> {
    let tokens = Tokens::start(&bed.dir.join("tokens"))?;
    let registry = Registry::with_tokens(bed, &tokens)?;
    let sections = format!("[[images.providers]]\nid = 'oci'\ntype = 'oci'\nplain_http = ['{}']", registry.host);
    let node = ImageNode::start(bed, "", &sections)?;
    let disk = Disk::create(&bed.dir.join("disks"), "disk", 1)?;
    let child = Child { disk: &disk, architecture: "amd64", packing: Packing::Gzip, user: "" };
    let [public, own] = ["public/vm:latest", "own/vm:latest"].map(|name| registry.push(name, &child));
    let rules =
        [("public", public?), ("own", own?)].map(|(name, of)| json!({"name": name, "url": format!("oci://{of}")}));
    node.translations(&json!({"translations": rules}))?;
    tokens.take_asked();

    // One token for manifest and layers, and for the next pull.
    for _again in 0..2 {
        ensure!(node.pull("public")? == disk.id, "another image");
    }
    let nobody = |name: &str| Asked { scope: format!("repository:{name}/vm:pull"), user: None };
    let asked = tokens.take_asked();
    ensure!(asked == [nobody("public")], "asked for {asked:?}");
    let refused = node.pull("own").err().context("let in without a login")?;
    ensure!(refused.code() == Code::PermissionDenied, "{refused}");
    let asked = tokens.take_asked();
    ensure!(asked == [nobody("own")], "asked for {asked:?}");

    let refused = node.pull_for("own", "", Some(login(&registry, "guess"))).err().context("let in by a guess")?;
    ensure!(refused.code() == Code::PermissionDenied, "{refused}");
    ensure!(node.pull_for("own", "", Some(login(&registry, "secret")))? == disk.id, "another image");
    let asked = tokens.take_asked();
    let user = Asked { user: Some("user".into()), ..nobody("own") };
    ensure!(asked == [user.clone(), user], "asked for {asked:?}");
    // It is here, and the user's token too, but not for anybody.
    let refused = node.pull("own").err().context("let in by somebody else's token")?;
    ensure!(refused.code() == Code::PermissionDenied, "{refused}");

    // The registry looks at the signature, and we ask anew once what we knew is forgotten.
    tokens.forge()?;
    ensure!(node.pull("public")? == disk.id, "a token that is good is not used");
    node.virtletctl_ok(&["image", "providers", "clear-cache"])?;
    let refused = node.pull("public").err().context("let in by a forged token")?;
    ensure!(refused.code() == Code::PermissionDenied, "{refused}");
    let log = node.controld.log()?;
    ensure!(!log.contains("guess") && !log.contains("secret") && !log.contains("eyJ"), "a login or token in the log");
    Ok(())
}

/// A pull secret for a registry.
fn login(registry: &Registry, password: &str) -> AuthConfig {
    AuthConfig {
        username: "user".into(),
        password: password.into(),
        server_address: registry.host.clone(),
        ..Default::default()
    }
}
