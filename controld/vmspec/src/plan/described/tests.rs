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
        r#"{"v":1,"nics":[{"name":"n","acpiIndex":1,"state":"off"},{"name":"m","link":"net1","state":"absent"}],"devices":{"podInterface":false,"virtioTransitional":true},"cpu":{}}"#,
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

#[test]
fn disks_are_recorded_as_they_were_said() {
    let all = r#"{"v":1,"disks":[
        {"name":"os","root":true,"bootOrder":2,"cache":"writethrough","errorPolicy":"stop","serial":"R","io":"default","source":{"overlay":{}}},
        {"name":"cd","kind":"cdrom","bus":"scsi","bootOrder":1},
        {"name":"data","serial":"D-1","io":"native","cache":"none","shareable":true,"readonly":true,"blockSize":{"matchVolume":{}}},
        {"name":"more","blockSize":{"custom":{"logical":512,"physical":4096,"discardGranularity":4096}}},
        {"name":"file","source":{"diskImage":{"size":1073741824}}},{"name":"layer","source":{"overlay":{}},"pciAddress":"0000:00:1a.0"},
        {"name":"plain","kind":"disk","blockSize":{"matchVolume":{"enabled":false}}}]}"#;
    let described = of(all).expect("built");
    let text = serde_json::to_string_pretty(&described).expect("written");
    insta::assert_snapshot!(text);
    assert_eq!(serde_json::from_str::<Described>(&text).expect("read"), described);
}

#[test]
fn what_is_wrong_with_a_disk_is_told_by_its_name_and_field() {
    let many: Vec<_> = (0..62).map(|nth| format!(r#"{{"name":"d{nth}"}}"#)).collect();
    let many = many.join(",");
    let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(64));
    let told: Vec<_> = [
        r#"{"name":"r","root":true,"kind":"cdrom","readonly":true,"source":{"files":{"label":"x"}}}"#,
        r#"{"name":"a\"b"}"#,
        r#"{"name":""}"#,
        &long,
        &many,
        r#"{"name":"d"},{"name":"d"}"#,
        r#"{"name":"d","root":true},{"name":"e","root":true}"#,
        r#"{"name":"d","bootOrder":1},{"name":"e","bootOrder":1}"#,
        r#"{"name":"d","bootOrder":0}"#,
        r#"{"name":"d","bootOrder":4294967295}"#,
        r#"{"name":"d","pciAddress":"0000:01:00.0"}"#,
        r#"{"name":"d","pciAddress":"0000:00:10.0"},{"name":"e","pciAddress":"0000:00:10.0"}"#,
        r#"{"name":"d","bus":"usb"}"#,
        r#"{"name":"d","serial":"more than twenty characters"}"#,
        r#"{"name":"d","serial":"a\u0000"}"#,
        r#"{"name":"d","cache":"unsafe"}"#,
        r#"{"name":"d","io":"io_uring"}"#,
        r#"{"name":"d","io":"native","cache":"writeback"}"#,
        r#"{"name":"d","errorPolicy":"panic"}"#,
        r#"{"name":"d","blockSize":{"custom":{"logical":500,"physical":4096}}}"#,
        r#"{"name":"d","blockSize":{"custom":{"logical":4096,"physical":512}}}"#,
        r#"{"name":"d","blockSize":{"custom":{"logical":512,"physical":4194304}}}"#,
        r#"{"name":"d","blockSize":{"custom":{"logical":4096,"physical":4096,"discardGranularity":512}}}"#,
        r#"{"name":"d","blockSize":{"custom":{"logical":512,"physical":512},"matchVolume":{}}}"#,
    ]
    .map(|disks| of(&format!(r#"{{"v":1,"disks":[{disks}]}}"#)).expect_err(disks))
    .into();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn devices_are_recorded_as_they_were_said_but_for_what_every_machine_has() {
    let all = r#"{"v":1,"machine":"pc-q35-9.2","firmware":{"useSerial":true},"startPaused":true,"devices":{"graphics":true,"video":{"type":"virtio"},
        "inputs":[{"name":"pen","type":"tablet"}],"watchdog":{"name":"dog","i6300esb":{"action":"poweroff"}},
        "panicDevices":[{"model":"pvpanic"},{},{"model":"hyperv"}],"blockMultiQueue":false,"networkMultiQueue":false,"ioThreads":"auto",
        "podInterface":true,"serialConsole":false,"memBalloon":false,"virtioTransitional":false},"nics":[{"name":"other","link":"net1","dhcpOptions":{"bootFileName":"pxelinux.0","ntpServers":["10.0.0.1"],"privateOptions":[{"option":240,"value":"x"}]}},{"name":"more","link":"net2","bootOrder":3,"state":"down","pciAddress":"0000:00:1E.0"},{"name":"pod","state":"up","macAddress":"02-00-00-00-00-AB","acpiIndex":16383}]}"#;
    let described = of(all).expect("built");
    let text = serde_json::to_string(&described).expect("written");
    insta::assert_snapshot!(text);
    assert_eq!(serde_json::from_str::<Described>(&text).expect("read"), described);
    assert!(
        of(r#"{"v":1,"devices":{"blockMultiQueue":true,"memBalloon":true,"serialConsole":true}}"#)
            .expect("as ever")
            .is_empty()
    );
}

#[test]
fn what_is_wrong_with_devices_is_told_by_the_field() {
    let told: Vec<_> = [
        r#"{"v":1,"machine":"virt"}"#,
        r#"{"v":1,"machine":"pc-q35-<x/>"}"#,
        r#"{"v":1,"devices":{"video":{"type":"qxl"}}}"#,
        r#"{"v":1,"devices":{"graphics":false,"video":{"type":"vga"}}}"#,
        r#"{"v":1,"devices":{"inputs":[{"name":"a","type":"keyboard"}]}}"#,
        r#"{"v":1,"devices":{"inputs":[{"name":"a","type":"tablet","bus":"ps2"}]}}"#,
        r#"{"v":1,"devices":{"inputs":[{"name":"a","type":"tablet"},{"name":"b","type":"tablet"}]}}"#,
        r#"{"v":1,"devices":{"watchdog":{"name":"a","i6300esb":{"action":"dump"}}}}"#,
        r#"{"v":1,"devices":{"panicDevices":[{"model":"s390"}]}}"#,
        r#"{"v":1,"devices":{"panicDevices":[{"model":"isa"},{"model":"isa"}]}}"#,
        r#"{"v":1,"devices":{"ioThreads":"supplementalPool"}}"#,
        r#"{"v":1,"nics":[{"name":"a","macAddress":"01:00:5e:00:00:01"}]}"#,
        r#"{"v":1,"nics":[{"name":"a","link":"net1","macAddress":"02:00:00:00:00:01"}]}"#,
        r#"{"v":1,"nics":[{"name":"a","macAddress":"02:00:00:00:00:01"},{"name":"b","macAddress":"02:00:00:00:00:02"}]}"#,
        r#"{"v":1,"nics":[{"name":"a","acpiIndex":1},{"name":"b","acpiIndex":2}]}"#,
        r#"{"v":1,"nics":[{"name":"a","link":"a/b"}]}"#,
        r#"{"v":1,"nics":[{"name":"a","dhcpOptions":{"tftpServerName":"a\u0000"}}]}"#,
        r#"{"v":1,"nics":[{"name":"a","dhcpOptions":{"ntpServers":["::1"]}}]}"#,
        r#"{"v":1,"nics":[{"name":"a","dhcpOptions":{"privateOptions":[{"option":1,"value":"x"}]}}]}"#,
        r#"{"v":1,"nics":[{"name":"a","dhcpOptions":{"privateOptions":[{"option":224,"value":"x"},{"option":224,"value":"y"}]}}]}"#,
        r#"{"v":1,"nics":[{"name":"a","acpiIndex":16384}]}"#,
        r#"{"v":1,"nics":[{"name":"a","acpiIndex":1},{"name":"b","link":"net1","acpiIndex":1}]}"#,
        r#"{"v":1,"nics":[{"name":"a","bootOrder":0}]}"#,
        r#"{"v":1,"nics":[{"name":"a","bootOrder":2}],"disks":[{"name":"d","bootOrder":2}]}"#,
        r#"{"v":1,"nics":[{"name":"a","pciAddress":"0000:81:00.1"}]}"#,
        r#"{"v":1,"nics":[{"name":"a","pciAddress":"0000:00:0f.0"}]}"#,
        r#"{"v":1,"nics":[{"name":"a","pciAddress":"0000:00:+1.0"}]}"#,
        r#"{"v":1,"nics":[{"name":"a","pciAddress":"0000:00:10.0"},{"name":"b","link":"net1","pciAddress":"0000:00:10.0"}]}"#,
    ]
    .map(|json| of(json).expect_err(json))
    .into();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn what_a_seed_is_made_of_is_known_by_volumes() {
    let of_seed = of(r#"{"v":1,"cloudInit":{"networkData":{"volume":"init","key":"networkdata"},"sshKeys":["keys"]}}"#);
    assert_eq!(of_seed.expect("built").cloud_init.ssh_keys, ["keys"]);
    let many = vec![r#""k""#; 17].join(",");
    let many = format!(r#"{{"v":1,"cloudInit":{{"sshKeys":[{many}]}}}}"#);
    let told = [
        r#"{"v":1,"cloudInit":{"networkData":{"volume":"../x","key":"k"}}}"#,
        r#"{"v":1,"cloudInit":{"networkData":{"volume":"x","key":""}}}"#,
        r#"{"v":1,"cloudInit":{"sshKeys":["a/b"]}}"#,
        &many,
    ]
    .map(|json| of(json).expect_err(json));
    insta::assert_snapshot!(told.join("\n"));
}
