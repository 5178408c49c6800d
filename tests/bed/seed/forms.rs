//! Each form of user-data that a pod may give, beside what controld makes for the pod: cloud-init acts on both.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proto::tap::{Dns, PodNet};
use serde::Deserialize;
use tests::case::{Bed, Case};
use tests::command::{command, run};
use vmspec::annotations::Source;
use vmspec::seed::{Sources, Volume, VolumeFile};

use super::{CloudInit, Pod};

const DEADLINE: Duration = Duration::from_secs(480);
/// What the user's part is to run, whatever its form.
const MARK: &str = "of-the-user";
/// What controld makes of the container's variables.
const MADE: &str = "/etc/cloud/environment";

pub(super) const CASES: &[Case] = &[Case {
    name: "seed::cloud_init_takes_each_form_of_user_data_and_what_is_made_for_the_pod",
    deadline: DEADLINE,
    run: forms,
}];

/// What cloud-init would act on, as the peer's script prints it.
#[derive(Debug, Deserialize)]
struct Taken {
    user_data: String,
    files: Vec<String>,
    runs: Vec<String>,
}

struct Form {
    name: &'static str,
    user_data: Vec<u8>,
    /// Whether cloud-init gets it as the user wrote it.
    is_kept: bool,
    /// Files that the user's part has cloud-init write.
    files: &'static [&'static str],
}

fn form(name: &'static str, text: &str) -> Form {
    Form { name, user_data: text.into(), is_kept: true, files: &[] }
}

fn all(bed: &Bed) -> Result<Vec<Form>> {
    let config = "#cloud-config\nruncmd:\n- [echo, of-the-user]\n";
    let included = bed.dir.join("included");
    fs::write(&included, config)?;
    let packed = bed.dir.join("packed");
    fs::write(&packed, config)?;
    run(&mut command("gzip", [&packed]))?;
    let mime = "Content-Type: multipart/mixed; boundary=\"==x\"\nMIME-Version: 1.0\n\n--==x\n\
        Content-Type: text/x-shellscript\n\n#!/bin/sh\necho of-the-user\n--==x\n\
        Content-Type: text/cloud-config\n\nwrite_files_of_mine: []\n--==x--\n";
    let archive = "#cloud-config-archive\n- type: text/cloud-config\n  content: |\n    runcmd:\n    - [echo, of-the-user]\n\
        - \"#!/bin/sh\\necho another\\n\"\n";
    Ok(vec![
        form("cloud-config", "#cloud-config\r\n# kept as it is\r\nruncmd:\r\n- [echo, of-the-user]\r\n"),
        Form {
            is_kept: false,
            files: &["/of/mine"],
            ..form(
                "cloud-config with a key of what is made",
                "#cloud-config\nwrite_files:\n- {path: /of/mine, content: x}\nruncmd:\n- [echo, of-the-user]\n",
            )
        },
        form("script", "#!/bin/sh\necho of-the-user\n"),
        form("MIME", mime),
        form("jinja", "## template: jinja\n#cloud-config\nruncmd:\n- [echo, of-the-{{ 'us' + 'er' }}]\n"),
        form("include", &format!("#include\nfile://{}\n", included.display())),
        form("cloud-config-archive", archive),
        form("boothook", "#cloud-boothook\n#!/bin/sh\n: of-the-user\n"),
        Form { user_data: fs::read(packed.with_extension("gz"))?, ..form("gzip", "") },
    ])
}

/// A kind of seed: cloud-init's name of the data source, and its directory of seeds that lie in the guest's disk.
const KINDS: [(&str, &str, &str); 2] =
    [("nocloud", "NoCloud", "nocloud"), ("configdrive", "ConfigDrive", "config_drive")];

fn forms(bed: &Bed) -> Result<()> {
    let forms = all(bed)?;
    let rows: Vec<_> = KINDS.iter().flat_map(|kind| forms.iter().map(move |form| (kind, form))).collect();
    let mut wrong = Vec::new();
    for cloud_init in CloudInit::all(bed)? {
        let roots = rows.iter().enumerate().map(|(place, (kind, form))| {
            let root = bed.dir.join(format!("{}-{place}", cloud_init.suite));
            lay(&root, **kind, form)?;
            Ok(root)
        });
        let roots = roots.collect::<Result<Vec<PathBuf>>>()?;
        let said = run(cloud_init.python("consume.py").args(&roots))?;
        let taken: Vec<Taken> = serde_json::from_str(&said).with_context(|| said.clone())?;
        ensure!(taken.len() == rows.len(), "{} of {} were taken", taken.len(), rows.len());
        for ((kind, form), taken) in rows.iter().zip(taken) {
            let of = format!("{} by {} of {}", form.name, kind.0, cloud_init.version);
            wrong.extend(misses(form, &taken)?.into_iter().map(|miss| format!("{of}: {miss}: {taken:?}")));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Lays a seed with the user's part where cloud-init finds it without a disk.
fn lay(root: &Path, (kind, source, dir): (&str, &str, &str), form: &Form) -> Result<()> {
    let file = VolumeFile { bytes: form.user_data.clone(), mode: 0o644 };
    let named = [(Source::Volume("told".to_owned()), Volume([("user-data".to_owned(), file)].into()))];
    let seed = Pod {
        annotations: &[
            ("VirtletCloudInitUserDataSource", "volume/told"),
            ("VirtletCloudInitUserDataSourceKey", "user-data"),
            ("VirtletCloudInitImageType", kind),
        ],
        net: &PodNet { netns: "/run/netns/x".into(), nics: Vec::new(), dns: Dns::default() },
        sources: &Sources { named: BTreeMap::from(named), copies: Vec::new() },
        env: &["COLOUR=blue".to_owned()],
    }
    .seed()?;
    for (name, bytes) in seed.files() {
        let path = root.join("lib/seed").join(dir).join(name);
        fs::create_dir_all(path.parent().context("no directory")?)?;
        fs::write(path, bytes)?;
    }
    let (lib, run) = (root.join("lib"), root.join("run"));
    fs::create_dir(&run)?;
    let paths = format!("{{cloud_dir: {}, run_dir: {}, templates_dir: /none}}", lib.display(), run.display());
    let config = format!("datasource_list: [{source}]\nsystem_info: {{distro: debian, paths: {paths}}}\n");
    Ok(fs::write(root.join("cloud.cfg"), config)?)
}

fn misses(form: &Form, taken: &Taken) -> Result<Vec<&'static str>> {
    let is_kept = STANDARD.decode(&taken.user_data)? == form.user_data;
    let is_written = |file: &str| taken.files.iter().any(|other| other == file);
    let checks = [
        (is_kept == form.is_kept, "kept byte for byte, or not, against what was expected"),
        (taken.runs.iter().any(|run| run.contains(MARK)), "the user's part does not run"),
        (is_written(MADE), "what is made is not written"),
        (form.files.iter().all(|file| is_written(file)), "the user's files are not written"),
    ];
    Ok(checks.into_iter().filter(|(holds, _)| !holds).map(|(_, miss)| miss).collect())
}
