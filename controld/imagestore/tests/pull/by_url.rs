//! Images whose place the caller names.

use imagestore::PullRequest;
use vmimage::name::{ImageRef, given_url};

use crate::rig::{Bed, Server, chain, disk, hex, names};

#[tokio::test]
async fn a_url_with_capitals_and_a_query_is_fetched_under_a_name_of_its_own() {
    let image = disk(1, 64 * 1024);
    let body = image.clone();
    let server = Server::plain(move |call| call.ok(&body));
    // No rule is asked, whatever it says.
    let bed = Bed::new("http://unused.example/");
    let url = given_url(&server.url("/Dir/Image.qcow2?token=secret")).expect("a place");
    let name = ImageRef::of_url(&url).expect("a name").to_string();
    let request = PullRequest { url: Some(url), ..(&name).into() };
    let pulled = bed.store.pull(request.clone()).await.expect("pulled");
    assert_eq!(pulled.id.hex(), hex(&image));
    assert_eq!(pulled.repo_tags, std::slice::from_ref(&name));
    assert_eq!(bed.store.usable(&name, "").expect("a machine can be made of it").id, pulled.id);
    let head = server.requests.lock().expect("sound")[0].clone();
    assert!(head.starts_with("GET /Dir/Image.qcow2?token=secret HTTP/1.1\r\n"), "{head}");
    let records = bed.images().join("refs/_default");
    for record in names(&records) {
        let text = std::fs::read_to_string(records.join(&record)).expect("read");
        assert!(!text.contains("secret") && !record.contains("secret"), "{record}: {text}");
    }
    // Without it, the name is asked for as any other.
    drop(server);
    let error = bed.store.pull(&name).await.expect_err("nobody's");
    assert!(error.is_unreachable(), "{}", chain(&*error));
}

#[tokio::test]
async fn two_places_under_one_name_are_two_pulls() {
    let server = Server::plain(|call| {
        let seed = if call.path() == "/a" { 1 } else { 2 };
        call.ok(&disk(seed, 64 * 1024));
    });
    let bed = Bed::new("http://unused.example/");
    let pull = |path: &str| {
        let url = given_url(&server.url(path)).expect("a place");
        bed.store.pull(PullRequest { url: Some(url), ..PullRequest::from("x/y") })
    };
    let (a, b) = tokio::join!(pull("/a"), pull("/b"));
    assert_ne!(a.expect("pulled").id, b.expect("pulled").id);
}
