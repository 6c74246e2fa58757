//! Real daemons in namespaces, and a channel of another user through them that is none of the attacker's business.

use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use punctual::{Channel, Consent, Endsystem, Receiver};
use punctual_os::now;
use rustix::process::{Pid, Signal};

use crate::common::network::{Cable, Network};
use crate::common::program::{Program, folder};
use crate::common::text::Text;
use crate::common::users::as_user;
use crate::common::witness::enter_fifo;
use crate::common::{PATIENCE, contract, meet};

/// Between two messages of the channel that is watched, and of the attackers'.
pub const PERIOD: Duration = Duration::from_millis(10);
pub const DEADLINE_MS: u64 = 40;
const BYTES: usize = 1_000;
/// Whose channel it is: of no account of this system.
pub const BYSTANDER: u32 = 3_000_001;
/// After the last message: longer than its deadline.
const TAIL: Duration = Duration::from_millis(80);
/// In which a daemon ends that is asked to: `grace` is 300 ms, and the last news have 200.
const ENDED_MAX: Duration = Duration::from_secs(5);
const KILLED_MAX: Duration = Duration::from_secs(2);

/// Where hosts are in the network, and their names: the channel goes from the source through the relay to the sink.
pub const SOURCE: usize = 0;
pub const RELAY: usize = 1;
pub const SINK: usize = 2;
const NAMES: [&str; 3] = ["c", "a", "b"];
pub const TO_RELAY: Cable = Cable { number: 0, hosts: [SOURCE, RELAY] };
pub const TO_SINK: Cable = Cable { number: 1, hosts: [RELAY, SINK] };

/// How the hosts are set up.
#[derive(Clone, Copy)]
pub struct Setup {
    /// Of both cables.
    pub driver: &'static str,
    /// Between HELLOs: who is silent for five times as long is taken for dead.
    pub hello: &'static str,
    /// More keys of `[processor]`, `[daemon]`, `[signalling]` and `[[link]]` of all hosts.
    pub processor: &'static str,
    pub daemon: &'static str,
    pub signalling: &'static str,
    pub link: &'static str,
    /// Between two messages of the channel that is watched.
    pub period: Duration,
    /// What daemons with the feature `trials` leave out, by name.
    pub without: &'static str,
}

impl Setup {
    pub const DEFAULT: Self = Self {
        driver: "udp",
        hello: "1s",
        processor: "",
        daemon: "",
        signalling: "",
        link: "",
        period: PERIOD,
        without: "",
    };
}

/// Of a daemon without some of its defences.
const ALLOW: &str = "forbidden_calls = \"allow\"\n";

/// Three daemons in their real-time class, and a channel.
pub struct World {
    /// Source, relay and sink.
    pub daemons: [Program; 3],
    /// Root's connections.
    pub watch: [Endsystem; 3],
    pub network: Network,
    pub folder: PathBuf,
    /// What the daemons leave out.
    pub without: &'static str,
    period: Duration,
    channel: Channel,
    receiver: Receiver,
    /// Messages of earlier observations that have not come; they may yet.
    missing: u64,
}

impl World {
    pub fn start(name: &str, setup: Setup) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let tag = format!("attack-{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let network = Network::new(&tag, NAMES.len()).expect("this test needs root");
        network.join(TO_RELAY);
        network.join(TO_SINK);
        let folder = folder(&tag);
        let daemons = [SOURCE, RELAY, SINK].map(|host| start(&network, &folder, host, setup));
        let watch = daemons.each_ref().map(Program::connect);
        meet([&watch[SOURCE], &watch[SINK]]);
        meet([&watch[RELAY], &watch[RELAY]]);
        let connect = |daemon: &Program| as_user(BYSTANDER, || daemon.connect()).expect("it is root's test");
        let [source, sink] = [SOURCE, SINK].map(|host| connect(&daemons[host]));
        let listener = sink.listen("bystander", |_| Consent::Accept).expect("a listener");
        // With room to the contract: who was late once catches up.
        let rate = 1_100 / setup.period.as_millis() as u64;
        let wanted = contract(BYTES as u32, rate, DEADLINE_MS);
        let channel = source.open("bystander@b", wanted).expect("a channel");
        let receiver = listener.accept_timeout(PATIENCE).expect("no error").expect("a channel");
        Self {
            daemons,
            watch,
            network,
            folder,
            without: setup.without,
            period: setup.period,
            channel,
            receiver,
            missing: 0,
        }
    }

    /// Sends for so long by the channel, and returns the result since the daemons' memory was `before`.
    pub fn observe(&mut self, span: Duration, before: &[Memory; 3]) -> Harm {
        let (period, first_ns) = (self.period, now().0);
        let count = (span.as_micros() / period.as_micros()) as u64;
        let (begun, busy) = (Instant::now(), self.processor_times());
        let (channel, receiver, missing) = (&mut self.channel, &mut self.receiver, &mut self.missing);
        // Both in their class before the first message: an ordinary thread may wait for long beside the attacker's.
        let ready = Barrier::new(2);
        let (latencies_ns, late) = std::thread::scope(|scope| {
            scope.spawn(|| {
                enter(&ready);
                send(channel, period, count);
            });
            let receiving = scope.spawn(|| {
                enter(&ready);
                receive(receiver, first_ns, Instant::now() + span + TAIL, missing)
            });
            receiving.join().expect("no panic")
        });
        let busy = busy.iter().zip(self.processor_times()).map(|(before, after)| after - *before);
        let processor_share = busy.max().expect("three").as_secs_f64() / begun.elapsed().as_secs_f64();
        let received = latencies_ns.len() as u64;
        assert!(received <= count, "{received} messages of {count}: another program has sent some");
        self.missing += count - received;
        let turn_ns = |host: &Endsystem| host.status().expect("status").engine.loop_ns_max;
        Harm {
            sent: count,
            lost: count - received,
            late,
            longest_turn: Duration::from_nanos(self.watch.iter().map(turn_ns).max().expect("three")),
            grown: self.grown_since(before),
            processor_share,
            latencies_ns,
        }
    }

    /// Has the kernel free all that ended processes have left. It frees that later, in softirqs on the CPUs where they ran, in
    /// the midst of system calls of the process that runs there: of six hundred processes it took a processor's turn 0.5 to 1.1 ms.
    /// The removal of a device waits until that is done (`rcu_barrier`).
    pub fn settle(&self) {
        self.network.run(SINK, "ip link add settle type veth peer name settled");
        self.network.run(SINK, "ip link del settle");
    }

    /// How often a processor has waited for memory.
    pub fn heap_waits(&self) -> u64 {
        let waits = |host: &Endsystem| host.status().expect("status").engine.heap_waits;
        self.watch.iter().map(waits).sum()
    }

    /// Of all daemons.
    pub fn memory(&self) -> [Memory; 3] {
        self.daemons.each_ref().map(|daemon| Memory::of(daemon.pid()))
    }

    /// Of the one that grew most.
    pub fn grown_since(&self, before: &[Memory; 3]) -> Memory {
        let memory = self.memory();
        let grown = before.iter().zip(&memory).map(|(before, after)| after.grown_since(before));
        grown.reduce(Memory::max).expect("three")
    }

    /// Faults of the processor's thread at the source so far: the rings of attackers are there.
    pub fn faults(&self) -> u64 {
        self.faults_at(SOURCE)
    }

    /// The same at another host.
    pub fn faults_at(&self, host: usize) -> u64 {
        faults(self.daemons[host].pid().as_raw_nonzero().get())
    }

    /// Daemons that have ended by themselves.
    #[cfg(feature = "trials")]
    pub fn dead(&self) -> usize {
        let is_dead = |daemon: &&Program| {
            let path = format!("/proc/{}/stat", daemon.pid().as_raw_nonzero());
            let stat = std::fs::read_to_string(path).expect("a process that was not waited for");
            stat.rsplit(')').next().expect("fields").trim_start().starts_with('Z')
        };
        self.daemons.iter().filter(is_dead).count()
    }

    /// CPU time of each processor's thread so far.
    fn processor_times(&self) -> [Duration; 3] {
        self.daemons.each_ref().map(|daemon| processor_time(daemon.pid().as_raw_nonzero().get()))
    }

    /// All daemons end; `host` has ended already.
    #[cfg(feature = "trials")]
    pub fn end_without(self, host: usize) {
        let Self { daemons, folder, watch, channel, receiver, network, .. } = self;
        for (at, mut daemon) in daemons.into_iter().enumerate() {
            if at == host {
                daemon.wait();
            } else {
                daemon.stop(Signal::KILL);
            }
        }
        drop((watch, channel, receiver, network));
        std::fs::remove_dir_all(folder).expect("removed");
    }

    /// All daemons end when they are asked, one of them not gently; how long that took at most.
    pub fn end(self) -> Ends {
        let Self { daemons: [source, relay, sink], folder, watch, channel, receiver, network, .. } = self;
        let time = |daemon: Program, signal| {
            let begin = Instant::now();
            daemon.stop(signal);
            begin.elapsed()
        };
        let ends = Ends { asked: time(source, Signal::TERM), killed: time(sink, Signal::KILL) };
        time(relay, Signal::KILL);
        drop((watch, channel, receiver, network));
        std::fs::remove_dir_all(folder).expect("removed");
        ends
    }
}

fn start(network: &Network, folder: &std::path::Path, host: usize, setup: Setup) -> Program {
    let Setup { driver, hello, processor, daemon, signalling, link: more, without, .. } = setup;
    let defer = if driver == "xdp" { "interrupt_defer = \"20us\"\n" } else { "" };
    let rest = format!(
        "rate = \"1Gbit/s\"\nprediction_error = \"20ms\"
{defer}{more}
"
    );
    let end = |cable: Cable, end| format!("{}{rest}", cable.link(end, driver));
    let third = "[[host]]\nname = \"c\"\nid = 3\n";
    let second = "[[link]]\nname = \"to-c\"\nneighbour = \"c\"\n";
    let link = match host {
        RELAY => format!("{}{third}{second}{}", end(TO_SINK, 0), end(TO_RELAY, 1)),
        SINK => format!("{}{third}", end(TO_SINK, 1)),
        _ => format!("{}{third}[[route]]\nvia = [\"a\", \"b\"]\n", end(TO_RELAY, 0)),
    };
    let name = NAMES[host];
    let socket = folder.join(format!("{name}.sock"));
    let processor = format!("profile_measure = false\n{processor}");
    let text = Text {
        name,
        socket: &socket,
        processor: &processor,
        // A daemon without a defence may make calls that its threads' lists do not have.
        daemon: &format!("socket_mode = \"0666\"\n{}{daemon}", if without.is_empty() { "" } else { ALLOW }),
        hello,
        signalling: &format!("grace = \"300ms\"\n{signalling}"),
        link: &link,
    };
    let without = if without.is_empty() { "" } else { &format!("env PUNCTUAL_WITHOUT={without} ") };
    Program::start_as(folder, text, "", |line| network.inside(host, &format!("{without}{line} 2>/dev/null")))
}

/// Waits for the other thread of the witness, too.
fn enter(ready: &Barrier) {
    assert!(enter_fifo(45, None), "real-time classes are permitted to root");
    ready.wait();
}

/// A message each period, with its time in it.
fn send(channel: &mut Channel, period: Duration, count: u64) {
    let begin = Instant::now();
    let mut message = [0; BYTES];
    for number in 0..count {
        let due = begin + period * number as u32;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        message[..8].copy_from_slice(&now().0.to_ne_bytes());
        // What finds no room is lost.
        let _ = channel.try_send(&message);
    }
}

/// What came until `end` of what was sent from `first_ns` on: how long after it was sent, and how many were later than was
/// promised. Those `missing` of before are passed over.
fn receive(receiver: &mut Receiver, first_ns: u64, end: Instant, missing: &mut u64) -> (Vec<u64>, u64) {
    let (mut latencies_ns, mut late, mut buffer) = (Vec::new(), 0, [0; BYTES]);
    while let Ok(info) = receiver.recv_timeout(&mut buffer, end.saturating_duration_since(Instant::now())) {
        let sent = u64::from_ne_bytes(buffer[..8].try_into().expect("eight bytes"));
        if sent < first_ns && *missing > 0 {
            *missing -= 1;
            continue;
        }
        latencies_ns.push(now().0 - sent);
        late += u64::from(info.delivered.since(info.logical_arrival).0 > DEADLINE_MS * 1_000_000);
    }
    (latencies_ns, late)
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

/// What a process' processor has had of a CPU.
fn processor_time(process: i32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("/proc");
    let is_processor = |path: &PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "punctual-cpu")
    };
    let path = tasks.filter_map(|task| Some(task.ok()?.path())).find(is_processor).expect("a processor");
    let schedstat = std::fs::read_to_string(path.join("schedstat")).expect("/proc");
    let ns = schedstat.split_whitespace().next().and_then(|text| text.parse().ok()).expect("a number");
    Duration::from_nanos(ns)
}

/// Of one process, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub resident_kib: u64,
    pub locked_kib: u64,
}

impl Memory {
    pub fn of(pid: Pid) -> Self {
        // Not VmLck: that counts what an allocator has set apart, too, and never touched.
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", pid.as_raw_nonzero()));
        let rollup = rollup.expect("/proc");
        let kib = |name: &str| -> u64 {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.split_whitespace().next().and_then(|text| text.parse().ok()).expect("a number")
        };
        Self { resident_kib: kib("Rss:"), locked_kib: kib("Locked:") }
    }

    fn grown_since(&self, before: &Self) -> Self {
        Self {
            resident_kib: self.resident_kib.saturating_sub(before.resident_kib),
            locked_kib: self.locked_kib.saturating_sub(before.locked_kib),
        }
    }

    pub fn max(self, other: Self) -> Self {
        Self {
            resident_kib: self.resident_kib.max(other.resident_kib),
            locked_kib: self.locked_kib.max(other.locked_kib),
        }
    }
}

/// How long a daemon took to end.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub asked: Duration,
    killed: Duration,
}

impl Ends {
    /// Fails where a daemon took too long.
    pub fn hold(self, name: &str) {
        let Self { asked, killed } = self;
        eprintln!("{name}: ended in {asked:?}, killed in {killed:?}");
        assert!(asked < ENDED_MAX, "{name}: it ended after {asked:?}");
        assert!(killed < KILLED_MAX, "{name}: it was killed after {killed:?}");
    }
}

/// What became of the channel that was watched, and of the daemons.
#[derive(Clone, Debug, Default)]
pub struct Harm {
    pub sent: u64,
    pub lost: u64,
    pub late: u64,
    /// Of any processor, since its start.
    pub longest_turn: Duration,
    /// Of any daemon, from before the attack on.
    pub grown: Memory,
    /// Of a CPU, taken by the processor of any daemon that took most.
    pub processor_share: f64,
    /// Of each message that came, from sending to receiving.
    pub latencies_ns: Vec<u64>,
}
