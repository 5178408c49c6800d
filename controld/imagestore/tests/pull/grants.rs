//! What is here is given again only to those to whom its source gave it, and on the terms of rules, handlers and providers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use imagestore::net::Auth;
use imagestore::{Config, HandlerConfig, Image, Offline, Protocol, PullRequest};
use vmimage::error::ErrorKind;
use vmimage::inspect::DiskFormat;

use crate::rig::{Bed, Server, chain, disk, hex};

/// base64 of `me:secret` and `you:secret`
const LOGINS: [&str; 2] = ["bWU6c2VjcmV0", "eW91OnNlY3JldA=="];
const ETAG: &str = "\"one\"";

/// A server with an image for two users. It may be asked to let one of them in no more.
struct Private {
    server: Server,
    id: String,
    out: Arc<Mutex<Option<&'static str>>>,
    /// Bodies that were sent.
    sent: Arc<Mutex<usize>>,
}

impl Private {
    fn new() -> Self {
        let image = disk(1, 4096);
        let (id, out, sent) = (hex(&image), Arc::new(Mutex::new(None)), Arc::new(Mutex::new(0)));
        let (refused, bodies) = (out.clone(), sent.clone());
        let server = Server::plain(move |call| {
            let out: Option<&str> = *refused.lock().expect("sound");
            if !LOGINS.iter().any(|login| call.head.contains(login) && Some(*login) != out) {
                return call.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
            }
            if call.head.to_lowercase().contains(&format!("if-none-match: {ETAG}")) {
                return call.send(format!("HTTP/1.1 304 Same\r\nETag: {ETAG}\r\n\r\n"));
            }
            *bodies.lock().expect("sound") += 1;
            call.send(format!("HTTP/1.1 200 OK\r\nETag: {ETAG}\r\nContent-Length: {}\r\n\r\n", image.len()));
            call.send(&image);
        });
        Self { server, id, out, sent }
    }

    fn bodies(&self) -> usize {
        *self.sent.lock().expect("sound")
    }

    fn bed(&self, change: impl FnOnce(&mut Config)) -> Bed {
        Bed::with(&self.server.url("/x"), |config| {
            config.protocol = Protocol::Http;
            change(config);
        })
    }

    fn pinned(&self) -> String {
        format!("img@sha256:{}", self.id)
    }
}

async fn pull(bed: &Bed, name: &str, user: Option<&str>) -> Result<Image, (ErrorKind, String)> {
    let auth = user.map(|user| Auth::Basic { user: user.into(), password: "secret".into() });
    ask(bed, PullRequest { auth, ..name.into() }).await
}

async fn ask(bed: &Bed, request: PullRequest) -> Result<Image, (ErrorKind, String)> {
    bed.store.pull(request).await.map_err(|error| (error.kind(), chain(&*error)))
}

#[tokio::test]
async fn a_digest_that_is_here_is_no_leave_to_have_it() {
    let private = Private::new();
    let bed = private.bed(|_| {});
    let id = pull(&bed, "img", Some("me")).await.expect("let in").id;
    let other = Server::plain(|call| call.ok(&disk(2, 4096)));
    let digest = format!("sha256:{}", private.id);
    for (name, kind) in [
        (private.pinned(), ErrorKind::Denied),
        (format!("127.0.0.1:1/x@{digest}"), ErrorKind::Server),
        (format!("169.254.169.254/x@{digest}"), ErrorKind::Denied),
        (format!("{}/x@{digest}", other.address), ErrorKind::DigestMismatch),
        (digest, ErrorKind::NotFound),
        (private.id.clone(), ErrorKind::NotFound),
    ] {
        let (said, error) = pull(&bed, &name, None).await.expect_err(&name);
        assert_eq!(said, kind, "{name}: {error}");
    }
    assert_eq!(bed.store.list("").expect("listed").len(), 1);
    assert_eq!(bed.store.get("img", "").expect("a handler").expect("as before").id, id);
}

#[tokio::test]
async fn who_was_let_in_is_not_asked_for_again_even_after_a_restart() {
    let private = Private::new();
    let bed = private.bed(|_| {});
    let id = pull(&bed, "img", Some("me")).await.expect("let in").id;
    let asked = private.server.hits();
    for name in [&private.pinned(), &private.id] {
        assert_eq!(pull(&bed, name, Some("me")).await.expect("was let in").id, id);
    }
    let bed = bed.reopened();
    for name in [&private.pinned(), &private.id] {
        assert_eq!(pull(&bed, name, Some("me")).await.expect("was let in").id, id);
    }
    assert_eq!(private.server.hits(), asked);
    // Another way of the same name is another source.
    bed.translate(&private.server.url("/y"));
    pull(&bed, &private.pinned(), Some("me")).await.expect("let in there too");
    assert!(private.server.hits() > asked);
}

#[tokio::test]
async fn another_login_is_asked_about_and_downloads_nothing() {
    let private = Private::new();
    let bed = private.bed(|_| {});
    pull(&bed, "img", Some("me")).await.expect("let in");
    assert_eq!(private.bodies(), 1);
    pull(&bed, &private.pinned(), Some("you")).await.expect("let in");
    assert_eq!((private.server.hits(), private.bodies()), (2, 1), "asked whether it changed, and no more");
    pull(&bed, &private.pinned(), Some("you")).await.expect("was let in");
    assert_eq!(private.server.hits(), 2);
    pull(&bed, &private.pinned(), Some("they")).await.expect_err("let in by nobody");
}

#[tokio::test]
async fn what_is_open_to_all_is_open_to_those_with_a_login() {
    let image = disk(1, 4096);
    let pinned = format!("img@sha256:{}", hex(&image));
    let server = Server::plain(move |call| call.ok(&image));
    let bed = Bed::new(&server.url("/x"));
    pull(&bed, "img", None).await.expect("pulled");
    pull(&bed, &pinned, Some("me")).await.expect("nobody was asked who they are");
    assert_eq!(server.hits(), 1);
}

#[tokio::test]
async fn what_a_handler_may_have_holds_for_what_is_here() {
    let private = Private::new();
    let only = |name: &str| Some(BTreeSet::from([name.to_owned()]));
    let bed = private.bed(|config| {
        for (name, settings) in [
            ("providers", HandlerConfig { providers: only("nobody"), ..HandlerConfig::default() }),
            ("translations", HandlerConfig { translations: only("b.yaml"), ..HandlerConfig::default() }),
            ("formats", HandlerConfig { formats: Some(BTreeSet::new()), ..HandlerConfig::default() }),
        ] {
            config.handlers.insert(name.into(), settings);
        }
        config.allow_untranslated = false;
        config.providers = vec![
            serde_json::from_value(
                serde_json::json!({ "type": "lago", "id": "nobody", "uri": private.server.url("/") }),
            )
            .expect("settings"),
        ];
    });
    pull(&bed, "img", Some("me")).await.expect("let in");
    let auth = || Some(Auth::Basic { user: "me".into(), password: "secret".into() });
    for handler in ["providers", "translations", "formats"] {
        let request = PullRequest { handler: handler.into(), auth: auth(), ..private.pinned().as_str().into() };
        ask(&bed, request).await.expect_err(handler);
    }
    let pinned = PullRequest { provider: Some("nobody".into()), auth: auth(), ..private.pinned().as_str().into() };
    ask(&bed, pinned).await.expect_err("it was had from another");
    pull(&bed, &format!("other@sha256:{}", private.id), Some("me")).await.expect_err("no rule for it");
    let sent = private.bodies();
    let force = PullRequest { force: true, auth: auth(), ..private.pinned().as_str().into() };
    ask(&bed, force).await.expect("pulled anew");
    assert_eq!(private.bodies(), sent + 1);
}

#[tokio::test]
async fn what_was_given_is_not_given_again_once_the_rule_means_other_bytes() {
    let private = Private::new();
    let bed = private.bed(|_| {});
    let rule = |digest: &str| {
        let rule = format!("{{name: img, url: '{}', digest: 'sha256:{digest}'}}", private.server.url("/x"));
        std::fs::write(bed.dir.path().join("rules/a.yaml"), format!("translations: [{rule}]")).expect("written");
    };
    rule(&private.id);
    pull(&bed, "img", Some("me")).await.expect("let in");
    let asked = private.server.hits();
    pull(&bed, "img", Some("me")).await.expect("was let in");
    assert_eq!(private.server.hits(), asked);
    rule(&"0".repeat(64));
    let auth = Some(Auth::Basic { user: "me".into(), password: "secret".into() });
    let offline = PullRequest { auth, offline: Some(Offline::Always), ..PullRequest::from("img") };
    ask(&bed, offline).await.expect_err("those bytes are not here");
    assert_eq!(private.server.hits(), asked);
    let (kind, error) = pull(&bed, "img", Some("me")).await.expect_err("nor at the source");
    assert_eq!(kind, ErrorKind::DigestMismatch, "{error}");
}

#[tokio::test]
async fn what_was_given_is_not_given_again_once_its_handler_takes_no_such_format() {
    let private = Private::new();
    let bed = private.bed(|_| {});
    pull(&bed, "img", Some("me")).await.expect("let in");
    let asked = private.server.hits();
    let bed = bed.reopened_with(|config| {
        let default = config.handlers.entry(config.default_handler.clone()).or_default();
        default.formats = Some(BTreeSet::from([DiskFormat::Raw]));
    });
    let (_, error) = pull(&bed, &private.id, Some("me")).await.expect_err("only from what was given");
    assert_eq!(private.server.hits(), asked, "an id says no source: {error}");
    let (kind, error) = pull(&bed, &private.pinned(), Some("me")).await.expect_err("not for this handler");
    assert_eq!(kind, ErrorKind::Refused, "{error}");
}

#[tokio::test]
async fn offline_only_those_who_were_let_in_are_served() {
    let private = Private::new();
    let bed = private.bed(|_| {});
    pull(&bed, "img", Some("me")).await.expect("let in");
    let asked = private.server.hits();
    for name in ["img", &private.pinned(), &private.id] {
        for (user, served) in [("me", true), ("you", false)] {
            let auth = Some(Auth::Basic { user: user.into(), password: "secret".into() });
            let request = PullRequest { auth, offline: Some(Offline::Always), ..name.into() };
            assert_eq!(ask(&bed, request).await.is_ok(), served, "{name} for {user}");
        }
    }
    assert_eq!(private.server.hits(), asked);
}

#[tokio::test]
async fn who_is_let_in_no_more_is_out_once_the_grant_has_lapsed() {
    let private = Private::new();
    let bed = private.bed(|config| config.limits.granted_for = Duration::ZERO);
    pull(&bed, "img", Some("me")).await.expect("let in");
    pull(&bed, &private.pinned(), Some("me")).await.expect("let in again");
    assert_eq!((private.server.hits(), private.bodies()), (2, 1), "asked, though not for the bytes");
    *private.out.lock().expect("sound") = Some(LOGINS[0]);
    let (kind, _) = pull(&bed, &private.pinned(), Some("me")).await.expect_err("let in no more");
    assert_eq!(kind, ErrorKind::Denied);
    assert_eq!(pull(&bed, &private.id, Some("me")).await.expect_err("nor by its id").0, ErrorKind::NotFound);
}

#[tokio::test]
async fn a_rule_says_which_bytes_and_the_source_says_for_whom() {
    let private = Private::new();
    let bed = private.bed(|_| {});
    let rules = bed.dir.path().join("rules/b.yaml");
    let rule = format!("{{name: ruled, url: '{}', digest: 'sha256:{}'}}", private.server.url("/z"), private.id);
    std::fs::write(rules, format!("translations: [{rule}]")).expect("written");
    pull(&bed, "img", Some("me")).await.expect("let in");
    assert_eq!(pull(&bed, "ruled", None).await.expect_err("not for all").0, ErrorKind::Denied);
    pull(&bed, "ruled", Some("you")).await.expect("let in");
    let asked = private.server.hits();
    pull(&bed, "ruled", Some("you")).await.expect("was let in");
    assert_eq!(private.server.hits(), asked);
}
