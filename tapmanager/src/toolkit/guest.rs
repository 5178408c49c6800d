//! A small machine behind a pod's taps, with its serial console here. Called by `attach --shell`.
//!
//! QEMU is started as libvirt starts it on a node: `vmwrapper` in its place with a token in the environment, as QEMU's
//! user, so that the hand-off is the real one. With a terminal QEMU has it; else the input is a script ([`console`]).
//!
//! [`console`]: super::console

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use common::off_reactor;
use nix::unistd::{AccessFlags, access};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::cli::{Attach, INITRD, KERNEL};
use super::console::{Script, Step};
use super::error::ToolError;
use super::node::Node;
use super::qemu_user;
use crate::config::Config;

/// For a kernel of ours; a disk says its own. Mitigations cost seconds of an emulated start, and in one that has to wait for a processor
/// the kernel takes its timer for broken.
const KERNEL_WORDS: &str = "console=ttyS0 quiet no_timer_check mitigations=off random.trust_cpu=on panic=-1";
const QEMU: &str = "qemu-system-x86_64";
const KVM: &str = "/dev/kvm";
const MEMORY_MIB: &str = "512";
/// What vmwrapper takes: `0x10` to `0x1e` of `pcie.0`.
const FIRST_SLOT: usize = 0x10;
const MAX_NICS: usize = 15;
/// Bytes of what QEMU says that are told.
const MAX_SAID: u64 = 64 << 10;
/// First bytes of a qcow2 image (QEMU's docs/interop/qcow2.rst).
const QCOW2: [u8; 4] = *b"QFI\xfb";

/// What the guest is made of, looked at before anything is attached.
#[derive(Debug)]
pub(super) struct Images {
    qemu: PathBuf,
    boot: Boot,
}

#[derive(Debug, PartialEq, Eq)]
enum Boot {
    Kernel { kernel: PathBuf, initrd: PathBuf },
    Disk { image: PathBuf, format: &'static str },
}

impl Images {
    pub(super) fn find(wanted: &Attach) -> Result<Self, ToolError> {
        let qemu = find_program(QEMU, std::env::var_os("PATH").as_deref())?;
        let boot = match (&wanted.disk, &wanted.guest) {
            (Some(image), _) => Boot::Disk { image: image.clone(), format: format_of(image)? },
            (None, Some((kernel, initrd))) => Boot::Kernel { kernel: kernel.clone(), initrd: initrd.clone() },
            (None, None) => Boot::Kernel { kernel: KERNEL.into(), initrd: INITRD.into() },
        };
        if let Boot::Kernel { kernel, initrd } = &boot {
            for path in [kernel, initrd] {
                File::open(path).map_err(|cause| ToolError::File { path: path.clone(), cause })?;
            }
        }
        Ok(Self { qemu, boot })
    }
}

/// Boots the guest and stays until it is gone, or its script is done.
pub(super) async fn run(
    wanted: &Attach,
    config: &Config,
    images: Images,
    nics: usize,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    if nics == 0 || nics > MAX_NICS {
        return Err(ToolError::Nics(nics));
    }
    if !config.vmwrapper.exists() {
        let program = config.vmwrapper.display().to_string();
        return Err(ToolError::Absent { program, remedy: "install virtlet-rs whole, or set `vmwrapper`" });
    }
    let user = qemu_user(config)?;
    let (node, pod) = (Node::of(config), wanted.pod.clone());
    let token = off_reactor(move || node.arm(&pod)).await?;
    let interactive = io::stdin().is_terminal();
    let slots: Vec<String> = (FIRST_SLOT..).take(nics).map(|slot| format!("{slot:#04x}")).collect();
    let mut command = Command::new(&config.vmwrapper);
    command
        .args(arguments(&images.boot, wanted.queues.unwrap_or(1), accel(wanted.no_kvm), interactive))
        .env("VIRTLET_HANDOFF", config.handoff_socket())
        .env("VIRTLET_TOKEN", token.as_str())
        .env("VIRTLET_EMULATOR", &images.qemu)
        .env("VIRTLET_NICS", slots.join(","))
        .uid(user.uid)
        .gid(user.gid)
        .kill_on_drop(true);
    if interactive {
        super::tell("Ctrl-A X ends the guest\n");
        return by_terminal(command).await;
    }
    by_script(command, wanted, out).await
}

async fn by_terminal(mut command: Command) -> Result<(), ToolError> {
    let mut guest = command.spawn().map_err(|cause| process("start", cause))?;
    let status = guest.wait().await.map_err(|cause| process("wait for", cause))?;
    if status.success() { Ok(()) } else { Err(ToolError::Guest { status, said: String::new() }) }
}

async fn by_script(mut command: Command, wanted: &Attach, out: &mut dyn Write) -> Result<(), ToolError> {
    let mut script = Script::new(&wanted.prompt);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut guest = command.spawn().map_err(|cause| process("start", cause))?;
    let limit = Duration::from_secs(wanted.timeout.into());
    match timeout(limit, converse(&mut guest, &mut script, out)).await {
        Ok(Ok(true)) => guest.kill().await.map_err(|cause| process("end", cause)),
        Ok(Ok(false)) => ended(guest, &script).await,
        Ok(Err(error)) => Err(error),
        Err(_late) => Err(ToolError::ScriptDeadline { seconds: wanted.timeout }),
    }
}

/// Copies the guest's output and sends the script's lines: whether the script is done, rather than the guest gone.
async fn converse(guest: &mut Child, script: &mut Script, out: &mut dyn Write) -> Result<bool, ToolError> {
    let gone = || process("reach", io::ErrorKind::BrokenPipe.into());
    let mut input = guest.stdin.take().ok_or_else(gone)?;
    let mut output = guest.stdout.take().ok_or_else(gone)?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut buffer = [0; 4096];
    loop {
        tokio::select! {
            read = output.read(&mut buffer) => {
                let length = read.map_err(|cause| process("read", cause))?;
                let bytes = buffer.get(..length).unwrap_or_default();
                if bytes.is_empty() {
                    return Ok(false);
                }
                out.write_all(bytes).and_then(|()| out.flush()).map_err(ToolError::Output)?;
                script.saw(bytes);
            }
            line = lines.next_line(), if script.wants_line() => {
                script.line(line.map_err(|cause| ToolError::File { path: "/dev/stdin".into(), cause })?);
            }
        }
        match script.step() {
            Step::Wait => {}
            Step::End => return Ok(true),
            // A guest that is going does not read: its end is seen above.
            Step::Send(line) => drop(input.write_all(&line).await),
        }
    }
}

async fn ended(mut guest: Child, script: &Script) -> Result<(), ToolError> {
    let mut said = Vec::new();
    if let Some(stderr) = guest.stderr.take() {
        stderr.take(MAX_SAID).read_to_end(&mut said).await.map_err(|cause| process("read", cause))?;
    }
    // Nobody listens to it any more, if it goes on.
    let status = guest.wait().await.map_err(|cause| process("wait for", cause))?;
    if !status.success() {
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        return Err(ToolError::Guest { status, said });
    }
    // A script may power the guest off itself.
    if script.is_sent() { Ok(()) } else { Err(ToolError::Unsent) }
}

fn arguments(boot: &Boot, cpus: u16, accel: &str, interactive: bool) -> Vec<String> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut args = words(&["-no-user-config", "-nodefaults", "-display", "none", "-no-reboot", "-machine", "q35"]);
    args.extend(words(&["-accel", accel, "-cpu", "max", "-m", MEMORY_MIB, "-smp", &cpus.to_string()]));
    // What escapes from the guest starts nothing.
    let sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
    args.extend(words(&["-sandbox", sandbox]));
    args.extend(words(&["-serial", if interactive { "mon:stdio" } else { "stdio" }]));
    match boot {
        Boot::Kernel { kernel, initrd } => {
            let paths = [("-kernel", kernel), ("-initrd", initrd)];
            args.extend(paths.into_iter().flat_map(|(key, path)| [key.to_owned(), path.display().to_string()]));
            args.extend(words(&["-append", KERNEL_WORDS]));
        }
        Boot::Disk { image, format } => {
            // QEMU reads a doubled comma as one that does not end the value.
            let image = image.display().to_string().replace(',', ",,");
            args.extend(["-drive".to_owned(), format!("file={image},format={format},if=virtio,snapshot=on")]);
        }
    }
    args
}

fn accel(no_kvm: bool) -> &'static str {
    if !no_kvm && access(KVM, AccessFlags::R_OK | AccessFlags::W_OK).is_ok() { "kvm" } else { "tcg" }
}

fn find_program(name: &str, path: Option<&std::ffi::OsStr>) -> Result<PathBuf, ToolError> {
    let found = std::env::split_paths(path.unwrap_or_default())
        .map(|dir| dir.join(name))
        .find(|file| file.is_absolute() && access(file, AccessFlags::X_OK).is_ok() && file.is_file());
    let remedy = "install QEMU: the package is qemu-system-x86 on Debian and Ubuntu, qemu-kvm on Fedora";
    found.ok_or_else(|| ToolError::Absent { program: name.to_owned(), remedy })
}

/// By its first bytes, not by QEMU's guess: a raw disk could be written to look like another format.
fn format_of(image: &Path) -> Result<&'static str, ToolError> {
    let failed = |cause| ToolError::File { path: image.to_owned(), cause };
    let mut magic = Vec::new();
    File::open(image).map_err(failed)?.take(4).read_to_end(&mut magic).map_err(failed)?;
    Ok(if magic == QCOW2 { "qcow2" } else { "raw" })
}

fn process(action: &'static str, cause: io::Error) -> ToolError {
    ToolError::Process { action, program: QEMU.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_missing_qemu_is_named_with_its_package() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().as_os_str();
        // Neither a directory nor a file that nobody may execute is a program.
        std::fs::write(dir.path().join(QEMU), "").expect("write");
        let error = find_program(QEMU, Some(path)).expect_err("not executable");
        assert_eq!(error.exit_code(), 72);
        assert!(error.line().contains("no `qemu-system-x86_64`") && error.line().contains("qemu-system-x86 on Debian"));
        std::fs::set_permissions(dir.path().join(QEMU), std::fs::Permissions::from_mode(0o755)).expect("mode");
        assert_eq!(find_program(QEMU, Some(path)).expect("found"), dir.path().join(QEMU));
    }

    #[test]
    fn arguments_of_a_kernel_and_of_a_disk() {
        let kernel = Boot::Kernel { kernel: "/k".into(), initrd: "/i".into() };
        insta::assert_snapshot!(arguments(&kernel, 2, "tcg", false).join(" "), @"-no-user-config -nodefaults -display none -no-reboot -machine q35 -accel tcg -cpu max -m 512 -smp 2 -sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny -serial stdio -kernel /k -initrd /i -append console=ttyS0 quiet no_timer_check mitigations=off random.trust_cpu=on panic=-1");
        let disk = Boot::Disk { image: "/a,b".into(), format: "raw" };
        let args = arguments(&disk, 1, "kvm", true).join(" ");
        assert!(args.ends_with("-serial mon:stdio -drive file=/a,,b,format=raw,if=virtio,snapshot=on"), "{args}");
    }

    #[tokio::test]
    async fn a_qemu_that_says_much_is_told_from_its_beginning() {
        let mut qemu = Command::new("sh");
        qemu.args(["-c", "head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 3"]).stderr(Stdio::piped());
        let error = ended(qemu.spawn().expect("starts"), &Script::new("# ")).await.expect_err("it has failed");
        let ToolError::Guest { said, .. } = error else { panic!("another failure") };
        assert_eq!(said.len() as u64, MAX_SAID);
    }

    #[test]
    fn a_disk_is_what_its_first_bytes_say() {
        let dir = tempfile::tempdir().expect("tempdir");
        for (bytes, format) in [(&b"QFI\xfb\0\0\0\x03"[..], "qcow2"), (b"\xeb\x63", "raw"), (b"", "raw")] {
            let file = dir.path().join("disk");
            std::fs::write(&file, bytes).expect("write");
            assert_eq!(format_of(&file).expect("read"), format);
        }
        assert_eq!(format_of(&dir.path().join("none")).expect_err("absent").exit_code(), 66);
    }
}
