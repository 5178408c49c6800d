//! The service over a real store that is asked for files of the node.

use std::path::Path;

use hyper_util::rt::TokioIo;
use proto::images::image_admin_client::ImageAdminClient;
use proto::images::image_admin_server::ImageAdminServer;
use tokio::net::UnixStream;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::*;

pub(crate) fn calls(root: &Path) -> AdminCalls {
    AdminCalls { images: images(root) }
}

/// A store below `root`, where an image lies for pulling; a handler `arm` beside the default one.
pub(crate) fn images(root: &Path) -> Images {
    let images = root.join("node");
    std::fs::create_dir_all(&images).expect("made");
    std::fs::create_dir_all(root.join("rules")).expect("made");
    std::fs::write(images.join("disk.raw"), vec![7; 4096]).expect("written");
    let rule = format!("translations: [{{name: disk, url: 'file://{}'}}]", images.join("disk.raw").display());
    std::fs::write(root.join("rules/a.yaml"), rule).expect("written");
    let mut config = imagestore::Config::new(root.join("images"));
    config.allow_raw = true;
    config.allow_untranslated = false;
    config.local_roots = vec![images];
    config.translations_dir = Some(root.join("rules"));
    config.handlers.insert(
        "arm".into(),
        imagestore::HandlerConfig {
            platform: imagestore::provider::Platform::linux("arm64"),
            ..imagestore::HandlerConfig::default()
        },
    );
    let mappings = config.mappings.clone();
    Images::of(imagestore::Store::open(config).expect("opened"), mappings)
}

async fn pull(calls: &AdminCalls, name: &str, handler: &str) -> Result<PullResult, Status> {
    let request = PullWithProgressRequest { name: name.into(), handler: handler.into(), ..Default::default() };
    let messages = calls.pull_with_progress(Request::new(request)).await?.into_inner();
    let mut messages = messages.collect::<Result<Vec<_>, _>>().await?;
    match messages.pop().and_then(|message| message.event) {
        Some(pull_with_progress_response::Event::Result(result)) => Ok(result),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_image_is_pulled_listed_inspected_verified_and_pinned() {
    let root = tempfile::tempdir().expect("a directory");
    let calls = calls(root.path());
    let image = pull(&calls, "disk", "arm").await.expect("pulled").image.expect("an image");
    assert_eq!((image.handler.as_str(), image.provider.as_str(), image.format.as_str()), ("arm", "file", "raw"));
    let list = |name: &str, handler: &str| ListRequest { name: name.into(), handler: handler.into() };
    for (request, found) in [
        (list("", ""), 1),
        (list("", "arm"), 1),
        (list("", "virtlet"), 0),
        (list("disk", ""), 1),
        (list("other", ""), 0),
        (list("No Name", ""), 0),
    ] {
        let listed = calls.list(Request::new(request.clone())).await.expect("listed").into_inner().images;
        assert_eq!(listed.len(), found, "{request:?}");
    }
    let unknown = calls.list(Request::new(list("", "no-such"))).await.expect_err("unknown");
    assert_eq!(unknown.code(), Code::InvalidArgument);

    let inspect = |handler: &str| InspectRequest { name: "disk".into(), handler: handler.into() };
    let facts = calls.inspect(Request::new(inspect("arm"))).await.expect("there").into_inner();
    assert_eq!((facts.length, facts.names.len()), (4096, 1));
    assert_eq!(calls.inspect(Request::new(inspect(""))).await.expect_err("not for it").code(), Code::NotFound);

    let pin = PinRequest { name: "disk".into(), handler: "arm".into(), pinned: true };
    assert_eq!(calls.pin(Request::new(pin)).await.expect("pinned").into_inner().id, image.id);
    let listed = calls.list(Request::new(list("", ""))).await.expect("listed").into_inner().images;
    assert!(listed[0].pinned);

    let verdicts = calls.verify(Request::new(VerifyRequest::default())).await.expect("begun").into_inner();
    let verdicts = verdicts.collect::<Result<Vec<_>, _>>().await.expect("verified");
    assert_eq!(verdicts.iter().map(VerifyResponse::verdict).collect::<Vec<_>>(), [verify_response::Verdict::Sound]);
    let absent = VerifyRequest { name: "other".into() };
    assert_eq!(calls.verify(Request::new(absent)).await.expect_err("absent").code(), Code::NotFound);

    let report = calls.gc(Request::new(GcRequest::default())).await.expect("collected").into_inner();
    assert_eq!(report, GcResponse { images: Some(Default::default()), ..report }, "nothing goes");
}

#[tokio::test]
async fn refusals_have_their_codes_and_say_so_first() {
    let root = tempfile::tempdir().expect("a directory");
    let calls = calls(root.path());
    std::fs::write(root.path().join("node/disk.raw"), b"KDMV and no more").expect("written");
    let refused = pull(&calls, "disk", "").await.expect_err("refused");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().starts_with("UnsafeImage: "), "{}", refused.message());
    for (name, handler, code) in [
        ("disk", "no-such", Code::InvalidArgument),
        ("No/Name", "", Code::InvalidArgument),
        ("unknown", "", Code::NotFound),
    ] {
        assert_eq!(pull(&calls, name, handler).await.expect_err(name).code(), code, "{name}");
    }
    let odd = PullWithProgressRequest { offline: 9, ..Default::default() };
    assert_eq!(calls.pull_with_progress(Request::new(odd)).await.expect_err("odd").code(), Code::InvalidArgument);
}

#[tokio::test]
async fn providers_are_listed_in_their_order() {
    let root = tempfile::tempdir().expect("a directory");
    let calls = calls(root.path());
    let listed = calls.list_providers(Request::new(ListProvidersRequest {})).await.expect("listed").into_inner();
    let ids: Vec<_> = listed.providers.iter().map(|provider| provider.id.as_str()).collect();
    assert_eq!(ids, ["http", "file", "registries"]);
    let unknown = RefreshProvidersRequest { provider: "no-such".into() };
    assert_eq!(calls.refresh_providers(Request::new(unknown)).await.expect_err("none").code(), Code::InvalidArgument);
    let cleared = calls.clear_provider_caches(Request::new(ClearProviderCachesRequest::default())).await;
    assert!(cleared.is_ok());
}

/// A client of the service over a socket: what streams to it cannot be made without one.
async fn client(root: &Path, images: Images) -> ImageAdminClient<Channel> {
    let path = root.join("admin.sock");
    let listener = tokio::net::UnixListener::bind(&path).expect("socket");
    let service = ImageAdminServer::new(AdminCalls::new(images));
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://x").connect_with_connector(connector).await.expect("connected");
    ImageAdminClient::new(channel)
}

fn parts(name: &str, format: &str, pieces: &[&[u8]], end: bool) -> Vec<ImportRequest> {
    use import_request::Part;
    let head = ImportHead { name: name.into(), format: format.into(), ..ImportHead::default() };
    let pieces = pieces.iter().map(|piece| Part::Piece(piece.to_vec()));
    let parts = std::iter::once(Part::Head(head)).chain(pieces).chain(end.then_some(Part::End(ImportEnd {})));
    parts.map(|part| ImportRequest { part: Some(part) }).collect()
}

#[tokio::test]
async fn an_image_is_taken_from_a_caller_unless_that_is_off() {
    let root = tempfile::tempdir().expect("a directory");
    let taking = images(root.path());
    let mut admin = client(root.path(), taking.clone()).await;
    let mut send = async |parts: Vec<ImportRequest>| {
        let sent = admin.import(tokio_stream::iter(parts)).await;
        sent.map(|answer| answer.into_inner().image.expect("an image"))
    };
    let disk = [[7; 2048], [9; 2048]];
    let disk: Vec<&[u8]> = disk.iter().map(|piece| &piece[..]).collect();
    let image = send(parts("localhost/disk", "raw", &disk, true)).await.expect("taken");
    assert_eq!((image.provider.as_str(), image.format.as_str(), image.handler.as_str()), ("import", "raw", "virtlet"));
    assert_eq!(image.repo_tags, ["localhost/disk:latest"]);
    let headless: Vec<_> = parts("x/y", "raw", &disk, true).into_iter().skip(1).collect();
    let mut twice = parts("x/y", "raw", &disk, false);
    twice.extend(parts("x/y", "raw", &disk, true));
    for (parts, code, told) in [
        (parts("x/y", "raw", &disk, false), Code::InvalidArgument, "the import ended before it was whole"),
        (headless, Code::InvalidArgument, "an import begins with its head"),
        (twice, Code::InvalidArgument, "an import has one head"),
        (Vec::new(), Code::InvalidArgument, "an import begins with its head"),
        (parts("No/Name", "raw", &disk, true), Code::InvalidArgument, "is no image name"),
        (parts("x/y", "qed", &disk, true), Code::InvalidArgument, "format \"qed\" is not known"),
        (parts("x/y", "qcow2", &disk, true), Code::FailedPrecondition, "UnsafeImage: image not taken"),
    ] {
        let refused = send(parts).await.expect_err(told);
        assert_eq!(refused.code(), code, "{told}: {refused}");
        assert!(refused.message().contains(told), "{told}: {refused}");
    }
    assert_eq!(taking.list("", "").expect("listed").len(), 1);

    let root = tempfile::tempdir().expect("a directory");
    let strict = images(root.path()).without_imports();
    let mut admin = client(root.path(), strict.clone()).await;
    let refused = admin.import(tokio_stream::iter(parts("x/y", "raw", &disk, true))).await.expect_err("off");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("`images.import` is off"), "{refused}");
    let by_url = |url: &str| PullWithProgressRequest { name: "x/y".into(), url: url.into(), ..Default::default() };
    let calls = AdminCalls::new(strict);
    let mut messages =
        calls.pull_with_progress(Request::new(by_url("https://h.example/X"))).await.expect("begun").into_inner();
    let refused = messages.next().await.expect("an answer").expect_err("off");
    assert!(refused.message().contains("`images.import` is off"), "{refused}");
    for url in ["file:///etc/passwd", "no URL"] {
        let refused = calls.pull_with_progress(Request::new(by_url(url))).await.expect_err("no place");
        assert_eq!(refused.code(), Code::InvalidArgument, "{url}");
    }
}

#[tokio::test]
async fn whether_bytes_came_is_told_however_fast_they_were() {
    let root = tempfile::tempdir().expect("a directory");
    let calls = calls(root.path());
    let first = pull(&calls, "disk", "").await.expect("pulled");
    assert!(first.downloaded);
    let second = pull(&calls, "disk", "").await.expect("pulled");
    assert!(!second.downloaded, "it was here already");
}
