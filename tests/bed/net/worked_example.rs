//! The worked example of `docs/cni-integration.md`, as it stands there: a document that is run does not rot.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests::case::{Bed, Case};
use tests::command::{command, finish};
use tests::world::World;

const DOCUMENT: &str = include_str!("../../../docs/cni-integration.md");
const HEADING: &str = "## A worked example";
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// An emulated machine boots in it.
const DEADLINE: Duration = Duration::from_secs(480);
const SCRIPT_DEADLINE: Duration = Duration::from_secs(400);

pub(super) const CASES: &[Case] = &[Case { name: "net::worked_example_of_the_documentation", deadline: DEADLINE, run }];

fn run(bed: &Bed) -> Result<()> {
    let script = script(DOCUMENT)?;
    let dir = bed.dir.join("reader");
    let tools = dir.join("tools");
    fs::create_dir_all(&tools)?;
    fs::create_dir_all("/run/netns")?;
    // The reader's PATH: what is under test, and a ping, which a reader has.
    symlink("/bin/busybox", tools.join("ping"))?;
    let path = format!("{}:{}:{PATH}", bed.dir.join("bin").display(), tools.display());
    let (kernel, initrd) = (bed.config.guest("tiny.vmlinuz")?, bed.config.guest("tiny.initrd")?);
    let before = World::look()?;
    let mut reader = command("bash", ["-euxo", "pipefail", "-c", &script]);
    reader.current_dir(&dir).env("PATH", path).env("GUEST", format!("{},{}", kernel.display(), initrd.display()));
    let ended = finish(&mut reader, SCRIPT_DEADLINE)?;
    let log = |file: &str| fs::read_to_string(dir.join("try").join(file)).unwrap_or_default();
    ensure!(
        ended.code == Some(0),
        "the example ended with {:?}\n{}{}\n--- guest\n{}\n--- tapmanager\n{}",
        ended.code,
        ended.stdout,
        ended.stderr,
        log("guest.log"),
        log("tapmanager.log")
    );
    // host-local keeps its directory, with a lock and the last addresses.
    before.assert_same_but(|thing| thing.starts_with("file /var/lib/cni/networks"))
}

/// The code blocks behind the heading, one after the other.
fn script(document: &str) -> Result<String> {
    let (_, example) = document.split_once(HEADING).context("the document has no worked example")?;
    let blocks: Vec<&str> = example.split("\n```sh\n").skip(1).filter_map(|rest| rest.split("\n```").next()).collect();
    ensure!(blocks.len() > 1, "the worked example has no code");
    Ok(blocks.join("\n"))
}
