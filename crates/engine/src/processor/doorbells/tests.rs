use punctual_os::wait::Doorbell;

use super::*;

/// Number of descriptors that the kernel reports without waiting.
fn reported(waiter: &mut Waiter) -> usize {
    waiter.wait(Some(Nanos::ZERO)).expect("a look")
}

fn setup() -> (Doorbell, Doorbells, Waiter) {
    (Doorbell::new().expect("an eventfd"), Doorbells::default(), Waiter::new().expect("descriptors"))
}

fn copy(bell: &Doorbell) -> Arc<OwnedFd> {
    Arc::new(bell.as_fd().try_clone_to_owned().expect("a descriptor"))
}

#[test]
fn a_ring_of_a_removed_channel_belongs_to_no_user() {
    let (bell, mut doorbells, waiter) = setup();
    for channel in [1, 2].map(ChannelId) {
        doorbells.watch(channel, copy(&bell), Allowance::of(None, None), &waiter).expect("watched");
        doorbells.rung(channel, Instant(1), &waiter);
    }
    doorbells.unwatch(ChannelId(2), &waiter);
    assert_eq!(doorbells.next_rung(), Some(ChannelId(1)));
    assert_eq!(doorbells.next_rung(), None);
}

#[test]
fn rings_within_the_contract_are_served_at_once() {
    let (bell, mut doorbells, waiter) = setup();
    let (channel, interval) = (ChannelId(3), Nanos::from_micros(20));
    let allowance = Allowance { own: Some(RingRate { burst: 2, interval }), payer: None };
    doorbells.watch(channel, copy(&bell), allowance, &waiter).expect("watched");
    let mut at = Instant(1);
    doorbells.rung(channel, at, &waiter);
    for _ in 0..1_000 {
        doorbells.rung(channel, at, &waiter);
        assert_eq!((doorbells.next_rung(), doorbells.next_unmute()), (Some(channel), None));
        at = at + interval;
    }
    for _ in 0..2 {
        doorbells.rung(channel, at, &waiter);
    }
    assert!(doorbells.next_unmute().is_some(), "one more than the burst");
}

#[test]
fn a_storm_of_rings_is_muted_and_its_last_ring_is_served() {
    let (bell, mut doorbells, mut waiter) = setup();
    let channel = ChannelId(7);
    doorbells.watch(channel, copy(&bell), Allowance::of(None, None), &waiter).expect("watched");
    let mut at = Instant(1);
    bell.ring();
    assert_eq!(reported(&mut waiter), 1);
    doorbells.rung(channel, at, &waiter);
    assert_eq!(doorbells.next_rung(), Some(channel));
    at = at + Nanos(1_000);
    bell.ring();
    assert_eq!(reported(&mut waiter), 1);
    doorbells.rung(channel, at, &waiter);
    assert_eq!(doorbells.next_rung(), None, "too soon");
    for _ in 0..100 {
        bell.ring();
        assert_eq!(reported(&mut waiter), 0, "muted");
    }
    let due = doorbells.next_unmute().expect("it will be heard");
    assert_eq!(due, at + SPACING);
    doorbells.unmute(due, &waiter);
    assert_eq!((reported(&mut waiter), doorbells.next_unmute()), (1, None));
    doorbells.rung(channel, due, &waiter);
    assert_eq!(doorbells.next_rung(), Some(channel));
    assert_eq!(reported(&mut waiter), 0, "and nothing more");
}

const ANN: UserId = UserId(4_000_001);
const BOB: UserId = UserId(4_000_002);

/// The doorbells of some channels, in virtual time: passes the kernel's reports on, and counts the rings that
/// are handled.
struct Scene {
    bells: Vec<(ChannelId, Doorbell)>,
    doorbells: Doorbells,
    waiter: Waiter,
    served: HashMap<ChannelId, (usize, Instant)>,
}

impl Scene {
    fn new() -> Self {
        let (_, doorbells, waiter) = setup();
        Self { bells: Vec::new(), doorbells, waiter, served: HashMap::new() }
    }

    fn add(&mut self, allowance: Allowance) -> ChannelId {
        let (bell, channel) = (Doorbell::new().expect("an eventfd"), ChannelId(self.bells.len() as u64));
        self.doorbells.watch(channel, copy(&bell), allowance, &self.waiter).expect("watched");
        self.bells.push((channel, bell));
        channel
    }

    fn flows(&mut self, user: UserId, count: usize) -> Vec<ChannelId> {
        (0..count).map(|_| self.add(Allowance::of(None, Some(user)))).collect()
    }

    fn ring(&self, channel: ChannelId) {
        self.bells[channel.0 as usize].1.ring();
    }

    /// Does one turn of the processor and returns the channels whose rings were handled.
    fn turn(&mut self, at: Instant) -> Vec<ChannelId> {
        self.doorbells.unmute(at, &self.waiter);
        loop {
            let ready = reported(&mut self.waiter);
            for token in (0..ready).filter_map(|n| self.waiter.token(n)).collect::<Vec<_>>() {
                self.doorbells.rung(ChannelId(token & !CHANNELS), at, &self.waiter);
            }
            if ready == 0 {
                break;
            }
        }
        let served: Vec<ChannelId> = std::iter::from_fn(|| self.doorbells.next_rung()).collect();
        for channel in &served {
            let (count, last) = self.served.entry(*channel).or_default();
            (*count, *last) = (*count + 1, at);
        }
        served
    }

    fn served(&self, channels: &[ChannelId]) -> usize {
        channels.iter().filter_map(|channel| self.served.get(channel)).map(|(count, _)| count).sum()
    }
}

/// Found with 250 flows of one user: each had an allowance of its own, and they took most of a CPU.
#[test]
fn flows_of_one_user_share_one_allowance_and_all_are_served() {
    let mut scene = Scene::new();
    let flows = scene.flows(ANN, 250);
    let (mut at, step) = (Instant(1), Nanos::from_micros(20));
    let end = at + Nanos::from_millis(200);
    while at < end {
        flows.iter().for_each(|flow| scene.ring(*flow));
        scene.turn(at);
        at = at + step;
    }
    let served = scene.served(&flows);
    assert!((790..=800 + AT_ONCE as usize).contains(&served), "{served} in 200 ms");
    let round = ALL_SPACING * 251 + TOGETHER;
    assert!(scene.served.len() == 250 && scene.served.values().all(|(_, last)| at.since(*last) <= round));
    // Each has a last ring, which is handled in its turn.
    let quiet = at;
    while at < quiet + round {
        scene.turn(at);
        at = at + step;
    }
    assert!(scene.served.values().all(|(_, last)| *last + step >= quiet));
    assert_eq!((scene.doorbells.next_unmute(), scene.turn(at)), (None, Vec::new()));
}

#[test]
fn a_user_has_its_share_whatever_the_flows_of_others_do() {
    let mut scene = Scene::new();
    let (flood, flow) = (scene.flows(ANN, 100), scene.flows(BOB, 1));
    let mut at = Instant(1);
    for turn in 0..5_000 {
        flood.iter().for_each(|flow| scene.ring(*flow));
        // One ring in a millisecond: two users have one each in 500 us.
        let rings = turn % 50 == 0;
        if rings {
            scene.ring(flow[0]);
        }
        assert_eq!(scene.turn(at).contains(&flow[0]), rings, "at once");
        at = at + Nanos::from_micros(20);
    }
    let served = scene.served(&flood);
    assert!((190..=200 + AT_ONCE as usize).contains(&served), "{served} in 100 ms: half of what all may");
    scene.doorbells.unwatch(flow[0], &scene.waiter);
    assert_eq!(scene.doorbells.share().interval, ALL_SPACING, "who has none has no share");
}

/// A contract of one message each 10 ms in bursts of 2.
fn contract() -> Contract {
    let rate = punctual_proto::Rate::per_second(100).expect("a rate");
    Contract::new(100, rate, 2, Nanos::from_millis(20)).expect("a contract")
}

#[test]
fn rings_within_a_contract_are_served_at_once_beside_a_flood_of_the_same_user() {
    let mut scene = Scene::new();
    let flood = scene.flows(ANN, 100);
    let channel = scene.add(Allowance::of(Some(&contract()), Some(ANN)));
    let (mut at, step) = (Instant(1), Nanos::from_micros(50));
    for turn in 0..10_000 {
        flood.iter().for_each(|flow| scene.ring(*flow));
        let rings = turn % 200 == 0;
        if rings {
            scene.ring(channel);
        }
        assert_eq!(scene.turn(at).contains(&channel), rings, "turn {turn}");
        at = at + step;
    }
}

/// It was one each 100 us, whatever the contract.
#[test]
fn beyond_its_contract_a_channel_has_its_users_share() {
    let mut scene = Scene::new();
    let channels: Vec<ChannelId> =
        (0..50).map(|_| scene.add(Allowance::of(Some(&contract()), Some(ANN)))).collect();
    let (mut at, step) = (Instant(1), Nanos::from_micros(20));
    let end = at + Nanos::from_millis(200);
    while at < end {
        channels.iter().for_each(|channel| scene.ring(*channel));
        scene.turn(at);
        at = at + step;
    }
    // Bursts and one more, 20 each in 200 ms (I' is shorter by 1/128), and the share.
    let (contracts, share) = (50 * (3 + 21), 800 + AT_ONCE as usize);
    let served = scene.served(&channels);
    assert!((790..=contracts + share).contains(&served), "{served}");
}
