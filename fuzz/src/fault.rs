//! What happens to packets on the links of [`crate::net`]: in all directions, or in one direction of one link while the
//! other one is perfect.

use punctual_proto::Nanos;
use punctual_proto::api::Port;
use punctual_proto::ids::LinkId;

/// One direction of a link: from this host, over this link of it.
pub type Direction = (usize, LinkId);

/// The directions of three hosts in a line.
pub const DIRECTIONS: [Direction; 4] = [(0, LinkId(0)), (1, LinkId(0)), (1, LinkId(1)), (2, LinkId(0))];
/// The delay of late packets: more than a message has left of the deadline of many channels.
const LATE: Nanos = Nanos::from_millis(20);

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// So many are lost.
    Loss(u32),
    /// All are lost.
    Cut,
    /// All take longer.
    Delay(Nanos),
}

/// A fault of the links. It lasts until another one takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    kind: Kind,
    direction: Option<Direction>,
    signalling: bool,
}

impl Fault {
    /// Links that are perfect.
    pub const NONE: Self = Self { kind: Kind::Loss(0), direction: None, signalling: false };

    /// The fault of a byte. Lowest four bits: how many packets are lost; in one direction 14 is a delay of all of
    /// them, 15 the loss of all. Next three bits: 0 is every direction, else one of [`DIRECTIONS`]. Highest bit:
    /// signalling, too, not only data.
    pub const fn of(byte: u8) -> Self {
        let direction = match byte >> 4 & 7 {
            0 => None,
            number => Some(DIRECTIONS[(number as usize - 1) % DIRECTIONS.len()]),
        };
        let kind = match (direction, byte & 15) {
            (Some(_), 14) => Kind::Delay(LATE),
            (Some(_), 15) => Kind::Cut,
            (_, packets) => Kind::Loss(packets as u32),
        };
        Self { kind, direction, signalling: byte & 0x80 != 0 }
    }

    /// Whether packets are still to be lost, or late.
    pub fn is_over(&self) -> bool {
        self.kind == Kind::Loss(0)
    }

    /// The additional delay of a packet in a direction; `None` if it is lost.
    pub fn pass(&mut self, direction: Direction, port: Port) -> Option<Nanos> {
        let elsewhere = self.direction.is_some_and(|only| only != direction);
        if elsewhere || port == Port::Signalling && !self.signalling {
            return Some(Nanos::ZERO);
        }
        match &mut self.kind {
            Kind::Loss(0) => Some(Nanos::ZERO),
            Kind::Loss(packets) => {
                *packets -= 1;
                None
            }
            Kind::Cut => None,
            Kind::Delay(delay) => Some(*delay),
        }
    }
}
