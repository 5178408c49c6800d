//! KubeVirt's own virtctl against the VM of the case, for a person who wants to see that: its source is not ours to keep, and takes minutes
//! to build. Built of a checkout of KubeVirt, by `go build -o PATH ./cmd/virtctl`, it is run by
//!
//! ```text
//! VIRTLET_VIRTCTL=PATH make test-objects CASE=a_virtual_machine_on_a_node
//! ```
//!
//! Without the variable a client of ours sends the same requests (`streams`), and none of this is done.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests::case::Bed;
use tests::cluster::Cluster;
use tests::command::{TOOL_DEADLINE, command, finish, run};
use tests::controllers::Controllers;
use tests::http;
use tests::node::BOOT_DEADLINE;
use tests::rfb::greet;
use tests::terminal;
use tests::wait::wait_for;

use super::NEWS_DEADLINE;
use crate::kubelet::whole::{STEP_DEADLINE, says};

/// Forwarded to the guest's web server.
const PORT: u16 = 18082;
/// Nobody knows the guest's key.
const SSH_OPTIONS: [&str; 2] =
    ["--local-ssh-opts=-oStrictHostKeyChecking=no", "--local-ssh-opts=-oUserKnownHostsFile=/dev/null"];

/// The program.
pub(super) struct Virtctl<'a> {
    bed: &'a Bed,
    program: PathBuf,
    admin: PathBuf,
}

impl<'a> Virtctl<'a> {
    /// If there is one.
    pub(super) fn of(bed: &'a Bed, cluster: &Cluster) -> Option<Self> {
        Some(Self { bed, program: bed.config.virtctl.clone()?, admin: cluster.admin.clone() })
    }

    /// What it shows of a guest that is up, and what it makes.
    pub(super) fn shows(&self, plane: &mut Controllers, pod: &str, image: &str) -> Result<()> {
        for (words, wanted) in [
            (&["version"][..], "Server Version: "),
            (&["guestosinfo", "db"], "kernelRelease"),
            (&["fslist", "db"], "/data"),
            (&["userlist", "db"], "items"),
            (&["pause", "vm", "db"], "VMI db was scheduled to pause"),
            (&["unpause", "vm", "db"], "VMI db was scheduled to unpause"),
        ] {
            let said = self.run(words)?;
            ensure!(said.contains(wanted), "{words:?}: no `{wanted}`: {said}");
        }
        terminal::answers(self.bed, &mut self.command(&["console", "db"]))?;
        self.views()?;
        self.forwards()?;
        self.logs_in(plane, pod)?;
        self.makes(plane, image)
    }

    /// Start, restart and stop of a VM that is stopped. `now` waits for a run that is not this one.
    pub(super) fn powers(&self, last: &str, now: &mut dyn FnMut(&str) -> Result<String>) -> Result<()> {
        self.asks(&["start", "db"])?;
        let started = now(last)?;
        let refused = self.tried(&["start", "db"])?;
        ensure!(refused.contains("VM is already running"), "{refused}");
        self.asks(&["restart", "db", "--force", "--grace-period=0"])?;
        now(&started)?;
        self.asks(&["stop", "db", "--force", "--grace-period=0"])
    }

    /// Asks the operator for something, once it is done with what was asked before.
    fn asks(&self, words: &[&str]) -> Result<()> {
        wait_for(&format!("virtctl {words:?}"), STEP_DEADLINE, || {
            let ended = finish(&mut self.command(words), TOOL_DEADLINE)?;
            let waits = ended.stderr.contains("another request is under way");
            ensure!(
                waits || ended.code == Some(0) && ended.stdout.contains("was scheduled to"),
                "{words:?}: {ended:?}"
            );
            Ok((!waits).then_some(()))
        })
    }

    fn views(&self) -> Result<()> {
        let picture = self.bed.dir.join("virtctl.png");
        self.run(&["vnc", "screenshot", "db", "--file", &picture.display().to_string()])?;
        ensure!(fs::read(&picture)?.starts_with(b"\x89PNG"), "no picture");
        let mut shows = self.start(&["vnc", "db", "--proxy-only"], "virtctl-vnc.log")?;
        let lines = BufReader::new(shows.stdout.take().context("no output")?).lines();
        let port =
            lines.map_while(Result::ok).find_map(|line| serde_json::from_str::<Value>(&line).ok()?["port"].as_u64());
        let screen = (|| {
            let mut viewer = TcpStream::connect((Ipv4Addr::LOCALHOST, u16::try_from(port.context("no port")?)?))?;
            viewer.set_read_timeout(Some(TOOL_DEADLINE))?;
            greet(&mut viewer)
        })();
        end(shows)?;
        screen.map(drop)
    }

    fn forwards(&self) -> Result<()> {
        for of in ["vm/db", "vmi/db"] {
            let forwards = self.start(&["port-forward", of, &format!("{PORT}:80")], "virtctl-port-forward.log")?;
            let answer = wait_for("answer at a port that virtctl forwards", NEWS_DEADLINE, || {
                Ok(http::get_from(Ipv4Addr::LOCALHOST.into(), PORT, "/cgi-bin/info").ok())
            });
            end(forwards)?;
            ensure!(answer?.contains("cpus 2"), "{of}: not the guest's answer");
        }
        Ok(())
    }

    fn logs_in(&self, plane: &Controllers, pod: &str) -> Result<()> {
        let key = self.bed.dir.join("virtctl.key").display().to_string();
        run(&mut command("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", &key]))?;
        let public = fs::read_to_string(format!("{key}.pub"))?;
        let script = format!(
            "mkdir -p /root/.ssh && echo '{}' >/root/.ssh/authorized_keys && chmod 700 /root/.ssh && chmod 600 /root/.ssh/*",
            public.trim()
        );
        says(plane, pod, &script, "")?;
        let login = ["ssh", "root@vmi/db", "-i", &key, "-c", "echo $((40 + 2))"];
        let mut last = String::new();
        wait_for("login", BOOT_DEADLINE, || {
            let ended = finish(&mut self.command(&[&login[..], &SSH_OPTIONS].concat()), TOOL_DEADLINE)?;
            last = format!("{ended:?}");
            Ok((ended.stdout.trim() == "42").then_some(()))
        })
        .with_context(|| last)
    }

    fn makes(&self, plane: &mut Controllers, image: &str) -> Result<()> {
        let disk = format!("--volume-containerdisk=src:{image}");
        let words = ["create", "vm", "--name=made", "--run-strategy=Halted", "--memory=128Mi", &disk];
        let made = finish(&mut self.command(&words), TOOL_DEADLINE)?;
        ensure!(made.code == Some(0), "{words:?}: {made:?}");
        let file = self.bed.dir.join("made.yaml");
        fs::write(&file, &made.stdout)?;
        plane.kubectl(&["apply", "-f", &file.display().to_string()]).with_context(|| made.stdout)?;
        plane.kubectl(&["delete", "vm", "made"])?;

        self.run(&["expose", "vm", "db", "--name=db-http", "--port=80"])?;
        wait_for("address behind the Service that virtctl made", NEWS_DEADLINE, || {
            let behind = ["get", "endpointslices", "-l", "kubernetes.io/service-name=db-http", "-o"];
            let path = "jsonpath={.items[*].endpoints[*].addresses[*]}";
            Ok((!plane.kubectl(&[&behind[..], &[path]].concat())?.is_empty()).then_some(()))
        })?;
        plane.kubectl(&["delete", "service", "db-http"]).map(drop)
    }

    fn run(&self, words: &[&str]) -> Result<String> {
        let ended = finish(&mut self.command(words), TOOL_DEADLINE)?;
        ensure!(ended.code == Some(0), "virtctl {words:?}: {ended:?}");
        Ok(ended.stdout + &ended.stderr)
    }

    /// What it is refused with.
    fn tried(&self, words: &[&str]) -> Result<String> {
        let ended = finish(&mut self.command(words), TOOL_DEADLINE)?;
        ensure!(ended.code != Some(0), "virtctl {words:?} was not refused: {}", ended.stdout);
        Ok(ended.stderr)
    }

    fn start(&self, words: &[&str], log: &str) -> Result<Child> {
        let log = File::create(self.bed.logs().join(log))?;
        Ok(self.command(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn()?)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut virtctl = command(&self.program, words);
        virtctl.env("KUBECONFIG", &self.admin).env("HOME", &self.bed.dir);
        virtctl
    }
}

fn end(mut program: Child) -> Result<()> {
    program.kill()?;
    program.wait()?;
    Ok(())
}
