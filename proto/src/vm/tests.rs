use super::*;

#[test]
fn what_is_written_is_read() {
    let description = VmDescription {
        v: VERSION,
        cpu: Some(Cpu { topology: Some(Topology { sockets: 2, cores: 1, threads: 2 }), ..Cpu::default() }),
        disks: vec![Disk {
            name: "cd".into(),
            kind: Some(DiskKind::Cdrom),
            source: Some(DiskSource::Files { label: "cfg".into() }),
            ..Disk::default()
        }],
        start_paused: true,
        ..VmDescription::default()
    };
    let text = description.text().expect("something to say");
    insta::assert_snapshot!(text, @r#"{"v":1,"cpu":{"topology":{"sockets":2,"cores":1,"threads":2}},"disks":[{"name":"cd","kind":"cdrom","source":{"files":{"label":"cfg"}}}],"startPaused":true}"#);
    assert_eq!(VmDescription::parse(&text).expect("its own"), description);
    assert_eq!(VmDescription { v: VERSION, ..VmDescription::default() }.text(), None, "nothing to say");
}

#[test]
fn what_is_not_known_is_an_error() {
    let long = format!("{{\"v\":1,\"machine\":\"{}\"}}", "x".repeat(MAX_BYTES));
    let told: Vec<String> =
        ["", "{}", "7", r#"{"v":2,"other":1}"#, r#"{"v":1,"other":1}"#, r#"{"v":1,"disks":[{"x":1}]}"#, &long]
            .iter()
            .map(|text| {
                let error = VmDescription::parse(text).expect_err("not one");
                let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
                format!("{error}{cause}")
            })
            .collect();
    insta::assert_snapshot!(told.join("\n"), @r"
    no description of a machine: EOF while parsing a value at line 1 column 0
    no description of a machine: missing field `v` at line 1 column 2
    no description of a machine: invalid type: integer `7`, expected struct AnyVersion at line 1 column 1
    of version 2, and this program knows version 1
    no description of a machine: unknown field `other`, expected one of `v`, `cpu`, `machine`, `firmware`, `chassis`, `clock`, `features`, `disks`, `nics`, `devices`, `cloudInit`, `endsAtReboot`, `startPaused` at line 1 column 14
    no description of a machine: unknown field `x`, expected one of `name`, `root`, `kind`, `source`, `bus`, `bootOrder`, `serial`, `cache`, `io`, `errorPolicy`, `shareable`, `blockSize`, `readonly`, `pciAddress` at line 1 column 20
    longer than 65536 bytes
    ");
}
