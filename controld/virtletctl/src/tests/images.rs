//! The commands of `image` against a service of our own.

use std::path::Path;

use proto::images::pull_with_progress_response::Event;
use proto::images::verify_response::Verdict;
use proto::images::*;
use tonic::Code;

use super::fake::Canned;
use super::*;

/// What nobody's terminal is to get.
const HOSTILE: &str = "a\u{1b}[2J\u{9b}2J\nb\u{202e}c";

/// What a command printed, its errors as the user sees them, and its exit code.
pub(super) async fn image(socket: &Path, args: &[&str]) -> (String, Vec<String>, u8) {
    let socket = socket.to_str().expect("UTF-8");
    let cli = Cli::try_parse_from(["virtletctl", "--socket", socket, "image"].iter().chain(args)).expect("arguments");
    let mut out = Vec::new();
    // Boxed: a test of many commands has a future for each on its stack.
    let done = Box::pin(run(cli, &mut out, Interrupt::default())).await;
    let errors = done.err().unwrap_or_default();
    let out = String::from_utf8(out).expect("UTF-8");
    assert!(out.chars().all(|c| c == '\n' || !(c.is_control() || c == '\u{202e}')), "harmful: {out:?}");
    let lines: Vec<String> = errors.iter().map(|error| Line(error).to_string()).collect();
    assert!(lines.iter().flat_map(|line| line.chars()).all(|c| !c.is_control()), "harmful: {lines:?}");
    (out, lines, errors.first().map_or(0, CtlError::exit_code))
}

fn canned(canned: Canned) -> Fake {
    let mut fake = Fake::default();
    fake.canned = canned;
    fake
}

fn event(event: Event) -> Result<PullWithProgressResponse, Status> {
    Ok(PullWithProgressResponse { event: Some(event) })
}

fn id(byte: &str) -> String {
    format!("sha256:{}", byte.repeat(32))
}

#[tokio::test]
async fn images_are_listed_pulled_and_removed() {
    let (_dir, fake, socket) = serve(Fake::default());
    assert_eq!(image(&socket, &["pull", "x/a.img"]).await, (format!("{}\n", id("ab")), vec![], 0));
    fake.add_image(Image {
        id: id("ac"),
        handler: "vm-arm64".into(),
        repo_tags: vec!["x/a.img".into()],
        ..Image::default()
    });
    fake.add_image(Image {
        id: id("cd"),
        handler: "virtlet".into(),
        repo_digests: vec![format!("x/{HOSTILE}@{}", id("cd"))],
        size: 7,
        format: "raw".into(),
        provider: HOSTILE.into(),
        weak: true,
        stale: true,
        pinned: true,
        missing: HOSTILE.into(),
        ..Image::default()
    });
    let (table, ..) = image(&socket, &["ls"]).await;
    insta::assert_snapshot!(table, @r"
    NAME                                                                                                       RUNTIME    ID              SIZE      VIRTUAL   FLAGS
    x/a\u{1b}[2J\u{9b}2J\nb\u{202e}c@sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd   virtlet    cdcdcdcdcdcdc   7 B       -         weak,stale,pinned,incomplete
    x/a.img                                                                                                    virtlet    ababababababa   3.0 MiB   1.0 GiB   -
    x/a.img                                                                                                    vm-arm64   acacacacacaca   0 B       -         -
    ");
    let (json, ..) = image(&socket, &["ls", "--json"]).await;
    insta::assert_snapshot!(json);
    let (names, ..) = image(&socket, &["ls", "-o", "name", "--handler", "vm-arm64"]).await;
    assert_eq!(names, "x/a.img\n");
    let (ids, ..) = image(&socket, &["ls", "-q"]).await;
    assert_eq!(ids, format!("{}\n{}\n{}\n", id("ab"), id("ac"), id("cd")));
    let (wide, ..) = image(&socket, &["ls", "-o", "wide"]).await;
    assert!(wide.contains(&id("ac")), "{wide}");
    let (of_one, ..) = image(&socket, &["ls", "--handler", "vm-arm64", "--json"]).await;
    let of_one: serde_json::Value = serde_json::from_str(&of_one).expect("JSON");
    assert_eq!((of_one.as_array().map(Vec::len), &of_one[0]["id"]), (Some(1), &id("ac").into()));

    let absent = vec!["no image `x/b.img` on this node; `virtletctl image ls` lists all".into()];
    assert_eq!(image(&socket, &["rm", "x/b.img"]).await, (String::new(), absent, 3));
    for short in ["ab", "sha256:abababa"] {
        let told = vec![format!("no image `{short}` on this node; of an id, write 8 characters or more")];
        assert_eq!(image(&socket, &["rm", short]).await, (String::new(), told, 3));
    }
    let alike = format!("sha256:abababab{}", "0".repeat(56));
    let tags = vec!["x/alike:1".into(), "x/alike:2".into()];
    fake.add_image(Image { id: alike.clone(), handler: "virtlet".into(), repo_tags: tags, ..Image::default() });
    let (_, errors, code) = image(&socket, &["rm", "abababab"]).await;
    assert_eq!(code, 2);
    assert_eq!(errors, [format!("`abababab` is more than one image: {alike}, {}; write more of the id", id("ab"))]);
    let none = "no image `x/b.img` on this node; `virtletctl image ls` lists all".to_owned();
    let both = image(&socket, &["rm", "x/b.img", "x/b.img"]).await;
    assert_eq!(both, (String::new(), vec![none.clone(), none], 3), "each is told");
    fake.forget_calls();
    let line = format!("x/alike:1 of virtlet removed\nx/alike:2 of virtlet removed\n{alike} removed\n");
    assert_eq!(image(&socket, &["rm", "x/alike:1"]).await, (line, vec![], 0), "whatever controld says went is told");
    let line = format!("x/a.img of vm-arm64 removed\n{} removed\n", id("ac"));
    assert_eq!(image(&socket, &["rm", "x/a.img", "--handler", "vm-arm64"]).await, (line, vec![], 0));
    let (json, ..) = image(&socket, &["rm", "abababab", "--json"]).await;
    insta::assert_snapshot!(json, @r#"
    [
      {
        "id": "sha256:abababababababababababababababababababababababababababababababab",
        "kept": null,
        "names": [
          {
            "name": "x/a.img",
            "runtimeHandler": "virtlet"
          }
        ],
        "removed": true
      }
    ]
    "#);
    assert_eq!(fake.calls(), ["Remove x/alike:1", "Remove x/a.img vm-arm64", "Remove abababab"]);
    // What is stale is found by its id, and by its name.
    assert_eq!(image(&socket, &["rm", "cdcdcdcd"]).await.2, 0);
    let stale = Image { id: id("ef"), repo_tags: vec!["x/s:latest".into()], stale: true, ..Image::default() };
    fake.add_image(stale.clone());
    fake.forget_calls();
    assert_eq!(image(&socket, &["rm", "x/s:latest"]).await.2, 0);
    fake.add_image(stale);
    assert_eq!(image(&socket, &["rm", "x/s"]).await.2, 0);
    assert_eq!(fake.calls(), ["Remove x/s:latest", "Remove x/s"]);
    assert_eq!(image(&socket, &["ls"]).await.0, "NAME   RUNTIME   ID   SIZE   VIRTUAL   FLAGS\n");
}

#[tokio::test]
async fn a_file_that_stays_is_told_with_who_needs_it() {
    let binding = |name: &str, handler: &str| Binding { name: name.into(), handler: handler.into() };
    let kept = Keepers {
        names: vec![binding(HOSTILE, "vm-arm64")],
        pinned: true,
        holders: vec!["pod-1".into(), "pod-2".into()],
        above: vec![id("cd")],
        busy: true,
        unknown: true,
    };
    let (_dir, fake, socket) = serve(canned(Canned { kept: Some(kept), ..Canned::default() }));
    let here =
        Image { id: id("ab"), handler: "virtlet".into(), repo_tags: vec!["x/a:latest".into()], ..Image::default() };
    fake.add_image(here.clone());
    let (lines, ..) = image(&socket, &["rm", "x/a"]).await;
    fake.add_image(here);
    let (json, ..) = image(&socket, &["rm", "x/a", "--json"]).await;
    insta::assert_snapshot!([lines, json].join("\n"), @r#"
    x/a:latest of virtlet removed
    sha256:abababababababababababababababababababababababababababababababab kept; has a\u{1b}[2J\u{9b}2J\nb\u{202e}c of vm-arm64; used by pod of UID pod-1, pod of UID pod-2; below sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd; pinned; needed by a pull under way; it cannot be read who needs it, see controld's log

    [
      {
        "id": "sha256:abababababababababababababababababababababababababababababababab",
        "kept": {
          "above": [
            "sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd"
          ],
          "busy": true,
          "holders": [
            "pod-1",
            "pod-2"
          ],
          "names": [
            {
              "name": "a\u001b[2J\u009b2J\nb\u202ec",
              "runtimeHandler": "vm-arm64"
            }
          ],
          "pinned": true,
          "unknown": true
        },
        "names": [
          {
            "name": "x/a:latest",
            "runtimeHandler": "virtlet"
          }
        ],
        "removed": false
      }
    ]
    "#);
}

#[tokio::test]
async fn an_image_that_is_only_pinned_is_listed_without_a_name() {
    let (_dir, fake, socket) = serve(Fake::default());
    fake.add_image(Image { id: id("ab"), size: 7, pinned: true, ..Image::default() });
    let (table, ..) = image(&socket, &["ls"]).await;
    insta::assert_snapshot!(table, @"
    NAME   RUNTIME   ID              SIZE   VIRTUAL   FLAGS
    -      -         ababababababa   7 B    -         pinned
    ");
    let (json, ..) = image(&socket, &["ls", "--json"]).await;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json[0]["repoTags"], &json[0]["pinned"]), (&serde_json::json!([]), &true.into()));
    let told =
        format!("image `{}` has no name to remove; it is pinned, and goes with `virtletctl image unpin`", id("ab"));
    assert_eq!(image(&socket, &["rm", "abababab"]).await, (String::new(), vec![told], 3));
}

#[tokio::test]
async fn what_may_have_been_a_file_is_said_not_to_be_there() {
    let dir = tempfile::tempdir().expect("directory");
    let socket = dir.path().join("no.sock");
    let (_, errors, code) = image(&socket, &["inspect", "missing.qcow2"]).await;
    assert_eq!(code, 1);
    let told = errors[0].replace(dir.path().to_str().expect("UTF-8"), "DIR");
    insta::assert_snapshot!(told, @"
    no file `missing.qcow2`, and nobody to ask for an image of that name: failed to connect to controld at `DIR/no.sock`: No such file or directory (os error 2); is controld running? --socket says where
    ");
    let (_, errors, _) = image(&socket, &["inspect", "Cargo.toml", "--handler", "h"]).await;
    assert!(errors[0].starts_with("failed to connect"), "there is such a file: {errors:?}");
}

#[tokio::test]
async fn what_is_wanted_of_a_pull_reaches_the_daemon() {
    let (dir, fake, socket) = serve(Fake::default());
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("file");
        path.to_str().expect("UTF-8").to_owned()
    };
    let (password, token) = (file("password", " pass word \r\n"), file("token", "tok"));
    let all = [
        "pull",
        "x/a",
        "--handler",
        "h",
        "--provider",
        "p",
        "--offline",
        "auto",
        "--force",
        "--no-recursive",
        "--progress",
        "none",
        "--username",
        "u",
        "--password-file",
        &password,
    ];
    assert_eq!(image(&socket, &all).await.1, [""; 0]);
    assert_eq!(image(&socket, &["pull", "x/a", "--token-file", &token, "--offline", "always"]).await.1, [""; 0]);
    assert_eq!(image(&socket, &["pull", "x/a"]).await.1, [""; 0]);
    let wanted = [
        PullWithProgressRequest {
            name: "x/a".into(),
            handler: "h".into(),
            provider: "p".into(),
            auth: Some(Auth { username: "u".into(), password: " pass word ".into(), bearer_token: String::new() }),
            offline: Offline::Auto.into(),
            force: true,
            no_recursive: true,
            url: String::new(),
        },
        PullWithProgressRequest {
            name: "x/a".into(),
            auth: Some(Auth { bearer_token: "tok".into(), ..Auth::default() }),
            offline: Offline::Always.into(),
            ..PullWithProgressRequest::default()
        },
        PullWithProgressRequest { name: "x/a".into(), ..PullWithProgressRequest::default() },
    ];
    assert_eq!(fake.pulls(), wanted);

    let (empty, long, absent) = (file("empty", "\n"), file("long", &"x".repeat((64 << 10) + 1)), "/nowhere/at/all");
    for (path, told) in [(empty.as_str(), "is empty"), (&long, "over 65536 bytes"), (absent, "failed to read")] {
        let (_, errors, code) = image(&socket, &["pull", "x/a", "--token-file", path]).await;
        assert!(errors[0].contains(told) && code == 1, "{errors:?}");
    }
    assert_eq!(fake.pulls().len(), 3, "nobody is asked with half a login");
}

#[tokio::test]
async fn a_pull_ends_with_its_result_and_not_before() {
    let progress = |bytes, total| event(Event::Progress(Progress { bytes, total, resumed: 0 }));
    let result = |image| event(Event::Result(PullResult { image, stale: true, downloaded: false }));
    let here = Image { id: format!("sha256:{HOSTILE}"), ..Image::default() };
    let unknown = Ok(PullWithProgressResponse { event: None });
    for (pull, printed, told) in [
        (
            vec![progress(1, 0), unknown, progress(u64::MAX, 1), result(Some(here))],
            "sha256:a\\u{1b}[2J\\u{9b}2J\\nb\\u{202e}c\n",
            "",
        ),
        (
            vec![progress(1, 2)],
            "",
            "failed to pull the image: the answer has no result; is that the socket of a controld of this version?",
        ),
        (
            vec![result(None)],
            "",
            "failed to pull the image: the answer has no image; is that the socket of a controld of this version?",
        ),
        (
            vec![progress(1, 2), Err(Status::unavailable(HOSTILE))],
            "",
            "failed to pull image `x`: a\\u{1b}[2J\\u{9b}2J\\nb\\u{202e}c",
        ),
    ] {
        let (_dir, _fake, socket) = serve(canned(Canned { pull, ..Canned::default() }));
        for how in ["auto", "plain", "json", "none"] {
            let (out, errors, _) = image(&socket, &["pull", "x", "--progress", how]).await;
            assert_eq!((out.as_str(), errors.join("").as_str()), (printed, told));
        }
    }
}

#[tokio::test]
async fn an_interrupt_ends_a_pull_that_stalls() {
    let interrupt = Interrupt::default();
    let pull = vec![event(Event::Progress(Progress { bytes: 1, total: 2, resumed: 0 }))];
    let mut fake = canned(Canned { pull, stalls: true, ..Canned::default() });
    fake.interrupt_at("PullWithProgress", interrupt.clone(), 2);
    let (_dir, _fake, socket) = serve(fake);
    assert_eq!(ctl_until(&socket, &["image", "pull", "x"], interrupt).await.1, ["interrupted"]);
}

#[tokio::test]
async fn exit_codes_say_what_is_the_matter() {
    for (status, wanted) in [
        (Status::invalid_argument("no such handler"), 2),
        (Status::not_found("nobody has it"), 3),
        (Status::failed_precondition("DigestMismatch: image not pulled"), 4),
        (Status::unknown("SignatureValidationFailed: image not pulled"), 4),
        (Status::unknown("RegistryUnavailable: image not pulled"), 5),
        (Status::failed_precondition("UnusableSource: image not pulled"), 4),
        (Status::data_loss("the store is broken"), 4),
        (Status::unavailable("refused"), 5),
        (Status::deadline_exceeded("stalled"), 5),
        (Status::resource_exhausted("no space left on device"), 6),
        (Status::failed_precondition("UnsafeImage: image not pulled"), 7),
        (Status::failed_precondition("its parent is missing"), 1),
        (Status::failed_precondition("not UnsafeImage: "), 1),
        (Status::permission_denied("login"), 1),
        (Status::new(Code::Internal, ""), 1),
        (Status::unimplemented(""), 1),
    ] {
        let (dir, _fake, socket) = serve(Fake::failing("PullWithProgress", status.clone()));
        assert_eq!(image(&socket, &["pull", "x"]).await.2, wanted, "{status}");
        let (_dir, _fake, socket_of_stream) =
            serve(canned(Canned { pull: vec![Err(status.clone())], ..Canned::default() }));
        assert_eq!(image(&socket_of_stream, &["pull", "x"]).await.2, wanted, "{status}");
        // So does a machine's, whose image is pulled first.
        let logs = dir.path().join("logs");
        let args = [
            "virtletctl",
            "--socket",
            socket.to_str().expect("UTF-8"),
            "run",
            "x",
            "--log-dir",
            logs.to_str().expect("UTF-8"),
        ];
        let cli = Cli::try_parse_from(args).expect("arguments");
        let errors = run(cli, &mut Vec::new(), Interrupt::default()).await.expect_err("no image");
        assert_eq!(errors[0].exit_code(), wanted, "{status}");
    }
    let (dir, _fake, _socket) = serve(Fake::default());
    assert_eq!(image(&dir.path().join("no.sock"), &["ls"]).await.2, 1, "controld is no source");
}

#[tokio::test]
async fn what_providers_have_is_found_without_their_secrets() {
    let found = vec![
        RemoteImage {
            provider: "lago".into(),
            name: "el7-base".into(),
            aliases: vec!["el7".into()],
            hashes: vec!["sha1:00".into()],
            format: "qcow2".into(),
            artifact_size: 3 << 20,
            virtual_size: 6 << 30,
            platform: "linux/amd64".into(),
            revision: "v2".into(),
            created: 1_700_000_000,
            extra: [("root-password".into(), "hunter2".into()), ("distro".into(), HOSTILE.into())].into(),
            cached: true,
            ..RemoteImage::default()
        },
        RemoteImage {
            provider: "vb".into(),
            name: HOSTILE.into(),
            created: u64::MAX,
            notes: [(String::new(), HOSTILE.into())].into(),
            ..RemoteImage::default()
        },
    ];
    let (_dir, fake, socket) = serve(canned(Canned { found, ..Canned::default() }));
    let (table, ..) = image(&socket, &["search", "el7"]).await;
    let (json, ..) = image(&socket, &["search", "sha1:00", "--json", "--handler", "h", "--provider", "lago"]).await;
    assert!(!table.contains("hunter2") && !json.contains("hunter2"), "whatever the daemon sends");
    let (with_secrets, ..) = image(&socket, &["search", "el7", "--secrets"]).await;
    let (secrets, ..) = image(&socket, &["search", "el7", "--secrets", "--json"]).await;
    let secrets: serde_json::Value = serde_json::from_str(&secrets).expect("JSON");
    assert_eq!(secrets[0]["extra"]["root-password"], "hunter2");
    assert_eq!(secrets[0]["extra"]["distro"], HOSTILE, "data are what they are");
    assert_eq!(
        fake.calls(),
        ["Search el7   false", "Search sha1:00 h lago false", "Search el7   true", "Search el7   true"]
    );
    insta::assert_snapshot!([table, with_secrets, json].join("\n"));
}

#[tokio::test]
async fn a_search_tells_what_cannot_be_used_if_asked() {
    let provider = |id: &str, names: &[&str]| Provider {
        id: id.into(),
        dropped: names
            .iter()
            .map(|name| provider::Dropped { name: (*name).into(), reason: "no `file`".into() })
            .collect(),
        ..Provider::default()
    };
    let providers = vec![provider("vb", &["debian-12", "fedora-40"]), provider("lago", &["debian-11"])];
    let (_dir, _fake, socket) = serve(canned(Canned { providers, ..Canned::default() }));
    let (plain, ..) = image(&socket, &["search"]).await;
    for (args, expected) in [
        (&["search", "-v"][..], &["`debian-12` of `vb`", "`fedora-40` of `vb`", "`debian-11` of `lago`"][..]),
        (&["search", "debian", "--verbose"], &["`debian-12` of `vb`", "`debian-11` of `lago`"]),
        (&["search", "debian", "-v", "--provider", "lago"], &["`debian-11` of `lago`"]),
        (&["search", "sha256:00", "-v"], &[]),
        (&["search", "debian"], &[]),
    ] {
        let lines: String = expected.iter().map(|line| format!("{line} is not used: no `file`\n")).collect();
        assert_eq!(image(&socket, args).await, (plain.clone() + &lines, vec![], 0), "{args:?}");
    }
}

#[tokio::test]
async fn an_image_of_the_node_is_described() {
    let details = InspectResponse {
        image: Some(Image {
            id: id("ab"),
            handler: "virtlet".into(),
            repo_tags: vec!["x/a:latest".into()],
            repo_digests: vec![format!("x/a@{}", id("ab"))],
            size: 3 << 20,
            virtual_size: 1 << 30,
            format: "qcow2".into(),
            provider: "http".into(),
            weak: true,
            ..Image::default()
        }),
        length: 4 << 20,
        path: "/var/lib/virtlet/images/data/ab".into(),
        flags: vec!["zstd".into()],
        aliases: vec!["sha512:00 of the artifact".into()],
        chain: vec![id("ab"), id("cd")],
        names: vec![Name {
            name: format!("x/{HOSTILE}"),
            handler: "virtlet".into(),
            source: "https://x/a".into(),
            by: "a rule".into(),
            labels: [("k".into(), HOSTILE.into()), ("a".into(), "b".into())].into(),
            pulled_at: 1_700_000_000,
            ..Name::default()
        }],
        holders: vec!["pod-1".into()],
        verified_at: u64::MAX,
        user: "107".into(),
    };
    let (_dir, fake, socket) = serve(canned(Canned { details, ..Canned::default() }));
    let (lines, ..) = image(&socket, &["inspect", "x/a"]).await;
    let (json, ..) = image(&socket, &["inspect", "abab", "--handler", "h", "--json"]).await;
    assert_eq!(fake.calls(), ["Inspect x/a", "Inspect abab h"]);
    insta::assert_snapshot!([lines, json].join("\n"));

    let (_dir, _fake, socket) = serve(Fake::failing("Inspect", Status::not_found("no image `x`")));
    assert_eq!(image(&socket, &["inspect", "x"]).await.2, 3);
    assert_eq!(image(&socket, &["inspect", "./x"]).await.2, 66, "a file, and no daemon is asked");
}

#[test]
fn names_and_files_are_told_apart() {
    let dir = tempfile::tempdir().expect("directory");
    let there = dir.path().join("there");
    std::fs::write(&there, "x").expect("file");
    let named = |args: &[&str]| {
        let cli = Cli::try_parse_from(["virtletctl", "image", "inspect"].iter().chain(args)).expect("arguments");
        let Command::Image { command: ImageCommand::Inspect(wanted) } = cli.command else { panic!("not this command") };
        wanted.name().map(str::to_owned)
    };
    for name in ["x/tiny.qcow2", "abab", "sha256:abab", "x./y", "src", "..", "a/../b"] {
        assert_eq!(named(&[name]).as_deref(), Some(name));
    }
    for path in ["/x", "./x", "../x", "Cargo.toml", "src/lib.rs", there.to_str().expect("UTF-8")] {
        assert_eq!(named(&[path]), None, "{path}");
    }
    assert_eq!(named(&["x", "--format", "raw"]), None, "only a file is said to be something");
    assert_eq!(named(&["x", "--layered"]), None, "what the store has is taken already");
    assert_eq!(named(&["Cargo.toml", "--handler", "h"]).as_deref(), Some("Cargo.toml"), "only an image has one");
}

#[tokio::test]
async fn images_are_verified_and_the_worst_of_it_is_the_exit_code() {
    let verdict =
        |id: String, verdict: Verdict| VerifyResponse { id, verdict: verdict.into(), ..VerifyResponse::default() };
    let sound = verdict(id("ab"), Verdict::Sound);
    let corrupt = VerifyResponse {
        found: id("ee"),
        names: vec!["x/a".into(), HOSTILE.into()],
        holders: vec!["pod-1".into()],
        pinned: true,
        ..verdict(id("cd"), Verdict::Corrupt)
    };
    let missing = verdict(id("ef"), Verdict::Missing);
    let of_later = VerifyResponse { id: id("00"), verdict: 77, ..VerifyResponse::default() };

    let (_dir, fake, socket) = serve(canned(Canned { verdicts: vec![sound.clone()], ..Canned::default() }));
    let line = format!("{} sound\n", id("ab"));
    assert_eq!(image(&socket, &["verify"]).await, (line.clone(), vec![], 0));
    assert_eq!(image(&socket, &["verify", "--all"]).await, (line.clone(), vec![], 0));
    let absent = vec!["failed to verify image `absent`: no image `absent`".into()];
    assert_eq!(image(&socket, &["verify", "absent", "x/a"]).await, (line, absent, 3), "it goes on");
    assert_eq!(fake.calls(), ["Verify", "Verify", "Verify x/a"]);

    let verdicts = vec![sound, corrupt, missing, of_later];
    let (_dir, _fake, socket) = serve(canned(Canned { verdicts, ..Canned::default() }));
    let (out, errors, code) = image(&socket, &["verify", "absent", "x/a"]).await;
    assert_eq!(code, 4);
    insta::assert_snapshot!(format!("{out}\n{}", errors.join("\n")), @r"
    sha256:abababababababababababababababababababababababababababababababab sound
    sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd corrupt; is sha256:eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee; was x/a, a\u{1b}[2J\u{9b}2J\nb\u{202e}c; used by pod-1; pinned
    sha256:efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef missing
    sha256:0000000000000000000000000000000000000000000000000000000000000000 unknown

    3 of 4 images are corrupt or missing; they are put aside, and `virtletctl image pull` brings them again
    failed to verify image `absent`: no image `absent`
    ");
    let (json, _, code) = image(&socket, &["verify", "--json"]).await;
    assert_eq!(code, 4);
    insta::assert_snapshot!(json, @r#"
    {"found":null,"holders":[],"id":"sha256:abababababababababababababababababababababababababababababababab","names":[],"pinned":false,"verdict":"sound"}
    {"found":"sha256:eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee","holders":["pod-1"],"id":"sha256:cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","names":["x/a","a\u001b[2J\u009b2J\nb\u202ec"],"pinned":true,"verdict":"corrupt"}
    {"found":null,"holders":[],"id":"sha256:efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef","names":[],"pinned":false,"verdict":"missing"}
    {"found":null,"holders":[],"id":"sha256:0000000000000000000000000000000000000000000000000000000000000000","names":[],"pinned":false,"verdict":"unknown"}
    "#);
}

#[tokio::test]
async fn what_nobody_needs_is_removed() {
    let gone = |count, bytes| Some(gc_response::Gone { count, bytes });
    let report = GcResponse {
        images: gone(2, 3 << 30),
        partials: gone(1, 5),
        names: 4,
        kept_back: true,
        ..GcResponse::default()
    };
    let (_dir, fake, socket) = serve(canned(Canned { report, ..Canned::default() }));
    let (out, errors, code) = image(&socket, &["gc", "--orphan-handlers", "--partials"]).await;
    assert_eq!((errors, code), (vec![], 0));
    insta::assert_snapshot!(out, @"
    REMOVED      COUNT   SIZE
    images       2       3.0 GiB
    partials     1       5 B
    quarantine   0       0 B
    names        4       -
    images were kept, since it cannot be read who needs them; see controld's log
    ");
    let (json, ..) = image(&socket, &["gc", "--json"]).await;
    insta::assert_snapshot!(json, @r#"
    {
      "images": {
        "bytes": 3221225472,
        "count": 2
      },
      "keptBack": true,
      "names": 4,
      "partials": {
        "bytes": 5,
        "count": 1
      },
      "quarantine": {
        "bytes": 0,
        "count": 0
      }
    }
    "#);
    let asked = "Gc GcRequest { partials: true, orphan_handlers: true, quarantine: false }";
    assert_eq!(fake.calls()[..1], [asked]);
}

#[tokio::test]
async fn images_are_pinned_and_unpinned() {
    let (_dir, fake, socket) = serve(Fake::default());
    assert_eq!(image(&socket, &["pin", "x/a", "--handler", "h"]).await, ("sha256:ab\\u{1b}\n".into(), vec![], 0));
    assert_eq!(image(&socket, &["unpin", "abab"]).await.2, 0);
    assert_eq!(fake.calls(), ["Pin x/a h true", "Pin abab  false"]);
}

#[tokio::test]
async fn providers_are_listed_refreshed_and_made_to_forget() {
    let providers = vec![
        Provider {
            id: "vb".into(),
            capabilities: vec!["search".into(), "signed".into()],
            schemes: vec!["vb".into()],
            dropped: vec![provider::Dropped { name: "debian".into(), reason: format!("no `file`{HOSTILE}") }],
        },
        Provider { id: HOSTILE.into(), ..Provider::default() },
    ];
    let outcome = |provider: &str, error: &str| refresh_providers_response::Outcome {
        provider: provider.into(),
        error: error.into(),
    };
    let outcomes = vec![outcome("vb", HOSTILE), outcome("lago", "")];
    let (_dir, fake, socket) = serve(canned(Canned { providers, outcomes, ..Canned::default() }));
    let (table, ..) = image(&socket, &["providers"]).await;
    insta::assert_snapshot!(table, @r"
    ID                               CAPABILITIES    SCHEMES
    vb                               search,signed   vb
    a\u{1b}[2J\u{9b}2J\nb\u{202e}c   -               -
    `debian` of `vb` is not used: no `file`a\u{1b}[2J\u{9b}2J\nb\u{202e}c
    ");
    assert_eq!(image(&socket, &["providers", "ls"]).await.0, table);
    let (json, ..) = image(&socket, &["providers", "ls", "--json"]).await;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json[1]["id"], HOSTILE);
    assert_eq!(json[0]["dropped"][0]["name"], "debian");
    let failed = vec!["provider `vb` not refreshed: a\\u{1b}[2J\\u{9b}2J\\nb\\u{202e}c".into()];
    assert_eq!(image(&socket, &["providers", "refresh"]).await, ("lago\n".into(), failed, 5));
    assert_eq!(image(&socket, &["providers", "clear-cache", "vb"]).await, (String::new(), vec![], 0));
    assert_eq!(image(&socket, &["providers", "forget", "vb"]).await, (String::new(), vec![], 0));
    assert_eq!(fake.calls(), ["RefreshProviders", "ClearProviderCaches vb", "ForgetProvider vb"]);
}

#[test]
fn wrong_arguments_of_image_are_refused() {
    for (args, wanted) in [
        (vec!["pull"], "<NAME>"),
        (vec!["providers", "forget"], "<ID>"),
        (vec!["pull", "x", "--offline"], "value is required"),
        (vec!["pull", "x", "--offline", "maybe"], "never, auto, always"),
        (vec!["pull", "x", "--progress", "bar"], "auto, plain, json, none"),
        (vec!["pull", "x", "--username", "u"], "--password-file"),
        (vec!["pull", "x", "--password-file", "f"], "--username"),
        (vec!["pull", "x", "--username", "u", "--password-file", "f", "--token-file", "t"], "cannot be used with"),
        (vec!["pull", "x", "--handler", ""], "must not be empty"),
        (vec!["rm"], "<NAME|ID>"),
        (vec!["inspect", "x", "--format", "raw", "--handler", "h"], "cannot be used with"),
        (vec!["inspect", "x", "--layered", "--handler", "h"], "cannot be used with"),
        (vec!["verify", "x", "--all"], "cannot be used with"),
        (vec!["verify", ""], "must not be empty"),
        (vec!["search", "-v", "--json"], "cannot be used with"),
        (vec!["gc", "--dry-run"], "unexpected argument"),
        (vec!["pin"], "<NAME|ID>"),
        (vec!["providers", "drop"], "unrecognized subcommand"),
    ] {
        let error = Cli::try_parse_from(["virtletctl", "image"].into_iter().chain(args)).expect_err(wanted);
        assert_eq!(error.exit_code(), 2, "{error}");
        assert!(error.to_string().contains(wanted), "{error}");
    }
}

#[test]
fn help_of_image_is_pinned() {
    insta::assert_snapshot!(help_below("image"));
}

#[tokio::test]
async fn a_file_is_sent_whole_under_the_name_that_it_has_or_gets() {
    let (dir, fake, socket) = serve(Fake::default());
    let path = dir.path().join("Disk.qcow2");
    std::fs::write(&path, "the bytes").expect("written");
    let path = path.to_str().expect("UTF-8");
    let id = format!("{}\n", id("ef"));
    for (args, told) in [
        (vec!["import", path], "localhost/disk.qcow2:latest virtlet  9 the bytes"),
        (vec!["import", path, "x/y:1", "--handler", "arm", "--format", "raw"], "x/y:1 arm raw 9 the bytes"),
        (vec!["pull", path, "--handler", "arm"], "localhost/disk.qcow2:latest arm  9 the bytes"),
    ] {
        fake.forget_calls();
        assert_eq!(image(&socket, &args).await, (id.clone(), vec![], 0), "{args:?}");
        assert_eq!(fake.calls(), [format!("Import {told}")]);
    }
    let refused = "failed to import image `refused/x`: UnsafeImage: image not taken: its header is \\u{1b}[2Jodd";
    assert_eq!(image(&socket, &["import", path, "refused/x"]).await, (String::new(), vec![refused.into()], 7));
    let (_, errors, code) = image(&socket, &["import", dir.path().to_str().expect("UTF-8"), "x/y"]).await;
    assert!(code == 1 && errors[0].starts_with("failed to read `"), "a directory is no file: {errors:?}");
    let nameless = "what comes on the standard input has no name; write one behind the `-`";
    assert_eq!(image(&socket, &["import", "-"]).await, (String::new(), vec![nameless.into()], 2));
}

#[tokio::test]
async fn a_url_goes_to_controld_beside_a_name_that_is_made_of_it() {
    let (_dir, fake, socket) = serve(Fake::default());
    let url = "https://host.example/Dir/Disk.qcow2?a=B";
    assert_eq!(image(&socket, &["pull", url]).await.1, [""; 0]);
    let [pulled] = &fake.pulls()[..] else { panic!("{:?}", fake.pulls()) };
    assert_eq!(pulled.url, url);
    assert!(pulled.name.starts_with("host.example/dir/disk.qcow2:url-"), "{}", pulled.name);
    let (_, errors, code) = image(&socket, &["pull", "ftp://h/x"]).await;
    assert!(code == 2 && errors[0].starts_with("`ftp://h/x` cannot be asked for an image"), "{errors:?}");
}

#[tokio::test]
async fn images_that_nothing_uses_are_cleared_away_after_a_word() {
    let mut fake = Fake::default();
    fake.canned.details = InspectResponse {
        image: Some(Image { size: 5 << 20, ..Image::default() }),
        names: vec![Name { provider: "http".into(), ..Name::default() }],
        ..InspectResponse::default()
    };
    let (_dir, fake, socket) = serve(fake);
    fake.add_image(Image {
        id: id("ab"),
        handler: "virtlet".into(),
        repo_tags: vec![format!("x/{HOSTILE}"), "x/b:1".into()],
        ..Image::default()
    });
    let (table, errors, _) = image(&socket, &["prune", "--dry-run"]).await;
    assert_eq!(errors, [""; 0]);
    assert!(table.contains("x/b:1") && table.contains("abababababab") && table.contains("5.0 MiB"), "{table}");
    // Tests have no terminal.
    let unasked = "nothing was removed: there is no terminal to ask at; -f removes without asking";
    assert_eq!(image(&socket, &["prune"]).await, (String::new(), vec![unasked.into()], 1));
    let (gone, errors, code) = image(&socket, &["prune", "--force"]).await;
    assert_eq!((errors, code), (vec![], 0));
    assert!(gone.contains("x/b:1 removed\n") && gone.ends_with(&format!("{} removed\n", id("ab"))), "{gone}");
    assert_eq!(image(&socket, &["prune", "-f"]).await, (String::new(), vec![], 0));
}
