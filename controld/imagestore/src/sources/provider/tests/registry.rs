//! Who is asked for a name, and when the asking ends.

use std::sync::{Arc, Mutex};

use super::super::*;
use super::locator;
use crate::sources::net::{self, FetchError};

/// Knows one name.
#[derive(Debug)]
struct Knowing {
    id: &'static str,
    knows: &'static str,
    /// What it answers to everything, if it fails.
    status: Option<u16>,
    asked: Arc<Mutex<Vec<&'static str>>>,
}

impl Provider for Knowing {
    fn id(&self) -> &str {
        self.id
    }

    fn caps(&self) -> Caps {
        Caps { search: true, ..Caps::default() }
    }

    fn schemes(&self) -> &[&str] {
        &["glance+https"]
    }

    fn resolve<'a>(&'a self, locator: &'a Locator, _: &'a Want) -> Answer<'a, RemoteImage> {
        std::future::ready(Ok(RemoteImage::at(self.id, net::Request::get(locator.url().clone())))).boxed()
    }

    fn find<'a>(&'a self, name: &'a str, _: &'a Want) -> Answer<'a, Option<RemoteImage>> {
        self.asked.lock().expect("sound").push(self.id);
        let image = RemoteImage::at(self.id, net::Request::get(locator("https://h/").url().clone()));
        std::future::ready(match self.status {
            Some(status) => Err(FetchError::Status { url: "u".into(), status }.into()),
            None => Ok((name == self.knows).then_some(image)),
        })
        .boxed()
    }

    fn open<'a>(&'a self, _: &'a RemoteImage, _: &'a Ask) -> Answer<'a, Opened> {
        std::future::ready(Ok(Opened::Unchanged)).boxed()
    }

    fn search<'a>(&'a self, prefix: &'a str, _: Option<&'a Platform>) -> Answer<'a, Vec<ImageMetadata>> {
        let image = |name: &str, hidden| ImageMetadata { name: name.into(), hidden, ..ImageMetadata::default() };
        let found =
            if self.knows.starts_with(prefix) { vec![image(self.knows, false), image("x", true)] } else { Vec::new() };
        std::future::ready(Ok(found)).boxed()
    }
}

/// Three providers: of `one`, of `two` and again of `two`, the first of which fails if it is told how.
async fn found(name: &str, pin: Option<&str>, status: Option<u16>, fall_through: bool) -> (String, Vec<&'static str>) {
    let asked = Arc::<Mutex<Vec<_>>>::default();
    let provider =
        |id, knows, status| -> Arc<dyn Provider> { Arc::new(Knowing { id, knows, status, asked: asked.clone() }) };
    let registry = Registry::new(
        vec![provider("a", "one", status), provider("b", "two", None), provider("c", "two", None)],
        fall_through,
    );
    let answer = match registry.find(name, &Want::default(), pin).await {
        Ok(Some(choice)) => format!("{} {}", choice.provider.id(), choice.image.metadata.provider),
        Ok(None) => "none".into(),
        Err(error) => error.to_string(),
    };
    let asked = asked.lock().expect("sound").clone();
    (answer, asked)
}

#[tokio::test]
async fn the_first_that_knows_a_name_has_it() {
    assert_eq!(found("one", None, None, false).await, ("a a".into(), vec!["a"]));
    assert_eq!(found("two", None, None, false).await, ("b b".into(), vec!["a", "b"]));
    assert_eq!(found("four", None, None, true).await, ("none".into(), vec!["a", "b", "c"]));
    assert_eq!(found("two", Some("c"), Some(500), false).await, ("c c".into(), vec!["c"]));
    assert_eq!(found("one", Some("c"), None, false).await, ("none".into(), vec!["c"]));
    assert_eq!(found("one", Some("d\n"), None, false).await.0, "no provider `d\\n` is configured");
}

#[tokio::test]
async fn a_provider_that_fails_ends_the_search_unless_it_may_be_passed_over() {
    for (status, fall_through, passed) in
        [(500, false, false), (500, true, true), (404, true, false), (401, true, false), (403, true, false)]
    {
        let (answer, asked) = found("two", None, Some(status), fall_through).await;
        assert_eq!(asked.len(), if passed { 2 } else { 1 }, "{status} {fall_through}: {answer}");
        let expected = if passed { "b b" } else { "failed to ask provider `a`" };
        assert_eq!(answer, expected, "{status} {fall_through}");
    }
}

#[tokio::test]
async fn a_scheme_has_the_first_provider_that_knows_it() {
    let provider =
        |id| -> Arc<dyn Provider> { Arc::new(Knowing { id, knows: "one", status: None, asked: Arc::default() }) };
    let registry = Registry::new(vec![provider("a"), provider("b")], false);
    let choice = registry.resolve(&locator("glance+https://h/x"), &Want::default()).await.expect("an image");
    assert_eq!(choice.provider.id(), "a");
    let error = registry.resolve(&locator("oci://h/x"), &Want::default()).await.expect_err("nobody");
    assert_eq!(error.to_string(), "no provider for URLs of scheme `oci` is configured");
    let names: Vec<_> =
        registry.search("o", None, None).await.expect("found").into_iter().map(|image| image.name).collect();
    assert_eq!(names, ["one", "one"], "what is hidden is left out");
    assert!(registry.search("two", None, None).await.expect("found").is_empty());
    assert!(matches!(registry.by_id("b"), Ok(provider) if provider.id() == "b"));
}
