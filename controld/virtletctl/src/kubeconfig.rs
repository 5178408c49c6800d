//! Which cluster a command is for, and where in it: what a command line says of that. [`crate::cluster`] goes there.

use std::path::PathBuf;

use clap::Args;
use kubevirt::{GROUP, OTHER_GROUP};

use super::name;

/// Heads these options in help.
const HEADING: &str = "Cluster";

/// Which cluster, and where in it.
#[derive(Debug, Clone, Args)]
pub struct At {
    /// Namespace [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = name::label, help_heading = HEADING)]
    pub namespace: Option<String>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", value_parser = name::non_empty, help_heading = HEADING)]
    pub context: Option<String>,
    /// Kubeconfig [default: what KUBECONFIG names, ~/.kube/config, or the account of the pod that this runs in]
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub kubeconfig: Option<PathBuf>,
    /// API group of the VMs, `virtlet.k8s` where KubeVirt itself runs, too
    #[arg(long, value_name = "GROUP", default_value = GROUP, value_parser = [GROUP, OTHER_GROUP], help_heading = HEADING)]
    pub group: String,
}

/// Options that have a value and may stand in front of a verb.
pub(super) const OPTIONS: [&str; 5] = ["-n", "--namespace", "--context", "--kubeconfig", "--group"];

impl At {
    /// What words that are no whole command line yet say of it: the last of each option.
    pub(super) fn of_words(words: &[String]) -> Self {
        let said = |names: &[&str]| {
            words.iter().enumerate().rev().find_map(|(at, word)| {
                names.iter().find_map(|name| match word.strip_prefix(name)? {
                    "" => words.get(at + 1).cloned(),
                    rest if name.starts_with("--") => rest.strip_prefix('=').map(str::to_owned),
                    rest => Some(rest.to_owned()),
                })
            })
        };
        let group = said(&["--group"]).filter(|group| group == OTHER_GROUP);
        Self {
            namespace: said(&["--namespace", "-n"]).filter(|namespace| name::label(namespace).is_ok()),
            context: said(&["--context"]).filter(|context| !context.is_empty()),
            kubeconfig: said(&["--kubeconfig"]).filter(|path| !path.is_empty()).map(PathBuf::from),
            group: group.unwrap_or_else(|| GROUP.to_owned()),
        }
    }

    /// As options of another command of ours, for that to go to the same place. The namespace is left out.
    pub(super) fn words(&self) -> Vec<String> {
        let mut words = vec![format!("--group={}", self.group)];
        words.extend(self.context.as_ref().map(|context| format!("--context={context}")));
        words.extend(self.kubeconfig.as_ref().map(|path| format!("--kubeconfig={}", path.display())));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> At {
        At::of_words(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_line_that_is_typed_says_where_it_is_for() {
        let at = of("kubectl-virtlet -n prod --context=lab --kubeconfig /k start --group virtlet.k8s w");
        assert_eq!((at.namespace.as_deref(), at.context.as_deref()), (Some("prod"), Some("lab")));
        assert_eq!((at.kubeconfig, at.group.as_str()), (Some("/k".into()), OTHER_GROUP));
        assert_eq!(of("x -nprod").namespace.as_deref(), Some("prod"));
        assert_eq!(of("x --namespace=a -n b").namespace.as_deref(), Some("b"));
        let at = of("x -n A --group lost --context");
        assert_eq!((at.namespace, at.context, at.group.as_str()), (None, None, GROUP));
        assert_eq!(
            of("x --context c --kubeconfig=/k").words(),
            ["--group=kubevirt.io", "--context=c", "--kubeconfig=/k"]
        );
    }
}
