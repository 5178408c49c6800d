//! Several plugins at once.

use std::collections::BTreeSet;
use std::thread;

use rscni_plugin::cni::Cni as _;
use rscni_plugin::types::Args;
use serde_json::json;

use super::model::TestNode;

const VFS: u32 = 8;

#[test]
fn no_two_containers_get_one_vf_and_none_is_left() {
    let node = TestNode::new(VFS, &[]);
    let before = node.kernel.vfs();
    let names: Vec<String> = (0..VFS + 2).map(|number| format!("c{number}")).collect();
    for name in &names {
        node.kernel.world().netns.insert(format!("/run/netns/{name}"));
    }
    let args = |name: &String| node.args(name, &json!({"pool": "blue"}));
    let given = at_once(&names, |name| node.plugin().add(args(name)));
    let (given, refused): (Vec<_>, Vec<_>) = given.into_iter().partition(Result::is_ok);
    let vfs: BTreeSet<_> = given.into_iter().map(|given| given.expect("given").interfaces[0].pci_id.clone()).collect();
    assert_eq!((vfs.len(), refused.len()), (VFS as usize, 2));
    for error in refused {
        let code = u32::from(&error.expect_err("refused"));
        assert!([11, 100].contains(&code), "{code}");
    }
    for outcome in at_once(&names, |name| node.plugin().del(args(name))) {
        outcome.expect("deleted");
    }
    assert_eq!((node.kernel.vfs(), node.allocations()), (before, vec![]));
}

#[test]
fn one_vf_goes_from_one_container_to_the_next() {
    let node = TestNode::new(1, &[]);
    let before = node.kernel.vfs();
    let args = |name: &str| -> Args { node.args(name, &json!({"pool": "blue", "vlan": 5})) };
    for _ in 0..20 {
        node.plugin().add(args("a")).expect("added");
        let names = ["a".to_owned(), "b".to_owned()];
        let outcomes = at_once(&names, |name| {
            if name == "a" {
                node.plugin().del(args("a")).map(|()| true)
            } else {
                node.plugin().add(args("b")).map(|_| false)
            }
        });
        assert_eq!(outcomes[0], Ok(true));
        if outcomes[1].is_ok() {
            assert_eq!(node.kernel.vf(0).netdev.expect("a netdev").netns.as_deref(), Some("/run/netns/b"));
        }
        node.plugin().del(args("b")).expect("deleted");
        assert_eq!((node.kernel.vfs(), node.allocations()), (before.clone(), vec![]));
    }
}

fn at_once<T: Send>(names: &[String], work: impl Fn(&String) -> T + Sync) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = names.iter().map(|name| scope.spawn(move || work(name))).collect();
        threads.into_iter().map(|thread| thread.join().expect("joined")).collect()
    })
}
