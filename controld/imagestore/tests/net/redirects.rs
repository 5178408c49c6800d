//! Where redirects lead, and what goes along.

use imagestore::net::{Auth, FetchError, Request, TransportSpec};
use url::Url;

use crate::asking::{client, client_with, get, text, with};
use crate::rig::Server;

/// Answers at `/0`, and redirects from `/n` to `/n-1`.
fn countdown() -> Server {
    Server::plain(|call| match call.path().trim_start_matches('/').parse::<u32>() {
        Ok(0) => call.ok(b"there"),
        Ok(left) => call.redirect(&(left - 1).to_string()),
        Err(_) => {}
    })
}

#[tokio::test]
async fn as_many_as_the_profile_allows() {
    let client = client();
    for (max_redirects, length, good) in [
        (Some(0), 0, true),
        (Some(0), 1, false),
        (Some(1), 1, true),
        (Some(1), 2, false),
        (Some(5), 5, true),
        (Some(5), 6, false),
        (Some(9), 9, true),
        (Some(9), 10, false),
        (Some(10), 10, true),
        (Some(10), 11, false),
        (None, 0, true),
        (None, 9, true),
        (None, 10, false),
    ] {
        let server = countdown();
        let spec = TransportSpec { max_redirects, ..TransportSpec::default() };
        let got = text(&client, &with(&server.url(&format!("/{length}")), &spec)).await;
        let allowed = max_redirects.unwrap_or(9);
        if good {
            assert_eq!(got.as_deref(), Ok("there"), "{max_redirects:?} {length}");
        } else {
            assert_eq!(got, Err(format!("more than {allowed} redirects")), "{max_redirects:?} {length}");
        }
        assert_eq!(server.hits(), length.min(allowed as usize) + 1, "{max_redirects:?} {length}");
    }
}

#[tokio::test]
async fn what_is_for_the_first_origin_stays_there_for_good() {
    let secrets = ["authorization: basic", "x-token: abc", "cookie: c=d", "x-custom: e"];
    let secrets_in = |server: &Server| {
        let requests = server.requests.lock().expect("sound");
        let count = |head: &String| secrets.iter().filter(|text| head.to_lowercase().contains(**text)).count();
        requests.iter().map(count).collect::<Vec<_>>()
    };
    let back = std::sync::Arc::new(std::sync::OnceLock::<String>::new());
    let away = back.clone();
    let second = Server::plain(move |call| call.redirect(away.get().expect("set")));
    let there = second.url("/");
    let first = Server::plain(move |call| match call.path() {
        "/one" => call.redirect("/two"),
        "/two" => call.redirect(&there),
        _ => call.ok(b"home again"),
    });
    back.set(first.url("/home")).expect("set once");
    let request = get(&first.url("/one").replace("http://", "http://user:secret@"))
        .with_secret_header("X-Token", "abc")
        .with_header("Cookie", "c=d")
        .with_header("X-Custom", "e");
    assert_eq!(text(&client(), &request).await.as_deref(), Ok("home again"));
    assert_eq!(secrets_in(&first), [4, 4, 0]);
    assert_eq!(secrets_in(&second), [0]);
    let shown = format!("{request:?}");
    assert!(shown.contains("Cookie: c=d") && !shown.contains("abc") && !shown.contains("secret"), "{shown}");
}

#[tokio::test]
async fn a_caller_may_keep_to_one_directory_or_to_no_redirect() {
    let other = countdown();
    let elsewhere = other.url("/0");
    let server = Server::plain(move |call| match call.path() {
        "/repo/good" => call.redirect("/repo/sub/0"),
        "/repo/up" => call.redirect("../0"),
        "/repo/sneaky" => call.redirect("/repo/%2e%2e/0"),
        "/repo/slash" => call.redirect("/repo/..%2f0"),
        "/repo/over" => call.redirect("/repository/0"),
        "/repo/away" => call.redirect(&elsewhere),
        _ => call.ok(b"there"),
    });
    let client = client();
    let base = Url::parse(&server.url("/repo/index.asc")).expect("a URL");
    let below = |path: &str| get(&server.url(path)).below(base.clone());
    assert_eq!(text(&client, &below("/repo/good")).await.as_deref(), Ok("there"));
    for path in ["/repo/up", "/repo/sneaky", "/repo/slash", "/repo/over", "/repo/away"] {
        let error = text(&client, &below(path)).await.expect_err(path);
        assert!(error.contains("out of the directory"), "{path}: {error}");
    }
    assert_eq!(other.hits(), 0);

    let shown = client.small(&get(&server.url("/repo/away")).without_redirects(), 100, None).await.expect("an answer");
    assert_eq!((shown.status.as_u16(), shown.url.path()), (302, "/repo/away"));
    let error = text(&client, &get(&server.url("/repo/away")).without_redirects()).await.expect_err("no image");
    assert!(error.ends_with("answered with status 302"), "{error}");
}

#[tokio::test]
async fn what_is_sent_is_sent_once_and_to_nobody_else() {
    let other = Server::plain(|call| call.ok(b"thanks"));
    let elsewhere = other.url("/");
    let server = Server::plain(move |call| {
        call.send(format!("HTTP/1.1 307 Temporary\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n"));
    });
    let url = Url::parse(&server.url("/token")).expect("a URL");
    let request =
        Request::post(url, "application/json", "{\"password\":\"secret\"}").with_auth(Auth::Bearer("abc".into()));
    let answer = client().small(&request, 1000, None).await.expect("an answer");
    assert_eq!((answer.status.as_u16(), other.hits()), (307, 0));
    let head = server.requests.lock().expect("sound")[0].to_lowercase();
    for line in
        ["post /token http/1.1", "content-type: application/json", "content-length: 21", "authorization: bearer abc"]
    {
        assert!(head.contains(line), "{line}: {head}");
    }
}

#[tokio::test]
async fn a_profile_may_follow_out_of_encryption() {
    let plain = Server::plain(|call| call.ok(b"there"));
    let down = plain.url("/x");
    let server = Server::encrypted(move |call| call.redirect(&down));
    let pem = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(pem.path(), server.certificate.as_deref().expect("TLS")).expect("written");
    let client = client_with(|config| config.extra_ca = vec![pem.path().to_owned()]);
    let trusting = |allow_downgrade| TransportSpec { allow_downgrade, ..TransportSpec::default() };
    let error = text(&client, &with(&server.url("/"), &trusting(false))).await.expect_err("a downgrade");
    assert!(error.contains("from https to plain"), "{error}");
    assert_eq!(plain.hits(), 0);
    assert_eq!(text(&client, &with(&server.url("/"), &trusting(true))).await.as_deref(), Ok("there"));
}

#[tokio::test]
async fn other_schemes_are_none_of_ours() {
    let error = client().open(&get("ftp://127.0.0.1/"), &imagestore::net::Ask::default()).await.expect_err("no HTTP");
    assert!(matches!(error, FetchError::Scheme { .. }), "{error}");
}

#[tokio::test]
async fn a_redirect_of_absurd_length_is_told_in_a_line() {
    for (length, there) in [(7_900, true), (8_100, false), (50_000, false)] {
        let server = Server::plain(move |call| match call.path() {
            "/" => call.redirect(&"x".repeat(length)),
            _ => call.ok(b"there"),
        });
        let url = server.url("/");
        let (got, length) = (text(&client(), &get(&url)).await, url.len() + length);
        let refused = format!("`{url}` redirects to a URL of {length} bytes; no more than 8000 are followed");
        assert_eq!(got, if there { Ok("there".to_owned()) } else { Err(refused) });
        assert_eq!(server.hits(), if there { 2 } else { 1 });
    }
}
