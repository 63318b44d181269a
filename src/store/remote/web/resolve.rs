//! Resolves host names for requests that must not reach private addresses.

use std::net::SocketAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::address::is_public_address;

/// Resolves names to public addresses only, because the owner of a name can point it at any address.
#[derive(Debug)]
pub(super) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|at| is_public_address(at.ip())).collect();
            match public.is_empty() {
                false => Ok(Box::new(public.into_iter()) as Addrs),
                true => Err(format!(
                    "the name {} stands for a private address, which has to be named (--allow-target)",
                    name.as_str()
                )
                .into()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{block_on, on_network};

    #[test]
    fn a_name_of_a_private_address_is_not_resolved() {
        let resolved = PublicOnly.resolve("localhost".parse().unwrap());
        let error = block_on(on_network(resolved)).unwrap().err().unwrap();
        assert!(error.to_string().contains("--allow-target"), "{error}");
    }
}
