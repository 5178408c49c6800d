//! Who a process runs as, by the guest's own files: a static program has no other way to look users up.

use std::fs;
use std::path::Path;

/// A user.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Groups beside, and `gid` itself.
    pub(crate) groups: Vec<u32>,
    pub(crate) home: String,
}

impl Account {
    /// The user of `USER`, `UID`, `USER:GROUP`, `UID:GID`; root if empty. A number need not be in the files.
    pub(crate) fn find(etc: &Path, wanted: &str) -> Result<Self, String> {
        // A full name may be in any encoding.
        let read = |name| String::from_utf8_lossy(&fs::read(etc.join(name)).unwrap_or_default()).into_owned();
        let (passwd, group) = (read("passwd"), read("group"));
        let (user, group_wanted) = wanted.split_once(':').unwrap_or((wanted, ""));
        let user = if user.is_empty() { "0" } else { user };
        let entry =
            passwd.lines().map(fields).find(|entry| entry.first() == Some(&user) || entry.get(2) == Some(&user));
        let number = |entry: &[&str], at: usize| entry.get(at).and_then(|field| field.parse().ok());
        let uid = entry.as_deref().and_then(|entry| number(entry, 2)).or_else(|| user.parse().ok());
        let uid = uid.ok_or_else(|| format!("no user `{user}` in the guest"))?;
        let gid = match group_wanted {
            "" => entry.as_deref().and_then(|entry| number(entry, 3)).unwrap_or(0),
            name => {
                let named = group.lines().map(fields).find(|entry| entry.first() == Some(&name));
                let gid = named.and_then(|entry| number(&entry, 2)).or_else(|| name.parse().ok());
                gid.ok_or_else(|| format!("no group `{name}` in the guest"))?
            }
        };
        let name = entry.as_deref().and_then(|entry| entry.first().copied()).unwrap_or_default();
        let member = |entry: &Vec<&str>| entry.get(3).is_some_and(|members| members.split(',').any(|one| one == name));
        let beside = group.lines().map(fields).filter(|_| !name.is_empty()).filter(member);
        let mut groups: Vec<u32> = beside.filter_map(|entry| number(&entry, 2)).collect();
        groups.push(gid);
        groups.sort_unstable();
        groups.dedup();
        let home = entry.as_deref().and_then(|entry| entry.get(5).copied()).unwrap_or("/");
        Ok(Self { uid, gid, groups, home: home.to_owned() })
    }
}

fn fields(line: &str) -> Vec<&str> {
    line.split(':').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_as_docker_finds_them() {
        let etc = tempfile::tempdir().unwrap();
        fs::write(etc.path().join("passwd"), b"root:x:0:0:r\xe9:/root:/bin/sh\nann:x:5:6:a:/home/ann:/bin/sh\n")
            .unwrap();
        fs::write(etc.path().join("group"), "root:x:0:\nann:x:6:\nwheel:x:10:bob,ann\nlog:x:11:ann\n").unwrap();
        let of = |wanted| {
            Account::find(etc.path(), wanted).map(|Account { uid, gid, groups, home }| (uid, gid, groups, home))
        };
        let ann = |gid, groups: &[u32]| Ok((5, gid, groups.to_vec(), "/home/ann".to_owned()));
        assert_eq!(of(""), Ok((0, 0, vec![0], "/root".to_owned())));
        assert_eq!(of("ann"), ann(6, &[6, 10, 11]));
        assert_eq!(of("5:log"), ann(11, &[10, 11]));
        assert_eq!(of("ann:99"), ann(99, &[10, 11, 99]));
        assert_eq!(of("1000"), Ok((1000, 0, vec![0], "/".to_owned())));
        assert_eq!(of("eve"), Err("no user `eve` in the guest".to_owned()));
        assert_eq!(of("ann:eve"), Err("no group `eve` in the guest".to_owned()));
    }
}
