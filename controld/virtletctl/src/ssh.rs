//! `ssh`: a login at a guest, by the `ssh` of this node.
//!
//! A guest makes its host keys when its disk is new, and a disk is a pod's: so its keys are kept by the pod's UID, and another
//! pod that is given the address later is not taken for it.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::client::Client;
use super::error::CtlError;
use super::find::Node;
use super::ready::{self, Guest};
use super::tell::tell_line;
use super::{cli, login};

/// Where host keys are kept; `ssh` puts the home directory in.
pub(super) const KNOWN_HOSTS: &str = "%d/.ssh/virtlet_known_hosts";

/// How long a guest that boots may take until it can be logged in at.
const BOOT: Duration = Duration::from_secs(180);

/// What ssh is to be told that the command line does not say.
#[derive(Debug)]
struct Login<'a> {
    user: Option<&'a str>,
    identity: Option<PathBuf>,
    address: IpAddr,
    uid: &'a str,
}

/// Becomes `ssh`, once the guest's port takes connections.
pub(super) async fn run(client: &Client, wanted: &cli::Ssh) -> Result<(), CtlError> {
    let (user, text) = match wanted.pod.split_once('@') {
        Some((user, text)) => (Some(user), text),
        None => (None, wanted.pod.as_str()),
    };
    let pod = Node::read(client).await?.within(&wanted.within).find(text)?;
    let container = pod.running()?;
    let address: IpAddr = client.pod_ip(&pod.sandbox.id).await?.parse().map_err(|_| CtlError::NoAddress(pod.name()))?;
    let image = container.image.as_ref().map(|image| match image.user_specified_image.as_str() {
        "" => image.image.as_str(),
        named => named,
    });
    let said = wanted.login_name.as_deref().or(user);
    // An option of ssh's may say it, too.
    let chosen = said.or_else(|| login::user(image?).filter(|_| !wanted.says("user")));
    if let Some(chosen) = chosen.filter(|_| said.is_none()) {
        tell_line(&format!("logging in as {chosen}, the user of such images; USER@{text} says another"));
    }
    let identity = login::identity(&pod.sandbox).filter(|_| wanted.identity_files.is_empty());
    let (name, uid) = (pod.name(), pod.sandbox.metadata.clone().unwrap_or_default().uid);
    let guest = Guest { pod: &name, container: &container.id, address: Some(address) };
    // Where an option says the port, or the way, ssh alone knows it.
    if !["port", "proxyjump", "proxycommand"].iter().any(|option| wanted.says(option)) {
        let patience = wanted.value("connecttimeout").and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        ready::port(client, guest, wanted.port.unwrap_or(ready::SSH), patience.unwrap_or(BOOT)).await?;
    }
    let login = Login { user: chosen, identity, address, uid: &uid };
    let failed = Command::new("ssh").args(args(wanted, &login)).exec();
    Err(CtlError::NoSsh(failed))
}

impl cli::Ssh {
    /// What an option of ssh's says, whose name may be in whatever case.
    fn value(&self, key: &str) -> Option<&str> {
        let mut options = self.options.iter().filter_map(|option| option.split_once(['=', ' ']));
        options.find(|(name, _)| name.trim().eq_ignore_ascii_case(key)).map(|(_, value)| value.trim())
    }

    fn says(&self, key: &str) -> bool {
        self.value(key).is_some()
    }
}

fn args(wanted: &cli::Ssh, login: &Login<'_>) -> Vec<OsString> {
    let Login { user, identity, address, uid } = login;
    let mut args: Vec<OsString> = Vec::new();
    for file in wanted.identity_files.iter().chain(identity) {
        args.extend(["-i".into(), file.into()]);
    }
    // The first value of an option is the one that counts.
    for option in &wanted.options {
        args.extend(["-o".into(), option.into()]);
    }
    let host_keys = format!("UserKnownHostsFile={KNOWN_HOSTS}");
    for option in [&format!("HostKeyAlias={uid}"), "StrictHostKeyChecking=accept-new", &host_keys] {
        args.extend(["-o".into(), option.into()]);
    }
    for (flag, value) in [("-p", wanted.port.map(|port| port.to_string())), ("-l", user.map(str::to_owned))] {
        args.extend(value.into_iter().flat_map(|value| [flag.into(), value.into()]));
    }
    // Behind the address everything is the guest's.
    args.extend(["--".into(), address.to_string().into()]);
    args.extend(wanted.command.iter().map(OsString::from));
    args
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args_of(line: &str) -> String {
        let Command::Ssh(wanted) = Cli::try_parse_from(line.split(' ')).expect("a command line").command else {
            panic!("`{line}` is no ssh");
        };
        let user = wanted.login_name.as_deref().or_else(|| Some(wanted.pod.split_once('@')?.0));
        let address = "fd00::2".parse().expect("an address");
        let args = args(&wanted, &Login { user, identity: Some("/k".into()), address, uid: "u-1" });
        args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ssh_is_given_what_it_was_asked_for() {
        const KEYS: &str =
            "-o HostKeyAlias=u-1 -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=%d/.ssh/virtlet_known_hosts";
        assert_eq!(args_of("virtletctl ssh web"), format!("-i /k {KEYS} -- fd00::2"));
        assert_eq!(args_of("virtletctl ssh root@web uname -a"), format!("-i /k {KEYS} -l root -- fd00::2 uname -a"));
        assert_eq!(
            args_of("virtletctl ssh -i key -o BatchMode=yes -p 2222 -l debian web -- -x"),
            format!("-i key -i /k -o BatchMode=yes {KEYS} -p 2222 -l debian -- fd00::2 -x")
        );
    }

    #[test]
    fn options_of_sshs_are_known_in_any_case() {
        let words = ["virtletctl", "ssh", "-o", "USER=a", "-o", "Port 22", "web"];
        let Command::Ssh(wanted) = Cli::try_parse_from(words).expect("a command line").command else {
            panic!("no ssh");
        };
        assert_eq!(
            (wanted.value("user"), wanted.value("port"), wanted.says("proxyjump")),
            (Some("a"), Some("22"), false)
        );
    }
}
