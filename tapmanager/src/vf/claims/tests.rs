//! What a person sees of claims and does about them, on a made-up sysfs. Claims themselves are tested in the crate `sriov`.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use proto::tap::{ErrorCode, MAX_VF_PAGE, VfPage, VfStep};

use super::*;
use crate::sys::testbed::apart;
use crate::vf::address::{local, wire};

const PF: &str = "0000:3b:00.0";
const VF: &str = "0000:3b:02.1";
const BOOT: &str = "boot-1";
const NOTE: &str = include_str!("../notes/fixtures/v1.json");

#[tokio::test]
async fn a_list_has_all_functions_and_who_has_them() {
    let bed = Bed::usual();
    bed.note(NOTE);
    bed.note(&NOTE.replace(VF, "0000:3b:02.7").replace(r#""owner": "pod""#, r#""owner": "by-hand:me""#));
    fs::write(bed.dir.path().join("claims/notes.txt"), "").expect("written");
    bed.pf("0000:5e:00.0", "ice");
    bed.set("0000:5e:00.0", "sriov_numvfs", "many");
    let VfPage { pfs, vfs, trouble, more } = bed.claims().list(None).await.expect("listed");
    let [pf] = pfs.as_slice() else { panic!("{pfs:?}") };
    assert_eq!((pf.total, pf.enabled, pf.used, pf.autoprobe), (64, 2, 1, Some(false)));
    assert_eq!((pf.driver.as_deref(), pf.netdevs.as_slice()), (Some("ice"), &["ens1f0".to_owned()][..]));
    let [first, second] = vfs.as_slice() else { panic!("{vfs:?}") };
    assert_eq!((first.number, first.group, first.vfio, first.claim.as_ref()), (0, Some(6), false, None));
    let holder = second.claim.as_ref().expect("claimed");
    assert_eq!((second.vf.to_string().as_str(), holder.owner.as_str(), holder.step), (VF, "pod", VfStep::InUse));
    assert_eq!((second.driver.as_deref(), second.vfio), (Some("vfio-pci"), true));
    assert!(!more);
    for wanted in ["notes.txt", "PF `0000:5e:00.0`: ", "`0000:3b:02.7` is claimed by `by-hand:me` and is not shown"] {
        assert!(trouble.iter().any(|line| line.contains(wanted)), "{wanted}: {trouble:?}");
    }
    assert_eq!(survey(&bed.sysfs(), &bed.notes()).expect("without a daemon").vfs, vfs);
}

#[tokio::test]
async fn a_long_list_comes_in_pages() {
    let bed = Bed::empty();
    bed.pf(PF, "ice");
    for number in 0..MAX_VF_PAGE + 2 {
        let (device, function) = (number / 8, number % 8);
        bed.vf(
            u32::try_from(number).expect("few"),
            &format!("0000:3b:{device:02x}.{function}").replace(":00.0", ":1f.0"),
        );
    }
    let claims = bed.claims();
    let first = claims.list(None).await.expect("listed");
    assert_eq!((first.pfs.len(), first.vfs.len(), first.more), (1, MAX_VF_PAGE, true));
    let last = first.vfs.last().expect("full").vf;
    let rest = claims.list(Some(last)).await.expect("listed");
    assert_eq!((rest.pfs.len(), rest.vfs.len(), rest.more), (0, 2, false));
    assert!(rest.vfs.iter().all(|vf| local(vf.vf) > local(last)));
}

#[tokio::test]
async fn a_function_that_the_kernel_holds_hides_no_other() {
    let bed = Bed::usual();
    bed.pf("0000:5e:00.0", "ice");
    let held = bed.device("0000:5e:00.0").join("sriov_numvfs");
    fs::remove_file(&held).expect("removed");
    nix::unistd::mkfifo(&held, nix::sys::stat::Mode::S_IRWXU).expect("a file that waits");
    let claims = bed.claims();
    let page = claims.list(None).await.expect("listed");
    assert_eq!((page.pfs.len(), page.vfs.len()), (1, 2));
    let [trouble] = page.trouble.as_slice() else { panic!("{:?}", page.trouble) };
    assert!(
        trouble.starts_with("PF `0000:5e:00.0`: the kernel does not tell of `0000:5e:00.0` within 2 s"),
        "{trouble}"
    );
    fs::write(&held, "3\n").expect("whoever read goes on");
}

#[test]
fn a_function_is_explained() {
    apart(async || {
        let bed = Bed::usual();
        bed.plain("0000:3b:03.0", "e1000e");
        bed.group(6, "0000:3b:03.0");
        let claims = bed.claims();
        let lines = claims.explain(addr("0000:3b:02.0")).await.expect("explained").explanation.join("\n");
        for wanted in [
            "VF 0 of PF `0000:3b:00.0` (netdev `ens1f0`, driver `ice`)",
            "driver `iavf`, driver_override `none`",
            "IOMMU group 6, with `0000:3b:03.0` (driver `e1000e`)",
            "its settings at the PF are not known",
            "would be refused: IOMMU group 6 has `0000:3b:03.0`",
        ] {
            assert!(lines.contains(wanted), "{wanted}:\n{lines}");
        }
        let lines = claims.explain(addr(VF)).await.expect("explained").explanation.join("\n");
        assert!(lines.contains("files `") && lines.contains("it may be handed out as it is, on vfio-pci"), "{lines}");
        let error = claims.explain(addr(PF)).await.expect_err("a PF");
        assert!(error.is_conflict() && Chain(&error).to_string().contains("it is a physical function"), "{error}");
    });
}

#[test]
fn a_claim_is_explained_also_if_its_function_is_gone() {
    apart(async || {
        let bed = Bed::usual();
        bed.note(NOTE);
        bed.note(&NOTE.replace(VF, "0000:3b:02.7"));
        let claims = bed.claims();
        for (vf, standing) in [(VF, "the VF that was claimed is gone"), ("0000:3b:02.7", "there is no such device")] {
            let detail = claims.explain(addr(vf)).await.expect("explained");
            assert_eq!(detail.summary.claim.expect("claimed").owner, "pod");
            let lines = detail.explanation.join("\n");
            for wanted in [
                standing,
                "claimed by pod `pod`, which is at `InUse`; came as `net1` in `/run/netns/pod`",
                "it gets back: VLAN 100 qos 0 proto 802.1q, address 00:00:00:00:00:00, rate 0 to 0 Mbit/s",
                "asked for: address 02:00:00:00:00:07",
                "else set where the driver can: spoof check on, trust off",
            ] {
                assert!(lines.contains(wanted), "{wanted}:\n{lines}");
            }
        }
    });
}

#[test]
fn a_pods_claim_is_released_by_force_alone() {
    apart(async || {
        let bed = Bed::usual();
        bed.note(NOTE);
        let claims = bed.claims();
        let error = claims.release(addr(VF), false).await.expect_err("a pod's");
        assert!(error.to_string().starts_with("`0000:3b:02.1` is claimed for pod `pod` and not by hand"), "{error}");
        let done = claims.release(addr(VF), true).await.expect("released");
        assert_eq!(done.removed, ["claim of `0000:3b:02.1` by `pod`: it is gone, so nothing was put back"]);
        assert_eq!(claims.owners(), BTreeSet::new());
        assert_eq!(claims.release(addr(VF), false).await.expect("fine"), Done::default());
    });
}

#[test]
fn a_repair_forgets_what_is_over_and_leaves_what_is_somebodys() {
    apart(async || {
        let bed = Bed::usual();
        let note = |vf: &str, owner: &str| {
            NOTE.replace(VF, vf).replace(r#""owner": "pod""#, &format!(r#""owner": "{owner}""#))
        };
        bed.note(NOTE);
        bed.note(&note("0000:3b:02.2", "stray"));
        bed.note(&note("0000:3b:02.3", "by-hand:me").replace(BOOT, "boot-0"));
        bed.note(&note("0000:3b:02.4", "by-hand:me").replace("in_use", "observed"));
        fs::write(bed.dir.path().join("claims/notes.txt"), "").expect("written");
        let claims = bed.claims();
        let done = claims.repair(|pod| pod.as_str() == "pod").await.expect("repaired");
        assert_eq!(
            done.removed,
            [
                "claim of `0000:3b:02.2` by `stray`: it is gone, so nothing was put back",
                "note of `0000:3b:02.3` of `by-hand:me`, which is over or of an earlier boot",
                "note of `0000:3b:02.4` of `by-hand:me`, which is over or of an earlier boot",
            ]
        );
        let [unread, of_pod] = done.kept.as_slice() else { panic!("{done:?}") };
        assert!(unread.contains("notes.txt") && of_pod.starts_with("`0000:3b:02.1`: pod `pod` has it; "), "{done:?}");
        let left: Vec<PciAddr> = bed.notes().all().expect("read").0.iter().map(Claim::vf).collect();
        assert_eq!(left, [addr(VF)]);
    });
}

#[test]
fn a_claim_by_hand_that_fails_leaves_nothing_and_is_counted() {
    apart(async || {
        let bed = Bed::usual();
        let claims = bed.claims();
        // It has its own driver.
        let refused =
            claims.claim_by_hand(addr("0000:3b:02.0"), "me", VfSettings::default()).await.expect_err("refused");
        assert_eq!(refused.code(), ErrorCode::BadRequest, "{refused}");
        // Its PF has no netdev.
        let failed = claims.claim_by_hand(addr(VF), "me", VfSettings::default()).await.expect_err("fails");
        assert!(Chain(&failed).to_string().starts_with("failed to set up `0000:3b:02.1` at its PF"), "{failed}");
        assert_eq!(bed.notes().all().expect("read").0, []);
        let page = claims.list(None).await.expect("listed");
        assert_eq!((page.pfs[0].failed, page.pfs[0].used), (2, 0));
        bed.note(&bed.of_this_vf());
        let claimed = claims.claim_by_hand(addr(VF), "me", VfSettings::default()).await.expect_err("a pod's");
        assert!(claimed.to_string().contains("claimed by `pod`"), "{claimed}");
        assert_eq!(claimed.code(), ErrorCode::Conflict);
        assert_eq!(bed.notes().all().expect("read").0.len(), 1);
    });
}

/// A node with a PF of `ice`, VF 0 of `iavf` and VF 1 on vfio-pci.
struct Bed {
    dir: tempfile::TempDir,
}

impl Bed {
    fn empty() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        for folder in ["sys/bus/pci/devices", "sys/kernel/iommu_groups", "sys/devices", "dev/vfio"] {
            fs::create_dir_all(dir.path().join(folder)).expect("made");
        }
        fs::create_dir_all(dir.path().join("sys/bus/pci/drivers/vfio-pci")).expect("made");
        ClaimNotes::open(dir.path()).expect("notes");
        Self { dir }
    }

    fn usual() -> Self {
        let bed = Self::empty();
        bed.pf(PF, "ice");
        bed.vf(0, "0000:3b:02.0");
        bed.driver("0000:3b:02.0", "iavf");
        bed.vf(1, VF);
        bed.driver(VF, "vfio-pci");
        bed.group(6, "0000:3b:02.0");
        bed.group(7, VF);
        fs::write(bed.dir.path().join("dev/vfio/7"), "").expect("written");
        bed
    }

    fn claims(&self) -> Claims {
        Claims::load(self.sysfs(), self.notes(), BOOT.to_owned(), Arc::new(Faults::none())).expect("claims")
    }

    fn sysfs(&self) -> Sysfs {
        Sysfs::new(&self.dir.path().join("sys"), &self.dir.path().join("dev"))
    }

    fn notes(&self) -> ClaimNotes {
        ClaimNotes::peek(self.dir.path())
    }

    fn note(&self, text: &str) {
        let claim: Claim = serde_json::from_str(text).expect("a claim");
        fs::write(self.dir.path().join(format!("claims/{}.json", claim.vf())), text).expect("written");
    }

    /// A note of the VF that is there.
    fn of_this_vf(&self) -> String {
        let incarnation = fs::metadata(self.device(VF)).expect("there").ino();
        let own = NOTE.replace(r#""number": 3"#, r#""number": 1"#);
        own.replace(r#""incarnation": 41"#, &format!(r#""incarnation": {incarnation}"#))
    }

    fn device(&self, addr: &str) -> PathBuf {
        self.dir.path().join("sys/bus/pci/devices").join(addr)
    }

    fn set(&self, addr: &str, file: &str, text: &str) {
        fs::write(self.device(addr).join(file), format!("{text}\n")).expect("written");
    }

    fn plain(&self, addr: &str, driver: &str) {
        fs::create_dir(self.dir.path().join("sys/devices").join(addr)).expect("made");
        symlink(format!("../../../devices/{addr}"), self.device(addr)).expect("linked");
        self.set(addr, "driver_override", "(null)");
        self.set(addr, "class", "0x020000");
        if !driver.is_empty() {
            self.driver(addr, driver);
        }
    }

    fn driver(&self, addr: &str, driver: &str) {
        symlink(Path::new("../../bus/pci/drivers").join(driver), self.device(addr).join("driver")).expect("linked");
    }

    fn pf(&self, addr: &str, driver: &str) {
        self.plain(addr, driver);
        for (file, value) in [("sriov_totalvfs", "64"), ("sriov_numvfs", "2"), ("sriov_drivers_autoprobe", "0")] {
            self.set(addr, file, value);
        }
        fs::create_dir_all(self.device(addr).join("net/ens1f0")).expect("made");
    }

    fn vf(&self, number: u32, addr: &str) {
        self.plain(addr, "");
        symlink(format!("../{PF}"), self.device(addr).join("physfn")).expect("linked");
        symlink(format!("../{addr}"), self.device(PF).join(format!("virtfn{number}"))).expect("linked");
    }

    fn group(&self, number: u32, addr: &str) {
        let group = self.dir.path().join(format!("sys/kernel/iommu_groups/{number}"));
        fs::create_dir_all(group.join("devices")).expect("made");
        symlink(format!("../../kernel/iommu_groups/{number}"), self.device(addr).join("iommu_group")).expect("linked");
        symlink(format!("../../../../devices/{addr}"), group.join("devices").join(addr)).expect("linked");
    }
}

fn addr(text: &str) -> PciAddr {
    let addr = text.parse().expect("an address");
    assert_eq!(wire(addr).to_string(), text);
    addr
}
