//! Effects of a host's own side on its channels: applications that vanish, a driver that accepts no packets,
//! a kernel that gives no more time, a processor that has no time for best effort.

use punctual_analysis::RefusalReason;
use punctual_proto::api::{
    ChannelCounters, CloseReason, DropCounters, Event, FilterChange, OpenRequest, Port, RefuseCause,
    RequestError, UserId,
};
use punctual_proto::ids::{Address, ChannelId, ChannelNumber, Cookie, Epoch, LinkId, NodeId, PathId};
use punctual_proto::limits::{ARRIVALS_AHEAD_MAX, FRAMES_GUARANTEED_DIVISOR, FRAMES_MIN};
use punctual_proto::wire::{Age, ClockError, Header, Kind};
use punctual_proto::{BitRate, Contract, Instant, Nanos, Ppm, Rate};
use punctual_rig::{Open, World, line_config, name, pattern};

const RATE: BitRate = BitRate(40_000_000);

fn contract() -> Contract {
    Contract::new(1_000, Rate::per_second(100).unwrap(), 2, Nanos::from_millis(50)).unwrap()
}

/// The reported reasons of the end of a channel at a host.
fn reasons(world: &World, host: usize, channel: ChannelId) -> Vec<CloseReason> {
    let reason = |event: &Event| match event {
        Event::Closed { channel: closed, reason, .. } if *closed == channel => Some(*reason),
        _ => None,
    };
    world.events[host].iter().filter_map(reason).collect()
}

/// Both ends are notified once, with the given reasons, and no state is left.
fn assert_ends(world: &mut World, open: &Open, source: CloseReason, sink: CloseReason) {
    world.run_for(Nanos::from_secs(2));
    let last = world.nodes.len() - 1;
    assert_eq!(reasons(world, 0, open.source), [source]);
    assert_eq!(reasons(world, last, open.sink), [sink]);
    assert!(world.nodes.iter().all(|node| node.is_quiet() && node.channels().is_empty()));
}

#[test]
fn channels_are_refused_once_a_links_frames_are_given_away_and_not_before() {
    let configs = [0, 1].map(|index| {
        let mut config = line_config(index, 2, RATE);
        config.links[0].frames = FRAMES_MIN;
        config
    });
    let mut world = World::of(configs.to_vec());
    let mut open = Vec::new();
    let refusal = loop {
        match world.open(0, 1, contract()) {
            Ok(channel) => open.push(channel),
            Err(Event::Refused { refusal, .. }) => break refusal,
            Err(other) => panic!("{other:?}"),
        }
    };
    let RefuseCause::Buffers(RefusalReason::Buffers { wanted_bytes, free_bytes }) = refusal.cause else {
        panic!("{refusal:?}")
    };
    // Half of them are for channels, each of which needs some; what is left is less than one more needs.
    let frames = u64::from(FRAMES_MIN / FRAMES_GUARANTEED_DIVISOR);
    assert!(
        (2..frames as usize).contains(&open.len()) && wanted_bytes > free_bytes,
        "{} and {refusal:?}",
        open.len()
    );
    let packet = u64::from(line_config(1, 2, RATE).links[0].packet_bytes_max);
    assert_eq!((wanted_bytes % packet, free_bytes % packet), (0, 0), "whole frames");
    let each = wanted_bytes / packet;
    assert_eq!(free_bytes / packet, frames - each * open.len() as u64, "what the others have left");
    let closed = open.pop().expect("some");
    world.nodes[0].close(closed.source, world.now).expect("open");
    world.run_for(Nanos::from_secs(2));
    world.open(0, 1, contract()).expect("its frames are free again");
}

#[test]
fn the_other_end_of_an_ended_application_is_notified() {
    for at_source in [true, false] {
        let mut world = World::line(3, RATE);
        let open = world.open(0, 2, contract()).unwrap();
        let (host, channel) = if at_source { (0, open.source) } else { (2, open.sink) };
        world.nodes[host].abandon(channel, world.now).unwrap();
        let (here, there) = (CloseReason::Vanished, CloseReason::PeerVanished);
        let (source, sink) = if at_source { (here, there) } else { (there, here) };
        assert_ends(&mut world, &open, source, sink);
        assert_eq!(world.nodes[host].abandon(channel, world.now), Err(RequestError::Unknown));
    }
}

/// The accepted path in the filter for the driver of the channel's incoming link.
fn filtered(world: &mut World, host: usize) -> Option<PathId> {
    match world.nodes[host].poll_filter() {
        Some((_, FilterChange::Set(filter))) => Some(filter.path),
        _ => None,
    }
}

/// The accepted paths of a host's drivers, updated by its new filter changes.
fn kept_filters(world: &mut World, host: usize, kept: &mut Vec<(LinkId, PathId)>) {
    while let Some((link, change)) = world.nodes[host].poll_filter() {
        match change {
            FilterChange::Set(filter) => kept.push((link, filter.path)),
            FilterChange::Clear(path) => kept.retain(|known| *known != (link, path)),
            FilterChange::Neighbour(_) => {}
        }
    }
}

#[test]
fn filters_of_a_channel_are_gone_with_it_at_every_host() {
    let mut world = World::line(3, RATE);
    let mut kept = [Vec::new(), Vec::new(), Vec::new()];
    let open = world.open(0, 2, contract()).unwrap();
    for (host, kept) in kept.iter_mut().enumerate() {
        kept_filters(&mut world, host, kept);
    }
    assert_eq!(kept.each_ref().map(Vec::len), [0, 1, 1], "where it comes in");
    world.nodes[0].close(open.source, world.now).unwrap();
    world.run_for(Nanos::from_secs(5));
    for (host, kept) in kept.iter_mut().enumerate() {
        kept_filters(&mut world, host, kept);
        assert!(kept.is_empty(), "host {host}: {kept:?}");
    }
}

#[test]
fn a_driver_that_refuses_a_filter_ends_the_channel_and_both_ends_know_why() {
    for host in [1, 2] {
        let mut world = World::line(3, RATE);
        let open = world.open(0, 2, contract()).unwrap();
        let path = filtered(&mut world, host).expect("a filter of the channel");
        let foreign_path = PathId { node: NodeId(9), ..path };
        world.nodes[host].abort_path(foreign_path, CloseReason::FilterRefused, world.now);
        world.run_for(Nanos::from_millis(100));
        assert!(reasons(&world, 0, open.source).is_empty(), "another path is another channel");
        world.nodes[host].abort_path(path, CloseReason::FilterRefused, world.now);
        assert_ends(&mut world, &open, CloseReason::FilterRefused, CloseReason::FilterRefused);
    }
}

#[test]
fn a_kernel_that_gives_no_more_time_ends_the_channel_that_was_admitted_last() {
    for host in [0, 1, 2] {
        let mut world = World::line(3, RATE);
        assert!(!world.nodes[host].abort_newest(CloseReason::RuntimeRefused, world.now), "there is none");
        let first = world.open(0, 2, contract()).unwrap();
        let second = world.open(0, 2, contract()).unwrap();
        assert!(world.nodes[host].abort_newest(CloseReason::RuntimeRefused, world.now));
        world.run_for(Nanos::from_secs(2));
        assert_eq!(reasons(&world, 0, second.source), [CloseReason::RuntimeRefused], "host {host}");
        assert_eq!(reasons(&world, 2, second.sink), [CloseReason::RuntimeRefused], "host {host}");
        assert!(first.outbox.send(&pattern(1, 0, 1_000), world.now));
        world.nodes[0].handle_ring(first.source, world.now);
        world.run_for(contract().deadline);
        assert!(first.inbox.recv(|_, info| assert!(!info.demoted)), "the first one goes on");
    }
}

/// Requests a channel, and stops the world as soon as `ready` returns true.
fn asks_until(world: &mut World, mut ready: impl FnMut(&mut World) -> bool) -> ChannelId {
    let last = world.nodes.len() - 1;
    world.nodes[last].listen(name("port")).unwrap();
    let to = Address { port: name("port"), host: name(&format!("h{}", last + 1)) };
    let request = OpenRequest { to, contract: contract(), user: UserId(0), probe: false, token: None };
    let channel = world.nodes[0].open(request, world.now).unwrap();
    for _ in 0..100_000 {
        if ready(world) {
            return channel;
        }
        world.run_for(Nanos::from_micros(10));
    }
    panic!("the channel was not being set up within a second");
}

#[test]
fn a_host_that_cannot_serve_a_channel_refuses_it_with_the_reason() {
    let driver = (CloseReason::FilterRefused, "the driver does not let its packets in");
    let kernel = (CloseReason::RuntimeRefused, "the kernel does not give the processor more time");
    for host in [0, 1, 2] {
        for (reason, text) in [driver, kernel] {
            let mut world = World::line(3, RATE);
            // The first event that the host holds it; no later one can report more.
            let channel = asks_until(&mut world, |world| world.nodes[host].abort_newest(reason, world.now));
            world.run_for(Nanos::from_secs(2));
            let refusal = world.events[0].iter().find_map(|event| match event {
                Event::Refused { channel: refused, refusal } if *refused == channel => Some(refusal),
                _ => None,
            });
            let refusal = refusal.expect("the source is told");
            assert_eq!(refusal.cause, RefuseCause::Unsuitable(text.into()), "host {host}");
            assert_eq!(refusal.node, NodeId(host as u32 + 1));
            assert!(world.nodes.iter().all(|node| node.is_quiet() && node.channels().is_empty()));
        }
    }
}

/// A best-effort packet from the first host of three to the last.
fn best_effort_packet(flow: u32) -> Vec<u8> {
    let header = Header {
        kind: Kind::BestEffort,
        demoted: false,
        unpromised: false,
        path: PathId { node: NodeId(1), channel: ChannelNumber(flow), epoch: Epoch(1) },
        cookie: Cookie(0),
        message: 0,
        fragment: 0,
        fragments: 1,
        message_bytes: 100,
        slack_ns: 0,
        logical_arrival: Instant(0),
        age: Age::NONE,
        payload_bytes: 100,
        clock_error: ClockError::NONE,
        destination: NodeId(3),
    };
    let mut bytes = vec![0; 1_500];
    let begin = header.write(&mut bytes);
    bytes.truncate(begin + 100);
    bytes
}

/// A flood may stay in the driver's ring: packets that the processor would only queue are not polled.
#[test]
fn best_effort_is_taken_while_the_processor_has_time_for_it_only() {
    let mut world = World::line(3, RATE);
    let link = LinkId(0);
    world.settle();
    for number in 0..2 * ARRIVALS_AHEAD_MAX {
        assert_eq!(world.nodes[1].has_best_effort_room(link), number < ARRIVALS_AHEAD_MAX, "{number} wait");
        let frame = world.pool.frame(&best_effort_packet(number as u32));
        world.nodes[1].handle_frame(link, Port::Data, world.now, frame, world.now);
    }
    world.run_for(Nanos::from_secs(1));
    assert!(world.nodes[1].has_best_effort_room(link), "they are done");
}

/// Not before a channel's packet has been served either.
#[test]
fn best_effort_waits_in_the_driver_for_what_is_more_urgent() {
    let mut world = World::line(2, RATE);
    let open = world.open(0, 1, contract()).unwrap();
    assert!(open.outbox.send(&pattern(1, 0, 1_000), world.now));
    world.nodes[0].handle_ring(open.source, world.now);
    assert!(!world.nodes[0].has_best_effort_room(LinkId(0)), "a message waits for the processor");
    world.settle();
    assert!(world.nodes[0].has_best_effort_room(LinkId(0)));
}

#[test]
fn a_host_that_has_just_begun_has_counted_and_seen_nothing() {
    let world = World::line(3, RATE);
    for node in &world.nodes {
        let status = node.status(world.now);
        assert_eq!((status.channels, status.channels_soft, status.cpu_utilisation > Ppm(0)), (0, 0, true));
        assert_eq!(
            (status.drops, status.channels_total),
            (DropCounters::default(), ChannelCounters::default())
        );
        assert_eq!((status.overruns, status.retransmissions, status.unanswered), (0, 0, 0));
        assert_eq!((status.late_service.times, status.broken.len(), status.late.len()), (0, 0, 0));
        let wakes = status.wakes;
        assert_eq!((wakes.wakes, wakes.late, wakes.late_max, wakes.recent_late), (0, 0, Nanos::ZERO, 0));
        assert_eq!((status.busy.periods, status.busy.excess_max), (0, Nanos::ZERO));
        assert!(status.work.iter().all(|path| (path.units, path.first, path.overruns) == (0, 0, 0)));
        for link in status.links {
            let sent = [link.packets_guaranteed, link.packets_best_effort, link.packets_signalling];
            assert_eq!((sent, link.wire_bytes, link.best_effort_dropped), ([0; 3], 0, 0));
            let came =
                [link.wire_bytes_in, link.packets_foreign, link.unauthenticated, link.clock_breaks.into()];
            assert_eq!((came, link.late_signals.times, link.late_packets.times), ([0; 4], 0, 0));
            assert_eq!((link.alive, link.foreign, link.clock_offset_ns), (false, None, None));
            assert_eq!((link.round_trip_min, link.round_trip_recent), (None, None));
            assert_eq!((link.rate.measured, link.rate.observed, link.rate.refused), (None, None, None));
            assert!(link.utilisation > Ppm(0), "that of its signalling");
        }
        assert!(node.channels().is_empty() && node.is_quiet() && !node.has_sources());
        let wrong: Vec<_> = node.accounts().into_iter().filter(|it| it.counted != it.held).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
