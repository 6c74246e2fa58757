//! The parts that verbs with a connection to this host's daemon share: the connection and the contract on the
//! command line.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use punctual::{
    Activation, ChannelRefusal, CloseReason, Contract, Delivery, Endsystem, FlowName, Horizon, Late,
    LinkStatus, Nanos, OpenError, Policing, Ppb, Rate, RefuseCause, Statistical, reason_text,
};

use punctual_proto::ids::NodeId;

use crate::output::Usage;
use crate::values;

/// What to do if a neighbour's packets fail authentication.
pub const AUTHENTICATION_FIX: &str = "compare [signalling] key and the ids of [[host]] on both hosts";

/// Which daemon.
#[derive(Args)]
pub struct Host {
    /// Socket of the daemon [default: $PUNCTUAL_SOCKET or /run/punctual/api.sock].
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

impl Host {
    /// Connects to it.
    ///
    /// # Errors
    /// If there is none, with the fix.
    pub fn connect(&self) -> anyhow::Result<Endsystem> {
        let connected = match &self.socket {
            Some(path) => Endsystem::connect_to(path),
            None => Endsystem::connect(),
        };
        connected.context("not connected")
    }
}

/// One line about a channel that was not opened. Adds the fix if the receiver's side can fix it, or if this
/// host (`endsystem`) has information why there is no answer.
pub fn not_opened(endsystem: &Endsystem, error: &OpenError) -> String {
    match error {
        OpenError::Refused {
            refusal: ChannelRefusal { cause: RefuseCause::Unreachable(node), .. }, ..
        } => {
            let links = endsystem.status().map(|status| status.node.links).unwrap_or_default();
            unreachable(&error.to_string(), *node, &links)
        }
        OpenError::Refused {
            refusal: ChannelRefusal { cause: RefuseCause::NoListener(name), .. }, ..
        } => {
            format!("{error}: start a receiver there first, as 'punctual recv {name}'")
        }
        _ => error.to_string(),
    }
}

/// A host that does not answer may be running with another key.
fn unreachable(refused: &str, node: NodeId, links: &[LinkStatus]) -> String {
    let is_strange = |link: &&LinkStatus| link.neighbour == node && !link.alive && link.unauthenticated > 0;
    match links.iter().find(is_strange) {
        Some(LinkStatus { name, neighbour_name, .. }) => format!(
            "{refused}; link {name}: packets from {neighbour_name} FAIL AUTHENTICATION: {AUTHENTICATION_FIX}"
        ),
        None => refused.to_owned(),
    }
}

/// How a channel ended, with the fix.
pub fn ended(reason: Option<CloseReason>) -> String {
    let fix = match reason {
        Some(CloseReason::PathLost) => {
            "see 'punctual status' on the hosts on the route for the link that is down, then open it again"
        }
        Some(CloseReason::Peer) => "it wanted no more",
        Some(CloseReason::PeerVanished) => "start it again",
        Some(CloseReason::PeerStopped | CloseReason::PeerRestarted) => {
            "open it again when the daemon there is back ('punctual status' shows its link alive)"
        }
        Some(CloseReason::LeaseOver) => "see 'punctual status' for losses on the route, then open it again",
        Some(CloseReason::FilterRefused | CloseReason::RuntimeRefused) => {
            "'punctual doctor' there shows more"
        }
        Some(CloseReason::Local) => "it was closed at this end",
        Some(CloseReason::Vanished | CloseReason::Stopped) | None => {
            "start punctuald again and open it again"
        }
    };
    format!("{}: {fix}", reason_text(reason))
}

/// A warning that nothing is guaranteed, with the hosts that cause it; empty if there are none.
pub fn degraded(hosts: &[String]) -> String {
    if hosts.is_empty() {
        return String::new();
    }
    format!(" (DEGRADED by {}: nothing is guaranteed, see 'punctual doctor' there)", hosts.join(", "))
}

/// The traffic, and the guarantees that are requested for it.
#[derive(Args)]
pub struct Traffic {
    /// Maximum rate of messages (25/s, 30000/1001/s), or the time between two messages (40ms).
    #[arg(long, value_parser = values::rate, allow_hyphen_values = true)]
    pub rate: Rate,
    /// Size of the longest message (110KB, 64KiB, 1400B).
    #[arg(long, value_parser = values::bytes, allow_hyphen_values = true)]
    pub size: u32,
    /// Each message must arrive within this time (80ms). The time counts from the message's logical arrival: when a sender
    /// that keeps its rate would have sent it.
    #[arg(long, value_parser = values::span, allow_hyphen_values = true)]
    pub deadline: Nanos,
    /// How many messages may be sent at once.
    #[arg(long, default_value_t = 1, value_parser = values::count, allow_hyphen_values = true)]
    pub burst: u64,
    /// Jitter allowance: how late the sender's timer may be without making later messages wait (2ms; 0ns for none)
    /// [default: ten message intervals, at most 10ms].
    #[arg(long, value_name = "TIME", value_parser = values::span, allow_hyphen_values = true)]
    pub jitter: Option<Nanos>,
    /// What the source does with messages that exceed rate, burst and jitter.
    #[arg(long, value_enum, default_value = "delay")]
    pub policing: PolicingName,
    /// Hand each message to the receiver at its deadline, not as soon as it has arrived.
    #[arg(long)]
    pub at_deadline: bool,
    /// Hold each message until its logical arrival at every hop. Buffers are smaller, but latency is close to the deadline.
    #[arg(long)]
    pub regulated: bool,
    /// How processors on the route schedule this channel: deadline (packets by their deadlines),
    /// low-latency:10ms,4 (budgets of 4 packets, at least 10ms apart) or periodic:10ms,8 (a timer, 8 packets per period).
    #[arg(long, default_value = "deadline", value_parser = values::activation)]
    pub activation: Activation,
    /// What hosts on the route do with messages that cannot arrive in time any more. 'drop' makes the channel soft: such
    /// messages are lost.
    #[arg(long, value_enum, default_value = "deliver")]
    pub late: LateName,
    /// Use this flow of the host's static plan for the channel (see 'punctual plan').
    #[arg(long, value_name = "NAME", value_parser = values::flow)]
    pub flow: Option<FlowName>,
    /// Ask for a soft guarantee: at most this share of the messages misses the deadline (0.1%, 1e-4), if all sources send
    /// independently of each other. Stages (CPUs and links on the route) with admission "statistical" admit more such
    /// channels. Other stages reserve the full rate.
    #[arg(long, value_name = "SHARE", value_parser = values::share, requires = "mean_rate")]
    pub miss_ratio: Option<Ppb>,
    /// With --miss-ratio: the mean rate (5/s). Messages that exceed it are treated as those that exceed --rate.
    #[arg(long, value_name = "RATE", value_parser = values::rate, requires = "miss_ratio")]
    pub mean_rate: Option<Rate>,
    /// With --mean-rate: the time over which the mean is taken.
    #[arg(long, value_name = "TIME", value_parser = values::span, default_value = "1s")]
    pub mean_over: Nanos,
}

/// See [`Late`].
#[derive(Clone, Copy, ValueEnum)]
pub enum LateName {
    /// Deliver them, and count them.
    Deliver,
    /// Hosts may drop them.
    Drop,
}

/// See [`Policing`].
#[derive(Clone, Copy, ValueEnum)]
pub enum PolicingName {
    /// Let them wait.
    Delay,
    /// Drop them.
    Drop,
    /// Send them as best effort.
    Demote,
}

/// For people: how many messages were late, and how many perhaps.
pub fn lateness(late: u64, perhaps_late: u64, unmeasured: u64) -> String {
    let mut text = format!("{late} late");
    for (count, which) in [(perhaps_late, "perhaps late"), (unmeasured, "of unknown timeliness")] {
        if count > 0 {
            text += &format!(", {count} {which}");
        }
    }
    text
}

impl Traffic {
    /// The contract.
    ///
    /// # Errors
    /// Wrong usage if a value is out of range.
    pub fn contract(&self) -> anyhow::Result<Contract> {
        let contract = Contract {
            message_bytes_max: self.size,
            rate_max: self.rate,
            // What does not fit is out of the contract's range as well.
            burst_messages_max: u32::try_from(self.burst).unwrap_or(u32::MAX),
            deadline: self.deadline,
            policing: match self.policing {
                PolicingName::Delay => Policing::Delay,
                PolicingName::Drop => Policing::Drop,
                PolicingName::Demote => Policing::Demote,
            },
            delivery: if self.at_deadline { Delivery::AtDeadline } else { Delivery::Asap },
            horizon: if self.regulated { Horizon::Regulated } else { Horizon::Cumulative },
            activation: self.activation,
            late: match self.late {
                LateName::Deliver => Late::Deliver,
                LateName::Drop => Late::Drop,
            },
            flow: self.flow,
            statistical: self.miss_ratio.zip(self.mean_rate).map(|(miss_ratio, mean_rate)| Statistical {
                mean_rate,
                mean_over: self.mean_over,
                miss_ratio,
            }),
            jitter: self.jitter,
        };
        contract.validate().map_err(|error| Usage(error.to_string()))?;
        Ok(contract)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_that_is_silent_because_of_another_key_is_named_with_the_fix() {
        let link = |alive: bool, unauthenticated: u64| {
            let status = serde_json::json!({
                "link": 0, "name": "right", "neighbour": 2, "neighbour_name": "b", "alive": alive, "clock_offset_ns": null,
                "round_trip_min": null, "utilisation": 0, "packets_guaranteed": 0, "packets_best_effort": 0,
                "packets_signalling": 0, "wire_bytes": 0, "best_effort_dropped": 0, "unauthenticated": unauthenticated,
            });
            serde_json::from_value::<LinkStatus>(status).expect("a link's status")
        };
        let printed = unreachable("node 2 cannot be reached", NodeId(2), &[link(true, 9), link(false, 3)]);
        assert_eq!(
            printed,
            format!(
                "node 2 cannot be reached; link right: packets from b FAIL AUTHENTICATION: {AUTHENTICATION_FIX}"
            )
        );
        assert_eq!(unreachable("no", NodeId(2), &[link(true, 9), link(false, 0)]), "no");
        assert_eq!(unreachable("no", NodeId(3), &[link(false, 3)]), "no", "another host");
    }
}
