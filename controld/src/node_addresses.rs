//! The node's own addresses, none of which can be a pod's: whoever connects to it from the node reaches the node.

use std::collections::BTreeSet;
use std::net::IpAddr;

use common::off_reactor;
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use vmspec::error::{Error, Kind, Result};

/// Addresses of the links of our network namespace, at one moment.
#[derive(Debug)]
pub(crate) struct NodeAddresses(BTreeSet<IpAddr>);

impl NodeAddresses {
    /// Those of now.
    ///
    /// # Errors
    /// When the kernel does not tell them.
    pub(crate) async fn look() -> Result<Self> {
        let list = || -> nix::Result<Self> {
            let known = getifaddrs()?.filter_map(|link| {
                let address = link.address?;
                let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
                v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
            });
            Ok(known.collect())
        };
        let failed =
            |cause: Errno| Error::because(Kind::Unavailable, "the node's own addresses cannot be listed", cause);
        off_reactor(list).await.map_err(failed)
    }

    /// Whether it is one of them, however it is spelled.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromIterator<IpAddr> for NodeAddresses {
    fn from_iter<T: IntoIterator<Item = IpAddr>>(addresses: T) -> Self {
        Self(addresses.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_tells_them_and_another_spelling_is_the_same_address() {
        let own = NodeAddresses::look().await.expect("listed");
        let has = |address: &str| own.has(address.parse().expect("an address"));
        assert!(has("127.0.0.1") && has("::ffff:127.0.0.1"), "{own:?}");
        assert!(!has("203.0.113.77"), "{own:?}");
    }
}
