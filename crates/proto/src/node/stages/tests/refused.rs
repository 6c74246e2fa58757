//! Refusals of a stage before its policy is asked, and a change of a link.

use super::*;
use crate::limits::{FRAGMENT_BYTES_MAX, HEADER_BYTES};

/// A channel that no packet of a link or of the protocol can carry is refused: each limit is accepted, and
/// one byte or packet more is not.
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
    // The link's room includes the header; a message shorter than a packet needs no more than itself.
    let mut narrow = config();
    narrow.links[1].packet_bytes_max = 1_000 + HEADER;
    assert!(
        suitable(&narrow, contract(5_000), 1_000).is_ok()
            && suitable(&narrow, contract(1_000), 1_400).is_ok()
    );
    refused(suitable(&narrow, contract(5_000), 1_001), "packets of 1065 B, the link takes 1064 B");
    refused(suitable(&narrow, contract(1_001), 1_400), "packets of 1065 B, the link takes 1064 B");
    // Packets that may be demoted must fit as best effort.
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

/// A broken stage refuses channels that would cross it, if the operator has configured that: a link only
/// those that leave by it.
#[test]
fn a_broken_stage_refuses_new_channels_if_configured() {
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
        // The grant of a channel that is admitted reports the breach.
        let grants = hold(&mut stages_with(&config, breach), &local(3, Role::Source));
        let degraded: Vec<_> = grants.iter().map(|grant| grant.degraded.is_some()).collect();
        assert_eq!(degraded, [false, while_broken == WhileBroken::Degrade], "{while_broken:?}");
        stages.set_cpu_breach(None);
        assert_eq!(all(&stages), [None; 3]);
    }
}

/// Programs' handlers are refused as channels are: by the processor, and by the link that they send on.
#[test]
fn a_broken_stage_refuses_handlers_where_that_is_wanted() {
    let breach = Breach { late: Lateness::default(), cause: Cause::LongerTravel };
    for while_broken in [WhileBroken::Degrade, WhileBroken::Refuse] {
        let mut config = config();
        config.signalling.while_broken = while_broken;
        let mut stages = stages_of(&config);
        let terms = handler_terms();
        let asked = |stages: &Stages| {
            let sent = |link| RtuPackets { link, packets: 1, packet_bytes: 164, header_bytes: 64 };
            let links = [LEFT, RIGHT].map(|link| stages.check_rtu_packets(&terms, &sent(link)));
            (stages.check_rtu(&terms, &config), links)
        };
        assert_eq!(asked(&stages), (Ok(()), [Ok(()), Ok(())]));
        let refused = match while_broken {
            WhileBroken::Refuse => Err(RtuRefusal::Broken(breach)),
            WhileBroken::Degrade => Ok(()),
        };
        stages.set_link_breach(RIGHT, Some(breach));
        assert_eq!(asked(&stages), (Ok(()), [Ok(()), refused]), "{while_broken:?}");
        stages.set_cpu_breach(Some(breach));
        assert_eq!(asked(&stages).0, refused, "{while_broken:?}");
    }
}

fn handler_terms() -> RtuTerms {
    let class = RtuClass::periodic(MS(10), 1);
    RtuTerms { class, deadline: None, quantum: 1, cost: RtuCost { run: Nanos(1_000), unit: Nanos(1_000) } }
}

/// Stages whose outgoing link is broken; if channels are refused because of that, another link is broken
/// instead.
fn stages_with(config: &NodeConfig, breach: Option<Breach>) -> Stages {
    let mut stages = stages_of(config);
    let link = if config.signalling.while_broken == WhileBroken::Refuse { LEFT } else { RIGHT };
    stages.set_link_breach(link, breach);
    stages
}

/// A link of unknown rate refuses channels that leave by it, until its drain rate is set.
#[test]
fn a_link_of_unknown_rate_refuses_channels() {
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

/// A new rate of a link is in effect for all: its reserved utilisation, and its offers. It does not matter
/// whether the policies were here or away when the rate changed. If the link could not carry its own
/// signalling, nothing changes.
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
            stages.asking.elsewhere = false;
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

/// A channel that a timer serves waits for it first: what its refusal offers includes that wait, and is granted.
#[test]
fn what_is_offered_behind_a_timer_includes_the_wait_for_it() {
    let activation = Activation::Periodic { period: MS(5), packets: 2 };
    let sink =
        |number| Arc::new(local_of(number, Role::Sink, Contract { activation, ..contract(1_000) }, 1_400));
    let mut stages = stages_of(&config());
    stages.ask(&sink(1), MS(5) + Nanos(1_000), false);
    let refused = answered(&mut stages, 1);
    let Err(RefuseCause::Stage { refusal, .. }) = refused else { panic!("{refused:?}") };
    let possible = refusal.bound_possible.expect("with more time");
    assert_eq!(refusal.reason, RefusalReason::Bound { possible, limit: MS(5) + Nanos(1_000) });
    stages.ask(&sink(2), possible - Nanos(1), false);
    assert!(answered(&mut stages, 2).is_err(), "{possible}");
    stages.ask(&sink(3), possible, false);
    assert_eq!(answered(&mut stages, 3).expect("as offered")[0].bound, possible);
}
