//! A disk that both sides share gets full: kubelet removes the images of either that nobody uses, and leaves those that pods have.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use proto::cri::{ImageSpec, ListImagesRequest, PullImageRequest};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::containerd::{Containerd, PAUSE, Release, archive};
use tests::cri::Cri;
use tests::image_server::Fault;
use tests::kubelet::Kubelet;
use tests::node::BOOT_DEADLINE;
use tests::wait::{wait_for, wait_until};

use super::{Both, DEADLINE, POD_DEADLINE, container, machine, wait_runs};

const STATE: &str = "/var/lib/virtlet";
/// kubelet looks every ten seconds.
const STEP_DEADLINE: Duration = Duration::from_secs(120);
/// Of the disk, in MiB, of which kubelet wants two fifths free.
const DISK: u32 = 1000;
/// Bytes of an image that nobody uses. containerd has one twice, as it was packed and as it was unpacked.
const UNUSED: u64 = 230 << 20;
const UNUSED_NAME: &str = "docker.io/library/unused:1";

pub(super) const CASES: &[Case] =
    &[Case { name: "proxy::a_full_disk_costs_unused_images_of_both", deadline: DEADLINE, run: collected }];

fn collected(bed: &Bed) -> Result<()> {
    share_a_disk(bed)?;
    let both = Both::start(bed)?;
    let noise = bed.dir.join("noise");
    io::copy(&mut File::open("/dev/urandom")?.take(UNUSED), &mut File::create(&noise)?)?;
    both.containerd.import(&archive(&bed.dir, UNUSED_NAME, &noise, &[])?)?;
    let qcow2 = bed.dir.join("unused.qcow2");
    sh(&format!("qemu-img convert -f raw -O qcow2 {} {}", noise.display(), qcow2.display()))?;
    let unused = both.node.images.offer("unused.qcow2", &qcow2, Fault::None);
    // Without one the name leads to containerd.
    let image = Some(ImageSpec { image: unused, runtime_handler: "virtlet".into(), ..ImageSpec::default() });
    let request = PullImageRequest { image, ..PullImageRequest::default() };
    let pulled = both.node.cri.image_call(|mut client| async move { client.pull_image(request).await })?;
    let unused = [named(&both.containerd.cri, UNUSED_NAME)?, pulled.image_ref];
    ensure!(unused.iter().all(|id| listed(&both.node.cri).is_ok_and(|ids| ids.contains(id))), "{unused:?}");
    let image = both.node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);

    // Images that are there when kubelet starts it need not see again before it removes them.
    let settings = json!({
        "evictionHard": {"imagefs.available": "40%", "nodefs.available": "1%", "memory.available": "50Mi"},
        "evictionPressureTransitionPeriod": "1s", "imageMinimumGCAge": "1s",
    });
    let kubelet = Kubelet::configured(bed, &settings)?;
    kubelet.apply("vm", &machine("vm", &image))?;
    kubelet.apply("c", &container("c"))?;
    wait_for("removal of what nobody uses", STEP_DEADLINE, || {
        let left = listed(&both.node.cri)?;
        Ok(unused.iter().all(|id| !left.contains(id)).then_some(()))
    })?;
    wait_runs(&kubelet, "vm", BOOT_DEADLINE)?;
    wait_runs(&kubelet, "c", POD_DEADLINE)?;
    named(&both.node.cri, PAUSE)?;
    named(&both.node.cri, "tiny.qcow2")?;
    let at_containerd = listed(&both.containerd.cri)?;
    ensure!(!at_containerd.contains(&unused[0]), "{at_containerd:?}");
    for name in ["vm", "c"] {
        kubelet.delete(name)?;
    }
    wait_until("end of all", POD_DEADLINE, || both.ids().is_ok_and(|ids| ids.is_empty()))?;
    both.containerd.stop()
}

/// Puts the stores of both on one small disk.
fn share_a_disk(bed: &Bed) -> Result<()> {
    let (disk, root) = (bed.dir.join("disk"), Containerd::socket_of(bed, Release::Newest).with_file_name("root"));
    fs::create_dir(&disk)?;
    sh(&format!("mount -t tmpfs -o size={DISK}m,mode=755 small {}", disk.display()))?;
    for (name, place) in [("ours", Path::new(STATE)), ("theirs", &root)] {
        let of = disk.join(name);
        fs::create_dir(&of)?;
        fs::create_dir_all(place)?;
        sh(&format!("mount --bind {} {}", of.display(), place.display()))?;
    }
    Ok(())
}

/// Ids of all images.
fn listed(cri: &Cri) -> Result<Vec<String>> {
    let request = ListImagesRequest::default();
    let images = cri.image_call(|mut client| async move { client.list_images(request).await })?.images;
    Ok(images.into_iter().map(|image| image.id).collect())
}

/// The id of the image one of whose names has this in it.
fn named(cri: &Cri, name: &str) -> Result<String> {
    let request = ListImagesRequest::default();
    let images = cri.image_call(|mut client| async move { client.list_images(request).await })?.images;
    let found = images.iter().find(|image| image.repo_tags.iter().any(|tag| tag.contains(name)));
    found.map(|image| image.id.clone()).ok_or_else(|| anyhow::anyhow!("no `{name}` among {images:?}"))
}
