use super::*;

#[test]
fn addresses_are_parsed_strictly_and_printed_as_the_kernel_does() {
    for good in ["0000:3b:02.1", "ffff:ff:1f.7", "10000:e1:00.0"] {
        assert_eq!(addr(good).to_string(), good);
    }
    assert_eq!(addr("0000:3B:02.1").to_string(), "0000:3b:02.1");
    for bad in ["", "3b:02.1", "0000:3b:20.0", "0000:3b:00.8", "0000:3b:0.0", "0000:+b:00.0", "0000:3b:00.0 ", "é"] {
        assert!(bad.parse::<PciAddr>().is_err(), "{bad:?} was taken");
    }
    let error = "\u{1b}[2J".parse::<PciAddr>().expect_err("no address");
    assert_eq!(error.to_string(), "`?[2J` is not a PCI address such as `0000:3b:02.1`");
}

#[test]
fn a_wide_domain_comes_after_every_narrow_one() {
    let mut addrs = ["10000:00:00.0", "0000:3b:02.1", "ffff:ff:1f.7", "0000:3b:02.0"].map(addr);
    addrs.sort();
    assert_eq!(addrs, ["0000:3b:02.0", "0000:3b:02.1", "ffff:ff:1f.7", "10000:00:00.0"].map(addr));
}

#[test]
fn a_note_has_an_address_as_text_and_takes_no_other() {
    let json = serde_json::to_string(&addr("10000:e1:00.0")).unwrap();
    assert_eq!(json, r#""10000:e1:00.0""#);
    assert_eq!(serde_json::from_str::<PciAddr>(&json).unwrap(), addr("10000:e1:00.0"));
    assert!(serde_json::from_str::<PciAddr>(r#""3b:02.1""#).is_err());
}

fn addr(text: &str) -> PciAddr {
    text.parse().expect("a PCI address")
}
