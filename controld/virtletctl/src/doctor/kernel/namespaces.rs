//! Whether processes without privileges may make user namespaces, as those that convert images do.
//!
//! Called by [`super::look`]. controld's unit has no `CAP_SYS_ADMIN`, which would do as well.

use super::super::finding::Finding;
use super::super::host::Host;

/// Settings of the kernel, of Debian's and of Ubuntu's, with the value that forbids it and the one that mends it.
const FORBID: [(&str, &str, &str); 3] = [
    ("user.max_user_namespaces", "0", "65536"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
];

pub(super) fn look(host: &Host) -> Finding {
    const CHECK: &str = "kernel.namespaces";
    let mut wrong = Vec::new();
    for (name, forbids, mends) in FORBID {
        match host.word(format!("/proc/sys/{}", name.replace('.', "/"))) {
            Ok(value) if value == forbids => wrong.push((format!("{name} is {value}"), format!("{name}={mends}"))),
            // A kernel that does not have it does not forbid it.
            Ok(_) => {}
            Err(error) => return Finding::unknown(CHECK, error),
        }
    }
    if wrong.is_empty() {
        return Finding::ok(CHECK, "processes without privileges may make user namespaces");
    }
    let (seen, mends): (Vec<_>, Vec<_>) = wrong.into_iter().unzip();
    let mends: Vec<String> = mends.iter().map(|mend| format!("sysctl -w {mend}")).collect();
    Finding::warning(
        CHECK,
        format!("{}: images that have to be converted cannot be pulled", seen.join(", ")),
        format!("{}, and the same in /etc/sysctl.d", mends.join("; ")),
    )
}

#[cfg(test)]
mod tests {
    use super::super::super::finding::State;
    use super::super::super::tests::tree;
    use super::*;

    fn of(files: &[(&str, &str)]) -> Finding {
        let (_dir, host) = tree(files);
        look(&host)
    }

    #[test]
    fn each_setting_that_forbids_it_is_told_with_what_mends_it() {
        let (debian, ubuntu) =
            ("proc/sys/kernel/unprivileged_userns_clone", "proc/sys/kernel/apparmor_restrict_unprivileged_userns");
        for files in [&[][..], &[(debian, "1\n"), (ubuntu, "0\n"), ("proc/sys/user/max_user_namespaces", "15000\n")]] {
            assert_eq!(of(files).state, State::Ok, "{files:?}");
        }
        let found = of(&[(debian, "0\n"), (ubuntu, "1\n")]);
        assert_eq!(found.state, State::Warning);
        assert!(found.seen.starts_with("kernel.unprivileged_userns_clone is 0, kernel.apparmor_restrict"), "{found:?}");
        let mend = found.mend.expect("a mend");
        assert!(mend.contains("unprivileged_userns_clone=1; sysctl -w kernel.apparmor_restrict"), "{mend}");
    }
}
