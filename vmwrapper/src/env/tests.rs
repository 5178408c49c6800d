use std::os::unix::ffi::OsStringExt as _;

use super::*;

const SECRET: &str = "00112233445566778899aabbccddeeff";

/// A whole and right environment, less and plus some variables.
fn with(changes: &[(&str, Option<&[u8]>)]) -> Result<Mode, EnvError> {
    let mut variables: Vec<(OsString, OsString)> = [
        ("PATH", "/bin"),
        (TOKEN, SECRET),
        (HANDOFF, "/run/virtlet/handoff.sock"),
        (EMULATOR, "/usr/bin/qemu-system-x86_64"),
        (NICS, "0x10,0x1e"),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .into();
    for (name, value) in changes {
        variables.retain(|(other, _)| other != name);
        variables.extend(value.map(|value| (name.into(), OsString::from_vec(value.into()))));
    }
    parse(variables)
}

fn pod(mode: Result<Mode, EnvError>) -> Pod {
    match mode {
        Ok(Mode::Pod(pod)) => pod,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_whole_environment_is_a_pod() {
    let pod = pod(with(&[("VIRTLET_OF_TOMORROW", Some(b"x"))]));
    assert_eq!(pod.token.as_str(), SECRET);
    assert_eq!(pod.handoff, Path::new("/run/virtlet/handoff.sock"));
    assert_eq!(pod.emulator, Path::new("/usr/bin/qemu-system-x86_64"));
    assert_eq!(pod.places.iter().map(|place| place.slot.to_string()).collect::<Vec<_>>(), ["0x10", "0x1e"]);
    assert_eq!((pod.deadline, pod.bus), (Duration::from_secs(10), PciBus::Pcie));
    assert_eq!(pod.variables, [TOKEN, HANDOFF, EMULATOR, NICS, "VIRTLET_OF_TOMORROW"]);
}

#[test]
fn the_bus_of_either_chipset_can_be_named() {
    for (name, bus) in [("pcie.0", PciBus::Pcie), ("pci.0", PciBus::Pci)] {
        assert_eq!(pod(with(&[(NIC_BUS, Some(name.as_bytes()))])).bus, bus);
        assert_eq!(bus.to_string(), name);
    }
}

#[test]
fn a_nic_may_have_an_order_and_a_number() {
    let pod = pod(with(&[(NICS, Some(b"0x10/index=16383/boot=2,0x11/boot=1,0x12"))]));
    let shown: Vec<_> = pod.places.iter().map(|place| (place.boot, place.acpi_index)).collect();
    assert_eq!(shown, [(Some(2), Some(16383)), (Some(1), None), (None, None)]);
}

#[test]
fn paths_are_bytes() {
    assert_eq!(pod(with(&[(EMULATOR, Some(b"/opt/\xff"))])).emulator.as_os_str().as_bytes(), b"/opt/\xff");
}

#[test]
fn nothing_of_ours_is_a_probe() {
    assert_eq!(parse([("PATH".into(), "/bin".into()), ("LC_ALL".into(), "C".into())]), Ok(Mode::Probe));
    assert_eq!(parse([("VIRTLE_TOKEN".into(), "x".into()), ("virtlet_token".into(), "x".into())]), Ok(Mode::Probe));
}

#[test]
fn the_first_of_a_name_counts() {
    let mut variables: Vec<(OsString, OsString)> = vec![(DEADLINE.into(), "7".into()), (DEADLINE.into(), "8".into())];
    variables.extend(
        [(TOKEN, SECRET), (HANDOFF, "/s"), (EMULATOR, "/q"), (NICS, "0x10")].map(|(n, v)| (n.into(), v.into())),
    );
    assert_eq!(pod(parse(variables)).deadline, Duration::from_millis(7));
}

#[test]
fn each_needed_variable_is_missed_by_name() {
    for name in [TOKEN, HANDOFF, EMULATOR, NICS] {
        assert_eq!(with(&[(name, None)]), Err(EnvError::Missing(name)));
    }
}

#[test]
fn wrong_values_are_refused() {
    let long = format!("/{}", "a".repeat(107));
    for (name, value, problem) in [
        (TOKEN, &b""[..], "variable `VIRTLET_TOKEN` is not 32 lower-case hex digits"),
        (TOKEN, b"00112233445566778899AABBCCDDEEFF", "variable `VIRTLET_TOKEN` is not 32 lower-case hex digits"),
        (TOKEN, b"\xff", "variable `VIRTLET_TOKEN` is not text"),
        (HANDOFF, b"", "variable `VIRTLET_HANDOFF` is not an absolute path"),
        (HANDOFF, b"run/handoff.sock", "variable `VIRTLET_HANDOFF` is not an absolute path"),
        (HANDOFF, long.as_bytes(), "variable `VIRTLET_HANDOFF` is longer than the path of a socket may be"),
        (EMULATOR, b"", "variable `VIRTLET_EMULATOR` is not an absolute path"),
        (EMULATOR, b"qemu", "variable `VIRTLET_EMULATOR` is not an absolute path"),
        (NICS, b"", "variable `VIRTLET_NICS`: `` is not a slot from 0x10 to 0x1e"),
        (NICS, b"0x10,", "variable `VIRTLET_NICS`: `` is not a slot from 0x10 to 0x1e"),
        (NICS, b"16", "variable `VIRTLET_NICS`: `16` is not a slot from 0x10 to 0x1e"),
        (NICS, b"0x0f", "variable `VIRTLET_NICS`: `0x0f` is not a slot from 0x10 to 0x1e"),
        (NICS, b"0x1f", "variable `VIRTLET_NICS`: `0x1f` is not a slot from 0x10 to 0x1e"),
        (NICS, b"0x+1", "variable `VIRTLET_NICS`: `0x+1` is not a slot from 0x10 to 0x1e"),
        (NICS, b"0x10,0x11,0x10", "variable `VIRTLET_NICS`: `0x10` stands there twice"),
        (NICS, b"0x10/boot=0", "variable `VIRTLET_NICS`: `0x10/boot=0` has a number that is none, or two of them"),
        (
            NICS,
            b"0x10/boot=1/boot=2",
            "variable `VIRTLET_NICS`: `0x10/boot=1/boot=2` has a number that is none, or two of them",
        ),
        (NICS, b"0x10/rom=x", "variable `VIRTLET_NICS`: `0x10/rom=x` says something else than `boot` and `index`"),
        (NICS, b"0x10/", "variable `VIRTLET_NICS`: `0x10/` says something else than `boot` and `index`"),
        (NICS, b"\xff", "variable `VIRTLET_NICS` is not text"),
        (NIC_BUS, b"pcie.1", "variable `VIRTLET_NIC_BUS` is not `pcie.0` or `pci.0`"),
        (DEADLINE, b"", "variable `VIRTLET_DEADLINE_MS` is not a number of milliseconds from 1 to 600000"),
        (DEADLINE, b"0", "variable `VIRTLET_DEADLINE_MS` is not a number of milliseconds from 1 to 600000"),
        (DEADLINE, b"600001", "variable `VIRTLET_DEADLINE_MS` is not a number of milliseconds from 1 to 600000"),
        (DEADLINE, b"1s", "variable `VIRTLET_DEADLINE_MS` is not a number of milliseconds from 1 to 600000"),
    ] {
        let error = with(&[(name, Some(value))]).expect_err("malformed");
        assert_eq!(error.to_string(), problem);
    }
}

#[test]
fn the_token_is_never_shown() {
    assert!(!format!("{:?}", with(&[])).contains(SECRET));
}
