use hyper::header::{AUTHORIZATION, LOCATION};
use url::Url;

use super::hops::redirect_target;
use super::*;

fn url(text: &str) -> Url {
    Url::parse(text).expect("a URL")
}

fn target(from: &str, location: &'static str) -> String {
    let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static(location))]);
    match redirect_target(&url(from), &headers, false) {
        Ok(url) => url.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn redirects_lead_where_the_location_says() {
    let from = "http://a.example:8080/dir/file?x=secret";
    let cases = [
        ("/other", "http://a.example:8080/other"),
        ("other?y", "http://a.example:8080/dir/other?y"),
        ("../up", "http://a.example:8080/up"),
        ("//b.example/x", "http://b.example/x"),
        ("https://b.example/x#part", "https://b.example/x"),
        ("http://user:secret@b.example/x", "http://b.example/x"),
        ("ftp://b.example/x", "error: `http://a.example:8080/dir/file?...` redirects to scheme `ftp`"),
        ("file:///etc/passwd", "error: `http://a.example:8080/dir/file?...` redirects to scheme `file`"),
        ("http://", "error: `http://a.example:8080/dir/file?...` redirects without a usable location"),
    ];
    for (location, expected) in cases {
        assert_eq!(target(from, location), expected, "{location}");
    }
    assert_eq!(
        target("https://a.example/x", "http://u:secret@b.example/y?secret"),
        "error: `https://a.example/x` redirects from https to plain `http://b.example/y?...`, which is not followed"
    );
    assert!(redirect_target(&url(from), &HeaderMap::new(), false).is_err());
}

#[test]
fn credentials_are_decoded_once_and_marked() {
    let sent = |text: &str| Request::get(url(text)).private_headers().expect("headers");
    let headers = sent("https://us%65r:p%40ss%3A%2@example.com/#part");
    // base64 of `user:p@ss:%2`
    assert_eq!(headers[AUTHORIZATION], "Basic dXNlcjpwQHNzOiUy");
    assert!(headers[AUTHORIZATION].is_sensitive());
    assert!(sent("https://example.com/").is_empty());
    assert_eq!(sent("https://user@example.com/")[AUTHORIZATION], "Basic dXNlcjo=");
    assert_eq!(Request::get(url("https://us%65r:p@example.com/x#part")).url().as_str(), "https://example.com/x");
}
