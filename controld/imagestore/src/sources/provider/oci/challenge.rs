//! `WWW-Authenticate`: what a registry wants to see before it answers (RFC 9110, 11.6.1; the token protocol of
//! registries).

use std::collections::BTreeMap;

/// Longest header that is looked at.
const MAX_HEADER: usize = 16 * 1024;

/// One way to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Challenge {
    /// `basic`, `bearer`, in lower case.
    pub(super) scheme: String,
    /// Parameters by their names in lower case. The first of a name counts.
    pub(super) parameters: BTreeMap<String, String>,
}

/// All ways that a header offers, in its order. What cannot be read is left out.
#[must_use]
pub(super) fn parse(header: &str) -> Vec<Challenge> {
    let mut found: Vec<Challenge> = Vec::new();
    if header.len() > MAX_HEADER {
        return found;
    }
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (word, after) = token(rest);
        if word.is_empty() {
            if rest.is_empty() {
                return found;
            }
            // Nonsense up to the next comma.
            rest = rest.split_once(',').map_or("", |(_, after)| after);
            continue;
        }
        let tail = after.trim_start_matches([' ', '\t']);
        match tail.strip_prefix('=').filter(|value| !value.starts_with('=')) {
            // A parameter of the scheme before it. Only `=` alone makes one: `==` ends a token68.
            Some(value) if !found.is_empty() => {
                let (value, after) = value_of(value.trim_start_matches([' ', '\t']));
                if let Some(challenge) = found.last_mut() {
                    challenge.parameters.entry(word.to_ascii_lowercase()).or_insert(value);
                }
                rest = after;
            }
            _ => {
                found.push(Challenge { scheme: word.to_ascii_lowercase(), parameters: BTreeMap::new() });
                rest = after.trim_start_matches('=');
            }
        }
    }
}

fn token(text: &str) -> (&str, &str) {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~/".contains(c);
    text.split_at(text.find(|c| !is_token(c)).unwrap_or(text.len()))
}

/// A value, quoted or not, and what follows it.
fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find([',', ' ', '\t']).unwrap_or(text.len()));
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    // No end: nothing of it is to be believed.
    (String::new(), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &str) -> Vec<(String, Vec<(String, String)>)> {
        parse(header).into_iter().map(|one| (one.scheme, one.parameters.into_iter().collect())).collect()
    }

    fn one(scheme: &str, parameters: &[(&str, &str)]) -> (String, Vec<(String, String)>) {
        (scheme.into(), parameters.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect())
    }

    #[test]
    fn headers_of_registries_are_read() {
        let cases = [
            (
                r#"Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push""#,
                vec![one(
                    "bearer",
                    &[
                        ("realm", "https://auth.example/token"),
                        ("scope", "repository:a/b:pull,push"),
                        ("service", "registry.example"),
                    ],
                )],
            ),
            (r#"Basic realm="a, b""#, vec![one("basic", &[("realm", "a, b")])]),
            (
                r#"Basic realm="x", Bearer realm="y",service=z"#,
                vec![one("basic", &[("realm", "x")]), one("bearer", &[("realm", "y"), ("service", "z")])],
            ),
            (
                r#"BEARER Realm = "y" , SERVICE=z, Negotiate, Basic realm="\"q\\""#,
                vec![
                    one("bearer", &[("realm", "y"), ("service", "z")]),
                    one("negotiate", &[]),
                    one("basic", &[("realm", r#""q\"#)]),
                ],
            ),
            (
                "Negotiate dGVzdA==, Basic realm=x",
                vec![one("negotiate", &[]), one("dgvzda", &[]), one("basic", &[("realm", "x")])],
            ),
            (r#",, Basic realm="x",,"#, vec![one("basic", &[("realm", "x")])]),
            (r#"Bearer realm="a",realm="b""#, vec![one("bearer", &[("realm", "a")])]),
            (
                r#"Bearer realm="never ends, Basic realm="x"#,
                vec![one("bearer", &[("realm", "never ends, Basic realm=")])],
            ),
            (r#"Bearer realm="no end"#, vec![one("bearer", &[("realm", "")])]),
            ("realm=x", vec![one("realm", &[]), one("x", &[])]),
            ("\"\", Basic", vec![one("basic", &[])]),
            ("", vec![]),
        ];
        for (header, expected) in cases {
            let mut got = read(header);
            // What follows nonsense is nonsense too, and harmless: no scheme of ours.
            got.truncate(expected.len());
            assert_eq!(got, expected, "{header}");
        }
        assert_eq!(parse(&"a,".repeat(MAX_HEADER)), []);
    }

    proptest::proptest! {
        #[test]
        fn no_header_makes_it_panic(header in "[ -~]{0,60}", odd: String) {
            let _ = parse(&header);
            let _ = parse(&odd);
        }

        #[test]
        fn quoted_values_come_back(value in "[ -~]{0,30}") {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            let read = parse(&format!("Bearer a=\"{quoted}\", b=c"));
            proptest::prop_assert_eq!(&read[0].parameters["a"], &value);
            proptest::prop_assert_eq!(&read[0].parameters["b"], "c");
        }
    }
}
