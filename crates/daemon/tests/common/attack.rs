//! A hostile program of another user, and what is seen meanwhile of a channel that is none of its business.
//!
//! The program is this test's own, started once more with its orders in the environment: the test file needs a test
//! `attacker` that carries them out. It becomes user 65534 before it does anything, and names the sockets from the folder that
//! they are in: there are roots that other users cannot search.

use std::io::{BufRead, BufReader};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use punctual::{Channel, Consent, Endsystem, Receiver};
use punctual_ipc::wake::timespec;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Gid, Uid};
use rustix::process::{Resource, Signal, getrlimit};

use super::network::{Cable, Network};
use super::program::{Program, folder};
use super::text::Text;
use super::witness::enter_fifo;
use super::{PATIENCE, contract, meet};

const ORDERS: [&str; 2] = ["PUNCTUAL_TEST_ATTACK", "PUNCTUAL_TEST_SOCKETS"];
const NOBODY: u32 = 65_534;
/// Between two messages of the channel that is watched, and of the attacker's.
pub const PERIOD: Duration = Duration::from_millis(10);
const DEADLINE_MS: u64 = 40;

/// What this process is to do as an attacker, and the two daemons' sockets; `None` in the test itself.
pub fn orders() -> Option<(String, [PathBuf; 2])> {
    let attack = std::env::var(ORDERS[0]).ok()?;
    let sockets = std::env::var(ORDERS[1]).expect("sockets");
    let (a, b) = sockets.split_once(':').expect("two of them");
    // Of this thread, and so of those that it starts: the test's own thread does nothing.
    rustix::thread::set_thread_groups(&[]).expect("no groups");
    let group = Gid::from_raw(NOBODY);
    rustix::thread::set_thread_res_gid(group, group, group).expect("another group");
    let user = Uid::from_raw(NOBODY);
    rustix::thread::set_thread_res_uid(user, user, user).expect("another user");
    Some((attack, [a.into(), b.into()]))
}

/// Tells the test that the attack has begun, and goes on until it is killed.
pub fn begun() {
    println!("begun");
}

/// Two daemons in their real-time class, joined by a cable, and a channel from `a` to `b`.
pub struct World {
    pub daemons: [Program; 2],
    pub watch: [Endsystem; 2],
    channel: Channel,
    receiver: Receiver,
    pub folder: PathBuf,
    _network: Network,
}

impl World {
    pub fn start(name: &str, number: u8) -> Self {
        let network = Network::new(name, 2).expect("this test needs root");
        let cable = Cable { number, hosts: [0, 1] };
        network.join(cable);
        let folder = folder(name);
        let daemons = [0, 1].map(|end| {
            let name = ["a", "b"][end];
            let socket = folder.join(format!("{name}.sock"));
            let text = Text {
                name,
                socket: &socket,
                processor: "profile_measure = false",
                daemon: "socket_mode = \"0666\"",
                hello: "2s",
                signalling: "grace = \"300ms\"",
                link: &format!("{}rate = \"1Gbit/s\"", cable.link(end, "udp")),
            };
            Program::start_as(&folder, text, "", |line| network.inside(end, line))
        });
        let watch = [daemons[0].connect(), daemons[1].connect()];
        meet([&watch[0], &watch[1]]);
        let listener = watch[1].listen("bystander", |_| Consent::Accept).expect("a listener");
        let channel = watch[0].open("bystander@b", contract(1_000, 100, DEADLINE_MS)).expect("a channel");
        let receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
        Self { daemons, watch, channel, receiver, folder, _network: network }
    }

    /// Starts the attack, and returns once it has begun.
    pub fn attack(&self, attack: &str) -> Attacker {
        std::fs::set_permissions(&self.folder, std::fs::Permissions::from_mode(0o755)).expect("permissions");
        let name =
            |daemon: &Program| daemon.socket.file_name().expect("a name").to_string_lossy().into_owned();
        let sockets = self.daemons.iter().map(name);
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .current_dir(&self.folder)
            .args(["--exact", "attacker", "--nocapture"])
            .env(ORDERS[0], attack)
            .env(ORDERS[1], sockets.collect::<Vec<_>>().join(":"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut said = BufReader::new(process.stdout.take().expect("its output")).lines();
        let begun = said.by_ref().any(|line| line.expect("a line").ends_with("begun"));
        let attacker = Attacker(process);
        assert!(begun, "the attack {attack} did not begin");
        // What it says later must not stop it.
        std::thread::spawn(move || said.for_each(drop));
        attacker
    }

    /// Sends for so long by the channel, and says what became of it.
    pub fn observe(&mut self, span: Duration) -> Harm {
        let count = (span.as_micros() / PERIOD.as_micros()) as u64;
        let (channel, receiver) = (&mut self.channel, &mut self.receiver);
        let (begin, mut late, mut received) = (Instant::now(), 0, 0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                assert!(enter_fifo(45, None), "real-time classes are permitted to root");
                for number in 0..count {
                    let due = begin + PERIOD * number as u32;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    let _ = channel.try_send(&[number as u8; 1_000]);
                }
            });
            let receiving = scope.spawn(move || {
                assert!(enter_fifo(45, None), "real-time classes are permitted to root");
                let mut buffer = [0; 1_000];
                let end = begin + span + Duration::from_millis(500);
                while let Ok(info) =
                    receiver.recv_timeout(&mut buffer, end.saturating_duration_since(Instant::now()))
                {
                    received += 1;
                    late += u64::from(info.delivered.since(info.logical_arrival).0 > DEADLINE_MS * 1_000_000);
                }
                (received, late)
            });
            (received, late) = receiving.join().expect("no panic");
        });
        let turns = self.watch.each_ref().map(|host| {
            let status = host.status().expect("status");
            Duration::from_nanos(status.engine["loop_ns_max"].as_u64().expect("a counter"))
        });
        Harm {
            sent: count,
            lost: count - received,
            late,
            longest_turn: turns.into_iter().max().expect("two"),
        }
    }

    /// Faults of the processors' threads so far.
    pub fn faults(&self) -> [u64; 2] {
        self.daemons.each_ref().map(|daemon| faults(daemon.pid().as_raw_nonzero().get()))
    }

    /// Both daemons end when they are asked, one gently and one not; how long that took.
    pub fn end(self) -> [Duration; 2] {
        let Self { daemons: [a, b], folder, watch, channel, receiver, _network } = self;
        let times = [(a, Signal::TERM), (b, Signal::KILL)].map(|(daemon, signal)| {
            let begin = Instant::now();
            daemon.stop(signal);
            begin.elapsed()
        });
        drop((watch, channel, receiver));
        std::fs::remove_dir_all(folder).expect("removed");
        times
    }
}

/// Minor and major, of the thread that is a process' processor.
fn faults(process: i32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("/proc");
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let processor = stats.filter(|stat| stat.contains("(punctual-cpu)")).map(|stat| {
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
        [7, 9].map(|field| fields[field].parse::<u64>().expect("a number")).into_iter().sum::<u64>()
    });
    processor.sum()
}

/// The hostile program; killed where the test drops it.
pub struct Attacker(Child);

impl Attacker {
    /// It has not given up, nor found that anything is not as it expects.
    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("its state").is_none()
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What became of the channel that was watched, and of the processors.
#[derive(Clone, Copy, Debug)]
pub struct Harm {
    pub sent: u64,
    pub lost: u64,
    pub late: u64,
    /// Of either, since its start.
    pub longest_turn: Duration,
}

impl Harm {
    /// Not beyond what the program does to others with an object of its own: of turns 200 us, of messages what `losses` says, and
    /// of late ones twice as many and one in twenty.
    fn is_no_worse_than(&self, control: &Self, losses: Losses) -> bool {
        let lost_max = match losses {
            Losses::AsControl => control.lost,
            Losses::TwiceControl => 2 * control.lost + self.sent / 20,
        };
        let is_calm = self.longest_turn <= control.longest_turn + Duration::from_micros(200);
        is_calm && self.lost <= lost_max && self.late <= 2 * control.late + self.sent / 20
    }
}

/// How many messages may be lost.
#[derive(Clone, Copy, Debug)]
pub enum Losses {
    /// No more than beside the control.
    AsControl,
    /// The control itself keeps a CPU for so long that receive buffers overflow: twice as many, and one in twenty.
    TwiceControl,
}

/// What an attack does for `span` to daemons of its own. Both of them end while it goes on.
fn run(what: &str, number: u8, span: Duration) -> Harm {
    let mut world = World::start(what, number);
    let attacker = world.attack(what);
    let harm = world.observe(span);
    eprintln!("{what}: {harm:?}");
    let [gently, killed] = world.end();
    assert!(gently < Duration::from_secs(5), "it ended after {gently:?}");
    assert!(killed < Duration::from_secs(2), "it was killed after {killed:?}");
    drop(attacker);
    harm
}

/// Fails where `attack` does more harm than `control`, three times of three: a hole of the platform may lie in a turn. Takes
/// six numbers of networks from `number` on.
pub fn assert_no_worse(control: &str, attack: &str, number: u8, span: Duration, losses: Losses) {
    let is_fine = |round: u8| {
        let control = run(control, number + 2 * round, span);
        run(attack, number + 2 * round + 1, span).is_no_worse_than(&control, losses)
    };
    assert!((0..3).any(is_fine), "three times worse than the control");
}

/// A million entries in the list of those who wait for `descriptor`, for an event that never comes.
pub fn crowd(descriptor: BorrowedFd<'_>) {
    crowd_for(descriptor, 50, None);
    // Each is in its system call after some milliseconds.
    std::thread::sleep(Duration::from_secs(2));
}

/// Threads with 20,000 entries each, for so long or for ever.
pub fn crowd_for(descriptor: BorrowedFd<'_>, threads: usize, span: Option<Duration>) {
    let entries = getrlimit(Resource::Nofile).current.unwrap_or(20_000).min(20_000) as usize;
    let end = span.map(|span| Instant::now() + span);
    for _ in 0..threads {
        let copy = descriptor.try_clone_to_owned().expect("a descriptor");
        std::thread::spawn(move || {
            let mut set: Vec<_> = (0..entries).map(|_| PollFd::new(&copy, PollFlags::PRI)).collect();
            while end.is_none_or(|end| Instant::now() < end) {
                let left = end.map(|end| timespec(end.saturating_duration_since(Instant::now())));
                // An event that cannot be left out, a hang-up, would come at once again.
                let _ = poll(&mut set, left.as_ref());
                std::thread::sleep(Duration::from_millis(10));
            }
        });
    }
}

/// A channel of the attacker's own from `a` to `b`.
pub fn own_channel(sockets: &[PathBuf; 2]) -> (Channel, Receiver) {
    let connect = |path: &Path| Endsystem::connect_to(path).expect("a connection");
    let (a, b) = (connect(&sockets[0]), connect(&sockets[1]));
    let listener = b.listen("attacker", |_| Consent::Accept).expect("a listener");
    let channel = a.open("attacker@b", contract(100, 100, 200)).expect("a channel");
    (channel, listener.accept_timeout(PATIENCE).expect("no error").expect("a channel"))
}

/// One message, which is taken as soon as it is there: its bell rings for each.
pub fn exchange((channel, receiver): &mut (Channel, Receiver)) {
    std::thread::sleep(PERIOD);
    let _ = channel.try_send(&[0; 100]);
    while receiver.try_recv(&mut [0; 100]).is_ok() {}
}
