//! Names, servers and images that must be refused: a clear error each, nothing in the store, the daemon none the worse.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::image_server::Fault;
use tests::node::Node;
use tests::pace;
use tests::world::World;
use tonic::Code;

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] = &[
    Case { name: "cri::bad_image_names_are_refused", deadline: DEADLINE, run: names },
    Case { name: "cri::bad_image_servers_are_survived", deadline: DEADLINE, run: servers },
    Case { name: "cri::hostile_images_are_refused", deadline: DEADLINE, run: hostile },
    Case { name: "cri::pulls_of_one_image_share_a_download", deadline: DEADLINE, run: shared },
];

fn names(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let before = World::look()?;
    let long = "a".repeat(300);
    let bad = [
        "",
        "Upper",
        "127.0.0.1/Tiny",
        "../../etc/passwd",
        "a/../b",
        "/abs",
        "a//b",
        "file:///etc/passwd",
        "a b",
        "a:b:c",
        "sha256:zz",
        &long,
    ];
    for name in bad {
        let refused = node.cri.pull(name).err().with_context(|| format!("`{name}` was pulled"))?;
        ensure!(refused.code() == Code::InvalidArgument, "`{name}`: {refused}");
    }
    let absent = node.cri.pull("127.0.0.1:8081/absent").err().context("an absent image was pulled")?;
    ensure!(absent.code() == Code::NotFound, "absent: {absent}");
    before.assert_same()
}

fn servers(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, "images.stall_deadline_s = 3")?;
    let before = World::look()?;
    let tiny = bed.config.guest("tiny.qcow2")?;
    let faults = [
        Fault::StallAfter(100_000),
        Fault::StallAfter(0),
        Fault::HangUpAfter(100_000),
        Fault::HangUpAfter(0),
        Fault::AnnounceMore(4096),
        Fault::AnnounceFewer(4096),
        Fault::Status(404),
        Fault::Status(500),
        Fault::Status(204),
        Fault::Status(302),
    ];
    for (index, fault) in faults.into_iter().enumerate() {
        let name = node.images.offer(&format!("bad{index}.qcow2"), &tiny, fault);
        let started = pace::now();
        let refused = node.cri.pull(&name).err().with_context(|| format!("{fault:?} was pulled"))?;
        ensure!(started.elapsed() < Duration::from_secs(20), "{fault:?} took {:?}", started.elapsed());
        ensure!(
            refused.message().contains(&format!("bad{index}")) && refused.code() != Code::Internal,
            "{fault:?}: {refused}"
        );
        before.assert_same().with_context(|| format!("after {fault:?}"))?;
    }
    let nobody = node.cri.pull("127.0.0.1:9/tiny").err().context("nobody served an image")?;
    ensure!(nobody.code() == Code::Unknown && nobody.message().starts_with("RegistryUnavailable"), "nobody: {nobody}");
    node.pull(bed, "tiny.qcow2").context("a sound server after all")?;
    Ok(())
}

fn hostile(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let before = World::look()?;
    let images = make_images(&bed.dir.join("hostile"), &bed.config.guest("tiny.qcow2")?)?;
    for image in images {
        let file = image.file_name().and_then(|name| name.to_str()).context("no name")?.to_owned();
        let name = node.images.offer(&file, &image, Fault::None);
        let refused = node.cri.pull(&name).err().with_context(|| format!("{file} was pulled"))?;
        let codes = [Code::InvalidArgument, Code::FailedPrecondition, Code::Unavailable, Code::Unknown];
        ensure!(codes.contains(&refused.code()), "{file}: {refused}");
        ensure!(refused.message().len() > 30, "{file}: hardly an explanation: {refused}");
        before.assert_same().with_context(|| format!("after {file}"))?;
    }
    Ok(())
}

fn make_images(dir: &Path, tiny: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir(dir)?;
    let at = |name: &str| dir.join(name);
    let show = |path: &Path| path.display().to_string();
    sh(&format!("qemu-img create -q -f qcow2 -F raw -b /etc/shadow {} 1M", show(&at("backing.qcow2"))))?;
    sh(&format!("qemu-img create -q -f qcow2 -o data_file={} {} 1M", show(&at("data")), show(&at("data-file.qcow2"))))?;
    sh(&format!("qemu-img create -q -f vmdk {} 1M", show(&at("image.vmdk"))))?;
    sh(&format!("qemu-img create -q -f qcow2 {} 100T", show(&at("huge.qcow2"))))?;
    sh(&format!("qemu-img create -q -f raw {} 1M", show(&at("raw.img"))))?;
    let head = fs::read(tiny)?;
    for (name, len) in [("empty.qcow2", 0), ("four.qcow2", 4), ("cut.qcow2", 60)] {
        File::create(at(name))?.write_all(head.get(..len).unwrap_or_default())?;
    }
    // The header's fields of the qcow2 specification, by offset.
    for (name, offset, value) in [
        ("version-9.qcow2", 4, 9_u32.to_be_bytes().to_vec()),
        ("clusters-of-2-pow-63.qcow2", 20, 63_u32.to_be_bytes().to_vec()),
        ("encrypted.qcow2", 32, 1_u32.to_be_bytes().to_vec()),
        ("unknown-features.qcow2", 72, (1_u64 << 60).to_be_bytes().to_vec()),
        ("table-beyond-the-end.qcow2", 40, (1_u64 << 60).to_be_bytes().to_vec()),
    ] {
        let mut bytes = head.clone();
        for (slot, byte) in bytes.iter_mut().skip(offset).zip(value) {
            *slot = byte;
        }
        fs::write(at(name), bytes)?;
    }
    fs::write(at("page.html"), "<html>not an image</html>".repeat(100))?;
    let mut images: Vec<PathBuf> = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    images.retain(|path| !path.ends_with("data"));
    images.sort();
    Ok(images)
}

fn shared(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let slow = Fault::Slow(pace::stretched(Duration::from_millis(20)));
    let name = node.images.offer("slow.qcow2", &bed.config.guest("tiny.qcow2")?, slow);
    let ids = std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..4).map(|_| scope.spawn(|| node.cri.pull(&name))).collect();
        let joined = pulls.into_iter().map(|pull| pull.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect::<Result<Vec<_>, _>>()
    })?;
    ensure!(ids.windows(2).all(|pair| pair[0] == pair[1]), "different ids: {ids:?}");
    ensure!(node.images.downloads("slow.qcow2") == 1, "{} downloads", node.images.downloads("slow.qcow2"));
    Ok(())
}
