//! A reservation counts as utilisation until it is released, whether it was decided here or in another
//! thread.

use super::*;

/// A reservation counts as utilisation of the processor and of the outgoing link, whatever the channel's role
/// here is; a dry question does not; after the release all is as before.
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
            held.cpu() + held.link().map_or(Nanos::ZERO, |(_, bound)| bound)
        });
        accounts_hold(&stages, &[7]);
        stages.release(ChannelId(7));
        assert_eq!((given_away(&stages), stages.is_asked()), (before, false), "{role:?}");
        accounts_hold(&stages, &[]);
        stages.release(ChannelId(7));
        accounts_hold(&stages, &[]);
    }
}

/// All stages of a host share one limit: the link cannot have what the processor and the link's propagation
/// take of it.
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
        accounts_hold(&stages, &[]);
    }
    stages.ask(&channel, grants[0].bound - Nanos(1), false);
    let refused = answered(&mut stages, 1).expect_err("too tight");
    assert!(matches!(refused, RefuseCause::Stage { kind: StageKind::ForwardCpu, .. }), "{refused:?}");
}

/// In another thread or here: questions are answered in their order, and a reservation is in effect when its
/// answer is taken.
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
    accounts_hold(&there, &[1, 2, 3]);
}

/// A reservation whose answer was not taken yet is no leak. A reservation without a channel after that is
/// detected.
#[test]
fn a_reservation_of_nobodys_is_seen_once_its_answer_was_taken() {
    let mut stages = stages_of(&config());
    stages.ask(&local(7, Role::Forwarder), MS(200), false);
    accounts_hold(&stages, &[]);
    answered(&mut stages, 7).expect("there is room");
    let accounts = stages.accounts(|_| false, core::iter::empty());
    let reservations = accounts.iter().find(|(what, _)| *what == "reservations");
    assert_eq!(reservations, Some(&("reservations", [1, 0])));
}

/// If a channel ends while another thread decides about its final bounds, the answer is dropped, and no
/// reservation remains.
#[test]
fn what_has_ended_is_not_made_final() {
    let mut stages = stages_of(&config());
    let before = given_away(&stages);
    let channel = local(1, Role::Forwarder);
    hold(&mut stages, &channel);
    stages.decide_elsewhere();
    stages.ask_final(&channel, &[MS(50), MS(80)], &terms(Role::Forwarder));
    let decide = |decision: Decision| decision.decide(|| punctual_analysis::Instant::ZERO);
    let decided = decide(stages.poll_decision().expect("it was asked"));
    stages.release(ChannelId(1));
    stages.handle_decided(decided);
    assert!(stages.poll_answer().is_none() && stages.take_relaxed(ChannelId(1)).is_none());
    let decided = decide(stages.poll_decision().expect("what it held is given back"));
    stages.handle_decided(decided);
    assert_eq!((given_away(&stages), stages.is_asked()), (before, false));
    accounts_hold(&stages, &[]);
}

/// A quantum may hold all packets of a message. Those that come in may be served one by one all the same,
/// which counts in a fixed order: such a message is more than one unit of work.
#[test]
fn packets_that_come_in_are_pieces_of_their_message_in_a_fixed_order() {
    for (run, admission) in
        [(RunPolicy::Edf, Admission::EDF), (RunPolicy::FixedPriority, Admission::FIXED_PRIORITY)]
    {
        let mut config = config();
        (config.cpu.run, config.cpu.admission, config.cpu.quantum_packets) = (run, admission, 8);
        let stages = stages_of(&config);
        for (role, packets) in [Role::Source, Role::Forwarder, Role::Sink]
            .into_iter()
            .flat_map(|role| (1..5_u32).map(move |packets| (role, packets)))
        {
            let channel = local_of(1, role, contract(packets * 1_000), 1_000);
            let service = channel.contract.service(1_000).expect("it carries the contract");
            let Demand { cost, unit_cost_max, .. } = stages.stage_of_cpu(&channel, service).demand;
            let is_fixed = run == RunPolicy::FixedPriority;
            let in_pieces = is_fixed && role != Role::Source && packets > 1;
            assert_eq!(cost > unit_cost_max, in_pieces, "{admission:?} {role:?} {packets}");
        }
    }
}
