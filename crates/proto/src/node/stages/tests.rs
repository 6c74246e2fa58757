//! Tests of a host's stages: questions and answers, reservations, and their complete release.

mod bounds;
mod buffers;
mod held;
mod models;
mod order;
mod plan;
mod refused;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use punctual_analysis::{
    Activation, Admission, BitRate, Contract, FlowName, Horizon, Nanos, Policing, Ppb, Ppm, Rate,
    RefusalReason, RunPolicy, Soft,
};

use super::*;
use crate::api::{Cause, Role, RtuClass, RtuCost, RtuRefusal, RtuTerms, StageGrant};
use crate::breach::Lateness;
use crate::config::{CpuConfig, LinkConfig, Pacing, SignallingConfig, WhileBroken};
use crate::ids::{ChannelNumber, Cookie, Epoch, Name, PathId};

const LEFT: LinkId = LinkId(0);
const RIGHT: LinkId = LinkId(1);
const MS: fn(u64) -> Nanos = Nanos::from_millis;

pub(super) fn config() -> NodeConfig {
    let link = |name: &str, neighbour| LinkConfig::new(name, NodeId(neighbour), BitRate(40_000_000));
    NodeConfig {
        id: NodeId(2),
        name: Name::new("h2").expect("a name"),
        epoch: Epoch(1),
        fragment_bytes: 1_400,
        fragment_low_latency_bytes: None,
        clock_tolerance: Ppm(100),
        links: vec![link("left", 1), link("right", 3)],
        cpu: CpuConfig::default(),
        directory: Vec::new(),
        routes: Vec::new(),
        signalling: SignallingConfig::default(),
        buffer_bytes_max: 1 << 20,
        wakeup_margin: Nanos::ZERO,
    }
}

pub(super) fn stages_of(config: &NodeConfig) -> Stages {
    Stages::new(config).expect("a host that carries its own signalling")
}

fn contract(bytes: u32) -> Contract {
    let rate = Rate::per_second(50).expect("a rate");
    let contract = Contract::new(bytes, rate, 1, MS(200)).expect("in range");
    Contract { horizon: Horizon::Regulated, ..contract }
}

fn local_of(number: u64, role: Role, contract: Contract, fragment_bytes: u32) -> LocalChannel {
    LocalChannel {
        channel: ChannelId(number),
        path: PathId { node: NodeId(1), channel: ChannelNumber(number as u32), epoch: Epoch(9) },
        cookie: Cookie(5),
        role,
        link_in: (role != Role::Source).then_some(LEFT),
        link_out: (role != Role::Sink).then_some(RIGHT),
        contract: Arc::new(contract),
        fragment_bytes,
        soft: None,
        handler_time: Nanos::ZERO,
    }
}

fn local(number: u64, role: Role) -> Arc<LocalChannel> {
    Arc::new(local_of(number, role, contract(1_000), 1_400))
}

/// The next answer of the stages for a channel.
fn answered(stages: &mut Stages, channel: u64) -> Result<Vec<StageGrant>, RefuseCause> {
    match stages.poll_answer() {
        Some(Answer::Held(of, answer)) if of == ChannelId(channel) => answer,
        other => panic!("{other:?}"),
    }
}

fn hold(stages: &mut Stages, local: &Arc<LocalChannel>) -> Vec<StageGrant> {
    stages.ask(local, MS(200), false);
    answered(stages, local.channel.0).expect("there is room")
}

fn given_away(stages: &Stages) -> [u32; 3] {
    [stages.cpu_utilisation().0, stages.link_utilisation(LEFT).0, stages.link_utilisation(RIGHT).0]
}

fn accounts_hold(stages: &Stages, held: &[u64]) {
    let is_held = |id: ChannelId| held.contains(&id.0);
    let mut accounts = stages.accounts(is_held, held.iter().map(|id| ChannelId(*id)));
    accounts.extend(stages.link_accounts(LEFT));
    accounts.extend(stages.link_accounts(RIGHT));
    assert!(accounts.iter().all(|(_, [counted, there])| counted == there), "{accounts:?}");
}

fn terms(role: Role) -> CommitTerms {
    CommitTerms {
        bounds: vec![MS(50), MS(80)],
        budget: MS(180),
        upstream_min: MS(10),
        horizon: Horizon::Regulated,
        early: Nanos::ZERO,
        arrival_error_fixed: Nanos::ZERO,
        drift: Ppm(200),
        role,
    }
}

/// What a grant says of its costs adds up, with the time that a direct handler has declared.
#[test]
fn the_parts_of_a_cost_add_up_to_it() {
    for role in [Role::Source, Role::Forwarder, Role::Sink] {
        for handler_time in [Nanos::ZERO, Nanos::from_micros(70)] {
            let mut stages = stages_of(&config());
            let local = LocalChannel { handler_time, ..local_of(1, role, contract(3_000), 1_400) };
            let local = Arc::new(local);
            let granted = hold(&mut stages, &local);
            let parts: Vec<_> = granted.iter().map(|stage| (stage.cost_parts.sum(), stage.cost)).collect();
            assert!(!parts.is_empty() && parts.iter().all(|(sum, cost)| sum == cost), "{role:?}: {parts:?}");
            if handler_time > Nanos::ZERO {
                assert!(parts[0].1 > handler_time, "it is counted");
            }
        }
    }
}
