//! nginx: TLS, client certificates, a proxy, packed files, ranges, and what is asked when nothing changed.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::images::verify_response::Verdict;
use serde_json::json;
use tests::case::{Bed, Case};
use tests::command::{command, run};
use tests::image_node::{ImageNode, STORE};
use tests::peers::ADDRESS;
use tests::peers::disk::Disk;
use tests::peers::nginx::{NAME, Nginx};
use tests::peers::proxy::Proxy;
use tests::store_view::StoreView;
use tests::wait::wait_for;
use tonic::{Code, Status};

const DEADLINE: Duration = Duration::from_secs(480);
const DOWNLOAD_DEADLINE: Duration = Duration::from_secs(120);

pub(super) const CASES: &[Case] = &[
    Case { name: "image::transports_are_kept_to", deadline: DEADLINE, run: transports },
    Case { name: "image::packed_files_are_unpacked", deadline: DEADLINE, run: packed },
    Case { name: "image::an_unchanged_image_costs_one_request", deadline: DEADLINE, run: unchanged },
    Case { name: "image::rot_is_found_and_fetched_anew", deadline: DEADLINE, run: rot },
    Case { name: "image::a_download_goes_on_after_kill_9", deadline: DEADLINE, run: resumed },
];

/// Who is spoken to how, and what becomes of it.
fn transports(bed: &Bed) -> Result<()> {
    let node = ImageNode::start(bed, "", "")?;
    let nginx = Nginx::start(bed)?;
    let proxy = Proxy::start()?;
    let disk = Disk::create(&bed.dir.join("disks"), "disk", 1)?;
    nginx.put("disk.qcow2", &disk.path)?;
    let client = nginx.authority.client()?;
    let ca = json!({"cert": nginx.authority.certificate});
    let shown = json!({"cert": client.certificate, "key": client.key});
    let profiles = json!({
        "trusting": {"tls": {"certificates": [ca]}},
        "known": {"tls": {"certificates": [ca, shown]}},
        "naming": {"tls": {"certificates": [ca], "serverName": NAME}},
        "misnaming": {"tls": {"certificates": [ca], "serverName": "other.test"}},
        "careless": {"tls": {"insecure": true}},
        "around": {"proxy": proxy.url(), "tls": {"certificates": [ca]}},
    });
    let file = "disk.qcow2";
    let rows = [
        ("plain", nginx.plain(file), "", true),
        ("nobody-trusts-it", nginx.tls(file), "", false),
        ("trusted", nginx.tls(file), "trusting", true),
        ("unchecked", nginx.tls(file), "careless", true),
        ("another-name", nginx.named(file), "trusting", false),
        ("the-name", nginx.named(file), "naming", true),
        ("not-the-name", nginx.named(file), "misnaming", false),
        ("no-certificate-shown", nginx.mutual(file), "trusting", false),
        ("certificate-shown", nginx.mutual(file), "known", true),
        ("proxied", nginx.plain(file), "around", true),
        ("tunnelled", nginx.tls(file), "around", true),
        ("password", nginx.plain("private/disk.qcow2").replace("http://", "http://user:secret@"), "", true),
        ("wrong-password", nginx.plain("private/disk.qcow2").replace("http://", "http://user:guess@"), "", false),
    ];
    for (name, url, profile, works) in &rows {
        let rule = json!({"name": name, "url": url, "transport": profile});
        node.translations(&json!({"translations": [rule], "transports": profiles}))?;
        let outcome = node.pull(name);
        match (&outcome, works) {
            (Ok(id), true) => ensure!(*id == disk.id, "{name}: {id}"),
            (Err(refused), false) => ensure!(
                [Code::Unknown, Code::FailedPrecondition, Code::PermissionDenied].contains(&refused.code())
                    && refused.message().contains(ADDRESS)
                    && !refused.message().contains("guess"),
                "{name}: {refused}"
            ),
            _ => anyhow::bail!("{name}: {outcome:?}"),
        }
        node.remove(name, "")?;
    }
    let asked = proxy.asked();
    ensure!(asked.len() == 2, "the proxy was asked {asked:?}");
    ensure!(asked[0].starts_with("GET http://") && asked[1].starts_with("CONNECT "), "the proxy was asked {asked:?}");
    ensure!(!asked[1].contains("disk.qcow2"), "the proxy was told what for: {asked:?}");
    let log = node.controld.log()?;
    ensure!(!log.contains("secret@") && !log.contains("guess"), "a password in the log");
    StoreView::look(Path::new(STORE))?.assert_no_orphans()
}

fn packed(bed: &Bed) -> Result<()> {
    let node = ImageNode::start(bed, "", "")?;
    let nginx = Nginx::start(bed)?;
    let disk = Disk::create(&bed.dir.join("disks"), "disk", 2)?;
    for (tool, suffix) in [("xz", ".xz"), ("gzip", ".gz"), ("zstd", ".zst"), ("bzip2", ".bz2")] {
        let file = format!("disk.qcow2{suffix}");
        nginx.put(&file, &disk.packed(tool, suffix)?)?;
        node.translate(tool, &nginx.plain(&file))?;
        let id = node.pull(tool).with_context(|| format!("a disk packed by {tool}"))?;
        ensure!(id == disk.id, "of {tool}: {id}");
    }
    let images = node.list()?;
    ensure!(images.len() == 1 && images[0].repo_tags.len() == 4, "not one image of four names: {images:?}");
    StoreView::look(Path::new(STORE))?.assert_no_orphans()
}

/// `imagePullPolicy: Always` of an image that is here.
fn unchanged(bed: &Bed) -> Result<()> {
    let mut node = ImageNode::start(bed, "", "")?;
    let nginx = Nginx::start(bed)?;
    let disks = bed.dir.join("disks");
    let (old, new) = (Disk::create(&disks, "old", 3)?, Disk::create(&disks, "new", 4)?);
    nginx.put("disk.qcow2", &old.path)?;
    node.translate("disk", &nginx.plain("disk.qcow2"))?;
    node.pull("disk")?;
    for _again in 0..2 {
        nginx.forget()?;
        ensure!(node.pull("disk")? == old.id, "another image");
        let asked = nginx.asked(1)?;
        ensure!(asked.len() == 1 && asked[0].status == 304 && asked[0].sent == 0, "asked {asked:?}");
        node.restart()?;
    }
    nginx.put("disk.qcow2", &new.path)?;
    // As large as the old one: by its time alone nginx tells them apart, to the second.
    let later = std::time::SystemTime::now() + Duration::from_secs(60);
    fs::File::options().write(true).open(nginx.root().join("disk.qcow2"))?.set_modified(later)?;
    ensure!(node.pull("disk")? == new.id, "the old image");
    let view = StoreView::look(Path::new(STORE))?;
    ensure!(view.data.len() == 1, "both are there: {view:?}");
    view.assert_no_orphans()
}

/// A byte that changed on the disk: found, put aside, and the image fetched again although the server has no other.
fn rot(bed: &Bed) -> Result<()> {
    let node = ImageNode::start(bed, "", "")?;
    let nginx = Nginx::start(bed)?;
    let disk = Disk::create(&bed.dir.join("disks"), "disk", 5)?;
    nginx.put("disk.qcow2", &disk.path)?;
    node.translate("disk", &nginx.plain("disk.qcow2"))?;
    node.pull("disk")?;
    let verdicts = node.verify()?;
    ensure!(verdicts.len() == 1 && verdicts[0].verdict() == Verdict::Sound, "sound: {verdicts:?}");
    let file = Path::new(STORE).join("data").join(disk.id.trim_start_matches("sha256:"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
    fs::File::options().write(true).open(&file)?.write_all_at(b"x", disk.size()? / 2)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444))?;
    let verdicts = node.verify()?;
    ensure!(verdicts.len() == 1 && verdicts[0].verdict() == Verdict::Corrupt, "rotten: {verdicts:?}");
    ensure!(node.status("disk", "")?.is_none() && node.list()?.is_empty(), "still listed");
    ensure!(node.pull("disk")? == disk.id, "another image");
    StoreView::settled(Path::new(STORE))?.assert_no_orphans()
}

/// The daemon dies amid a download; its next life asks for the rest only.
fn resumed(bed: &Bed) -> Result<()> {
    let mut node = ImageNode::start(bed, "", "")?;
    let nginx = Nginx::start(bed)?;
    let image = random_image(&bed.dir.join("disks"), 16)?;
    nginx.put("disk.qcow2", &image)?;
    node.translate("disk", &nginx.plain("slow/disk.qcow2"))?;
    let (outcome, ()) = killed_amid_pull(&node, "disk", || ())?;
    let cut_off = outcome.as_ref().is_err_and(|lost| !lost.message().contains("not pulled"));
    ensure!(cut_off, "it ended by itself: {outcome:?}");
    node.restart()?;
    nginx.forget()?;
    let id = node.pull("disk")?;
    ensure!(id == Disk::of(&image)?.id, "another image: {id}");
    let asked = nginx.asked(1)?;
    ensure!(asked.iter().all(|asked| asked.status == 206 && asked.range != "bytes=0-"), "asked {asked:?}");
    let size = fs::metadata(&image)?.len();
    let sent: u64 = asked.iter().map(|asked| asked.sent).sum();
    ensure!(sent < size - (4 << 20), "{sent} of {size} bytes came again");
    StoreView::look(Path::new(STORE))?.assert_no_orphans()
}

/// Has the daemon die by `kill -9` when half of an image is here and `meanwhile` is done: how its pull ended, and what that found.
pub(super) fn killed_amid_pull<T>(
    node: &ImageNode,
    name: &str,
    meanwhile: impl FnOnce() -> T,
) -> Result<(Result<String, Status>, T)> {
    std::thread::scope(|scope| {
        let pull = scope.spawn(|| node.pull(name));
        let partial = wait_for("half a download", DOWNLOAD_DEADLINE, || {
            Ok((pull.is_finished() || received()? > 6 << 20).then_some(()))
        });
        let found = meanwhile();
        let pid = nix::unistd::Pid::from_raw(node.controld.pid()?.cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)?;
        let outcome = pull.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        partial.map(|()| (outcome, found))
    })
}

/// Bytes of downloads under way, as they take room on the disk.
pub(super) fn received() -> Result<u64> {
    let dir = Path::new(STORE).join("partial");
    if !dir.exists() {
        return Ok(0);
    }
    let sizes = fs::read_dir(dir)?.map(|entry| Ok(std::os::unix::fs::MetadataExt::blocks(&entry?.metadata()?) * 512));
    sizes.sum()
}

/// A qcow2 of so many mebibytes that nothing compresses.
pub(super) fn random_image(dir: &Path, mebibytes: u32) -> Result<std::path::PathBuf> {
    fs::create_dir_all(dir)?;
    let (raw, image) = (dir.join("random.raw"), dir.join("random.qcow2"));
    let (count, of) = (format!("count={mebibytes}"), format!("of={}", raw.display()));
    run(&mut command("dd", ["if=/dev/urandom", &of, "bs=1M", &count, "status=none"]))?;
    run(command("qemu-img", ["convert", "-f", "raw", "-O", "qcow2"]).arg(&raw).arg(&image))?;
    Ok(image)
}
