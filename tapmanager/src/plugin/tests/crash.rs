//! The plugin is killed, or the kernel refuses, between each two calls.

use rscni_plugin::cni::Cni as _;
use serde_json::{Value, json};

use super::model::{Fault, TestNode};

/// More calls than any command makes.
const MANY: usize = 60;

fn full() -> Value {
    json!({"pool": "blue", "mac": "02:00:00:00:00:0a", "vlan": 5, "trust": "on", "mtu": 9000})
}

#[test]
fn what_an_add_that_failed_had_done_is_undone() {
    let mut failed = 0;
    for calls in 0..MANY {
        let node = TestNode::new(2, &[]);
        let before = node.kernel.vfs();
        node.kernel.break_after(calls, Fault::Fail);
        let outcome = node.plugin().add(node.args("a", &full()));
        if !node.kernel.mend() {
            outcome.expect("nothing broke");
            continue;
        }
        failed += 1;
        outcome.expect_err("it broke");
        assert_eq!((node.kernel.vfs(), node.allocations()), (before, vec![]), "after {calls} calls");
    }
    assert!((10..MANY).contains(&failed), "{failed} calls");
}

#[test]
fn what_an_add_that_was_killed_had_done_is_undone_by_del() {
    for vms in [false, true] {
        for calls in 0..MANY {
            let node = TestNode::new(2, if vms { &[0] } else { &[] });
            let before = node.kernel.vfs();
            let mut conf = full();
            if vms {
                conf["pool"] = json!("vms");
            }
            node.kernel.break_after(calls, Fault::Die);
            let _ = node.plugin().add(node.args("a", &conf));
            node.kernel.mend();
            node.plugin().del(node.args("a", &conf)).expect("deleted");
            assert_eq!((node.kernel.vfs(), node.allocations()), (before, vec![]), "after {calls} calls");
        }
    }
}

#[test]
fn what_an_add_that_was_killed_had_done_is_undone_for_the_next_container() {
    for calls in 0..MANY {
        let node = TestNode::new(1, &[]);
        let before = node.kernel.vfs();
        node.kernel.break_after(calls, Fault::Die);
        let _ = node.plugin().add(node.args("a", &full()));
        node.kernel.mend();
        node.kernel.end_netns("/run/netns/a");
        node.plugin().add(node.args("b", &json!({"pool": "blue"}))).expect("it is free");
        assert_eq!(node.kernel.vf(0).netdev.expect("a netdev").netdev.mtu, 1500, "after {calls} calls");
        node.plugin().del(node.args("b", &json!({}))).expect("deleted");
        assert_eq!(node.kernel.vfs(), before, "after {calls} calls");
    }
}

#[test]
fn a_del_that_was_killed_is_ended_by_the_next() {
    for gone in [false, true] {
        for calls in 0..MANY {
            let node = TestNode::new(1, &[]);
            let before = node.kernel.vfs();
            node.plugin().add(node.args("a", &full())).expect("added");
            if gone {
                node.kernel.end_netns("/run/netns/a");
            }
            node.kernel.break_after(calls, Fault::Die);
            let outcome = node.plugin().del(node.args("a", &full()));
            assert_eq!(outcome.is_err(), node.kernel.mend(), "after {calls} calls");
            node.plugin().del(node.args("a", &full())).expect("deleted");
            assert_eq!((node.kernel.vfs(), node.allocations()), (before, vec![]), "after {calls} calls");
        }
    }
}
