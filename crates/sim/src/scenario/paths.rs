//! Connections whose path is reserved (ADR 0055): their ends, their class, and the contract of both channels, one each way.

use punctual_analysis::{Contract, Nanos, Policing, Rate};
use punctual_proto::api::RtuClass;
use punctual_proto::signalling::drain_max;

use super::channels::draw_ends;
use super::routes::is_routed;
use super::{DEADLINE_MAX, HostPlan};
use crate::dice::Dice;

/// Length of a packet on a reserved path (ADR 0055: the smallest MTU of IPv6).
pub(super) const PATH_PACKET_BYTES: u32 = 1_280;
/// The channel of a best-effort connection carries a packet in this time; what exceeds that is best effort.
const LEAST: Nanos = Nanos::from_secs(1);

/// Periods that a segment, and its acknowledgement, spend in handlers.
const HOST_PERIODS: u64 = 4;
/// Segments that the windows hold once a connection has warmed up (`world::tcp::promise`), of 54 at most.
const FLIGHT_MAX: u64 = 30;

/// Ends that have a route each way, a class, and the contract that it becomes.
pub(super) fn draw_path(hosts: &[HostPlan], dice: &mut Dice) -> Option<([usize; 2], RtuClass, Contract)> {
    let (from, to) = draw_ends(hosts, dice);
    let class = draw_class(dice);
    let path = contract(class, draw_deadline(class, dice))?;
    let is_there = is_routed(hosts, from, to) && is_routed(hosts, to, from);
    is_there.then_some(([from, to], class, path))
}

fn draw_class(dice: &mut Dice) -> RtuClass {
    let period = Nanos::from_millis(dice.between(4, 20));
    let units = dice.between(1, 6) as u32;
    match dice.between(0, 4) {
        0 => RtuClass::BestEffort,
        1 => RtuClass::LowDelay { interval: period, units, priority: None },
        _ => RtuClass::periodic(period, units),
    }
}

/// The deadline that a program gives; `None`: the period or the interval.
fn draw_deadline(class: RtuClass, dice: &mut Dice) -> Option<Nanos> {
    let (period, _) = class.periods()?;
    match dice.between(0, 3) {
        0 => None,
        1 | 2 => Some(period + Nanos(dice.between(0, period.0 * 3))),
        _ => Some(Nanos::from_millis(dice.between(10, DEADLINE_MAX.0 / 1_000_000))),
    }
}

/// Whether the windows of a connection hold what may be under way: its segments, and their acknowledgements on the way back.
pub(super) fn holds_flight(class: RtuClass, path: &Contract) -> bool {
    let RtuClass::Guaranteed { period, units, .. } = class else { return false };
    let periods = (path.deadline * 2).0.div_ceil(period.0) + HOST_PERIODS;
    units > 1 && periods * u64::from(units) <= FLIGHT_MAX
}

/// The contract of each channel, by the table of ADR 0055.
fn contract(class: RtuClass, deadline: Option<Nanos>) -> Option<Contract> {
    let (interval, burst, within, policing) = match class {
        RtuClass::LowDelay { interval, units, .. } => {
            (Nanos(interval.0 / u64::from(units)), units, interval, Policing::Demote)
        }
        // One a period is margin.
        RtuClass::Guaranteed { period, units, .. } => {
            (Nanos(period.0 / (u64::from(units) + 1)), units, period, Policing::Delay)
        }
        RtuClass::BestEffort => (LEAST, 1, LEAST, Policing::Demote),
    };
    let contract =
        Contract::new(PATH_PACKET_BYTES, Rate::every(interval)?, burst, deadline.unwrap_or(within));
    Some(Contract { policing, ..contract.ok()? })
}

/// The longest time that such a channel needs to close.
pub(super) fn drain_of(path: &Contract) -> Nanos {
    drain_max(path).min(LEAST * 4)
}
