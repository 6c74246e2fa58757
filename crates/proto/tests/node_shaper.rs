//! The kernel's share of a link follows admission: up a second after it is open, down before anything is granted.

use punctual_proto::api::{
    Event, KernelShare, OpenRequest, RateRefusal, RefuseCause, RtuClass, RtuCost, RtuEvent, RtuSending,
    RtuTarget, RtuTerms, UserId,
};
use punctual_proto::config::{Admission, Interference, LinkConfig, Pacing};
use punctual_proto::ids::{ChannelId, LinkId};
use punctual_proto::limits::{
    SHAPER_CONTENTION, SHAPER_CONTENTION_KEPT, SHAPER_GROWS_AFTER, SHAPER_PATIENCE, SHAPER_STEP_PPM,
    SIGNAL_PERIODS_BESIDE_KERNEL,
};
use punctual_proto::node::Node;
use punctual_proto::{BitRate, Contract, Instant, Nanos, Ppm, Rate};
use punctual_rig::{TestInbox, TestMemory, TestOutbox, World, line_config, name};

const RATE: BitRate = BitRate(95_000_000);
const LINK: LinkId = LinkId(0);

fn follows(link: &mut LinkConfig) {
    link.interference = Interference { sigma: Nanos::from_micros(500), rho: Ppm(100_000) };
    link.kernel_share_max = Ppm(950_000);
}

fn world() -> World {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, RATE)).collect();
    configs.iter_mut().for_each(|config| config.links.iter_mut().for_each(follows));
    World::of(configs)
}

fn contract(deadline: Nanos) -> Contract {
    Contract::new(200, Rate::per_second(100).expect("a rate"), 1, deadline).expect("a contract")
}

fn share(world: &World) -> KernelShare {
    world.nodes[0].status(world.now).links[0].kernel_share.expect("it follows")
}

/// Advances time; shapers confirm at once.
fn run(world: &mut World, span: Nanos) -> Vec<BitRate> {
    let (end, mut asked) = (world.now + span, Vec::new());
    while world.now < end {
        world.run_for(Nanos::from_millis(1).min(span));
        for host in 0..world.nodes.len() {
            while let Some((link, rate)) = world.nodes[host].poll_shaper() {
                if host == 0 {
                    asked.push(rate);
                }
                let now = world.now;
                world.nodes[host].handle_shaped(link, rate, now);
            }
        }
    }
    asked
}

fn grown() -> World {
    let mut world = world();
    assert_eq!(share(&world).now_bps, share(&world).least_bps);
    assert!(run(&mut world, Nanos::from_millis(990)).is_empty(), "not open for a second yet");
    let asked = run(&mut world, Nanos::from_millis(100));
    assert_eq!(asked, [share(&world).most_bps]);
    assert_eq!(share(&world).now_bps, share(&world).most_bps);
    world
}

fn asks(world: &mut World, contract: Contract) -> ChannelId {
    // A second one finds the listener there.
    let _ = world.nodes[1].listen(name("video"));
    let to = "video@h2".parse().expect("an address");
    let request = OpenRequest { to, contract, user: UserId(7), probe: false, token: None };
    let now = world.now;
    world.nodes[0].open(request, now).expect("it can be tried")
}

/// The other end accepts all requests.
fn consent(world: &mut World) {
    while let Some(event) = world.events[1].pop_front() {
        if let Event::Incoming(incoming) = event {
            let inbox = TestInbox::new(incoming.inbox_messages as usize + 4, 200);
            let now = world.now;
            world.nodes[1].consent(incoming.channel, inbox, now).expect("it waits for that");
        }
    }
}

fn is_opened(world: &World, channel: ChannelId) -> bool {
    let opened = |event: &Event| matches!(event, Event::Opened { channel: of, .. } if *of == channel);
    world.events[0].iter().any(opened)
}

/// The request to the shaper, once the reply of the other end is back; it is not confirmed.
fn awaits_shaper(world: &mut World) -> BitRate {
    for _ in 0..200 {
        world.run_for(Nanos::from_millis(1));
        consent(world);
        if let Some((link, rate)) = world.nodes[0].poll_shaper() {
            assert_eq!(link, LINK);
            return rate;
        }
    }
    panic!("the shaper is asked for nothing");
}

/// A program's handler that sends is no other than a channel.
#[test]
fn a_handler_that_sends_is_granted_once_the_shaper_has_shrunk() {
    let mut world = grown();
    let had = share(&world);
    let span = Nanos::from_millis(10);
    let class = RtuClass::periodic(span, 1);
    let cost = RtuCost { run: Nanos::ZERO, unit: Nanos::from_micros(5) };
    let terms = RtuTerms { class, deadline: Some(Nanos::from_millis(8)), quantum: 1, cost };
    let to = "port@h2".parse().expect("an address");
    let sending = RtuSending { to: RtuTarget::Port(to), packets: 1, payload_bytes: 100 };
    let now = world.now;
    let outbox = TestOutbox::new(4, 100);
    let id = world.nodes[0].register_sender(terms, &sending, outbox, now).expect("it can be tried");
    assert_eq!(world.nodes[0].poll_rtu(), None, "the kernel has more than its least still");
    let asked = awaits_shaper(&mut world);
    assert!(asked < had.now_bps && asked >= had.least_bps, "{asked:?}");
    world.run_for(Nanos::from_millis(20));
    assert_eq!(world.nodes[0].poll_rtu(), None);
    let accounts = world.nodes[0].accounts();
    assert!(accounts.iter().all(|account| account.counted == account.held), "{accounts:?}");
    // One that was granted before is reported before.
    let at_once = RtuTerms { class: RtuClass::BestEffort, deadline: None, ..terms };
    let before = world.nodes[0].register_handler(at_once, world.now).expect("best effort");
    let now = world.now;
    world.nodes[0].handle_shaped(LINK, asked, now);
    world.run_for(Nanos::from_millis(20));
    assert!(matches!(world.nodes[0].poll_rtu(), Some(RtuEvent::Granted(of, _)) if of == before));
    let granted = world.nodes[0].poll_rtu();
    assert!(matches!(granted, Some(RtuEvent::Granted(of, grant)) if of == id && grant.sent.is_some()));
    assert_eq!(
        world.nodes[0].measure_rate(LINK, world.now),
        Err(RateRefusal::InUse { channels: 1, there: false })
    );
    // With it, its part of the link goes: the kernel has as much as before after a while.
    let now = world.now;
    world.nodes[0].remove_handler(id, now);
    run(&mut world, Nanos::from_millis(1_200));
    assert_eq!(share(&world).now_bps, had.now_bps);
}

#[test]
fn a_tight_channel_is_granted_once_the_shaper_has_shrunk() {
    let mut world = grown();
    let had = share(&world);
    let channel = asks(&mut world, contract(Nanos::from_millis(10)));
    let asked = awaits_shaper(&mut world);
    assert!(asked < had.now_bps && asked >= had.least_bps, "{asked:?}");
    world.run_for(Nanos::from_millis(100));
    assert!(!is_opened(&world, channel), "the kernel still has more");
    assert_eq!((share(&world).now_bps, share(&world).waiting), (had.now_bps, 1));
    let now = world.now;
    // A rate that was not requested confirms nothing.
    world.nodes[0].handle_shaped(LINK, had.least_bps, now);
    world.run_for(Nanos::from_millis(1));
    assert!(!is_opened(&world, channel));
    let now = world.now;
    world.nodes[0].handle_shaped(LINK, asked, now);
    world.run_for(Nanos::from_millis(2));
    assert!(is_opened(&world, channel));
    assert_eq!((share(&world).now_bps, share(&world).waiting), (asked, 0));
    let now = world.now;
    world.nodes[0].close(channel, now).expect("it is open");
    assert!(run(&mut world, Nanos::from_millis(900)).is_empty());
    run(&mut world, Nanos::from_secs(2));
    assert_eq!(share(&world).now_bps, had.now_bps, "the kernel has it again");
}

/// Best effort fills the wire for a second, and a channel is requested this long before the kernel may have
/// more. Returns the requests to the shaper until the channel is open; `None` if it was open before them.
fn asked_until_open(before: Nanos) -> Option<(World, Vec<BitRate>)> {
    let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, RATE)).collect();
    for link in configs.iter_mut().flat_map(|config| &mut config.links) {
        follows(link);
        link.pipeline_depth = 16;
    }
    let mut world = World::of(configs);
    let outbox = TestOutbox::new(64, 1_400);
    let to = "bulk@h2".parse().expect("an address");
    let now = world.now;
    let flow = world.nodes[0].open_best_effort(to, 1_400, outbox.clone(), now).expect("a flow");
    let grows_at = world.now + SHAPER_GROWS_AFTER;
    let (mut asked, mut channel) = (Vec::new(), None);
    while !channel.is_some_and(|channel| is_opened(&world, channel)) {
        assert!(world.now < grows_at + Nanos::from_millis(100), "it is granted");
        while outbox.send(&[1; 1_400], world.now) {}
        let now = world.now;
        world.nodes[0].handle_ring(flow, now);
        if channel.is_none() && now + before >= grows_at {
            channel = Some(asks(&mut world, contract(Nanos::from_millis(25))));
        }
        asked.extend(run(&mut world, Nanos::from_micros(100)));
        consent(&mut world);
    }
    (world.now > grows_at).then_some((world, asked))
}

/// More was decided for the kernel, and packets that were stamped before are still under way, when a channel
/// arrives that would not fit: the rise is withdrawn before its request to the shaper, and the channel sends
/// at once. A little earlier nothing had been decided; a little later the shaper has to shrink first.
#[test]
fn a_rise_that_did_not_reach_the_shaper_is_taken_back() {
    let (mut unheard, mut shrunk) = (0, 0);
    for before_ms in 35..65 {
        let Some((mut world, asked)) = asked_until_open(Nanos::from_millis(before_ms)) else { continue };
        let KernelShare { now_bps, least_bps, waiting, .. } = share(&world);
        assert_eq!(waiting, 0, "{before_ms}");
        if asked.is_empty() {
            assert_eq!(now_bps, least_bps, "{before_ms}");
            assert!(run(&mut world, SHAPER_CONTENTION).is_empty(), "{before_ms}: nor is it asked later");
        } else {
            assert!(asked[1] < asked[0] && now_bps == asked[asked.len() - 1], "{before_ms}: {asked:?}");
        }
        *if asked.is_empty() { &mut unheard } else { &mut shrunk } += 1;
    }
    assert!(unheard > 1 && shrunk > 10, "{unheard} {shrunk}");
}

#[test]
fn a_shaper_that_does_not_shrink_is_a_refusal_with_that_reason() {
    let mut world = grown();
    asks(&mut world, contract(Nanos::from_millis(10)));
    awaits_shaper(&mut world);
    let refused = |world: &World| world.events[0].iter().any(|event| matches!(event, Event::Refused { .. }));
    world.run_for(SHAPER_PATIENCE - Nanos::from_millis(10));
    assert!(!refused(&world), "it has that much patience");
    world.run_for(Nanos::from_millis(20));
    let why = world.events[0].iter().find_map(|event| match event {
        Event::Refused { refusal, .. } => Some(refusal.cause.clone()),
        _ => None,
    });
    let Some(RefuseCause::Unsuitable(why)) = why else { panic!("{why:?}") };
    assert!(why.as_str().contains("shaper of kernel traffic"), "{why}");
    assert_eq!(share(&world).waiting, 0);
}

#[test]
fn a_loose_channel_is_granted_at_once() {
    let mut world = grown();
    let channel = asks(&mut world, contract(Nanos::from_secs(1)));
    for _ in 0..100 {
        world.run_for(Nanos::from_millis(1));
        consent(&mut world);
    }
    assert!(is_opened(&world, channel));
    assert_eq!(share(&world).now_bps, share(&world).most_bps);
}

#[test]
fn best_effort_that_waits_has_what_the_kernel_was_lent() {
    let mut world = grown();
    let outbox = TestOutbox::new(64, 1_400);
    let to = "bulk@h2".parse().expect("an address");
    let now = world.now;
    let flow = world.nodes[0].open_best_effort(to, 1_400, outbox.clone(), now).expect("a flow");
    let flood = |world: &mut World, until: Instant| {
        while world.now < until {
            while outbox.send(&[1; 1_400], world.now) {}
            let now = world.now;
            world.nodes[0].handle_ring(flow, now);
            run(world, Nanos::from_millis(1));
        }
    };
    let until = world.now + Nanos::from_millis(200);
    flood(&mut world, until);
    assert_eq!(share(&world).now_bps, share(&world).least_bps);
    let until = world.now + Nanos::from_secs(3);
    flood(&mut world, until);
    assert_eq!(share(&world).now_bps, share(&world).least_bps, "as long as it waits");
    run(&mut world, Nanos::from_secs(4));
    assert_eq!(share(&world).now_bps, share(&world).most_bps);
}

/// Only a clock of ours can make room, and only deadlines allow it; and there must be something to give.
#[test]
fn a_share_follows_only_where_it_can() {
    let follows_with = |change: fn(&mut LinkConfig)| {
        let mut configs: Vec<_> = (0..2).map(|index| line_config(index, 2, RATE)).collect();
        for link in configs.iter_mut().flat_map(|config| &mut config.links) {
            follows(link);
            change(link);
        }
        World::of(configs).nodes[0].status(Instant(1)).links[0].kernel_share.is_some()
    };
    assert!(follows_with(|_| ()) && follows_with(|link| link.admission = Admission::D_ORDER));
    assert!(!follows_with(|link| link.kernel_share_max = link.interference.rho));
    assert!(!follows_with(|link| link.pace = Pacing::Completion));
    assert!(!follows_with(|link| link.admission = Admission::STATISTICAL));
}

/// Best effort that waits only for a moment takes nothing from the kernel; if it waits longer it does, and
/// keeps it for a while.
#[test]
fn best_effort_waits_for_a_moment_before_it_takes_anything() {
    let mut world = grown();
    let outbox = TestOutbox::new(64, 1_400);
    let to = "bulk@h2".parse().expect("an address");
    let now = world.now;
    let flow = world.nodes[0].open_best_effort(to, 1_400, outbox.clone(), now).expect("a flow");
    // At the rest of 95 Mbit/s beside the kernel's share each takes 2.6 ms, and one may run ahead.
    let put = |world: &mut World, packets: usize| {
        (0..packets).for_each(|_| assert!(outbox.send(&[1; 1_400], world.now)));
        let now = world.now;
        world.nodes[0].handle_ring(flow, now);
    };
    for _ in 0..20 {
        put(&mut world, 5);
        assert!(run(&mut world, Nanos::from_millis(100)).is_empty(), "it waits for 15 ms");
    }
    put(&mut world, 30);
    let least = share(&world).least_bps;
    assert!(run(&mut world, SHAPER_CONTENTION - Nanos::from_millis(2)).is_empty());
    assert_eq!(run(&mut world, Nanos::from_millis(5)), [least]);
    let kept = SHAPER_CONTENTION_KEPT + SHAPER_GROWS_AFTER - Nanos::from_millis(20);
    assert!(run(&mut world, kept).is_empty(), "nobody waits any more, and it is kept all the same");
    assert_eq!(run(&mut world, Nanos::from_millis(100)), [share(&world).most_bps]);
}

/// A growth of the kernel's share is applied from a hundredth of the link on.
#[test]
fn the_kernel_is_given_more_in_steps_that_are_worth_it() {
    let (mut small, mut large) = (0, 0);
    for deadline_us in (12_000..80_000).step_by(2_000) {
        let mut world = grown();
        let channel = asks(&mut world, contract(Nanos::from_micros(deadline_us)));
        for _ in 0..60 {
            consent(&mut world);
            run(&mut world, Nanos::from_millis(2));
        }
        assert!(is_opened(&world, channel), "{deadline_us}");
        let KernelShare { now_bps, most_bps, .. } = share(&world);
        let now = world.now;
        world.nodes[0].close(channel, now).expect("it is open");
        run(&mut world, Nanos::from_secs(3));
        let step = RATE.0 * u64::from(SHAPER_STEP_PPM) / 1_000_000;
        let (missing, has) = (most_bps.0 - now_bps.0, share(&world).now_bps);
        // A step is one of the drained rate, which is a little less.
        if missing > step {
            assert_eq!(has, most_bps, "{deadline_us}: {missing} of {step}");
            large += 1;
        } else if missing < step * 9 / 10 {
            assert_eq!(has, now_bps, "{deadline_us}: {missing} of {step}");
            small += u32::from(missing > 0);
        }
    }
    assert!(large > 3, "{small} {large}");
}

/// Signalling beside kernel traffic that follows may take three of its periods, so that the kernel may have more: such a link may
/// be slower.
#[test]
fn signalling_beside_kernel_traffic_has_three_of_its_periods() {
    let slowest = |shares: bool| {
        let carries = |kbit: &u64| {
            let mut config = line_config(0, 2, BitRate(kbit * 1_000));
            config.links.iter_mut().for_each(follows);
            if !shares {
                config.links[0].kernel_share_max = config.links[0].interference.rho;
            }
            Node::<TestMemory>::new(config, 1, Instant(1)).is_ok()
        };
        (500..20_000).step_by(50).find(carries).expect("a fast link does")
    };
    let (alone, beside) = (slowest(false), slowest(true));
    assert!(beside < alone && alone <= beside * SIGNAL_PERIODS_BESIDE_KERNEL, "{alone} {beside} kbit/s");
}

/// A host reports whether any of its links follows admission: only then its shapers are polled.
#[test]
fn a_host_shows_whether_any_of_its_links_follows() {
    let mut configs: Vec<_> = (0..3).map(|index| line_config(index, 3, RATE)).collect();
    follows(&mut configs[1].links[1]);
    let mut world = World::of(configs);
    assert_eq!([0, 1, 2].map(|host: usize| world.nodes[host].follows()), [false, true, false]);
    world.run_for(Nanos::from_secs(3));
    let link = world.nodes[1].poll_shaper().map(|(link, _)| link);
    assert_eq!(link, Some(LinkId(1)), "the one that follows");
    assert!(world.nodes[0].poll_shaper().is_none() && world.nodes[1].poll_shaper().is_none());
}
