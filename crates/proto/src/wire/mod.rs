//! The data packet on the wire (ADR 0004): a header of 64 bytes, little-endian, at fixed offsets, then
//! payload.
//!
//! ```text
//!  byte 0       1       2       3       4       5       6       7
//!      +-------+-------+---------------+-------------------------------+
//!   0  |version| kind  |     flags     |          source node          |
//!      +-------+-------+---------------+-------------------------------+
//!   8  |        channel number         |            cookie             |
//!      +-------------------------------+-------------------------------+
//!  16  |                        epoch of the source                    |
//!      +---------------------------------------------------------------+
//!  24  |                         message number                        |
//!      +---------------+---------------+-------------------------------+
//!  32  |fragment index |fragment count |        message length         |
//!      +---------------+---------------+-------------------------------+
//!  40  |                          slack, signed                        |
//!      +---------------------------------------------------------------+
//!  48  |                        logical arrival                        |
//!      +---------------+---------------+-------------------------------+
//!  56  | payload bytes | age at depart.|  clock error, or destination  |
//!      +---------------+---------------+-------------------------------+
//!  64  |  payload ...                                                  |
//! ```
//!
//! | offset | field           | type | unit, range                                                           |
//! |-------:|-----------------|------|-----------------------------------------------------------------------|
//! |      0 | version         | u8   | [`VERSION`]; another one is refused before any other check |
//! |      1 | kind            | u8   | 1 guaranteed, 2 best effort                                           |
//! |      2 | flags           | u16  | bit 0: demoted (only guaranteed data); bit 1: by its source; others 0 |
//! |      4 | source node     | u32  | never 0                                                               |
//! |      8 | channel number  | u32  | at the source                                                         |
//! |     12 | cookie          | u32  | the channel's; for best effort the hash of the port's name            |
//! |     16 | epoch           | u64  | of the source                                                         |
//! |     24 | message number  | u64  | counts up in the channel                                              |
//! |     32 | fragment index  | u16  | below the fragment count                                              |
//! |     34 | fragment count  | u16  | 1 or more                                                             |
//! |     36 | message length  | u32  | bytes, up to [`MESSAGE_BYTES_MAX`]                                    |
//! |     40 | slack           | i64  | ns: nominal arrival + bound - latest departure of the last bit        |
//! |     48 | logical arrival | u64  | ns, on the clock of the sending host; for best effort on the source's |
//! |     56 | payload bytes   | u16  | of this packet; what follows it is padding                            |
//! |     58 | age             | u16  | latest departure of the last bit less logical arrival ([`Age`]); 0: unknown |
//! |     60 | clock error     | u32  | for a channel: error of its logical arrival in ns; all bits set: unknown |
//! |     60 | destination     | u32  | for best effort: never node 0                                         |
//!
//! Each hop converts the logical arrival of a channel's packet to its own clock and adds the error of the
//! conversion to the clock error, so that every host can compute how late a message is (ADR 0025). The result
//! is not used to schedule or police: a wrong clock affects only reports.
//!
//! All fragments of a message but the last carry the same number of bytes, the *fragment size*, and the last
//! one carries the rest, so fragment i lies at i times fragment size in the message. Every header contains
//! that size ([`Header::fragment_bytes`]), and [`Header::parse`] refuses a header whose counts contradict it.
//! A message without bytes is one fragment without payload; no other fragment is empty.
//!
//! Parsing is the only way to get a received [`Header`]: its counts are consistent, but no other field is
//! checked (path, cookie, slack and numbers are checked where they are used).

mod clocks;
mod header;

pub use clocks::{Age, ClockError};
pub use header::{Header, Kind, Malformed, VERSION, WireError};
pub use punctual_analysis::contract::MESSAGE_BYTES_MAX;
