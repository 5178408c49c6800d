//! One entry as journald takes it: a datagram of fields (systemd, "Native Journal Protocol"). A value without a line break is
//! `NAME=value`; any other has its length before it.

use tracing::Level;

/// A datagram that grows by fields.
#[derive(Debug, Default)]
pub(super) struct Entry(Vec<u8>);

impl Entry {
    /// With this field, too. `name` is one that journald takes: capitals, digits and underscores.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.0.extend_from_slice(name.as_bytes());
        if value.contains('\n') {
            self.0.push(b'\n');
            self.0.extend_from_slice(&(value.len() as u64).to_le_bytes());
        } else {
            self.0.push(b'=');
        }
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'\n');
        self
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A level as syslog(3) numbers it.
pub(super) fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}
