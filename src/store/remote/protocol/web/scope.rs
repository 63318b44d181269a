//! The networks from which addresses are reachable.
//!
//! The table has the special-purpose registries of IANA (RFC 6890; iana-ipv4-special-registry and
//! iana-ipv6-special-registry), multicast (RFC 5771, RFC 4291), and the addresses of metadata services of cloud
//! providers. An address that is in no row is public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::Url;
use url::Host;

/// The network from which an address is reachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NetworkScope {
    Public,
    /// An organisation or this machine, or nobody, as for addresses in documentation.
    Private,
    /// The local link, or the network of a provider. Cloud machines have their metadata services at such
    /// addresses, so only a URL that the user writes leads there.
    Local,
}

use NetworkScope::{Local, Private, Public};

/// Ranges of addresses with their scopes; the first range that contains an address decides.
const SPECIAL: [(IpNet, NetworkScope); 35] = [
    (v4([0, 0, 0, 0], 8), Local),
    (v4([10, 0, 0, 0], 8), Private),
    // Shared address space (RFC 6598): Alibaba Cloud has its metadata service there.
    (v4([100, 64, 0, 0], 10), Local),
    (v4([127, 0, 0, 0], 8), Private),
    // The service of Azure that gives machines their settings.
    (v4([168, 63, 129, 16], 32), Local),
    (v4([169, 254, 0, 0], 16), Local),
    (v4([172, 16, 0, 0], 12), Private),
    // Protocol assignments: Oracle Cloud has had its metadata service there.
    (v4([192, 0, 0, 0], 24), Local),
    // Documentation.
    (v4([192, 0, 2, 0], 24), Private),
    // Relays of 6to4, which are deprecated.
    (v4([192, 88, 99, 0], 24), Private),
    (v4([192, 168, 0, 0], 16), Private),
    // Benchmarks.
    (v4([198, 18, 0, 0], 15), Private),
    // Documentation.
    (v4([198, 51, 100, 0], 24), Private),
    (v4([203, 0, 113, 0], 24), Private),
    (v4([224, 0, 0, 0], 4), Local),
    // Reserved, and broadcast.
    (v4([240, 0, 0, 0], 4), Private),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), Local),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), Private),
    // Translators of a network (RFC 8215), which can stand for any IPv4 address.
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), Local),
    // Discard, and the dummy prefix.
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 63), Private),
    // Teredo, which can stand for any IPv4 address.
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), Local),
    // Protocol assignments, benchmarks, ORCHID.
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), Private),
    // Documentation.
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), Private),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), Private),
    // Segment routing.
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), Private),
    // Metadata services of Oracle Cloud, AWS and Google Cloud.
    (v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128), Local),
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32), Local),
    (v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), Local),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), Private),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), Local),
    // Site-local, which is deprecated (RFC 3879).
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), Private),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), Local),
    // IPv4-translated (RFC 2765), of a translator on this machine or link.
    (v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), Local),
    // No other part of `::/8` is assigned.
    (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 32), Local),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 8), Private),
];

const fn v4([a, b, c, d]: [u8; 4], length: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length))
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], length: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(a, b, c, d, e, f, g, h),
        length,
    ))
}

/// Returns the scope of an address.
pub(super) fn scope_of(address: IpAddr) -> NetworkScope {
    if let IpAddr::V6(v6) = address
        && let Some(v4) = embedded(v6)
    {
        return scope_of(v4.into());
    }
    let special = SPECIAL.iter().find(|(net, _)| net.contains(&address));
    special.map_or(Public, |(_, scope)| *scope)
}

/// Returns the IPv4 address to which packets for an IPv6 address go: of mapped and compatible addresses (RFC 4291),
/// those of translators (RFC 6052) and of 6to4 (RFC 3056).
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Some(v4(high, low)),
        _ => None,
    }
}

/// Returns the scope of the host of a URL, judged by its name.
pub(super) fn scope_of_host(url: &Url) -> NetworkScope {
    match url.host() {
        Some(Host::Ipv4(address)) => scope_of(address.into()),
        Some(Host::Ipv6(address)) => scope_of(address.into()),
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            match name == "localhost" || name.ends_with(".localhost") {
                true => Private,
                false => Public,
            }
        }
        None => Public,
    }
}

/// Whether the host of a URL, judged by its name, has neither a private nor a link-local address.
pub(in crate::store) fn is_public(url: &Url) -> bool {
    scope_of_host(url) == Public
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_have(scope: NetworkScope, addresses: &[&str]) {
        for address in addresses {
            assert_eq!(scope_of(address.parse().unwrap()), scope, "{address}");
        }
    }

    #[test]
    fn addresses_of_metadata_services_are_local() {
        let v4 = [
            "169.254.169.254",
            "100.100.100.200",
            "100.64.0.0",
            "100.127.255.255",
            "192.0.0.192",
            "168.63.129.16",
            "0.1.2.3",
            "224.0.0.1",
        ];
        let v6 = [
            "fe80::1",
            "febf::1",
            "::",
            "ff02::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "::ffff:169.254.169.254",
            "::ffff:0:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "64:ff9b:1:a9fe:a9:fe00::",
            "2001::1",
            "2002:a9fe:a9fe::1",
        ];
        all_have(Local, &v4);
        all_have(Local, &v6);
    }

    #[test]
    fn addresses_that_no_public_server_has_are_private() {
        let v4 = [
            "10.0.0.1",
            "172.31.0.1",
            "192.168.1.1",
            "127.1.2.3",
            "192.0.2.1",
            "192.88.99.1",
            "198.19.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "240.0.0.1",
            "255.255.255.255",
        ];
        let v6 = [
            "::1",
            "fc00::1",
            "fd12::1",
            "fec0::1",
            "100::1",
            "2001:2::1",
            "2001:db8::1",
            "3fff:fff::1",
            "5f00::1",
            "64:ff9b::7f00:1",
            "::ffff:10.0.0.1",
        ];
        all_have(Private, &v4);
        all_have(Private, &v6);
    }

    #[test]
    fn other_addresses_are_public() {
        let addresses = [
            "100.63.255.255",
            "100.128.0.1",
            "172.32.0.1",
            "8.8.8.8",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.255",
            "2001:4860::1",
            "2600::1",
            "64:ff9b::808:808",
            "::ffff:8.8.8.8",
        ];
        all_have(Public, &addresses);
    }
}
