//! Gives the host's controld a way to tell the cluster of VMs: a kubeconfig with the token of the account that the container's pod has.
//!
//! kubelet makes the token anew within its hour, and tells by a rename. It is bound to this pod, so it is of no use on another node, and of none
//! when the pod is gone.

use std::fs::{self, File};
use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::files::{FileError, failed, replace};

/// Where the pod has token and authority.
const FROM: &str = "/token";
/// Where it has the host's directory, and under which name the host has that.
const TO: &str = "/run/virtlet-reporter";
const FILES: [&str; 2] = ["token", "ca.crt"];
const KUBECONFIG: &str = "kubeconfig";
/// None of it is for anybody but root.
const MODE: u32 = 0o600;

/// Keeps the files as they are in the pod, for ever. `server` is the API server, by host and port, as pods know it.
pub(crate) fn keep(server: [&str; 2]) -> Result<(), FileError> {
    let (from, to) = (Path::new(FROM), Path::new(TO));
    let news = Inotify::init(InitFlags::IN_CLOEXEC).map_err(|error| failed("watch", from)(error.into()))?;
    news.add_watch(from, AddWatchFlags::IN_MOVED_TO).map_err(|error| failed("watch", from)(error.into()))?;
    loop {
        copy(from, to, server)?;
        news.read_events().map_err(|error| failed("watch", from)(error.into()))?;
    }
}

/// The kubeconfig last: who finds it finds what it names.
fn copy(from: &Path, to: &Path, server: [&str; 2]) -> Result<(), FileError> {
    for name in FILES {
        let from = from.join(name);
        replace(&to.join(name), File::open(&from).map_err(failed("open", &from))?, MODE)?;
    }
    replace(&to.join(KUBECONFIG), kubeconfig(server).as_bytes(), MODE)
}

fn kubeconfig([host, port]: [&str; 2]) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let [token, authority] = FILES.map(|name| format!("{TO}/{name}"));
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: reporter\n\
         contexts: [{{name: reporter, context: {{cluster: here, user: reporter}}}}]\n\
         clusters: [{{name: here, cluster: {{server: \"https://{host}:{port}\", certificate-authority: {authority}}}}}]\n\
         users: [{{name: reporter, user: {{tokenFile: {token}}}}}]\n"
    )
}

/// Where the API server is, as each pod is told; nothing of it can end a line of the kubeconfig.
pub(crate) fn server(variable: impl Fn(&str) -> Option<String>) -> Option<[String; 2]> {
    let named = |name: &str| {
        let value = variable(name)?;
        let is_plain = value.chars().all(|letter| letter.is_ascii_alphanumeric() || ".:-".contains(letter));
        (is_plain && !value.is_empty()).then_some(value)
    };
    Some([named("KUBERNETES_SERVICE_HOST")?, named("KUBERNETES_SERVICE_PORT")?])
}

/// That nothing of it stays when nobody keeps it any more.
pub(crate) fn forget() -> Result<(), FileError> {
    for name in [KUBECONFIG, FILES[0], FILES[1]] {
        let at = Path::new(TO).join(name);
        match fs::remove_file(&at) {
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => return Err(failed("remove", &at)(cause)),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_host_has_what_the_pod_has_and_a_kubeconfig_that_names_it() {
        let (pod, host) = (tempfile::tempdir().expect("tempdir"), tempfile::tempdir().expect("tempdir"));
        for (name, text) in [("token", "one"), ("ca.crt", "pem")] {
            fs::write(pod.path().join(name), text).expect("written");
        }
        copy(pod.path(), host.path(), ["fd00::1", "443"]).expect("copied");
        fs::write(pod.path().join("token"), "two").expect("written");
        copy(pod.path(), host.path(), ["fd00::1", "443"]).expect("copied");
        let read = |name: &str| fs::read_to_string(host.path().join(name)).expect("is there");
        assert_eq!((read("token").as_str(), read("ca.crt").as_str()), ("two", "pem"));
        let mode = fs::metadata(host.path().join("token")).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        assert_eq!(
            read(KUBECONFIG),
            "apiVersion: v1\nkind: Config\ncurrent-context: reporter\n\
             contexts: [{name: reporter, context: {cluster: here, user: reporter}}]\n\
             clusters: [{name: here, cluster: {server: \"https://[fd00::1]:443\", certificate-authority: /run/virtlet-reporter/ca.crt}}]\n\
             users: [{name: reporter, user: {tokenFile: /run/virtlet-reporter/token}}]\n"
        );
        assert_eq!(fs::read_dir(host.path()).expect("listed").count(), 3, "nothing else is left");
    }

    #[test]
    fn the_server_is_where_pods_are_told() {
        let of = |host: &str, port: &str| {
            let (host, port) = (host.to_owned(), port.to_owned());
            server(move |name| Some(if name.ends_with("HOST") { host.clone() } else { port.clone() }))
        };
        assert_eq!(of("10.96.0.1", "443"), Some(["10.96.0.1".to_owned(), "443".to_owned()]));
        for (host, port) in [("", "443"), ("10.96.0.1", ""), ("a\"}\nx", "443"), ("a b", "443")] {
            assert_eq!(of(host, port), None, "{host:?} {port:?}");
        }
        assert_eq!(server(|_| None), None);
    }
}
