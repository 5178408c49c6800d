use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

fn spec(image: &str, handler: &str, annotated: Option<&str>) -> Option<ImageSpec> {
    Some(ImageSpec {
        image: image.into(),
        runtime_handler: handler.into(),
        annotations: annotated.into_iter().map(|name| (IMAGE_HANDLER.into(), name.into())).collect(),
        ..ImageSpec::default()
    })
}

#[test]
fn the_annotation_names_the_handler_where_the_field_does_not() {
    for (handler, annotated, expected) in
        [("", None, ""), ("arm", None, "arm"), ("", Some("arm"), "arm"), ("vm", Some("arm"), "vm")]
    {
        assert_eq!(asked(spec("x", handler, annotated)), ("x".into(), expected.into()));
    }
    assert_eq!(asked(None), (String::new(), String::new()));
}

#[test]
fn pull_secrets_are_understood_in_every_form() {
    let basic = |user: &str, password: &str| Some(Auth::Basic { user: user.into(), password: password.into() });
    let of = |fill: fn(&mut AuthConfig)| {
        let mut auth = AuthConfig::default();
        fill(&mut auth);
        credentials(auth).map(|auth| format!("{auth:?}")).map_err(|error| error.kind())
    };
    let shown = |auth: Option<Auth>| Ok(format!("{auth:?}"));
    assert_eq!(of(|_| {}), shown(None));
    assert_eq!(of(|auth| auth.server_address = "https://x".into()), shown(None));
    assert_eq!(of(|auth| (auth.username, auth.password) = ("u".into(), "p".into())), shown(basic("u", "p")));
    assert_eq!(of(|auth| auth.registry_token = "t".into()), shown(Some(Auth::Bearer("t".into()))));
    assert_eq!(of(|auth| auth.auth = "!".into()), Err(Kind::Invalid));
    assert_eq!(of(|auth| auth.auth = STANDARD.encode("no colon")), Err(Kind::Invalid));
    assert_eq!(of(|auth| auth.identity_token = "t".into()), shown(basic("<token>", "t")));
    let decoded = credentials(AuthConfig { auth: STANDARD.encode("u:p:q\0"), ..AuthConfig::default() });
    match decoded.expect("understood") {
        Some(Auth::Basic { user, password }) => assert_eq!((user.as_str(), password.as_str()), ("u", "p:q")),
        other => panic!("{other:?}"),
    }
}

fn stored(user: Option<&str>) -> Stored {
    Stored {
        id: format!("sha256:{}", "ab".repeat(32)).parse().expect("an id"),
        handler: "vm".into(),
        repo_tags: vec!["x:latest".into()],
        repo_digests: vec![],
        size: 7,
        virtual_size: 512,
        format: vmimage::inspect::DiskFormat::Raw,
        path: "/x".into(),
        user: user.map(str::to_owned),
        provider: None,
        pinned: true,
        weak: false,
        stale: false,
        parent: None,
        missing: None,
    }
}

#[test]
fn an_image_says_its_handler_and_user() {
    let cases = [
        (None, None, ""),
        (Some(""), None, ""),
        (Some("1000"), Some(1000), ""),
        (Some("1000:50"), Some(1000), ""),
        (Some("nobody"), None, "nobody"),
        (Some("nobody:nogroup"), None, "nobody"),
    ];
    for (user, uid, name) in cases {
        let image = shown(stored(user));
        assert_eq!((image.uid.map(|uid| uid.value), image.username.as_str()), (uid, name), "{user:?}");
        assert_eq!(image.spec.expect("never absent").runtime_handler, "vm");
        assert!(image.pinned && image.size == 7);
    }
}
