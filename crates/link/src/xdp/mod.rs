//! AF_XDP: packets are classified in the driver, before any buffer is spent on them (early demultiplexing,
//! RIO 2.0.1).
//!
//! The XDP program (`bpf/punctual.bpf.c`) recognises the link's packets, polices each path, drops packets without a receiver
//! and steers the rest to the ring of its stream. [`Classifier`] owns the program: it loads, attaches and fills it and
//! reads what it counted. A steered frame carries a [`Tag`] if its Ethernet header was: the driver's receive time,
//! where our bytes lie, and what they are charged to ([`Accounts`]). Packets of flows keep their headers, with the tag in
//! front (ADR 0053).

mod accounts;
mod attach;
mod checksum;
mod driver;
mod filters;
mod flows;
mod headers;
mod ledger;
mod link_options;
mod mapping;
mod neighbour;
mod options;
mod program;
mod queue;
mod receive;
mod rings;
mod socket;
mod tag;
mod transmit;
mod umem;

pub use accounts::{Accounts, Charge, Returns};
pub use attach::Classifier;
pub use driver::XdpLink;
pub use headers::Addresses;
pub use link_options::{XdpOptions, ZeroCopy};
pub use options::{AttachMode, ClassifierOptions, Rate};
pub use program::{Program, Verdict};
pub use tag::{TAG_BYTES, Tag};
pub use umem::XdpMemory;

/// Receive queues of a device that can be used: sockets on queues from 0 to this, exclusively.
pub const QUEUES_MAX: u32 = 64;
/// Maximum number of filters of a link, unless the options request fewer.
pub const FILTERS_MAX: u32 = 65_536;
/// Most flows of a link.
pub const FLOWS_MAX: u32 = 65_536;
/// Most listeners of a link.
pub const LISTENERS_MAX: u32 = 4_096;
