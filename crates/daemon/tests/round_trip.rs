//! Round trips of blocking programs through two daemons, in alternating slices of one run: with and without filters of
//! system calls, of root (whose bells the processor rings) and of another user (whose ringer does).
//!
//! A short run checks that all of them work; `PUNCTUAL_ROUND_TRIPS` in the environment, the number for each,
//! makes it a measurement.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::hosts::udp;
use common::program::{Program, folder};
use common::text::Text;
use common::{PATIENCE, contract, meet};
use punctual::{Channel, Consent, Endsystem, Receiver};
use rustix::fs::{Gid, Uid};

const NUMBER: &str = "PUNCTUAL_ROUND_TRIPS";
/// Number of round trips in one world before the next world's turn.
const SLICE: usize = 100;
/// Time between the beginnings of two round trips.
const PACE: Duration = Duration::from_millis(1);
const NOBODY: u32 = 65_534;

/// The worlds by their names, in pairs that are compared: the setting of forbidden calls, and the user of the
/// programs.
const WORLDS: [(&str, &str, u32); 4] = [
    ("root", "refuse", 0),
    ("root again", "refuse", 0),
    ("root, no filters", "allow", 0),
    ("another user", "refuse", NOBODY),
];

/// Two daemons, a program at each, and a channel each way.
struct World {
    _daemons: [Program; 2],
    channel: Channel,
    receiver: Receiver,
    _hosts: [Endsystem; 2],
    ns: Vec<u64>,
}

/// A connection of `user`; the socket's path is relative to the current folder, which every user may search.
fn connect_as(user: u32, socket: &Path) -> Endsystem {
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| {
            if user != 0 {
                rustix::thread::set_thread_groups(&[]).expect("no groups");
                let group = Gid::from_raw(user);
                rustix::thread::set_thread_res_gid(group, group, group).expect("another group");
                let user = Uid::from_raw(user);
                rustix::thread::set_thread_res_uid(user, user, user).expect("another user");
            }
            Endsystem::connect_to(socket).expect("a connection")
        });
        connecting.join().expect("no panic")
    })
}

fn open(from: &Endsystem, to: &Endsystem, name: &str) -> (Channel, Receiver) {
    let listener = to.listen("echo", |_| Consent::Accept).expect("a listener");
    let channel = from.open(&format!("echo@{name}"), contract(64, 2_000, 50)).expect("a channel");
    (channel, listener.accept_timeout(PATIENCE).expect("no error").expect("a channel"))
}

impl World {
    fn start(folder: &Path, number: u16, forbidden: &str, user: u32) -> Self {
        let daemons = [0, 1].map(|end| {
            let name = ["a", "b"][usize::from(end)];
            let socket = folder.join(format!("{name}{number}.sock"));
            let folder = folder.join(number.to_string());
            std::fs::create_dir_all(&folder).expect("a folder");
            let link = format!("{}rate = \"1Gbit/s\"", udp(number, end));
            let daemon = format!("socket_mode = \"0666\"\nforbidden_calls = \"{forbidden}\"");
            let text = Text {
                name,
                socket: &socket,
                processor: "profile_measure = false",
                daemon: &daemon,
                hello: "1s",
                signalling: "",
                link: &link,
            };
            Program::start_as(&folder, text, "", str::to_owned)
        });
        let name = |end: usize| daemons[end].socket.file_name().expect("a name").to_owned();
        let hosts = [0, 1].map(|end| connect_as(user, Path::new(&name(end))));
        meet([&hosts[0], &hosts[1]]);
        let (channel, mut there) = open(&hosts[0], &hosts[1], "b");
        let (mut back, receiver) = open(&hosts[1], &hosts[0], "a");
        std::thread::spawn(move || {
            let mut message = [0; 64];
            // Ends with the channel.
            while let Ok(info) = there.recv(&mut message) {
                if back.send(&message[..info.len as usize]).is_err() {
                    return;
                }
            }
        });
        Self { _daemons: daemons, channel, receiver, _hosts: hosts, ns: Vec::new() }
    }

    /// One slice.
    fn run(&mut self) {
        let begin = Instant::now();
        for number in 0..SLICE {
            std::thread::sleep((PACE * number as u32).saturating_sub(begin.elapsed()));
            let sent = Instant::now();
            let message = [number as u8; 64];
            self.channel.send(&message).expect("sent");
            let mut answer = [0; 64];
            self.receiver.recv_timeout(&mut answer, PATIENCE).expect("answered");
            self.ns.push(sent.elapsed().as_nanos() as u64);
            assert_eq!(answer, message);
        }
    }
}

/// The value below which the fraction `share` of them is.
fn quantile(ns: &[u64], share: f64) -> f64 {
    let mut sorted = ns.to_vec();
    sorted.sort_unstable();
    sorted[((sorted.len() - 1) as f64 * share) as usize] as f64 / 1_000.0
}

/// Median over the slices of the ratio of `one` to `other`, with the first and last quartile.
fn ratio(one: &[u64], other: &[u64]) -> [f64; 3] {
    let pairs = one.chunks(SLICE).zip(other.chunks(SLICE));
    let mut ratios: Vec<f64> = pairs.map(|(one, other)| quantile(one, 0.5) / quantile(other, 0.5)).collect();
    ratios.sort_by(f64::total_cmp);
    [0.25, 0.5, 0.75].map(|share| ratios[((ratios.len() - 1) as f64 * share) as usize])
}

#[test]
fn messages_go_round_through_two_daemons_with_either_kind_of_doorbell() {
    assert!(rustix::process::getuid().is_root(), "programs of other users take root");
    let number = std::env::var(NUMBER).map_or(2 * SLICE, |text| text.parse().expect("a number"));
    let folder = folder("round-trip");
    std::env::set_current_dir(&folder).expect("a folder");
    let mut worlds: Vec<World> = (0..)
        .zip(WORLDS)
        .map(|(number, (_, forbidden, user))| World::start(&folder, number, forbidden, user))
        .collect();
    for slice in 0..number.div_ceil(SLICE) {
        // The order rotates, so that no world always follows the same other one.
        for turn in 0..WORLDS.len() {
            worlds[(turn + slice) % WORLDS.len()].run();
        }
    }
    let first = worlds[0].ns.clone();
    for (world, (name, ..)) in worlds.iter().zip(WORLDS) {
        let [low, median, high] = ratio(&world.ns, &first);
        println!(
            "{name}: {} round trips, p50 {:.1} us, p90 {:.1}, p99 {:.1}; of the first by slices: {median:.3} ({low:.3} to {high:.3})",
            world.ns.len(),
            quantile(&world.ns, 0.5),
            quantile(&world.ns, 0.9),
            quantile(&world.ns, 0.99),
        );
        assert_eq!(world.ns.len(), number.next_multiple_of(SLICE));
    }
    drop(worlds);
    std::env::set_current_dir("/").expect("the root");
    std::fs::remove_dir_all(folder).expect("removed");
}
