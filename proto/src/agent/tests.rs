use super::*;

fn all() -> Vec<Frame> {
    let start = Start {
        argv: vec!["sh".into(), "-c".into(), "echo hello".into()],
        env: vec!["A=1".into()],
        cwd: "/tmp".into(),
        user: "nobody".into(),
        groups: vec![1000, 1001],
        tty: Some(Size { width: 80, height: 24 }),
        stdin: true,
    };
    let messages = [
        Message::Hello { version: VERSION },
        Message::Start(start.clone()),
        Message::Stdin(b"in".to_vec()),
        Message::StdinEnd,
        Message::Credit { stream: Stream::Stderr, bytes: 513 },
        Message::Resize(Size { width: 100, height: 50 }),
        Message::Signal(15),
        Message::Cancel,
        Message::Started { pid: 77 },
        Message::Refused("no such file".into()),
        Message::Stdout(b"out".to_vec()),
        Message::Stderr(MAGIC.to_vec()),
        Message::Exited { code: 3 },
        Message::Setup(Setup { sysctls: vec!["kernel.shm_rmid_forced=1".into()], ..Setup::default() }),
        Message::Setup(Setup { main: Some(Main { start, read_only_root: true, stop_signal: 15 }), ..Setup::default() }),
        Message::Attach,
        Message::Stop,
        Message::Ready("no such setting".into()),
        Message::Setup(Setup {
            mounts: vec![
                Mount { entry: 0, path: "/data".into(), ..Mount::default() },
                Mount { entry: 258, path: "/etc/app.conf".into(), read_only: true, ..Mount::default() },
            ],
            ..Setup::default()
        }),
        Message::Setup(Setup { resolver: vec!["ndots:5".into(), "edns0".into()], ..Setup::default() }),
        Message::Setup(Setup {
            disks: vec![
                Disk { serial: "data".into(), path: "/dev/data".into(), ..Disk::default() },
                Disk {
                    serial: "x".into(),
                    path: "/x".into(),
                    file_system: "ext4".into(),
                    read_only: true,
                    ..Disk::default()
                },
            ],
            ..Setup::default()
        }),
        Message::Setup(Setup {
            disks: vec![
                Disk { serial: "data".into(), path: "/dev/data".into(), ..Disk::default() },
                Disk {
                    serial: "x".into(),
                    path: "/x".into(),
                    file_system: "ext4".into(),
                    partition: 258,
                    ..Disk::default()
                },
            ],
            ..Setup::default()
        }),
        // With options, of mounts alone and of both.
        Message::Setup(Setup { mounts: mounts_with_options(), ..Setup::default() }),
        Message::Setup(Setup {
            mounts: mounts_with_options(),
            disks: vec![
                Disk { serial: "data".into(), path: "/dev/data".into(), ..Disk::default() },
                Disk {
                    serial: "x".into(),
                    path: "/x".into(),
                    file_system: "ext4".into(),
                    options: MountOptions { noexec: true, nodev: true, nosuid: true },
                    ..Disk::default()
                },
            ],
            ..Setup::default()
        }),
        Message::GoOn,
        Message::Waits,
    ];
    let frame = |(n, message)| Frame { epoch: 0x0102_0304_0506_0708, session: n, message };
    (0..).zip(messages).map(frame).collect()
}

fn mounts_with_options() -> Vec<Mount> {
    let options = [
        MountOptions::default(),
        MountOptions { noexec: true, ..MountOptions::default() },
        MountOptions { nodev: true, ..MountOptions::default() },
        MountOptions { nosuid: true, ..MountOptions::default() },
    ];
    options.map(|options| Mount { path: "/a".into(), options, ..Mount::default() }).to_vec()
}

fn decoded(bytes: &[u8], chunk: usize) -> (Vec<Frame>, u64) {
    let mut decoder = Decoder::of_controld();
    let mut frames = Vec::new();
    for chunk in bytes.chunks(chunk) {
        decoder.extend(chunk);
        frames.extend(std::iter::from_fn(|| decoder.next_frame()));
    }
    assert!(decoder.passed() <= bytes.len() as u64);
    (frames, decoder.skipped())
}

#[test]
fn bytes_are_pinned() {
    let hex = |frame: &Frame| {
        let bytes = encode(frame).expect("short");
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    insta::assert_snapshot!(all().iter().map(hex).collect::<Vec<_>>().join("\n"));
}

#[test]
fn what_was_written_is_read_however_it_is_cut() {
    let bytes: Vec<u8> = all().iter().flat_map(|frame| encode(frame).expect("short")).collect();
    for chunk in [1, 7, bytes.len()] {
        assert_eq!(decoded(&bytes, chunk), (all(), 0), "in chunks of {chunk}");
    }
}

#[test]
fn garbage_between_frames_is_skipped() {
    let hello = encode(&all()[0]).expect("short");
    let long = { [&MAGIC[..], &[18, 0, 0, 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], &[0; 12]].concat() };
    for garbage in [&b"login: "[..], &MAGIC, &hello[..20], &[0xf0; 9], &long] {
        let bytes = [garbage, &hello, garbage, &hello].concat();
        for chunk in [1, 5, bytes.len()] {
            let (frames, skipped) = decoded(&bytes, chunk);
            assert_eq!(frames, [all()[0].clone(), all()[0].clone()], "{garbage:x?} in chunks of {chunk}");
            assert_eq!(skipped, 2 * garbage.len() as u64);
        }
    }
}

#[test]
fn a_body_that_is_no_message_is_skipped_whole() {
    let mut bytes = encode(&Frame { epoch: 1, session: 1, message: Message::Signal(9) }).expect("short");
    // Of another length than a signal's number.
    bytes[12] = 2;
    let check = bytes[..24].iter().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193));
    bytes[24..28].copy_from_slice(&check.to_le_bytes());
    bytes.push(0);
    let whole = bytes.len() as u64;
    bytes.extend(encode(&all()[0]).expect("short"));
    assert_eq!(decoded(&bytes, 1000), (vec![all()[0].clone()], whole));
}

#[test]
fn an_agent_says_nothing_long() {
    let frame = |len| Frame { epoch: 1, session: 1, message: Message::Stdout(vec![b'x'; len]) };
    let bytes = [MAX_ANSWER + 1, MAX_ANSWER].map(|len| encode(&frame(len)).expect("fits")).concat();
    let mut decoder = Decoder::of_agent();
    decoder.extend(&bytes);
    assert_eq!(decoder.next_frame(), Some(frame(MAX_ANSWER)));
    assert_eq!(decoder.skipped(), (HEADER + MAX_ANSWER + 1) as u64);
}

#[test]
fn a_command_that_is_too_long_is_refused() {
    let with = |argv| Frame { epoch: 1, session: 1, message: Message::Start(Start { argv, ..Start::default() }) };
    let long = encode(&with(vec!["x".repeat(MAX_BODY)])).expect_err("too long").to_string();
    assert_eq!(long, "the command has 1048600 bytes of words and variables, the limit is 1048576");
    assert!(matches!(encode(&with(vec![String::new(); MAX_WORDS + 1])), Err(EncodeError::TooMany)));
}

#[test]
fn an_agent_of_an_earlier_release_knows_a_setup_without_mounts_and_options() {
    let body = |setup| {
        encode(&Frame { epoch: 1, session: 0, message: Message::Setup(setup) }).expect("short")[HEADER..].to_vec()
    };
    assert_eq!(body(Setup { sysctls: vec!["a=1".into()], ..Setup::default() }), b"\x01\0\x03\0\0\0a=1\0");
    let mounts = vec![Mount { path: "/a".into(), ..Mount::default() }];
    assert!(body(Setup { mounts: mounts.clone(), ..Setup::default() }).len() > body(Setup::default()).len());
    let disks = vec![Disk { serial: "a".into(), ..Disk::default() }];
    let with_disks = body(Setup { mounts: mounts.clone(), disks, ..Setup::default() });
    assert!(with_disks.starts_with(&body(Setup { mounts, ..Setup::default() })));
}

/// It would be mounted without what is to hold there.
#[test]
fn a_setup_with_an_option_that_is_not_known_is_no_message() {
    let setup = Setup { mounts: mounts_with_options(), ..Setup::default() };
    let mut bytes = encode(&Frame { epoch: 1, session: 0, message: Message::Setup(setup) }).expect("short");
    assert_eq!(decoded(&bytes, 1000).0.len(), 1);
    *bytes.last_mut().expect("the last option") = 8;
    assert_eq!(decoded(&bytes, 1000), (Vec::new(), bytes.len() as u64));
}

/// It ends where one that has no options does, so an agent that reads no further finds more than it knows.
#[test]
fn options_are_behind_all_else() {
    let body = |setup| {
        encode(&Frame { epoch: 1, session: 0, message: Message::Setup(setup) }).expect("short")[HEADER..].to_vec()
    };
    let without =
        |with: &[Mount]| with.iter().map(|mount| Mount { options: MountOptions::default(), ..mount.clone() }).collect();
    let mounts = mounts_with_options();
    let plain = body(Setup { mounts: without(&mounts), ..Setup::default() });
    // No disks, and an option for each mount.
    assert_eq!(body(Setup { mounts, ..Setup::default() }), [&plain[..], &[0, 0, 0, 1, 2, 4]].concat());
}
