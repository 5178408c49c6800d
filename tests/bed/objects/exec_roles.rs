//! `deploy/exec-roles.yaml`: which user may exec which verb. The API server judges that before it looks for the pod, so there is none.

use anyhow::{Result, ensure};
use tests::case::{Bed, Case};
use tests::cluster::Cluster;
use tests::command::{Ended, TOOL_DEADLINE, finish};
use tests::controllers::Controllers;
use tests::wait::wait_for;

use super::{DEADLINE, NEWS_DEADLINE};

pub(super) const CASES: &[Case] =
    &[Case { name: "objects::an_exec_takes_the_right_to_its_verb", deadline: DEADLINE, run: judged }];

const READS: [&str; 4] = ["virtlet:screenshot", "virtlet:guestosinfo", "virtlet:userlist", "virtlet:filesystemlist"];
const CHANGES: [&str; 6] =
    ["virtlet:pause", "virtlet:unpause", "virtlet:reset", "virtlet:softreboot", "virtlet:freeze", "virtlet:unfreeze"];
const SCREEN: [&str; 2] = ["virtlet:vnc", "virtlet:screenshot&command=--move-cursor"];
const PLAIN: [&str; 2] = ["sh", "sh&command=virtlet:vnc"];
/// What nobody may but who may everything.
const STRANGE: [&str; 3] = ["virtlet:migrate", "virtlet:", "virtlet:vnc/x"];

/// Each user by the role that it has.
const USERS: [(&str, &str, &[&[&str]]); 5] = [
    ("viewer", "virtlet-vm-viewer", &[&READS]),
    ("viewed", "virtlet-vm-vnc", &[&SCREEN, &[READS[0]]]),
    ("operator", "virtlet-vm-operator", &[&READS, &SCREEN, &CHANGES]),
    ("editor", "edit", &[&READS, &SCREEN, &CHANGES, &PLAIN, &[STRANGE[0], STRANGE[2]]]),
    ("nobody", "view", &[]),
];

fn judged(bed: &Bed) -> Result<()> {
    let cluster = Cluster::start(bed)?;
    let plane = Controllers::start(bed, &cluster)?;
    let tried = |words: &[&str]| -> Result<Ended> { finish(&mut plane.command(words), TOOL_DEADLINE) };
    let done = |words: &[&str]| -> Result<()> {
        let ended = tried(words)?;
        ensure!(ended.code == Some(0), "kubectl {words:?}: {ended:?}");
        Ok(())
    };
    let policy = bed.config.source("deploy/exec-roles.yaml")?.display().to_string();
    done(&["apply", "-f", &policy])?;
    done(&["create", "namespace", "vms"])?;
    for (user, role, _) in USERS {
        let (role, user) = (format!("--clusterrole={role}"), format!("--user={user}"));
        done(&["-n", "vms", "create", "rolebinding", user.trim_start_matches("--user="), &role, &user])?;
    }
    let exec = |user: &str, command: &str| -> Result<String> {
        let path = format!("/api/v1/namespaces/vms/pods/none/exec?stdout=true&command={command}");
        let ended = tried(&["--as", user, "create", "--raw", &path, "-f", "/dev/null"])?;
        ensure!(ended.code != Some(0), "an exec without a pod: {ended:?}");
        Ok(ended.stderr)
    };
    let passes = |told: &str| told.contains("pods \"none\" not found");
    // Namespaces that do not want it are left alone.
    let told = exec("editor", "sh")?;
    ensure!(passes(&told), "{told}");
    let told = exec("viewer", "sh")?;
    ensure!(passes(&told), "{told}");

    done(&["label", "namespace", "vms", "virtlet.k8s/exec-roles=enforced"])?;
    wait_for("a policy that holds", NEWS_DEADLINE, || Ok((!passes(&exec("viewer", "sh")?)).then_some(())))?;
    // Rights of `edit` are put together by a controller.
    wait_for("a role that is put together", NEWS_DEADLINE, || Ok(passes(&exec("editor", "sh")?).then_some(())))?;
    for (user, role, may) in USERS {
        for command in [&READS[..], &CHANGES, &SCREEN, &PLAIN, &STRANGE].concat() {
            let told = exec(user, command)?;
            let expected = may.iter().any(|commands| commands.contains(&command));
            ensure!(passes(&told) == expected, "{role}: {command}: {told}");
        }
    }
    let told = exec("viewed", "virtlet:pause")?;
    let words =
        r#"user "viewed" may not exec "virtlet:pause" in namespace "vms": it takes the right to use "vms/pause""#;
    ensure!(told.contains(words), "{told}");
    Ok(())
}
