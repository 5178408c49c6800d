use std::collections::BTreeMap;

use super::*;

#[test]
fn a_vf_that_is_not_told_of_is_explained() {
    let told = |enabled, vfs: u32| VfList {
        name: "ens1f0".to_owned(),
        pci: None,
        enabled,
        vfs: (0..vfs).map(|number| (number, VfSettings::default())).collect::<BTreeMap<_, _>>(),
        ..VfList::default()
    };
    let explained = |number, list: VfList| untold(pf(), number, &list).to_string();
    let head = "PF `0000:3b:00.0` (`ens1f0`)";
    assert_eq!(explained(8, told(8, 8)), format!("{head} has 8 VFs and no VF 8; see its `sriov_numvfs`"));
    assert!(
        explained(3, told(8, 0)).starts_with(&format!("the driver of {head} tells nothing of its 8 VFs, VF 3 among"))
    );
    let text = format!("{head} tells of 222 of its 256 VFs, and not of VF 250; let it have fewer (`sriov_numvfs`)");
    assert!(explained(250, told(256, 222)).starts_with(&text));
}

fn pf() -> PciAddr {
    "0000:3b:00.0".parse().expect("an address")
}
