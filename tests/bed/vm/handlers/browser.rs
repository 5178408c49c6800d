//! A machine's page in a real browser: its screen and its serial console are seen and typed into.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tests::browser::{Browser, Page};
use tests::case::Bed;
use tests::command::command;
use tests::emulator::of_one_thread;
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, Node};
use tests::wait::wait_for;

use super::create;

const HANDLER: &str = "[handlers.desk]\ngraphics = 'vnc'\n";
const LEAVE: Duration = Duration::from_secs(20);
/// How many of the screen's pixels are not black, and a number that other pictures do not have.
const LOOK: &str = "(() => {
    const canvas = document.querySelector('#screen canvas');
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    let lit = 0, sum = 0;
    for (let at = 0; at < pixels.length; at += 4) {
        const colour = pixels[at] | pixels[at + 1] << 8 | pixels[at + 2] << 16;
        if (colour) { lit += 1; }
        sum = (Math.imul(sum, 31) + colour) | 0;
    }
    return [lit, sum];
})()";

pub(super) fn shows(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, &(of_one_thread(bed)? + HANDLER))?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let vm = create(&node, "desk", &image, "", &[])?;
    node.cri.start(&vm.container)?;
    vm.wait_up()?;
    let pod = vm.pod.metadata.clone().unwrap_or_default().name;
    let (mut serves, url) = served(bed, &pod)?;

    let mut browser = Browser::start(bed)?;
    let page = browser.open(&url)?;
    browser.wait(&page, "a screen", "document.body.dataset.screen === 'connected'")?;
    browser.wait(&page, "the pod's name", &format!("document.title.endsWith({})", json!(pod)))?;
    browser.wait(&page, "a screen that shows something", &format!("{LOOK}[0] > 100"))?;
    typed_on_the_screen(&mut browser, &page, || vm.wait_log("Linux version", BOOT_DEADLINE))?;

    browser.eval(&page, "document.getElementById('tab-console').click()")?;
    browser.wait(&page, "a console", "document.body.dataset.console === 'connected'")?;
    // The shell there may have said all it had to say before.
    browser.press(&page, "\nseq 41 43\n")?;
    let says_42 = "[...document.querySelectorAll('.xterm-rows > div')].some((row) => row.textContent.trim() === '42')";
    browser.wait(&page, "an answer on the console", says_42)?;

    // Another browser that has the URL.
    let other = browser.open(&url)?;
    browser.wait(&other, "a refusal", "document.body.innerText.includes('a link does so once')")?;
    browser.eval(&page, "document.getElementById('tab-screen').click()")?;
    browser.eval(&page, "document.getElementById('again').click()")?;
    browser.wait(&page, "the screen again", "document.body.dataset.screen === 'connected'")?;
    browser.wait(&page, "a screen that shows something", &format!("{LOOK}[0] > 100"))?;
    // A refusal, and advice for who reads a canvas as often as this case does.
    let is_ours = |said: &&String| said.contains("403") || said.contains("willReadFrequently");
    let complaints: Vec<_> = browser.complaints().iter().filter(|said| !is_ours(said)).collect();
    ensure!(complaints.is_empty(), "the page complains: {complaints:?}");

    kill(Pid::from_raw(serves.id().cast_signed()), Signal::SIGINT)?;
    let ended = wait_for("end of virtletctl after Ctrl-C", LEAVE, || Ok(serves.try_wait()?))?;
    ensure!(ended.code() == Some(0), "{ended}");
    browser.wait(&page, "a page without a server", "document.body.dataset.screen === 'lost'")?;
    browser.leave()?;
    node.remove_vm(&vm, Duration::ZERO)
}

/// Types a command into the shell on the guest's screen; `arrived` waits for what it does elsewhere.
fn typed_on_the_screen(browser: &mut Browser, page: &Page, arrived: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = browser.eval(page, LOOK)?;
    browser.press(page, "\ndd if=/proc/version of=/dev/console\n")?;
    arrived().context("what was typed on the screen has not reached the guest")?;
    browser.wait(page, "another picture", &format!("{LOOK}[1] !== {}", before[1]))
}

/// virtletctl that serves a pod's page, and the page's URL.
fn served(bed: &Bed, pod: &str) -> Result<(Child, String)> {
    let mut serves = command(bed.program("virtletctl"), ["--socket", CRI_SOCKET, "vnc", "--browser", pod]);
    let mut serves = serves.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(serves.stdout.take().context("no output")?).lines();
    let url = lines.map_while(Result::ok).find(|line| line.starts_with("http://127.0.0.1:")).context("no URL")?;
    Ok((serves, url))
}
