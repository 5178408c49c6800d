//! What passes between a guest's functions, the card itself and other functions, and what a VLAN keeps out.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use tests::command::sh;
use tests::http;
use tests::netns;
use tests::node::BOOT_DEADLINE;
use tests::sriov::Card;
use tests::wait::wait_for;

/// A guest's function, as the card has it.
pub(super) struct Function {
    pub(super) vlan: u16,
    /// Without the last number.
    pub(super) subnet: &'static str,
}

/// Someone of a function's network who is no guest: a namespace with one link.
struct Stranger<'a> {
    card: &'a Card,
    vf: usize,
    name: String,
    at: PathBuf,
    link: String,
}

impl<'a> Stranger<'a> {
    /// Gives the link of `vf`, which the card puts into `vlan`, to a namespace of its own.
    fn on(card: &'a Card, vf: usize, vlan: u16) -> Result<Self> {
        let name = format!("stranger{vf}");
        let stranger = Self { card, vf, at: netns::create(&name)?, name, link: card.link(vf)? };
        card.set(vf, &format!("vlan {vlan}"))?;
        sh(&format!("ip link set {} netns {}", stranger.link, stranger.name))?;
        netns::run_in(&stranger.at, &format!("ip link set {} up", stranger.link))?;
        Ok(stranger)
    }

    fn asks(&self, subnet: &str) -> Result<bool> {
        netns::run_in(&self.at, &format!("ip address replace {subnet}.{}/24 dev {}", 30 + self.vf, self.link))?;
        answers(Some(&self.at), subnet)
    }

    /// Its link comes back under its name, which is nobody else's.
    fn leave(self) -> Result<()> {
        netns::remove(&self.name)?;
        let back = || Ok(self.card.link(self.vf).ok().filter(|link| *link == self.link));
        wait_for("link of a function", BOOT_DEADLINE, back)?;
        self.card.set(self.vf, "vlan 0")
    }
}

/// Whether the guest that has the first address of `subnet` answers who is in the namespace `at`, or here.
fn answers(at: Option<&Path>, subnet: &str) -> Result<bool> {
    let guest: IpAddr = format!("{subnet}.10").parse()?;
    let ask = || Ok(http::get(guest, "/cgi-bin/info").is_ok());
    at.map_or_else(ask, |at| netns::inside(at, ask))
}

/// A guest's function hears who is in its VLAN, whether on the card itself or on another function, and nobody else.
pub(super) fn is_kept_apart(card: &Card, tagged: &Function, plain: &Function) -> Result<()> {
    let pf = card.pf();
    let own = |function: &Function| format!("{}.1/24", function.subnet);
    sh(&format!("ip address add {} dev {pf}", own(plain)))?;
    ensure!(answers(None, plain.subnet)?, "the card itself does not reach the function without a VLAN");
    sh(&format!("ip address add {} dev {pf}", own(tagged)))?;
    ensure!(!answers(None, tagged.subnet)?, "frames without a tag reach VLAN {}", tagged.vlan);
    sh(&format!("ip address del {} dev {pf}", own(tagged)))?;

    sh(&format!("ip link add link {pf} name tagged type vlan id {}", tagged.vlan))?;
    sh("ip link set tagged up")?;
    sh(&format!("ip address add {} dev tagged", own(tagged)))?;
    ensure!(answers(None, tagged.subnet)?, "the card itself does not reach VLAN {}", tagged.vlan);
    sh("ip link del tagged")?;

    let (inside, outside) = (Stranger::on(card, 5, tagged.vlan)?, Stranger::on(card, 6, 0)?);
    ensure!(inside.asks(tagged.subnet)?, "a function of VLAN {} does not reach another one", tagged.vlan);
    ensure!(!inside.asks(plain.subnet)?, "a function of VLAN {} reaches one without", tagged.vlan);
    ensure!(outside.asks(plain.subnet)?, "a function without a VLAN does not reach another one");
    ensure!(!outside.asks(tagged.subnet)?, "a function without a VLAN reaches VLAN {}", tagged.vlan);
    inside.leave()?;
    outside.leave()
}
