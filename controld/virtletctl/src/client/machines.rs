//! Calls to the service for machines.

use proto::machines::{PauseRequest, ResumeRequest};

use super::super::error::CtlError;
use super::{Client, work};

impl Client {
    pub(crate) async fn pause(&self, container: &str) -> Result<(), CtlError> {
        let mut machines = self.machines.clone();
        let request = PauseRequest { container_id: container.to_owned() };
        work("pause the machine", machines.pause(request)).await.map(drop)
    }

    pub(crate) async fn resume(&self, container: &str) -> Result<(), CtlError> {
        let mut machines = self.machines.clone();
        let request = ResumeRequest { container_id: container.to_owned() };
        work("resume the machine", machines.resume(request)).await.map(drop)
    }
}
