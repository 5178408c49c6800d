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
    ] {
        let (_, errors) = ctl(&socket, args).await;
        assert!(errors.len() == 1 && errors[0].starts_with(told), "{args:?}: {errors:?}");
        assert_eq!(exit_codes(&socket, args).await, [2], "{args:?}");
    }
    assert_eq!(fake.calls(), [""; 0]);
    for args in [&["delete", "virtualmachines", "web"][..], &["delete", "vmi,pod", "db", "-n", "prod"]] {
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
    let (_, errors) = ctl(&socket, &["delete", "c0000000000000000000000000000002"]).await;
    assert!(errors[0].contains("pod `db`; `virtletctl delete prod/db` removes"), "{errors:?}");
    assert_eq!(fake.calls(), [""; 0]);
    assert_eq!(entries(&dir.path().join("logs")).len(), 2);
    assert_eq!(
        ok(&socket, &["rm", "-f", "5a000000000000000000000000000001"]).await,
        "5a000000000000000000000000000001\n"
    );
}

#[tokio::test]
async fn delete_takes_a_name_alone_from_the_default_namespace() {
    let (dir, fake, socket) = two(Fake::default()).await;
    let logs = dir.path().join("logs");
    let logs = logs.to_str().expect("UTF-8");
    let elsewhere = "no pod `db` in namespace `default`; that of `prod` is meant by -n prod";
    for text in ["db", "pod/db"] {
        assert_eq!(ctl(&socket, &["delete", text]).await, (String::new(), vec![elsewhere.into()]), "{text}");
        assert_eq!(exit_codes(&socket, &["delete", text]).await, [1], "{text}");
    }
    assert_eq!(fake.calls(), [""; 0]);
    for namespace in ["prod", "test"] {
        ok(&socket, &["run", "x/a.img", "--name", "web", "-n", namespace, "--log-dir", logs]).await;
    }
    assert_eq!(ok(&socket, &["delete", "web"]).await, "web\n");
    assert_eq!(ok(&socket, &["ps", "-a", "-o", "name"]).await, "prod/db\nprod/web\ntest/web\n");
    let both = "no pod `web` in namespace `default`; those of prod, test are meant by -n NAMESPACE";
    assert_eq!(ctl(&socket, &["delete", "web"]).await, (String::new(), vec![both.into()]));
    assert_eq!(ok(&socket, &["delete", "db", "-n", "prod"]).await, "db\n");
    assert_eq!(ok(&socket, &["delete", "prod/web"]).await, "prod/web\n");
    // Others take a name from wherever it is, and so does an id.
    assert_eq!(ok(&socket, &["stop", "web"]).await, "web\n");
    let id = ok(&socket, &["ps", "-aq"]).await;
    assert_eq!(ok(&socket, &["delete", id.trim()]).await, id);
    assert!(fake.is_empty());
}

#[tokio::test]
async fn a_pod_that_is_gone_keeps_no_other() {
    // The last one is how the ids of both containers begin.
    for gone in ["a", "cafe", "c"] {
        let (_dir, fake, socket) = two(Fake::default()).await;
        let lists = fake.lists();
        let told = format!("no pod or container `{gone}`; `virtletctl ps -a` lists all");
        assert_eq!(ctl(&socket, &["delete", gone, "web"]).await, ("web\n".into(), vec![told]), "{gone}");
        assert_eq!(fake.lists(), lists + 1, "{gone}: the node is looked at once");
        assert_eq!(exit_codes(&socket, &["delete", gone, "prod/db"]).await, [1], "{gone}");
        assert!(fake.is_empty(), "{gone}");
    }
}
