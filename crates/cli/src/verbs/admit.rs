//! `punctual admit`: what would be offered.

use clap::Args;
use punctual::{
    Address, ChannelRefusal, Contract, CostParts, CostSource, Grant, Horizon, HostName, Nanos, OpenError,
    StageGrant, Statistical, counted, name_of,
};
use punctual_analysis::CATCH_UP;
use serde::Serialize;

use super::status::percent;
use crate::host::{Host, Traffic, degraded, not_opened};
use crate::output::{Outcome, Output, table};
use crate::values;

/// Show whether a channel would be admitted, and which delay each host and link would promise. The channel is not opened. A
/// receiver must be listening.
#[derive(Args)]
#[command(
    after_help = "Example: punctual admit cam@hostb --rate 25/s --size 110KB --deadline 80ms --explain\n\
                        Exit code 0: the channel would be admitted. 1: it would be refused."
)]
pub struct Admit {
    /// The receiver's name and its host, for example cam@hostb.
    #[arg(value_parser = values::address)]
    peer: Address,
    #[command(flatten)]
    traffic: Traffic,
    /// Show how the bound of each stage (CPU or link on the route) is made up.
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    host: Host,
}

#[derive(Serialize)]
struct Answer {
    admitted: bool,
    grant: Option<Grant>,
    refusal: Option<ChannelRefusal>,
    /// Hosts on the way that guarantee nothing.
    degraded_by: Vec<String>,
    /// Why, a line for each host and reason.
    degraded_why: Vec<String>,
    /// One line for people.
    reason: Option<String>,
}

impl Admit {
    /// Sends the request to the network and prints the answer.
    ///
    /// # Errors
    /// If the request cannot be made.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let contract = self.traffic.contract()?;
        let host = self.host.connect()?;
        let answer = match host.probe(&self.peer.to_string(), contract) {
            Ok(grant) => Answer {
                admitted: true,
                degraded_by: grant.degraded_by(),
                degraded_why: grant.degraded_why(),
                grant: Some(grant),
                refusal: None,
                reason: None,
            },
            Err(error) => {
                let reason = Some(not_opened(&host, &error));
                let OpenError::Refused { refusal, .. } = error else { return Err(error.into()) };
                let refusal = Some(refusal);
                let (degraded_by, degraded_why) = (Vec::new(), Vec::new());
                Answer { admitted: false, grant: None, refusal, degraded_by, degraded_why, reason }
            }
        };
        output.print_with_units(&answer, |answer| text(answer, &contract, self.explain))?;
        Ok(Outcome::from_ok(answer.admitted))
    }
}

fn text(answer: &Answer, contract: &Contract, explain: bool) -> String {
    let Some(grant) = &answer.grant else {
        return refusal_text(answer, explain);
    };
    let messages = match contract.statistical {
        Some(Statistical { miss_ratio, .. }) => format!("all messages but {miss_ratio}"),
        None => "every message".into(),
    };
    let summary = format!(
        "yes: {messages} within {} (the route could promise {}), over {}, {}",
        grant.deadline,
        grant.bound_possible.at_least(),
        counted(grant.route.len(), "node"),
        counted(grant.stages.len(), "stage")
    );
    let why: String = answer.degraded_why.iter().map(|line| format!("\n  {line}")).collect();
    let summary = format!("{summary}{}{why}", degraded(&answer.degraded_by));
    if !explain {
        return summary;
    }
    format!("{summary}\n\n{}\n\n{}", explanation(&grant.stages, &grant.hosts), headroom(contract))
}

/// Headroom in the rate that is compared with none.
const HEADROOM: f64 = 1.1;

/// The wait of a sender whose timer is late, with a contract of exactly its rate and with headroom.
fn headroom(contract: &Contract) -> String {
    // The fraction of each interval by which the next message may come earlier.
    let made_up = |rate: f64| Nanos((1e9 * (1.0 - (1.0 - 1.0 / CATCH_UP as f64) / rate)) as u64);
    let served = match contract.horizon {
        Horizon::Cumulative => "and waits for nothing",
        Horizon::Regulated => {
            "and waits only where hops hold messages until the logical arrival, as this \
                               channel requires"
        }
    };
    format!(
        "jitter: a message up to {} ahead of its logical arrival keeps the contract {served}. So a sender of exactly the \n\
         contract's rate whose timer is late by at most that much has no standing delay. If its timer is later, its next \n\
         messages wait and are counted as policed, until the delay is made up. Each second makes up {} if the contract has \n\
         exactly the sender's rate, and {} with 10 % of headroom (--rate). --jitter sets the allowance. It costs buffers at \n\
         each stage.",
        contract.jitter_allowance(),
        made_up(1.0),
        made_up(HEADROOM),
    )
}

/// The text of a refusal, with the stages of the offer.
fn refusal_text(answer: &Answer, explain: bool) -> String {
    let reason = answer.reason.clone().unwrap_or_default();
    match &answer.refusal {
        Some(refusal) if explain && !refusal.stages.is_empty() => {
            let explained = explanation(&refusal.stages, &refusal.hosts);
            format!("{reason}\n\nWhat it could offer is made of:\n{explained}")
        }
        Some(_) if explain => {
            format!("{reason}\nNo stages to show: no contract was found that the route would have accepted")
        }
        _ => reason,
    }
}

fn explanation(stages: &[StageGrant], hosts: &[HostName]) -> String {
    let (bounds, costs) = (bounds(stages, hosts), costs(stages, hosts));
    format!("{bounds}\n\n{EXPLANATION}\n\n{costs}\n\n{EXPLANATION_COSTS}")
}

const EXPLANATION: &str = "offered: the smallest bound that the stage could promise now. It consists of: release (until the message is ready to
be served), blocking (less urgent work that has begun), interference (work that our scheduler does not order; cold start is
the part of it that cold caches take after an idle time, once, however many messages follow), own (the channel's own
messages) and others (more urgent channels). What the route could promise consists of all offers, the propagation delays,
and the clocks' drift meanwhile. What the deadline leaves beyond that is divided among the stages when the channel is opened.
used now: how much of the stage is reserved, without this channel.";

const EXPLANATION_COSTS: &str = "cost: what the stage is charged for one message of the largest size. On a processor this is: taking or handing over the
message, the first packet of each run (a run is at most the host's quantum, see `punctual status`), the other packets, and
copies. On a link it is: the bytes at the assured rate, and the time that the link may stand idle while its host reacts to
completions or to the clock.";

/// The source of a processor's costs, as text.
fn costs_from(source: CostSource) -> String {
    match source {
        CostSource::Configured => "configured".into(),
        CostSource::Measured { margin, short } => {
            format!("{} profile + {}", if short { "short" } else { "full" }, percent(margin))
        }
        CostSource::Foreign { margin } => format!("FOREIGN profile + {}", percent(margin)),
    }
}

fn costs(stages: &[StageGrant], hosts: &[HostName]) -> String {
    let none = || "-".to_owned();
    let rows: Vec<Vec<String>> = stages
        .iter()
        .map(|stage| {
            let mut row = vec![name_of(hosts, stage.node), stage.kind.to_string(), stage.cost.to_string()];
            row.extend(match stage.cost_parts {
                CostParts::Cpu { message, first_packets, later_packets, copy } => [
                    message.to_string(),
                    first_packets.to_string(),
                    later_packets.to_string(),
                    copy.to_string(),
                    none(),
                    none(),
                    costs_from(stage.costs_from),
                ],
                CostParts::Link { drain, reaction } => {
                    [none(), none(), none(), none(), drain.to_string(), reaction.to_string(), "rate".into()]
                }
            });
            row
        })
        .collect();
    let head = [
        "host",
        "stage",
        "cost",
        "message",
        "first packets",
        "other packets",
        "copy",
        "drain",
        "reaction",
        "from",
    ];
    table(&head, &rows)
}

fn bounds(stages: &[StageGrant], hosts: &[HostName]) -> String {
    let rows: Vec<Vec<String>> = stages
        .iter()
        .map(|stage| {
            let parts = stage.made_of;
            vec![
                name_of(hosts, stage.node),
                stage.kind.to_string(),
                stage.offered.at_least().to_string(),
                parts.release_latency.to_string(),
                parts.blocking.to_string(),
                parts.interference.to_string(),
                stage.cold_start.to_string(),
                parts.own.to_string(),
                parts.others.to_string(),
                stage.propagation_max.to_string(),
                percent(stage.utilisation),
            ]
        })
        .collect();
    let head = [
        "host",
        "stage",
        "offered",
        "release",
        "blocking",
        "interference",
        "cold start",
        "own",
        "others",
        "propagation",
        "used now",
    ];
    table(&head, &rows)
}
