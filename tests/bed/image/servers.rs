//! Servers that lie, stall, never end or lead elsewhere: an error that says so, or the true image; nothing else ever.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::image_node::{ImageNode, STORE};
use tests::image_server::{Fault, ImageServer, Rest};
use tests::pace;
use tests::peers::disk::Disk;
use tests::store_view::StoreView;
use tonic::Code;

const DEADLINE: Duration = Duration::from_secs(480);
/// Far beyond the stall deadline of the node, and its tries.
const REFUSAL_DEADLINE: Duration = Duration::from_secs(60);
/// What the daemon may take beyond what it has at rest.
const MEMORY: u64 = 192 << 20;
const PULLS: usize = 3;

pub(super) const CASES: &[Case] = &[
    Case { name: "image::lying_servers_are_survived", deadline: DEADLINE, run: liars },
    Case { name: "image::redirects_end", deadline: DEADLINE, run: redirects },
    Case { name: "image::the_rest_of_another_file_is_not_taken", deadline: DEADLINE, run: rests },
    Case { name: "image::bombs_are_defused", deadline: Duration::from_secs(480), run: bombs },
];

fn liars(bed: &Bed) -> Result<()> {
    let node = ImageNode::start(bed, "images.stall_deadline_s = 3", "")?;
    let server = ImageServer::start()?;
    let disk = Disk::create(&bed.dir.join("disks"), "disk", 1)?;
    let faults = [
        Fault::StallAfter(100_000),
        Fault::HangUpAfter(100_000),
        Fault::AnnounceMore(4096),
        Fault::AnnounceFewer(4096),
        Fault::Drip,
        Fault::EndlessHead,
        Fault::Page,
        Fault::Encoded,
        Fault::Undelimited,
        Fault::Status(500),
        Fault::Status(403),
        Fault::Status(204),
        Fault::Status(304),
        // The address policy holds for what a redirect leads to.
        Fault::RedirectTo("http://127.0.0.1:8081/sound"),
        Fault::RedirectTo("http://2130706433:8081/sound"),
        Fault::RedirectTo("http://[::ffff:127.0.0.1]:8081/sound"),
        Fault::RedirectTo("http://169.254.169.254/latest"),
        Fault::RedirectTo("file:///etc/passwd"),
    ];
    server.offer("sound", &disk.path, Fault::None);
    for (index, fault) in faults.into_iter().enumerate() {
        let name = format!("bad{index}");
        server.offer(&name, &disk.path, fault);
        node.translate(&name, &server.url(&name))?;
        let started = pace::now();
        let refused = node.pull(&name).err().with_context(|| format!("{fault:?} was pulled"))?;
        ensure!(server.downloads(&name) > 0, "{fault:?}: nobody asked: {refused}");
        ensure!(started.elapsed() < REFUSAL_DEADLINE, "{fault:?} took {:?}", started.elapsed());
        ensure!(refused.code() != Code::Internal && refused.message().len() > 30, "{fault:?}: {refused}");
        ensure!(node.list()?.is_empty(), "{fault:?} left an image");
        StoreView::settled(Path::new(STORE)).with_context(|| format!("after {fault:?}"))?;
    }
    node.translate("sound", &server.url("sound"))?;
    ensure!(node.pull("sound")? == disk.id, "another image");
    StoreView::settled(Path::new(STORE))?.assert_no_orphans()
}

fn redirects(bed: &Bed) -> Result<()> {
    let node = ImageNode::start(bed, "", "")?;
    let server = ImageServer::start()?;
    let disk = Disk::create(&bed.dir.join("disks"), "disk", 1)?;
    let profiles = json!({"none": {"maxRedirects": 0}, "two": {"maxRedirects": 2}});
    for (profile, hops, works) in [
        ("", 0, true),
        ("", 1, true),
        ("", 9, true),
        ("", 10, false),
        ("", 11, false),
        ("", u32::MAX, false),
        ("none", 0, true),
        ("none", 1, false),
        ("two", 2, true),
        ("two", 3, false),
    ] {
        server.offer("hops", &disk.path, Fault::Redirects(hops));
        let rule = json!({"name": "hops", "url": server.url("hops"), "transport": profile});
        node.translations(&json!({"translations": [rule], "transports": profiles}))?;
        let outcome = node.pull("hops");
        ensure!(outcome.is_ok() == works, "{hops} redirects, profile `{profile}`: {outcome:?}");
        node.remove("hops", "")?;
    }
    Ok(())
}

fn rests(bed: &Bed) -> Result<()> {
    let node = ImageNode::start(bed, "", "")?;
    let server = ImageServer::start()?;
    let disk = Disk::create(&bed.dir.join("disks"), "disk", 1)?;
    for rest in
        [Rest::Sound, Rest::Whole, Rest::OtherPart, Rest::OtherSize, Rest::Unsaid, Rest::OtherFile, Rest::Refused]
    {
        server.offer("rest", &disk.path, Fault::Resumes(rest));
        node.translate("rest", &server.url("rest"))?;
        let mut outcome = node.pull("rest");
        for _again in 1..PULLS {
            if outcome.is_err() {
                outcome = node.pull("rest");
            }
        }
        let asked = server.asked("rest");
        ensure!(asked.iter().flatten().any(|from| *from > 0), "{rest:?}: nobody asked for the rest: {asked:?}");
        match (rest, outcome) {
            (_, Ok(id)) => ensure!(id == disk.id, "{rest:?}: another image"),
            (Rest::Sound | Rest::Whole | Rest::Refused, Err(refused)) => anyhow::bail!("{rest:?}: {refused}"),
            (_, Err(refused)) => ensure!(refused.code() != Code::Internal, "{rest:?}: {refused}"),
        }
        node.remove("rest", "")?;
        StoreView::settled(Path::new(STORE)).with_context(|| format!("after {rest:?}"))?.assert_no_orphans()?;
    }
    Ok(())
}

/// A little that becomes very much, and decoders that want all memory.
fn bombs(bed: &Bed) -> Result<()> {
    let node = ImageNode::start(bed, "images.allow_raw = true", "")?;
    let server = ImageServer::start()?;
    let dir = bed.dir.join("bombs");
    std::fs::create_dir_all(&dir)?;
    let at = |name: &str| dir.join(name);
    // More than the GiB that may come out of anything, not zeros, of some hundred KiB: holes and blocks of zeros cost
    // nothing and are no bomb.
    let text = dir.join("text");
    let script = format!("yes 'not a zero' | head -c 1200M | zstd -q >{}", at("bomb.zst").display());
    tests::command::run(&mut tests::command::command("bash", ["-c", &script]))?;
    std::fs::write(&text, vec![b'x'; 1 << 20])?;
    for line in [
        format!("cp {} {}", text.display(), at("dictionary").display()),
        format!("xz -q --lzma2=dict=1536MiB {}", at("dictionary").display()),
    ] {
        sh(&line)?;
    }
    // zstd makes the window no larger than what it packs, so this is made by hand (RFC 8878, 3.1.1): a frame that wants
    // 2 GiB of window for one block of 1 KiB.
    let mut window = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (31 - 10) << 3];
    let last_raw_block = 1024_u32 << 3 | 1;
    window.extend(&last_raw_block.to_le_bytes()[..3]);
    window.extend([b'x'; 1024]);
    std::fs::write(at("window.zst"), window)?;
    let rest = node.peak_memory()?;
    for name in ["bomb.zst", "dictionary.xz", "window.zst"] {
        server.offer(name, &at(name), Fault::None);
        node.translate("bomb", &server.url(name))?;
        let refused = node.pull("bomb").err().with_context(|| format!("{name} was pulled"))?;
        let codes = [Code::FailedPrecondition, Code::ResourceExhausted];
        ensure!(codes.contains(&refused.code()), "{name}: {refused}");
        StoreView::settled(Path::new(STORE)).with_context(|| format!("after {name}"))?.assert_no_orphans()?;
        let taken = node.peak_memory()?.saturating_sub(rest);
        ensure!(taken < MEMORY, "{name} took {} MiB of memory", taken >> 20);
    }
    ensure!(node.list()?.is_empty(), "a bomb is an image");
    Ok(())
}
