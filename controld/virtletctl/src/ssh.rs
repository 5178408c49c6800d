//! `ssh`: a login at a guest, by the `ssh` of this node.
//!
//! A guest makes its host keys when its disk is new, and a disk is a pod's: so its keys are kept by the pod's UID, and another
//! pod that is given the address later is not taken for it.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::cli;
use super::client::Client;
use super::error::CtlError;
use super::find::Node;

/// Where host keys are kept; `ssh` puts the home directory in.
const KNOWN_HOSTS: &str = "%d/.ssh/virtlet_known_hosts";

/// Becomes `ssh`.
pub(super) async fn run(client: &Client, wanted: &cli::Ssh) -> Result<(), CtlError> {
    let (user, text) = match wanted.pod.split_once('@') {
        Some((user, text)) => (Some(user), text),
        None => (None, wanted.pod.as_str()),
    };
    let pod = Node::read(client).await?.within(&wanted.within).find(text)?;
    let address: IpAddr = client.pod_ip(&pod.sandbox.id).await?.parse().map_err(|_| CtlError::NoAddress(pod.name()))?;
    let uid = pod.sandbox.metadata.unwrap_or_default().uid;
    let user = wanted.login_name.as_deref().or(user);
    let failed = Command::new("ssh").args(args(wanted, user, address, &uid)).exec();
    Err(CtlError::NoSsh(failed))
}

fn args(wanted: &cli::Ssh, user: Option<&str>, address: IpAddr, uid: &str) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    for file in &wanted.identity_files {
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
        let user = wanted.login_name.clone().or_else(|| Some(wanted.pod.split_once('@')?.0.to_owned()));
        let args = args(&wanted, user.as_deref(), "fd00::2".parse().expect("an address"), "u-1");
        args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ssh_is_given_what_it_was_asked_for() {
        const KEYS: &str =
            "-o HostKeyAlias=u-1 -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=%d/.ssh/virtlet_known_hosts";
        assert_eq!(args_of("virtletctl ssh web"), format!("{KEYS} -- fd00::2"));
        assert_eq!(args_of("virtletctl ssh root@web uname -a"), format!("{KEYS} -l root -- fd00::2 uname -a"));
        assert_eq!(
            args_of("virtletctl ssh -i key -o BatchMode=yes -p 2222 -l debian web -- -x"),
            format!("-i key -o BatchMode=yes {KEYS} -p 2222 -l debian -- fd00::2 -x")
        );
    }
}
