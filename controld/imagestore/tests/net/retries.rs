//! What is asked for once more, and what is not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use imagestore::net::{Ask, Client, Request, Retries, TransportSpec};
use url::Url;

use crate::asking::{client_with, get, text, with};
use crate::rig::{Call, Server};

fn patient(count: u32) -> Client {
    client_with(|config| {
        let short = Duration::from_millis(1);
        config.retries = Retries { count, first: short, longest: short, ..Retries::default() };
    })
}

/// Fails that often in that way, and then does not.
fn failing(times: usize, how: impl Fn(&mut Call<'_>) + Send + Sync + 'static) -> Server {
    let failed = AtomicUsize::new(0);
    Server::plain(
        move |call| {
            if failed.fetch_add(1, Ordering::Relaxed) < times { how(call) } else { call.ok(b"at last") }
        },
    )
}

#[tokio::test]
async fn failures_of_the_moment_are_asked_about_again() {
    type Way = fn(&mut Call<'_>);
    let ways: [(&str, Way); 4] = [
        ("503", |call| call.send("HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n")),
        ("500", |call| call.send("HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\noh")),
        ("429", |call| call.send("HTTP/1.1 429 Slow\r\nRetry-After: 0\r\n\r\n")),
        ("nothing", |_| {}),
    ];
    for (what, way) in ways {
        let server = failing(2, way);
        assert_eq!(text(&patient(2), &get(&server.url("/"))).await.as_deref(), Ok("at last"), "{what}");
        let server = failing(2, way);
        text(&patient(1), &get(&server.url("/"))).await.expect_err(what);
        assert_eq!(server.hits(), 2, "{what}");
    }
    // A small answer that broke off, too; a body whose reader has begun is the reader's matter.
    let cut = |call: &mut Call<'_>| call.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nat l");
    let server = failing(1, cut);
    let small = patient(1).small(&get(&server.url("/")), 100, None).await.expect("an answer");
    assert_eq!(&*small.body, b"at last");
    let server = failing(1, cut);
    text(&patient(1), &get(&server.url("/"))).await.expect_err("cut off");
    assert_eq!(server.hits(), 1);
}

#[tokio::test]
async fn verdicts_are_final() {
    for answer in [
        "HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 401 Login\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 403 No\r\nRetry-After: 0\r\n\r\n",
        "HTTP/1.1 302 There\r\n\r\n",
        "HTTP/1.1 503 Tomorrow\r\nRetry-After: 86400\r\n\r\n",
        "no HTTP\r\n\r\n",
    ] {
        let server = failing(1, move |call| call.send(answer));
        text(&patient(3), &get(&server.url("/"))).await.expect_err(answer);
        assert_eq!(server.hits(), 1, "{answer}");
    }
    let untrusted = Server::encrypted(|call| call.ok(b"x"));
    let error = patient(3).open(&get(&untrusted.url("/")), &Ask::default()).await.expect_err("not trusted");
    assert!(error.to_string().contains("TLS handshake"), "{error}");
    assert_eq!(untrusted.done.load(Ordering::Relaxed).max(1), 1, "one handshake");
}

#[tokio::test]
async fn the_last_answer_is_given_as_it_is() {
    let server = failing(9, |call| call.send("HTTP/1.1 503 Later\r\nContent-Length: 5\r\n\r\nlater"));
    let small = patient(1).small(&get(&server.url("/")), 100, None).await.expect("an answer");
    assert_eq!((small.status.as_u16(), &*small.body, server.hits()), (503, &b"later"[..], 2));
    let sent = Request::post(Url::parse(&server.url("/")).expect("a URL"), "text/plain", "x");
    let small = patient(1).small(&sent, 100, None).await.expect("an answer");
    assert_eq!((small.status.as_u16(), server.hits()), (503, 3), "what changes something is sent once");
}

#[tokio::test]
async fn a_profile_limits_the_whole_request() {
    let spec = TransportSpec { timeout: Some(Duration::from_millis(300)), ..TransportSpec::default() };
    let late = "request not done within the 0.3 s of its transport";
    let silent = Server::plain(|call| call.hold());
    assert_eq!(text(&patient(0), &with(&silent.url("/"), &spec)).await, Err(late.into()));
    let halting = Server::plain(|call| {
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nso far");
        call.hold();
    });
    assert_eq!(text(&patient(0), &with(&halting.url("/"), &spec)).await, Err(late.into()));
    let chunked = Server::plain(|call| {
        call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nso far\r\n");
        call.hold();
    });
    assert_eq!(text(&patient(0), &with(&chunked.url("/"), &spec)).await, Err(late.into()));
    // No wait for another attempt that would come too late.
    let busy = failing(9, |call| call.send("HTTP/1.1 503 Later\r\nRetry-After: 50\r\nContent-Length: 0\r\n\r\n"));
    let error = text(&patient(5), &with(&busy.url("/"), &spec)).await.expect_err("busy");
    assert!(error.ends_with("answered with status 503"), "{error}");
    assert_eq!(busy.hits(), 1);
    let quick = Server::plain(|call| call.ok(b"in time"));
    let ample = TransportSpec { timeout: Some(Duration::from_secs(20)), ..TransportSpec::default() };
    assert_eq!(text(&patient(0), &with(&quick.url("/"), &ample)).await.as_deref(), Ok("in time"));
    let none = TransportSpec { timeout: Some(Duration::ZERO), ..TransportSpec::default() };
    assert_eq!(text(&patient(0), &with(&quick.url("/"), &none)).await.as_deref(), Ok("in time"));
}
