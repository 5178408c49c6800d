//! What is removed is what was meant: words for other kinds, ids of containers and options of others remove nothing.

use super::fake::Fake;
use super::verbs::two;
use super::{ctl, entries, exit_codes, ok};

#[tokio::test]
async fn words_for_other_kinds_do_nothing() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    for (args, told) in [
        (&["delete", "svc", "web"][..], "`svc` is another kind, and here are pods alone; "),
        (&["delete", "pod,svc", "web"], "`svc` is another kind"),
        (&["delete", "web", "svc/db"], "`svc` is another kind"),
        (&["delete", "node", "n1"], "`node` is another kind, and here are pods alone; `virtletctl doctor`"),
        (&["rm", "-f", "secret", "web"], "`secret` is another kind"),
        (&["stop", "deployment", "web"], "`deployment` is another kind"),
        (&["get", "pods,svc"], "`svc` is another kind"),
        (&["describe", "job/web"], "`job` is another kind"),
        (&["logs", "deploy/web"], "`deploy` is another kind"),
        (&["top", "nodes"], "`nodes` is another kind"),
        (&["wait", "--for=delete", "svc/web"], "`svc` is another kind"),
        // Of the cluster's own kinds nobody knows all.
        (&["delete", "ingressroute", "web"], "there is neither a pod `ingressroute` nor such a kind of pods"),
        // Nor is the beginning of an id, here of both containers, a pod.
        (&["delete", "c", "web"], "there is neither a pod `c` nor such a kind of pods"),
    ] {
        let (_, errors) = ctl(&socket, args).await;
        assert!(errors.len() == 1 && errors[0].starts_with(told), "{args:?}: {errors:?}");
        assert_eq!(exit_codes(&socket, args).await, [2], "{args:?}");
    }
    assert_eq!(fake.calls(), [""; 0]);
    for args in [&["delete", "virtualmachines", "web"][..], &["delete", "vmi,pod", "db"]] {
        assert_eq!(ok(&socket, args).await, format!("{}\n", args[2]), "{args:?}");
    }
    assert!(fake.is_empty());
}

#[tokio::test]
async fn a_pod_may_be_called_like_another_kind() {
    let (dir, fake, socket) = two(Fake::default()).await;
    let logs = dir.path().join("logs");
    ok(&socket, &["run", "x/a.img", "--name", "svc", "--log-dir", logs.to_str().expect("UTF-8")]).await;
    fake.forget_calls();
    let told = &ctl(&socket, &["delete", "svc", "web"]).await.1[0];
    assert!(
        told.starts_with("`svc` is another kind") && told.ends_with("; the pod of that name is `pod/svc`"),
        "{told}"
    );
    assert_eq!(fake.calls(), [""; 0]);
    assert_eq!(ok(&socket, &["pause", "svc"]).await, "svc\n");
    assert_eq!(ok(&socket, &["delete", "pod/svc", "web"]).await, "web\npod/svc\n");
}

#[tokio::test]
async fn the_id_of_a_container_does_not_remove_its_pod() {
    let (dir, fake, socket) = two(Fake::default()).await;
    let told = "`c000000000000` is a container of pod `web`; ";
    for args in
        [["rm", "-f", "c0000000000000000000000000000001"], ["delete", "--now", "c0000000000000000000000000000001"]]
    {
        let (_, errors) = ctl(&socket, &args).await;
        assert!(
            errors[0].starts_with(told) && errors[0].contains(&format!("`virtletctl {} web`", args[0])),
            "{errors:?}"
        );
    }
    assert_eq!(fake.calls(), [""; 0]);
    assert_eq!(entries(&dir.path().join("logs")).len(), 2);
    assert_eq!(
        ok(&socket, &["rm", "-f", "5a000000000000000000000000000001"]).await,
        "5a000000000000000000000000000001\n"
    );
}
