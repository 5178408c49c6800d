use super::*;

fn conf(kind: &str) -> NetConf {
    serde_json::from_value(serde_json::json!({"cniVersion": "1.0.0", "name": "n", "type": "t", "ipam": {"type": kind}}))
        .unwrap()
}

#[test]
fn a_plugin_is_a_file_of_the_path_and_nothing_else() {
    for kind in ["../evil", "/bin/sh", ".hidden", "a\nb"] {
        let failure = Ipam::of(&conf(kind), &["/bin".into()], DEADLINE).expect_err("refused").to_string();
        assert!(failure.contains("which is no plugin's name"), "{failure}");
    }
    let failure = Ipam::of(&conf("nobody"), &["/bin".into(), "/x".into()], DEADLINE).expect_err("absent").to_string();
    assert_eq!(failure, "IPAM plugin `nobody` is in no directory of `CNI_PATH` (/bin, /x); install it there");
    assert!(Ipam::of(&conf(""), &[], DEADLINE).expect("none").is_none());
}

#[test]
fn one_that_does_not_end_is_killed() {
    let ipam = Ipam { kind: "yes".to_owned(), program: "/usr/bin/yes".into(), deadline: DEADLINE };
    let failure = ipam.add(&conf("yes")).expect_err("it writes without end").to_string();
    assert!(failure.contains("wrote more than"), "{failure}");
    // Without arguments `tail` waits for the end of its input, which it follows here for ever.
    let ipam = Ipam { kind: "watch".to_owned(), program: "/bin/cat".into(), deadline: Duration::ZERO };
    let failure = ipam.add(&conf("watch")).expect_err("late").to_string();
    assert_eq!(failure, "IPAM plugin `watch` did not end within 0 s, so it was killed");
}
