//! Answers in every shape, sound and not.

use std::time::Duration;

use imagestore::net::{Ask, FetchError};
use serde_json::Value;

use crate::asking::{client, client_with, get, open, read, text};
use crate::rig::{Call, Server};

#[tokio::test]
async fn bodies_of_every_framing_come_whole() {
    let long: Vec<u8> = (0..300_000_u32).map(|number| (number / 7) as u8).collect();
    let body = long.clone();
    let server = Server::plain(move |call| match call.path() {
        "/length" => {
            call.send(format!("HTTP/1.1 200 OK\r\ncOnTeNt-LeNgTh:{}\r\n\r\n", body.len()));
            body.chunks(70_001).for_each(|piece| call.send(piece));
        }
        // All at once, so that the body comes with the head.
        "/at-once" => {
            let mut all = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
            all.extend_from_slice(&body);
            call.send(all);
        }
        "/chunked" => {
            call.send("HTTP/1.1 200 OK\r\nTRANSFER-ENCODING: Chunked\r\n\r\n");
            for piece in body.chunks(9_999) {
                call.send(format!("{:X};ext=1\r\n", piece.len()));
                call.send(piece);
                call.send("\r\n");
            }
            call.send("0\r\nX-Trailer: y\r\n\r\n");
        }
        _ => {
            call.send("HTTP/1.0 200 OK\r\n\r\n");
            call.send(&body);
        }
    });
    for (path, length, delimited) in [
        ("/length", Some(long.len() as u64), true),
        ("/at-once", Some(long.len() as u64), true),
        ("/chunked", None, true),
        ("/close", None, false),
    ] {
        let mut artifact = open(&client(), &get(&server.url(path)), &Ask::default()).await.expect(path);
        assert_eq!((artifact.length, artifact.delimited), (length, delimited), "{path}");
        assert!(read(&mut artifact).await.expect(path) == long, "{path}");
        assert_eq!(artifact.body.read(&mut [0; 10]).await.expect("its end"), 0, "{path}: the end is told again");
    }
}

/// A small room, and a body that ends within what came with the head.
#[tokio::test]
async fn a_short_body_is_handed_out_bit_by_bit() {
    let server = Server::plain(|call| call.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789"));
    let mut artifact = open(&client(), &get(&server.url("/")), &Ask::default()).await.expect("opened");
    let (mut all, mut room) = (Vec::new(), [0; 3]);
    loop {
        match artifact.body.read(&mut room).await.expect("read") {
            0 => break,
            count => all.extend_from_slice(&room[..count]),
        }
    }
    assert_eq!(all, b"0123456789");
}

#[tokio::test]
async fn bodies_of_another_length_are_errors() {
    for (answer, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", "broke off after 0 bytes of 10"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n012345678", "broke off after 9 bytes of 10"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789a", "more than the 10 bytes"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n", "broke off after 5 bytes"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234xx", "broke off after 5 bytes"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", "broke off after 0 bytes"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: gzip\r\n\r\n01234", "`transfer-encoding: gzip`"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n01234", "no valid HTTP answer"),
        ("HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 5\r\n\r\n01234", "`content-encoding: br`"),
        (
            "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n01234",
            "`content-encoding: gzip`",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Encoding: identity, gzip\r\nContent-Length: 5\r\n\r\n01234", "gzip`"),
    ] {
        let server = Server::plain(move |call| call.send(answer));
        let error = text(&client(), &get(&server.url("/"))).await.expect_err(answer);
        assert!(error.contains(expected), "{answer}: {error}");
    }
}

#[tokio::test]
async fn small_answers_stay_small() {
    let server = Server::plain(|call| match call.path() {
        "/exact" => call.ok(&[b'x'; 100_000]),
        "/more" => call.ok(&[b'x'; 100_001]),
        "/endless" => {
            call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            while !call.tcp_is_closed() {
                call.send("10\r\n0123456789abcdef\r\n");
            }
        }
        "/encoded" => call.send("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx"),
        "/none" => call.send("HTTP/1.1 404 None\r\nContent-Length: 2\r\nX-Why: gone\r\n\r\n{}"),
        "/json" => call.ok(b"{\"a\": [1, 2]}"),
        "/deep" => call.ok("[".repeat(50_000).as_bytes()),
        "/head" => call.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nDocker-Content-Digest: d\r\n\r\n"),
        _ => call.ok(b""),
    });
    let client = client();
    let small = async |path: &str| client.small(&get(&server.url(path)), 100_000, None).await;
    assert_eq!(small("/exact").await.expect("an answer").body.len(), 100_000);
    assert_eq!(small("/empty").await.expect("an answer").body.len(), 0);
    for path in ["/more", "/endless"] {
        let error = small(path).await.expect_err(path);
        assert!(matches!(error, FetchError::TooLarge { limit: 100_000, .. }), "{path}: {error}");
    }
    assert!(matches!(small("/encoded").await, Err(FetchError::Encoded { .. })));
    let none = small("/none").await.expect("an answer");
    assert_eq!((none.status.as_u16(), &*none.body, none.headers["x-why"].as_bytes()), (404, &b"{}"[..], &b"gone"[..]));

    let json: Value = client.json(&get(&server.url("/json")), 1000).await.expect("JSON");
    assert_eq!(json["a"][1], 2);
    for (path, limit) in [("/none", 1000), ("/json", 5), ("/exact", 100_000), ("/deep", 100_000)] {
        client.json::<Value>(&get(&server.url(path)), limit).await.expect_err(path);
    }

    let head = imagestore::net::Request::head(server.url("/head").parse().expect("a URL"));
    let head = client.small(&head, 100, None).await.expect("an answer");
    assert_eq!((head.headers["docker-content-digest"].as_bytes(), head.body.len()), (&b"d"[..], 0));
    assert!(server.requests.lock().expect("sound").last().expect("one").starts_with("HEAD /head HTTP/1.1\r\n"));
}

#[tokio::test]
async fn drops_do_not_hold_a_reader_for_ever() {
    type Way = fn(&mut Call<'_>);
    let ways: [(&str, Way); 3] = [
        ("length", |call| call.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")),
        ("close", |call| call.send("HTTP/1.0 200 OK\r\n\r\n")),
        ("head", |call| call.send("HTTP/1.1 200 OK\r\nX-Long: ")),
    ];
    for (what, way) in ways {
        let server = Server::plain(move |call| {
            way(call);
            call.drip();
        });
        let client = client_with(|config| config.timeouts.stall = Duration::from_millis(300));
        let error = text(&client, &get(&server.url("/"))).await.expect_err(what);
        assert!(error.starts_with("server stalled: ") && error.ends_with("within 0.3 s"), "{what}: {error}");
    }
}
