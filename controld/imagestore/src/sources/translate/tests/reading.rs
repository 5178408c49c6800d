//! What a configuration may hold, and what is said of one that may not.

use std::time::Duration;

use super::*;
use crate::sources::translate::profile::ProfileDoc;

fn parse(text: &str) -> String {
    match file::parse(Origin::file("f"), text) {
        Ok((config, problems)) => {
            format!("{} fixed, {} regexps, {:?}", config.fixed.len(), config.regexps.len(), told(&problems))
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_no_configuration_is_refused_whole() {
    for text in [
        "nonsense: 1",
        "translations: [{name: a, url: b, sha: c}]",
        "translations: 5",
        "- a",
        "{",
        "translations: [a]",
        "prefix: [a]",
        "prefix: a\nprefix: b",
        "transports: {a: {timeout: soon}}",
        "transports: {a: {retries: 5}}",
        "transports: {a: {tls: {ca: x}}}",
        "transports: {a: {tls: {certificates: [{pem: x}]}}}",
        "translations: [{name: a, platforms: {linux/arm64: {uri: x}}}]",
        "handlers: vm",
        "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b]\nprefix: *c",
    ] {
        assert!(parse(text).starts_with("not a translation file: "), "{text}: {}", parse(text));
    }
    let said = parse("translations: [{name: a, uri: b}]");
    assert!(
        said.starts_with("not a translation file: line 1 column 26: unknown field `uri`, expected one of"),
        "{said}"
    );
    let many = format!("translations: [{}]", "{name: a, url: b},".repeat(10_001));
    assert_eq!(parse(&many), "10001 rules; at most 10000 are allowed");
}

#[test]
fn an_error_shows_no_secret() {
    for text in [
        "translations: [{name: a, uri: 'https://u:secret@h/'}]",
        "translations: ['https://u:secret@h/']",
        "translations: 'https://u:secret@h/'",
        "'https://u:secret@h/': x",
        "https://u:secret@h/",
        "transports: {a: {timeout: secret}}",
        "transports: {a: {tls: {certificates: secret}}}",
        "transports: {a: {tls: {certificates: [{key: [secret]}]}}}",
        "transports: {a: {tls: {certificates: [{key: *secret}]}}}",
        "transports: {a: {maxRedirects: 'secret'}}",
        "transports: {a: {proxy: {secret: x}}}",
    ] {
        let said = parse(text);
        assert!(said.starts_with("not a translation file: ") && !said.contains("secret"), "{text}: {said}");
    }
    let parsed = parse("translations: [{name: a, url: 'ftp://u:secret@h/'}, {name: b, url: 'https://u:secret@h:x/'}]");
    assert!(parsed.starts_with("0 fixed") && !parsed.contains("secret"), "{parsed}");
}

#[test]
fn nothing_is_a_configuration_too() {
    for text in ["", "{}", "translations:", "translations: []\ntransports: {}\nprefix: ~\nhandlers: ~"] {
        assert_eq!(parse(text), "0 fixed, 0 regexps, []", "{text}");
    }
    assert_eq!(parse(r#"{"prefix": "p", "translations": [{"name": "a", "url": "b"}]}"#), "1 fixed, 0 regexps, []");
}

#[test]
fn a_bad_rule_spoils_only_itself() {
    let long = "a".repeat(4097);
    let cases = [
        ("{url: 'https://a/'}", "it has neither `name` nor `regexp`"),
        ("{name: '', regexp: '', url: 'https://a/'}", "it has neither `name` nor `regexp`"),
        ("{name: b}", "it has no `url`"),
        ("{name: b, url: ''}", "it has no `url`"),
        ("{name: b, platforms: {}}", "it has no `url`"),
        ("{name: b, platforms: {linux/arm64: {digest: x}}}", "it has no `url`"),
        ("{name: b, url: 'ftp://d/'}", "its `url` cannot be used: scheme `ftp` is not supported; use one of https, "),
        ("{name: b, url: 'https://'}", "its `url` cannot be used: not a URL: empty host"),
        ("{name: b, url: 'virt-builder:fedora'}", "its `url` cannot be used: not a URL: invalid port number"),
        ("{name: b, url: 'javascript://x'}", "its `url` cannot be used: scheme `javascript` is not supported"),
        ("{name: b, url: 'https://h/{architecture}'}", "its `url` cannot be used: `{architecture}` is not known: "),
        ("{name: b, url: '{arch}://h/'}", "its `url` cannot be used: its scheme must be written out"),
        ("{regexp: '^(.*)$', url: '$1://h/'}", "its `url` cannot be used: its scheme must be written out"),
        ("{regexp: '^(.*)$', url: 'https://h/$1_x'}", "its `url` cannot be used: group `1_x` is not in its regexp; "),
        ("{regexp: '^(.*)$', url: 'https://h/$2'}", "its `url` cannot be used: group `2` is not in its regexp; "),
        ("{regexp: '^(.*)$', url: 'https://h/$01'}", "its `url` cannot be used: group `01` is not in its regexp; "),
        ("{regexp: '^(.*)$', url: 'https://h/$99999999999999999999'}", "its `url` cannot be used: group `9999"),
        ("{regexp: '^(.*)$', url: 'https://h/$name'}", "its `url` cannot be used: group `name` is not in its "),
        ("{regexp: '^(.*)$', url: 'ftp://$1/'}", "its `url` cannot be used: scheme `ftp` is not supported"),
        ("{regexp: '(', url: 'https://h/'}", "its `regexp` cannot be used: unclosed group"),
        ("{regexp: '(?=a)b', url: 'https://h/'}", "its `regexp` cannot be used: look-around, including look-ahead"),
        (r"{regexp: '(a)\1', url: 'https://h/'}", "its `regexp` cannot be used: backreferences are not supported"),
        ("{regexp: '(a{1000}){1000}', url: 'https://h/'}", "its `regexp` cannot be used: Compiled regex exceeds size"),
        (r"{regexp: '\p{Greek}', url: 'https://h/'}", "its `regexp` cannot be used: Unicode not allowed here"),
        ("{name: b, url: 'https://h/', transport: slow}", "transport profile `slow` is not defined in the same file"),
        (
            "{name: b, url: 'https://h/', digest: 'sha256:12'}",
            "its `digest` cannot be used: digest `sha256:12` must be",
        ),
        ("{name: b, url: 'https://h/', digest: 'md5:d41d8cd98f00b204e9800998ecf8427e'}", "its `digest` cannot be used"),
        ("{name: b, url: 'https://h/', format: qed}", "format `qed` is not known; there are qcow2, raw, vmdk, vhd, "),
        ("{name: b, platforms: {arm64: {url: x}}}", "`arm64` is no platform; write `os/architecture`, "),
        ("{name: b, platforms: {linux/arm/v7/x: {url: x}}}", "`linux/arm/v7/x` is no platform; "),
        ("{name: b, platforms: {'linux/amd64:': {url: x}}}", "`linux/amd64:` is no platform; "),
        ("{name: b, platforms: {'linux/': {url: x}}}", "`linux/` is no platform; "),
        (&format!("{{regexp: '{long}', url: 'https://h/'}}"), "its `regexp` cannot be used: longer than 4096 bytes"),
    ];
    for (rule, expected) in cases {
        let text = format!("translations:\n- {rule}\n- {{name: good, url: g.example/g}}\n");
        let (config, problems) = file::parse(Origin::file("f"), &text).expect("a configuration");
        assert_eq!((config.fixed.len(), config.regexps.len()), (1, 0), "{rule}");
        let told = told(&problems);
        let start = format!("rule 1 of translation file `f` is not used: {expected}");
        assert!(told.len() == 1 && told[0].starts_with(&start), "{rule}: {told:?}");
        assert!(!told[0].contains('\n'), "{told:?}");
    }
}

#[test]
fn what_may_not_be_meant_is_said() {
    let anywhere =
        |regexp: &str| parse(&serde_json::json!({"translations": [{"regexp": regexp, "url": "h"}]}).to_string());
    for regexp in ["^a$", r"\Aa\z", "^(?:a|b)$", "^[|]$", r"^a\|b$", "^[)|]$"] {
        assert_eq!(anywhere(regexp), "0 fixed, 1 regexps, []", "{regexp}");
    }
    for regexp in ["a", "^a", "a$", r"^a\$", "^a|b$"] {
        assert!(anywhere(regexp).contains("matches anywhere in a name"), "{regexp}");
    }
    for name in ["mySmallImage", "ubuntu:", "ubuntu:.x", "a b", "/a", "a/"] {
        let text = format!("prefix: p\ntranslations: [{{name: '{name}', url: h}}]");
        assert!(
            parse(&text).contains(&format!("is never asked for: `p/{name}` is no image name")),
            "{name}: {}",
            parse(&text)
        );
    }
}

#[test]
fn the_documents_transports_are_read() {
    let text = "
timeout: 30000
maxRedirects: 1
proxy: http://my-proxy.loc:8080
allowDowngrade: true
tls:
  certificates:
  - cert: |
      CA
  - cert: CHAIN
    key: KEY
  serverName: my.host.com
  insecure: true
";
    let spec = serde_saphyr::from_str::<ProfileDoc>(text).expect("a profile").into_spec();
    assert_eq!(spec.timeout, Some(Duration::from_secs(30)));
    assert_eq!(spec.max_redirects, Some(1));
    assert_eq!(spec.proxy.as_deref(), Some("http://my-proxy.loc:8080"));
    let certificates: Vec<_> = spec.certificates.iter().map(|of| (of.cert.as_str(), of.key.as_deref())).collect();
    assert_eq!(certificates, [("CA\n", None), ("CHAIN", Some("KEY"))]);
    assert_eq!((spec.server_name.as_deref(), spec.insecure, spec.allow_downgrade), (Some("my.host.com"), true, true));
    assert!(!format!("{spec:?}").contains("KEY"));
}

#[test]
fn a_profile_may_say_nothing() {
    let spec = |text: &str| serde_saphyr::from_str::<ProfileDoc>(text).expect("a profile").into_spec();
    let nothing = crate::sources::net::TransportSpec::default();
    for text in [
        "{}",
        "{timeout: 0}",
        "{timeout: -5}",
        "{timeout: ~, maxRedirects: ~, proxy: ~, tls: ~, allowDowngrade: ~}",
        "{maxRedirects: -1}",
        "{proxy: ''}",
        "{tls: {certificates: ~, serverName: ~, insecure: ~}}",
        "{tls: {certificates: [], serverName: ''}}",
        "{tls: {insecure: false}}",
    ] {
        assert!(spec(text) == nothing, "{text}");
    }
    assert_eq!(spec("{maxRedirects: 0}").max_redirects, Some(0));
    assert_eq!(spec("{maxRedirects: 99999999999}").max_redirects, Some(u32::MAX));
    assert!(spec("{tls: {certificates: [{cert: C, key: ''}]}}").certificates[0].key.is_none());
}

#[test]
fn a_rule_gets_the_profile_that_it_names() {
    let text = "
translations:
- {name: a, url: 'https://h/', transport: few}
- {name: b, url: 'https://h/'}
- {name: c, url: 'https://h/', transport: ''}
- {name: d, url: 'https://h/', transport: none}
transports:
  few: {maxRedirects: 2}
  none:
  unused: {maxRedirects: 3}
";
    let with_default = format!("{text}  '': {{maxRedirects: 0}}\n");
    let platform = Platform::linux("amd64");
    let wanted = Wanted { handler: "", platform: &platform, configs: None, tag: None };
    for (text, of_b) in [(text, ""), (&with_default, "f:")] {
        let translator = files(&[("f", text)]);
        let names = ["a", "b", "c", "d"].map(|name| {
            let found = translator.translate(&name.parse().expect("a name"), &wanted).expect("a rule");
            found.locator.transport().name().to_owned()
        });
        assert_eq!(names, ["f:few", of_b, of_b, "f:none"]);
        // The default of one configuration is not that of all.
        let other = translator.translate(&"z".parse().expect("a name"), &wanted).expect("the default rule");
        assert_eq!(other.locator.transport().name(), "");
    }
}

#[test]
fn a_bad_profile_takes_its_rules_with_it() {
    let text = "
translations:
- {name: a, url: 'https://h/', transport: bad}
- {name: b, url: 'https://h/'}
- {name: c, url: 'https://h/', transport: good}
transports:
  good: {maxRedirects: 2}
  bad: {tls: {certificates: [{cert: no PEM}]}}
  '': {tls: {certificates: [{cert: no PEM}]}}
";
    let (config, problems) = file::parse(Origin::file("f"), text).expect("a configuration");
    assert_eq!(config.fixed.len(), 1);
    let told = told(&problems);
    let starts = [
        "transport profile `` of translation file `f` is not used: ",
        "transport profile `bad` of translation file `f` is not used: ",
        "rule 1 of translation file `f` is not used: its transport profile `bad` cannot be used",
        "rule 2 of translation file `f` is not used: its transport profile `` cannot be used",
    ];
    assert_eq!(told.len(), starts.len(), "{told:?}");
    for (problem, start) in told.iter().zip(starts) {
        assert!(problem.starts_with(start), "{problem}");
    }
}

#[test]
fn hostile_regexps_cost_little() {
    let rules: Vec<_> = (0..200)
        .map(|index| serde_json::json!({"regexp": format!("^(a*)*(a|a)*{index}$"), "url": "https://h/$1"}))
        .collect();
    let text = serde_json::json!({"translations": rules}).to_string();
    let translator = files(&[("f", &text)]);
    // Engines that go back and forth would take for ever here.
    let name = format!("{}b", "a".repeat(200));
    assert_eq!(ask(&translator, &name), format!("https://{name}/ by default https rule"));
}

/// Of some 70 KB nine million entries, each of which is allowed.
#[test]
fn aliases_do_not_multiply() {
    let with = |platforms: u32, aliases: usize| {
        let platforms: Vec<_> =
            (0..platforms).map(|number| format!("linux/a{number}: {{url: 'https://h/'}}")).collect();
        let rule = format!("&a {{name: a, platforms: {{{}}}}}", platforms.join(", "));
        parse(&format!("translations: [{rule}{}]", ", *a".repeat(aliases)))
    };
    assert!(with(2, 3).starts_with("4 fixed"), "{}", with(2, 3));
    assert!(with(1000, 0).starts_with("1 fixed"), "{}", with(1000, 0));
    let said = with(1000, 9_000);
    assert!(said.starts_with("not a translation file: "), "{}", &said[..said.len().min(200)]);
}

#[test]
fn the_fuzzers_entry_takes_anything() {
    for bytes in [&b"\xff"[..], b"", b"{", b"prefix: a\ntranslations: [{name: b, regexp: '(.)', url: '$1{arch}'}]"] {
        exercise(bytes);
    }
}
