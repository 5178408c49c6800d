//! `ssh` and `scp` of a VM of a cluster, by those of this machine: they reach the guest through a command of ours, `port-forward --stdio`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use super::names::Kind;
use super::reach::Vm;
use crate::cli::{VmLogin, VmScp, VmSsh};
use crate::error::CtlError;
use crate::kubeconfig::At;
use crate::tell::tell_line;
use crate::{login, ssh};

/// What is known of the guest before anybody logs in.
#[derive(Debug, Default)]
struct Guest {
    /// Tells the instance from others of its name, by which its keys are kept.
    uid: Option<String>,
    /// The user that images of this name have.
    user: Option<&'static str>,
}

/// Becomes `ssh`.
pub(super) async fn ssh(wanted: &VmSsh) -> Result<(), CtlError> {
    let (user, name) = user_of(&wanted.name);
    let vm = Vm::of(&wanted.at, &[name.to_owned()]).await?;
    let user = wanted.login.login_name.as_deref().or(user);
    let guest = guest(&vm).await?;
    let user = user.or_else(|| chosen(&wanted.login, &guest, name));
    let mut args = options(&vm, &wanted.at, &wanted.login, &guest, "-p")?;
    args.extend(user.into_iter().flat_map(|user| ["-l".into(), user.into()]));
    args.extend(["--".into(), host(&vm).into()]);
    args.extend(wanted.text.iter().chain(&wanted.command).map(OsString::from));
    Err(CtlError::NoSsh(Command::new("ssh").args(args).exec()))
}

/// Becomes `scp`.
pub(super) async fn scp(wanted: &VmScp) -> Result<(), CtlError> {
    let (from, to) = (guest_path(&wanted.from), guest_path(&wanted.to));
    let (place, path) = match (from, to) {
        (Some(one), None) | (None, Some(one)) => one,
        _ => {
            let text = "one of the two paths must be in a guest, as NAME:PATH, and one on this machine";
            return Err(CtlError::Usage(text.into()));
        }
    };
    let (user, name) = user_of(place);
    let vm = Vm::of(&wanted.at, &[name.to_owned()]).await?;
    let user = wanted.login.login_name.as_deref().or(user);
    let guest = guest(&vm).await?;
    let user = user.or_else(|| chosen(&wanted.login, &guest, name));
    let mut args = options(&vm, &wanted.at, &wanted.login, &guest, "-P")?;
    args.extend(wanted.recursive.then(|| OsString::from("-r")));
    args.extend(wanted.preserve.then(|| OsString::from("-p")));
    args.push("--".into());
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    let theirs = format!("{user}{}:{path}", host(&vm));
    // A path of ours with a colon would be taken for a host's.
    let ours = |path: &str| if path.starts_with('/') { path.to_owned() } else { format!("./{path}") };
    args.extend(match from {
        Some(_) => [theirs.into(), ours(&wanted.to).into()],
        None => [ours(&wanted.from).into(), OsString::from(theirs)],
    });
    Err(CtlError::NoSsh(Command::new("scp").args(args).exec()))
}

/// What they are told in any case. `port` is the option for the port.
fn options(vm: &Vm, at: &At, login: &VmLogin, guest: &Guest, port: &str) -> Result<Vec<OsString>, CtlError> {
    let failed = |cause| CtlError::Terminal { action: "find our own program", cause };
    let program = std::env::current_exe().map_err(failed)?;
    let host = host(vm);
    let alias = guest.uid.as_deref().unwrap_or(&host);
    let mut args: Vec<OsString> = Vec::new();
    for file in &login.identity_files {
        args.extend(["-i".into(), file.into()]);
    }
    // The first value of an option is the one that counts.
    let ours = [
        format!("ProxyCommand={}", proxy(&program, vm, at, login.port)),
        format!("HostKeyAlias={alias}"),
        // By the host's name alone ssh would take up a connection to a VM of another cluster.
        "ControlPath=none".to_owned(),
        "StrictHostKeyChecking=accept-new".to_owned(),
        format!("UserKnownHostsFile={}", ssh::KNOWN_HOSTS),
    ];
    for option in login.options.iter().chain(&ours) {
        args.extend(["-o".into(), option.into()]);
    }
    args.extend([port.into(), login.port.to_string().into()]);
    args.extend(login.words.iter().map(OsString::from));
    Ok(args)
}

/// The command by which ssh reaches the guest: words for a shell, in which ssh replaces what begins with a percent sign.
fn proxy(program: &Path, vm: &Vm, at: &At, port: u16) -> String {
    let kind = vm.kind.unwrap_or(Kind::Instance).singular();
    let mut words = vec![program.display().to_string(), "vm".to_owned(), "port-forward".to_owned()];
    words.extend(at.words());
    words.extend([format!("--namespace={}", vm.namespace), "--stdio".to_owned()]);
    words.extend([format!("{kind}/{}", vm.name), port.to_string()]);
    let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''").replace('%', "%%")));
    quoted.collect::<Vec<_>>().join(" ")
}

/// How the guest is called in ssh's configuration, and its keys if nothing else is known.
fn host(vm: &Vm) -> String {
    format!("vmi.{}.{}", vm.name, vm.namespace)
}

/// What the cluster tells of it. Who may reach its ports need not have a right to that.
async fn guest(vm: &Vm) -> Result<Guest, CtlError> {
    let path = format!("{}/{}", vm.cluster.objects(Kind::Instance.plural(), Some(&vm.namespace)), vm.name);
    let vmi = match vm.cluster.json(&format!("read `{}`", vm.whole()), &path, None).await {
        Ok(vmi) => vmi,
        Err(error) if error.is_forbidden() => return Ok(Guest::default()),
        Err(error) => return Err(error.into()),
    };
    let text = |pointer: &str| vmi.pointer(pointer).and_then(serde_json::Value::as_str);
    // A name of a host for ssh, which nobody's object may make anything else of.
    let uid = text("/metadata/uid").filter(|uid| uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
    let mut volumes = vmi.pointer("/spec/volumes").and_then(serde_json::Value::as_array).into_iter().flatten();
    let image = volumes.find_map(|volume| volume.pointer("/containerDisk/image")?.as_str());
    Ok(Guest { uid: uid.filter(|uid| !uid.is_empty()).map(str::to_owned), user: image.and_then(login::user) })
}

/// The user of such images, if nobody says another.
fn chosen(login: &VmLogin, guest: &Guest, name: &str) -> Option<&'static str> {
    let user = guest.user.filter(|_| !login.options.iter().any(|option| is_user(option)))?;
    tell_line(&format!("logging in as {user}, the user of such images; USER@{name} says another"));
    Some(user)
}

/// Whether an option of ssh's names the user: `KEY=VALUE`, or `KEY VALUE`, whose keys have no case.
fn is_user(option: &str) -> bool {
    let key = option.trim_start().split(['=', ' ', '\t']).next();
    key.is_some_and(|key| key.eq_ignore_ascii_case("user"))
}

fn user_of(text: &str) -> (Option<&str>, &str) {
    text.split_once('@').map_or((None, text), |(user, name)| (Some(user).filter(|user| !user.is_empty()), name))
}

/// A guest and a path in it; `None` of a path of ours, such as `./a:b`.
fn guest_path(text: &str) -> Option<(&str, &str)> {
    text.split_once(':').filter(|(place, _)| !place.is_empty() && !place.starts_with(['.', '/']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(args: Vec<OsString>) -> String {
        args.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn paths_are_of_a_guest_or_ours() {
        assert_eq!(guest_path("root@vm/web/prod:/etc"), Some(("root@vm/web/prod", "/etc")));
        assert_eq!(guest_path("web:"), Some(("web", "")));
        for ours in ["./a:b", "/a:b", ":a", "a"] {
            assert_eq!(guest_path(ours), None, "{ours}");
        }
        assert_eq!(user_of("root@web"), (Some("root"), "web"));
        assert_eq!(user_of("@web"), (None, "web"));
    }

    #[test]
    fn an_option_that_names_the_user_is_known() {
        for option in ["User=x", "user x", " USER = x"] {
            assert!(is_user(option), "{option}");
        }
        for option in ["UserKnownHostsFile=/x", "UserKnownHostsFile /x", "Port=22", ""] {
            assert!(!is_user(option), "{option}");
        }
    }

    #[tokio::test]
    async fn ssh_reaches_a_guest_by_a_command_of_ours() {
        let at = At { context: Some("it's".into()), ..crate::cluster::tests::nowhere() };
        let vm = Vm::of(&at, &["vm/web/prod".to_owned()]).await;
        // No such context is there.
        assert!(vm.is_err());
        let cluster = crate::cluster::tests::cluster("http://127.0.0.1:1", &at);
        let vm = Vm { cluster, kind: None, namespace: "prod".into(), name: "web".into() };
        assert_eq!(
            proxy(Path::new("/a b/100%"), &vm, &at, 2222),
            "'/a b/100%%' 'vm' 'port-forward' '--group=kubevirt.io' '--context=it'\\''s' '--kubeconfig=/none' \
             '--namespace=prod' '--stdio' 'virtualmachineinstance/web' '2222'"
        );
        let login = VmLogin {
            login_name: None,
            identity_files: vec!["/k".into()],
            port: 22,
            options: vec!["A=b".into()],
            words: vec!["-v".into()],
            local_ssh: None,
        };
        let told = words(options(&vm, &at, &login, &Guest::default(), "-P").expect("our program"));
        assert!(told.starts_with("-i /k -o A=b -o ProxyCommand='/"), "{told}");
        let rest = " -o HostKeyAlias=vmi.web.prod -o ControlPath=none -o StrictHostKeyChecking=accept-new \
                    -o UserKnownHostsFile=%d/.ssh/virtlet_known_hosts -P 22 -v";
        assert!(told.ends_with(rest), "{told}");
    }
}
