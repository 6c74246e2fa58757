//! A host's stages by hand: what is asked and answered, what is held, and that all of it is given back.

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
use crate::ids::{ChannelNumber, Cookie, Epoch, Name, PathId};
use crate::node::api::{Cause, Role, StageGrant};
use crate::node::config::{CpuConfig, LinkConfig, Pace, SignallingConfig, WhileBroken};
use crate::watch::Lateness;

const LEFT: LinkId = LinkId(0);
const RIGHT: LinkId = LinkId(1);
const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn config() -> NodeConfig {
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

fn stages_of(config: &NodeConfig) -> Stages {
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

/// What the stages say next.
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

fn books_hold(stages: &Stages, held: &[u64]) {
    let is_held = |id: ChannelId| held.contains(&id.0);
    let mut books = stages.books(is_held, held.iter().map(|id| ChannelId(*id)));
    books.extend(stages.link_books(LEFT));
    books.extend(stages.link_books(RIGHT));
    assert!(books.iter().all(|(_, [counted, there])| counted == there), "{books:?}");
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

/// What is held is given away of the processor and of the link out, whatever a channel is here; what was asked dry is not; and
/// once it is released all is as before.
#[test]
fn what_is_held_is_given_away_until_it_is_released() {
    let mut stages = stages_of(&config());
    let before = given_away(&stages);
    for role in [Role::Source, Role::Forwarder, Role::Sink] {
        let channel = local(7, role);
        stages.ask(&channel, MS(200), true);
        let dry = answered(&mut stages, 7).expect("there is room");
        assert!(stages.held(ChannelId(7)).is_none() && given_away(&stages) == before, "{role:?}");
        let grants = hold(&mut stages, &channel);
        assert_eq!(grants, dry, "{role:?}: the same is told either way");
        let now = given_away(&stages);
        assert!(now[0] > before[0] && now[1] == before[1], "{role:?}: {now:?}");
        assert_eq!(now[2] > before[2], role != Role::Sink, "{role:?}: {now:?}");
        let kinds: Vec<_> = grants.iter().map(|grant| grant.kind).collect();
        let link = [StageKind::Link];
        let expected = match role {
            Role::Source => [&[StageKind::SourceCpu], &link[..]].concat(),
            Role::Forwarder => [&[StageKind::ForwardCpu], &link[..]].concat(),
            Role::Sink => vec![StageKind::SinkCpu],
        };
        assert_eq!(kinds, expected);
        assert_eq!(grants.iter().map(|grant| grant.bound).sum::<Nanos>(), {
            let held = stages.held(ChannelId(7)).expect("held");
            held.cpu + held.link().map_or(Nanos::ZERO, |(_, bound)| bound)
        });
        books_hold(&stages, &[7]);
        stages.release(ChannelId(7));
        assert_eq!((given_away(&stages), stages.is_asked()), (before, false), "{role:?}");
        books_hold(&stages, &[]);
        stages.release(ChannelId(7));
        books_hold(&stages, &[]);
    }
}

/// All stages of a host together are within the limit: what the processor takes of it, and the propagation of the link, the link
/// cannot have.
#[test]
fn the_stages_of_a_host_share_one_limit() {
    let mut stages = stages_of(&config());
    let channel = local(1, Role::Forwarder);
    let grants = hold(&mut stages, &channel);
    let least = grants[0].bound + grants[1].bound + grants[1].propagation_max;
    assert_eq!(grants[1].propagation_max, Nanos::from_micros(200));
    stages.release(ChannelId(1));
    for (limit, fits) in [(least, true), (least - Nanos(1), false)] {
        stages.ask(&channel, limit, false);
        let answer = answered(&mut stages, 1);
        assert_eq!(answer.is_ok(), fits, "{answer:?}");
        if let Err(cause) = answer {
            let RefuseCause::Stage { kind: StageKind::Link, refusal } = cause else { panic!("{cause:?}") };
            let (possible, limit) = (grants[1].bound, grants[1].bound - Nanos(1));
            assert_eq!(refusal.reason, RefusalReason::Bound { possible, limit });
            assert!(stages.held(ChannelId(1)).is_none(), "nor does the processor hold it");
        }
        stages.release(ChannelId(1));
        books_hold(&stages, &[]);
    }
    stages.ask(&channel, grants[0].bound - Nanos(1), false);
    let refused = answered(&mut stages, 1).expect_err("too tight");
    assert!(matches!(refused, RefuseCause::Stage { kind: StageKind::ForwardCpu, .. }), "{refused:?}");
}

/// What no packet of a link, or of the protocol, holds is refused: each limit is kept, and a byte or packet more is not.
#[test]
fn what_does_not_fit_a_link_is_refused_with_its_numbers() {
    const HEADER: u32 = HEADER_BYTES as u32;
    let suitable = |config: &NodeConfig, contract: Contract, fragment: u32| {
        let local = local_of(1, Role::Source, contract, fragment);
        stages_of(config).check_suitable(&local).map_err(|cause| cause.to_string())
    };
    let refused = |answer: Result<(), String>, text: &str| {
        let why = answer.expect_err(text);
        assert!(why.contains(text), "{why}");
    };
    let plain = config();
    assert!(suitable(&plain, contract(1_400), 1_400).is_ok());
    refused(suitable(&plain, contract(1_400), 0), "packets of 0 B a message");
    assert!(suitable(&plain, contract(65_535), 1).is_ok());
    refused(suitable(&plain, contract(65_536), 1), "65536 packets of 1 B a message; at most 65535 packets");
    let mut huge = config();
    huge.links[1] = LinkConfig::new("right", NodeId(3), BitRate(1_000_000_000));
    huge.links[1].packet_bytes_max = FRAGMENT_BYTES_MAX + HEADER + 9;
    assert!(suitable(&huge, contract(1 << 20), FRAGMENT_BYTES_MAX).is_ok());
    refused(suitable(&huge, contract(1 << 20), FRAGMENT_BYTES_MAX + 1), "packets of 65444 B a message");
    // The link's room counts the header; a message that is shorter than a packet needs no more than itself.
    let mut narrow = config();
    narrow.links[1].packet_bytes_max = 1_000 + HEADER;
    assert!(
        suitable(&narrow, contract(5_000), 1_000).is_ok()
            && suitable(&narrow, contract(1_000), 1_400).is_ok()
    );
    refused(suitable(&narrow, contract(5_000), 1_001), "packets of 1065 B, the link takes 1064 B");
    refused(suitable(&narrow, contract(1_001), 1_400), "packets of 1065 B, the link takes 1064 B");
    // What would be demoted must fit as best effort.
    narrow.links[1].packet_best_effort_bytes_max = Some(500 + HEADER);
    let demotes = |bytes| Contract { policing: Policing::Demote, ..contract(bytes) };
    assert!(
        suitable(&narrow, demotes(500), 1_000).is_ok() && suitable(&narrow, contract(501), 1_000).is_ok()
    );
    refused(suitable(&narrow, demotes(501), 1_000), "packets of 565 B, the link takes 564 B as best effort");
    // A sink sends nothing.
    let sink = local_of(1, Role::Sink, contract(5_000), 1_400);
    assert!(stages_of(&narrow).check_suitable(&sink).is_ok());
}

/// A broken stage refuses who would cross it, where the operator wants that: the link only those that leave by it.
#[test]
fn a_broken_stage_refuses_who_would_cross_it_where_that_is_wanted() {
    let breach = Some(Breach { late: Lateness::default(), cause: Cause::LongerTravel });
    for while_broken in [WhileBroken::Degrade, WhileBroken::Refuse] {
        let mut config = config();
        config.signalling.while_broken = while_broken;
        let mut stages = stages_of(&config);
        let refused_by =
            |stages: &Stages, role| match stages.check_broken(&local_of(1, role, contract(100), 100)) {
                Err(RefuseCause::Broken { kind, .. }) => Some(kind),
                Err(other) => panic!("{other:?}"),
                Ok(()) => None,
            };
        let all = |stages: &Stages| {
            [Role::Source, Role::Forwarder, Role::Sink].map(|role| refused_by(stages, role))
        };
        let refuses = |kinds| if while_broken == WhileBroken::Refuse { kinds } else { [None; 3] };
        assert_eq!(all(&stages), [None; 3]);
        stages.set_link_breach(LEFT, breach);
        assert_eq!(all(&stages), [None; 3], "nobody leaves by it");
        stages.set_link_breach(RIGHT, breach);
        assert_eq!(all(&stages), refuses([Some(StageKind::Link), Some(StageKind::Link), None]));
        stages.set_cpu_breach(breach);
        let cpu = [StageKind::SourceCpu, StageKind::ForwardCpu, StageKind::SinkCpu].map(Some);
        assert_eq!(all(&stages), refuses(cpu));
        stages.set_link_breach(RIGHT, None);
        assert_eq!(all(&stages), refuses(cpu));
        // Who is let in is told.
        let grants = hold(&mut stages_with(&config, breach), &local(3, Role::Source));
        let degraded: Vec<_> = grants.iter().map(|grant| grant.degraded.is_some()).collect();
        assert_eq!(degraded, [false, while_broken == WhileBroken::Degrade], "{while_broken:?}");
        stages.set_cpu_breach(None);
        assert_eq!(all(&stages), [None; 3]);
    }
}

/// Stages whose link out is broken; of one that would refuse it is another link.
fn stages_with(config: &NodeConfig, breach: Option<Breach>) -> Stages {
    let mut stages = stages_of(config);
    let link = if config.signalling.while_broken == WhileBroken::Refuse { LEFT } else { RIGHT };
    stages.set_link_breach(link, breach);
    stages
}

/// A link whose rate nobody knows refuses who leaves by it, until it is told what it drains.
#[test]
fn a_link_of_unknown_rate_refuses_who_leaves_by_it() {
    let mut config = config();
    config.links[1].rate_auto = true;
    let mut stages = stages_of(&config);
    for (role, refuses) in [(Role::Source, true), (Role::Forwarder, true), (Role::Sink, false)] {
        let answer = stages.check_rate(&local(1, role));
        assert_eq!(answer.is_err(), refuses, "{role:?}");
    }
    let link = LinkConfig { rate: BitRate(20_000_000), ..config.links[1].clone() };
    assert!(stages.set_link(RIGHT, &link, &config));
    assert!(stages.check_rate(&local(1, Role::Source)).is_ok());
    stages.set_rate_unknown(RIGHT, Some(RateRefusal::NoAnswer));
    let refused = stages.check_rate(&local(1, Role::Source));
    assert_eq!(refused, Err(RefuseCause::RateUnknown(RateRefusal::NoAnswer)));
}

/// A link that is as another rate says is so for everybody: what is given away of it, and what it offers. Whether the policies
/// were here or asked elsewhere when that was known; and where it could not carry its own signalling nothing changes.
#[test]
fn a_links_new_rate_counts_whether_or_not_the_policies_are_away() {
    let config = config();
    let slower = LinkConfig { rate: BitRate(8_000_000), ..config.links[1].clone() };
    let mut configured = config.clone();
    configured.links[1] = slower.clone();
    let mut expected = stages_of(&configured);
    for away in [false, true] {
        let mut stages = stages_of(&config);
        let before = given_away(&stages);
        if away {
            stages.decide_elsewhere();
            stages.ask(&local(1, Role::Sink), MS(200), false);
            assert!(stages.poll_answer().is_none(), "nobody was asked yet");
            let decision = stages.poll_decision().expect("one is to be asked");
            assert!(stages.set_link(RIGHT, &slower, &config));
            stages.handle_decided(decision.decide(|| punctual_analysis::Instant::ZERO));
            assert!(answered(&mut stages, 1).is_ok());
            stages.release(ChannelId(1));
            let decision = stages.poll_decision().expect("it is given back");
            stages.handle_decided(decision.decide(|| punctual_analysis::Instant::ZERO));
            stages.elsewhere = false;
        } else {
            assert!(stages.set_link(RIGHT, &slower, &config));
        }
        let now = given_away(&stages);
        assert!(now[2] > before[2] && now[..2] == before[..2], "{before:?} {now:?}");
        assert_eq!(
            (now, stages.signal_bound(1)),
            (given_away(&expected), expected.signal_bound(1)),
            "{away}"
        );
        let channel = local(2, Role::Forwarder);
        assert_eq!(hold(&mut stages, &channel), hold(&mut expected, &channel), "{away}");
        expected.release(ChannelId(2));
    }
    let mut stages = stages_of(&config);
    let before = given_away(&stages);
    let dead = LinkConfig { rate: BitRate(1_000), ..config.links[1].clone() };
    assert!(!stages.set_link(RIGHT, &dead, &config));
    let mut untouched = stages_of(&config);
    let channel = local(2, Role::Forwarder);
    assert_eq!((given_away(&stages), hold(&mut stages, &channel)), (before, hold(&mut untouched, &channel)));
}

/// Elsewhere or here: questions are answered in the order of asking, and what an answer says is held is held then.
#[test]
fn what_is_decided_elsewhere_is_the_same_and_later() {
    let mut here = stages_of(&config());
    let mut there = stages_of(&config());
    there.decide_elsewhere();
    let channels: Vec<_> = (1..4).map(|number| local(number, Role::Forwarder)).collect();
    let expected: Vec<_> = channels.iter().map(|channel| hold(&mut here, channel)).collect();
    assert!(!there.is_asked());
    channels.iter().for_each(|channel| there.ask(channel, MS(200), false));
    assert!(there.is_asked() && there.poll_answer().is_none());
    let decision = there.poll_decision().expect("three");
    assert!(there.poll_decision().is_none() && there.is_asked(), "the policies are away");
    there.release(ChannelId(2));
    let mut ticks = 0;
    let decided = decision.decide(|| {
        ticks += 7;
        punctual_analysis::Instant(ticks * ticks)
    });
    let took = [147, 245, 343].map(Nanos);
    assert_eq!(decided.took(), [1, 2, 3].map(|id| (ChannelId(id), took[id as usize - 1])));
    assert!(there.held(ChannelId(1)).is_none());
    there.handle_decided(decided);
    assert!(there.held(ChannelId(1)).is_some() && there.is_asked(), "the answers wait");
    for (number, grants) in (1..4).zip(&expected) {
        assert_eq!(answered(&mut there, number).as_ref(), Ok(grants), "{number}");
    }
    assert_eq!(given_away(&there), given_away(&here));
    assert!(!there.is_asked());
    books_hold(&there, &[1, 2, 3]);
}

/// Buffers of the node: to the byte, what was reserved before replaced, and given back with the channel.
#[test]
fn buffers_are_reserved_to_the_byte() {
    let mut config = config();
    config.buffer_bytes_max = 1_000;
    let mut stages = stages_of(&config);
    for number in [1, 2] {
        hold(&mut stages, &local(number, Role::Sink));
    }
    let bytes = |bytes| Reserved { bytes, ..Reserved::default() };
    let [one, two] = [1, 2].map(ChannelId);
    let refusal = |wanted_bytes, free_bytes| {
        Err(RefuseCause::Buffers(RefusalReason::Buffers { wanted_bytes, free_bytes }))
    };
    assert_eq!(stages.reserve_buffers(one, bytes(600)), Ok(()));
    assert_eq!(stages.reserve_buffers(two, bytes(401)), refusal(401, 400));
    assert_eq!(stages.buffer_bytes(), 600, "nothing changed");
    assert_eq!(stages.reserve_buffers(two, bytes(400)), Ok(()));
    assert_eq!(stages.reserve_buffers(one, bytes(601)), refusal(601, 600));
    assert_eq!((stages.check_buffers(one, &bytes(600)), stages.buffer_bytes()), (Ok(()), 1_000));
    assert_eq!(stages.reserve_buffers(one, bytes(100)), Ok(()));
    assert_eq!((stages.buffer_bytes(), stages.check_buffers(two, &bytes(900))), (500, Ok(())));
    books_hold(&stages, &[1, 2]);
    stages.release(one);
    assert_eq!((stages.buffer_bytes(), stages.check_buffers(two, &bytes(1_000))), (400, Ok(())));
    assert_eq!(stages.check_buffers(two, &bytes(1_001)), refusal(1_001, 1_000));
    books_hold(&stages, &[2]);
}

/// Frames of a link's driver: half of them are channels', each link its own; what is refused is told in bytes of whole frames.
#[test]
fn frames_are_reserved_link_by_link() {
    let mut config = config();
    config.links[0].frames = 512;
    let frame_bytes = u64::from(config.links[0].packet_bytes_max);
    let most = 512 / FRAMES_GUARANTEED_DIVISOR;
    let mut stages = stages_of(&config);
    for number in [1, 2] {
        hold(&mut stages, &local(number, Role::Sink));
    }
    let frames = |link, frames| Reserved { bytes: 1, frames: Some((link, frames)), pooled: None };
    let [one, two] = [1, 2].map(ChannelId);
    let refusal = |wanted: u32, free: u32| {
        let (wanted_bytes, free_bytes) = (u64::from(wanted) * frame_bytes, u64::from(free) * frame_bytes);
        Err(RefuseCause::Buffers(RefusalReason::Buffers { wanted_bytes, free_bytes }))
    };
    assert_eq!(stages.reserve_buffers(one, frames(LEFT, most + 1)), refusal(most + 1, most));
    assert_eq!(stages.reserve_buffers(one, frames(LEFT, most - 3)), Ok(()));
    assert_eq!(stages.reserve_buffers(two, frames(LEFT, 4)), refusal(4, 3));
    assert_eq!(stages.check_buffers(two, &frames(RIGHT, 1_000)), Ok(()));
    assert_eq!(stages.reserve_buffers(two, frames(LEFT, 3)), Ok(()));
    books_hold(&stages, &[1, 2]);
    assert_eq!(stages.reserve_buffers(one, frames(LEFT, most - 2)), refusal(most - 2, most - 3));
    assert_eq!(stages.reserve_buffers(one, frames(LEFT, 10)), Ok(()), "its own are replaced");
    assert_eq!(stages.check_buffers(two, &frames(LEFT, most - 10)), Ok(()));
    assert_eq!(stages.check_buffers(two, &frames(LEFT, most - 9)), refusal(most - 9, most - 10));
    stages.release(one);
    assert_eq!(stages.check_buffers(two, &frames(LEFT, most)), Ok(()));
    books_hold(&stages, &[2]);
    stages.release(two);
    assert_eq!((stages.links[0].frames, stages.links[1].frames), (0, 0));
}

/// Soft channels share frames: as many as the pool's formula says for those that are there, less than their sum, beside what
/// hard ones have of their own.
#[test]
fn soft_channels_share_a_pool_of_frames() {
    use punctual_analysis::buffers::{PoolPart, pooled};
    let ratio = Ppb::new(1_000_000).expect("a ratio");
    let part = PoolPart { most: 10, period: MS(10), mean_period: MS(100) };
    let pool_of = |count: usize| pooled(&vec![part; count], ratio);
    assert!(pool_of(8) < 60, "{}", pool_of(8));
    let own = Pooled { period: part.period, mean_period: part.mean_period, ratio };
    let soft = Reserved { bytes: 1, frames: Some((LEFT, part.most)), pooled: Some(own) };
    let hard = |frames| Reserved { bytes: 1, frames: Some((LEFT, frames)), pooled: None };
    let mut config = config();
    config.links[0].frames = 512;
    let most = 512 / FRAMES_GUARANTEED_DIVISOR;
    let mut stages = stages_of(&config);
    for number in 0..10 {
        hold(&mut stages, &local(number, Role::Sink));
    }
    for number in 0..8_u64 {
        assert_eq!(stages.reserve_buffers(ChannelId(number), soft), Ok(()));
        assert_eq!(stages.pool_frames(LEFT), pool_of(number as usize + 1));
        assert_eq!((stages.pool_frames(RIGHT), stages.links[0].frames), (0, 0));
    }
    books_hold(&stages, &(0..10).collect::<Vec<_>>());
    let hard_one = ChannelId(8);
    // Asked by who is not part of it the pool counts as it is.
    assert_eq!(stages.check_buffers(hard_one, &hard(most - pool_of(8))), Ok(()));
    assert!(stages.check_buffers(hard_one, &hard(most - pool_of(8) + 1)).is_err());
    assert_eq!(stages.reserve_buffers(hard_one, hard(most - pool_of(9))), Ok(()));
    assert_eq!(stages.check_buffers(ChannelId(9), &soft), Ok(()));
    assert_eq!(stages.reserve_buffers(hard_one, hard(most - pool_of(9) + 1)), Ok(()));
    assert!(stages.check_buffers(ChannelId(9), &soft).is_err(), "one more in the pool");
    assert_eq!(stages.check_buffers(ChannelId(0), &soft), Ok(()), "one that is in it");
    // A stricter one makes all of it larger, and leaves it as it was.
    let strict = Pooled { ratio: Ppb::new(10).expect("a ratio"), ..own };
    assert_eq!(stages.reserve_buffers(hard_one, hard(1)), Ok(()));
    let strict = Reserved { pooled: Some(strict), ..soft };
    assert_eq!(stages.reserve_buffers(ChannelId(9), strict), Ok(()));
    assert!(stages.pool_frames(LEFT) > pool_of(9));
    stages.release(ChannelId(9));
    assert_eq!(stages.pool_frames(LEFT), pool_of(8));
    for number in 0..8 {
        stages.release(ChannelId(number));
    }
    assert_eq!((stages.pool_frames(LEFT), stages.link_books(LEFT)[1]), (0, ("parts of a pool", [0, 0])));
    books_hold(&stages, &[8]);
}

/// The last word: bounds move to what is wanted, of which seven leading bits count, and not below what was offered.
#[test]
fn bounds_are_relaxed_to_what_is_wanted_and_are_held_then() {
    let mut stages = stages_of(&config());
    let channel = local(1, Role::Forwarder);
    let offered: Vec<_> = hold(&mut stages, &channel).iter().map(|grant| grant.bound).collect();
    stages.ask_final(&channel, &[MS(50), MS(80)], &terms(Role::Forwarder));
    assert_eq!(stages.poll_answer(), Some(Answer::Final(ChannelId(1))));
    let relaxed = stages.take_relaxed(ChannelId(1)).expect("it was said");
    assert!(stages.take_relaxed(ChannelId(1)).is_none(), "once");
    assert_eq!(relaxed.offered, offered);
    assert_eq!(relaxed.bounds, [MS(50), MS(80)].map(rounded_down));
    let held = stages.held(ChannelId(1)).expect("held");
    assert_eq!((held.cpu, held.link()), (relaxed.bounds[0], Some((RIGHT, relaxed.bounds[1]))));
    let holding: Vec<_> = stages.holding(&channel).iter().map(|grant| grant.bound).collect();
    assert_eq!(holding, relaxed.bounds);
    // Less than what is held changes nothing.
    stages.ask_final(&channel, &[Nanos(1), Nanos(1)], &terms(Role::Forwarder));
    assert_eq!(stages.poll_answer(), Some(Answer::Final(ChannelId(1))));
    assert_eq!(stages.take_relaxed(ChannelId(1)).expect("it was said").bounds, relaxed.bounds);
    stages.ask_final(&channel, &[MS(60)], &terms(Role::Forwarder));
    assert_eq!(stages.poll_answer(), Some(Answer::Final(ChannelId(1))));
    stages.release(ChannelId(1));
    assert!(stages.take_relaxed(ChannelId(1)).is_none(), "it was released since");
    stages.ask_final(&channel, &[MS(60)], &terms(Role::Forwarder));
    assert_eq!(stages.poll_answer(), None, "nothing is held");
    books_hold(&stages, &[]);
}

/// Down to seven leading bits, written another way.
fn rounded_down(bound: Nanos) -> Nanos {
    let mut step = 1;
    while bound.0 / step >= 128 {
        step *= 2;
    }
    Nanos(bound.0 / step * step)
}

/// Bounds have seven leading bits: at most a 64th is lost, nothing is won.
#[test]
fn relaxed_bounds_keep_seven_leading_bits() {
    for (bound, kept) in
        [(0, 0), (1, 1), (127, 127), (128, 128), (129, 128), (255, 254), (256, 256), (259, 256)]
    {
        assert_eq!(policies::rounded(Nanos(bound)), Nanos(kept), "{bound}");
    }
    for bound in (0..40).flat_map(|shift| (0..50).map(move |part| (1_u64 << shift) + part * 977)) {
        let kept = policies::rounded(Nanos(bound));
        assert_eq!(kept, rounded_down(Nanos(bound)), "{bound}");
        assert!(kept.0 <= bound && (bound - kept.0) * 64 <= bound, "{bound}");
    }
    assert_eq!(policies::rounded(Nanos::MAX), Nanos(127 << 57));
}

/// What a channel that holds nothing would be given for good is what it is given, and nothing is held after.
#[test]
fn a_trial_says_what_would_be_held_and_holds_nothing() {
    let mut stages = stages_of(&config());
    let before = given_away(&stages);
    let channel = local(1, Role::Forwarder);
    for wanted in [None, Some(vec![MS(40), MS(70)])] {
        stages.try_final(&channel, wanted.clone(), &terms(Role::Forwarder), MS(200));
        assert_eq!(stages.poll_answer(), Some(Answer::Tried(ChannelId(1), Ok(Vec::new()))));
        let (of, relaxed, on) = stages.take_tried(ChannelId(1)).expect("it was tried");
        assert_eq!((of.channel, on), (ChannelId(1), terms(Role::Forwarder)));
        assert!(stages.take_tried(ChannelId(1)).is_none(), "once");
        assert!(stages.held(ChannelId(1)).is_none() && given_away(&stages) == before);
        let told = stages.would_hold(&channel, &relaxed, 77);
        let offered: Vec<_> = hold(&mut stages, &channel).iter().map(|grant| grant.bound).collect();
        assert_eq!(relaxed.offered, offered);
        if let Some(wanted) = wanted {
            stages.ask_final(&channel, &wanted, &terms(Role::Forwarder));
            assert_eq!(stages.poll_answer(), Some(Answer::Final(ChannelId(1))));
            assert_eq!(stages.take_relaxed(ChannelId(1)).expect("said").bounds, relaxed.bounds);
        }
        let reserved = Reserved { bytes: 77, ..Reserved::default() };
        assert_eq!(stages.reserve_buffers(ChannelId(1), reserved), Ok(()));
        let bounds =
            |grants: &[StageGrant]| grants.iter().map(|grant| (grant.bound, grant.buffer_bytes)).collect();
        let (told, has): (Vec<_>, Vec<_>) = (bounds(&told), bounds(&stages.holding(&channel)));
        assert_eq!((&told, told[1].1), (&has, 77), "the last stage has the buffers");
        stages.release(ChannelId(1));
        books_hold(&stages, &[]);
    }
    stages.try_final(&channel, None, &terms(Role::Forwarder), Nanos(5));
    let refused = stages.poll_answer();
    assert!(matches!(refused, Some(Answer::Tried(_, Err(RefuseCause::Stage { .. })))), "{refused:?}");
    let zero = Arc::new(local_of(1, Role::Forwarder, contract(100), 0));
    stages.try_final(&zero, None, &terms(Role::Forwarder), MS(200));
    let refused = stages.poll_answer();
    assert!(matches!(refused, Some(Answer::Tried(_, Err(RefuseCause::Unsuitable(_))))), "{refused:?}");
    assert_eq!(given_away(&stages), before);
}

fn planned_config(names: &[&str]) -> NodeConfig {
    let mut config = config();
    (config.cpu.run, config.cpu.admission) = (RunPolicy::Rmdp, Admission::RMDP);
    let flow = |name: &&str| PlannedFlow {
        name: FlowName::new(name).expect("a name"),
        period_ns: MS(20),
        packets: 2,
        cost_ns: Nanos::from_micros(400),
        unit_ns: Nanos::from_micros(400),
        deadline_ns: MS(15),
        rate_ns: MS(10),
        place: 3,
    };
    config.cpu.plan = names.iter().map(flow).collect();
    config
}

fn named(number: u64, role: Role, name: &str) -> Arc<LocalChannel> {
    let flow = Some(FlowName::new(name).expect("a name"));
    let contract =
        Contract { flow, activation: Activation::Periodic { period: MS(20), packets: 2 }, ..contract(1_000) };
    Arc::new(local_of(number, role, contract, 1_400))
}

/// A flow of the plan is had by one channel at a time: it takes over what the plan holds of the processor, and leaves it there.
#[test]
fn a_planned_flow_is_taken_over_by_one_channel_at_a_time() {
    let mut stages = stages_of(&planned_config(&["video", "audio"]));
    let before = given_away(&stages);
    let (one, other) = (named(1, Role::Source, "video"), named(2, Role::Source, "video"));
    let grants = hold(&mut stages, &one);
    assert_eq!(given_away(&stages)[0], before[0], "it was given away from the start on");
    let stage = stages.cpu_stage(&one).expect("held");
    assert_eq!((stage.bound, stage.work_bound()), (grants[0].bound, MS(15)));
    assert_eq!(grants[0].made_of.own, Nanos::from_micros(400));
    let parts = grants[0].made_of;
    assert_eq!(parts.release_latency + parts.own + parts.others, grants[0].bound);
    assert_eq!(stages.held(ChannelId(1)).and_then(Held::planned), Some(0));
    stages.ask(&other, MS(200), false);
    let refused = answered(&mut stages, 2).expect_err("it is taken").to_string();
    assert!(refused.contains("another channel has it"), "{refused}");
    let audio = named(3, Role::Source, "audio");
    hold(&mut stages, &audio);
    books_hold(&stages, &[1, 3]);
    stages.release(ChannelId(1));
    assert_eq!(given_away(&stages)[0], before[0], "the plan keeps it");
    hold(&mut stages, &other);
    books_hold(&stages, &[2, 3]);
    // What is asked dry, or refused in the end, takes none.
    stages.release(ChannelId(2));
    stages.ask(&one, MS(200), true);
    assert!(answered(&mut stages, 1).is_ok());
    stages.ask(&one, grants[0].bound, false);
    assert!(answered(&mut stages, 1).is_err(), "the link has nothing left of it");
    hold(&mut stages, &other);
    books_hold(&stages, &[2, 3]);
}

/// A plan says what its flows may take: a contract that costs more, or wants to be sooner, is refused, and only a source must know
/// its flow.
#[test]
fn a_contract_must_fit_its_planned_flow() {
    let config = planned_config(&["video"]);
    let mut stages = stages_of(&config);
    let bound = hold(&mut stages, &named(1, Role::Sink, "video"))[0].bound;
    stages.release(ChannelId(1));
    stages.ask(&named(1, Role::Sink, "video"), bound - Nanos(1), false);
    let refused = answered(&mut stages, 1).expect_err("sooner than planned");
    let RefuseCause::Stage { kind: StageKind::SinkCpu, refusal } = refused else { panic!("{refused:?}") };
    assert_eq!(refusal.bound_possible, Some(bound));
    assert_eq!(refusal.reason, RefusalReason::Bound { possible: bound, limit: bound - Nanos(1) });
    hold(&mut stages, &named(1, Role::Sink, "unheard"));
    stages.ask(&named(2, Role::Source, "unheard"), MS(200), false);
    let refused = answered(&mut stages, 2).expect_err("nobody planned it").to_string();
    assert!(refused.contains("no flow \"unheard\" in this host's plan"), "{refused}");
    let own = stages.offer_planned(&named(3, Role::Source, "video"), 0, MS(200)).expect("it fits").demand;
    // What the contract costs is what was planned at most.
    let costs = path_costs(&config.cpu.costs, Role::Source);
    let channel = named(3, Role::Source, "video");
    let service = channel.contract.service(1_400).expect("a service");
    let cost = stages.cpu_model.demand_of(&channel.contract, &service, 1_400, &costs, Nanos::ZERO);
    assert!(cost.cost < own.cost);
    for (cost_ns, unit_ns, fits) in [
        (cost.cost, cost.unit_cost_max, true),
        (cost.cost - Nanos(1), cost.unit_cost_max, false),
        (cost.cost, cost.unit_cost_max - Nanos(1), false),
    ] {
        let mut config = config.clone();
        (config.cpu.plan[0].cost_ns, config.cpu.plan[0].unit_ns) = (cost_ns, unit_ns);
        let stages = stages_of(&config);
        assert_eq!(stages.offer_planned(&channel, 0, MS(200)).is_ok(), fits, "{cost_ns} {unit_ns}");
    }
}

/// What one path costs, and what the processor is to admission, by the defaults and beyond them.
#[test]
fn a_processor_is_what_is_configured() {
    let costs = config::CpuCosts {
        send_message: Nanos(1_000),
        send_packet: Nanos(200),
        send_packet_later: Nanos(150),
        forward_packet: Nanos(300),
        receive_packet: Nanos(250),
        deliver_message: Nanos(2_000),
        copy_kib: Nanos(10),
        cold_start: Nanos(50_000),
    };
    let of = |role| {
        let PathCosts { message, packet, packet_later, kib } = path_costs(&costs, role);
        [message, packet, packet_later, kib].map(|nanos| nanos.0)
    };
    assert_eq!(of(Role::Source), [1_000, 200, 150, 10]);
    assert_eq!(of(Role::Forwarder), [0, 300, 300, 10]);
    assert_eq!(of(Role::Sink), [2_000, 250, 250, 10]);
    let cpu = CpuConfig { costs, quantum_packets: 4, ..CpuConfig::default() };
    let model = cpu_model(&cpu, 1_025);
    // A quantum of the dearest packets with two KiB each, and the dearer edge of a message.
    assert_eq!(model.best_effort_unit, Nanos(4 * (300 + 2 * 10) + 2_000));
    assert_eq!(model.interference.sigma, cpu.interference.sigma + costs.cold_start);
    assert_eq!(cpu_model(&cpu, 1_024).best_effort_unit, Nanos(4 * (300 + 10) + 2_000));
    let dearer = config::CpuCosts { send_packet: Nanos(400), send_message: Nanos(3_000), ..costs };
    let cpu = CpuConfig { costs: dearer, quantum_packets: 0, ..cpu };
    assert_eq!(cpu_model(&cpu, 1).best_effort_unit, Nanos(400 + 10 + 3_000));
    let receives = config::CpuCosts { receive_packet: Nanos(500), ..costs };
    let cpu = CpuConfig { costs: receives, quantum_packets: 1, ..cpu };
    assert_eq!(cpu_model(&cpu, 1).best_effort_unit, Nanos(500 + 10 + 2_000));
}

/// A link to admission: headers and overhead count, what is largest is largest, and the rate is that which is paced at.
#[test]
fn a_link_is_what_is_configured() {
    let mut link = LinkConfig::new("l", NodeId(1), BitRate(100_000_000));
    (link.packet_bytes_max, link.overhead_bytes, link.packet_best_effort_bytes_max) = (1_464, 66, Some(564));
    link.interference = config::Interference { sigma: Nanos(700), rho: Ppm(100_000) };
    let model = link_model(&link);
    assert_eq!((model.overhead_bytes, model.mtu_wire_bytes, model.best_effort_wire_bytes), (130, 1_530, 630));
    assert_eq!(
        (model.rate_error, model.reaction, model.pipeline_depth),
        (Ppm(0), Nanos::from_micros(100), 2)
    );
    // One percent of error; a clock leaves the kernel its tenth.
    assert_eq!(model.rate, BitRate(99_000_000).less(Ppm(100_000)));
    link.pace = Pace::Completion;
    assert_eq!(link_model(&link).rate, BitRate(99_000_000));
    assert_eq!(link_model(&link).interference.rho, Ppm(100_000));
}

/// Under an order to which early work is jitter a channel is early by what was admitted at most; under EDF by what its buffers
/// allow.
#[test]
fn how_early_work_may_be_is_what_was_admitted_where_that_counts() {
    for (run, admission, counts) in
        [(RunPolicy::Edf, Admission::EDF, false), (RunPolicy::FixedPriority, Admission::FIXED_PRIORITY, true)]
    {
        let mut config = config();
        (config.cpu.run, config.cpu.admission) = (run, admission);
        let mut stages = stages_of(&config);
        let channel = local(1, Role::Forwarder);
        assert_eq!(stages.cpu_early(&channel, MS(9)), MS(9), "nothing is held");
        hold(&mut stages, &channel);
        let most = |stages: &Stages| stages.cpu_early(&channel, MS(9));
        assert_eq!(most(&stages), if counts { Nanos::ZERO } else { MS(9) }, "{admission:?}");
        let terms = CommitTerms { horizon: Horizon::Cumulative, ..terms(Role::Forwarder) };
        stages.ask_final(&channel, &[MS(50), MS(80)], &terms);
        assert_eq!(stages.poll_answer(), Some(Answer::Final(ChannelId(1))));
        let relaxed = stages.take_relaxed(ChannelId(1)).expect("said");
        let admitted = terms.horizon(0, &relaxed.bounds) - contract(1_000).early_service();
        let expected = if counts { MS(60).min(admitted) } else { MS(60) };
        assert_eq!(stages.cpu_early(&channel, MS(60)), expected, "{admission:?}");
        assert_eq!(stages.cpu_early(&channel, Nanos(5)), Nanos(5), "{admission:?}");
        assert_eq!(stages.link_early(&channel, MS(60)), MS(60), "links go by deadline");
    }
}

/// A soft channel asks each stage as such.
#[test]
fn a_soft_channel_is_soft_in_each_stage() {
    let stages = stages_of(&config());
    let soft = Soft {
        mean_period: MS(50),
        mean_over: MS(90),
        jitter: MS(1),
        miss_ratio: Ppb::new(9).expect("a ratio"),
    };
    let channel =
        LocalChannel { soft: Some(Box::new(soft)), ..local_of(1, Role::Source, contract(900), 900) };
    let service = channel.contract.service(900).expect("a service");
    assert_eq!(stages.stage_of_cpu(&channel, service).demand.soft, Some(soft));
    assert_eq!(stages.link_demand(&channel, RIGHT, Nanos(3)).soft, Some(soft));
    assert_eq!(stages.link_demand(&channel, RIGHT, Nanos(3)).early, Nanos(3));
    let handled = LocalChannel { handler_time: Nanos(777), ..channel.clone() };
    let cost = |local: &LocalChannel| {
        stages.stage_of_cpu(local, local.contract.service(900).expect("a service")).demand.cost
    };
    assert_eq!(cost(&handled), cost(&channel) + Nanos(777));
}
