//! Resolves host names for requests that must not reach some networks.

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::scope::{NetworkScope, scope_of};

/// The networks that host names may lead to. The owner of a name can point it at any address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Any address, for names that the user writes.
    Any,
    /// Public and private addresses, for redirects of a private server.
    NotLocal,
    /// Public addresses only.
    Public,
}

impl Reach {
    /// The reach of names to which a server redirects that has this scope.
    pub(super) fn of_redirects(from: NetworkScope) -> Self {
        match from {
            NetworkScope::Public => Self::Public,
            NetworkScope::Private | NetworkScope::Local => Self::NotLocal,
        }
    }

    fn includes(self, scope: NetworkScope) -> bool {
        match self {
            Self::Any => true,
            Self::NotLocal => scope != NetworkScope::Local,
            Self::Public => scope == NetworkScope::Public,
        }
    }
}

impl Resolve for Reach {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = *self;
        Box::pin(async move {
            let all: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let is_included = |at: &&SocketAddr| reach.includes(scope_of(at.ip()));
            let included: Vec<SocketAddr> = all.iter().filter(is_included).copied().collect();
            match (included.is_empty(), all.first()) {
                (true, Some(found)) => Err(format!(
                    "the name {} stands for the private address {}, which has to be named, as the source or with \
                     --allow-target",
                    name.as_str(),
                    found.ip()
                )
                .into()),
                _ => Ok(Box::new(included.into_iter()) as Addrs),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{block_on, on_network};

    fn resolved(reach: Reach, name: &str) -> Result<usize, String> {
        let resolved = reach.resolve(name.parse().unwrap());
        let found = block_on(on_network(resolved)).unwrap();
        found
            .map(Iterator::count)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_of_a_private_address_is_not_resolved() {
        let error = resolved(Reach::Public, "localhost").unwrap_err();
        assert!(error.contains("--allow-target"), "{error}");
        assert!(resolved(Reach::NotLocal, "localhost").unwrap() > 0);
        // As a name that points at the metadata service of a machine.
        let error = resolved(Reach::NotLocal, "169.254.169.254").unwrap_err();
        assert!(error.contains("169.254.169.254"), "{error}");
        assert!(resolved(Reach::Any, "169.254.169.254").unwrap() > 0);
    }

    #[test]
    fn a_public_server_redirects_to_public_addresses_only() {
        assert_eq!(Reach::of_redirects(NetworkScope::Public), Reach::Public);
        assert_eq!(Reach::of_redirects(NetworkScope::Private), Reach::NotLocal);
    }
}
