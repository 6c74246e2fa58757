//! Experiments over two machines: the far one runs `punctual bench --serve` and obeys the same [`Order`]s as a
//! namespace does.
//!
//! A small control channel over TCP: lines of JSON, one order, one answer. A connection is a session; when it ends,
//! whatever was started in it ends too. The first line of each side names its version: two builds that differ
//! refuse to measure together.
//!
//! [`Order`]: crate::testbed::Order

pub mod remote;
pub mod serve;
mod words;

pub use remote::Remote;
pub use serve::serve;

/// Where `--serve` listens unless told otherwise, on every address.
pub const PORT_DEFAULT: u16 = 7_420;

#[cfg(test)]
mod tests;
