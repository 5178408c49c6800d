use proptest::prelude::*;

use super::*;

const HEX: &str = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";

fn shown(text: &str) -> String {
    match text.parse::<Query>() {
        Ok(Query::Id(id)) => format!("id {id}"),
        Ok(Query::Digest(digest)) => format!("digest {digest}"),
        Ok(Query::Ref(image)) => format!("ref {image}"),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn names_are_read_as_they_are_meant() {
    let sha512 = "ab".repeat(64);
    let cases = [
        ("cirros".to_owned(), "ref cirros:latest".to_owned()),
        ("cirros:v1.0_A".into(), "ref cirros:v1.0_A".into()),
        ("example.com/a/b.qcow2".into(), "ref example.com/a/b.qcow2:latest".into()),
        ("example.com:1234/foo/bar".into(), "ref example.com:1234/foo/bar:latest".into()),
        ("example.com:1234/foo:bar".into(), "ref example.com:1234/foo:bar".into()),
        ("localhost:5000".into(), "ref localhost:5000".into()),
        ("localhost:5000/x".into(), "ref localhost:5000/x:latest".into()),
        ("Example/foo".into(), "ref Example/foo:latest".into()),
        ("[::1]:80/foo".into(), "ref [::1]:80/foo:latest".into()),
        ("[2001:db8::1]/foo:t".into(), "ref [2001:db8::1]/foo:t".into()),
        ("10.0.0.1:80/foo".into(), "ref 10.0.0.1:80/foo:latest".into()),
        ("foo.bar".into(), "ref foo.bar:latest".into()),
        ("a__b--c.d/e".into(), "error: `a__b--c.d` is no host name or address with an optional port".into()),
        ("e/a__b---c.d".into(), "ref e/a__b---c.d:latest".into()),
        (format!("foo@sha256:{HEX}"), format!("ref foo@sha256:{HEX}")),
        (format!("foo:v1@sha256:{HEX}"), format!("ref foo@sha256:{HEX}")),
        (format!("foo@sha512:{sha512}"), format!("ref foo@sha512:{sha512}")),
        (format!("sha256:{HEX}"), format!("id sha256:{HEX}")),
        (HEX.into(), format!("id sha256:{HEX}")),
        (format!("sha512:{sha512}"), format!("digest sha512:{sha512}")),
        (format!("x/{HEX}"), format!("ref x/{HEX}:latest")),
        // What looks like a domain is one only before a slash.
        ("localhost".into(), "ref localhost:latest".into()),
        ("localhost/x".into(), "ref localhost/x:latest".into()),
        ("localhost/localhost/x".into(), "ref localhost/localhost/x:latest".into()),
        ("LOCALHOST/x".into(), "ref LOCALHOST/x:latest".into()),
        (
            "virtlet.cloud/Cirros".into(),
            "error: upper case in the path component `Cirros`; use a translation alias for such a URL".into(),
        ),
        ("https://h.example/x".into(), "error: a name has no scheme; leave `https://` out".into()),
        ("http://user:pass@h.example/x".into(), "error: a name has no scheme; leave `http://` out".into()),
        (
            "x/a.b:80/y".into(),
            "error: path component `a.b:80` must be lower-case letters and digits, joined by `.`, `_`, `__` or hyphens"
                .into(),
        ),
        ("10.0.0.1".into(), "ref 10.0.0.1:latest".into()),
        ("[::ffff:10.0.0.1]/x".into(), "ref [::ffff:10.0.0.1]/x:latest".into()),
        ("a-b.c-d:65535/x".into(), "ref a-b.c-d:65535/x:latest".into()),
        // Words of the grammar of digests are names like others where no digest can stand.
        ("sha256".into(), "ref sha256:latest".into()),
        ("sha256/x:y".into(), "ref sha256/x:y".into()),
        (format!("sha256@sha256:{HEX}"), format!("ref sha256@sha256:{HEX}")),
        (format!("{HEX}:v1"), format!("ref {HEX}:v1")),
        (format!("{HEX}/x"), format!("ref {HEX}/x:latest")),
        (HEX[1..].into(), format!("ref {}:latest", &HEX[1..])),
        ("a:latest".into(), "ref a:latest".into()),
        ("a:_".into(), "ref a:_".into()),
        ("a:sha256".into(), "ref a:sha256".into()),
    ];
    for (text, expected) in cases {
        assert_eq!(shown(&text), expected, "{text}");
    }
}

#[test]
fn what_is_no_name_is_refused() {
    let long_label = format!("{}.com/x", "a".repeat(64));
    let cases = [
        "",
        "/",
        "/etc/passwd",
        "a//b",
        "a/",
        "../x",
        "a/../b",
        "a/./b",
        ".",
        "..",
        "a..b",
        "a._b",
        "a___b",
        "-a",
        "a-",
        "a_",
        "Ubuntu",
        "example.com/Ubuntu/x",
        "a b",
        "a%b",
        "a~b",
        "a\0b",
        "a\nb",
        "ä",
        "a/ä",
        "a:",
        "a:.x",
        "a:-x",
        "a:b:c",
        "a@",
        "a@b",
        "a@sha256:12",
        "a@md5:d41d8cd98f00b204e9800998ecf8427e",
        "@sha256:12",
        ":tag",
        "exa_mple.com/x",
        "-a.com/x",
        "a-.com/x",
        "a..com/x",
        ".com/x",
        "example.com:/x",
        "example.com:0/x",
        "example.com:65536/x",
        "example.com:+80/x",
        "a.b:80:90/x",
        "[::1/x",
        "[zz::1]/x",
        "[::1]x/y",
        "[::1]:x/y",
        "[fe80::1%25eth0]/x",
        "http://a.b/x",
        "sha256:abcd",
        "sha512:abcd",
        "sha256:",
        "SHA256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
        "sha256:2D711642B726B04401627CA9FBAC32F5C8530FB1903CC4DB02258717921A4881",
        "2D711642B726B04401627CA9FBAC32F5C8530FB1903CC4DB02258717921A4881",
        "a@sha256:2D711642B726B04401627CA9FBAC32F5C8530FB1903CC4DB02258717921A4881",
        "a@2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
        "a@sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881@",
        "a@b@sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
        "a:.x@sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
        "a:@sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
        "user:pw@host/x",
        "a?b",
        "a#b",
        "a\\b",
        &long_label,
    ];
    for text in cases {
        let shown = shown(text);
        assert!(shown.starts_with("error: "), "{text:?}: {shown}");
        assert!(!shown.contains(['\0', '\n']), "{text:?}");
    }
}

#[test]
fn the_error_says_what_to_do() {
    assert_eq!(
        shown("example.com/Images/x"),
        "error: upper case in the path component `Images`; use a translation alias for such a URL"
    );
    assert_eq!(shown(&format!("sha256:{}", HEX.to_uppercase())).get(..15), Some("error: digest `"));
}

#[test]
fn lengths_end_where_the_grammar_says() {
    let name = |length: usize| format!("e.com/{}", "a".repeat(length - 6));
    assert!(name(255).parse::<ImageRef>().is_ok());
    let error = name(256).parse::<ImageRef>().expect_err("too long");
    assert_eq!(error.to_string(), "name of 256 bytes; at most 255 are allowed");
    assert!(format!("a:{}", "t".repeat(128)).parse::<ImageRef>().is_ok());
    assert!(format!("a:{}", "t".repeat(129)).parse::<ImageRef>().is_err());
}

proptest! {
    #[test]
    fn the_text_of_a_reference_reads_back(
        domain in prop::option::of("([a-zA-Z0-9]{1,8}\\.){1,3}[a-z]{2,5}(:[1-9][0-9]{0,3})?"),
        path in "[a-z0-9]{1,5}((\\.|_|__|-{1,3})[a-z0-9]{1,4}){0,3}(/[a-z0-9]{1,5}){0,3}",
        tag in prop::option::of("[A-Za-z0-9_][A-Za-z0-9._-]{0,20}"),
        digest in prop::option::of("[0-9a-f]{64}"),
    ) {
        // Without a domain, a dot in the first component would make it one.
        let name = format!("{}/{path}", domain.unwrap_or_else(|| "p".into()));
        let text = format!(
            "{name}{}{}",
            tag.as_ref().map_or(String::new(), |tag| format!(":{tag}")),
            digest.as_ref().map_or(String::new(), |hex| format!("@sha256:{hex}")),
        );
        let image: ImageRef = text.parse().expect("made by the grammar");
        prop_assert_eq!(image.name().as_str(), name);
        prop_assert_eq!(image.to_string().parse::<ImageRef>().ok(), Some(image));
    }

    #[test]
    fn any_text_is_read_without_panic_and_canonically(text in "\\PC{0,40}|[a-zA-Z0-9:/@._\\[\\]-]{0,60}") {
        if let Ok(Query::Ref(image)) = text.parse::<Query>() {
            prop_assert_eq!(image.to_string().parse::<ImageRef>().ok(), Some(image.clone()));
            prop_assert!(!image.name().as_str().split('/').any(|part| matches!(part, "" | "." | "..")));
            prop_assert!(!image.to_string().contains(['%', '~', '\0']));
        }
    }
}
