use proto::cri::{RuntimeFeatures, RuntimeHandlerFeatures};

use super::*;

fn default() -> StatusResponse {
    let ready = |kind: &str| condition(kind, None);
    let features = Some(RuntimeHandlerFeatures { user_namespaces: true, ..Default::default() });
    let handler = |name: &str| RuntimeHandler { name: name.into(), features };
    StatusResponse {
        status: Some(RuntimeStatus {
            conditions: vec![ready("RuntimeReady"), ready("NetworkReady"), ready("ContainerdHasNoDeprecationWarnings")],
        }),
        info: [("config".to_owned(), "{}".to_owned())].into(),
        runtime_handlers: vec![handler(""), handler("runc")],
        features: Some(RuntimeFeatures { supplemental_groups_policy: true, ..Default::default() }),
    }
}

fn ours_of(trouble: Option<&Trouble>) -> Bytes {
    let handlers = ["", "virtlet"].map(|name| RuntimeHandler { name: name.into(), features: None });
    ours(trouble, handlers.into(), [("virtlet".to_owned(), "{}".to_owned())].into())
}

fn answer(default: Bytes, ours: Bytes) -> StatusResponse {
    StatusResponse::decode(&*[default, ours].concat()).expect("one status")
}

fn told(status: &StatusResponse) -> Vec<(&str, bool, &str)> {
    let conditions = &status.status.as_ref().expect("a status").conditions;
    conditions.iter().map(|is| (is.r#type.as_str(), is.status, is.reason.as_str())).collect()
}

fn missing(seconds: u64) -> Missing {
    Missing { since: Duration::from_secs(seconds), why: "nobody listens on its socket".into(), is_away: true }
}

#[test]
fn a_default_that_is_there_is_not_said_to_be_away() {
    let missing = Missing { since: Duration::from_secs(21), why: "it is late".into(), is_away: false };
    assert_eq!(missing.to_string(), "the container runtime has not answered `Status` for 21 s: it is late");
}

#[test]
fn ours_is_one_condition_behind_the_defaults_and_our_handlers() {
    let status = answer(of_default(Ok(default().encode_to_vec().into()), None).expect("a part"), ours_of(None));
    assert_eq!(
        told(&status),
        [
            ("RuntimeReady", true, ""),
            ("NetworkReady", true, ""),
            ("ContainerdHasNoDeprecationWarnings", true, ""),
            ("VirtletReady", true, ""),
        ]
    );
    let names: Vec<_> = status.runtime_handlers.iter().map(|handler| handler.name.as_str()).collect();
    assert_eq!(names, ["", "runc", "virtlet"]);
    assert_eq!((status.info.len(), status.features), (2, default().features));
    assert_eq!(handlers(&default()), ["".to_owned(), "runc".to_owned()].into());
}

/// Anything else would make the whole node not ready.
#[test]
fn while_we_are_not_ready_the_defaults_conditions_are_untouched() {
    let own = StatusResponse {
        status: Some(RuntimeStatus {
            conditions: vec![
                condition("RuntimeReady", None),
                condition("KvmUsable", Some(&Trouble { reason: "Emulated".into(), message: String::new() })),
                condition(
                    "NetworkReady",
                    Some(&Trouble { reason: "TapmanagerNotReady".into(), message: "down".into() }),
                ),
            ],
        }),
        ..Default::default()
    };
    let trouble = of_own(&own).expect("trouble");
    assert_eq!(trouble.message, "down");
    let status = answer(default().encode_to_vec().into(), ours_of(Some(&trouble)));
    assert_eq!(told(&status)[..2], [("RuntimeReady", true, ""), ("NetworkReady", true, "")]);
    assert_eq!(told(&status)[3], ("VirtletReady", false, "TapmanagerNotReady"));
    assert!(status.runtime_handlers.iter().any(|handler| handler.name == "virtlet"), "pods are admitted by it");
    assert_eq!(of_own(&StatusResponse::default()), None);
}

#[test]
fn a_default_that_is_away_is_as_it_was_and_then_not_ready() {
    let last: Bytes = default().encode_to_vec().into();
    assert_eq!(of_default(Err(missing(19)), Some(last.clone())), Ok(last.clone()));
    let status = answer(of_default(Err(missing(20)), Some(last)).expect("a part"), ours_of(None));
    assert_eq!(
        told(&status),
        [
            ("RuntimeReady", false, "ContainerRuntimeDown"),
            ("NetworkReady", true, ""),
            ("ContainerdHasNoDeprecationWarnings", true, ""),
            ("VirtletReady", true, ""),
        ]
    );
    assert_eq!(status.runtime_handlers.len(), 3, "handlers stay");
    let message = &status.status.as_ref().expect("a status").conditions[0].message;
    assert_eq!(message, "the container runtime is away for 20 s: nobody listens on its socket");
    // Since our start nothing is known of it: an error, with which kubelet has patience, before a condition that is false.
    assert_eq!(of_default(Err(missing(19)), None), Err(missing(19)));
    let status = answer(of_default(Err(missing(20)), None).expect("a part"), ours_of(None));
    assert_eq!(
        told(&status)[..2],
        [("RuntimeReady", false, "ContainerRuntimeDown"), ("NetworkReady", false, "ContainerRuntimeDown")]
    );
    // A last Status that was none.
    let none = of_default(Err(missing(99)), Some(Bytes::from_static(&[0x0a, 9]))).expect("a part");
    assert!(!told(&answer(none, ours_of(None)))[0].1);
}

#[test]
fn what_a_newer_runtime_says_besides_stays_while_it_is_away() {
    let unknown = &[0xfa, 0x7d, 2, b'o', b'k'][..];
    // In a condition, beside conditions, and beside the status.
    let network = [condition("NetworkReady", None).encode_to_vec(), unknown.to_vec()].concat();
    let mut status = Vec::new();
    wire::put(1, &[&condition("RuntimeReady", None).encode_to_vec()], &mut status);
    wire::put(1, &[&network], &mut status);
    status.extend_from_slice(unknown);
    let mut last = Vec::new();
    wire::put(1, &[&status], &mut last);
    last.extend_from_slice(unknown);
    let away = of_default(Err(missing(20)), Some(last.into())).expect("a part");
    assert_eq!(away.windows(unknown.len()).filter(|found| *found == unknown).count(), 3);
    assert_eq!(
        told(&answer(away, Bytes::new())),
        [("RuntimeReady", false, "ContainerRuntimeDown"), ("NetworkReady", true, "")]
    );
}
