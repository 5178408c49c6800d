use super::*;

fn same(text: &str) {
    assert_eq!(UserData::parse(text).as_ref().map(UserData::as_str), Ok(text), "{text:?}");
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
        assert_eq!(UserData::parse(text).expect("a map").as_str(), format!("#cloud-config\n{text}"));
    }
    assert_eq!(UserData::parse("\u{feff}a: 1").expect("a map").as_str(), "#cloud-config\na: 1");
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
fn a_script_is_kept_less_the_mark_of_mounts() {
    let script = UserData::script("#!/bin/sh\n@virtlet-mount-script@\necho a: [\n").expect("script");
    assert_eq!(script.as_str(), "#!/bin/sh\n\necho a: [\n");
    assert_eq!(UserData::script("\0"), Err(Problem::Nul));
}

#[test]
fn it_is_never_shown() {
    assert_eq!(format!("{:?}", UserData::script("#!secret").expect("script")), "UserData(8 bytes)");
}
