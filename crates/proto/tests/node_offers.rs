//! The offer of a refusal is granted on request, on real nodes with other channels: exactly as offered, and
//! as it is printed. It asks for no more than the refused contract did.

use punctual_analysis::{Activation, RefusalReason};
use punctual_proto::api::{ChannelRefusal, Event, Grant, OpenRequest, RefuseCause, UserId};
use punctual_proto::config::{Admission, RunPolicy};
use punctual_proto::ids::Address;
use punctual_proto::signalling::SplitMix64;
use punctual_proto::{BitRate, Contract, Nanos, Rate};
use punctual_rig::{TestInbox, World, line_config, name};

/// The result of a request: an open channel gets consent at once.
fn ask(world: &mut World, to: usize, contract: Contract, probe: bool) -> Result<Grant, ChannelRefusal> {
    let to = Address { port: name("in"), host: name(&format!("h{}", to + 1)) };
    let request = OpenRequest { to, contract, user: UserId(1), probe, token: None };
    let asked = world.nodes[0].open(request, world.now).expect("it can be tried");
    for _ in 0..3_000 {
        for host in 1..world.nodes.len() {
            while let Some(event) = world.events[host].pop_front() {
                if let Event::Incoming(incoming) = event {
                    let inbox =
                        TestInbox::new(incoming.inbox_messages as usize, contract.message_bytes_max as usize);
                    world.nodes[host].consent(incoming.channel, inbox, world.now).expect("it was asked");
                }
            }
        }
        while let Some(event) = world.events[0].pop_front() {
            match event {
                Event::Opened { channel, grant } if channel == asked => return Ok(grant),
                Event::Refused { channel, refusal } if channel == asked => return Err(refusal),
                Event::Probed { channel, answer } if channel == asked => return answer,
                _ => {}
            }
        }
        world.run_for(Nanos::from_millis(1));
    }
    panic!("no answer within three seconds");
}

fn drawn(random: &mut SplitMix64) -> Contract {
    let bytes = 1 + random.below(20_000) as u32;
    let interval = Nanos(2_000_000 + random.below(80_000_000));
    let burst = 1 + random.below(4) as u32;
    let deadline = Nanos(200_000 + random.below(60_000_000));
    Contract::new(bytes, Rate::every(interval).expect("a rate"), burst, deadline).expect("in range")
}

/// The contract that a user would type from the printed offer.
fn printed(offer: Contract) -> Contract {
    let thousandths = 1_000_000_000_000 / offer.rate_max.interval().0;
    let interval = match thousandths {
        0..1_000 => offer.rate_max.interval().at_least(),
        thousandths => Nanos((1e12 / thousandths as f64).round() as u64),
    };
    Contract {
        deadline: offer.deadline.at_least(),
        rate_max: Rate::every(interval).expect("a rate"),
        ..offer
    }
}

#[test]
fn what_is_offered_is_granted() {
    let policies = [
        (RunPolicy::Edf, Admission::EDF),
        (RunPolicy::Edf, Admission::D_ORDER),
        (RunPolicy::FixedPriority, Admission::FIXED_PRIORITY),
    ];
    let (mut offered, mut deadlines, mut rates) = (0, 0, 0);
    for seed in 0..72 {
        let mut random = SplitMix64::new(seed);
        let hosts = 2 + (seed % 3) as usize;
        let (run, admission) = policies[(seed / 3) as usize % policies.len()];
        let on_link = if admission == Admission::FIXED_PRIORITY { Admission::EDF } else { admission };
        let configs = (0..hosts).map(|index| {
            let mut config = line_config(index, hosts, BitRate(10_000_000 + random.below(90_000_000)));
            (config.cpu.run, config.cpu.admission) = (run, admission);
            config.links.iter_mut().for_each(|link| link.admission = on_link);
            config
        });
        let mut world = World::of(configs.collect());
        world.run_for(Nanos::from_millis(100));
        for node in &mut world.nodes[1..] {
            node.listen(name("in")).expect("free");
        }
        for _ in 0..12 {
            let (to, wanted) = (1 + random.below(hosts as u64 - 1) as usize, drawn(&mut random));
            let Err(refusal) = ask(&mut world, to, wanted, random.below(2) == 0) else { continue };
            let Some(offer) = refusal.offer else { continue };
            offered += 1;
            deadlines += u32::from(offer.deadline > wanted.deadline);
            rates += u32::from(offer.interval() > wanted.interval());
            assert!(!refusal.stages.is_empty(), "seed {seed}: who would say yes");
            // A shorter deadline or a higher rate would take more of the stages than was wanted.
            let relaxed = offer.deadline >= wanted.deadline && offer.interval() >= wanted.interval();
            assert!(relaxed, "seed {seed}: {wanted:?} was refused, {offer:?} is offered");
            for (how, asked) in [("as offered", offer), ("as printed", printed(offer))] {
                let answer = ask(&mut world, to, asked, true);
                assert!(answer.is_ok(), "seed {seed}, {how}: {asked:?}: {answer:?}");
            }
            // Buffers are taken when a channel is opened only; they may lack.
            match ask(&mut world, to, offer, false) {
                Ok(grant) => assert!(grant.bound_possible <= offer.deadline, "seed {seed}"),
                Err(no) => {
                    assert!(matches!(no.cause, RefuseCause::Buffers(_)), "seed {seed}: {offer:?}: {no}")
                }
            }
        }
    }
    assert!(
        offered > 100 && deadlines > 50 && rates > 10,
        "{offered} offers, {deadlines} deadlines, {rates} rates"
    );
}

/// A lower rate of the messages does not make their budget smaller: none is offered, nor said to be possible.
#[test]
fn no_rate_is_offered_in_place_of_a_budget_that_is_too_large() {
    let span = Nanos::from_millis(5);
    for activation in [
        Activation::LowLatency { interarrival: span, packets: 5_000 },
        Activation::Periodic { period: span, packets: 5_000 },
    ] {
        let mut world = World::line(2, BitRate(40_000_000));
        world.run_for(Nanos::from_millis(100));
        world.nodes[1].listen(name("in")).expect("free");
        let rate = Rate::per_second(25).expect("a rate");
        let plain = Contract::new(1_000, rate, 1, Nanos::from_millis(200)).expect("in range");
        let refusal = ask(&mut world, 1, Contract { activation, ..plain }, false).expect_err("too much");
        let RefuseCause::Stage { refusal: by, .. } = &refusal.cause else { panic!("{refusal}") };
        assert!(matches!(by.reason, RefusalReason::Utilisation { .. }), "{refusal}");
        assert_eq!((by.period_possible, refusal.offer), (None, None), "{activation:?}");
    }
}
