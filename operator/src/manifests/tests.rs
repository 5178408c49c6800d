use super::*;

/// Most bytes of a definition: the API server, and etcd behind it, take three times as much.
const MAX_CRD: usize = 400_000;

fn yaml(objects: &[Value]) -> String {
    crate::install::yaml(objects).expect("written")
}

#[test]
fn definitions() {
    for mut definition in crds::all(Group::KubeVirt) {
        assert!(definition.to_string().len() < MAX_CRD, "{}", definition["metadata"]["name"]);
        let name = definition["metadata"]["name"].as_str().expect("a name").to_owned();
        let versions = definition["spec"]["versions"].as_array_mut().expect("versions");
        let [new, old] = versions.as_mut_slice() else { panic!("two versions") };
        assert_eq!(new["schema"], old["schema"]);
        // Said once.
        old["schema"] = "as above".into();
        insta::assert_snapshot!(name, yaml(&[definition]));
    }
}

#[test]
fn policies_of_objects() {
    insta::assert_snapshot!(yaml(&policies::all(Group::KubeVirt)));
}

#[test]
fn policies_of_the_operator() {
    insta::assert_snapshot!(yaml(&policies::of_operator(&Settings::default())));
}

#[test]
fn nodes_may_patch_statuses_alone_and_a_policy_holds_them() {
    let [account, role, binding] = super::roles::of_reporter();
    let rules = json!([{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}]);
    assert_eq!((&account["metadata"]["namespace"], &role["rules"]), (&json!("kube-system"), &rules));
    assert_eq!(binding["subjects"][0]["name"], account["metadata"]["name"]);
    let [policy, held] = policies::of_reporter();
    let spec = &policy["spec"];
    let user = "request.userInfo.username == 'system:serviceaccount:kube-system:virtlet-reporter'";
    assert_eq!((&spec["matchConditions"][0]["expression"], &spec["failurePolicy"]), (&json!(user), &json!("Fail")));
    assert_eq!(spec["matchConstraints"]["resourceRules"][0]["resources"], json!(["pods/status"]));
    let rules = spec["validations"].as_array().expect("rules");
    let pinned = ["node-name", "dyn(oldObject.status).all(k,", "dyn(oldObject.metadata).all(k,"];
    for (rule, part) in rules.iter().zip(pinned) {
        assert!(rule["expression"].as_str().expect("CEL").contains(part), "{rule}");
    }
    assert_eq!((rules.len(), &held["spec"]["validationActions"]), (3, &json!(["Deny"])));
}

#[test]
fn roles() {
    let settings = Settings::default();
    insta::assert_snapshot!("roles_of_users", yaml(&super::roles::of_users(settings.group)));
    insta::assert_snapshot!("roles_of_the_operator", yaml(&super::roles::of_operator(&settings)));
}

#[test]
fn the_operator() {
    let settings = Settings {
        image: "registry.example.com/virtlet-operator:1".to_owned(),
        runtime_classes: vec!["vms".to_owned(), "efi=vms-efi".to_owned()],
        ..Settings::default()
    };
    let namespace = [workload::namespace()];
    insta::assert_snapshot!(yaml(
        &[&namespace[..], &workload::all(&settings), &[webhook::configuration(&settings)]].concat()
    ));
}

#[test]
fn the_server_of_subresources() {
    let settings = Settings { image: "registry.example.com/virtlet-operator:1".to_owned(), ..Settings::default() };
    let policies = policies::of_subresources(&settings);
    let all = super::subresources::all(&settings);
    let registration = [super::subresources::registration(&settings)];
    insta::assert_snapshot!(yaml(&[&policies[..], &all, &registration].concat()));
}

#[test]
fn what_the_api_server_asks_is_applied_last_and_removed_first() {
    let all = all(&Settings::default());
    let kinds: Vec<&str> = all.iter().rev().filter_map(|object| object["kind"].as_str()).take(2).collect();
    assert_eq!(kinds, ["APIService", "MutatingWebhookConfiguration"]);
}

#[test]
fn everything_is_marked_and_there_once() {
    let all = all(&Settings::default());
    for object in &all {
        assert_eq!(object["metadata"]["labels"][MANAGED_BY], OPERATOR, "{object}");
    }
    let mut names: Vec<String> = all.iter().map(crate::cluster::words_of).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn another_group_is_in_all_of_it() {
    let settings = Settings { group: Group::Virtlet, ..Settings::default() };
    let text = yaml(&all(&settings));
    // Annotations of KubeVirt's clients stay theirs.
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("kubevirt.io")).collect();
    assert!(
        lines.iter().all(|line| line.contains("hooks.kubevirt.io") || line.contains("admission.kubevirt.io")),
        "{lines:?}"
    );
    assert!(text.contains("virtualmachines.virtlet.k8s"));
}

#[test]
fn an_operator_elsewhere_has_its_account_and_nothing_runs() {
    let settings = Settings { has_operator: false, has_subresources: false, ..Settings::default() };
    let kinds: Vec<String> = all(&settings).iter().map(|object| object["kind"].to_string()).collect();
    let runs = ["Deployment", "Webhook", "APIService"];
    assert!(!kinds.iter().any(|kind| runs.iter().any(|one| kind.contains(one))));
    assert!(kinds.contains(&"\"Namespace\"".to_owned()) && kinds.contains(&"\"ServiceAccount\"".to_owned()));
}
