//! Our programs and their settings: are they installed, do both daemons mean the same files, can QEMU's user run what it must.

use std::path::Path;

use super::facts::{Facts, NO_SETTINGS, NO_TAP_SETTINGS, Settings, TapSettings, Told};
use super::finding::Finding;
use super::host::{Host, Kind};
use super::program::ProgramError;

/// What vmwrapper starts if `/etc/virtlet/emulator` does not say otherwise.
const EMULATOR: &str = "/usr/bin/qemu-system-x86_64";
/// Who is asked which emulator there is when libvirt probes for one.
const EMULATOR_FILE: &str = "/etc/virtlet/emulator";
/// As sysexits has it.
const CONFIGURATION: i32 = 78;
/// Write permission of the group and of others.
const WRITABLE: u32 = 0o022;
/// Others may run it.
const RUNNABLE: u32 = 0o001;

pub(super) fn look(host: &Host, facts: &Facts) -> Vec<Finding> {
    vec![
        settings("config.controld", "controld", &facts.controld),
        settings("config.tapmanager", "tapmanager", &facts.tapmanager),
        vmwrapper(host, facts.controld.as_ref().ok(), facts.tapmanager.as_ref().ok()),
        emulator(host, facts),
        virtiofsd(host, facts.controld.as_ref().ok()),
    ]
}

fn settings<T>(check: &'static str, program: &str, told: &Told<T>) -> Finding {
    match told {
        Ok(_) => Finding::ok(check, "it can be read"),
        Err(error @ ProgramError::Absent(_)) => {
            Finding::failure(check, error.to_string(), "install the package of virtlet-rs")
        }
        Err(error @ ProgramError::Failed { code: Some(CONFIGURATION), .. }) => {
            Finding::failure(check, error.to_string(), format!("correct the file, and try `{program} check-config`"))
        }
        Err(error) => Finding::unknown(check, error),
    }
}

fn vmwrapper(host: &Host, controld: Option<&Settings>, tapmanager: Option<&TapSettings>) -> Finding {
    const CHECK: &str = "vmwrapper";
    let Some(settings) = controld else { return Finding::unknown(CHECK, NO_SETTINGS) };
    let path = &settings.vmwrapper;
    let shown = path.display();
    let looks = match host.look(path) {
        Ok(Some(looks)) => looks,
        Ok(None) => {
            let mend = "install it there, or set `vmwrapper` in controld.toml and tapmanager.toml";
            return Finding::failure(CHECK, format!("`{shown}` is not there"), mend);
        }
        Err(error) => return Finding::unknown(CHECK, error),
    };
    if looks.kind != Kind::File || looks.mode & RUNNABLE == 0 {
        let seen = format!("`{shown}` has mode {:o}: QEMU's user cannot run it", looks.mode);
        return Finding::failure(CHECK, seen, format!("chmod 755 {shown}"));
    }
    if looks.mode & WRITABLE != 0 || looks.uid != 0 {
        let seen =
            format!("`{shown}` has mode {:o} and belongs to user {}: others may change it", looks.mode, looks.uid);
        return Finding::warning(CHECK, seen, format!("chown root:root {shown}; chmod 755 {shown}"));
    }
    match tapmanager {
        None => Finding::unknown(CHECK, NO_TAP_SETTINGS),
        Some(taps) if !is_same(host, &taps.vmwrapper, path) => Finding::failure(
            CHECK,
            format!("controld has `{shown}`, tapmanager lets `{}` fetch taps", taps.vmwrapper.display()),
            "set `vmwrapper` in controld.toml and tapmanager.toml to the same file",
        ),
        Some(_) => Finding::ok(CHECK, format!("`{shown}`")),
    }
}

/// Pods whose guests see no volumes do without.
fn virtiofsd(host: &Host, controld: Option<&Settings>) -> Finding {
    const CHECK: &str = "virtiofsd";
    let Some(settings) = controld else { return Finding::unknown(CHECK, NO_SETTINGS) };
    for (setting, path, mend) in [
        ("virtiofsd", &settings.virtiofsd, "install it (Debian 13: virtiofsd; else: cargo install virtiofsd)"),
        ("fswrapper", &settings.fswrapper, "install the package of virtlet-rs"),
    ] {
        let shown = path.display();
        match host.look(path) {
            Ok(Some(looks)) if looks.kind == Kind::File && looks.mode & RUNNABLE != 0 => {}
            Ok(Some(_)) => {
                return Finding::warning(CHECK, format!("`{shown}` is no program"), format!("chmod 755 {shown}"));
            }
            Ok(None) => {
                let mend = format!("{mend}, or set `{setting}` in controld.toml");
                return Finding::warning(CHECK, format!("`{shown}` is not there: no guest sees volumes"), mend);
            }
            Err(error) => return Finding::unknown(CHECK, error),
        }
    }
    Finding::ok(CHECK, format!("`{}`", settings.virtiofsd.display()))
}

fn is_same(host: &Host, one: &Path, other: &Path) -> bool {
    let real = |path| std::fs::canonicalize(host.at(path)).ok();
    one == other || real(one).is_some_and(|one| Some(one) == real(other))
}

fn emulator(host: &Host, facts: &Facts) -> Finding {
    const CHECK: &str = "emulator";
    const MEND: &str = "install QEMU (Debian: qemu-system-x86), or set `emulator` in controld.toml";
    let Ok(settings) = &facts.controld else { return Finding::unknown(CHECK, NO_SETTINGS) };
    let path = settings.emulator.display();
    let said = match &facts.emulator {
        Ok(said) if said.status.success() => said,
        Ok(said) => {
            let last = said.stderr.trim().lines().last().unwrap_or_default();
            return Finding::failure(CHECK, format!("`{path} --version` ended with {}: {last}", said.status), MEND);
        }
        Err(error) => return Finding::failure(CHECK, error.to_string(), MEND),
    };
    let probed = match host.word(EMULATOR_FILE) {
        Ok(named) if named.is_empty() => EMULATOR.to_owned(),
        Ok(named) => named,
        Err(error) => return Finding::unknown(CHECK, error),
    };
    if Path::new(&probed) != settings.emulator {
        let seen = format!("machines run `{path}`, but libvirt probes `{probed}`");
        return Finding::warning(CHECK, seen, format!("echo {path} >{EMULATOR_FILE}"));
    }
    Finding::ok(CHECK, said.stdout.lines().next().unwrap_or("it starts").to_owned())
}
