//! Private address ranges, compared with another reader of the same registries: Python's.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

use cofferdam_egress::egress::is_private;

const SCRIPT: &str = "import sys, ipaddress\n\
    for line in sys.stdin: print(int(ipaddress.ip_address(line.strip()).is_global))";

/// Beginnings and ends of what any registry lists, and addresses everywhere in between.
fn addresses() -> Vec<IpAddr> {
    let mut all = Vec::new();
    for first in 0..=255_u32 {
        for rest in [0, 1, 0x0000_02ff, 0x0040_0000, 0x0058_6300, 0x00a8_ffff, 0x00fe_a9fe, 0x00ff_ffff] {
            all.push(IpAddr::V4(Ipv4Addr::from_bits(first << 24 | rest)));
        }
    }
    for network in [
        "100.64.0.0/10",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "240.0.0.0/4",
    ] {
        let (address, prefix) = network.split_once('/').unwrap();
        let bits = address.parse::<Ipv4Addr>().unwrap().to_bits();
        let last = bits | (u32::MAX >> prefix.parse::<u32>().unwrap());
        all.extend(
            [bits.wrapping_sub(1), bits, last, last.wrapping_add(1)]
                .map(|b| IpAddr::V4(Ipv4Addr::from_bits(b))),
        );
    }
    for first in (0..=0xffff_u128)
        .step_by(0x40)
        .chain([1, 0x64, 0x100, 0x2001, 0x2002, 0x3fff, 0x5f00, 0xfe80, 0xfec0])
    {
        for second in
            [0, 1, 2, 3, 4, 5, 0x10, 0x20, 0x30, 0x1ff, 0x200, 0xdb7, 0xdb8, 0xdb9, 0xfff, 0xff9b, 0xffff]
        {
            for rest in [0, 1, 0x7f00_0001, u128::MAX >> 32] {
                all.push(IpAddr::V6(Ipv6Addr::from_bits(first << 112 | second << 96 | rest)));
            }
        }
    }
    // A deterministic generator: a failure can be reproduced.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        all.push(IpAddr::V4(Ipv4Addr::from_bits((state >> 32) as u32)));
        all.push(IpAddr::V6(Ipv6Addr::from_bits(
            u128::from(state) << 64 | u128::from(state.rotate_left(17)),
        )));
    }
    all
}

#[test]
fn addresses_that_python_calls_private_are_denied() {
    let addresses = addresses();
    let python =
        Command::new("python3").args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut python) = python else {
        return crate::skipped("python3 is not here to say which addresses are private");
    };
    let text: String = addresses.iter().map(|address| format!("{address}\n")).collect();
    let mut input = python.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = python.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<_> = answers.lines().map(|line| line == "1").collect();
    assert_eq!(answers.len(), addresses.len());
    let (mut reachable, mut stricter) = (0, 0);
    for (address, global) in addresses.iter().zip(&answers) {
        // An address that embeds an IPv4 address is judged by it; older versions of Python refuse it entirely.
        let carries = matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
        match (is_private(*address), global) {
            (None, false) if !carries => panic!("{address} is private, says Python"),
            (None, _) => reachable += 1,
            (Some(_), true) => stricter += 1,
            (Some(_), false) => {}
        }
    }
    assert!(
        reachable > 10_000 && stricter > 100,
        "{reachable} reachable, {stricter} refused beyond Python's own"
    );
}
