//! What agents tell of their guests.

use proto::vm::guest::Os;

use super::*;

#[tokio::test]
async fn qemus_agent_tells_of_system_and_nics() {
    let dir = tempfile::tempdir().expect("tempdir");
    let id = MachineId::random();
    let qemu = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
    let agents = Agents::new(dir.path().to_owned());
    let info = json!({"return": {"id": "debian", "kernel-release": "6.1", "variant": "x"}});
    let nics = json!({"return": [
        {"name": "lo", "ip-addresses": [{"ip-address": "127.0.0.1", "ip-address-type": "ipv4", "prefix": 8}]},
        {"name": "enp1s0", "hardware-address": "02:00:00:00:00:0A", "ip-addresses": [
            {"ip-address": "10.1.1.1"}, {"ip-address": "fe80::1"}, {"ip-address": "fd00::1"}, {"ip-address": "no address"},
        ]},
    ]});
    let answers = [info, nics];
    let (told, asked) = tokio::join!(agents.tell(id), answered(&qemu, &answers));
    let asked: Vec<_> = asked.iter().map(|asked| asked["execute"].as_str().expect("a command").to_owned()).collect();
    assert_eq!(asked, ["guest-get-osinfo", "guest-network-get-interfaces"]);
    let told = told.expect("told");
    assert_eq!(told.os, Some(Os { id: "debian".into(), kernel_release: "6.1".into(), ..Os::default() }));
    let addresses = ["10.1.1.1", "fd00::1"].map(|address| address.parse().expect("an address")).into();
    let nic = ToldNic { name: "enp1s0".into(), mac: "02:00:00:00:00:0a".into(), addresses };
    assert_eq!(told.nics, Some(vec![ToldNic { name: "lo".into(), ..ToldNic::default() }, nic]));
    // One that answers and knows neither question is an agent all the same.
    let refused = json!({"error": {"class": "CommandNotFound", "desc": "no"}});
    let answers = [refused, json!({"return": "odd"})];
    let (told, _) = tokio::join!(agents.tell(id), answered(&qemu, &answers));
    assert_eq!(told, Some(Told::default()));
}

#[tokio::test]
async fn our_agent_is_asked_by_a_shell_where_qemus_does_not_answer() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let telling = tokio::spawn(async move { agents.tell(id).await });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    let session = guest.begin().await;
    guest.say(session, Message::Stdout(b"ID=tiny\nMACHINE=x86_64\n".to_vec())).await;
    guest.say(session, Message::Exited { code: 0 }).await;
    let os = Os { id: "tiny".into(), machine: "x86_64".into(), ..Os::default() };
    assert_eq!(telling.await.expect("runs"), Some(Told { os: Some(os), nics: None }));
}

#[tokio::test]
async fn nobody_tells_where_nobody_answers() {
    let dir = tempfile::tempdir().expect("tempdir");
    let agents = Agents::new(dir.path().to_owned());
    assert_eq!(agents.tell(MachineId::random()).await, None);
}
