//! Commands in guests: by crictl, through our agent and through QEMU's; and those that are not the guest's.

mod ctl;
mod tls;
mod verbs;

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use proto::cri::{Int64Value, KeyValue, LinuxContainerSecurityContext};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::{Ended, TOOL_DEADLINE, command, finish};
use tests::cri;
use tests::image_server::Fault;
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, CRICTL_TIMEOUT, Node, SHUTDOWN};
use tests::pace;
use tests::wait::{wait_for, wait_guest};

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(5);
/// Of commands that are to be quick although another one hangs or floods.
const SOON: Duration = Duration::from_secs(20);
/// controld asks QEMU's agent for so long to kill a command.
const END: Duration = Duration::from_secs(180);

pub(super) const CASES: &[Case] = &[
    Case { name: "cri::commands_run_by_our_agent", deadline: DEADLINE, run: by_our_agent },
    Case { name: "cri::commands_run_by_qemus_agent_in_a_guest_without_ours", deadline: DEADLINE, run: by_qemus_agent },
    Case {
        name: "cri::sessions_are_over_tls_where_the_server_has_a_certificate",
        deadline: DEADLINE,
        run: tls::sessions,
    },
    Case { name: "cri::verbs_are_done_in_the_guests_place", deadline: DEADLINE, run: verbs::done },
];

/// `crictl exec` in one container.
struct Exec<'a> {
    bed: &'a Bed,
    id: &'a str,
}

impl Exec<'_> {
    /// A line of a shell, in which `exec` is `crictl exec`, `ctl` is virtletctl and `$id` the container.
    fn shell(&self, line: &str) -> Result<Ended> {
        let crictl = self.bed.config.peer("crictl")?;
        let config = self.bed.dir.join("crictl.yaml");
        let timeout = CRICTL_TIMEOUT.as_secs();
        fs::write(&config, format!("runtime-endpoint: unix://{CRI_SOCKET}\ntimeout: {timeout}\n"))?;
        let ctl = self.bed.program("virtletctl");
        let begin = format!(
            "exec() {{ {} -c {} exec \"$@\"; }}; ctl() {{ {} --socket {CRI_SOCKET} \"$@\"; }}; id={}; ",
            crictl.display(),
            config.display(),
            ctl.display(),
            self.id
        );
        let mut bash = command("/bin/bash", ["-c", &format!("{begin}{line}")]);
        // script(1) runs its command in $SHELL, which a job of CI may not have.
        finish(bash.env("SHELL", "/bin/bash"), TOOL_DEADLINE)
    }

    fn prints(&self, line: &str, stdout: &str) -> Result<()> {
        let ended = self.shell(line)?;
        ensure!(ended.code == Some(0) && ended.stdout.trim_end() == stdout, "{line}: {ended:?}");
        Ok(())
    }
}

fn by_our_agent(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    node.cri.pull(&image)?;
    let mut container = cri::container(&image, [].into());
    container.envs = vec![KeyValue { key: "WORD".into(), value: "of the pod's".into() }];
    container.working_dir = "/www".into();
    let vm = node.start_pod(node.pod("exec")?, &container)?;
    let exec = Exec { bed, id: &vm.container };
    // Its seconds are the command's, and not those of a guest that boots.
    exec.prints(&format!("exec -s --timeout {} $id echo up", pace::stretched_seconds(5)), "up")?;
    wait_guest("our agent", BOOT_DEADLINE, || {
        Ok((exec.shell("exec -i $id true </dev/null")?.code == Some(0)).then_some(()))
    })?;

    exec.prints("exec -s $id sh -c 'echo out; echo err >&2' 2>&1 | grep . | sort", "err\nout")?;
    exec.prints("exec -s $id sh -c 'echo $WORD; pwd; id -u'", "of the pod's\n/www\n0")?;
    let failed = exec.shell("exec -s $id sh -c 'exit 3'")?;
    ensure!(failed.code != Some(0) && failed.stderr.contains('3'), "{failed:?}");
    for transport in ["spdy", "websocket"] {
        let with = |rest: &str| rest.replace("exec ", &format!("exec -r {transport} "));
        let ended = exec.shell(&with("exec $id sh -c 'echo out; echo err >&2; exit 3'"))?;
        let told = ended.stdout == "out\n" && ended.stderr.starts_with("err\n") && ended.stderr.contains("exit code 3");
        ensure!(told && ended.code != Some(0), "{transport}: {ended:?}");
        exec.prints(&with("head -c 3000000 /dev/zero | exec -i $id wc -c"), "3000000")?;
        exec.prints(&with("exec $id head -c 3000000 /dev/zero | wc -c"), "3000000")?;
    }
    let terminal = "script -qec \"stty rows 33 cols 77; $(declare -f exec); exec -it $id sh -c 'until stty size | grep -q 33.77; do sleep 1; done; stty size; tty; exit 0'\" /dev/null";
    let ended = exec.shell(&format!("export -f exec; {terminal} </dev/null"))?;
    ensure!(ended.stdout.contains("33 77") && ended.stdout.contains("/dev/pts/"), "terminal: {ended:?}");

    ctl::runs_commands(&exec)?;
    ctl::copies_files(&exec)?;
    // A command that does not end, beside others.
    let began = pace::now();
    let ended = exec.shell("exec -s --timeout 3 $id sh -c 'sleep 4321 & setsid sleep 4321; true'")?;
    ensure!(ended.code != Some(0) && ended.stderr.contains("did not end within 3 s"), "{ended:?}");
    ensure!(began.elapsed() < SOON, "{:?}", began.elapsed());
    exec.prints("exec -s $id sh -c 'ps | grep \"sleep 432[1]\" || echo none'", "none")?;
    // A client that goes away, and a reader that does not read.
    exec.shell(
        "exec $id yes | { read x; sleep 1; }; timeout -s KILL 2 bash -c \"$(declare -f exec); exec $id sleep 4321\"; true",
    )?;
    wait_for("end of commands without a client", SOON, || {
        let ended = exec.shell("exec -s $id sh -c 'ps | grep -E \"ye[s]|sleep 432[1]\" || echo none'")?;
        Ok((ended.stdout.trim_end() == "none").then_some(()))
    })?;
    // The agent is started again by init, and controld finds it.
    exec.shell("exec -s $id killall -9 virtlet-agent")?;
    wait_for("the agent that was started again", SOON, || {
        Ok((exec.shell("exec -i $id true </dev/null")?.code == Some(0)).then_some(()))
    })?;
    agent_powers_off(&node, &exec)?;
    node.remove_vm(&vm, GRACE)
}

/// A guest in which nobody hears the power button.
fn agent_powers_off(node: &Node, exec: &Exec) -> Result<()> {
    exec.prints("exec -s $id sh -c 'killall acpid && echo deaf'", "deaf")?;
    node.cri.stop(exec.id, SHUTDOWN)?;
    let status = node.cri.container(exec.id)?;
    ensure!(status.exit_code == 0 && status.reason == "Completed", "{}: {}", status.exit_code, status.reason);
    Ok(())
}

fn by_qemus_agent(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let mut container = cri::container(&node.pull(bed, "tiny.qcow2")?, [].into());
    // As kubelet says for an image that has no user.
    let user = LinuxContainerSecurityContext { run_as_user: Some(Int64Value { value: 0 }), ..Default::default() };
    container.linux.get_or_insert_default().security_context = Some(user);
    let vm = node.start_pod(node.pod("qga")?, &container)?;
    let exec = Exec { bed, id: &vm.container };
    wait_guest("QEMU's agent", BOOT_DEADLINE, || Ok((exec.shell("exec -s $id true")?.code == Some(0)).then_some(())))?;
    exec.prints("exec -s $id cat /proc/sys/kernel/ostype", "Linux")?;
    exec.prints("exec $id sh -c 'echo out; echo err >&2' 2>&1 | grep . | sort", "err\nout")?;
    let failed = exec.shell("exec -s $id sh -c 'exit 3'")?;
    ensure!(failed.code != Some(0) && failed.stderr.contains('3'), "{failed:?}");
    let interactive = exec.shell("exec -i $id cat </dev/null")?;
    ensure!(
        interactive.stderr.contains("`virtlet-agent` does not answer in the guest, and QEMU's agent"),
        "{interactive:?}"
    );
    let ended = exec.shell("exec -s --timeout 3 $id sh -c 'sleep 4321 & sh -c \"sleep 4321; true\"; true'")?;
    ensure!(ended.code != Some(0) && ended.stderr.contains("did not end within 3 s"), "{ended:?}");
    wait_for("end of a command that was late", END, || {
        let ended = exec.shell("exec -s $id sh -c 'ps | grep \"sleep 432[1]\" || echo none'")?;
        Ok((ended.stdout.trim_end() == "none").then_some(()))
    })?;
    // A guest that floods our agent's port gets what it has asked for, and no more.
    exec.prints(
        "exec -s $id sh -c 'cat /dev/urandom >/dev/virtio-ports/org.virtlet.agent.0 2>/dev/null & echo begun'",
        "begun",
    )?;
    for _ in 0..3 {
        let began = pace::now();
        exec.prints("exec -s $id echo still", "still")?;
        ensure!(began.elapsed() < SOON && node.cri.state(&vm.container).is_ok(), "{:?}", began.elapsed());
    }
    agent_powers_off(&node, &exec)?;
    node.remove_vm(&vm, GRACE)
}
