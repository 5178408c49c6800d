use std::cell::RefCell;

use super::*;

const DIR_OF_POD: &str = "/var/lib/kubelet/pods/u/volumes/virtlet~flexvolume_driver/data";

/// Remembers what it was asked.
#[derive(Default)]
struct Asked {
    all: RefCell<Vec<String>>,
    fails: bool,
}

impl Mounts for Asked {
    fn mount(&self, dir: &Path, description: &[u8]) -> Result<(), Reason> {
        let description = String::from_utf8_lossy(description);
        self.all.borrow_mut().push(format!("mount {} {description}", dir.display()));
        if self.fails { Err(Reason::new("no memory")) } else { Ok(()) }
    }

    fn unmount(&self, dir: &Path) -> Result<(), Reason> {
        self.all.borrow_mut().push(format!("unmount {}", dir.display()));
        Ok(())
    }
}

fn said(words: &[&str], asked: &Asked) -> String {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    serde_json::to_string(&answer(&words, asked)).expect("JSON")
}

#[test]
fn the_program_is_the_driver_by_its_name_alone() {
    let is = |name: &str| is_called(Some(OsStr::new(name)));
    assert!(is("flexvolume_driver") && is("/exec/virtlet~flexvolume_driver/flexvolume_driver"));
    assert!(!is("controld") && !is("/flexvolume_driver/controld") && !is_called(None));
}

#[test]
fn kubelet_is_told_what_the_driver_can_and_what_it_cannot() {
    let asked = Asked::default();
    let shown = [
        said(&["init"], &asked),
        said(&["attach", "{}", "node"], &asked),
        said(&["waitforattach", "/dev/x", "{}"], &asked),
        said(&["expandvolume"], &asked),
        said(&[], &asked),
        said(&["mount", DIR_OF_POD], &asked),
        said(&["init", "x"], &asked),
    ];
    insta::assert_snapshot!(shown.join("\n"));
    assert!(asked.all.borrow().is_empty());
}

#[test]
fn what_kubelet_says_of_a_volume_is_written_down_as_far_as_it_says_the_disk() {
    let asked = Asked::default();
    let options = serde_json::json!({
        "type": "ceph", "monitor": "10.0.0.1:6789", "pool": "rbd", "volume": "web", "user": "admin", "part": "",
        "kubernetes.io/secret/secret": "YTJWNQ==", "kubernetes.io/fsType": "xfs", "kubernetes.io/readwrite": "rw",
        "kubernetes.io/pod.name": "web", "kubernetes.io/pod.uid": "u", "kubernetes.io/serviceAccount.name": "default",
        "kubernetes.io/pvOrVolumeName": "data", "kubernetes.io/mounterArgs.FsGroup": "1000",
        "kubernetes.io/secret/other": "aGlkZGVu",
    });
    assert_eq!(said(&["mount", DIR_OF_POD, &options.to_string()], &asked), r#"{"status":"Success"}"#);
    assert_eq!(said(&["unmount", DIR_OF_POD], &asked), r#"{"status":"Success"}"#);
    insta::assert_snapshot!(asked.all.borrow().join("\n"));
}

#[test]
fn what_is_wrong_is_a_failure_that_says_why_and_no_secret() {
    let asked = Asked::default();
    let qcow2 = r#"{"type":"qcow2"}"#;
    let of = |path: &str| said(&["mount", path, qcow2], &asked);
    let shown = [
        said(&["mount", DIR_OF_POD, "{"], &asked),
        said(&["mount", DIR_OF_POD, r#"{"type":"nfs"}"#], &asked),
        said(
            &[
                "mount",
                DIR_OF_POD,
                r#"{"type":"ceph","monitor":"m","pool":"p","volume":"v","user":"u","secret":"hidden!"}"#,
            ],
            &asked,
        ),
        of("pods/u/volumes/virtlet~flexvolume_driver/data"),
        of("/etc"),
        of("/var/lib/kubelet/pods/u/volumes/virtlet~flexvolume_driver/../x"),
        of("/var/lib/kubelet/pods/u/volumes/virtlet~flexvolume_driver/.hidden"),
        of("/var/lib/kubelet/pods/u/volumes/virtlet~flexvolume_driver/a\nb"),
        of("/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/data"),
        said(&["unmount", "/"], &asked),
        said(&["mount", DIR_OF_POD, qcow2], &Asked { fails: true, ..Asked::default() }),
    ];
    insta::assert_snapshot!(shown.join("\n"));
    assert!(asked.all.borrow().is_empty() && !shown.join("").contains("hidden!"));
}
