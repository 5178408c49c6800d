//! The variables of cnitool, as the tools have them from their environment. Nothing of the machine is changed.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// What `networks` says on both outputs, with a daemon that is configured for directories that are not there.
fn networks(dir: &Path, variables: &[(&str, &Path)]) -> (String, String) {
    let config = dir.join("tapmanager.toml");
    let text = format!("cni_conf_dir = '{0}/none.d'\ncni_plugin_dirs = ['{0}/none']\n", dir.display());
    fs::write(&config, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapmanager"));
    command.args(["networks", "--output", "text", "--config"]).arg(config);
    let output = command.env_clear().envs(variables.iter().copied()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap().replace(&dir.display().to_string(), "DIR");
    (text(output.stdout), text(output.stderr))
}

#[test]
fn networks_and_plugins_are_where_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let (conf, bin) = (dir.path().join("net.d"), dir.path().join("bin"));
    for made in [&conf, &bin] {
        fs::create_dir(made).unwrap();
    }
    let list = r#"{"cniVersion": "1.0.0", "name": "lab", "plugins": [{"type": "absent"}]}"#;
    fs::write(conf.join("10-lab.conflist"), list).unwrap();
    let (told, note) = networks(dir.path(), &[("NETCONFPATH", conf.as_path()), ("CNI_PATH", bin.as_path())]);
    assert!(told.contains("network lab") && told.contains("none of the plugin directories (DIR/bin)"), "{told}");
    assert_eq!(note, "tapmanager: these are by `CNI_PATH` and `NETCONFPATH`, which the daemon does not read\n");
    let (told, note) = networks(dir.path(), &[]);
    assert!(told.contains("no network is configured: `DIR/none.d`"), "{told}");
    assert_eq!(note, "tapmanager: `CNI_PATH` and `NETCONFPATH` name other directories, as for cnitool\n");
}
