//! Calls to the service for what is on no record.

use proto::orphans::{ForgetRequest, Kind, ListRequest, Orphan};

use super::super::error::CtlError;
use super::{Client, look, work};

impl Client {
    pub(crate) async fn orphans(&self) -> Result<Vec<Orphan>, CtlError> {
        let mut orphans = self.orphans.clone();
        Ok(look("list what is of unknown owner", orphans.list(ListRequest {})).await?.orphans)
    }

    /// Removes one for good; `name` is for people.
    pub(crate) async fn forget(&self, kind: Kind, id: &str, name: &str) -> Result<(), CtlError> {
        let mut orphans = self.orphans.clone();
        let request = ForgetRequest { kind: kind.into(), id: id.to_owned() };
        work(&format!("forget `{name}`"), orphans.forget(request)).await.map(drop)
    }
}
