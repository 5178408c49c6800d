//! The CNI plugin `virtlet-sriov`: gives a container a VF of a PF, with address, VLAN and whatever an IPAM plugin says,
//! and puts it back.
//!
//! `bin/virtlet-sriov.rs` calls [`run`]. It is a process of its own that lives for one command: nothing of the daemon
//! runs in it, and whoever calls CNI plugins may call it. The protocol is `rscni-plugin`'s (`docs/adr/0028`), which
//! calls back here.
//!
//! | module | what it knows |
//! |---|---|
//! | [`config`], [`pools`], [`range`], [`reader`] | what is asked for |
//! | [`record`], [`lock`] | who has which VF, and what it was like |
//! | [`select`] | which VF is free |
//! | [`add`], [`give_back`], [`check`] | what is done with it |
//! | [`ipam`] | IPAM plugins |
//! | [`wiring`], [`kernel`] | netdevs |
//! | [`failure`] | errors and their codes |
//!
//! Standard output has CNI's JSON and nothing else. What a person may want to know besides goes to standard error.

mod add;
mod check;
mod config;
mod failure;
mod give_back;
mod ipam;
mod kernel;
mod lock;
mod pools;
mod range;
mod reader;
mod record;
mod select;
mod shape;
mod wiring;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rscni_plugin::cni::{Cni, Plugin};
use rscni_plugin::error::Error;
use rscni_plugin::types::{Args, CNIResult, NetConf};
use rscni_plugin::version::SpecVersion;
use serde_json::Value;
use sriov::Sysfs;

#[cfg(any(test, feature = "exercise"))]
pub use pools::exercise;

use config::{CniArgs, Source, Wish};
use failure::{Code, Failure};
use give_back::give_back;
use ipam::Ipam;
use record::{Owner, Store};
use wiring::Node;

/// Versions of the CNI specification that we speak.
const VERSIONS: [SpecVersion; 5] = [
    SpecVersion::new(0, 3, 0),
    SpecVersion::new(0, 3, 1),
    SpecVersion::new(0, 4, 0),
    SpecVersion::new(1, 0, 0),
    SpecVersion::new(1, 1, 0),
];
/// How GC lists attachments for plugins that were written before the specification was final.
const DRAFT_ATTACHMENTS: &str = "cni.dev/attachments";

/// Where things are on the node.
#[derive(Debug, Clone)]
struct Places {
    pools: PathBuf,
    state: PathBuf,
    sysfs: Sysfs,
    boot_id: PathBuf,
    /// How long a plugin waits for another one.
    patience: Duration,
    /// How long an IPAM plugin may take.
    ipam_deadline: Duration,
}

/// What every command needs.
#[derive(Debug)]
struct Context {
    sysfs: Sysfs,
    store: Store,
    boot: String,
}

/// The plugin. `node` gives it the kernel's network, as none may be needed.
struct Sriov<F> {
    places: Places,
    node: F,
}

/// Does what the environment and standard input say, as the CNI specification has it.
#[must_use]
pub fn run() -> ExitCode {
    let plugin = Plugin::new(SpecVersion::CURRENT, VERSIONS.to_vec()).msg(
        "virtlet-sriov: CNI plugin that gives containers and VMs SR-IOV virtual functions; see docs/sriov-plugin.md",
    );
    let places = Places::default();
    let sysfs = places.sysfs.clone();
    match plugin.run(&Sriov { places, node: || kernel::open(sysfs.clone()) }) {
        Ok(()) => ExitCode::SUCCESS,
        // It is on standard output already.
        Err(_) => ExitCode::FAILURE,
    }
}

// === impl Places ===

impl Default for Places {
    fn default() -> Self {
        Self {
            pools: "/etc/virtlet/sriov.toml".into(),
            state: "/var/lib/cni/virtlet-sriov".into(),
            sysfs: Sysfs::new(Path::new("/sys"), Path::new("/dev")),
            boot_id: "/proc/sys/kernel/random/boot_id".into(),
            patience: lock::PATIENCE,
            ipam_deadline: ipam::DEADLINE,
        }
    }
}

// === impl Context ===

impl Context {
    fn new(places: &Places) -> Result<Self, Failure> {
        let boot = fs::read_to_string(&places.boot_id);
        let boot =
            boot.map_err(Failure::because(Code::Io, format!("failed to read `{}`", places.boot_id.display())))?;
        let store = Store::new(&places.state, places.patience);
        Ok(Self { sysfs: places.sysfs.clone(), store, boot: boot.trim().to_owned() })
    }

    /// Says something to whoever reads the runtime's log.
    fn log(&self, text: &str) {
        // Nobody is left to tell if this fails.
        let _ = writeln!(io::stderr(), "virtlet-sriov: {text}");
    }
}

// === impl Sriov ===

impl<N: Node, F: Fn() -> Result<N, Failure>> Cni for Sriov<F> {
    fn add(&self, args: Args) -> Result<CNIResult, Error> {
        Ok(self.do_add(&args)?)
    }

    fn del(&self, args: Args) -> Result<(), Error> {
        Ok(self.do_del(&args)?)
    }

    fn check(&self, args: Args) -> Result<(), Error> {
        Ok(self.do_check(&args)?)
    }

    fn status(&self, args: Args) -> Result<(), Error> {
        let unavailable = |failure: Failure| Failure::new(Code::NotAvailable, failure.to_string());
        Ok(self.do_status(&args).map_err(unavailable)?)
    }

    fn gc(&self, args: Args) -> Result<(), Error> {
        Ok(self.do_gc(&args)?)
    }
}

impl<N: Node, F: Fn() -> Result<N, Failure>> Sriov<F> {
    fn do_add(&self, args: &Args) -> Result<CNIResult, Failure> {
        let conf = args.config();
        let told = CniArgs::parse(args.args().unwrap_or_default())?;
        let wish = Wish::parse(conf, Some(&told), &self.places.pools)?;
        let ipam = self.ipam(args)?;
        let owner = Owner { pod: told.pod, ..owner(args) };
        let context = Context::new(&self.places)?;
        add::add(&context, conf, &wish, owner, ipam.as_ref(), &mut (self.node)()?)
    }

    /// Fine without allocation and without namespace. Addresses and VF do not wait for each other.
    fn do_del(&self, args: &Args) -> Result<(), Failure> {
        let mut outcome = self.ipam(args).and_then(|ipam| ipam.map_or(Ok(()), |ipam| ipam.del(args.config())));
        let owner = owner(args);
        let mut of_this = |other: &Owner| other.is(&owner.container, &owner.ifname);
        add_up(&mut outcome, self.release(&mut of_this));
        outcome
    }

    fn do_check(&self, args: &Args) -> Result<(), Failure> {
        let (context, owner) = (Context::new(&self.places)?, owner(args));
        let all = context.store.all()?.into_iter().filter_map(|(_, allocation)| allocation.ok());
        let ours = all.into_iter().find(|allocation| allocation.owner.is(&owner.container, &owner.ifname));
        let ours = ours.ok_or_else(|| Failure::new(Code::Unknown, format!("{} has no VF", owner.told())))?;
        check::check(&context, args.config(), &ours, &mut (self.node)()?)?;
        self.ipam(args)?.map_or(Ok(()), |ipam| ipam.check(args.config()))
    }

    /// Whether an ADD could succeed as far as this node is set up. A pool whose VFs are all in use is no fault of it.
    fn do_status(&self, args: &Args) -> Result<(), Failure> {
        let (conf, context) = (args.config(), Context::new(&self.places)?);
        let wish = Wish::parse(conf, None, &self.places.pools)?;
        if let Some(Source::Any(pool)) = &wish.source {
            let pfs = select::physical(&context.sysfs, pool)?;
            if !pfs.iter().any(|pf| pf.vfs.iter().any(|(number, _)| pool.vfs.contains(*number))) {
                return Err(Failure::new(
                    Code::NotAvailable,
                    format!("{pool} has no VFs; raise `sriov_numvfs` of the PF, or widen `vfs`"),
                ));
            }
        }
        context.store.prepare()?;
        self.ipam(args)?.map_or(Ok(()), |ipam| ipam.status(conf))
    }

    /// Puts back the VFs of this network that no valid attachment has.
    fn do_gc(&self, args: &Args) -> Result<(), Failure> {
        let conf = args.config();
        let valid = attachments(conf)?;
        let mut is_stale = |owner: &Owner| {
            owner.network == conf.name && !valid.iter().any(|(container, ifname)| owner.is(container, ifname))
        };
        let mut outcome = self.release(&mut is_stale);
        add_up(&mut outcome, self.ipam(args).and_then(|ipam| ipam.map_or(Ok(()), |ipam| ipam.gc(conf))));
        outcome
    }

    /// Puts back the VFs of these owners, all that can be.
    fn release(&self, whose: &mut dyn FnMut(&Owner) -> bool) -> Result<(), Failure> {
        let context = Context::new(&self.places)?;
        let mut node = None;
        let mut outcome = Ok(());
        for (vf, allocation) in context.store.all()? {
            match allocation {
                Ok(allocation) if whose(&allocation.owner) => {
                    let node = match &mut node {
                        Some(node) => node,
                        none => none.insert((self.node)()?),
                    };
                    add_up(&mut outcome, release_one(&context, vf, whose, node));
                }
                Ok(_) => {}
                Err(failure) => context.log(&failure.to_string()),
            }
        }
        outcome
    }

    fn ipam(&self, args: &Args) -> Result<Option<Ipam>, Failure> {
        Ipam::of(args.config(), args.path(), self.places.ipam_deadline)
    }
}

fn release_one<N: Node>(
    context: &Context,
    vf: sriov::PciAddr,
    whose: &mut dyn FnMut(&Owner) -> bool,
    node: &mut N,
) -> Result<(), Failure> {
    let _vf_lock = context.store.lock(vf)?;
    // Another one may have done it while we waited.
    let Some(allocation) = context.store.read(vf)?.filter(|allocation| whose(&allocation.owner)) else { return Ok(()) };
    let _pf_lock = context.store.lock(allocation.pf)?;
    give_back(context, &allocation, node)?;
    context.store.remove(vf)
}

fn owner(args: &Args) -> Owner {
    Owner {
        network: args.config().name.clone(),
        container: args.container_id().map(ToString::to_string).unwrap_or_default(),
        ifname: args.ifname().map(ToString::to_string).unwrap_or_default(),
        netns: args.netns().map(|netns| netns.to_string_lossy().into_owned()).unwrap_or_default(),
        pod: None,
    }
}

/// Container and link of each valid attachment. Without a list nothing may be taken for stale.
fn attachments(conf: &NetConf) -> Result<Vec<(String, String)>, Failure> {
    if let Some(valid) = &conf.valid_attachments {
        return Ok(valid.iter().map(|one| (one.container_id.clone(), one.ifname.clone())).collect());
    }
    let listed = conf.custom.get(DRAFT_ATTACHMENTS).and_then(Value::as_array);
    let listed = listed
        .ok_or_else(|| Failure::new(Code::Config, "`cni.dev/valid-attachments` is missing, so nothing is collected"))?;
    let text = |one: &Value, key| one.get(key).and_then(Value::as_str).map(str::to_owned);
    let pair = |one| text(one, "containerID").zip(text(one, "ifname"));
    let all: Option<Vec<_>> = listed.iter().map(pair).collect();
    all.ok_or_else(|| {
        Failure::new(Code::Config, format!("`{DRAFT_ATTACHMENTS}` has an entry without `containerID` or `ifname`"))
    })
}

/// Keeps the first failure, with what failed later in its words.
fn add_up(outcome: &mut Result<(), Failure>, next: Result<(), Failure>) {
    let Err(next) = next else { return };
    let before = std::mem::replace(outcome, Ok(()));
    *outcome = Err(match before {
        Ok(()) => next,
        Err(first) => first.and(&next),
    });
}

#[cfg(test)]
mod tests;
