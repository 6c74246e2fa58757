//! Every limit of the protocol, in one place. Related limits are asserted at compile time.

use punctual_analysis::Nanos;

/// Longest name of a host or port.
pub const NAME_BYTES_MAX: usize = 63;
/// Bytes of the data header on the wire (design 8).
pub const HEADER_BYTES: usize = 64;
/// Payload of a packet unless configured otherwise.
pub const FRAGMENT_BYTES_DEFAULT: u32 = 1_400;
/// Smallest payload of a packet that can be configured.
pub const FRAGMENT_BYTES_MIN: u32 = 64;
/// Largest payload of a packet (a UDP datagram less our header).
pub const FRAGMENT_BYTES_MAX: u32 = 65_507 - HEADER_BYTES as u32;
/// Most fragments of a message.
pub const FRAGMENTS_MAX: u32 = u16::MAX as u32;
/// Most nodes on a route, both ends included.
pub const ROUTE_NODES_MAX: usize = 32;
/// Most links of a node.
pub const LINKS_MAX: usize = 64;
/// Largest signalling message, before its UDP header.
pub const SIGNAL_BYTES_MAX: usize = 1_400;
/// How long a reservation lives without a refresh.
pub const LEASE_DEFAULT: Nanos = Nanos::from_secs(20);
/// Refreshes within a lease (design 7: at least four).
pub const REFRESHES_PER_LEASE: u64 = 5;
/// Between HELLOs to a neighbour: an idle node wakes less than five times a second.
pub const HELLO_INTERVAL_DEFAULT: Nanos = Nanos::from_secs(1);
/// HELLOs missed until a neighbour is taken for dead.
pub const HELLOS_MISSED_MAX: u64 = 4;
/// Default tolerance of one host's clock in ppm; rho is twice this (design 3).
pub const CLOCK_TOLERANCE_PPM_DEFAULT: u32 = 100;

const _: () = assert!(REFRESHES_PER_LEASE >= 4);
const _: () = assert!(FRAGMENT_BYTES_DEFAULT as usize + HEADER_BYTES + 28 <= 1_500);
