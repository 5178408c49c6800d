//! What an agent tells of its guest, for whoever shows that outside. All of it is the guest's word, and not bounded yet but by the size of an
//! answer.
//!
//! QEMU's agent has questions for it. Through ours a shell is asked, which tells of the operating system alone.

use std::net::IpAddr;
use std::time::Duration;

use proto::agent::{Message, Start};
use proto::vm::guest::Os;
use tokio::time::{Instant, timeout};
use vmspec::MachineId;

use super::output::{self, Budget};
use super::{Agents, Machine};

/// For all of it: a guest that is slow is asked again.
const DEADLINE: Duration = Duration::from_secs(20);
/// Bytes of what the shell prints that are read.
const MAX_TOLD: usize = 16 << 10;

/// Prints names with values, as os-release(5) does.
const ASK: &str = r#"
cat /etc/os-release 2>/dev/null || cat /usr/lib/os-release 2>/dev/null
printf '\nKERNEL_RELEASE=%s\nKERNEL_VERSION=%s\nMACHINE=%s\n' "$(uname -r)" "$(uname -v)" "$(uname -m)"
"#;

/// What a guest is. `None` is what was not told: it may be, by the same guest, at another time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    pub os: Option<Os>,
    pub nics: Option<Vec<ToldNic>>,
}

/// A NIC as a guest has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToldNic {
    pub name: String,
    /// In lower case.
    pub mac: String,
    /// Without those that mean something on the link alone.
    pub addresses: Vec<IpAddr>,
}

impl Agents {
    /// What whichever agent answers tells of its guest; `None` if none does. Nothing is waited for that may still boot.
    pub async fn tell(&self, id: MachineId) -> Option<Told> {
        let machine = self.machine(id);
        let told = async {
            match machine.qga.tell().await {
                Ok(told) => Some(told),
                Err(_) => self.told_by_ours(&machine, id).await,
            }
        };
        timeout(DEADLINE, told).await.ok().flatten()
    }

    async fn told_by_ours(&self, machine: &Machine, id: MachineId) -> Option<Told> {
        let link = self.link(machine, id, Instant::now()).await?;
        let argv = ["sh", "-c", ASK].map(str::to_owned).into();
        let process = link.begin(Message::Start(Start { argv, ..Start::default() })).await.ok()?;
        let told = output::collect(process, Budget::new(MAX_TOLD).room()).await.ok()?;
        Some(Told { os: Some(os(&told.stdout)).filter(|os| !os.is_unknown()), nics: None })
    }
}

/// Of what [`ASK`] has printed.
fn os(printed: &[u8]) -> Os {
    let printed = String::from_utf8_lossy(printed.get(..MAX_TOLD).unwrap_or(printed));
    let mut os = Os::default();
    for (name, value) in printed.lines().filter_map(|line| line.split_once('=')) {
        let place = match name {
            "ID" => &mut os.id,
            "NAME" => &mut os.name,
            "PRETTY_NAME" => &mut os.pretty_name,
            "VERSION" => &mut os.version,
            "VERSION_ID" => &mut os.version_id,
            "KERNEL_RELEASE" => &mut os.kernel_release,
            "KERNEL_VERSION" => &mut os.kernel_version,
            "MACHINE" => &mut os.machine,
            _ => continue,
        };
        value.trim().trim_matches(['"', '\'']).clone_into(place);
    }
    os
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operating_system_is_read_from_what_a_shell_prints() {
        let printed = "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian\nVERSION_ID='13'\nHOME_URL=\"https://x/?a=b\"\nnoise\n\n\
                       KERNEL_RELEASE=6.12.0\nKERNEL_VERSION=#1 SMP = x\nMACHINE=x86_64\n";
        let text = |text: &str| text.to_owned();
        let wanted = Os {
            id: text("debian"),
            pretty_name: text("Debian GNU/Linux 13 (trixie)"),
            version_id: text("13"),
            kernel_release: text("6.12.0"),
            kernel_version: text("#1 SMP = x"),
            machine: text("x86_64"),
            ..Os::default()
        };
        assert_eq!(os(printed.as_bytes()), wanted);
        assert_eq!(os(b"\xff\xfe=\0\n==="), Os::default());
        assert_eq!(os(&b"ID=".repeat(100_000)).id.len(), MAX_TOLD - 3);
    }
}
