//! A hand-off: `Get` with a good token, beside a server in C that opens such a tap and passes it, and does no more.
//!
//! Both are asked in turn by processes that are QEMU's user and stand for vmwrapper. A tap has one holder at a time, and a
//! server closes its copy after it has answered: so the bare one has a pod of its own, and ours has several in turn.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::tap::{Client, Token};
use tests::case::Bed;
use tests::command::command;
use tests::net_node::{QEMU, pod_id};
use tests::node::Node;

use super::report::{Pair, Row};
use super::{baseline, p50, timed};

const TAPMANAGER: &str = "/etc/virtlet/tapmanager.toml";
const ROUNDS: usize = 9;
const GETS: usize = 41;
/// Ours; the bare server's is one more.
const PODS: u32 = 16;
/// The pod's first NIC.
const TAP: &str = "tap0";

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let wrapper = fs::read_to_string(TAPMANAGER)?;
    let changed = wrapper.replace(&bed.vmwrapper().display().to_string(), &bed.itself().display().to_string());
    ensure!(changed != wrapper, "{TAPMANAGER} does not name vmwrapper");
    reconfigure(node, &changed)?;
    let pods = (0..PODS).map(pod_id).collect::<Result<Vec<_>>>()?;
    pods.iter().try_for_each(|pod| node.net.attach(pod).map(drop))?;
    let other = pod_id(PODS)?;
    let net = node.net.attach(&other)?;
    let socket = bed.dir.join("chandoff.sock");
    let netns = format!("--net={}", net.netns.display());
    let mut bare = Talker::start(command("nsenter", [&netns]).arg(baseline(bed, "chandoff")?).arg(&socket).arg(TAP))?;
    ensure!(bare.line()? == "ready", "the bare server does not listen");
    let (mut ours, mut theirs) = (client(bed, &node.net.handoff_socket())?, client(bed, &socket)?);

    let mut pairs = Vec::new();
    for _round in 0..ROUNDS {
        let mut samples = [const { Vec::new() }; 2];
        for pod in pods.iter().cycle().take(GETS) {
            let token = node.net.arm(pod)?;
            for (client, samples) in [&mut ours, &mut theirs].into_iter().zip(&mut samples) {
                samples.push(client.ask(token.as_str())?.parse()?);
            }
        }
        let [ours, theirs] = samples;
        pairs.push(Pair { ours: p50(ours)?, baseline: p50(theirs)? });
    }
    drop((ours, theirs, bare));
    pods.iter().chain([&other]).try_for_each(|pod| node.net.detach(pod))?;
    reconfigure(node, &wrapper)?;
    Ok(vec![Row { name: "hand-off Get / bare C server", unit: "us", target: Some(1.3), pairs }])
}

fn client(bed: &Bed, socket: &Path) -> Result<Talker> {
    Talker::start(command(bed.itself(), ["bench", "gets"]).arg(socket).uid(QEMU.uid).gid(QEMU.gid))
}

fn reconfigure(node: &mut Node, config: &str) -> Result<()> {
    fs::write(TAPMANAGER, config)?;
    node.net.tapmanager.kill9()?;
    node.net.tapmanager.start_again()?;
    node.net.wait_ready()
}

/// A process that answers a line with a line. It is killed when it is dropped.
struct Talker {
    child: Child,
    words: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Talker {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let words = child.stdin.take().context("no stdin")?;
        let said = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        Ok(Self { child, words, said })
    }

    fn ask(&mut self, word: &str) -> Result<String> {
        writeln!(self.words, "{word}")?;
        self.line()
    }

    fn line(&mut self) -> Result<String> {
        Ok(self.said.next().context("a process of the hand-off ended")??)
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        // It has ended otherwise.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `bed bench gets SOCKET`: spends the tokens of standard input, and prints the microseconds of each.
#[expect(clippy::print_stdout, reason = "the bench reads it")]
pub(super) fn spend(socket: &Path) -> Result<()> {
    let client = Client::new(socket, Duration::from_secs(10));
    for token in std::io::stdin().lines() {
        let token: Token = token?.parse()?;
        let (micros, got) = timed(|| client.get(token))?;
        // A tap has one holder at a time.
        drop(got);
        println!("{micros}");
    }
    Ok(())
}
