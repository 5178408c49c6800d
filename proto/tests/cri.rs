//! What CRI messages show of themselves.

#![cfg(feature = "cri")]

#[test]
fn a_password_is_not_printed() {
    let auth = proto::cri::AuthConfig {
        username: "me".into(),
        password: "hunter2".into(),
        auth: "bWU6aHVudGVyMg==".into(),
        identity_token: "hunter2".into(),
        registry_token: "hunter2".into(),
        ..Default::default()
    };
    let request = proto::cri::PullImageRequest { auth: Some(auth), ..Default::default() };
    let shown = format!("{request:?}");
    assert!(shown.contains("me") && shown.contains("(redacted)"), "{shown}");
    assert!(!shown.contains("hunter2") && !shown.contains("bWU6"), "{shown}");
}
