//! Servers that misbehave. Whatever they do: a clear error of the right class, and nothing left in the store.

use std::fs;
use std::time::Duration;

use vmimage::error::ErrorKind;

use crate::rig::{Bed, Call, Server, disk};

type Script = Box<dyn Fn(&mut Call<'_>) + Send + Sync>;

fn says(answer: &'static str) -> Script {
    Box::new(move |call| {
        call.send(answer);
        call.send(disk(1, 4096));
    })
}

#[tokio::test]
async fn bad_answers_are_refused_with_their_reason() {
    let cases: Vec<(&str, ErrorKind, &str, Script)> = vec![
        (
            "404",
            ErrorKind::NotFound,
            "answered with status 404",
            says("HTTP/1.1 404 Not Found\r\nContent-Length: 4096\r\n\r\n"),
        ),
        ("401", ErrorKind::Denied, "status 401", says("HTTP/1.1 401 Unauthorized\r\nContent-Length: 4096\r\n\r\n")),
        ("403", ErrorKind::Denied, "status 403", says("HTTP/1.1 403 Forbidden\r\nContent-Length: 4096\r\n\r\n")),
        ("500", ErrorKind::Server, "status 500", says("HTTP/1.1 500 Oh\r\nContent-Length: 4096\r\n\r\n")),
        ("429", ErrorKind::Server, "status 429", says("HTTP/1.1 429 Slow down\r\nContent-Length: 4096\r\n\r\n")),
        ("204", ErrorKind::Server, "status 204", says("HTTP/1.1 204 None\r\n\r\n")),
        ("203", ErrorKind::Server, "status 203", says("HTTP/1.1 203 Changed\r\nContent-Length: 4096\r\n\r\n")),
        (
            "206 unasked",
            ErrorKind::Server,
            "status 206",
            says("HTTP/1.1 206 Part\r\nContent-Range: bytes 0-4095/9000\r\nContent-Length: 4096\r\n\r\n"),
        ),
        ("304 unasked", ErrorKind::Server, "status 304", says("HTTP/1.1 304 Same\r\n\r\n")),
        ("empty", ErrorKind::Server, "empty image", says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")),
        (
            "empty chunked",
            ErrorKind::Server,
            "empty image",
            Box::new(|call| call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")),
        ),
        (
            "encoded",
            ErrorKind::Server,
            "`content-encoding: gzip`",
            says("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4096\r\n\r\n"),
        ),
        ("no length", ErrorKind::Server, "server gives no length", says("HTTP/1.0 200 OK\r\n\r\n")),
        (
            "shorter than announced",
            ErrorKind::Server,
            "download broke off after 4096 bytes of 5000",
            says("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n"),
        ),
        (
            "longer than announced",
            ErrorKind::Server,
            "more than the 4000 bytes",
            says("HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n"),
        ),
        (
            "two lengths",
            ErrorKind::Server,
            "no valid HTTP answer",
            says("HTTP/1.1 200 OK\r\nContent-Length: 4096\r\nContent-Length: 4000\r\n\r\n"),
        ),
        ("no number", ErrorKind::Server, "no valid HTTP answer", says("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n")),
        (
            "chunks cut off",
            ErrorKind::Server,
            "download broke off",
            says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2000\r\n"),
        ),
        (
            "broken chunks",
            ErrorKind::Server,
            "download broke off",
            says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        ),
        ("no HTTP", ErrorKind::Server, "no valid HTTP answer", says("220 smtp.example ESMTP\r\n")),
        ("nothing", ErrorKind::Server, "no valid HTTP answer", Box::new(|_| {})),
        (
            "large headers",
            ErrorKind::Server,
            "no valid HTTP answer",
            Box::new(|call| {
                call.send(format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 1\r\n\r\nx", "y".repeat(70_000)));
            }),
        ),
        (
            "endless headers",
            ErrorKind::Server,
            "no valid HTTP answer",
            Box::new(|call| {
                call.send("HTTP/1.1 200 OK\r\n");
                (0..20_000).for_each(|number| call.send(format!("X{number}: y\r\n")));
            }),
        ),
        (
            "web page",
            ErrorKind::Refused,
            "a web page",
            says("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4102\r\n\r\n<html>"),
        ),
        (
            "junk called a web page",
            ErrorKind::Refused,
            "a web page",
            Box::new(|call| {
                call.send("HTTP/1.1 200 OK\r\nContent-Type: Text/HTML; charset=x\r\nContent-Length: 4\r\n\r\njunk");
            }),
        ),
        (
            "junk",
            ErrorKind::Refused,
            "not a qcow2 image (it begins with `6a 75 6e 6b`)",
            Box::new(|call| call.ok(b"junk")),
        ),
        ("gzip", ErrorKind::Refused, "gzip stream is cut off", Box::new(|call| call.ok(b"\x1f\x8b\x08\0junk"))),
        (
            "backing file",
            ErrorKind::Refused,
            "backing file",
            Box::new(|call| {
                let mut image = disk(1, 4096);
                image[15] = 200;
                call.ok(&image);
            }),
        ),
        (
            "cut off image",
            ErrorKind::Refused,
            "L1 table ends beyond the file's 1100 bytes",
            Box::new(|call| call.ok(&disk(1, 4096)[..1100])),
        ),
        (
            "redirect to nowhere",
            ErrorKind::Server,
            "redirects without a usable location",
            says("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"),
        ),
        ("redirect to itself", ErrorKind::Server, "more than 9 redirects", Box::new(|call| call.redirect("/again"))),
        (
            "redirect to a file",
            ErrorKind::Server,
            "redirects to scheme `file`",
            Box::new(|call| call.redirect("file:///etc/passwd")),
        ),
        (
            "redirect to metadata",
            ErrorKind::Denied,
            "169.254.169.254",
            Box::new(|call| call.redirect("http://169.254.169.254/latest")),
        ),
        (
            "the same in disguise",
            ErrorKind::Denied,
            "169.254.169.254",
            Box::new(|call| call.redirect("http://0xa9fea9fe/latest")),
        ),
        (
            "the same in v6",
            ErrorKind::Denied,
            "a9fe:a9fe",
            Box::new(|call| call.redirect("http://[::ffff:169.254.169.254]/latest")),
        ),
        ("redirect to all addresses", ErrorKind::Denied, "0.0.0.0", Box::new(|call| call.redirect("http://0/"))),
    ];
    for (what, kind, text, script) in cases {
        let server = Server::plain(script);
        let bed = Bed::new(&server.url("/x").replace("http://", "http://user:secret@"));
        let (seen, error) = bed.pull().await.map(|image| format!("{image:?}")).expect_err(what);
        assert!(seen == kind && error.contains(text), "{what}: {seen:?} {error}");
        assert!(!error.contains("secret") && !error.contains('\n'), "{what}: {error}");
        assert!(error.starts_with("failed to pull image `img:latest` from `http://127.0.0.1:"), "{what}: {error}");
        assert!(error.contains("(rule 1 (`img`) of `a.yaml`)"), "{what}: {error}");
        bed.assert_empty().await;
    }
}

#[tokio::test]
async fn unusual_answers_that_are_sound_are_taken() {
    let chunked: Script = Box::new(|call| {
        call.send("HTTP/1.1 200 OK\r\ntRaNsFeR-eNcOdInG: chunked\r\n\r\n");
        for piece in disk(1, 70_000).chunks(999) {
            call.send(format!("{:x}\r\n", piece.len()));
            call.send(piece);
            call.send("\r\n");
        }
        call.send("0\r\nX-Trailer: y\r\n\r\n");
    });
    let cases: Vec<(&str, Script)> = vec![
        ("chunked", chunked),
        ("HTTP/1.0", says("HTTP/1.0 200 OK\r\nContent-Length: 4096\r\n\r\n")),
        ("identity", says("HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 4096\r\n\r\n")),
        (
            "a disk called a web page",
            says("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4096\r\n\r\n"),
        ),
        (
            "early hints",
            says("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n"),
        ),
        (
            "connection left open",
            Box::new(|call| {
                call.ok(&disk(1, 4096));
                call.hold();
            }),
        ),
    ];
    for (what, script) in cases {
        let server = Server::plain(script);
        let bed = Bed::new(&server.url("/x"));
        bed.pull().await.expect(what);
    }
}

#[tokio::test]
async fn a_body_that_only_the_close_ends_is_taken_by_digest() {
    let server = Server::plain(says("HTTP/1.0 200 OK\r\n\r\n"));
    let bed = Bed::new(&server.url("/x"));
    let name = format!("img@sha256:{}", crate::rig::hex(&disk(1, 4096)));
    bed.store.pull(&name).await.expect("pulled");
}

#[tokio::test]
async fn nine_redirects_are_followed_and_ten_are_not() {
    let server = Server::plain(|call| match call.path().trim_start_matches('/').parse::<u32>() {
        Ok(0) => call.ok(&disk(1, 4096)),
        Ok(left) => call.redirect(&(left - 1).to_string()),
        Err(_) => {}
    });
    let bed = Bed::new(&server.url("/9"));
    bed.pull().await.expect("pulled");
    assert_eq!(server.hits(), 10);
    bed.translate(&server.url("/10"));
    let (_, error) = bed.pull().await.expect_err("one too many");
    assert!(error.contains("more than 9 redirects"), "{error}");
}

#[tokio::test]
async fn credentials_go_to_their_origin_alone() {
    let target = Server::plain(|call| call.ok(&disk(1, 4096)));
    let elsewhere = target.url("/there");
    let server = Server::plain(move |call| match call.path() {
        "/here" => call.redirect("/again"),
        _ => call.redirect(&elsewhere.replace("http://", "http://intruder:pw@")),
    });
    let bed = Bed::new(&server.url("/here").replace("http://", "http://us%40er:secret@"));
    bed.pull().await.expect("pulled");
    let with = |server: &Server| {
        let requests = server.requests.lock().expect("sound");
        requests.iter().map(|head| head.to_lowercase().contains("authorization: basic dxnaz")).collect::<Vec<_>>()
    };
    // base64 of `us@er:secret` is dXNAZXI6c2VjcmV0
    assert_eq!(with(&server), [true, true]);
    assert!(target.requests.lock().expect("sound").iter().all(|head| !head.to_lowercase().contains("authorization")));
    for entry in fs::read_dir(bed.images().join("refs/_default")).expect("listed") {
        assert!(!fs::read_to_string(entry.expect("an entry").path()).expect("read").contains("secret"));
    }
}

#[tokio::test]
async fn https_does_not_become_http() {
    let target = Server::plain(|call| call.ok(&disk(1, 4096)));
    let (down, over) = (target.url("/x"), "/good");
    let server = Server::encrypted(move |call| match call.path() {
        "/down" => call.redirect(&down),
        "/good" => call.ok(&disk(1, 4096)),
        _ => call.redirect(over),
    });
    let dir = tempfile::tempdir().expect("a directory");
    let pem = dir.path().join("ca.pem");
    fs::write(&pem, server.certificate.as_deref().unwrap_or_default()).expect("written");
    let bed = Bed::with(&server.url("/down"), |config| config.net.extra_ca = vec![pem]);
    let (kind, error) = bed.pull().await.expect_err("a downgrade");
    assert!(kind == ErrorKind::Server && error.contains("redirects from https to plain `http://"), "{error}");
    assert_eq!(target.hits(), 0);
    bed.assert_empty().await;
    bed.translate(&server.url("/over"));
    bed.pull().await.expect("https to https is fine");
    let upgrade = server.url("/good");
    let plain = Server::plain(move |call| call.redirect(&upgrade));
    bed.translate(&plain.url("/"));
    bed.pull().await.expect("http to https is fine");
}

#[tokio::test]
async fn silence_ends_at_the_deadline() {
    let cases: Vec<(&str, Script)> = vec![
        ("before the answer", Box::new(|call| call.hold())),
        (
            "amid the headers",
            Box::new(|call| {
                call.send("HTTP/1.1 200 OK\r\n");
                call.hold();
            }),
        ),
        (
            "amid the body",
            Box::new(|call| {
                call.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
                call.send(disk(1, 50_000));
                call.hold();
            }),
        ),
        (
            "by drips",
            Box::new(|call| {
                call.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
                call.send(disk(1, 50_000));
                call.drip();
            }),
        ),
        (
            "by drips of a header",
            Box::new(|call| {
                call.send("HTTP/1.1 200 OK\r\nX: ");
                call.drip();
            }),
        ),
    ];
    for (what, script) in cases {
        let server = Server::plain(script);
        let bed = Bed::with(&server.url("/x"), |config| config.net.timeouts.stall = Duration::from_millis(300));
        let (kind, error) = bed.pull().await.map(|image| format!("{image:?}")).expect_err(what);
        assert!(kind == ErrorKind::Deadline && error.contains("server stalled: "), "{what}: {kind:?} {error}");
        assert!(error.ends_with("within 0.3 s"), "{what}: {error}");
        bed.assert_empty().await;
    }
}

#[tokio::test]
async fn a_tls_handshake_has_a_deadline() {
    let silent = Server::plain(|call| call.hold());
    let bed = Bed::with(&silent.url("/").replace("http:", "https:"), |config| {
        config.net.timeouts.tls = Duration::from_millis(200);
    });
    let (kind, error) = bed.pull().await.expect_err("nobody answers");
    assert!(
        kind == ErrorKind::Deadline && error.contains("TLS handshake with `127.0.0.1` not done within 0.2 s"),
        "{error}"
    );
}

#[tokio::test]
async fn nobody_at_home_is_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let bed = Bed::new(&format!("http://{address}/"));
    let (kind, error) = bed.pull().await.expect_err("refused");
    assert!(kind == ErrorKind::Server && error.contains(&format!("failed to connect to `{address}`")), "{error}");
}

#[tokio::test]
async fn junk_is_given_up_at_its_beginning() {
    let server = Server::plain(|call| {
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 2000000000\r\n\r\n");
        call.send(vec![b'x'; 64 * 1024]);
        call.hold();
    });
    let bed = Bed::new(&server.url("/x"));
    // The server would be waited for much longer.
    let pulled = tokio::time::timeout(Duration::from_secs(10), bed.pull()).await.expect("at once");
    assert_eq!(pulled.expect_err("junk").0, ErrorKind::Refused);
    bed.assert_empty().await;
}

#[tokio::test]
async fn what_is_larger_than_allowed_is_not_taken() {
    let endless = Server::plain(|call| {
        call.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let image = disk(1, 100_000);
        while !call.tcp_is_closed() {
            call.send(format!("{:x}\r\n", image.len()));
            call.send(&image);
            call.send("\r\n");
        }
    });
    let bed = Bed::with(&endless.url("/x"), |config| config.limits.artifact = 5_000_000);
    let (kind, error) = bed.pull().await.expect_err("too much");
    assert!(kind == ErrorKind::Exhausted && error.contains("more than the 5000000 bytes"), "{error}");
    bed.assert_empty().await;
    let announced = Server::plain(|call| {
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 5000001\r\n\r\n");
        call.hold();
    });
    bed.translate(&announced.url("/x"));
    assert_eq!(bed.pull().await.expect_err("too much").0, ErrorKind::Exhausted);

    let bed =
        Bed::with(&Server::plain(|call| call.ok(&disk(1, 4096))).url("/"), |config| config.limits.virtual_size = 1);
    assert!(bed.pull().await.is_err());
}

#[tokio::test]
async fn raw_disks_are_taken_only_with_leave() {
    let server = Server::plain(|call| call.ok(&[7; 1024]));
    let bed = Bed::with(&server.url("/x"), |config| config.allow_raw = true);
    let image = bed.pull().await.expect("pulled");
    assert_eq!((image.format, image.virtual_size), (vmimage::inspect::DiskFormat::Raw, 1024));
    let odd = Server::plain(|call| call.ok(&[7; 1000]));
    bed.translate(&odd.url("/x"));
    let (kind, error) = bed.pull().await.expect_err("no whole sectors");
    assert!(kind == ErrorKind::Refused && error.contains("is it cut off?"), "{error}");
    assert_eq!(bed.store.get("img", "").expect("a handler"), Some(image), "the old one stays");
}
