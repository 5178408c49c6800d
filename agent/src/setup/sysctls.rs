//! Settings of the guest's kernel.

use std::fs;
use std::path::Path;

/// Sets `name=value` each; what was not set and why, a line each.
pub(super) fn set(root: &Path, wanted: &[String]) -> Vec<String> {
    let failed = wanted.iter().filter_map(|setting| {
        let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
        let written = fs::write(root.join(path(name)), value);
        written.err().map(|error| format!("sysctl `{name}` = `{value}` was not set in the guest: {error}"))
    });
    failed.collect()
}

/// As sysctl(8) has it: the first separator, `.` or `/`, separates, and the other one stands for it inside a part, as in
/// `net.ipv4.conf.eth0/100.rp_filter`.
fn path(name: &str) -> String {
    if name.find(['.', '/']).is_some_and(|at| name[at..].starts_with('/')) {
        return name.to_owned();
    }
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    name.chars().map(swap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_files_and_what_fails_is_said() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("net/conf/eth0.1")).unwrap();
        let wanted = ["net.conf.eth0/1.rp_filter=1", "net/top=a=b", "kernel.none=2"].map(String::from);
        let failed = set(root.path(), &wanted);
        assert_eq!(failed.len(), 1);
        assert!(failed[0].starts_with("sysctl `kernel.none` = `2` was not set in the guest: "), "{failed:?}");
        assert_eq!(fs::read_to_string(root.path().join("net/conf/eth0.1/rp_filter")).unwrap(), "1");
        assert_eq!(fs::read_to_string(root.path().join("net/top")).unwrap(), "a=b");
    }
}
