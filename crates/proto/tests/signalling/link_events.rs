//! A node's reports about its links: each change once, and packets that do not authenticate once a minute.

use punctual_proto::api::{Event, LinkChange};
use punctual_proto::ids::LinkId;

use crate::network::{Network, SECOND};

/// The reports of host `index` about its link 0.
fn reported(network: &Network, index: usize) -> Vec<LinkChange> {
    let changes = network.hosts[index].events.iter().filter_map(|event| match event {
        Event::Link { link: LinkId(0), change } => Some(*change),
        _ => None,
    });
    changes.collect()
}

#[test]
fn a_flapping_link_is_reported_once_each_time() {
    use LinkChange::{Down, Restarted, Up};
    for seed in 0..20 {
        let mut network = Network::line(seed, 2, |_, _| {});
        assert!(network.run_until(5 * SECOND, |n| n.alive(0, 0) && n.alive(1, 0)), "seed {seed}");
        network.run(5 * SECOND);
        assert_eq!((reported(&network, 0), reported(&network, 1)), (vec![Up], vec![Up]), "seed {seed}");
        network.crash(1);
        assert!(network.run_until(60 * SECOND, |n| !n.alive(0, 0)), "seed {seed}");
        network.run(20 * SECOND);
        assert_eq!(reported(&network, 0), [Up, Down], "seed {seed}");
        network.start(1);
        network.run(20 * SECOND);
        assert_eq!(reported(&network, 0), [Up, Down, Up], "seed {seed}");
        // It is back before its silence is detected.
        network.crash(1);
        network.start(1);
        network.run(20 * SECOND);
        assert_eq!(reported(&network, 0), [Up, Down, Up, Restarted], "seed {seed}");
    }
}

#[test]
fn packets_that_do_not_authenticate_are_reported_at_once_and_then_once_a_minute() {
    for seed in 0..5 {
        let mut network = Network::line(seed, 2, |host, config| {
            if host == 1 {
                config.signalling.domain_key[0] ^= 1;
            }
        });
        network.run(5 * SECOND);
        for index in [0, 1] {
            assert!(!network.alive(index, 0));
            let reported = reported(&network, index);
            assert!(
                matches!(reported[..], [LinkChange::Unauthenticated { packets: 1 }]),
                "seed {seed}: {reported:?}"
            );
        }
        network.run(300 * SECOND);
        let reported = reported(&network, 0);
        assert!((5..=6).contains(&reported.len()), "seed {seed}: {reported:?}");
        let host = &network.hosts[0];
        let now = host.local(network.now);
        let view = host.signalling.as_ref().expect("alive").neighbour(LinkId(0), now);
        let Some(LinkChange::Unauthenticated { packets }) = reported.last() else { panic!("{reported:?}") };
        assert!(*packets > 100 && view.unauthenticated >= *packets, "{view:?}, {reported:?}");
    }
}
