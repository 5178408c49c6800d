use serde_json::json;

use super::*;

fn map(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { unreachable!("a map") };
    map
}

fn user(text: &str) -> UserData {
    UserData::of_file(text.as_bytes()).expect(text)
}

fn made() -> Map<String, Value> {
    map(json!({ "write_files": [{ "path": "/made" }], "mounts": [["virtlet", "/run/virtlet/share"]] }))
}

fn joined(text: &str) -> Result<(String, Option<Map<String, Value>>), Reason> {
    let Joined { user_data, vendor_data } = join(Some(&user(text)), made())?;
    Ok((String::from_utf8(user_data).expect("text"), vendor_data))
}

#[test]
fn without_user_data_what_is_made_is_it() {
    let nothing = join(None, Map::new()).expect("joins");
    assert_eq!((&nothing.user_data[..], nothing.vendor_data), (&b"#cloud-config\n"[..], None));
    let all = join(None, made()).expect("joins");
    assert_eq!(all.vendor_data, None);
    assert_eq!(user(std::str::from_utf8(&all.user_data).expect("text")).map(), Ok(Some(made())));
}

#[test]
fn user_data_with_no_key_in_common_is_kept_byte_for_byte() {
    for text in [
        "#cloud-config\r\nruncmd: [ls]   # mine\r\nx: .inf\r\n",
        "#cloud-config\n# nothing yet\n",
        "#cloud-config\n\"write files\": []\nother: {write_files: [1]}\n",
        "#!/bin/sh\nwrite_files: []\n",
        "Content-Type: multipart/mixed; boundary=x\nMIME-Version: 1.0\n\n--x\nwrite_files:\n",
        "## template: jinja\n#cloud-config\nwrite_files: []\n{% if x %}: [\n",
        "#include\nhttp://example.com/x\n",
        "#cloud-config-archive\n- write_files\n",
        "#cloud-boothook\nwrite_files: 1\n",
    ] {
        let (kept, vendor_data) = joined(text).expect(text);
        assert_eq!((kept.as_str(), vendor_data), (text, Some(made())), "{text:?}");
    }
    let nothing = join(Some(&user("a: 1")), Map::new()).expect("joins");
    assert_eq!((&nothing.user_data[..], nothing.vendor_data), (&b"#cloud-config\na: 1"[..], None));
    let gzip = b"\x1f\x8b\x08\0write_files";
    let kept = join(Some(&UserData::of_file(gzip).expect("any")), made()).expect("joins");
    assert_eq!((&kept.user_data[..], kept.vendor_data), (&gzip[..], Some(made())));
}

#[test]
fn a_key_in_common_makes_one_document_of_both() {
    let text = "write_files:\n- {path: /users, permissions: 0644, content: 'yes'}\nruncmd: [[ls, yes]]\nmounts: ~\n";
    let (merged, vendor_data) = joined(&format!("#cloud-config\n{text}")).expect("joins");
    assert_eq!(vendor_data, None);
    insta::assert_snapshot!(merged, @r##"
    #cloud-config
    {"mounts":[["virtlet","/run/virtlet/share"]],"runcmd":[["ls",true]],"write_files":[{"path":"/made"},{"content":"yes","path":"/users","permissions":420}]}
    "##);
    assert_eq!(joined(text).expect("joins").0, merged);
}

#[test]
fn who_turns_vendor_data_off_has_nothing_of_ours_merged_in() {
    for off in ["{enabled: false}", "{enabled: 'no'}", "{enabled: ~}", "false", "~", "[enabled]"] {
        let text = format!("#cloud-config\nvendor_data: {off}\nwrite_files: [{{path: /users}}]  # mine\n");
        assert_eq!(joined(&text).expect(off), (text, Some(made())));
    }
    for on in ["{enabled: true}", "{enabled: 'On'}", "{enabled: 1}", "{prefix: [nice]}"] {
        let (merged, vendor_data) = joined(&format!("vendor_data: {on}\nwrite_files: [{{path: /users}}]\n")).expect(on);
        assert!(vendor_data.is_none() && merged.contains("/made") && merged.contains("/users"), "{merged}");
    }
}

#[test]
fn what_cannot_be_merged_is_refused_with_its_line() {
    let refusal = |text: &str| joined(text).expect_err(text).to_string();
    let begin = "user-data has `write_files`, and cannot be merged with what is made for the pod: ";
    assert_eq!(refusal("#cloud-config\nwrite_files: {}\n"), format!("{begin}`write_files` is not a list"));
    assert_eq!(refusal("#cloud-config\nwrite_files: []\nx: .inf\n"), format!("{begin}not valid YAML: line 3"));
}

#[test]
fn one_cloud_config_on_another() {
    let merged = on_top(&user("a: 1\nruncmd: [ls]\n"), &user("#cloud-config\nruncmd: [ps]\n")).expect("merges");
    assert_eq!(merged.map(), Ok(Some(map(json!({ "a": 1, "runcmd": ["ls", "ps"] })))));
    for (base, top, whose) in
        [("#!/bin/sh\n", "a: 1", "the source"), ("a: 1", "#!/bin/sh\n", "the pod's own user-data")]
    {
        let refusal = on_top(&user(base), &user(top)).expect_err("refused").to_string();
        assert!(refusal.contains(&format!("{whose} is no cloud-config")), "{refusal}");
    }
}
