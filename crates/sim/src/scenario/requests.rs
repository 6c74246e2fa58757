//! Channels that their receivers request: an application elsewhere opens one to them, refuses, or does not
//! reply.

use punctual_analysis::{Contract, Nanos, Ppm, Rate};

use super::channels::{draw_contract, draw_ends};
use super::{DEADLINE_MAX, HostPlan, Times};
use crate::dice::{Dice, Draw, mix};
use crate::memory::MESSAGE_BYTES_MIN;
use crate::time::SimTime;

/// Stream that determines whether receivers request channels: in one seed of four, so that the other seeds
/// are unchanged; the recorded ones (tests/seeds) are among the others.
const CLASS_OF_REQUESTS: u64 = 0x545d;
/// Most requesting hosts.
const ASKERS_MAX: u64 = 20;

/// A receiver's request for a channel.
#[derive(Clone, Copy, Debug)]
pub struct RequestPlan {
    /// The requesting host, where the channel ends.
    pub asker: usize,
    /// The host whose application gets the request.
    pub source: usize,
    /// The requested contract.
    pub contract: Contract,
    /// Time of the request.
    pub at: SimTime,
    /// Reaction of that application.
    pub reply: Reply,
}

/// Reaction of an application to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It opens one.
    Opens,
    /// It refuses.
    Refuses,
    /// It never replies.
    Silent,
}

pub(super) fn draw_requests(seed: u64, hosts: &[HostPlan], times: &Times) -> Vec<RequestPlan> {
    if !mix(seed ^ CLASS_OF_REQUESTS).is_multiple_of(4) {
        return Vec::new();
    }
    let mut dice = Dice::of(seed, Draw::Requests);
    let count = dice.between(1, 3 * (hosts.len() as u64).min(ASKERS_MAX));
    let mut requests: Vec<_> = (0..count).map(|_| draw_request(hosts, times, &mut dice)).collect();
    // Sometimes many requests that a silent application keeps waiting.
    if dice.chance(Ppm(200_000)) {
        let one = RequestPlan { reply: Reply::Silent, ..draw_request(hosts, times, &mut dice) };
        requests.extend((0..dice.log_between(10, 120)).map(|_| one));
    }
    requests
}

fn draw_request(hosts: &[HostPlan], times: &Times, dice: &mut Dice) -> RequestPlan {
    let (asker, source) = draw_ends(hosts, dice);
    let small = Contract {
        message_bytes_max: MESSAGE_BYTES_MIN,
        rate_max: Rate::every(Nanos::from_millis(100)).expect("not zero"),
        burst_messages_max: 1,
        deadline: DEADLINE_MAX,
        ..draw_contract(dice)
    };
    let contract = if dice.chance(Ppm(600_000)) { small } else { draw_contract(dice) };
    let at = times.opens + Nanos(dice.between(0, times.calm.since(times.opens).0));
    let reply = dice.pick(&[Reply::Opens, Reply::Opens, Reply::Refuses, Reply::Silent]);
    RequestPlan { asker, source, contract, at, reply }
}
