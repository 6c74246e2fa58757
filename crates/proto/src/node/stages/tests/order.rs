//! The order of answers, and the places in a fixed order of priorities that are reported.

use super::*;
use crate::api::RtuId;

/// Answers come in the order of the questions, whatever the questions are.
#[test]
fn answers_come_in_the_order_of_the_questions() {
    let mut stages = stages_of(&config());
    let [one, two, three, four, five] = [1, 2, 3, 4, 5].map(|number| local(number, Role::Forwarder));
    for held in [&one, &two] {
        hold(&mut stages, held);
    }
    let terms = terms(Role::Forwarder);
    stages.ask_final(&one, &[MS(50), MS(80)], &terms);
    stages.try_final(&three, None, &terms, MS(200));
    stages.ask_final(&two, &[MS(50), MS(80)], &terms);
    stages.try_final(&four, None, &terms, MS(200));
    stages.ask(&five, MS(200), false);
    accounts_hold(&stages, &[1, 2, 5]);
    assert_eq!(stages.poll_answer(), Some(Answer::Final(ChannelId(1))));
    assert_eq!(stages.poll_answer(), Some(Answer::Tried(ChannelId(3), Ok(Vec::new()))));
    assert_eq!(stages.poll_answer(), Some(Answer::Final(ChannelId(2))));
    assert_eq!(stages.poll_answer(), Some(Answer::Tried(ChannelId(4), Ok(Vec::new()))));
    assert!(answered(&mut stages, 5).is_ok());
    assert_eq!(stages.poll_answer(), None);
}

fn handler(period: u64) -> RtuTerms {
    let cost = RtuCost { run: Nanos(1_000), unit: Nanos(1_000) };
    RtuTerms { class: RtuClass::periodic(MS(period), 1), deadline: None, quantum: 1, cost }
}

/// The same for programs' handlers.
#[test]
fn handlers_are_answered_in_the_order_of_their_requests() {
    let mut stages = stages_of(&config());
    let ids = [5, 3, 9].map(RtuId);
    ids.into_iter().for_each(|id| stages.ask_rtu(id, &handler(20), None));
    for id in ids {
        assert!(matches!(stages.poll_rtu(), Some((of, Ok(_))) if of == id));
    }
    assert!(stages.poll_rtu().is_none());
    assert_eq!(stages.rtus_held(), Some(3));
    accounts_hold(&stages, &[]);
}

/// What a channel or a handler is told of its priority is its place among all that the processor holds; in an
/// order without places it is 0. The link of a host that sends nothing on is no soft one.
#[test]
fn the_reported_rank_is_the_place_in_the_order() {
    for (run, admission) in [
        (RunPolicy::Edf, Admission::EDF),
        (RunPolicy::FixedPriority, Admission::FIXED_PRIORITY),
        (RunPolicy::FixedPriority, Admission::D_ORDER),
    ] {
        let mut config = config();
        (config.cpu.run, config.cpu.admission) = (run, admission);
        let mut stages = stages_of(&config);
        let place = |stages: &Stages, key| {
            let policies = stages.asking.policies.as_ref().expect("here");
            policies.cpu.rank(key).map(|rank| rank as u8)
        };
        let mut ranks = Vec::new();
        for number in 1..=4 {
            let channel = local(number, Role::Sink);
            hold(&mut stages, &channel);
            stages.ask_final(&channel, &[MS(40 + number)], &terms(Role::Sink));
            assert_eq!(stages.poll_answer(), Some(Answer::Final(channel.channel)));
            let relaxed = stages.take_relaxed(channel.channel).expect("said");
            assert_eq!(relaxed.rank, place(&stages, StageKey(number)).unwrap_or(0), "{admission:?}");
            assert_eq!(relaxed.soft, (false, false), "{admission:?}");
            ranks.push(relaxed.rank);
        }
        for number in 1..=3 {
            stages.ask_rtu(RtuId(number), &handler(15), None);
            let Some((_, Ok((granted, _)))) = stages.poll_rtu() else { panic!("there is room") };
            let key = super::super::rtu_places::rtu_key(RtuId(number));
            assert_eq!(granted.rank, place(&stages, key).unwrap_or(0), "{admission:?}");
            ranks.push(granted.rank);
        }
        let is_ordered = run != RunPolicy::Edf;
        assert_eq!(ranks.iter().any(|rank| *rank > 0), is_ordered, "{admission:?}: {ranks:?}");
    }
}
