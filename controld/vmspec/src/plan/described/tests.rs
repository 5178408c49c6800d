use super::*;
use proto::vm::VmDescription;

fn of(json: &str) -> Result<Described, String> {
    let description = VmDescription::parse(json).expect(json);
    Described::of(description).map_err(|error| error.to_string())
}

#[test]
fn a_described_machine_is_recorded_as_it_was_said() {
    let all = r#"{"v":1,"cpu":{"topology":{"sockets":2,"cores":2,"threads":2},"features":[{"name":"aes","policy":"disable"},{"name":"vmx"}]},
        "firmware":{"serial":"S-1"},"chassis":{"asset":"42"},
        "clock":{"timezone":"America/Argentina/Buenos_Aires","timer":{"rtc":{"tickPolicy":"delay","track":"wall"},"pit":{"present":false},"kvm":{}}},
        "features":{"smm":{},"kvm":{"hidden":true},"hyperv":{"spinlocks":{"spinlocks":8191},"vendorid":{"vendorid":"a maker"}}},
        "endsAtReboot":true}"#;
    let described = of(all).expect("built");
    let text = serde_json::to_string(&described).expect("written");
    insta::assert_snapshot!(text);
    assert_eq!(serde_json::from_str::<Described>(&text).expect("read"), described);
    assert!(of(r#"{"v":1}"#).expect("nothing").is_empty());
    assert_eq!(serde_json::to_string(&Described::default()).expect("written"), "{}");
    let utc = of(r#"{"v":1,"clock":{"utc":{"offsetSeconds":-3600}}}"#).expect("built");
    assert_eq!(utc.clock.and_then(|clock| clock.shows), Some(Shows::Utc(-3600)));
}

#[test]
fn what_is_not_built_or_wrong_is_told_by_its_field() {
    let long = format!(r#"{{"v":1,"chassis":{{"sku":"{}"}}}}"#, "x".repeat(129));
    let told: Vec<_> = [
        r#"{"v":1,"machine":"pc","startPaused":true,"disks":[{"name":"a"}],"devices":{"graphics":true,"inputs":[{"name":"pen","type":"tablet"}]},"firmware":{"serial":"S","useSerial":true},"cpu":{}}"#,
        r#"{"v":1,"cpu":{"topology":{"sockets":0,"cores":1,"threads":1}}}"#,
        r#"{"v":1,"cpu":{"topology":{"sockets":1,"cores":256,"threads":1}}}"#,
        r#"{"v":1,"cpu":{"features":[{"name":"a\"b"}]}}"#,
        r#"{"v":1,"cpu":{"features":[{"name":"aes","policy":"maybe"}]}}"#,
        r#"{"v":1,"firmware":{"serial":"a\nb"}}"#,
        &long,
        r#"{"v":1,"clock":{"timezone":"../../etc/shadow"}}"#,
        r#"{"v":1,"clock":{"timezone":""}}"#,
        r#"{"v":1,"clock":{"timezone":"UTC","utc":{}}}"#,
        r#"{"v":1,"clock":{"utc":{"offsetSeconds":9000000000}}}"#,
        r#"{"v":1,"clock":{"timer":{"hpet":{"tickPolicy":"never"}}}}"#,
        r#"{"v":1,"clock":{"timer":{"rtc":{"track":"sun"}}}}"#,
        r#"{"v":1,"features":{"hyperv":{"spinlocks":{"spinlocks":1}}}}"#,
        r#"{"v":1,"features":{"hyperv":{"vendorid":{"vendorid":"more than twelve"}}}}"#,
        r#"{"v":1,"features":{"hyperv":{"vendorid":{"vendorid":"a,b=c"}}}}"#,
    ]
    .map(|json| of(json).expect_err(json))
    .into();
    insta::assert_snapshot!(told.join("\n"));
}
