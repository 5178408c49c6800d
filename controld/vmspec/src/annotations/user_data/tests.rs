use super::*;

fn same(text: &str) {
    let parsed = UserData::parse(text).expect(text);
    assert_eq!(parsed.for_cloud_init(), text.as_bytes(), "{text:?}");
    assert_eq!(UserData::of_file(text.as_bytes()), Ok(parsed), "{text:?}");
}

#[test]
fn every_format_is_kept_byte_for_byte() {
    for text in [
        "#!/bin/sh\necho 'a: [b'\n\n",
        "#!/usr/bin/env python3\n",
        "#include\nhttp://example.com/x\n",
        "#include-once\nhttp://example.com/x\n",
        "#cloud-boothook\n#!/bin/sh\n",
        "#cloud-config-archive\n- type: text/x-shellscript\n",
        "#cloud-config-jsonp\n[{}]\n",
        "## template: jinja\n#cloud-config\n{% if x %}\na: [\n{% endif %}\n",
        "#part-handler\ndef list_types(): pass\n",
        "Content-Type: multipart/mixed; boundary=\"x\"\nMIME-Version: 1.0\n\n--x\n",
        "#cloud-config\r\nhostname: x\r\n",
        "#cloud-config\n",
        "#cloud-config\n# nothing yet\n",
        "\n  #Cloud-Config\na: 1\n",
        "#cloud-config\na: 1\na: 2\n",
        "#cloud-config\nwrite_files:\n- {path: /a, permissions: 0644, content: \"\u{1f600}\"}\n",
        "#cloud-config\nx: &a [1]\ny: *a\n1: 2\n? [k]\n: v\n",
        "#cloud-config\na: .inf\nb: -.NaN\n",
        "#cloud-config\nvalue: !!binary aGVsbG8=\nb: !custom x\n",
    ] {
        same(text);
    }
}

#[test]
fn a_map_without_a_header_is_a_cloud_config() {
    for text in ["users: [default]\n", "# mine\nruncmd:\n- [ls]\n", "{\"a\": {\"b\": \"c\"}}", "---\na: 1\n"] {
        let parsed = UserData::parse(text).expect("a map");
        assert_eq!(parsed.for_cloud_init(), format!("#cloud-config\n{text}").as_bytes());
        assert_eq!(parsed.as_written(), text.as_bytes());
    }
    let marked = UserData::parse("\u{feff}a: 1").expect("a map");
    assert_eq!(&*marked.for_cloud_init(), b"#cloud-config\na: 1");
}

#[test]
fn what_cloud_init_would_drop_is_refused() {
    for (text, problem) in [
        ("hello", Problem::NoFormat),
        ("[1, 2]", Problem::NoFormat),
        ("- a\n- b\n", Problem::NoFormat),
        ("42", Problem::NoFormat),
        ("# only a comment\n", Problem::NoFormat),
        (" ", Problem::NoFormat),
        ("#cloud-config\n- a\n", Problem::NotMap { line: 2 }),
        ("#cloud-config\njust text\n", Problem::NotMap { line: 2 }),
        ("#cloud-config\na: 1\nb: [\n", Problem::NotYaml { line: 3 }),
        ("#cloud-config\na: 1\n b: 2\n", Problem::NotYaml { line: 3 }),
        ("a: 1\n\tb: 2\n", Problem::NotYaml { line: 1 }),
        ("a: 'unclosed\n", Problem::NotYaml { line: 2 }),
        ("a: *nowhere\n", Problem::NotYaml { line: 1 }),
        ("#cloud-config\na: 1\n---\nb: 2\n", Problem::NotYaml { line: 4 }),
        ("#!/bin/sh\n\0", Problem::Nul),
    ] {
        assert_eq!(UserData::parse(text), Err(problem), "{text:?}");
    }
}

#[test]
fn a_bomb_of_aliases_or_of_brackets_is_refused() {
    let mut bomb = String::from("#cloud-config\na0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        bomb += &format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 9].join(", "));
    }
    assert!(matches!(UserData::parse(&bomb), Err(Problem::NotYaml { .. })));
    let deep = format!("a: {}", "[".repeat(100_000));
    assert!(matches!(UserData::parse(&deep), Err(Problem::NotYaml { .. })));
}

#[test]
fn a_script_is_kept_whatever_it_says() {
    let text = "#!/bin/sh\n@virtlet-mount-script@\necho a: [\n";
    let script = UserData::script(text).expect("script");
    assert_eq!((script.as_written(), script.format()), (text.as_bytes(), &Format::Script));
    assert_eq!(UserData::script("\0"), Err(Problem::Nul));
}

#[test]
fn a_file_that_is_no_text_is_for_cloud_init() {
    for bytes in [&b"\x1f\x8b\x08\0\0"[..], b"\xff\xfe\0"] {
        let file = UserData::of_file(bytes).expect("any");
        assert_eq!((&*file.for_cloud_init(), file.format()), (bytes, &Format::Other));
    }
    assert_eq!(UserData::of_file(b"a: \0"), Err(Problem::Nul));
}

#[test]
fn the_keys_of_a_cloud_config_are_known() {
    let keys = |text: &str| match UserData::parse(text).expect(text).format {
        Format::CloudConfig(keys) | Format::Map(keys) => keys.into_iter().collect::<Vec<_>>().join(" "),
        Format::Script | Format::Other => unreachable!("{text}"),
    };
    assert_eq!(keys("#cloud-config\nb: 1\na: [1]\nb: 2\n1: x\n? [k]\n: v\n"), "a b");
    assert_eq!(keys("x: &m {a: 1}\n<<: *m\n"), "a x");
    assert_eq!(keys("#cloud-config\n"), "");
}

#[test]
fn it_is_never_shown() {
    assert_eq!(format!("{:?}", UserData::script("#!secret").expect("script")), "UserData(8 bytes)");
}
