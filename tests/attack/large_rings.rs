//! Memory that a daemon takes and gives back for programs, and the lock of its address space: rings of tens of MiB are mapped,
//! filled and unmapped again and again, while channels are opened that need memory. A thread that asks the kernel for memory
//! meanwhile waits for that lock.

use std::time::Duration;

use punctual::{Consent, Contract, Nanos, Rate};
use punctual_ipc::api::{PACKET_BYTES_MAX, Request};
use punctual_ipc::ring::RingShape;
use punctual_ipc::shm::Region;
use punctual_proto::ids::{Address, Name};

use crate::attacker::Mechanism;
use crate::common::{PATIENCE, eventually};
use crate::field::{Field, ask, child, request, threads};
use crate::judge::{Bounds, alone};
use crate::world::{Memory, SINK, SOURCE, Setup, World};

/// One of them is what a user may have at once by default, but for what its channels take.
const SLOTS: u32 = 850;
const SLOT_BYTES: u32 = 62_000;
/// Channels that are open at once.
const CHANNELS: u64 = 150;
const OWN_HEAP: &str = "the processor asks the kernel for no memory; rings are mapped and unmapped in slices";
/// One ring, and what the channels take.
const BOUNDS: Bounds = Bounds { grown_kib_max: 80 << 10, ..Bounds::DEFAULT };
/// Channels open as fast as can be: the share of requests and the budget of signalling are not what is attacked.
const SETUP: Setup = Setup {
    daemon: "request_share_per_user_max = \"50%\"",
    signalling: "packets_per_second = 2000",
    ..Setup::DEFAULT
};

pub const MECHANISMS: &[Mechanism] = &[
    Mechanism { bounds: BOUNDS, setup: SETUP, ..Mechanism::new("large-rings", OWN_HEAP, close) },
    Mechanism { bounds: BOUNDS, setup: SETUP, ..Mechanism::new("large-rings-killed", OWN_HEAP, kill) },
];

fn shape() -> RingShape {
    RingShape::new(SLOTS, SLOT_BYTES).expect("a shape")
}

fn bind() -> Request {
    Request::BindBestEffort { port: Name::new("bulk").expect("a name"), ring: shape() }
}

/// A ring of the program's own, in its own address space.
fn map_own() {
    drop(Region::create(shape().file_bytes()).expect("a ring"));
}

/// Rings that are bound and closed, at the sink and at the source.
fn close(field: &Field) {
    let own = field.own;
    threads(2, move |at| {
        if own {
            return map_own();
        }
        let field = Field { own, page: None };
        let line = if at == 0 { field.greeted_at_sink() } else { field.greeted() };
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        while let Some(read) = ask(&line, &request(bind()), &mut buffer) {
            match crate::field::opened(&buffer[..read]) {
                Some(channel) => drop(ask(&line, &request(Request::Close { channel }), &mut buffer)),
                // Its user's ringer still has the one before.
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    });
    open_beside(field);
}

/// The same of programs that are killed as soon as they have a ring.
fn kill(field: &Field) {
    let own = field.own;
    let bind = request(bind());
    threads(1, move |_| {
        if own {
            return map_own();
        }
        let bind = bind.clone();
        let victim = child(move || {
            let field = Field { own, page: None };
            let (Some(line), mut buffer) = (field.try_greeted_at_sink(), [0; 4_096]) else { return };
            while let Some(read) = ask(&line, &bind, &mut buffer) {
                if crate::field::opened(&buffer[..read]).is_some() {
                    // SAFETY: of itself.
                    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
                }
            }
        });
        // SAFETY: a child of this process.
        unsafe {
            libc::waitpid(victim, std::ptr::null_mut(), 0);
        }
    });
    open_beside(field);
}

/// Opens channels from the source to the sink, which need memory at all hosts, and closes them again. Not in the control: a
/// heap that has grown has no need to.
fn open_beside(field: &Field) {
    if field.own {
        return;
    }
    let sink = crate::field::listen("beside");
    let line = field.greeted();
    std::thread::spawn(move || {
        let _sink = sink;
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        let to: Address = "beside@b".parse().expect("an address");
        loop {
            let mut open = Vec::new();
            for number in 0..CHANNELS {
                let wanted = Request::Open { to: to.clone(), contract: roomy(number), token: None };
                let Some(read) = ask(&line, &request(wanted), &mut buffer) else { return };
                open.extend(crate::field::opened(&buffer[..read]));
            }
            for channel in open {
                ask(&line, &request(Request::Close { channel }), &mut buffer);
            }
        }
    });
}

/// A contract of small messages; one in ten of great bursts.
fn roomy(number: u64) -> Contract {
    let rate = Rate::per_second(10 + number % 7).expect("a rate");
    let burst = if number % 10 == 9 { 4_000 } else { 4 };
    Contract::new(8, rate, burst, Nanos::from_millis(900)).expect("a contract")
}

#[test]
fn opens_beside_large_rings_make_no_processor_allocate_memory() {
    const SPAN: Duration = Duration::from_secs(1);
    let _alone = alone();
    let mechanism = Mechanism::find("large-rings");
    let mut world = World::start("no-memory", mechanism.setup);
    let (memory, faults) = (world.memory(), [SOURCE, SINK].map(|host| world.faults_at(host)));
    let mut attacker = crate::attacker::begin(&world, mechanism, false);
    let harm = world.observe(SPAN, &memory);
    let channels = world.watch[SOURCE].status().expect("status").node.channels;
    assert!(channels > 10, "{channels} are open");
    // Locked memory from the kernel costs a fault for each page.
    assert_eq!([SOURCE, SINK].map(|host| world.faults_at(host)), faults, "page faults of processors");
    assert_eq!((harm.lost, world.heap_waits()), (0, 0));
    assert!(attacker.is_running(), "it goes on");
    drop(attacker);
    world.end();
}

/// Bytes that users have in rings and rooms, at the source.
fn counted(world: &World) -> u64 {
    let status = world.watch[SOURCE].status().expect("status");
    status.users.iter().map(|user| user.buffer_bytes).sum()
}

#[test]
fn room_for_great_bursts_counts_in_the_quota_and_returns_to_the_kernel() {
    const BURST: u32 = 65_536;
    /// Of a message's place in a queue, at least.
    const PLACE_BYTES: u64 = 48;
    const OPEN: u64 = 12;
    /// What is kept ready, and what rings and channels of others take meanwhile.
    const KEPT_KIB_MAX: u64 = 14 << 10;
    let _alone = alone();
    let daemon = "buffers_per_user_max = \"1GiB\"";
    let world = World::start("bursts", Setup { daemon, ..Setup::DEFAULT });
    let (source, sink) = (&world.watch[SOURCE], &world.watch[SINK]);
    let listener = sink.listen("bursts", |_| Consent::Accept).expect("a listener");
    let idle = counted(&world);
    let memory = || Memory::of(world.daemons[SOURCE].pid()).resident_kib;
    let before = memory();
    let contract = Contract::new(8, Rate::per_second(10).expect("a rate"), BURST, Nanos::from_millis(900));
    let contract = contract.expect("a contract");
    let channels: Vec<_> = (0..OPEN)
        .map(|_| {
            let channel = source.open("bursts@b", contract).expect("a channel");
            (channel, listener.accept_timeout(PATIENCE).expect("no error").expect("a channel"))
        })
        .collect();
    let rings = RingShape::new(BURST, 8).expect("a shape").outbox_bytes();
    let rooms = u64::from(BURST) * PLACE_BYTES;
    assert!(counted(&world) >= idle + OPEN * (rings + rooms), "{} for {OPEN} channels", counted(&world));
    let full = memory();
    assert!(full >= before + OPEN * (rings + rooms) / 1_024, "{before} KiB, then {full}");
    drop((channels, listener));
    eventually("quotas are as before", || counted(&world) == idle);
    eventually("so is memory", || memory() <= before + KEPT_KIB_MAX);
    world.end();
}
