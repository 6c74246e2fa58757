//! Experiments over two machines: the far one runs `punctual bench --serve` and executes the same [`Order`]s
//! as a namespace does.
//!
//! A small control channel over TCP: lines of JSON, one order, one answer. A connection is a session; when it
//! ends, all roles that were started in it end too. The first line of each side names its version: two builds
//! that differ refuse to measure together.
//!
//! [`Order`]: crate::testbed::Order

pub mod remote;
pub mod serve;
mod words;

pub use remote::Remote;
pub use serve::serve;

/// Default port of `--serve`, on every address.
pub const PORT_DEFAULT: u16 = 7_420;

#[cfg(test)]
mod tests;
