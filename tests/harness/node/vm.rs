//! A machine of the node, as a case sees it: by its address, its log and what its guest says.

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::PodSandboxConfig;

use super::BOOT_DEADLINE;
use crate::http;
use crate::libvirt;
use crate::wait::{wait_for, wait_guest};

/// A pod with a machine in it.
#[derive(Debug, Clone)]
pub struct Vm {
    /// The sandbox' id.
    pub sandbox: String,
    /// The container's id.
    pub container: String,
    /// Its machine's id.
    pub machine: String,
    /// Its address.
    pub ip: IpAddr,
    /// Its log, in CRI format.
    pub log: PathBuf,
    /// What was asked for.
    pub pod: PodSandboxConfig,
}

impl Vm {
    /// Waits until the tiny guest answers HTTP.
    ///
    /// # Errors
    /// When it does not in time, or its machine ends.
    pub fn wait_up(&self) -> Result<()> {
        let mut last = String::new();
        let up = wait_guest(&format!("HTTP answer of {}", self.ip), BOOT_DEADLINE, || match http::get(self.ip, "/") {
            Ok(page) => Ok(Some(page)),
            Err(not_yet) => {
                last = format!("{not_yet:#}");
                ensure!(
                    libvirt::has_qemu(&self.domain()?),
                    "the machine has ended before it answered: see what its container says"
                );
                Ok(None)
            }
        });
        up.map(drop).with_context(|| {
            let console = fs::read_to_string(&self.log).unwrap_or_default();
            format!("last answer: {last}; console:\n{console}\n{}", self.doing())
        })
    }

    /// What the tiny guest says of itself.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn info(&self) -> Result<String> {
        http::get(self.ip, "/cgi-bin/info")
    }

    /// Its log, as written so far.
    ///
    /// # Errors
    /// When there is none.
    pub fn log_text(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("no log {}", self.log.display()))
    }

    /// Waits until its log has `text` in it.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn wait_log(&self, text: &str, deadline: Duration) -> Result<()> {
        wait_for(&format!("`{text}` in the log"), deadline, || {
            Ok(self.log_text().is_ok_and(|log| log.contains(text)).then_some(()))
        })
    }

    /// The name of its domain.
    ///
    /// # Errors
    /// When the machine's id is none.
    pub fn domain(&self) -> Result<String> {
        Ok(format!("virtlet-{}-vm", self.machine.get(..13).context("no id")?))
    }

    /// What its machine is doing, where a case has waited for it in vain.
    fn doing(&self) -> String {
        self.domain().map_or_else(|none| format!("{none:#}"), |domain| libvirt::doing(&domain))
    }
}
