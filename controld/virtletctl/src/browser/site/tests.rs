use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::BodyExt as _;

use super::*;

const HOST_PORT: &str = "127.0.0.1:6080";
const WEBSOCKET: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// Of two files.
fn site() -> Site {
    let packed = |text: &str| {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(text.as_bytes()).expect("packed");
        &*gzip.finish().expect("packed").leak()
    };
    let files = vec![
        File { path: "/index.html", mime: "text/html; charset=utf-8", gzip: packed("<p>page</p>") },
        File { path: "/page.js", mime: "text/javascript; charset=utf-8", gzip: packed("begin()") },
    ];
    Site::new("default/w\u{202e}eb", 6080, files.leak())
}

fn request(path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::get(path).header("host", HOST_PORT);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request")
}

/// Where the page has a path.
fn below(site: &Site, path: &str) -> String {
    format!("{}{path}", site.door.place())
}

/// Status, headers and text of an answer.
async fn asked(site: &Site, request: &Request<()>) -> (u16, HeaderMap, Vec<u8>) {
    let (response, _) = site.answer(request);
    let (head, body) = response.into_parts();
    (head.status.as_u16(), head.headers, body.collect().await.expect("a body").to_bytes().to_vec())
}

/// The cookie, which the token was spent for.
async fn cookie(site: &Site) -> String {
    let path = site.url().strip_prefix("http://127.0.0.1:6080").expect("our address").to_owned();
    let (status, headers, text) = asked(site, &request(&path, &[])).await;
    assert_eq!(status, 200);
    let goes_on = format!("url={}/\"", site.door.place());
    assert!(String::from_utf8_lossy(&text).contains(&goes_on), "it goes on to the page");
    headers["set-cookie"].to_str().expect("text").split(';').next().expect("a pair").to_owned()
}

#[tokio::test]
async fn the_url_opens_once() {
    let site = site();
    let path = site.url().strip_prefix("http://127.0.0.1:6080").expect("our address").to_owned();
    let cookie = cookie(&site).await;
    let (status, headers, text) = asked(&site, &request(&path, &[])).await;
    assert_eq!((status, headers.get("set-cookie")), (403, None));
    assert!(String::from_utf8_lossy(&text).contains("a link does so once"), "{text:?}");
    // To nobody is it told a second time where the page is.
    let (status, headers, text) = asked(&site, &request(&path, &[("cookie", &cookie)])).await;
    assert_eq!((status, headers.get("set-cookie")), (403, None));
    assert!(!String::from_utf8_lossy(&text).contains(site.door.place()));
    let (status, ..) = asked(&site, &request("/enter/", &[])).await;
    assert_eq!(status, 403);
}

#[tokio::test]
async fn nothing_is_served_without_the_cookie() {
    let site = site();
    for path in ["/", "/index.html", "/page.js", "/about", "/absent"] {
        assert_eq!(asked(&site, &request(&below(&site, path), &[])).await.0, 403, "{path}");
    }
    let origin = ("origin", "http://127.0.0.1:6080");
    for path in ["/screen", "/console"] {
        let (response, kind) = site.answer(&request(&below(&site, path), &[&WEBSOCKET[..], &[origin]].concat()));
        assert_eq!((response.status().as_u16(), kind), (403, None), "{path}");
    }
}

#[tokio::test]
async fn files_are_served_as_the_client_takes_them() {
    let site = site();
    let cookie = cookie(&site).await;
    let cookie = ("cookie", cookie.as_str());
    for (taken, is_packed) in [
        ("gzip, deflate, br", true),
        ("br;q=1.0, GZIP;q=0.5", true),
        ("gzip;q=0", false),
        ("identity", false),
        ("xgzip", false),
    ] {
        let (status, headers, body) =
            asked(&site, &request(&below(&site, "/"), &[cookie, ("accept-encoding", taken)])).await;
        assert_eq!((status, headers["content-type"].as_bytes()), (200, &b"text/html; charset=utf-8"[..]));
        assert_eq!(headers.contains_key("content-encoding"), is_packed, "{taken}");
        assert_eq!(body == b"<p>page</p>", !is_packed, "{taken}");
        assert_eq!(body.starts_with(&[0x1f, 0x8b]), is_packed, "{taken}");
    }
    let (status, _, body) = asked(&site, &request(&below(&site, "/page.js"), &[cookie])).await;
    assert_eq!((status, body), (200, b"begin()".to_vec()));
    let (status, _, body) = asked(&site, &request(&below(&site, "/about"), &[cookie])).await;
    assert_eq!(
        (status, String::from_utf8(body).expect("text")),
        (200, r#"{"name":"default/w\\u{202e}eb"}"#.to_owned())
    );
    for absent in ["/absent", "/..%2fpage.js", "//page.js", "/page.js/"] {
        assert_eq!(asked(&site, &request(&below(&site, absent), &[cookie])).await.0, 404, "{absent}");
    }
    // Nothing of the page is at a path that others know.
    for elsewhere in ["/", "/index.html", "/about", "/screen", site.door.place()] {
        assert_eq!(asked(&site, &request(elsewhere, &[cookie])).await.0, 404, "{elsewhere}");
    }
    let post = Request::post("/").header("host", HOST_PORT).header(cookie.0, cookie.1).body(()).expect("a request");
    assert_eq!(asked(&site, &post).await.0, 405);
}

#[tokio::test]
async fn names_of_others_are_not_answered() {
    let site = site();
    let path = site.url().strip_prefix("http://127.0.0.1:6080").expect("our address").to_owned();
    for host in ["rebound.example.com:6080", "127.0.0.1", "127.0.0.1:6081", "127.0.0.2:6080", "localhost", ""] {
        let request = Request::get(&path).header("host", host).body(()).expect("a request");
        assert_eq!(asked(&site, &request).await.0, 421, "{host}");
    }
    let two = Request::get(&path).header("host", HOST_PORT).header("host", HOST_PORT).body(()).expect("a request");
    assert_eq!(asked(&site, &two).await.0, 421);
    assert_eq!(asked(&site, &Request::get(&path).body(()).expect("a request")).await.0, 421);
    // None of these has spent the token.
    let local = Request::get(&path).header("host", "localhost:6080").body(()).expect("a request");
    assert_eq!(asked(&site, &local).await.0, 200);
}

#[tokio::test]
async fn websockets_are_for_our_own_page() {
    let site = site();
    let cookie = cookie(&site).await;
    let answered = |origins: &[&str], lines: &[(&str, &str)]| {
        let origins = origins.iter().map(|origin| ("origin", *origin));
        let headers: Vec<_> = lines.iter().copied().chain(origins).chain([("cookie", cookie.as_str())]).collect();
        let (response, kind) = site.answer(&request(&below(&site, "/screen"), &headers));
        (response.status().as_u16(), kind)
    };
    let ours = "http://127.0.0.1:6080";
    assert_eq!(answered(&[ours], &WEBSOCKET), (101, Some(Kind::Screen)));
    for others in [
        &[][..],
        &["null"],
        &["https://127.0.0.1:6080"],
        &["http://127.0.0.1:6081"],
        &["http://localhost:6080"],
        &["http://example.com"],
        &[ours, "http://example.com"],
    ] {
        assert_eq!(answered(others, &WEBSOCKET), (403, None), "{others:?}");
    }
    assert_eq!(answered(&[ours], &WEBSOCKET[1..]), (400, None));
}

#[tokio::test]
async fn every_answer_says_what_a_page_may_do() {
    let site = site();
    let cookie = cookie(&site).await;
    let cookie = ("cookie", cookie.as_str());
    for (path, status) in [("/", 200), ("/absent", 404), ("/about", 200), ("/screen", 403)] {
        let (found, headers, _) = asked(&site, &request(&below(&site, path), &[cookie])).await;
        assert_eq!(found, status, "{path}");
        let policy = headers["content-security-policy"].to_str().expect("text");
        for part in ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'", "form-action 'none'"] {
            assert!(policy.contains(part), "{policy}");
        }
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(headers[name], value, "{path}");
        }
    }
    let dressed = site.answers.dress(plain(StatusCode::OK, String::new()));
    assert_eq!(
        dressed.headers()["content-security-policy"],
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; \
         connect-src 'self' ws://127.0.0.1:6080 ws://localhost:6080; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
}
