//! Users who ask for channels without end, with accounts of their own: how long another user's open takes meanwhile. Their
//! programs are threads of this test, whose connections were made under their users.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual::{Consent, Endsystem, Nanos};
use punctual_ipc::api::{Call, Request};
use punctual_ipc::socket::Packet;
use punctual_proto::ids::{Address, Name};

use crate::common::contract;
use crate::common::raw::Raw;
use crate::common::users::as_user;
use crate::judge::{alone, long};
use crate::world::{BYSTANDER, SINK, SOURCE, Setup, World};

/// Accounts that no user of this system has.
const FIRST_USER: u32 = 3_100_000;
const USERS: u32 = 15;
/// A queue of two seconds is as long as the lease.
pub const SETUP: Setup = Setup { signalling: "lease = \"2s\"", ..Setup::DEFAULT };
/// Each asks so often: all of them five times as often as the link carries what they ask for.
const PAUSE: Duration = Duration::from_millis(10);
const OPENS: usize = 9;
/// By which the open in the middle may take longer than beside the control.
const SLACK: Duration = Duration::from_millis(500);

/// One user's program.
pub struct Greedy(Arc<AtomicBool>);

impl Greedy {
    /// All of them, at the hosts themselves.
    #[cfg(feature = "trials")]
    pub fn crowd(world: &World) -> Vec<Self> {
        (FIRST_USER..FIRST_USER + USERS).map(|user| Self::begin(world, user, false)).collect()
    }

    /// The control asks its own daemon only.
    fn begin(world: &World, user: u32, own: bool) -> Self {
        let path = world.folder.join("c.sock");
        let raw = as_user(user, || Raw::greeted(&path)).expect("it is root's test");
        let back = Name::new(&format!("back-{user}")).expect("a name");
        raw.ask(Request::Listen { port: back.clone(), handler_time: Nanos::ZERO }).0.expect("a listener");
        let (raw, ends) = (Arc::new(raw), Arc::new(AtomicBool::new(false)));
        let (hears, ended) = (Arc::clone(&raw), Arc::clone(&ends));
        std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) && hears.receive_once().is_ok_and(|packet| packet.is_some())
            {
            }
        });
        let ended = Arc::clone(&ends);
        std::thread::spawn(move || ask(&raw, &requests(&back, own), &ended));
        Self(ends)
    }
}

impl Drop for Greedy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn requests(back: &Name, own: bool) -> [Packet; 4] {
    let address = |port: &str| -> Address { format!("{port}@b").parse().expect("an address") };
    let contract = contract(100, 10, 200);
    let ask = || Request::Ask { source: address("nobody"), reply_to: back.clone(), contract };
    let requests = [
        ask(),
        Request::Open { to: address("nobody"), contract, token: None },
        ask(),
        Request::Probe { to: address("measured"), contract },
    ];
    let name = || Request::Resolve { host: Name::new("nobody").expect("a name") };
    let request = |request_of| if own { name() } else { request_of };
    requests.map(|request_of| {
        Packet::new(&Call { id: 7, request: request(request_of) }, Vec::new()).expect("it fits")
    })
}

fn ask(raw: &Raw, requests: &[Packet], ended: &AtomicBool) {
    for request_of in requests.iter().cycle() {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        raw.try_send(request_of);
        std::thread::sleep(PAUSE);
    }
}

/// How long each of some opens of another user takes, from the shortest to the longest.
fn opens(source: &Endsystem) -> Vec<Duration> {
    let open = |_| {
        let begun = Instant::now();
        let channel = source.open("measured@b", contract(10, 1, 2_000)).expect("a channel");
        let took = begun.elapsed();
        drop(channel);
        took
    };
    let mut took: Vec<Duration> = (0..OPENS).map(open).collect();
    took.sort_unstable();
    took
}

/// The opens beside a crowd that has asked for some time.
fn opens_beside(world: &World, source: &Endsystem, own: bool) -> Vec<Duration> {
    // The connections of the control may live on for a moment.
    let first = if own { FIRST_USER } else { FIRST_USER + USERS };
    let users = first..first + USERS;
    let crowd: Vec<_> = users.map(|user| Greedy::begin(world, user, own)).collect();
    std::thread::sleep(Duration::from_secs(3));
    let until = Instant::now() + long().unwrap_or_default() / 2;
    let mut took = opens(source);
    while Instant::now() < until {
        took.extend(opens(source));
    }
    took.sort_unstable();
    drop(crowd);
    took
}

/// The channel that is watched lives on, too: it carries its messages when all is over.
#[test]
fn a_crowd_that_sends_requests_without_end_delays_no_open_and_ends_no_channel() {
    let _alone = alone();
    let mut world = World::start("crowd", SETUP);
    let _listener = world.watch[SINK].listen("measured", |_| Consent::Accept).expect("a listener");
    let source = as_user(BYSTANDER, || world.daemons[SOURCE].connect()).expect("it is root's test");
    let (quiet, before) = (opens(&source), world.memory());
    let [control, attack] = [true, false].map(|own| opens_beside(&world, &source, own));
    let harm = world.observe(Duration::from_millis(300), &before);
    eprintln!("opens take {quiet:?}, beside the control {control:?}, beside the crowd {attack:?}");
    let middle = |took: &[Duration]| took[took.len() / 2];
    assert!(middle(&attack) < middle(&control) + SLACK, "{:?}, {:?}", middle(&attack), middle(&control));
    assert!(harm.lost * 10 <= harm.sent, "the channel that is watched: {} of {} lost", harm.lost, harm.sent);
    world.end();
}
