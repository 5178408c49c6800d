//! critest's specs of images, whose names it has built in: a registry of the bed has them, and a rule leads there from
//! whatever registry they name.
//!
//! Of all but one of those specs; that one pulls an image by its digest, and no bytes of the bed's have that.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::node::Node;
use tests::peers::disk::Disk;
use tests::peers::registry::{Child, Packing, Registry};
use tests::world::World;

use super::critest;

pub(super) const CASES: &[Case] = &[Case { name: "cri::critest_of_images", deadline: critest::DEADLINE, run }];

pub(super) const SPECS: &[&str] = &[
    "Image Manager public image with tag should be pulled and removed",
    "Image Manager public image without tag should be pulled and removed",
    "Image Manager public image should timeout if requested",
    "Image Manager image status should support all kinds of references",
    "Image Manager image status get image fields should not have Uid|Username empty",
    "Image Manager listImage should get exactly 3 image in the result list",
    "Image Manager listImage should get exactly 3 repoTags in the result image",
    "Image Manager removing image by one tag should remove all tags",
    "Image Manager removing image from one registry should remove all tags from other registries",
    "Image Consistency should not list or get image status immediately after removal",
    "Image Consistency should list and get image status immediately after pulling",
    "Image Consistency should not fail on simultaneous RemoveImage calls",
    "Image Identifier Consistency should return the same image identifier across all APIs",
    "Image Identifier Consistency should return the same image identifier when pulled from different registries",
];

/// Names without their registries, which of the disks is in them, and who runs in them. Names of one disk are one image, and
/// that has one user.
const IMAGES: &[(&str, usize, &str)] = &[
    ("k8s-staging-cri-tools/test-image-latest:latest", 0, ""),
    ("k8s-staging-cri-tools/test-image-tag:test", 0, ""),
    ("k8s-staging-cri-tools/test-image-tag:all", 0, ""),
    ("k8s-staging-cri-tools/test-image-1:latest", 1, ""),
    ("k8s-staging-cri-tools/test-image-2:latest", 2, ""),
    ("k8s-staging-cri-tools/test-image-3:latest", 3, ""),
    ("k8s-staging-cri-tools/test-image-tags:1", 1, ""),
    ("k8s-staging-cri-tools/test-image-tags:2", 1, ""),
    ("k8s-staging-cri-tools/test-image-tags:3", 1, ""),
    ("k8s-staging-cri-tools/test-image-user-uid:latest", 4, "1002"),
    ("k8s-staging-cri-tools/test-image-user-username:latest", 5, "www-data"),
    ("k8s-staging-cri-tools/test-image-user-uid-group:latest", 6, "1003:users"),
    ("k8s-staging-cri-tools/test-image-user-username-group:latest", 7, "www-data:100"),
    ("pause:3.9", 0, ""),
];

/// Beside the one that boots.
const SMALL_DISKS: u8 = 7;

fn run(bed: &Bed) -> Result<()> {
    let registry = Registry::start(bed)?;
    let disks = bed.dir.join("disks");
    let mut all = vec![Disk::of(&bed.config.guest("tiny.qcow2")?)?];
    for mark in 1..=SMALL_DISKS {
        all.push(Disk::create(&disks, &format!("disk{mark}"), mark)?);
    }
    for (name, disk, user) in IMAGES {
        let disk = all.get(*disk).context("no such disk")?;
        let child = Child { disk, architecture: "amd64", packing: Packing::Gzip, user };
        registry.push(name, &child)?;
    }
    let provider = format!("[[images.providers]]\nid = 'oci'\ntype = 'oci'\nplain_http = ['{}']", registry.host);
    let node = Node::configured(bed, &format!("images.regexp_translations = true\n{provider}"))?;
    critest::translate("^[^/]+/(.+)$", &format!("oci://{}/$1", registry.host))?;
    let before = World::look()?;
    critest::run(bed, SPECS, &json!({}))?;
    ensure!(node.crictl(&["images", "-q"])?.stdout.is_empty(), "an image is left");
    before.assert_same_but(|thing| thing == "link cni0" || thing.starts_with("file /var/lib/virtlet/images"))
}
