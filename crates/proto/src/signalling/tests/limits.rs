//! Limits of listeners, and of what a host does in one call.

use super::*;
use crate::api::RequestError;
use crate::ids::ListenerId;
use crate::limits::{ENDS_MAX, LISTENERS_MAX};

/// Listeners are numbered from 1 on, and their handles are not used again.
#[test]
fn listeners_are_numbered_one_after_the_other() {
    let mut signalling = Signalling::new(&config(0, 2), 7, Instant::ZERO);
    let mut stages = Stages::default();
    for number in 1..10 {
        let listener = signalling.listen(name("port"), Nanos::ZERO);
        assert_eq!(listener, Ok(ListenerId(number)));
        assert_eq!(signalling.listen(name("port"), Nanos::ZERO), Err(RequestError::NameTaken(name("port"))));
        let unlisten = signalling.unlisten(ListenerId(number), Instant::ZERO, &mut stages);
        assert_eq!(unlisten, Ok(()));
        while signalling.has_more() {
            signalling.handle_timeout(Instant::ZERO, &mut stages);
        }
    }
}

/// There may be so many listeners, and no more.
#[test]
fn listeners_are_bounded() {
    let mut signalling = Signalling::new(&config(0, 2), 7, Instant::ZERO);
    for number in 0..LISTENERS_MAX {
        signalling.listen(name(&alloc::format!("p{number}")), Nanos::ZERO).expect("there is room");
    }
    assert_eq!(signalling.listen(name("more"), Nanos::ZERO), Err(RequestError::Exhausted));
}

/// One call ends so many channels whose time is over, and the next one goes on.
#[test]
fn one_call_ends_a_bounded_number_of_channels() {
    let mut row = Row::met(2);
    row.hosts[1].consents = false;
    // Less than the silence by which a neighbour is lost.
    row.hosts[1].signalling.config.signalling.consent_timeout = Nanos::from_secs(1);
    let opened = 2 * ENDS_MAX + 5;
    for _ in 0..opened {
        row.ask(row.request());
    }
    row.hosts[1].is_mute = true;
    let over = row.now + row.hosts[1].signalling.config.signalling.consent_timeout;
    let Host { signalling, stages, .. } = &mut row.hosts[1];
    for left in [ENDS_MAX + 5, 5, 0, 0] {
        signalling.expire_requests(over);
        assert!(signalling.poll_timeout().is_some_and(|due| left == 0 || due <= over));
        signalling.handle_timeout(over, stages);
        assert_eq!(signalling.channels().count(), left);
    }
}

/// A REFRESH names up to a thousand channels; one call sends those of one, and the rest follows at once.
#[test]
fn channels_are_refreshed_a_thousand_at_a_time() {
    for opened in [999, 1_000, 1_001, 2_000] {
        let mut row = Row::met(2);
        for _ in 0..opened {
            row.ask(row.request());
        }
        row.hosts.iter_mut().for_each(|host| host.events.clear());
        let lease = row.hosts[1].signalling.config.signalling.lease;
        row.now = row.hosts[0].signalling.refreshes.at.expect("it has channels");
        let renewed = |row: &Row| {
            let leased = row.hosts[1].signalling.channels.iter();
            leased.filter(|channel| channel.lease.at() == Some(row.now + lease)).count()
        };
        assert_eq!(renewed(&row), 0);
        for call in 1..=3 {
            row.at(0, |signalling, now, stages| signalling.handle_timeout(now, stages));
            assert_eq!(renewed(&row), opened.min(1_000 * call), "{opened}: {call}");
            // A full one may have more behind it.
            assert_eq!(row.hosts[0].signalling.has_more(), opened >= 1_000 * call, "{opened}: {call}");
        }
    }
}
