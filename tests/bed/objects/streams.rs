//! Subresources of a VM on a real node, by the requests that virtctl sends, through the API server: its console, screen and ports, what its
//! guest tells, what is done to it, and who may; and some of it by our own `virtletctl vm`. What the same requests are by virtctl itself, `virtctl`
//! shows.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::Bed;
use tests::cluster::Cluster;
use tests::command::{command, run, sh};
use tests::controllers::Controllers;
use tests::node::BOOT_DEADLINE;
use tests::rfb::{Screen, greet, picture};
use tests::subresources::{AT, Answer, Asker};
use tests::subresources_server::ADDRESS;
use tests::wait::{wait_for, wait_guest};

use super::NEWS_DEADLINE;
use crate::kubelet::whole::STEP_DEADLINE;

const VMI: &str = "default/virtualmachineinstances/db";
const VM: &str = "default/virtualmachines/db";
/// A node has no more of one VM.
const SESSIONS_OF_ONE: usize = 64;
const ACCEPTED: u16 = 202;
/// Nobody is asked through it.
const PROXY: (&str, &str) = ("HTTPS_PROXY", "http://user:word@127.0.0.1:1");
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Those who ask.
pub(super) struct Asking<'a> {
    bed: &'a Bed,
    kubeconfig: PathBuf,
    admin: Asker,
    /// She may see screens, and nothing else.
    jane: Asker,
}

impl<'a> Asking<'a> {
    pub(super) fn of(bed: &'a Bed, cluster: &Cluster) -> Result<Self> {
        let (admin, jane) = (Asker::of(&cluster.admin, None)?, Asker::of(&cluster.admin, Some("jane"))?);
        Ok(Self { bed, kubeconfig: cluster.admin.clone(), admin, jane })
    }

    /// All that shows or streams, of a guest that is up.
    pub(super) fn shown(&self, plane: &mut Controllers) -> Result<()> {
        self.told()?;
        self.forwarded()?;
        let screen = self.pictured()?;
        self.viewed(plane, screen)?;
        self.typed()?;
        self.frozen()?;
        self.crowded()?;
        self.boots_again()
    }

    /// Has something done to the instance; what makes no sense then is a conflict.
    pub(super) fn act(&self, verb: &str) -> Result<()> {
        self.done(&format!("{VMI}/{verb}"), "{}")?;
        let wrong = match verb {
            "pause" => [("pause", "the VM is paused already"), ("softreboot", "paused")],
            _ => [("unpause", "the VM is not paused"); 2],
        };
        wrong.iter().try_for_each(|(verb, why)| self.conflicts(&format!("{VMI}/{verb}"), why))
    }

    /// Has the operator start, stop or restart the VM.
    pub(super) fn power(&self, verb: &str, body: &str) -> Result<()> {
        let answer = self.asked(verb, body)?;
        ensure!(answer.code == ACCEPTED && answer.body.is_empty(), "{verb}: {}: {}", answer.code, answer.message());
        Ok(())
    }

    /// The VM is not in a state for that.
    pub(super) fn not_now(&self, verb: &str, why: &str) -> Result<()> {
        conflict(&self.asked(verb, "{}")?, why)
    }

    /// What is answered once the operator is done with the request before.
    fn asked(&self, verb: &str, body: &str) -> Result<Answer> {
        wait_for(&format!("answer to {verb}"), STEP_DEADLINE, || {
            let answer = self.admin.put(&format!("{VM}/{verb}"), body)?;
            let waits = answer.code == 409 && answer.message().contains("another request is under way");
            Ok((!waits).then_some(answer))
        })
    }

    fn done(&self, path: &str, body: &str) -> Result<()> {
        let answer = self.admin.put(path, body)?;
        ensure!(answer.code == ACCEPTED && answer.body.is_empty(), "{path}: {}: {}", answer.code, answer.message());
        Ok(())
    }

    fn conflicts(&self, path: &str, why: &str) -> Result<()> {
        conflict(&self.admin.put(path, "{}")?, why)
    }

    fn object(&self, what: &str) -> Result<Value> {
        let answer = self.admin.get(&format!("{VMI}/{what}"))?;
        ensure!(answer.code == 200, "{what}: {}: {}", answer.code, answer.message());
        answer.object()
    }

    /// What QEMU's agent in the guest tells.
    fn told(&self) -> Result<()> {
        let told = wait_guest("QEMU's agent", BOOT_DEADLINE, || {
            let answer = self.admin.get(&format!("{VMI}/guestosinfo"))?;
            // It is not there yet, or does not answer yet.
            ensure!([200, 409, 503].contains(&answer.code), "{}: {}", answer.code, answer.message());
            if answer.code == 200 { answer.object().map(Some) } else { Ok(None) }
        })?;
        let is_known =
            told["kind"] == "VirtualMachineInstanceGuestAgentInfo" && told["os"]["kernelRelease"].is_string();
        ensure!(is_known, "{told}");
        let told = self.object("filesystemlist")?;
        let data = told["items"].as_array().and_then(|all| all.iter().find(|one| one["mountPoint"] == "/data"));
        ensure!(data.is_some_and(|data| data["fileSystemType"] == "ext4"), "{told}");
        let told = self.object("userlist")?;
        ensure!(told["kind"] == "VirtualMachineInstanceGuestOSUserList" && told["items"].is_array(), "{told}");
        Ok(())
    }

    fn forwarded(&self) -> Result<()> {
        for path in [format!("{VMI}/portforward/80"), format!("{VM}/portforward/80/tcp")] {
            let (mut port, mut answer) = (self.admin.open(&path)?, String::new());
            port.write_all(b"GET /cgi-bin/info HTTP/1.0\r\n\r\n")?;
            // Its end comes across, too.
            port.read_to_string(&mut answer)?;
            ensure!(answer.contains("cpus 2"), "{path}: {answer:?}");
        }
        // Nobody listens there, which is known only after the stream has begun.
        let mut shut = self.admin.open(&format!("{VMI}/portforward/81"))?;
        ensure!(shut.read(&mut [0])? == 0, "bytes of a port where nobody listens");
        Ok(())
    }

    fn pictured(&self) -> Result<Screen> {
        let answer = self.admin.get(&format!("{VMI}/vnc/screenshot?moveCursor=true"))?;
        ensure!(answer.code == 200, "{}: {}", answer.code, answer.message());
        size(&answer.body)
    }

    /// The screen, by who may see that and nothing else.
    fn viewed(&self, plane: &mut Controllers, pictured: Screen) -> Result<()> {
        let path = format!("{VMI}/vnc");
        let mut first = self.admin.open(&path)?;
        let screen = greet(&mut first)?;
        ensure!(screen == pictured, "{screen:?}, and in a picture {pictured:?}");
        picture(&mut first, screen)?;
        says(&self.admin.refused(&format!("{path}?preserveSession=true"))?, 409, "somebody views the screen")?;

        says(&self.jane.refused(&path)?, 403, "cannot get resource")?;
        plane.apply(&[role(), binding()])?;
        let mut second = wait_for("right to see a screen", NEWS_DEADLINE, || match self.jane.open(&path) {
            Ok(stream) => Ok(Some(stream)),
            Err(refused) if format!("{refused:#}").contains("orbidden") => Ok(None),
            Err(other) => Err(other),
        })?;
        greet(&mut second)?;
        ensure!(first.read(&mut [0])? == 0, "two viewers at a time");
        for other in ["console", "portforward/80", "vnc/screenshot"] {
            says(&self.jane.refused(&format!("{VMI}/{other}"))?, 403, "cannot get resource")?;
        }
        says(&self.jane.put(&format!("{VMI}/pause"), "{}")?, 403, "cannot update resource")?;

        // Whoever comes by another way than the API server may say who asks, and is nobody.
        let says_who = "-H X-Remote-User:admin -H X-Remote-Group:system:masters";
        let stream = "-H Connection:Upgrade -H Upgrade:websocket -H Sec-WebSocket-Version:13 -H Sec-WebSocket-Key:AAAAAAAAAAAAAAAAAAAAAA==";
        let told = sh(&format!(
            "curl -sk --http1.1 -o /dev/null -w %{{http_code}} {says_who} {stream} https://{ADDRESS}{AT}/{VMI}/console"
        ))?;
        ensure!(told == "401", "headers of anybody are believed: {told}");
        Ok(())
    }

    /// By our own program, which takes no proxy from the environment.
    fn typed(&self) -> Result<()> {
        for (words, wanted) in [
            (&["get", "-o", "name"][..], "virtualmachine.kubevirt.io/db\nvirtualmachineinstance.kubevirt.io/db\n"),
            (&["pause", "db"], "virtualmachineinstance/db paused\n"),
            (&["unpause", "db"], "virtualmachineinstance/db unpaused\n"),
        ] {
            let told = run(&mut self.ctl(words))?;
            ensure!(told == wanted, "vm {words:?}: {told:?}");
        }
        // Its input ends long before the answer comes.
        let screen = self.bed.dir.join("console");
        let mut console = self
            .ctl(&["console", "db"])
            .stdin(Stdio::piped())
            .stdout(File::create(&screen)?)
            .stderr(File::create(self.bed.logs().join("console.log"))?)
            .spawn()?;
        let keys = console.stdin.take().context("no pipe")?.write_all(b"\nsleep 2; echo answer-$((40 + 1))\n");
        let answered = wait_for("answer to what is piped into a console", STEP_DEADLINE, || {
            Ok(fs::read_to_string(&screen)?.contains("answer-41").then_some(()))
        });
        let has_ended = console.try_wait()?;
        console.kill()?;
        console.wait()?;
        keys?;
        answered?;
        ensure!(has_ended.is_none(), "a console that ends with its input: {has_ended:?}");
        Ok(())
    }

    fn ctl(&self, words: &[&str]) -> Command {
        let mut ctl = command(self.bed.program("virtletctl"), ["vm"]);
        ctl.args(words).env("KUBECONFIG", &self.kubeconfig).env(PROXY.0, PROXY.1);
        ctl
    }

    fn frozen(&self) -> Result<()> {
        let is = |status: &str| -> Result<()> {
            let told = self.object("guestosinfo")?;
            ensure!(told["fsFreezeStatus"] == status, "not {status}: {told}");
            Ok(())
        };
        self.done(&format!("{VMI}/freeze"), r#"{"unfreezeTimeout":"10m0s"}"#)?;
        is("frozen")?;
        self.conflicts(&format!("{VMI}/freeze"), "frozen already")?;
        self.done(&format!("{VMI}/unfreeze"), "{}")?;
        is("thawed")
    }

    /// As many consoles as a node has of one VM, whose clients read nothing, and leave without a word.
    fn crowded(&self) -> Result<()> {
        let path = format!("{VMI}/console");
        let mut all = Vec::new();
        let refused = loop {
            ensure!(all.len() <= SESSIONS_OF_ONE, "{} consoles of one VM", all.len());
            match self.admin.tried(&path)? {
                Ok(console) => all.push(console),
                Err(answer) => break answer,
            }
        };
        // Sessions with its screen may not be over yet.
        ensure!(all.len() > SESSIONS_OF_ONE / 2, "{} consoles of one VM", all.len());
        says(&refused, 429, "have 64 sessions")?;
        drop(all);
        wait_for("places that clients have left", NEWS_DEADLINE, || {
            let some = (0..SESSIONS_OF_ONE / 8).map(|_| self.admin.tried(&path)).collect::<Result<Vec<_>>>()?;
            Ok(some.iter().all(Result::is_ok).then_some(()))
        })
    }

    /// What is typed on the console is answered there, and a stream goes on while the guest boots anew.
    fn boots_again(&self) -> Result<()> {
        let mut console = self.admin.open(&format!("{VMI}/console"))?;
        let mut beside = self.admin.open(&format!("{VMI}/console"))?;
        console.write_all(b"\necho answer-$((40 + 2))\n")?;
        console.until("answer-42")?;
        beside.write_all(b"echo answer-$((40 + 3))\n")?;
        beside.until("answer-43")?;
        console.until("answer-43")?;
        drop(beside);
        self.done(&format!("{VMI}/softreboot"), "")?;
        console.until("ready: boot number 2").map(drop).context("on the console")
    }
}

/// As KubeVirt says that an object is not in a state for something, and why.
fn conflict(answer: &Answer, why: &str) -> Result<()> {
    says(answer, 409, "Operation cannot be fulfilled on virtualmachine")?;
    says(answer, 409, why)
}

/// What an answer is.
fn says(answer: &Answer, code: u16, text: &str) -> Result<()> {
    let told = answer.message();
    ensure!(answer.code == code && told.contains(text), "not {code} with `{text}`: {}: {told}", answer.code);
    Ok(())
}

/// Of a picture, as its first block says.
fn size(png: &[u8]) -> Result<Screen> {
    let head = png.strip_prefix(PNG).and_then(|rest| rest.first_chunk::<16>());
    let Some([_, _, _, _, b'I', b'H', b'D', b'R', 0, 0, w, x, 0, 0, h, y]) = head else {
        anyhow::bail!("no picture: {:?}", png.get(..32))
    };
    Ok(Screen { width: u16::from_be_bytes([*w, *x]), height: u16::from_be_bytes([*h, *y]) })
}

fn role() -> Value {
    let rule = json!({
        "apiGroups": ["subresources.kubevirt.io"], "resources": ["virtualmachineinstances/vnc"], "verbs": ["get"],
    });
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "screens"}, "rules": [rule],
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "screens"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}],
    })
}
