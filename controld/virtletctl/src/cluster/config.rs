//! What a kubeconfig says of a cluster and of us there, or what a pod has of that. Asks nobody.
//!
//! `kube` would take a proxy from the environment, and a pod's account where a kubeconfig cannot be read: neither is what the user said.
//! What it says of an error may have the file's tokens in it; [`ClusterError`] leaves those out.

use std::io::ErrorKind;

use kube::Config;
use kube::config::{Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::super::error::ClusterError;
use super::super::kubeconfig::At;

/// In the place of a proxy, so that none is looked for in the environment. Nobody is asked there.
const NO_PROXY: &str = "http://none";

/// Where the API is, and who we are there.
pub(super) async fn of(at: &At) -> Result<Config, ClusterError> {
    let named = match &at.kubeconfig {
        Some(path) => Some(Kubeconfig::read_from(path)),
        None => Kubeconfig::from_env().transpose(),
    };
    match read(named, Kubeconfig::read)? {
        Some(file) => of_file(file, at).await,
        None if at.context.is_some() => Err(ClusterError::Unknown("there is no kubeconfig".into())),
        None => Config::incluster().map_err(|cause| {
            ClusterError::Unknown(format!("there is no kubeconfig, and no account of a pod: {cause}"))
        }),
    }
}

/// The kubeconfig that is named, or else the usual one; `None` if nobody names one and there is none.
fn read(
    named: Option<Result<Kubeconfig, KubeconfigError>>,
    usual: impl FnOnce() -> Result<Kubeconfig, KubeconfigError>,
) -> Result<Option<Kubeconfig>, ClusterError> {
    let is_named = named.is_some();
    match named.unwrap_or_else(usual) {
        Ok(file) => Ok(Some(file)),
        Err(KubeconfigError::FindPath) if !is_named => Ok(None),
        Err(KubeconfigError::ReadConfig(cause, _)) if !is_named && cause.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ClusterError::of_kubeconfig(&error)),
    }
}

async fn of_file(mut file: Kubeconfig, at: &At) -> Result<Config, ClusterError> {
    if let Some((name, cluster)) = chosen(&mut file, at) {
        if cluster.proxy_url.as_ref().is_some_and(|url| !url.is_empty()) {
            return Err(ClusterError::Proxy(name));
        }
        cluster.proxy_url = Some(NO_PROXY.to_owned());
    }
    let options = KubeConfigOptions { context: at.context.clone(), ..KubeConfigOptions::default() };
    let mut config =
        Config::from_custom_kubeconfig(file, &options).await.map_err(|error| ClusterError::of_kubeconfig(&error))?;
    config.proxy_url = None;
    // Login programs may be told of the cluster.
    if let Some(told) = config.auth_info.exec.as_mut().and_then(|exec| exec.cluster.as_mut()) {
        told.proxy_url = None;
    }
    Ok(config)
}

/// The cluster of the context that is chosen, with its name; what lacks is told by who reads the file.
fn chosen<'a>(file: &'a mut Kubeconfig, at: &At) -> Option<(String, &'a mut Cluster)> {
    let context = at.context.as_ref().or(file.current_context.as_ref())?;
    let name = file.contexts.iter().find(|named| named.name == *context)?.context.as_ref()?.cluster.clone();
    let cluster = file.clusters.iter_mut().find(|named| named.name == name)?.cluster.as_mut()?;
    Some((name, cluster))
}

#[cfg(test)]
mod tests {
    use std::io::Error;
    use std::path::Path;

    use common::Chain;

    use super::super::Cluster;
    use super::super::tests::nowhere;
    use super::*;

    const SECRET: &str = "c2VjcmV0";

    /// A kubeconfig with more of its cluster and of its user.
    fn kubeconfig(cluster: &str, user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: lab\ncontexts:\n- name: lab\n  context: {{cluster: far, user: me}}\n\
             clusters:\n- name: far\n  cluster:\n    server: http://127.0.0.1:1\n{cluster}users:\n- name: me\n  user:\n{user}"
        )
    }

    /// Why a cluster is not to be had, and what that ends with.
    async fn refused(dir: &Path, text: &str) -> (String, u8) {
        let path = dir.join("config");
        std::fs::write(&path, text).expect("written");
        let error = match Cluster::connect(&At { kubeconfig: Some(path), ..nowhere() }).await {
            Ok(_) => panic!("it is refused: {text}"),
            Err(error) => crate::error::CtlError::from(error),
        };
        (Chain(&error).to_string(), error.exit_code())
    }

    #[tokio::test]
    async fn errors_of_a_kubeconfig_have_no_secrets() {
        let dir = tempfile::tempdir().expect("a directory");
        let broken = kubeconfig("", &format!("    token: {SECRET}\n    username: [\n    password: {SECRET}\n"));
        let (told, _) = refused(dir.path(), &broken).await;
        assert!(told.contains("the kubeconfig is not one, at line ") && !told.contains(SECRET), "{told}");

        let proxied = kubeconfig(&format!("    proxy-url: http://me:{SECRET}@proxy.example:3128\n"), "    {}\n");
        let (told, _) = refused(dir.path(), &proxied).await;
        assert_eq!(told, "cluster `far` of the kubeconfig is behind a proxy (`proxy-url`), and none is used here");

        let exec = |script: &str| {
            let user = format!(
                "    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      command: sh\n      interactiveMode: Never\n      \
                 args: [\"-c\", {script:?}]\n      env: [{{name: KEY, value: {SECRET}}}]\n"
            );
            kubeconfig("", &user)
        };
        let (told, code) =
            refused(dir.path(), &exec(&format!("echo {SECRET}; echo no such account >&2; exit 3"))).await;
        assert_eq!(told, "the kubeconfig's login program failed: exit status: 3: no such account");
        assert_eq!(code, 77);
        let (told, code) = refused(dir.path(), &exec(&format!("echo '{{\"status\": [\"{SECRET}'"))).await;
        assert_eq!(told, "the kubeconfig's login program failed: what it printed is no ExecCredential");
        assert_eq!(code, 77);
    }

    #[tokio::test]
    async fn no_proxy_is_left_for_who_logs_in() {
        let user = "    exec: {command: sh, provideClusterInfo: true}\n";
        let file = Kubeconfig::from_yaml(&kubeconfig("    proxy-url: ''\n", user)).expect("a kubeconfig");
        let config = of_file(file, &nowhere()).await.expect("a cluster");
        assert_eq!(config.proxy_url, None);
        let told = config.auth_info.exec.and_then(|exec| exec.cluster).expect("of the cluster");
        assert_eq!((told.server.as_deref(), told.proxy_url), (Some("http://127.0.0.1:1"), None));
    }

    #[test]
    fn only_where_there_is_no_kubeconfig_a_pods_account_does() {
        let absent = |kind| Err(KubeconfigError::ReadConfig(Error::from(kind), "/none".into()));
        let broken = || Kubeconfig::from_yaml("clusters: [");
        assert!(matches!(read(None, || absent(ErrorKind::NotFound)), Ok(None)));
        assert!(matches!(read(None, || Err(KubeconfigError::FindPath)), Ok(None)));
        assert!(matches!(read(None, || Ok(Kubeconfig::default())), Ok(Some(_))));
        let usual = || -> Result<Kubeconfig, KubeconfigError> { panic!("another one is named") };
        assert!(matches!(read(Some(Ok(Kubeconfig::default())), usual), Ok(Some(_))));
        for error in [
            read(None, broken),
            read(None, || absent(ErrorKind::PermissionDenied)),
            read(Some(absent(ErrorKind::NotFound)), usual),
            read(Some(broken()), usual),
        ] {
            assert!(matches!(error, Err(ClusterError::Unknown(_))), "{error:?}");
        }
    }
}
