//! Takes over virt-builder's own list of sources as providers.
//!
//! Our own configuration must be right, or the store does not open. These files belong to others, often to a package: a
//! file or a source that cannot be used is logged and left out, and so is the second of two sources with the same id. A
//! source with the id of a configured provider is an error: it never takes that provider's place.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use vmimage::error::printable;

use super::{Kind, ProviderConfig, TransportConfig, is_id};
use crate::sources::provider::virt_builder::{Repo, RepoFormat, RepoProxy, read_repos};
use crate::sources::provider::{
    Provider, ProviderError, ProxyUrl, ReposError, SimplestreamsConfig, SourceUrl, VirtBuilderConfig,
};

/// Adds the sources in `dirs` to `providers`, as `make` makes them. `ids` are those that are taken, with the file of
/// sources that took each. What is left out is the answer.
pub(super) fn add(
    dirs: &[PathBuf],
    ids: &mut BTreeMap<String, Option<PathBuf>>,
    providers: &mut Vec<Arc<dyn Provider>>,
    make: impl Fn(&ProviderConfig) -> Result<Arc<dyn Provider>, ProviderError>,
) -> Result<Vec<ReposError>, ProviderError> {
    let (repos, mut left_out) = read_repos(dirs);
    for repo in repos {
        let (path, id) = (repo.file.clone(), printable(&repo.id));
        match ids.get(&repo.id) {
            Some(None) => {
                let cause = format!("`{}` has a source of the same name; rename one of them", path.display()).into();
                return Err(ProviderError::Config { provider: id, cause });
            }
            Some(Some(first)) => {
                left_out.push(ReposError::Twice { path, id, first: first.clone() });
                continue;
            }
            None => {}
        }
        let source = path.clone();
        let made = config_of(repo)
            .and_then(|config| make(&config).map_err(|cause| ReposError::Source { path, id, cause: Box::new(cause) }));
        match made {
            Ok(provider) => {
                ids.insert(provider.id().to_owned(), Some(source));
                providers.push(provider);
            }
            Err(problem) => left_out.push(problem),
        }
    }
    Ok(left_out)
}

/// The provider that a source is.
fn config_of(repo: Repo) -> Result<ProviderConfig, ReposError> {
    let Repo { id, uri, key, proxy, format, file } = repo;
    if !is_id(&id) {
        return Err(ReposError::Id { path: file, id: printable(&id) });
    }
    // virt-builder takes the index of such a source without a signature, and says nothing.
    let Some(key) = key else { return Err(ReposError::Unsigned { path: file, id }) };
    let unsound = |cause| {
        let cause = Box::new(ProviderError::Config { provider: id.clone(), cause });
        ReposError::Source { path: file.clone(), id: id.clone(), cause }
    };
    let proxy = match proxy {
        RepoProxy::System => None,
        RepoProxy::Off => Some("off".to_owned()),
        RepoProxy::At(url) => Some(url.to_string()),
    };
    let proxy = proxy.map(ProxyUrl::new).transpose().map_err(|cause| unsound(cause.into()))?;
    let uri = SourceUrl::try_from(uri).map_err(|cause| unsound(format!("`uri` {cause}").into()))?;
    let kind = match format {
        RepoFormat::Native => Kind::VirtBuilder(VirtBuilderConfig::signed(uri, key)),
        RepoFormat::Simplestreams => Kind::Simplestreams(SimplestreamsConfig::signed(uri, key)),
    };
    Ok(ProviderConfig { id, transport: TransportConfig { proxy, ..TransportConfig::default() }, kind })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use common::Chain;

    use super::super::tests::registry;
    use super::*;

    const KEY: &str = include_str!("../signature/fixtures/gnupg-key.asc");

    /// Directories of sources, with the key at `KEY` in them.
    fn repos(root: &Path, files: &[(&str, &str)]) -> Vec<PathBuf> {
        let dir = root.join("repos.d");
        fs::create_dir_all(&dir).expect("made");
        fs::write(dir.join("key.asc"), KEY).expect("written");
        let key = format!("file://{}/key.asc", dir.display());
        for (name, text) in files {
            fs::write(dir.join(name), text.replace("KEY", &key)).expect("written");
        }
        vec![dir]
    }

    #[test]
    fn sources_of_virt_builder_are_the_last_providers() {
        let root = tempfile::tempdir().expect("a directory");
        let files = [
            (
                "b.conf",
                "[streams]\nuri=https://s.example/\ngpgkey=KEY\nformat=simplestreams\nproxy=http://p.example:3128",
            ),
            (
                "a.conf",
                "[z.example]\nuri=http://z.example/index.asc\ngpgkey=KEY\n[y]\nuri=http://y/index.asc\ngpgkey=KEY\nproxy=off",
            ),
        ];
        let lago = r#"{"id": "lago", "type": "lago", "uri": "http://templates.example/repo.metadata"}"#;
        let registry = registry(&[lago], &repos(root.path(), &files)).expect("a registry");
        assert!(registry.left_out().is_empty(), "{:?}", registry.left_out());
        let all: Vec<_> = registry.providers().iter().map(|provider| (provider.id(), provider.schemes())).collect();
        assert_eq!(all[2].0, "lago");
        assert_eq!(
            all[3..],
            [
                ("z.example", &["virt-builder"][..]),
                ("y", &["virt-builder"]),
                ("streams", &["simplestreams"]),
                ("registries", &["oci", "docker"])
            ]
        );
    }

    #[test]
    fn key_and_proxy_are_taken_over() {
        let uri: url::Url = "https://a.example/index.asc".parse().expect("a URL");
        let repo = |proxy, format| Repo {
            id: "a".into(),
            uri: uri.clone(),
            key: Some("/k".into()),
            proxy,
            format,
            file: "/a.conf".into(),
        };
        for (proxy, expected) in [
            (RepoProxy::System, None),
            (RepoProxy::Off, Some("off")),
            (RepoProxy::At("http://p:3128".parse().expect("a URL")), Some("http://p:3128/")),
        ] {
            let config = config_of(repo(proxy, RepoFormat::Native)).expect("a provider");
            assert_eq!(config.transport.proxy.as_ref().map(ProxyUrl::as_str), expected);
            let Kind::VirtBuilder(of) = config.kind else { panic!("{:?}", config.kind) };
            assert_eq!((&*of.uri, of.keyring.as_deref(), of.insecure), (&uri, Some(Path::new("/k")), false));
        }
        let config = config_of(repo(RepoProxy::System, RepoFormat::Simplestreams)).expect("a provider");
        let Kind::Simplestreams(of) = config.kind else { panic!("{:?}", config.kind) };
        assert_eq!((&*of.uri, of.keyring.as_deref(), of.insecure), (&uri, Some(Path::new("/k")), false));
    }

    #[test]
    fn what_is_no_use_is_left_out_alone() {
        let root = tempfile::tempdir().expect("a directory");
        let files = [
            ("a.conf", "[good]\nuri=http://a/index.asc\ngpgkey=KEY\n[unsigned]\nuri=http://a/index"),
            ("b.conf", "[Bad Name]\nuri=http://b/\ngpgkey=KEY"),
            ("c.conf", "[keyless]\nuri=http://c/\ngpgkey=file:///nowhere/key\n[here]\nuri=file:///c\ngpgkey=KEY"),
            (
                "d.conf",
                "[secret]\nuri=http://d/\ngpgkey=KEY\nproxy=http://u:PW@p/\n[basic]\nuri=http://u:PW@d/\ngpgkey=KEY",
            ),
            ("e.conf", "[good]\nuri=http://e/index.asc\ngpgkey=KEY"),
            ("f.conf", "junk"),
            ("g.conf", "[last]\nuri=http://g/index.asc\ngpgkey=KEY"),
        ];
        let dirs = repos(root.path(), &files);
        let registry = registry(&[], &dirs).expect("a registry");
        let ids: Vec<_> = registry.providers().iter().map(|provider| provider.id()).collect();
        assert_eq!(ids, ["http", "file", "good", "last", "registries"]);
        let told: Vec<_> = registry
            .left_out()
            .iter()
            .map(|problem| {
                let text = Chain(problem).to_string();
                text.replace(&format!("{}/", dirs[0].display()), "")
            })
            .collect();
        let expected = [
            "`f.conf`, line 1: neither a source nor a setting",
            "`a.conf`: source `unsigned` has no `gpgkey`; configure a provider with `insecure` to take what nobody signed",
            "`b.conf`: the name of source `Bad Name` can be no provider's: it must be lower-case letters, digits, `.`, `_` or `-`",
            "`c.conf`: source `keyless` cannot be used: failed to open `/nowhere/key`: No such file or directory (os error 2)",
            "`c.conf`: source `here` cannot be used: provider `here` is not configured soundly: `uri` must be an http or https URL",
            "`d.conf`: source `secret` cannot be used: provider `secret` is not configured soundly: `proxy` has a login in it; put the URL into a file, and name that by `proxy_file`",
            "`d.conf`: source `basic` cannot be used: provider `basic` is not configured soundly: `uri` has a login in it; take it out: secrets are read from the files that `login_file`, `password_file` and their like name",
            "`e.conf`: source `good` is in `a.conf`, too, which counts",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn a_source_never_stands_for_a_configured_provider() {
        let root = tempfile::tempdir().expect("a directory");
        let lago = r#"{"id": "lago", "type": "lago", "uri": "http://templates.example/repo.metadata"}"#;
        for id in ["lago", "http", "file"] {
            let text = format!("[{id}]\nuri=http://a/index.asc\ngpgkey=KEY");
            let dirs = repos(root.path(), &[("a.conf", &text)]);
            let refused = registry(&[lago], &dirs).expect_err(id);
            let expected = format!(
                "provider `{id}` is not configured soundly: `{}/a.conf` has a source of the same name; rename one of them",
                dirs[0].display()
            );
            assert_eq!(refused, expected);
        }
    }
}
