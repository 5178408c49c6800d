//! The questions that tools ask a daemon, each with the answer that belongs to it. Blocks.

use std::time::Duration;

use proto::tap::{
    Arm, Attach, CheckReport, Client, ClientError, CollectReport, Forget, PodDetail, PodId, PodNet, PodSummary, Reply,
    Request, ServerStatus, Token, VfDetail, VfPage, VfRequest,
};

use super::error::ToolError;
use crate::config::Config;

/// Longest that an answer may take: each plugin of each network has a deadline of its own, a minute by default.
const CALL_DEADLINE: Duration = Duration::from_secs(600);

/// A daemon.
#[derive(Debug, Clone)]
pub(super) struct Node {
    client: Client,
}

impl Node {
    /// The daemon with this configuration.
    pub(super) fn of(config: &Config) -> Self {
        Self { client: Client::new(config.control_socket(), CALL_DEADLINE) }
    }

    pub(super) fn status(&self) -> Result<ServerStatus, ToolError> {
        match self.client.call(&Request::Status)? {
            Reply::Status(status) => Ok(status),
            _ => Err(ClientError::WrongReply.into()),
        }
    }

    pub(super) fn attach(&self, attach: Attach) -> Result<PodNet, ToolError> {
        match self.client.call(&Request::Attach(attach))? {
            Reply::Attached(net) => Ok(net),
            _ => Err(ClientError::WrongReply.into()),
        }
    }

    pub(super) fn arm(&self, pod: &PodId) -> Result<Token, ToolError> {
        match self.client.call(&Request::Arm(Arm { pod: pod.clone(), qemu: None, iommufd: Some(true) }))? {
            Reply::Armed { token, hostdevs } if hostdevs.is_empty() => Ok(token),
            Reply::Armed { hostdevs, .. } => Err(ToolError::Hostdevs(hostdevs.len())),
            _ => Err(ClientError::WrongReply.into()),
        }
    }

    pub(super) fn detach(&self, pod: &PodId) -> Result<(), ToolError> {
        match self.client.call(&Request::Detach { pod: pod.clone() })? {
            Reply::Detached => Ok(()),
            _ => Err(ClientError::WrongReply.into()),
        }
    }

    pub(super) fn collect(&self) -> Result<CollectReport, ToolError> {
        match self.client.call(&Request::Collect)? {
            Reply::Collected(report) => Ok(report),
            _ => Err(ClientError::WrongReply.into()),
        }
    }

    pub(super) fn forget(&self, what: Forget) -> Result<CollectReport, ToolError> {
        match self.client.call(&Request::Forget(what))? {
            Reply::Collected(report) => Ok(report),
            _ => Err(ClientError::WrongReply.into()),
        }
    }

    pub(super) fn check(&self, pod: &PodId) -> Result<CheckReport, ToolError> {
        match self.client.call(&Request::Check { pod: pod.clone() })? {
            Reply::Checked(report) => Ok(report),
            _ => Err(ClientError::WrongReply.into()),
        }
    }

    pub(super) fn inspect(&self, pod: &PodId) -> Result<PodDetail, ToolError> {
        match self.client.call(&Request::Inspect { pod: pod.clone() })? {
            Reply::Pod(detail) => Ok(*detail),
            _ => Err(ClientError::WrongReply.into()),
        }
    }

    /// All PFs and VFs, page by page.
    pub(super) fn vfs(&self) -> Result<VfPage, ToolError> {
        Ok(self.client.vfs()?)
    }

    /// What is known of a VF after the request about it.
    pub(super) fn vf(&self, request: VfRequest) -> Result<VfDetail, ToolError> {
        match self.client.call(&Request::Vf(request))? {
            Reply::Vf(detail) => Ok(*detail),
            _ => Err(ClientError::WrongReply.into()),
        }
    }

    /// What was given back.
    pub(super) fn vf_report(&self, request: VfRequest) -> Result<CollectReport, ToolError> {
        match self.client.call(&Request::Vf(request))? {
            Reply::Collected(report) => Ok(report),
            _ => Err(ClientError::WrongReply.into()),
        }
    }

    /// All pods, page by page.
    pub(super) fn pods(&self) -> Result<Vec<PodSummary>, ToolError> {
        Ok(self.client.pods(None)?)
    }
}
