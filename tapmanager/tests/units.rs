//! What the units of both daemons have to say, so that trouble that passes leaves no node without them.

const UNITS: [(&str, &str); 2] = [
    ("controld", include_str!("../../deploy/controld.service")),
    ("tapmanager", include_str!("../../deploy/tapmanager.service")),
];

/// What holds for both, whatever else they say.
const SETTINGS: &[(&str, &str, &str)] = &[
    ("Unit", "StartLimitIntervalSec", "0"),
    ("Service", "Type", "notify"),
    ("Service", "Restart", "always"),
    ("Service", "RestartSec", "1"),
    ("Service", "RestartSteps", "5"),
    ("Service", "RestartMaxDelaySec", "30"),
    ("Service", "OOMScoreAdjust", "-999"),
    ("Service", "OOMPolicy", "continue"),
    ("Service", "TasksMax", "infinity"),
];

/// A setting as systemd reads it: in its section alone, and the last one of a name holds.
fn setting<'a>(unit: &'a str, section: &str, name: &str) -> Option<&'a str> {
    let mut here = "";
    let mut value = None;
    for line in unit.lines().map(str::trim) {
        if let Some(begun) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            here = begun;
        } else if let Some((_, said)) = line.split_once('=').filter(|(key, _)| here == section && *key == name) {
            value = Some(said);
        }
    }
    value
}

#[test]
fn a_daemon_that_ends_is_started_again_for_as_long_as_it_takes() {
    for (daemon, unit) in UNITS {
        for &(section, name, value) in SETTINGS {
            assert_eq!(setting(unit, section, name), Some(value), "`{name}` of `[{section}]` of {daemon}");
        }
    }
}

#[test]
fn a_setting_counts_in_its_section_alone() {
    let unit = "[Unit]\nA=1\nA=2\n#B=1\n[Service]\nC=3=4\n";
    assert_eq!(setting(unit, "Unit", "A"), Some("2"));
    assert_eq!(setting(unit, "Unit", "B"), None);
    assert_eq!(setting(unit, "Unit", "C"), None);
    assert_eq!(setting(unit, "Service", "C"), Some("3=4"));
}
