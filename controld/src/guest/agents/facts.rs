//! What QEMU's agent tells of its guest: read as the agent writes it, and written as KubeVirt's clients read it, who know these facts by
//! the same fields in other words. The guest may say what it likes: texts and lists are bounded, and what is no text for a terminal is
//! left out.

use std::fmt;

use common::Chain;
use serde::de::{DeserializeOwned, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};

use super::Agents;
use super::qga::QgaError;

/// Longest text, in characters.
const MAX_TEXT: usize = 256;
/// Longest list; what comes after that is left out.
const MAX_ITEMS: usize = 512;
/// What there is to do where nobody answers.
const ABSENT: &str = "QEMU's agent does not answer in the guest; install `qemu-guest-agent` there, see docs/guest-agent.md, or wait until \
                      the guest is up";

/// All of it: KubeVirt's `VirtualMachineInstanceGuestAgentInfo`. What the agent refuses to tell, as it does with frozen file systems, is left out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Facts {
    guest_agent_version: Text,
    supported_commands: List<Question>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    os: Option<System>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_list: Option<List<User>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fs_info: Option<Disks>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fs_freeze_status: Option<Text>,
}

#[derive(Debug, Serialize)]
struct Disks {
    disks: List<FileSystem>,
}

/// What an agent can be asked.
#[derive(Debug, Serialize, Deserialize)]
struct Question {
    name: Text,
    #[serde(default)]
    enabled: bool,
}

/// An operating system; what it does not say of itself is empty.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all(deserialize = "kebab-case", serialize = "camelCase"))]
struct System {
    name: Text,
    kernel_release: Text,
    version: Text,
    pretty_name: Text,
    version_id: Text,
    kernel_version: Text,
    machine: Text,
    id: Text,
}

/// Somebody who is logged in.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all(deserialize = "kebab-case", serialize = "camelCase"))]
pub struct User {
    #[serde(rename(deserialize = "user", serialize = "userName"))]
    name: Text,
    #[serde(default, skip_serializing_if = "Text::is_empty")]
    domain: Text,
    /// Seconds since the epoch.
    #[serde(default)]
    login_time: f64,
}

/// A file system that is mounted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all(deserialize = "kebab-case", serialize = "camelCase"))]
pub struct FileSystem {
    #[serde(rename(deserialize = "name", serialize = "diskName"))]
    name: Text,
    #[serde(rename(deserialize = "mountpoint", serialize = "mountPoint"))]
    mount_point: Text,
    #[serde(rename(deserialize = "type", serialize = "fileSystemType"))]
    kind: Text,
    /// Of those without blocks, none.
    #[serde(default)]
    used_bytes: u64,
    #[serde(default)]
    total_bytes: u64,
    #[serde(default, skip_serializing_if = "List::is_empty")]
    disk: List<Disk>,
}

/// What a file system is on.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all(deserialize = "kebab-case", serialize = "camelCase"))]
struct Disk {
    #[serde(default, skip_serializing_if = "Text::is_empty")]
    serial: Text,
    #[serde(default)]
    bus_type: Text,
}

#[derive(Deserialize)]
struct Info {
    version: Text,
    #[serde(default)]
    supported_commands: List<Question>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct HostName {
    host_name: Text,
}

#[derive(Deserialize)]
struct Timezone {
    #[serde(default)]
    zone: Text,
    offset: i32,
}

/// A list of the guest's, no longer than it may be.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct List<T>(Vec<T>);

/// A text of the guest's, fit to be shown.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
struct Text(String);

impl Agents {
    /// All that is told of a guest.
    ///
    /// # Errors
    /// When QEMU's agent does not answer, or not in time.
    pub async fn facts(&self, id: MachineId) -> Result<Facts> {
        let Info { version, supported_commands } = self.asked(id, "guest-info").await?;
        let name: Option<HostName> = self.told(id, "guest-get-host-name").await?;
        let timezone: Option<Timezone> = self.told(id, "guest-get-timezone").await?;
        Ok(Facts {
            guest_agent_version: version,
            supported_commands,
            hostname: name.map(|name| name.host_name),
            os: self.told(id, "guest-get-osinfo").await?,
            timezone: timezone.map(|Timezone { zone: Text(zone), offset }| format!("{zone}, {offset}")),
            user_list: self.told(id, "guest-get-users").await?,
            fs_info: self.told(id, "guest-get-fsinfo").await?.map(|disks| Disks { disks }),
            fs_freeze_status: self.told(id, "guest-fsfreeze-status").await?,
        })
    }

    /// Who is logged in.
    ///
    /// # Errors
    /// When QEMU's agent does not answer, not in time, or refuses.
    pub async fn users(&self, id: MachineId) -> Result<List<User>> {
        self.asked(id, "guest-get-users").await
    }

    /// What is mounted.
    ///
    /// # Errors
    /// When QEMU's agent does not answer, not in time, or refuses.
    pub async fn file_systems(&self, id: MachineId) -> Result<List<FileSystem>> {
        self.asked(id, "guest-get-fsinfo").await
    }

    /// An answer; `None` if the agent refuses one.
    async fn told<T: DeserializeOwned>(&self, id: MachineId, question: &'static str) -> Result<Option<T>> {
        match self.machine(id).qga.ask(question).await {
            Ok(answer) => Ok(Some(answer)),
            Err(refused @ QgaError::Refused { .. }) => {
                tracing::debug!(machine = %id, why = %Chain(&refused), "a fact of the guest left out");
                Ok(None)
            }
            Err(cause) => Err(failed(cause)),
        }
    }

    pub(super) async fn asked<T: DeserializeOwned>(&self, id: MachineId, question: &'static str) -> Result<T> {
        self.machine(id).qga.ask(question).await.map_err(failed)
    }
}

/// The failure of a question.
pub(super) fn failed(cause: QgaError) -> Error {
    match cause {
        QgaError::Absent(cause) => Error::because(Kind::State, ABSENT, cause),
        QgaError::Refused { .. } => Error::because(Kind::State, "the guest does not do it", cause),
        QgaError::Late(..) => Error::because(Kind::Deadline, "the guest was asked in vain", cause),
        QgaError::Connection(_) => Error::because(Kind::Unavailable, "the guest was asked in vain", cause),
        _ => Error::because(Kind::Internal, "the guest was asked in vain", cause),
    }
}

impl Text {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Ok(Self(text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()))
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> List<T> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Items<T>(Vec<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Vec<T>, A::Error> {
                while let Some(item) = items.next_element()? {
                    if self.0.len() < MAX_ITEMS {
                        self.0.push(item);
                    }
                }
                Ok(self.0)
            }
        }
        from.deserialize_seq(Items(Vec::new())).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::net::UnixListener;

    use super::super::qemu_socket;
    use super::super::tests::answered;
    use super::*;

    /// As KubeVirt's clients read what the agent has told.
    fn read<T: DeserializeOwned + Serialize>(told: Value) -> Value {
        let fact: T = serde_json::from_value(told).expect("told");
        serde_json::to_value(fact).expect("JSON")
    }

    #[test]
    fn what_the_agent_tells_is_kubevirts_in_other_words() {
        let told = json!([{"name": "vda1", "mountpoint": "/", "type": "ext4", "used-bytes": 7, "total-bytes": 9,
            "disk": [{"serial": "R-7", "bus-type": "virtio", "bus": 0, "pci-controller": {"bus": 4}}]},
            {"name": "tmp", "mountpoint": "/tmp", "type": "tmpfs"}]);
        let shown = json!([{"diskName": "vda1", "mountPoint": "/", "fileSystemType": "ext4", "usedBytes": 7, "totalBytes": 9,
            "disk": [{"serial": "R-7", "busType": "virtio"}]},
            {"diskName": "tmp", "mountPoint": "/tmp", "fileSystemType": "tmpfs", "usedBytes": 0, "totalBytes": 0}]);
        assert_eq!(read::<List<FileSystem>>(told), shown);
        let told = json!([{"user": "ada", "login-time": 1.5}, {"user": "eve", "domain": "D", "login-time": 2.0}]);
        let shown =
            json!([{"userName": "ada", "loginTime": 1.5}, {"userName": "eve", "domain": "D", "loginTime": 2.0}]);
        assert_eq!(read::<List<User>>(told), shown);
        let system = read::<System>(json!({"kernel-release": "6.1", "pretty-name": "Tiny 1", "variant": "x"}));
        assert_eq!(
            (&system["kernelRelease"], &system["prettyName"], &system["id"]),
            (&json!("6.1"), &json!("Tiny 1"), &json!(""))
        );
    }

    #[tokio::test]
    async fn what_the_agent_refuses_to_tell_is_left_out() {
        let dir = tempfile::tempdir().expect("tempdir");
        let id = MachineId::random();
        let qemu = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
        let agents = Agents::new(dir.path().to_owned());
        let refused = json!({"error": {"class": "CommandNotFound", "desc": "disabled"}});
        let answers = [
            json!({"return": {"version": "7.2", "supported_commands": [{"name": "guest-exec", "enabled": true}]}}),
            refused.clone(),
            json!({"return": {"zone": "UTC", "offset": 0}}),
            refused.clone(),
            json!({"return": []}),
            refused,
            json!({"return": "thawed"}),
        ];
        let (facts, _asked) = tokio::join!(agents.facts(id), answered(&qemu, &answers));
        let shown = serde_json::to_value(facts.expect("told")).expect("JSON");
        let expected = json!({"guestAgentVersion": "7.2", "supportedCommands": [{"name": "guest-exec", "enabled": true}],
            "timezone": "UTC, 0", "userList": [], "fsFreezeStatus": "thawed"});
        assert_eq!(shown, expected);
        // Where nothing else is asked, that is a no.
        let answers = [json!({"error": {"desc": "disabled"}})];
        let (users, _asked) = tokio::join!(agents.users(id), answered(&qemu, &answers));
        let error = users.expect_err("refused");
        assert!(error.kind() == Kind::State && Chain(&error).to_string().ends_with(": disabled"), "{error:?}");
    }

    #[test]
    fn a_guest_tells_no_more_than_fits() {
        let users: Vec<Value> = (0..2 * MAX_ITEMS).map(|_| json!({"user": "\u{1b}[2J".repeat(MAX_TEXT)})).collect();
        let shown = read::<List<User>>(json!(users));
        let shown = shown.as_array().expect("list");
        assert_eq!(shown.len(), MAX_ITEMS);
        let name = shown[0]["userName"].as_str().expect("text");
        assert!(name.len() == MAX_TEXT && !name.contains('\u{1b}'), "{name}");
    }
}
