//! The commands of `vm`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};

use super::VmVerb;
use crate::name::non_empty;

/// Of `vm`.
#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Those that ask a cluster.
    #[command(flatten)]
    InCluster(VmVerb),
    /// Say what of KubeVirt's objects is not as it would be with KubeVirt
    ///
    /// Each line names a file, an object of it, and a field. An error is what would be refused; a warning, what would be taken and is not
    /// all that was said. Exit code 1 if there is an error.
    Lint(VmLint),
    /// Print the pods that KubeVirt's objects are here, for `kubectl apply -f -`
    ///
    /// Of a VirtualMachineInstance, of the template of a VirtualMachine, and as many as a ReplicaSet has, each with the Secret that its
    /// user-data is in. Presets in the files add to what they are for. Objects of others are printed as they are. Warnings go to the
    /// standard error output. Nothing is printed if one object would be refused: exit code 1.
    Render(VmRender),
    /// Rewrite manifests of older days as today's
    ///
    /// Versions before v1, kinds and fields that had other names, `running`, and DataVolumes in VMs, which become objects of their own
    /// beside a claim. What is today's already stays as it is.
    Convert(VmConvert),
}

/// Which manifests.
#[derive(Debug, Args)]
pub struct Manifests {
    /// As for `kubectl apply -f`: a file, a directory with some, or `-`, the standard input
    #[arg(required_unless_present = "filenames", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The same, as kubectl has it; may be repeated
    #[arg(short, long = "filename", value_name = "FILE")]
    pub filenames: Vec<PathBuf>,
}

/// What objects say nothing of.
#[derive(Debug, Args)]
pub struct Cluster {
    /// RuntimeClass of the pods, with `efi=` or `secure-boot=` before it that of VMs with such a firmware; may be repeated [default:
    /// virtlet]
    #[arg(long, value_name = "[FIRMWARE=]NAME")]
    pub runtime_class: Vec<RuntimeClass>,
    /// Image of VMs that boot from claims: a pod has one, and nothing is made of it
    #[arg(long, value_name = "NAME", value_parser = non_empty)]
    pub image: Option<String>,
    /// Take warnings for errors
    #[arg(long)]
    pub strict: bool,
}

/// The RuntimeClass of VMs with a firmware.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeClass {
    pub firmware: Firmware,
    pub name: String,
}

/// Firmware that a RuntimeClass's handler has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    Any,
    Efi,
    SecureBoot,
}

/// How objects are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Notation {
    /// YAML, one document for each object
    #[default]
    Yaml,
    /// JSON, a list
    Json,
}

/// Of `vm lint`.
#[derive(Debug, Args)]
pub struct VmLint {
    /// What is read.
    #[command(flatten)]
    pub manifests: Manifests,
    /// Where it is to run.
    #[command(flatten)]
    pub cluster: Cluster,
    /// How to print [default: a line for each]
    #[arg(short, long, value_name = "FORM")]
    pub output: Option<Notation>,
}

/// Of `vm render`.
#[derive(Debug, Args)]
pub struct VmRender {
    /// What is read.
    #[command(flatten)]
    pub manifests: Manifests,
    /// Where it is to run.
    #[command(flatten)]
    pub cluster: Cluster,
    /// How to print
    #[arg(short, long, value_name = "FORM", default_value = "yaml")]
    pub output: Notation,
}

/// Of `vm convert`.
#[derive(Debug, Args)]
pub struct VmConvert {
    /// What is read.
    #[command(flatten)]
    pub manifests: Manifests,
    /// Group that the objects are to have, `virtlet.k8s` where KubeVirt itself runs, too
    #[arg(long, value_name = "GROUP", default_value = kubevirt::GROUP, value_parser = [kubevirt::GROUP, kubevirt::OTHER_GROUP])]
    pub group: String,
    /// How to print
    #[arg(short, long, value_name = "FORM", default_value = "yaml")]
    pub output: Notation,
}

impl FromStr for RuntimeClass {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (firmware, name) = match text.split_once('=') {
            None => (Firmware::Any, text),
            Some(("efi", name)) => (Firmware::Efi, name),
            Some(("secure-boot", name)) => (Firmware::SecureBoot, name),
            Some((other, _)) => return Err(format!("`{other}` is neither `efi` nor `secure-boot`")),
        };
        if name.is_empty() {
            return Err("the name of a RuntimeClass must not be empty".into());
        }
        Ok(Self { firmware, name: name.to_owned() })
    }
}

impl Manifests {
    /// All of them, in the order of the command line as far as clap keeps that.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().chain(&self.filenames)
    }
}
