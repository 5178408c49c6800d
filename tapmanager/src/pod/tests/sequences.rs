//! Any sequence of requests, failures, restarts and reboots, against what must always hold.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Act {
    Attach,
    AttachOther,
    Detach,
    Check,
    Recover,
    Collect,
    /// The clock goes on.
    Later,
    /// A join loses something.
    Lose,
    Restart,
    Reboot,
    Fail(&'static str, bool),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let verbs = [
        "networks",
        "look",
        "create_netns",
        "remove_netns",
        "namespaces",
        "sysctls",
        "add",
        "del",
        "join",
        "rejoin",
        "check_join",
        "repair",
        "unjoin",
    ];
    let act = prop_oneof![
        4 => Just(Act::Attach),
        1 => Just(Act::AttachOther),
        4 => Just(Act::Detach),
        2 => Just(Act::Restart),
        1 => Just(Act::Reboot),
        1 => Just(Act::Check),
        1 => Just(Act::Recover),
        1 => Just(Act::Collect),
        1 => Just(Act::Later),
        1 => Just(Act::Lose),
        4 => (proptest::sample::select(verbs.to_vec()), any::<bool>()).prop_map(|(verb, absent)| Act::Fail(verb, absent)),
    ];
    proptest::collection::vec(act, 1..25)
}

fn asked() -> Attach {
    let mut attach = request("p1");
    attach.networks = ["net", "blue"].map(several::ask).to_vec();
    attach.sysctls.insert("net.core.somaxconn".into(), "128".into());
    attach
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is asked and whatever fails: what is there is on record, what is on record can be taken away.
    #[test]
    fn nothing_is_ever_lost(acts in acts()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async {
            let mut house = House::new();
            for act in acts {
                match act {
                    Act::Attach => drop(house.pods.attach(asked()).await),
                    Act::AttachOther => {
                        let mut other = asked();
                        other.hostname = "else".into();
                        drop(house.pods.attach(other).await);
                    }
                    Act::Detach => drop(house.pods.detach(&id("p1")).await),
                    Act::Restart => house = house.restart().await,
                    Act::Reboot => house = house.reboot().await,
                    Act::Check => drop(house.pods.check(&id("p1")).await),
                    Act::Recover => drop(house.pods.take_up(&id("p1")).await),
                    Act::Collect => drop(house.pods.collect(Occasion::Asked).await),
                    Act::Later => house.world.state().now += 100,
                    Act::Lose => house.world.state().lost = vec!["tap `tap0` is gone".into()],
                    Act::Fail(verb, absent) => house.world.fail(verb, &[(0, absent)]),
                }
                house.settle().await;
                let on_record = house.pods.count();
                assert_eq!(house.records().len(), on_record, "memory and disk differ");
                assert!(house.world.state().netns.len() <= on_record, "a namespace is on no record");
                if house.pods.usable(&id("p1")).is_ok() {
                    house.assert_whole("p1");
                    assert_eq!(house.world.serving(), 1);
                } else if house.phase("p1") != Some(PodPhase::Attached) {
                    recovery::until("no guest is served", || house.world.serving() == 0).await;
                }
                assert!(house.world.serving() <= on_record, "a guest is served twice");
            }
            house.world.state().failing.clear();
            house.pods.detach(&id("p1")).await.expect("detached in the end");
            // What was given up on is the plugin's.
            house.world.state().added.clear();
            house.assert_nothing_left().await;
        });
    }
}
