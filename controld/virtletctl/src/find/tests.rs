use proto::cri::ContainerMetadata;

use super::*;

fn node() -> Node {
    let sandbox = |id: &str, namespace: &str, name: &str| PodSandbox {
        id: id.into(),
        metadata: Some(PodSandboxMetadata { name: name.into(), namespace: namespace.into(), ..Default::default() }),
        ..Default::default()
    };
    let container =
        |id: &str, sandbox: &str| Container { id: id.into(), pod_sandbox_id: sandbox.into(), ..Default::default() };
    Node {
        sandboxes: vec![
            sandbox("aa11", "default", "web"),
            sandbox("aa22", "prod", "db"),
            sandbox("bb33", "test", "db"),
            sandbox("cc44", "default", "aa"),
            PodSandbox { id: "dd55".into(), ..Default::default() },
        ],
        containers: vec![
            container("ee2", "aa11"),
            container("ee1", "aa11"),
            container("cc9", "bb33"),
            container("ff", "gone"),
        ],
        namespace: None,
    }
}

#[test]
fn names_and_unique_beginnings_of_ids_are_found() {
    for (text, id, containers) in [
        ("web", "aa11", vec!["ee2", "ee1"]),
        ("default/web", "aa11", vec!["ee2", "ee1"]),
        ("test/db", "bb33", vec!["cc9"]),
        ("pod/web", "aa11", vec!["ee2", "ee1"]),
        ("vmi/test/db", "bb33", vec!["cc9"]),
        ("po/aa1", "aa11", vec!["ee2", "ee1"]),
        ("aa1", "aa11", vec!["ee2", "ee1"]),
        ("ee1", "aa11", vec!["ee1"]),
        ("cc9", "bb33", vec!["cc9"]),
        ("aa", "cc44", vec![]),
        ("d", "dd55", vec![]),
    ] {
        let pod = node().find(text).expect(text);
        assert_eq!(pod.sandbox.id, id, "{text}");
        assert_eq!(pod.containers.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), containers, "{text}");
    }
}

#[test]
fn a_container_is_named_beside_its_pod_or_behind_it() {
    let mut node = node();
    node.containers[0].metadata = Some(ContainerMetadata { name: "vm".into(), attempt: 1 });
    node.containers[1].metadata = Some(ContainerMetadata { name: "old".into(), attempt: 0 });
    for (text, container, wanted) in [
        ("web", None, "ee2"),
        ("default/web", None, "ee2"),
        ("web/old", None, "ee1"),
        ("pod/web", None, "ee2"),
        ("pod/web/old", None, "ee1"),
        ("default/web/vm", None, "ee2"),
        ("web", Some("old"), "ee1"),
        ("aa1", Some("ee1"), "ee1"),
        ("default/web", Some("vm"), "ee2"),
        ("test/db", None, "cc9"),
    ] {
        assert_eq!(node.find_container(text, container).expect(text).1.id, wanted, "{text} {container:?}");
    }
    let errors =
        [("web/", None), ("web", Some("q")), ("q/vm", None), ("pod/q", None), ("web/vm", Some("vm")), ("aa", None)]
            .map(|(text, container)| node.find_container(text, container).expect_err(text).to_string());
    insta::assert_snapshot!(errors.join("\n"), @"
    pod `web` has no container ``; it has vm, old
    pod `web` has no container `q`; it has vm, old
    no pod or container `q`
    no pod or container `q`
    no pod or container `web/vm`
    pod `aa` has no container
    ");
}

#[test]
fn a_namespace_narrows_what_a_name_may_mean() {
    let within = |namespace: &str| node().within(&Within { namespace: Some(namespace.into()) });
    for (namespace, text, id) in
        [("prod", "db", "aa22"), ("test", "db", "bb33"), ("test", "test/db", "bb33"), ("default", "aa1", "aa11")]
    {
        assert_eq!(within(namespace).find(text).expect(text).sandbox.id, id, "{namespace} {text}");
    }
    assert_eq!(within("test").find("cc").expect("one container").sandbox.id, "bb33", "of two things, one is in it");
    let errors = [("prod", "web"), ("prod", "test/db"), ("prod", "aa1"), ("test", "dd")]
        .map(|(namespace, text)| within(namespace).find(text).expect_err(text).to_string());
    insta::assert_snapshot!(errors.join("\n"), @"
    no pod or container `web` in namespace `prod`
    no pod or container `test/db` in namespace `prod`
    no pod or container `aa1` in namespace `prod`
    no pod or container `dd` in namespace `test`
    ");
    assert_eq!(node().within(&Within::default()).find("web").expect("any").sandbox.id, "aa11");
}

#[test]
fn a_name_without_a_namespace_is_one_of_the_default_namespace_as_by_kubectl() {
    let mut node = node();
    node.sandboxes.push(PodSandbox { id: "9".repeat(16), ..node.sandboxes[1].clone() });
    for (text, id) in [
        ("web", "aa11"),
        ("pod/web", "aa11"),
        ("test/db", "bb33"),
        ("vmi/test/db", "bb33"),
        ("aa", "cc44"),
        ("99999999", "9999999999999999"),
    ] {
        assert_eq!(node.find_at_home(text).expect(text).sandbox.id, id, "{text}");
    }
    let within = |namespace: &str| node.clone().within(&Within { namespace: Some(namespace.into()) });
    assert_eq!(within("test").find_at_home("db").expect("there").sandbox.id, "bb33");
    let mut errors: Vec<String> =
        ["db", "prod/db", "q", "a", "dd"].map(|text| node.find_at_home(text).expect_err(text).to_string()).to_vec();
    errors.push(within("test").find_at_home("web").expect_err("elsewhere").to_string());
    insta::assert_snapshot!(errors.join("\n"), @"
    no pod `db` in namespace `default`; those of prod, test are meant by -n NAMESPACE
    `prod/db` is more than one: pod aa22 (prod/db), pod 9999999999999 (prod/db)
    no pod or container `q`
    no pod or container `a`
    no pod `dd`; the id of pod `dd55` begins so, and of an id, write 8 characters or more
    no pod or container `web` in namespace `test`
    ");
}

#[test]
fn a_kind_in_front_of_names_is_no_name_unless_a_pod_is_called_so() {
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    for (said, wanted) in [(&["pod", "web"][..], &["web"][..]), (&["web", "pod"], &["web", "pod"]), (&["pods"], &[])] {
        assert_eq!(node().names(words(said)).expect("names"), words(wanted), "{said:?}");
    }
    let mut node = node();
    node.sandboxes[0].metadata = Some(PodSandboxMetadata { name: "pod".into(), ..Default::default() });
    assert_eq!(node.names(words(&["pod", "db"])).expect("names"), words(&["pod", "db"]));
}

#[test]
fn what_is_absent_or_ambiguous_is_said_so() {
    let errors: Vec<String> = ["", "q", "default/db", "/", "db", "a", "cc", "ee", "ff"]
        .iter()
        .map(|text| node().find(text).expect_err(text).to_string())
        .collect();
    insta::assert_snapshot!(errors.join("\n"), @"
    no pod or container ``
    no pod or container `q`
    no pod or container `default/db`
    no pod or container `/`
    `db` is more than one: pod aa22 (prod/db), pod bb33 (test/db)
    `a` is more than one: pod aa11 (default/web), pod aa22 (prod/db)
    `cc` is more than one: pod cc44 (default/aa), container cc9
    `ee` is more than one: container ee2, container ee1
    no pod or container `ff`
    ");
}
