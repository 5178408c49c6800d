//! What a container's machine has, setting by setting, and who said so ([`vmspec::explain`]), by its record.

use proto::tap::PodNet;
use vmspec::annotations::PodAnnotations;
use vmspec::explain::{Made, Root, Said, Setting, explain};
use vmspec::plan::VolumeDisk;
use vmspec::settings::Handler;

use crate::model::{Container, ContainerState, Warm};

/// Of a machine that there is. Who said so is told by the handler's settings as they are now; `None` if the record's annotations
/// are no longer understood.
#[must_use]
pub fn of_record(container: &Container, handler: &Handler, net: Option<&PodNet>) -> Option<Vec<Setting>> {
    let annotations = PodAnnotations::parse(&container.machine_annotations).ok()?;
    let machine = &container.machine;
    let made = Made {
        cpus: machine.cpus,
        memory: machine.memory,
        huge_page: machine.huge_page,
        hardware: &machine.hardware,
        share: machine.share.as_ref(),
        passed: &machine.passed,
        net,
        disks: &machine.disks,
        root: (machine.root.persistent.as_ref())
            .map(|root| Root::Block { on_image_change: root.on_image_change, as_is: root.as_is })
            .or_else(|| {
                machine.root.volume.as_ref().map(|volume| match volume {
                    VolumeDisk::File(_) => Root::File,
                    VolumeDisk::Overlay(_) => Root::Overlay,
                })
            }),
    };
    let mut settings = explain(Said { annotations: &annotations, container: &container.config, handler }, made);
    settings.extend(container.pause.map(|pause| Setting {
        name: "paused",
        value: pause.as_str().to_owned(),
        from: pause.message().to_owned(),
    }));
    settings.extend(container.checkpoint.as_ref().map(|note| {
        let from = if note.goes_on {
            "the guest goes on, and the files are flushed and hashed, or removed if it broke off"
        } else {
            "the guest may stand still for it, and goes on by itself"
        };
        Setting { name: "checkpoint", value: note.dir.display().to_string(), from: from.to_owned() }
    }));
    settings.extend(container.restore.as_ref().map(|note| {
        let whose = if note.is_clone { "another pod's" } else { "this pod's" };
        let when = match container.state {
            ContainerState::Exited => {
                "in the pod's next container, if the guest has not run and that is the same machine"
            }
            ContainerState::Running => "as soon as all of its start is done",
            ContainerState::Created | ContainerState::Starting | ContainerState::Uncertain => "when it is started",
        };
        let from = format!("the guest goes on from this checkpoint, which was {whose}, {when}");
        Setting { name: "restored from", value: note.dir.display().to_string(), from }
    }));
    settings.extend(warm(container, handler));
    Some(settings)
}

/// What it has to do with warm starts, if its handler has them.
fn warm(container: &Container, handler: &Handler) -> Option<Setting> {
    let (value, why) = match &container.warm {
        Some(Warm::Leaves(key)) => {
            (format!("leaves {key}"), "the guest leaves this checkpoint at the gate, unless there is one by then")
        }
        Some(Warm::Begins(key)) => {
            (format!("begins with {key}"), "the guest goes on from this checkpoint of its image's boot")
        }
        None if handler.defaults.warm => ("none".to_owned(), "it boots; controld's log says why"),
        None => return None,
    };
    Some(Setting { name: "warm start", value, from: format!("runtime handler, warm: {why}") })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::container::tests::container;
    use crate::model::{CheckpointNote, RestoreNote};

    #[test]
    fn a_checkpoint_that_is_made_is_told() {
        let told = |goes_on| {
            let note = CheckpointNote { dir: "/c".into(), id: Uuid::nil(), goes_on };
            let container = Container { checkpoint: Some(note), ..container("vm", 1) };
            let settings = of_record(&container, &Handler::default(), None).expect("understood");
            settings.into_iter().find(|it| it.name == "checkpoint").map(|it| (it.value, it.from)).expect("told")
        };
        assert!(told(false).0 == "/c" && told(false).1.contains("stand still") && told(true).1.contains("hashed"));
        let settings = of_record(&container("vm", 1), &Handler::default(), None).expect("understood");
        assert!(settings.iter().all(|it| it.name != "checkpoint"));
    }

    #[test]
    fn a_checkpoint_that_a_guest_is_to_go_on_from_is_told() {
        let note = RestoreNote { dir: "/c".into(), is_clone: true, learns: Vec::new(), is_warm: false };
        let container = Container { restore: Some(note), ..container("vm", 1) };
        let settings = of_record(&container, &Handler::default(), None).expect("understood");
        let told = settings.into_iter().find(|it| it.name == "restored from").expect("told");
        assert!(told.value == "/c" && told.from.contains("another pod's"), "{}", told.from);
        let ended = Container { state: ContainerState::Exited, ..container };
        let settings = of_record(&ended, &Handler::default(), None).expect("understood");
        assert!(settings.iter().any(|it| it.name == "restored from" && it.from.contains("next container")));
    }

    #[test]
    fn routes_that_the_guest_may_lack_are_told() {
        let net = r#"{"netns": "/run/netns/x", "nics": [{
            "name": "eth0", "mac": "02:00:00:77:00:0a", "mtu": 1450, "queues": 1, "addresses": ["10.77.0.10/32"],
            "routes": [{"dst": "0.0.0.0/0", "gateway": "169.254.1.1"}]
        }], "dns": {"servers": [], "searches": [], "options": []}}"#;
        let net: PodNet = serde_json::from_str(net).expect("a network");
        let named = |name: &str, net: &PodNet, config: &str, kind: &str| {
            let pairs = [("virtlet.cloud/network-config", config), ("VirtletCloudInitImageType", kind)];
            let machine_annotations = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
            let container = Container { machine_annotations, ..container("vm", 1) };
            let settings = of_record(&container, &Handler::default(), Some(net)).expect("understood");
            settings.into_iter().find(|it| it.name == name).map(|it| it.value)
        };
        let told = |config: &str, kind: &str| named("routes outside of the subnet", &net, config, kind);
        let netplans = "of eth0: set only by a cloud-init that uses netplan";
        assert_eq!(told("static", "nocloud").as_deref(), Some(netplans));
        let openstacks = "of eth0: not told, since `network_data.json` has no words for them";
        assert_eq!(told("static", "configdrive").as_deref(), Some(openstacks));
        for (config, kind) in [("auto", "nocloud"), ("none", "nocloud"), ("static", "ignition")] {
            assert_eq!(told(config, kind), None, "{config}, {kind}");
        }
        let mut bare = net.clone();
        bare.nics[0].routes[0].gateway = None;
        let bare = |kind: &str| named("routes without a gateway", &bare, "static", kind);
        let ended = "of eth0: no NIC comes up by a cloud-init that uses ifupdown's or sysconfig's files";
        assert_eq!((bare("nocloud").as_deref(), bare("configdrive")), (Some(ended), None));
        assert_eq!(named("routes without a gateway", &net, "static", "nocloud"), None);
    }
}
