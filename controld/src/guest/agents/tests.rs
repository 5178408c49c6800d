mod gate;
mod logged;
mod told;

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::Chain;
use proto::agent::{Decoder, Frame, Message, Stream, VERSION, WINDOW, encode};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use super::*;

/// A guest with our agent, as the test wants it.
struct Guest {
    stream: UnixStream,
    decoder: Decoder,
    epoch: u64,
}

impl Guest {
    async fn accept(qemu: &UnixListener) -> Self {
        let (stream, _) = qemu.accept().await.expect("accepts");
        Self { stream, decoder: Decoder::of_controld(), epoch: 0 }
    }

    async fn hear(&mut self) -> (u32, Message) {
        loop {
            if let Some(Frame { epoch, session, message }) = self.decoder.next_frame() {
                self.epoch = epoch;
                return (session, message);
            }
            let mut chunk = [0; 4096];
            let read = self.stream.read(&mut chunk).await.expect("reads");
            assert_ne!(read, 0, "the connection is closed");
            self.decoder.extend(&chunk[..read]);
        }
    }

    async fn say(&mut self, session: u32, message: Message) {
        let bytes = encode(&Frame { epoch: self.epoch, session, message }).expect("short");
        self.stream.write_all(&bytes).await.expect("writes");
    }

    async fn greet(&mut self) {
        assert_eq!(self.hear().await, (0, Message::Hello { version: VERSION }));
        self.say(0, Message::Hello { version: VERSION }).await;
    }

    async fn begin(&mut self) -> u32 {
        let (id, Message::Start(_)) = self.hear().await else { panic!("no start") };
        self.say(id, Message::Started { pid: 1 }).await;
        id
    }
}

fn agents(dir: &Path) -> (Arc<Agents>, MachineId, UnixListener) {
    let id = MachineId::random();
    let qemu = UnixListener::bind(our_socket(dir, id)).expect("binds");
    (Arc::new(Agents::new(dir.to_owned())), id, qemu)
}

/// A question to QEMU's agent, which synchronises first.
async fn question(qemu: &UnixListener) -> (UnixStream, Value) {
    let mut stream = synchronised(qemu).await;
    let mut request = String::new();
    stream.read_line(&mut request).await.expect("reads");
    (stream.into_inner(), serde_json::from_str(&request).expect("JSON"))
}

/// The next connection, on which QEMU's agent has said that it is there.
async fn synchronised(qemu: &UnixListener) -> BufReader<UnixStream> {
    let (stream, _) = qemu.accept().await.expect("accepts");
    let mut stream = BufReader::new(stream);
    let mut sync = Vec::new();
    stream.read_until(b'\n', &mut sync).await.expect("reads");
    let sync: Value = serde_json::from_slice(&sync[1..]).expect("JSON");
    let answer = json!({"return": sync["arguments"]["id"]}).to_string();
    let synchronised = [b"half an answer\xff", answer.as_bytes(), b"\n"].concat();
    stream.get_mut().write_all(&synchronised).await.expect("writes");
    stream
}

fn words(machine: MachineId, argv: &[&str]) -> Command {
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    Command { machine, start: Start { argv, ..Start::default() }, patience: Duration::ZERO, has_agent: false }
}

fn anything(machine: MachineId) -> Command {
    words(machine, &["true"])
}

#[tokio::test]
async fn output_is_collected_past_the_credit_of_the_beginning() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let run = tokio::spawn(async move { agents.run(anything(id), None).await });
    let mut guest = Guest::accept(&qemu).await;
    guest.stream.write_all(b"boot messages").await.expect("writes");
    guest.greet().await;
    let session = guest.begin().await;
    for _ in 0..10 {
        // So much that a frame tells of it.
        for _ in 0..2 {
            guest.say(session, Message::Stdout(vec![b'x'; 32 << 10])).await;
        }
        let credit = Message::Credit { stream: Stream::Stdout, bytes: 64 << 10 };
        assert_eq!(guest.hear().await, (session, credit));
    }
    guest.say(session, Message::Stderr(b"oops".to_vec())).await;
    guest.say(session, Message::Exited { code: 3 }).await;
    let output = run.await.expect("runs").expect("ends");
    assert_eq!((output.stdout.len(), output.stderr.as_slice(), output.code), (20 * (32 << 10), &b"oops"[..], 3));
}

#[tokio::test]
async fn a_command_past_its_deadline_is_cancelled_and_the_next_one_runs() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let ours = agents.clone();
    let run = tokio::spawn(async move { ours.run(anything(id), Some(Duration::from_millis(300))).await });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    let session = guest.begin().await;
    assert_eq!(guest.hear().await, (session, Message::Cancel));
    assert_eq!(run.await.expect("runs").expect_err("late").kind(), Kind::Deadline);
    let run = tokio::spawn(async move { agents.run(anything(id), None).await });
    let session = guest.begin().await;
    guest.say(session, Message::Exited { code: 0 }).await;
    assert_eq!(run.await.expect("runs").expect("ends").code, 0);
}

#[tokio::test]
async fn an_agent_that_is_started_again_ends_what_ran_and_is_greeted() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let ours = agents.clone();
    let run = tokio::spawn(async move { ours.run(anything(id), None).await });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    guest.begin().await;
    guest.epoch = 0;
    guest.say(0, Message::Hello { version: VERSION }).await;
    assert_eq!(run.await.expect("runs").expect_err("lost").kind(), Kind::Unavailable);
    guest.greet().await;
    let run = tokio::spawn(async move { agents.start(anything(id)).await });
    guest.begin().await;
    run.await.expect("runs").expect("starts");
}

#[tokio::test]
async fn much_output_in_small_pieces_is_no_flood() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let run = tokio::spawn(async move { agents.run(anything(id), None).await });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    let session = guest.begin().await;
    let output = Message::Stdout(vec![b'x'; 32 << 10]);
    let frame = encode(&Frame { epoch: guest.epoch, session, message: output }).expect("fits");
    for _ in 0..(8 << 20) / (64 << 10) {
        // As a port gives it: a page at a time.
        for page in frame.chunks(4096).chain(frame.chunks(4096)) {
            guest.stream.write_all(page).await.expect("writes");
            tokio::task::yield_now().await;
        }
        assert!(matches!(guest.hear().await.1, Message::Credit { .. }));
    }
    guest.say(session, Message::Exited { code: 0 }).await;
    assert_eq!(run.await.expect("runs").expect("ends").stdout.len(), 8 << 20);
}

#[tokio::test]
async fn a_guest_that_floods_loses_the_connection() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let run = tokio::spawn(async move { agents.run(anything(id), None).await });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    let session = guest.begin().await;
    // Output without credit, which the command's own end would have to wait for.
    let flood = encode(&Frame { epoch: guest.epoch, session, message: Message::Stdout(vec![0; WINDOW as usize]) });
    let flood = flood.expect("fits");
    let mut sent = 0_usize;
    while guest.stream.write_all(&flood).await.is_ok() {
        sent += flood.len();
        assert!(sent < 256 << 20, "never closed");
    }
    assert!(run.await.expect("runs").is_err());
}

#[tokio::test]
async fn the_agent_of_qemu_runs_what_ours_does_not() {
    let dir = tempfile::tempdir().expect("tempdir");
    let id = MachineId::random();
    let qemu = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
    let agents = Agents::new(dir.path().to_owned());
    let guest = tokio::spawn(async move {
        let mut asked = Vec::new();
        for answer in [
            json!({"return": {"pid": 7}}),
            json!({"return": {"exited": false}}),
            json!({"return": {"exited": true, "exitcode": 3, "out-data": "aGk="}}),
        ] {
            let (mut stream, request) = question(&qemu).await;
            asked.push(request);
            stream.write_all(format!("{answer}\n").as_bytes()).await.expect("writes");
        }
        asked
    });
    let output = agents.run(words(id, &["echo", "hi"]), None).await.expect("runs");
    assert!(output.stdout == b"hi" && output.stderr.is_empty() && !output.cut && output.code == 3, "{output:?}");
    let asked = guest.await.expect("asked");
    assert_eq!(asked[0]["arguments"], json!({"path": "echo", "arg": ["hi"], "capture-output": true}));
    assert_eq!(asked[2], json!({"execute": "guest-exec-status", "arguments": {"pid": 7}}));
}

#[tokio::test]
async fn a_guest_is_asked_to_power_off_once() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let ours = agents.clone();
    let asked = tokio::spawn(async move { ours.power_off(id).await });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    let (session, Message::Start(start)) = guest.hear().await else { panic!("no start") };
    assert_eq!(start, Start { argv: vec!["poweroff".into()], ..Start::default() });
    guest.say(session, Message::Started { pid: 1 }).await;
    guest.say(session, Message::Exited { code: 0 }).await;
    asked.await.expect("asks");
    agents.power_off(id).await;
    let running = tokio::spawn(async move { agents.start(anything(id)).await });
    let (_, Message::Start(next)) = guest.hear().await else { panic!("no start") };
    assert_eq!(next.argv, ["true"], "and not to power off again");
    running.abort();
}

#[tokio::test]
async fn qemus_agent_powers_off_a_guest_whose_other_one_cannot() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let qemus = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
    let asked = tokio::spawn(async move { agents.power_off(id).await });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    let (session, Message::Start(_)) = guest.hear().await else { panic!("no start") };
    guest.say(session, Message::Refused("no `poweroff` in the guest".into())).await;
    let (mut stream, request) = question(&qemus).await;
    assert_eq!(request, json!({"execute": "guest-shutdown", "arguments": {"mode": "powerdown"}}));
    // It says nothing, and the guest is gone.
    stream.shutdown().await.expect("shuts down");
    drop(stream);
    asked.await.expect("asks");
}

#[tokio::test]
async fn a_guest_that_is_down_before_its_reboot_has_ended_was_asked() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let asked = tokio::spawn(async move { agents.reboot(id).await });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    let (session, Message::Start(start)) = guest.hear().await else { panic!("no start") };
    assert_eq!(start.argv, ["reboot"]);
    guest.say(session, Message::Started { pid: 1 }).await;
    drop(guest);
    asked.await.expect("no panic").expect("asked");
}

#[tokio::test]
async fn a_guest_without_our_agent_is_asked_to_reboot_by_qemus() {
    let dir = tempfile::tempdir().expect("tempdir");
    let id = MachineId::random();
    let qemus = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
    let agents = Agents::new(dir.path().to_owned());
    let refusal = [json!({"error": {"desc": "no"}})];
    let (asked, question) = tokio::join!(agents.reboot(id), answered(&qemus, &refusal));
    assert_eq!(question, [json!({"execute": "guest-shutdown", "arguments": {"mode": "reboot"}})]);
    assert_eq!(asked.expect_err("refused").kind(), Kind::State);
}

fn setup() -> Setup {
    Setup { sysctls: vec!["kernel.shm_rmid_forced=1".into()], ..Setup::default() }
}

#[tokio::test]
async fn an_agent_is_told_of_its_guest_after_each_greeting_and_before_anything_else() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    agents.set_up(id, setup());
    let mut guest = Guest::accept(&qemu).await;
    let starter = agents.clone();
    let started = tokio::spawn(async move { starter.start(anything(id)).await });
    guest.greet().await;
    assert_eq!(guest.hear().await, (0, Message::Setup(setup())));
    guest.say(0, Message::Ready("sysctl `x` was not set".into())).await;
    guest.begin().await;
    let process = started.await.expect("no panic").expect("starts");
    // An agent that starts anew.
    guest.epoch = 0;
    guest.say(0, Message::Hello { version: VERSION }).await;
    guest.greet().await;
    assert_eq!(guest.hear().await, (0, Message::Setup(setup())));
    drop(process);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_to_a_guest_that_is_set_up_is_made_again_until_the_machine_is_forgotten() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    agents.set_up(id, setup());
    for _again in 0..2 {
        let mut guest = Guest::accept(&qemu).await;
        guest.greet().await;
        assert_eq!(guest.hear().await, (0, Message::Setup(setup())));
    }
    let _guest = Guest::accept(&qemu).await;
    agents.forget(id);
    assert!(timeout(Duration::from_secs(60), qemu.accept()).await.is_err(), "nobody asks for a machine that is gone");
}

#[tokio::test]
async fn who_knows_only_then_how_a_guest_is_to_be_says_it_to_an_agent_that_was_greeted() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let starter = agents.clone();
    let started = tokio::spawn(async move { starter.start(anything(id)).await });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    guest.begin().await;
    let _process = started.await.expect("no panic").expect("starts");
    agents.set_up(id, setup());
    assert_eq!(guest.hear().await, (0, Message::Setup(setup())));
}

#[tokio::test]
async fn a_machines_command_is_asked_to_end() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let asking = tokio::spawn(async move { agents.stop(id).await });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    assert_eq!(guest.hear().await, (0, Message::Stop));
    assert_eq!(guest.hear().await, (0, Message::Setup(Setup::default())));
    guest.say(0, Message::Ready(String::new())).await;
    asking.await.expect("no panic").expect("asked");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_hears_nothing_any_more_has_not_been_asked() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let asking = tokio::spawn(async move { agents.stop(id).await });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    assert_eq!(guest.hear().await, (0, Message::Stop));
    assert_eq!(asking.await.expect("no panic").expect_err("no answer").kind(), Kind::State);
}

#[tokio::test]
async fn ours_is_not_waited_for_in_a_guest_whose_other_agent_is_up() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, _silent) = agents(dir.path());
    let qemu = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
    let command = Command { patience: BOOT, ..anything(id) };
    let (started, _) = tokio::join!(agents.start(command), synchronised(&qemu));
    let error = started.map(drop).expect_err("none of ours").to_string();
    assert!(error.contains("QEMU's agent, which does, takes neither input"), "{error}");
}

#[tokio::test]
async fn ours_can_be_waited_for_before_there_is_a_session() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, ours) = agents(dir.path());
    let command = Command { patience: BOOT, ..anything(id) };
    let answer = async {
        let mut guest = Guest::accept(&ours).await;
        guest.greet().await;
        guest
    };
    let (waited, mut guest) = tokio::join!(agents.await_ours(&command), answer);
    waited.expect("it answers");
    // The command takes the same way.
    let (started, _) = tokio::join!(agents.start(command), guest.begin());
    started.map(drop).expect("started");
}

#[tokio::test]
async fn ours_is_waited_for_where_it_is_said_to_come() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, _silent) = agents(dir.path());
    let qemu = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
    let command = Command { patience: Duration::from_millis(100), has_agent: true, ..anything(id) };
    let error = agents.start(command).await.map(drop).expect_err("it does not come").to_string();
    assert!(error.contains("or wait until the guest is up"), "{error}");
    let asked = tokio::select! { biased; _ = qemu.accept() => true, () = future::ready(()) => false };
    assert!(!asked, "QEMU's agent says nothing of when ours comes");
}

#[tokio::test]
async fn a_command_waits_for_ours_where_it_is_said_to_come() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, ours) = agents(dir.path());
    let qemu = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
    let command = Command { patience: BOOT, has_agent: true, ..anything(id) };
    let run = tokio::spawn(async move { agents.run(command, None).await });
    let mut guest = Guest::accept(&ours).await;
    assert_eq!(guest.hear().await, (0, Message::Hello { version: VERSION }));
    // Longer than ours is waited for where nobody says that it comes.
    timeout(2 * GREETING, qemu.accept()).await.expect_err("QEMU's agent runs it otherwise than the pod says");
    guest.say(0, Message::Hello { version: VERSION }).await;
    let session = guest.begin().await;
    guest.say(session, Message::Exited { code: 0 }).await;
    assert_eq!(run.await.expect("runs").expect("ends").code, 0);
}

/// Answers questions to QEMU's agent, one after another; what they were.
pub(super) async fn answered(qemu: &UnixListener, answers: &[Value]) -> Vec<Value> {
    let mut asked = Vec::new();
    for answer in answers {
        let (mut stream, request) = question(qemu).await;
        asked.push(request);
        stream.write_all(format!("{answer}\n").as_bytes()).await.expect("writes");
    }
    asked
}

#[tokio::test]
async fn of_what_qemus_agent_tells_no_more_is_kept_than_there_is_room_for() {
    const MANY: usize = 1 << 20;
    let dir = tempfile::tempdir().expect("tempdir");
    let id = MachineId::random();
    let qemu = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
    let agents = Agents { budget: Budget::new(MANY), ..Agents::new(dir.path().to_owned()) };
    let printed = STANDARD.encode(vec![0; MANY]);
    let ended = json!({"return": {"exited": true, "exitcode": 3, "out-data": printed, "err-data": "aGk="}});
    let answers = [json!({"return": {"pid": 7}}), ended];
    let run = async || tokio::join!(agents.run(anything(id), None), answered(&qemu, &answers)).0.expect("runs");
    let first = run().await;
    assert!(first.stdout.len() == MANY && first.stderr == b"hi" && !first.cut && first.code == 3);
    // As long as the first output is not sent, the node has no room for another.
    let second = run().await;
    assert!(second.stdout.len() < MANY / 2 && second.cut, "{}", second.stdout.len());
    drop((first, second));
    assert!(!run().await.cut);
}

#[tokio::test]
async fn of_a_command_that_runs_qemus_agent_tells_no_output() {
    let dir = tempfile::tempdir().expect("tempdir");
    let id = MachineId::random();
    let qemu = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
    let agents = Agents::new(dir.path().to_owned());
    let runs = json!({"return": {"exited": false, "out-data": STANDARD.encode(vec![0; 1 << 20])}});
    let answers = [json!({"return": {"pid": 7}}), runs];
    let (ran, _) = tokio::join!(agents.run(anything(id), None), answered(&qemu, &answers));
    let error = Chain(&ran.expect_err("no answer")).to_string();
    assert!(error.contains("answered `guest-exec-status` with what is no answer"), "{error}");
}

#[tokio::test]
async fn a_guest_that_writes_to_the_port_without_end_is_not_listened_to_for_a_while() {
    let dir = tempfile::tempdir().expect("tempdir");
    let id = MachineId::random();
    let qemu = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
    let agents = Agents::new(dir.path().to_owned());
    let noise = async {
        let (mut stream, _) = qemu.accept().await.expect("accepts");
        while stream.write_all(&[b'x'; 64 << 10]).await.is_ok() {}
    };
    let why = |ran: Result<Output>| Chain(&ran.expect_err("not run")).to_string();
    let (ran, ()) = tokio::join!(agents.run(anything(id), None), noise);
    let first = why(ran);
    assert!(first.contains("sends what nobody asked for"), "{first}");
    assert_eq!(why(agents.run(anything(id), None).await), first, "nobody has connected");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    let answers = [json!({"return": {"pid": 7}}), json!({"return": {"exited": true, "exitcode": 0}})];
    let (ran, _) = tokio::join!(agents.run(anything(id), None), answered(&qemu, &answers));
    ran.expect("runs");
}

#[tokio::test]
async fn a_process_of_a_guest_that_was_restarted_is_not_killed() {
    let dir = tempfile::tempdir().expect("tempdir");
    let id = MachineId::random();
    let qemu = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
    let agents = Agents::new(dir.path().to_owned());
    let lost = json!({"error": {"class": "GenericError", "desc": "PID 7 does not exist"}});
    let answers = [json!({"return": {"pid": 7}}), lost];
    let (ran, _) = tokio::join!(agents.run(anything(id), None), answered(&qemu, &answers));
    assert_eq!(ran.expect_err("lost").kind(), Kind::Internal);
    // What would kill it comes first, or next.
    let answers = [json!({"return": {"pid": 8}}), json!({"return": {"exited": true, "exitcode": 0}})];
    let (ran, asked) = tokio::join!(agents.run(anything(id), None), answered(&qemu, &answers));
    ran.expect("runs");
    assert_eq!(asked[0]["arguments"]["path"], "true");
    assert_eq!(asked[1]["arguments"], json!({"pid": 8}));
}

/// A command whose number is 7 runs in the guest of the machine, by QEMU's agent: who waits for it, and the machine's end of the port.
async fn running(dir: &Path) -> (Arc<Agents>, MachineId, UnixListener, tokio::task::JoinHandle<Result<Output>>) {
    let id = MachineId::random();
    let qemu = UnixListener::bind(qemu_socket(dir, id)).expect("binds");
    let agents = Arc::new(Agents::new(dir.to_owned()));
    let run = tokio::spawn({
        let agents = agents.clone();
        async move { agents.run(anything(id), None).await }
    });
    answered(&qemu, &[json!({"return": {"pid": 7}}), json!({"return": {"exited": false}})]).await;
    (agents, id, qemu, run)
}

#[tokio::test]
async fn what_nobody_waits_for_is_killed_if_it_still_runs() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (_agents, _, qemu, run) = running(dir.path()).await;
    run.abort();
    let asked = answered(&qemu, &[json!({"return": {"exited": false}}), json!({"return": {"pid": 9}})]).await;
    assert_eq!(asked[0]["arguments"], json!({"pid": 7}));
    assert_eq!((&asked[1]["execute"], &asked[1]["arguments"]["arg"][2]), (&json!("guest-exec"), &json!("7")));
}

#[tokio::test]
async fn a_command_is_killed_although_the_agent_is_busy_at_first() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (_agents, _, qemu, run) = running(dir.path()).await;
    run.abort();
    // Of a connection that nobody answers, its end is seen: controld has waited long enough.
    let (mut busy, _) = qemu.accept().await.expect("accepts");
    tokio::time::pause();
    let mut heard = Vec::new();
    busy.read_to_end(&mut heard).await.expect("reads");
    tokio::time::resume();
    assert!(heard.starts_with(b"\xff{"), "{}", heard.escape_ascii());
    let ended = json!({"return": {"exited": true, "signal": 9}});
    let asked =
        answered(&qemu, &[json!({"return": {"exited": false}}), json!({"return": {"pid": 9}}), ended.clone(), ended])
            .await;
    assert_eq!((&asked[1]["execute"], &asked[1]["arguments"]["arg"][2]), (&json!("guest-exec"), &json!("7")));
    assert_eq!([&asked[2], &asked[3]].map(|asked| &asked["arguments"]["pid"]), [&json!(9), &json!(7)]);
}

#[tokio::test]
async fn nothing_is_killed_in_a_guest_that_was_rebooted() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu, run) = running(dir.path()).await;
    agents.rebooted(id);
    run.abort();
    assert!(run.await.is_err(), "nobody waits for it");
    // Goes on when nobody has anything left to do.
    tokio::time::pause();
    let asked = timeout(GREETING, qemu.accept()).await;
    assert!(asked.is_err(), "what has this number by now is another process");
}

#[tokio::test]
async fn a_command_is_cancelled_behind_what_others_say() {
    let (frames, mut queue) = tokio::sync::mpsc::channel(1);
    let link = Arc::new(shared::Shared::new(frames, Arc::default()));
    // The greeting fills the queue.
    link.greet();
    let begun = link.begin(Message::Start(Start::default())).expect("begins");
    link.cancel(begun.id);
    let mut decoder = Decoder::of_controld();
    let mut said = Vec::new();
    for _ in 0..2 {
        decoder.extend(&queue.recv().await.expect("a frame"));
        said.extend(decoder.next_frame().map(|frame| frame.message));
    }
    assert_eq!(said, [Message::Hello { version: VERSION }, Message::Cancel]);
    assert!(!link.closed.is_cancelled(), "others go on");
}

#[tokio::test]
async fn a_command_that_begins_before_another_agent_greets_is_not_its() {
    let (frames, mut queue) = tokio::sync::mpsc::channel(4);
    let link = Arc::new(shared::Shared::new(frames, Arc::default()));
    link.greet();
    let begun = link.begin(Message::Start(Start { argv: vec!["true".into()], ..Start::default() })).expect("begins");
    link.greet();
    let mut decoder = Decoder::of_controld();
    let mut epochs = Vec::new();
    for _ in 0..2 {
        decoder.extend(&queue.recv().await.expect("a frame"));
        epochs.extend(decoder.next_frame().map(|frame| frame.epoch));
    }
    decoder.extend(&begun.frame);
    let start = decoder.next_frame().expect("whole");
    assert!(start.epoch == epochs[0] && start.epoch != epochs[1]);
}

#[tokio::test]
async fn without_an_agent_the_error_says_how_to_get_one() {
    let dir = tempfile::tempdir().expect("tempdir");
    let agents = Agents::new(dir.path().to_owned());
    let error = agents.run(anything(MachineId::random()), None).await.expect_err("no agent");
    assert_eq!(error.kind(), Kind::State);
    insta::assert_snapshot!(error.to_string(), @"no agent answers in the guest, so no command can be started there; install `virtlet-agent` or `qemu-guest-agent` in the image, see docs/guest-agent.md, or wait until the guest is up");
}

#[tokio::test]
async fn a_deadline_before_any_agent_answered_is_no_failed_probe() {
    let dir = tempfile::tempdir().expect("tempdir");
    // Both listen and say nothing, as the ports of a guest that boots do.
    let (agents, id, _ours) = agents(dir.path());
    let _qemus = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
    let booting = Command { patience: BOOT, ..anything(id) };
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let error = agents.run(booting, Some(Duration::from_millis(300))).await.expect_err("no agent");
    assert_eq!(error.kind(), Kind::State);
    assert!(began.elapsed() >= BOOT, "it boots as long: {:?}", began.elapsed());
}

#[tokio::test]
async fn a_command_has_all_of_its_time_once_an_agent_answers() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    // Less than two waits, and than what our agent has for an answer.
    let (limit, wait) = (Duration::from_millis(1900), Duration::from_secs(1));
    let booting = Command { patience: BOOT, ..anything(id) };
    tokio::time::pause();
    let run = tokio::spawn(async move { agents.run(booting, Some(limit)).await });
    let mut guest = Guest::accept(&qemu).await;
    assert_eq!(guest.hear().await, (0, Message::Hello { version: VERSION }));
    tokio::time::sleep(wait).await;
    tokio::time::resume();
    guest.say(0, Message::Hello { version: VERSION }).await;
    let session = guest.begin().await;
    tokio::time::pause();
    tokio::time::sleep(wait).await;
    tokio::time::resume();
    guest.say(session, Message::Exited { code: 5 }).await;
    assert_eq!(run.await.expect("runs").expect("ends").code, 5);
}

#[tokio::test]
async fn a_guest_that_reboots_fails_no_probe() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let _qemus = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
    let ours = agents.clone();
    let run = tokio::spawn(async move { ours.run(anything(id), None).await });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    let session = guest.begin().await;
    guest.say(session, Message::Exited { code: 0 }).await;
    run.await.expect("runs").expect("ends");
    // It has answered, and does not while it boots.
    agents.rebooted(id);
    let mut rest = Vec::new();
    guest.stream.read_to_end(&mut rest).await.expect("closed");
    tokio::time::pause();
    let error = agents.run(anything(id), Some(Duration::from_millis(300))).await.expect_err("boots");
    assert_eq!(error.kind(), Kind::State);
}

#[tokio::test]
async fn credit_that_nobody_can_have_is_what_nobody_asked_for() {
    let (frames, _queue) = tokio::sync::mpsc::channel(4);
    let link = Arc::new(shared::Shared::new(frames, Arc::default()));
    let begun = link.begin(Message::Start(Start::default())).expect("begins");
    let credit = |bytes| {
        link.hear(Frame { epoch: 0, session: begun.id, message: Message::Credit { stream: Stream::Stdin, bytes } })
    };
    assert!(!credit(0) && !credit(1), "all of it is there");
    begun.stdin.try_acquire_many(5).expect("there").forget();
    assert!(credit(5) && !credit(1));
}

#[tokio::test]
async fn a_command_waits_for_a_guest_that_boots() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let _qemus = UnixListener::bind(qemu_socket(dir.path(), id)).expect("binds");
    tokio::time::pause();
    let running = tokio::spawn(async move { agents.run(Command { patience: BOOT, ..anything(id) }, None).await });
    let mut guest = Guest::accept(&qemu).await;
    assert_eq!(guest.hear().await, (0, Message::Hello { version: VERSION }));
    tokio::time::sleep(4 * GREETING).await;
    tokio::time::resume();
    // The agent that comes up has not seen the greeting.
    guest.epoch = 0;
    guest.say(0, Message::Hello { version: VERSION }).await;
    guest.greet().await;
    let session = guest.begin().await;
    guest.say(session, Message::Exited { code: 0 }).await;
    assert_eq!(running.await.expect("runs").expect("ends").code, 0);
}

#[tokio::test]
async fn a_command_starts_once() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let started = tokio::spawn(async move { agents.start(anything(id)).await.map(|process| (process, agents)) });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    let session = guest.begin().await;
    let (mut process, _agents) = started.await.expect("runs").expect("starts");
    for _ in 0..1000 {
        guest.say(session, Message::Started { pid: 1 }).await;
        guest.say(session, Message::Refused("no".into())).await;
    }
    guest.say(session, Message::Exited { code: 7 }).await;
    assert_eq!(process.next().await, Some(Event::Exited(7)), "and nothing before");
}

#[tokio::test]
async fn who_has_input_hears_that_nobody_takes_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let (agents, id, qemu) = agents(dir.path());
    let started = tokio::spawn(async move { agents.start(anything(id)).await.map(|process| (process, agents)) });
    let mut guest = Guest::accept(&qemu).await;
    guest.greet().await;
    let session = guest.begin().await;
    let (mut process, _agents) = started.await.expect("runs").expect("starts");
    let input = process.input();
    let sending = tokio::spawn(async move { input.send(&vec![b'x'; WINDOW as usize + 1]).await });
    let mut heard = 0;
    while heard < WINDOW as usize {
        let (_, Message::Stdin(data)) = guest.hear().await else { panic!("other than input") };
        heard += data.len();
    }
    guest.say(session, Message::Exited { code: 0 }).await;
    assert_eq!(process.next().await, Some(Event::Exited(0)));
    assert_eq!(sending.await.expect("ends").expect_err("not taken").kind(), Kind::Unavailable);
}
