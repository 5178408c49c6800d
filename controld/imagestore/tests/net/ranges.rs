//! Conditions, ranges, and servers that lie about them.

use imagestore::net::{Ask, FetchError, Opened, Validators};

use crate::asking::{client, get, open, read, resume};
use crate::rig::{Call, Server};

const IMAGE: &[u8] = b"0123456789abcdefghij";

fn header(call: &Call<'_>, name: &str) -> Option<String> {
    let line = |line: &str| {
        let (key, value) = line.split_once(": ")?;
        key.eq_ignore_ascii_case(name).then(|| value.to_owned())
    };
    call.head.lines().find_map(line)
}

/// A server as it should be, with version `"v1"`.
fn honest(call: &mut Call<'_>) {
    if header(call, "if-none-match").as_deref() == Some("\"v1\"") {
        return call.send("HTTP/1.1 304 Same\r\nETag: \"v1\"\r\n\r\n");
    }
    let current = header(call, "if-range").is_none_or(|etag| etag == "\"v1\"");
    let range = header(call, "range").filter(|_| current);
    let Some((first, last)) = range.as_deref().and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) else {
        call.send(format!(
            "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nAccept-Ranges: bytes\r\nContent-Length: {}\r\n\r\n",
            IMAGE.len()
        ));
        return call.send(IMAGE);
    };
    let first: usize = first.parse().expect("a number");
    let last = last.parse().unwrap_or(IMAGE.len() - 1).min(IMAGE.len() - 1);
    if first >= IMAGE.len() {
        return call
            .send(format!("HTTP/1.1 416 No\r\nContent-Range: bytes */{}\r\nContent-Length: 0\r\n\r\n", IMAGE.len()));
    }
    let body = &IMAGE[first..=last];
    call.send(format!(
        "HTTP/1.1 206 Part\r\nETag: \"v1\"\r\nContent-Range: bytes {first}-{last}/{}\r\nContent-Length: {}\r\n\r\n",
        IMAGE.len(),
        body.len()
    ));
    call.send(body);
}

#[tokio::test]
async fn what_is_known_is_not_sent_again() {
    let server = Server::plain(honest);
    let (client, request) = (client(), get(&server.url("/")));
    let mut artifact = open(&client, &request, &Ask::default()).await.expect("opened");
    assert_eq!((artifact.length, artifact.from, artifact.delimited, artifact.resumable), (Some(20), 0, true, true));
    assert_eq!(read(&mut artifact).await.expect("read"), IMAGE);
    let known = Ask { known: Some(artifact.validators.clone()), ..Ask::default() };
    assert!(matches!(client.open(&request, &known).await, Ok(Opened::Unchanged)));
    let other = Validators { etag: Some("\"v0\"".into()), last_modified: None };
    let mut changed = open(&client, &request, &Ask { known: Some(other), ..Ask::default() }).await.expect("opened");
    assert_eq!(read(&mut changed).await.expect("read"), IMAGE);
    let small = client.small(&request, 100, Some(&artifact.validators)).await.expect("an answer");
    assert_eq!((small.status.as_u16(), small.body.len()), (304, 0));
}

#[tokio::test]
async fn a_body_goes_on_where_it_was_asked_to() {
    let server = Server::plain(honest);
    let (client, request) = (client(), get(&server.url("/")));
    let cases: Vec<(Ask, u64, &[u8])> = vec![
        (resume(10, Some("\"v1\""), Some(20)), 10, &IMAGE[10..]),
        (resume(10, None, None), 10, &IMAGE[10..]),
        (resume(19, Some("\"v1\""), None), 19, &IMAGE[19..]),
        (Ask { until: Some(15), ..resume(5, Some("\"v1\""), Some(20)) }, 5, &IMAGE[5..15]),
        (Ask { until: Some(99), ..resume(5, Some("\"v1\""), Some(20)) }, 5, &IMAGE[5..]),
        (Ask { until: Some(5), ..Ask::default() }, 0, &IMAGE[..5]),
        // Changed since, or nothing to tell it by, or nothing left: from the beginning.
        (resume(10, Some("\"v0\""), Some(20)), 0, IMAGE),
        (resume(10, Some("W/\"v1\""), Some(20)), 0, IMAGE),
        (resume(20, Some("\"v1\""), Some(20)), 0, IMAGE),
        (resume(99, None, None), 0, IMAGE),
    ];
    for (ask, from, bytes) in cases {
        let mut artifact = open(&client, &request, &ask).await.expect("opened");
        assert_eq!((artifact.from, artifact.length, artifact.resumable), (from, Some(20), true), "{ask:?}");
        assert_eq!(read(&mut artifact).await.expect("read"), bytes, "{ask:?}");
    }
    let gone =
        client.open(&request, &Ask { until: Some(40), ..resume(30, None, None) }).await.expect_err("no such part");
    assert!(matches!(gone, FetchError::RangeGone { at: 30, status: 416 }), "{gone}");
}

#[tokio::test]
async fn lies_about_ranges_are_errors() {
    let part = |range: &str, length: usize, etag: &str| {
        format!("HTTP/1.1 206 Part\r\nContent-Range: bytes {range}\r\nContent-Length: {length}\r\n{etag}\r\n")
    };
    let same = "ETag: \"v1\"\r\n";
    let cases = [
        (part("10-19/21", 10, same), "the whole has another length"),
        (part("0-9/20", 10, same), "it is another range"),
        (part("11-19/20", 9, same), "it is another range"),
        (part("10-18/20", 9, same), "it is another range"),
        (part("10-19/*", 10, same), "it is not one range"),
        (part("10-19/20", 9, same), "its body has another length"),
        (part("10-19/20", 11, same), "its body has another length"),
        // Of another version or of none, it is no part, so the whole is asked for: a part is no answer to that.
        (part("10-19/20", 10, "ETag: \"v2\"\r\n"), "answered with status 206"),
        (part("10-19/20", 10, ""), "answered with status 206"),
        (format!("HTTP/1.1 206 Part\r\n{same}Content-Length: 10\r\n\r\n"), "it is not one range"),
    ];
    for (head, expected) in cases {
        let shown = head.clone();
        let server = Server::plain(move |call| {
            call.send(&head);
            call.send(IMAGE);
        });
        let error =
            client().open(&get(&server.url("/")), &resume(10, Some("\"v1\""), Some(20))).await.expect_err(&shown);
        assert!(error.to_string().ends_with(expected), "{shown}: {error}");
    }
    // More or less than the part that was announced, where only the body tells.
    for (length, kind) in [(3, "broke off after 3 bytes of 10"), (12, "more than the 10 bytes")] {
        let head = part("10-19/20", 10, same);
        let server = Server::plain(move |call| {
            call.send(&head);
            call.send(&b"abcdefghijklmnop"[..length]);
        });
        let mut artifact =
            open(&client(), &get(&server.url("/")), &resume(10, Some("\"v1\""), Some(20))).await.expect("opened");
        let error = read(&mut artifact).await.expect_err("another length");
        assert!(error.to_string().contains(kind), "{error}");
    }
    // A part in chunks is as long as its range says.
    let server = Server::plain(|call| {
        call.send("HTTP/1.1 206 Part\r\nContent-Range: bytes 10-19/20\r\nTransfer-Encoding: chunked\r\n\r\n");
        call.send("5\r\nabcde\r\n0\r\n\r\n");
    });
    let mut artifact = open(&client(), &get(&server.url("/")), &resume(10, None, None)).await.expect("opened");
    assert_eq!((artifact.from, artifact.length), (10, Some(20)));
    let error = read(&mut artifact).await.expect_err("too short");
    assert!(error.to_string().contains("broke off after 5 bytes of 10"), "{error}");
}
