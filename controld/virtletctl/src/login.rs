//! Who logs in at a guest, and with which key, if nobody says it: what the image's makers chose, and what `run` was given.

use std::path::{Path, PathBuf};

use proto::cri::PodSandbox;

use super::logdir::LogDir;

/// Label of a pod of ours: the file of the private key whose public one `run` was given.
const LABEL: &str = "virtlet.cloud/ssh-identity";
/// Words of images' names, and the user that cloud-init makes in those images. The first that fits counts.
const USERS: [(&str, &str); 31] = [
    ("debian", "debian"),
    ("bullseye", "debian"),
    ("bookworm", "debian"),
    ("trixie", "debian"),
    ("forky", "debian"),
    ("ubuntu", "ubuntu"),
    ("focal", "ubuntu"),
    ("jammy", "ubuntu"),
    ("noble", "ubuntu"),
    ("resolute", "ubuntu"),
    ("fedora", "fedora"),
    ("rocky", "rocky"),
    ("alma", "almalinux"),
    ("almalinux", "almalinux"),
    ("centos", "cloud-user"),
    ("rhel", "cloud-user"),
    ("oracle", "cloud-user"),
    ("amzn", "ec2-user"),
    ("amazon", "ec2-user"),
    ("opensuse", "opensuse"),
    ("leap", "opensuse"),
    ("tumbleweed", "opensuse"),
    ("sles", "sles"),
    ("alpine", "alpine"),
    ("arch", "arch"),
    ("gentoo", "gentoo"),
    ("kali", "kali"),
    ("freebsd", "freebsd"),
    ("cirros", "cirros"),
    ("flatcar", "core"),
    ("coreos", "core"),
];

/// The label that remembers the private key beside a public one, if there is such a file.
pub(super) fn label(public: &Path) -> Option<(String, String)> {
    let private = std::path::absolute(public.with_extension("")).ok()?;
    let is_there = public.extension().is_some_and(|extension| extension == "pub") && private.is_file();
    is_there.then(|| Some((LABEL.to_owned(), private.to_str()?.to_owned()))).flatten()
}

/// The private key of a pod that `run` has made, if it is still there. No pod of Kubernetes' has a path as a label.
pub(super) fn identity(sandbox: &PodSandbox) -> Option<PathBuf> {
    LogDir::of(sandbox)?;
    sandbox.labels.get(LABEL).map(PathBuf::from).filter(|path| path.is_absolute() && path.is_file())
}

/// The user of an image, by its name.
pub(super) fn user(image: &str) -> Option<&'static str> {
    let named = image.split_once('@').map_or(image, |(named, _digest)| named).to_ascii_lowercase();
    // What stands last says most: the host is a mirror's, the directory a collection's.
    let mut words = named.rsplit(|c: char| !c.is_ascii_alphabetic());
    words.find_map(|word| USERS.iter().find(|(known, _)| *known == word)).map(|(_, user)| *user)
}

#[cfg(test)]
mod tests {
    use super::super::logdir;
    use super::*;

    #[test]
    fn images_are_known_by_words_of_their_names() {
        for (image, wanted) in [
            ("images.example.com/debian-13-genericcloud-amd64.qcow2", Some("debian")),
            ("mirror.ubuntu.example/fedora/fedora-cloud-43.qcow2", Some("fedora")),
            ("noble-server-cloudimg-amd64.img", Some("ubuntu")),
            ("registry.example.com:5000/vm/rocky9:latest", Some("rocky")),
            ("cirros@sha256:00", Some("cirros")),
            ("images.example.com/web.qcow2", None),
            ("search.example.com/x", None),
            ("", None),
        ] {
            assert_eq!(user(image), wanted, "{image}");
        }
    }

    #[test]
    fn the_key_beside_a_public_one_is_remembered_and_found_while_it_is_there() {
        let dir = tempfile::tempdir().expect("directory");
        let (private, public) = (dir.path().join("id"), dir.path().join("id.pub"));
        std::fs::write(&public, "ssh-ed25519 AAAA").expect("file");
        assert_eq!(label(&public), None, "there is no other key");
        std::fs::write(&private, "secret").expect("file");
        assert_eq!(label(&private), None, "that is no public key");
        let (key, value) = label(&public).expect("both are there");
        let mut sandbox = PodSandbox {
            metadata: Some(Default::default()),
            labels: [(key, value), (logdir::LABEL.to_owned(), "/logs".to_owned())].into(),
            ..Default::default()
        };
        assert_eq!(identity(&sandbox), Some(private.clone()));
        std::fs::remove_file(&private).expect("removed");
        assert_eq!(identity(&sandbox), None);
        std::fs::write(&private, "secret").expect("file");
        sandbox.labels.remove(logdir::LABEL);
        assert_eq!(identity(&sandbox), None, "others' labels lead to no file");
    }
}
