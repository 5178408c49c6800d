use super::input::{Input, InputError};
use super::*;
use crate::PciAddr;
use crate::mac::MacError;

#[test]
fn what_a_user_asks_for_becomes_settings() {
    let input = Input {
        mac: Some("02:00:00:00:00:0A"),
        vlan: Some(4094),
        qos: Some(7),
        proto: Some("802.1AD"),
        spoofchk: Some("off"),
        trust: Some("on"),
        link_state: Some("enable"),
        min_rate: Some(10),
        max_rate: Some(10),
    };
    let expected = VfSettings {
        vlan: Some(Vlan { id: 4094, qos: 7, proto: VlanProto::Ad }),
        mac: Some(Mac([2, 0, 0, 0, 0, 10])),
        rate: Some(Rate { min: 10, max: 10 }),
        spoofchk: Some(false),
        trust: Some(true),
        link_state: Some(LinkState::Enable),
    };
    assert_eq!(input.settings(), Ok(expected));
    assert_eq!(Input::default().settings(), Ok(VfSettings::default()));
    let none = Input { vlan: Some(0), min_rate: Some(10), ..Input::default() }.settings().expect("no limit above");
    assert_eq!((none.vlan, none.rate), (Some(Vlan::default()), Some(Rate { min: 10, max: 0 })));
}

#[test]
fn numbers_that_are_too_high_are_refused() {
    let vlan = Input { vlan: Some(4095), ..Input::default() };
    assert_eq!(told(&vlan), "VLAN id is 4095, the highest is 4094");
    let qos = Input { vlan: Some(1), qos: Some(8), ..Input::default() };
    assert_eq!(told(&qos), "VLAN priority is 8, the highest is 7");
    let huge = Input { vlan: Some(1), qos: Some(257), ..Input::default() };
    assert_eq!(told(&huge), "VLAN priority is 257, the highest is 7");
    let rates = Input { min_rate: Some(11), max_rate: Some(10), ..Input::default() };
    assert!(told(&rates).starts_with("the least rate of 11 Mbit/s is more than the highest of 10"));
}

#[test]
fn a_priority_and_an_outer_tag_need_a_vlan() {
    for vlan in [None, Some(0)] {
        let qos = Input { vlan, qos: Some(1), ..Input::default() };
        assert_eq!(told(&qos), "VLAN priority is set, which needs a VLAN; set its id as well (1 to 4094)");
        let proto = Input { vlan, proto: Some("802.1ad"), ..Input::default() };
        assert!(told(&proto).starts_with("VLAN protocol 802.1ad is set"));
    }
    let zero = Input { qos: Some(0), proto: Some("802.1q"), ..Input::default() };
    assert_eq!(zero.settings(), Ok(VfSettings::default()));
}

#[test]
fn words_that_are_not_known_are_refused_with_those_that_are() {
    let word = |input: Input<'_>| told(&input);
    assert_eq!(word(Input { trust: Some("yes"), ..Input::default() }), "trust is `yes`, it can be `on` or `off`");
    assert!(word(Input { spoofchk: Some(""), ..Input::default() }).starts_with("spoof check is ``"));
    assert!(word(Input { link_state: Some("up\n"), ..Input::default() }).starts_with("link state is `up\\n`"));
    assert!(word(Input { vlan: Some(1), proto: Some("802.1x"), ..Input::default() }).starts_with("VLAN protocol"));
}

#[test]
fn an_address_is_one_nics() {
    for bad in ["01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"] {
        let input = Input { mac: Some(bad), ..Input::default() };
        assert!(matches!(input.settings(), Err(InputError::Mac(MacError::NotOfOne { .. }))), "{bad}");
    }
    for bad in ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "02-00-00-00-00-01", "2:0:0:0:0:1", "+2:00:00:00:00:01"] {
        let input = Input { mac: Some(bad), ..Input::default() };
        assert!(matches!(input.settings(), Err(InputError::Mac(MacError::Form { .. }))), "{bad}");
    }
}

#[test]
fn only_what_differs_is_written_and_in_order() {
    let mut port = Port::new(reported());
    let asked = VfSettings {
        vlan: Some(Vlan { id: 5, ..Vlan::default() }),
        mac: Some(Mac([2; 6])),
        rate: Some(Rate { min: 0, max: 100 }),
        spoofchk: Some(true),
        trust: Some(false),
        link_state: Some(LinkState::Disable),
    };
    let wanted = Wanted { asked: asked.clone(), otherwise: VfSettings::default() };
    assert_eq!(port.apply(&wanted).expect("applied"), []);
    let kinds = [Kind::Vlan, Kind::Mac, Kind::Rate, Kind::Spoofchk, Kind::Trust, Kind::LinkState];
    assert_eq!(port.written(), kinds);
    assert_eq!(port.reported, asked);
    port.writes.clear();
    assert_eq!(port.apply(&wanted).expect("applied again"), []);
    assert_eq!(port.written(), [Kind::Mac], "an address may be one that the VF gave itself");
}

#[test]
fn what_the_driver_cannot_is_an_error_only_if_it_was_asked_for() {
    let otherwise = VfSettings { spoofchk: Some(true), trust: Some(false), ..VfSettings::default() };
    let mut port = Port { refused: vec![Kind::Spoofchk, Kind::Trust], ..Port::new(reported()) };
    let unasked = Wanted { asked: VfSettings::default(), otherwise: otherwise.clone() };
    assert_eq!(port.apply(&unasked).expect("applied"), [Kind::Spoofchk, Kind::Trust]);
    let asked = Wanted { asked: otherwise, otherwise: VfSettings::default() };
    let error = port.apply(&asked).expect_err("asked for");
    let text = "failed to set the spoof check of VF 3 of `0000:3b:00.0` to on; do not ask for it on this card";
    assert_eq!(error.to_string(), text);
}

#[test]
fn what_the_driver_does_not_report_is_not_written() {
    let mut port = Port::new(VfSettings { spoofchk: None, rate: None, ..reported() });
    let otherwise = VfSettings { spoofchk: Some(true), ..VfSettings::default() };
    let wanted = Wanted { asked: VfSettings::default(), otherwise };
    assert_eq!((port.apply(&wanted).expect("applied"), port.written()), (vec![Kind::Spoofchk], vec![]));
    let asked = VfSettings { rate: Some(Rate::default()), mac: Some(Mac([2; 6])), ..VfSettings::default() };
    let error = port.apply(&Wanted { asked, ..Wanted::default() }).expect_err("not reported");
    assert!(matches!(error, SettingsError::Unreported { .. }), "{error}");
    assert_eq!(port.written(), []);
}

#[test]
fn a_value_that_does_not_hold_is_an_error_with_both() {
    let mut port = Port { ignored: vec![Kind::Rate], ..Port::new(reported()) };
    let asked = VfSettings { rate: Some(Rate { min: 1, max: 2 }), ..VfSettings::default() };
    let error = port.apply(&Wanted { asked, ..Wanted::default() }).expect_err("ignored");
    let text = "the rate of VF 3 of `0000:3b:00.0` is 0 to 0 Mbit/s after it was set to 1 to 2 Mbit/s; ";
    assert!(error.to_string().starts_with(text), "{error}");
}

#[test]
fn settings_are_put_back_as_they_were() {
    let mut port = Port::new(reported());
    let saved = port.reported.clone();
    port.reported.vlan = Some(Vlan { id: 5, ..Vlan::default() });
    port.reported.trust = Some(false);
    port.restore(&saved).expect("restored");
    assert_eq!((port.written(), &port.reported), (vec![Kind::Vlan, Kind::Trust], &saved));
    port.writes.clear();
    port.restore(&VfSettings { link_state: None, ..saved }).expect("nothing to do");
    assert_eq!(port.written(), []);
    port.ignored = vec![Kind::Mac];
    let error = port.restore(&VfSettings { mac: Some(Mac([4; 6])), ..VfSettings::default() }).expect_err("ignored");
    assert!(matches!(error, SettingsError::Differs { .. }), "{error}");
}

#[test]
fn settings_are_noted_in_words() {
    let vlan = Some(Vlan { id: 5, qos: 1, proto: VlanProto::Ad });
    let settings =
        VfSettings { vlan, mac: Some(Mac([2; 6])), link_state: Some(LinkState::Auto), ..VfSettings::default() };
    let json = serde_json::to_string(&settings).unwrap();
    let text = r#"{"vlan":{"id":5,"qos":1,"proto":"802.1ad"},"mac":"02:02:02:02:02:02","rate":null,"spoofchk":null,"#;
    assert_eq!(json, format!(r#"{text}"trust":null,"link_state":"auto"}}"#));
    assert_eq!(serde_json::from_str::<VfSettings>(&json).unwrap(), settings);
}

/// A PF's driver with its one VF.
struct Port {
    reported: VfSettings,
    writes: Vec<Attribute>,
    /// What it cannot do.
    refused: Vec<Kind>,
    /// What it takes and does not do.
    ignored: Vec<Kind>,
}

impl Port {
    fn new(reported: VfSettings) -> Self {
        Self { reported, writes: Vec::new(), refused: Vec::new(), ignored: Vec::new() }
    }

    fn apply(&mut self, wanted: &Wanted) -> Result<Unsupported, SettingsError> {
        apply(self, pf(), 3, wanted)
    }

    fn restore(&mut self, saved: &VfSettings) -> Result<(), SettingsError> {
        restore(self, pf(), 3, saved)
    }

    fn written(&self) -> Vec<Kind> {
        self.writes.iter().map(Attribute::kind).collect()
    }
}

impl PfControl for Port {
    fn read(&mut self, _: PciAddr, _: u32) -> Result<VfSettings, ControlError> {
        Ok(self.reported.clone())
    }

    fn write(&mut self, of: PciAddr, number: u32, attribute: Attribute) -> Result<(), ControlError> {
        assert_eq!((of, number), (pf(), 3));
        if self.refused.contains(&attribute.kind()) {
            return Err(ControlError::Unsupported);
        }
        self.writes.push(attribute);
        if !self.ignored.contains(&attribute.kind()) {
            self.reported.set(attribute);
        }
        Ok(())
    }
}

fn reported() -> VfSettings {
    VfSettings {
        vlan: Some(Vlan::default()),
        mac: Some(Mac([0; 6])),
        rate: Some(Rate::default()),
        spoofchk: Some(false),
        trust: Some(true),
        link_state: Some(LinkState::Auto),
    }
}

fn pf() -> PciAddr {
    "0000:3b:00.0".parse().expect("an address")
}

fn told(input: &Input<'_>) -> String {
    input.settings().expect_err("refused").to_string()
}
