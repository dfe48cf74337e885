//! Clients as limits see them: what they share, and what a share per address is counted under.

use std::net::{IpAddr, Ipv6Addr};

/// A proxy on this machine, whose clients all come from one address.
pub const LOOPBACK: &str = "127.0.0.0/8,::1";

const NONE: &str = "none";
/// The part of an IPv6 address that is one subscriber's network; the rest is its own choice.
const SUBNET_BITS: u32 = 64;

/// The addresses that many clients share, so that no share per address applies to them.
#[derive(Debug, Default)]
pub struct Proxies(Vec<Network>);

/// Neither an address nor a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadNetwork(pub String);

#[derive(Debug)]
struct Network {
    address: IpAddr,
    bits: u32,
}

impl Proxies {
    /// Reads addresses and networks, separated by commas, or `none`.
    ///
    /// # Errors
    ///
    /// The first item that is neither, or a network whose address has bits beyond its prefix.
    pub fn new(text: &str) -> Result<Self, BadNetwork> {
        if text == NONE {
            return Ok(Proxies::default());
        }
        let items = text.split(',').map(str::trim);
        let networks = items.map(|item| Network::parse(item).ok_or_else(|| BadNetwork(item.to_owned())));
        networks.collect::<Result<_, _>>().map(Proxies)
    }

    /// What limits count a client under: its IPv4 address or IPv6 /64 network; None if no share applies to it.
    pub fn key_of(&self, client: IpAddr) -> Option<IpAddr> {
        let client = client.to_canonical();
        if self.0.iter().any(|network| network.contains(client)) {
            return None;
        }
        Some(match client {
            IpAddr::V4(_) => client,
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask(128, SUBNET_BITS))),
        })
    }
}

impl Network {
    fn parse(item: &str) -> Option<Self> {
        let (address, bits) = item.split_once('/').map_or((item, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let (size, value) = as_bits(address);
        let bits = match bits {
            Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                text.parse().ok().filter(|&bits| bits <= size)?
            }
            Some(_) => return None,
            None => size,
        };
        (value & !mask(size, bits) == 0).then_some(Network { address, bits })
    }

    fn contains(&self, client: IpAddr) -> bool {
        let ((size, own), (client_size, client)) = (as_bits(self.address), as_bits(client));
        size == client_size && (own ^ client) & mask(size, self.bits) == 0
    }
}

fn as_bits(address: IpAddr) -> (u32, u128) {
    match address {
        IpAddr::V4(address) => (32, u128::from(address.to_bits())),
        IpAddr::V6(address) => (128, address.to_bits()),
    }
}

/// The first `bits` of `size` bits.
fn mask(size: u32, bits: u32) -> u128 {
    let all = u128::MAX >> (128 - size);
    all & !all.checked_shr(bits).unwrap_or(0)
}

/// What all connections share.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    /// Connections at once.
    pub connections: usize,
    /// Those of one address.
    pub per_address: usize,
    /// Bytes of responses in memory that clients have not read. From two thirds of it on, stalled clients have to go.
    pub unsent: usize,
}

impl Shares {
    /// What may be unread without anybody having to go.
    pub(crate) fn soft_unsent(&self) -> usize {
        self.unsent - self.unsent / 3
    }

    /// What one address may have of `unsent` before others have to go: as much of it as of the connections.
    pub(crate) fn unsent_per_address(&self) -> usize {
        let share = self.unsent as u128 * self.per_address as u128 / self.connections.max(1) as u128;
        usize::try_from(share).unwrap_or(usize::MAX)
    }
}
