//! Images that are volumes of guests.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use proto::cri::{ContainerConfig, ImageSpec, Mount, PodSandboxConfig};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::{command, run};
use tests::cri;
use tests::data_image::data_image;
use tests::image_node::STORE;
use tests::image_server::Fault;
use tests::node::{CRI_SOCKET, Node, Vm};
use tests::store_view::StoreView;

use super::shell::{answers, exec, prints};

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);

pub(super) const CASES: &[Case] =
    &[Case { name: "vm::images_are_disks_that_nobody_writes_to", deadline: DEADLINE, run: volumes }];

pub(super) fn mount(image: &str, path: &str) -> Mount {
    let image = ImageSpec { user_specified_image: "of-the-user".into(), ..cri::spec(image) };
    Mount { container_path: path.into(), readonly: true, image: Some(image), ..Mount::default() }
}

fn boots(bed: &Bed, node: &Node, name: &str, container: &ContainerConfig) -> Result<Vm> {
    answers(bed, node.start_pod(node.pod(name)?, container)?)
}

/// Digests of the images that are there, once nobody's have gone.
fn collected(bed: &Bed) -> Result<BTreeSet<String>> {
    let mut virtletctl = command(bed.program("virtletctl"), ["--socket", CRI_SOCKET]);
    run(virtletctl.args(["image", "gc", "--partials", "--orphan-handlers", "--quarantine"]))?;
    Ok(StoreView::look(Path::new(STORE))?.data)
}

fn volumes(bed: &Bed) -> Result<()> {
    let mut node = Node::configured(bed, "handlers.virtlet.guest_agent = true")?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    let [plain, parted] = [("plain", false), ("parted", true)].map(|(name, partitioned)| {
        let file = data_image(&bed.dir, name, name, partitioned)?;
        let offered = node.images.offer(&format!("{name}.qcow2"), &file, Fault::None);
        Ok::<_, anyhow::Error>((node.cri.pull(&offered)?, offered))
    });
    let ((plain_id, plain), (_, parted)) = (plain?, parted?);
    node.cri.pull(&image)?;
    let container =
        |mounts: &[Mount]| ContainerConfig { mounts: mounts.to_owned(), ..cri::container(&image, [].into()) };
    refused(&node, &container, &plain)?;

    // As kubelet names it, and as a client does that does not say that it is read-only.
    let mounts = [mount(&plain_id, "/models"), Mount { readonly: false, ..mount(&parted, "/srv/parted") }];
    let one = boots(bed, &node, "one", &container(&mounts))?;
    // Nobody's disk is anybody else's hindrance.
    let two = boots(bed, &node, "two", &container(&mounts[..1]))?;
    prints(bed, &one, "cat /models/word /srv/parted/word", "plain\nparted")?;
    prints(bed, &two, "cat /models/word", "plain")?;
    let disk = "disk=$(grep -l '^models' /sys/block/*/serial | cut -d/ -f4)";
    for (line, why) in [
        ("echo x >/models/new", "Read-only file system"),
        ("echo x >/srv/parted/word", "Read-only file system"),
        ("mount -o remount,rw /models", ""),
        ("echo x | dd of=/dev/$disk conv=fsync", ""),
    ] {
        let ended = exec(bed, &one, &format!("{disk}; {line}"))?;
        ensure!(ended.code != Some(0) && ended.stderr.contains(why), "{line}: {ended:?}");
    }
    prints(bed, &one, &format!("{disk}; cat /sys/block/$disk/ro; cat /models/word"), "1\nplain")?;

    let shown = node.cri.container(&one.container)?.mounts;
    let images: Vec<_> = shown.iter().filter_map(|mount| Some((mount.readonly, mount.image.as_ref()?))).collect();
    let [(true, of_plain), (true, of_parted)] = images[..] else { bail!("{shown:?}") };
    ensure!(of_plain.image == plain_id && of_plain.user_specified_image == "of-the-user", "{shown:?}");
    ensure!(of_parted.image.starts_with("sha256:"), "kubelet knows an image in use by its id: {shown:?}");
    let explain = ["--socket", CRI_SOCKET, "explain", "one"];
    let said = run(&mut command(bed.program("virtletctl"), explain))?;
    ensure!(said.contains("of-the-user at /models, of-the-user at /srv/parted"), "{said}");

    // Without a name an image stays as long as somebody has it, whatever becomes of the daemon.
    for name in [&plain, &parted] {
        node.cri.remove_image(name)?;
    }
    let Err(error) = create(&node, "three", &container(&mounts[..1])) else { bail!("of an image that was removed") };
    ensure!(error.message().starts_with("ImageVolumeMountFailed: "), "{error}");
    let has_all = |life: &str| {
        let data = collected(bed)?;
        ensure!(data.len() == 3, "{life}: {data:?}");
        Ok(())
    };
    has_all("first life of the daemon")?;
    node.restart_controld()?;
    has_all("second life of the daemon")?;
    prints(bed, &one, "echo 3 >/proc/sys/vm/drop_caches; cat /models/word /srv/parted/word", "plain\nparted")?;
    let file = Path::new(STORE).join("data").join(plain_id.trim_start_matches("sha256:"));
    ensure!(fs::read(&file)? == fs::read(bed.dir.join("plain.qcow2"))?, "the image was written to");
    node.remove_vm(&one, GRACE)?;
    ensure!(collected(bed)?.len() == 2, "the other pod has one of them");
    node.remove_vm(&two, GRACE)?;
    ensure!(collected(bed)?.len() == 1, "nobody has them any more");
    Ok(())
}

/// A container in a sandbox of its own, which is gone again.
fn create(node: &Node, name: &str, container: &ContainerConfig) -> Result<(), tonic::Status> {
    let pod = node.pod(name).map_err(|error| tonic::Status::internal(error.to_string()))?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let created = node.cri.create(&sandbox, container, &pod).map(drop);
    node.cri.remove_sandbox(&sandbox)?;
    created
}

fn refused(node: &Node, container: &dyn Fn(&[Mount]) -> ContainerConfig, plain: &str) -> Result<()> {
    let at = |path: &str| mount(plain, path);
    let cases: [(&[Mount], &str); 6] = [
        (&[mount("absent.qcow2", "/a")], "image volume at `/a`: no image for the container"),
        (&[Mount { image_sub_path: "word".into(), ..at("/a") }], "image volume at `/a`: `subPath` `word`"),
        (&[Mount { host_path: "/srv".into(), ..at("/a") }], "image volume at `/a`: it has a host path besides"),
        (&[at("/a"), at("/a")], "image volume at `/a`: another volume is mounted there"),
        (&[at("/a/b"), at("/a_b")], "image volume at `/a_b`: it would have the serial `a_b` of another disk"),
        (&[at("/proc/a")], "image volume at `/proc/a`: it cannot be there"),
    ];
    for (mounts, why) in cases {
        let Err(error) = create(node, "refused", &container(mounts)) else { bail!("not refused: {why}") };
        ensure!(error.message().starts_with(&format!("ImageVolumeMountFailed: {why}")), "{error}, not {why}");
    }
    let sata = [("VirtletDiskDriver".to_owned(), "sata".to_owned())];
    let pod = PodSandboxConfig { annotations: sata.into(), ..node.pod("sata")? };
    let sandbox = node.cri.run_sandbox(&pod)?;
    let Err(error) = node.cri.create(&sandbox, &container(&[at("/a")]), &pod) else { bail!("not refused: sata") };
    ensure!(error.message().contains("no disk on the bus `sata` can be read-only"), "{error}");
    node.cri.remove_sandbox(&sandbox)?;
    Ok(())
}
