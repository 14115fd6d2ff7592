//! The addresses of private networks, which connectors must not reach.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// A range of addresses that a connector may not reach unless the operator allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PrivateRange {
    network: IpNet,
    name: &'static str,
}

impl PrivateRange {
    /// Returns its purpose in a word or two.
    pub(super) fn name(self) -> &'static str {
        self.name
    }

    /// Returns whether the range serves credentials of the machine itself.
    pub(super) fn is_metadata(self) -> bool {
        self.name == METADATA
    }

    /// Returns whether `range` is a subset of this range.
    pub(super) fn holds(self, range: &IpNet) -> bool {
        self.network.contains(range)
    }
}

impl fmt::Display for PrivateRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.network.fmt(f)
    }
}

const METADATA: &str = "cloud metadata";

/// Returns the name of the range that makes `address` one that a connector may not reach unless the operator
/// allows it; `None` for an address of the public internet.
#[must_use]
pub fn is_private(address: IpAddr) -> Option<&'static str> {
    private_range(address).map(PrivateRange::name)
}

/// Returns the range that makes `address` one that a connector may not reach unless the operator allows it.
///
/// The list is built to fail closed. IPv4 lists the special ranges (IANA's registry, and the addresses at
/// which clouds serve credentials); IPv6 starts from "only 2000::/3 is the public internet" and excludes the
/// special parts of that. Forms that embed an IPv4 address are judged by it where networks really use them
/// (IPv4-mapped, NAT64), and rejected entirely where only an attacker would (6to4, Teredo, IPv4-compatible).
pub(super) fn private_range(address: IpAddr) -> Option<PrivateRange> {
    match canonical(address) {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => v6(address),
    }
}

/// Returns the address that networks really connect to: the IPv4 address of a mapped or NAT64 address.
pub(super) fn canonical(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    if let Some(mapped) = v6.to_ipv4_mapped() {
        return mapped.into();
    }
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)).into()
        }
        _ => address,
    }
}

/// A range: network, prefix length in bits, name. The first one that contains an address names it.
type AddressRange<A> = (A, u8, &'static str);

const fn a(a: u8, b: u8, c: u8, d: u8) -> Ipv4Addr {
    Ipv4Addr::new(a, b, c, d)
}

const V4: &[AddressRange<Ipv4Addr>] = &[
    (a(169, 254, 169, 254), 32, METADATA),
    (a(169, 254, 170, 2), 32, METADATA),
    (a(100, 100, 100, 200), 32, METADATA),
    (a(168, 63, 129, 16), 32, METADATA),
    (a(192, 0, 0, 192), 32, METADATA),
    (a(0, 0, 0, 0), 8, "unspecified"),
    (a(10, 0, 0, 0), 8, "private network"),
    (a(100, 64, 0, 0), 10, "carrier-grade NAT"),
    (a(127, 0, 0, 0), 8, "loopback"),
    (a(169, 254, 0, 0), 16, "link-local"),
    (a(172, 16, 0, 0), 12, "private network"),
    (a(192, 0, 0, 0), 24, "protocol assignments"),
    (a(192, 0, 2, 0), 24, "documentation"),
    (a(192, 88, 99, 0), 24, "6to4 relay"),
    (a(192, 168, 0, 0), 16, "private network"),
    (a(198, 18, 0, 0), 15, "benchmarking"),
    (a(198, 51, 100, 0), 24, "documentation"),
    (a(203, 0, 113, 0), 24, "documentation"),
    (a(224, 0, 0, 0), 4, "multicast"),
    (a(255, 255, 255, 255), 32, "broadcast"),
    (a(240, 0, 0, 0), 4, "reserved"),
];

const fn b(first: u16, second: u16, third: u16, last: u16) -> Ipv6Addr {
    Ipv6Addr::new(first, second, third, 0, 0, 0, 0, last)
}

const V6: &[AddressRange<Ipv6Addr>] = &[
    (b(0xfd00, 0xec2, 0, 0x254), 128, METADATA),
    (b(0xfd20, 0xce, 0, 0x254), 128, METADATA),
    (b(0, 0, 0, 0), 128, "unspecified"),
    (b(0, 0, 0, 1), 128, "loopback"),
    (b(0, 0, 0, 0), 96, "IPv4-compatible"),
    (b(0x64, 0xff9b, 1, 0), 48, "local NAT64"),
    (b(0x100, 0, 0, 0), 64, "discard-only"),
    (b(0x2001, 0, 0, 0), 32, "Teredo"),
    (b(0x2001, 2, 0, 0), 48, "benchmarking"),
    (b(0x2001, 0, 0, 0), 23, "protocol assignments"),
    (b(0x2001, 0xdb8, 0, 0), 32, "documentation"),
    (b(0x2002, 0, 0, 0), 16, "6to4"),
    (b(0x3fff, 0, 0, 0), 20, "documentation"),
    (b(0xfc00, 0, 0, 0), 7, "unique local"),
    (b(0xfe80, 0, 0, 0), 10, "link-local"),
    (b(0xfec0, 0, 0, 0), 10, "site-local"),
    (b(0xff00, 0, 0, 0), 8, "multicast"),
];

fn v4(address: Ipv4Addr) -> Option<PrivateRange> {
    let mut networks = V4.iter().filter_map(|(network, prefix, name)| {
        let network = IpNet::V4(Ipv4Net::new(*network, *prefix).ok()?);
        Some(PrivateRange { network, name })
    });
    networks.find(|range| range.network.contains(&IpAddr::V4(address)))
}

fn v6(address: Ipv6Addr) -> Option<PrivateRange> {
    let mut networks = V6.iter().filter_map(|(network, prefix, name)| {
        let network = IpNet::V6(Ipv6Net::new(*network, *prefix).ok()?);
        Some(PrivateRange { network, name })
    });
    let special = networks.find(|range| range.network.contains(&IpAddr::V6(address)));
    // Everything outside 2000::/3, the public internet, counts as special.
    let reserved = || PrivateRange { network: IpNet::V6(Ipv6Net::from(address)), name: "reserved" };
    special.or_else(|| (address.to_bits() >> 125 != 1).then(reserved))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::is_private;

    #[test]
    fn private_ranges_are_exact_at_both_ends() {
        for (addresses, range) in [
            (&["0.0.0.0", "0.255.255.255", "::"][..], Some("unspecified")),
            (
                &[
                    "10.0.0.0",
                    "10.255.255.255",
                    "172.16.0.0",
                    "172.31.255.255",
                    "192.168.0.0",
                    "192.168.255.255",
                ],
                Some("private network"),
            ),
            (&["100.64.0.0", "100.127.255.255"], Some("carrier-grade NAT")),
            (&["127.0.0.0", "127.0.0.1", "127.255.255.255", "::1"], Some("loopback")),
            (&["169.254.0.0", "169.254.255.255", "fe80::", "fe80::1", "febf:ffff::1"], Some("link-local")),
            (
                &["169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"],
                Some("cloud metadata"),
            ),
            (&["192.0.0.0", "192.0.0.255", "2001:1::1", "2001:1ff:ffff::1"], Some("protocol assignments")),
            (
                &[
                    "192.0.2.0",
                    "198.51.100.255",
                    "203.0.113.7",
                    "2001:db8::",
                    "2001:db8:ffff::1",
                    "3fff::1",
                    "3fff:fff::1",
                ],
                Some("documentation"),
            ),
            (&["192.88.99.1"], Some("6to4 relay")),
            (&["198.18.0.0", "198.19.255.255", "2001:2::1"], Some("benchmarking")),
            (&["224.0.0.0", "239.255.255.255", "ff02::1"], Some("multicast")),
            (
                &[
                    "240.0.0.0",
                    "255.255.255.254",
                    "1::",
                    "200::",
                    "1fff:ffff::",
                    "4000::",
                    "5f00::1",
                    "64:ff9b:2::",
                    "64:ff9b::1:7f00:1",
                ],
                Some("reserved"),
            ),
            (&["255.255.255.255"], Some("broadcast")),
            (&["::127.0.0.1", "::8.8.8.8", "::2"], Some("IPv4-compatible")),
            (&["fc00::", "fdff:ffff::1"], Some("unique local")),
            (&["fec0::1"], Some("site-local")),
            (&["2002:7f00:1::", "2002:808:808::1"], Some("6to4")),
            (&["2001::1", "2001:0:ffff::"], Some("Teredo")),
            (&["100::1"], Some("discard-only")),
            (&["64:ff9b:1::7f00:1", "64:ff9b:1:ffff::"], Some("local NAT64")),
            (
                &["::ffff:127.0.0.1", "::ffff:7f00:1", "64:ff9b::7f00:1", "64:ff9b::127.255.0.1"],
                Some("loopback"),
            ),
            (&["::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"], Some("cloud metadata")),
            (&["::ffff:10.1.2.3", "64:ff9b::a01:203"], Some("private network")),
            (&["::ffff:0.0.0.0", "64:ff9b::"], Some("unspecified")),
            (
                &[
                    "1.0.0.0",
                    "8.8.8.8",
                    "9.255.255.255",
                    "11.0.0.0",
                    "100.63.255.255",
                    "100.128.0.0",
                    "126.255.255.255",
                    "128.0.0.0",
                    "169.253.255.255",
                    "169.255.0.0",
                    "172.15.255.255",
                    "172.32.0.0",
                    "191.255.255.255",
                    "192.0.1.0",
                    "192.0.3.0",
                    "192.167.255.255",
                    "192.169.0.0",
                    "198.17.255.255",
                    "198.20.0.0",
                    "203.0.112.255",
                    "203.0.114.0",
                    "223.255.255.255",
                    "::ffff:8.8.8.8",
                    "64:ff9b::808:808",
                    "2000::",
                    "2001:200::",
                    "2001:4860:4860::8888",
                    "2001:db7:ffff::",
                    "2001:db9::",
                    "2003::",
                    "2606:4700::1111",
                    "3ffe::1",
                    "3fff:1000::",
                ],
                None,
            ),
        ] {
            for address in addresses {
                assert_eq!(is_private(address.parse().unwrap()), range, "{address}");
            }
        }
    }
}
