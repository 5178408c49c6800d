//! `virtletctl image` against the daemon's own service over a real store, which is asked for a file of the node.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use controld::api::admin::AdminCalls;
use controld::images::Images;
use proto::images::image_admin_server::ImageAdminServer;
use tokio_stream::wrappers::UnixListenerStream;
use virtletctl::cli::Cli;
use virtletctl::error::{CtlError, Line};
use virtletctl::interrupt::Interrupt;

/// What a command printed, its errors as the user sees them, and its exit code.
async fn image(socket: &Path, args: &[&str]) -> (String, Vec<String>, u8) {
    let socket = socket.to_str().expect("UTF-8");
    let cli = Cli::try_parse_from(["virtletctl", "--socket", socket, "image"].iter().chain(args)).expect("arguments");
    let mut out = Vec::new();
    // Boxed: a test of many commands has a future for each on its stack.
    let done = Box::pin(virtletctl::run(cli, &mut out, Interrupt::default())).await;
    let errors = done.err().unwrap_or_default();
    let lines = errors.iter().map(|error| Line(error).to_string()).collect();
    (String::from_utf8(out).expect("UTF-8"), lines, errors.first().map_or(0, CtlError::exit_code))
}

/// The daemon's calls to a store below `root`, where an image lies for pulling; a handler `arm` beside the default one.
fn calls(root: &Path) -> AdminCalls {
    let images = root.join("node");
    std::fs::create_dir_all(&images).expect("made");
    std::fs::create_dir_all(root.join("rules")).expect("made");
    std::fs::write(images.join("disk.raw"), vec![7; 4096]).expect("written");
    let rule = format!("translations: [{{name: disk, url: 'file://{}'}}]", images.join("disk.raw").display());
    std::fs::write(root.join("rules/a.yaml"), rule).expect("written");
    let mut config = imagestore::Config::new(root.join("images"));
    config.allow_raw = true;
    config.allow_untranslated = false;
    config.local_roots = vec![images];
    config.translations_dir = Some(root.join("rules"));
    let platform = imagestore::provider::Platform::linux("arm64");
    config.handlers.insert("arm".into(), imagestore::HandlerConfig { platform, ..Default::default() });
    let mappings = config.mappings.clone();
    AdminCalls::new(Images::of(imagestore::Store::open(config).expect("opened"), mappings))
}

/// Serves until the test's runtime ends.
fn serve(root: &Path) -> PathBuf {
    let socket = root.join("cri.sock");
    let listener = tokio::net::UnixListener::bind(&socket).expect("socket");
    let server = tonic::transport::Server::builder().add_service(ImageAdminServer::new(calls(root)));
    tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    socket
}

#[tokio::test]
async fn an_image_goes_through_all_that_can_be_done_with_it() {
    let root = tempfile::tempdir().expect("a directory");
    let socket = serve(root.path());
    let (out, errors, _) = image(&socket, &["pull", "disk"]).await;
    assert_eq!(errors, [""; 0]);
    let id = out.trim_end();
    let hex = id.strip_prefix("sha256:").expect("an id");
    let shown = async || {
        let (listed, ..) = image(&socket, &["ls", "--json"]).await;
        let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
        listed[0].clone()
    };
    let listed = shown().await;
    assert_eq!((&listed["id"], &listed["runtimeHandler"]), (&id.into(), &"virtlet".into()));
    assert_eq!((&listed["format"], &listed["pinned"]), (&"raw".into(), &false.into()));

    for what in ["disk", id, &hex[..13]] {
        let (lines, errors, code) = image(&socket, &["inspect", what]).await;
        assert_eq!((errors, code), (vec![], 0), "{what}");
        assert!(
            lines.starts_with(&format!("id             {id}\nruntime        virtlet\nformat         raw\n")),
            "{lines}"
        );
        assert_eq!(image(&socket, &["pin", what]).await, (out.clone(), vec![], 0));
        assert_eq!(shown().await["pinned"], true);
        assert_eq!(image(&socket, &["unpin", what]).await, (out.clone(), vec![], 0));
        assert_eq!(shown().await["pinned"], false);
        assert_eq!(image(&socket, &["verify", what]).await, (format!("{id} sound\n"), vec![], 0));
    }
    assert_eq!(image(&socket, &["inspect", "disk", "--handler", "arm"]).await.2, 3);
    assert_eq!(image(&socket, &["inspect", "disk", "--handler", "none"]).await.2, 2);
    assert_eq!(image(&socket, &["verify", "other"]).await.2, 3);
    assert_eq!(image(&socket, &["gc", "--orphan-handlers", "--partials", "--quarantine"]).await.2, 0);
    assert_eq!(shown().await["id"], id, "what has a name stays");

    let path = root.path().join("images/data").join(hex);
    let mut permissions = path.metadata().expect("there").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o600);
    std::fs::set_permissions(&path, permissions).expect("writable");
    std::fs::write(&path, vec![8; 4096]).expect("written");
    let (out, errors, code) = image(&socket, &["verify", "--all"]).await;
    assert!(out.starts_with(&format!("{id} corrupt; is sha256:")), "{out}");
    assert_eq!((errors.len(), code), (1, 4), "{errors:?}");
    assert_eq!(image(&socket, &["inspect", "disk"]).await.2, 3, "it is put aside");
    assert_eq!(image(&socket, &["pull", "disk", "--progress", "json"]).await.0, format!("{id}\n"), "and comes again");
    assert_eq!(image(&socket, &["verify"]).await.2, 0);

    assert_eq!(image(&socket, &["pin", "disk"]).await.2, 0);
    let kept = format!("disk:latest of virtlet removed\n{id} kept; pinned\n");
    assert_eq!(image(&socket, &["rm", "disk"]).await, (kept, vec![], 0));
    let listed = shown().await;
    assert_eq!((&listed["id"], &listed["pinned"]), (&id.into(), &true.into()));
    assert_eq!((&listed["repoTags"], &listed["repoDigests"]), (&serde_json::json!([]), &serde_json::json!([])));
    assert_eq!(image(&socket, &["ls", "--json", "--handler", "virtlet"]).await.0, "[]\n", "it is nobody's");
    assert_eq!(image(&socket, &["inspect", &hex[..8]]).await.2, 0);
    assert_eq!(image(&socket, &["rm", hex]).await.2, 3, "there is no name to take");
    for command in ["rm", "inspect", "pin", "unpin", "verify"] {
        let (_, errors, code) = image(&socket, &[command, &hex[..7]]).await;
        assert_eq!(code, 3);
        assert!(errors[0].ends_with("on this node; of an id, write 8 characters or more"), "{command}: {errors:?}");
    }
    assert_eq!(image(&socket, &["unpin", &hex[..8]]).await.2, 0);
    assert_eq!(image(&socket, &["ls", "--json"]).await.0, "[]\n");
    assert_eq!(image(&socket, &["pull", "disk", "--progress", "none"]).await.2, 0);
    let gone = format!("disk:latest of virtlet removed\n{id} removed\n");
    assert_eq!(image(&socket, &["rm", &hex[..8]]).await, (gone, vec![], 0));
}

#[tokio::test]
async fn what_the_store_refuses_has_its_exit_code() {
    let root = tempfile::tempdir().expect("a directory");
    let socket = serve(root.path());
    std::fs::write(root.path().join("node/disk.raw"), b"KDMV and no more").expect("written");
    for (args, wanted) in [
        (&["pull", "disk"][..], 7),
        (&["pull", "unknown"], 3),
        (&["pull", "No/Name"], 2),
        (&["pull", "disk", "--handler", "none"], 2),
        (&["ls", "--handler", "none"], 2),
        (&["providers", "refresh", "none"], 2),
        (&["pin", "disk"], 3),
        (&["pull", "ftp://h.example/x"], 2),
        (&["import", "-"], 2),
        (&["import", "/nowhere/at/all"], 1),
        (&["save", "other", "-"], 3),
    ] {
        let (out, errors, code) = image(&socket, args).await;
        assert_eq!((out.as_str(), code), ("", wanted), "{args:?}: {errors:?}");
    }
    assert_eq!(image(&socket, &["providers"]).await.0.lines().count(), 4, "file, http and any registry");
    assert_eq!(image(&socket, &["providers", "clear-cache"]).await.2, 0);
    assert_eq!(image(&socket, &["search", "x"]).await.2, 0);
}

#[tokio::test]
async fn a_file_is_brought_given_out_and_cleared_away() {
    let root = tempfile::tempdir().expect("a directory");
    let socket = serve(root.path());
    let file = |name: &str| root.path().join(name).to_str().expect("UTF-8").to_owned();
    // Of more than one piece, with a hole.
    let mut bytes = vec![0; 3 << 20];
    bytes[..5].copy_from_slice(b"bytes");
    bytes[(2 << 20) + 1] = 1;
    std::fs::write(file("My Disk.raw"), &bytes).expect("written");
    let (id, errors, code) = image(&socket, &["import", &file("My Disk.raw"), "--format", "raw"]).await;
    assert_eq!((errors, code), (vec![], 0));
    let (names, ..) = image(&socket, &["ls", "-o", "name"]).await;
    assert_eq!(names, "localhost/my-disk.raw:latest\n");
    // Again, by another name and another command.
    assert_eq!(image(&socket, &["import", &file("My Disk.raw"), "x/y:1", "--progress", "json"]).await.0, id);
    assert_eq!(image(&socket, &["pull", "localhost/my-disk.raw"]).await.0, id, "it is nobody's but this node's");

    assert_eq!(image(&socket, &["save", "x/y:1", &file("out")]).await, (String::new(), vec![], 0));
    assert!(std::fs::read(file("out")).expect("read") == bytes);
    let (_, errors, code) = image(&socket, &["save", "x/y:1", &file("out")]).await;
    assert_eq!((errors, code), (vec![format!("`{}` is there already; -f writes over it", file("out"))], 1));
    assert_eq!(image(&socket, &["save", "x/y:1", &file("out"), "-f"]).await.2, 0);
    // What is no file is neither written with holes nor removed when that fails.
    let _device = std::os::unix::net::UnixListener::bind(file("device")).expect("bound");
    let (_, errors, code) = image(&socket, &["save", "x/y:1", &file("device"), "-f"]).await;
    assert!(code == 1 && errors[0].contains("is no regular file"), "{errors:?}");
    assert!(Path::new(&file("device")).exists());

    assert_eq!(image(&socket, &["prune", "-f"]).await, (String::new(), vec![], 0), "no source has it");
    let (table, ..) = image(&socket, &["prune", "--all", "--dry-run"]).await;
    assert!(table.contains("localhost/my-disk.raw:latest, x/y:1"), "{table}");
    let (gone, errors, code) = image(&socket, &["prune", "--all", "--force"]).await;
    assert_eq!((errors, code), (vec![], 0));
    assert_eq!(gone, format!("localhost/my-disk.raw:latest removed\nx/y:1 removed\n{} removed\n", id.trim_end()));
    assert_eq!(image(&socket, &["ls", "-q"]).await.0, "");
}
