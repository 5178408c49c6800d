//! Exit codes, as sysexits has them and as tapmanager's are: 0 told to stop, 2 usage, 65 records that cannot be read, as those of
//! a newer release, 66 a file that cannot be read, 70 anything else, 75 another instance runs, 77 a permission is missing, 78 configuration.
//!
//! After 65 systemd does not start the daemon again (`RestartPreventExitStatus=` of the units): that ends alike for ever.

use std::error::Error;
use std::io;

use common::small_file::SmallFileError;
use controld::api::socket::Taken;
use controld::config::ConfigError;
use controld::daemon::dump::SomeUnread;
use controld::daemon::validate::ValidateError;
use controld::store;
use controld::volumes::VolumeError;
use imagestore::DiskError;
use nix::errno::Errno;
use tracing_subscriber::filter;

const DATA: u8 = 65;
const NO_INPUT: u8 = 66;
const SOFTWARE: u8 = 70;
const TEMPORARY: u8 = 75;
const PERMISSION: u8 = 77;
const CONFIGURATION: u8 = 78;

/// The code that says the most: that of the first cause that has one.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(of).unwrap_or(SOFTWARE)
}

fn of(cause: &(dyn Error + 'static)) -> Option<u8> {
    match cause.downcast_ref() {
        Some(ValidateError::Refused { .. }) => return Some(1),
        Some(ValidateError::Manifest { .. }) => return Some(DATA),
        Some(ValidateError::File(_)) => return Some(NO_INPUT),
        None => {}
    }
    if cause.is::<ConfigError>() || cause.is::<filter::ParseError>() {
        return Some(CONFIGURATION);
    }
    if let Some(error) = cause.downcast_ref() {
        // At the start the store says so of its settings alone.
        return matches!(
            error,
            imagestore::StoreError::HandlerName { .. }
                | imagestore::StoreError::HandlerProvider { .. }
                | imagestore::StoreError::Provider(_)
        )
        .then_some(CONFIGURATION);
    }
    if cause.is::<Taken>()
        || matches!(cause.downcast_ref(), Some(store::StoreError::Held { .. }))
        || matches!(cause.downcast_ref(), Some(DiskError::Busy { .. }))
    {
        return Some(TEMPORARY);
    }
    if cause.is::<SomeUnread>()
        || matches!(cause.downcast_ref(), Some(store::StoreError::Newer { .. }))
        || matches!(cause.downcast_ref(), Some(SmallFileError::Newer { .. }))
        || matches!(cause.downcast_ref(), Some(VolumeError::Note(SmallFileError::Newer { .. })))
    {
        return Some(DATA);
    }
    let denied = cause.downcast_ref().is_some_and(|error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied)
        || matches!(cause.downcast_ref(), Some(Errno::EACCES | Errno::EPERM));
    denied.then_some(PERMISSION)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use anyhow::Context as _;
    use controld::config::Config;
    use controld::images::Images;
    use vmspec::error::{Error, Kind};

    use super::*;

    #[test]
    fn the_first_cause_that_has_a_code_gives_it() {
        let path = PathBuf::from("/x");
        let read = |kind: io::ErrorKind| ConfigError::Read { path: path.clone(), cause: kind.into() };
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let newer = || SmallFileError::Newer { path: path.clone(), found: 2, known: 1 };
        let held = store::StoreError::Held { path: path.clone() };
        let busy = imagestore::StoreError::Disk(DiskError::Busy { path: path.clone() });
        let os =
            imagestore::StoreError::Disk(DiskError::Os { action: "open", path: path.clone(), cause: Errno::EACCES });
        for (error, code) in [
            (read(io::ErrorKind::NotFound).into(), 78),
            (read(io::ErrorKind::PermissionDenied).into(), 78),
            (held.into(), 75),
            (Error::because(Kind::Internal, "image store not opened", busy).into(), 75),
            (Error::because(Kind::Internal, "image store not opened", os).into(), 77),
            (store::StoreError::Log { path: path.clone(), cause: denied() }.into(), 77),
            (denied().into(), 77),
            (SomeUnread(1).into(), 65),
            (newer().into(), 65),
            (VolumeError::from(newer()).into(), 65),
            (io::Error::from(io::ErrorKind::AddrInUse).into(), 70),
            (anyhow::anyhow!("anything"), 70),
        ] {
            assert_eq!(super::code(&error), code, "{error:?}");
        }
    }

    #[test]
    fn systemd_does_not_start_anew_what_ends_on_records_of_a_newer_release() {
        let unit = include_str!("../../deploy/controld.service");
        let prevented = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus="));
        assert_eq!(prevented, Some(&*DATA.to_string()));
    }

    #[test]
    fn settings_that_cannot_be_used_are_configuration() {
        let mut config = Config::default();
        config.images.handlers.insert("No Label".into(), controld::config::images::HandlerConfig::default());
        let unusable = Images::check(&config).context("checked").expect_err("a name that no handler can have");
        assert_eq!(code(&unusable), 78);
        let level = tracing_subscriber::EnvFilter::try_new("controld=nonsense=x").expect_err("no level");
        assert_eq!(code(&level.into()), 78);
    }
}
