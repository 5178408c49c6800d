//! The two doors of a runtime handler: no machine of it is made of what a pull for it refuses, whoever pulled that.

use std::collections::BTreeSet;

use imagestore::provider::ProviderConfig;
use imagestore::{Config, HandlerConfig, PullRequest};
use vmimage::error::ErrorKind;
use vmimage::inspect::DiskFormat;

use crate::rig::{Bed, Server, chain, disk, hex};

fn only(name: &str) -> Option<BTreeSet<String>> {
    Some(BTreeSet::from([name.to_owned()]))
}

/// Two providers that have nothing.
fn with_providers(config: &mut Config, server: &Server) {
    let of = |id: &str| -> ProviderConfig {
        let settings = serde_json::json!({ "type": "lago", "id": id, "uri": server.url("/") });
        serde_json::from_value(settings).expect("settings")
    };
    config.providers = ["corp", "public"].map(of).into();
    config.allow_untranslated = false;
}

fn bed(server: &Server) -> Bed {
    Bed::with(&server.url("/x"), |config| {
        with_providers(config, server);
        for (name, settings) in [
            ("providers", HandlerConfig { providers: only("corp"), ..HandlerConfig::default() }),
            ("translations", HandlerConfig { translations: only("b"), ..HandlerConfig::default() }),
            ("formats", HandlerConfig { formats: Some(BTreeSet::from([DiskFormat::Raw])), ..HandlerConfig::default() }),
            ("fits", HandlerConfig { translations: only("a"), providers: only("http"), ..HandlerConfig::default() }),
        ] {
            config.handlers.insert(name.into(), settings);
        }
    })
}

fn pull_for(handler: &str, name: &str) -> PullRequest {
    PullRequest { handler: handler.into(), ..PullRequest::from(name) }
}

#[tokio::test]
async fn no_machine_is_made_of_what_a_pull_for_its_handler_refuses() {
    let server = Server::plain(|call| call.ok(&disk(1, 4096)));
    let bed = bed(&server);
    // As kubelet asks: for no handler.
    let id = bed.pull().await.expect("pulled").id.to_string();
    for (handler, said) in [
        ("providers", "it came from provider `http`, which is none of the handler's `providers`"),
        ("translations", "it came by rule 1 (`img`) of `a.yaml`, which is in none of the handler's `translations`"),
        ("formats", "it is qcow2, or stands on"),
    ] {
        bed.store.pull(pull_for(handler, "img")).await.expect_err(handler);
        for name in ["img", &id, &id[7..20]] {
            let error = bed.store.usable(name, handler).expect_err(handler);
            let whole = chain(&error);
            assert_eq!(error.kind(), ErrorKind::Refused, "{whole}");
            assert!(whole.starts_with(&format!("image `{name}` is none for runtime handler `{handler}`; ")), "{whole}");
            assert!(whole.contains(said), "{whole}");
        }
    }
    for handler in ["", "fits"] {
        assert_eq!(bed.store.usable("img", handler).expect(handler).id.to_string(), id);
    }
    // The same bytes come by a rule that the handler has.
    let rule = format!("translations: [{{name: other, url: '{}'}}]", server.url("/x"));
    std::fs::write(bed.dir.path().join("rules/b.yaml"), rule).expect("written");
    bed.store.pull("other").await.expect("pulled");
    for name in ["other", "img", &id] {
        assert_eq!(bed.store.usable(name, "translations").expect(name).id.to_string(), id);
    }
}

#[tokio::test]
async fn settings_that_became_stricter_hold_for_what_is_here() {
    let image = disk(1, 4096);
    let pinned = format!("img@sha256:{}", hex(&image));
    let server = Server::plain(move |call| call.ok(&image));
    for (what, settings) in [
        ("providers", HandlerConfig { providers: only("corp"), ..HandlerConfig::default() }),
        ("translations", HandlerConfig { translations: only("b"), ..HandlerConfig::default() }),
    ] {
        let bed = bed(&server);
        for name in ["img", &pinned] {
            bed.store.pull(pull_for("fits", name)).await.expect("pulled");
        }
        let asked = server.hits();
        bed.store.pull(pull_for("fits", &pinned)).await.expect("given lately");
        assert_eq!(server.hits(), asked);
        let bed = bed.reopened_with(|config| {
            config.handlers.insert("fits".into(), settings);
        });
        bed.store.pull(pull_for("fits", &pinned)).await.expect_err(what);
        let error = bed.store.usable(&pinned, "fits").expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }
}

#[tokio::test]
async fn who_names_a_provider_names_one_of_the_handler() {
    let server = Server::plain(|call| call.ok(&disk(1, 4096)));
    let bed = bed(&server);
    let request = PullRequest { provider: Some("public".into()), ..pull_for("providers", "img") };
    let error = bed.store.pull(request).await.expect_err("not of this handler");
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(chain(&*error).contains("provider `public` is not one of those"), "{}", chain(&*error));
    assert_eq!(server.hits(), 0);
}
