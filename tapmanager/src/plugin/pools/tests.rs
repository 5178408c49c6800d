use proptest::prelude::*;

use super::*;

fn told(text: &str) -> String {
    parse(text).expect_err("refused").join("; ")
}

#[test]
fn pools_are_read() {
    let pools = parse(
        r#"
        [pool.blue]
        pf = "ens1f0"
        vfs = "0-3,5"
        [pool.vms]
        pf = "0000:3b:00.0"
        driver = "vfio-pci"
        [pool.any]
        pf = { vendor = "8086", device = "0x1572" }
        "#,
    )
    .expect("good");
    assert_eq!(pools.len(), 3);
    let blue = &pools["blue"];
    assert_eq!(blue.to_string(), "pool `blue` (PF `ens1f0`)");
    assert_eq!((0..8).filter(|number| blue.vfs.contains(*number)).collect::<Vec<_>>(), [0, 1, 2, 3, 5]);
    assert_eq!(pools["vms"].driver.as_deref(), Some("vfio-pci"));
    assert_eq!(pools["any"].pf, PfChoice::Kind { vendor: 0x8086, device: 0x1572 });
    assert_eq!(parse(""), Ok(Pools::new()));
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let text = r#"
        pools = 1
        [pool.blue]
        pf = "a name that is too long"
        vfs = "3-0"
        driver = "../evil"
        speed = 10
        [pool."no name!"]
        vfs = 5
        [pool.kind]
        pf = { vendor = "intel", model = "x" }
        [pool.number]
        pf = 3
    "#;
    insta::assert_snapshot!(parse(text).expect_err("refused").join("\n"));
}

#[test]
fn a_file_that_is_no_toml_is_told_with_its_line() {
    assert!(told("[pool.blue]\npf = \n").starts_with("line 2: "), "{}", told("[pool.blue]\npf = \n"));
    assert_eq!(told("pool = 3"), "`pool` is `3`: invalid type: integer `3`, expected a map");
    assert_eq!(told("[pool]\nblue = 1"), "`pool.blue` is no table; write `[pool.blue]` with `pf` below it");
}

#[test]
fn ranges_are_strict() {
    for (text, problem) in [
        ("", "is not a list of VF numbers such as `0-3,5`"),
        ("1,", "is not a list of VF numbers such as `0-3,5`"),
        ("+1", "is not a list of VF numbers such as `0-3,5`"),
        ("1-2-3", "is not a list of VF numbers such as `0-3,5`"),
        ("3-1", "has a piece that begins after its end; write the lower number first"),
        ("65536", "names a VF above 65535"),
        ("99999999999999", "names a VF above 65535"),
    ] {
        assert_eq!(text.parse::<VfRange>().expect_err("refused").to_string(), problem, "{text}");
    }
    let long = vec!["1"; 257].join(",");
    assert_eq!(long.parse::<VfRange>().expect_err("refused").to_string(), "has more than 256 pieces");
    assert_eq!(" 1 - 2 , 4 ".parse::<VfRange>().expect("spaces are fine").to_string(), "1-2,4");
}

proptest! {
    #[test]
    fn hostile_files_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        exercise(&bytes);
    }

    #[test]
    fn almost_good_files_do_no_harm(name in "\\PC{0,12}", key in "pf|vfs|driver|vf", value in "\\PC{0,12}") {
        exercise(format!("[pool.{name}]\npf = \"ens1f0\"\n{key} = {value}\n").as_bytes());
        exercise(format!("[pool.\"{name}\"]\n{key} = \"{value}\"\n").as_bytes());
    }

    #[test]
    fn ranges_are_what_they_say(first in 0_u32..70_000, last in 0_u32..70_000, other in 0_u32..70_000) {
        let read: Result<VfRange, _> = format!("{first}-{last}").parse();
        prop_assert_eq!(read.is_ok(), first <= last && last <= 65_535);
        if let Ok(range) = read {
            prop_assert_eq!(range.contains(other), (first..=last).contains(&other));
        }
    }
}
