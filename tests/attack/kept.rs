//! What programs keep of what they have given back: files of rings that they have closed, and answers with descriptors on
//! connections that were cut. Each is memory, or a place, that this daemon has asked the system for.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use punctual_ipc::api::{Answer, ApiError, Call, DESCRIPTORS_MAX, FromDaemon, Request, Resource};
use punctual_ipc::ring::RingShape;
use punctual_ipc::socket::{Packet, send};
use punctual_ipc::wake::timespec;
use punctual_proto::api::UserId;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair};
use rustix::process::{Rlimit, prlimit};

use crate::attacker::{Mechanism, NOBODY};
use crate::common::census::descriptors;
use crate::common::raw::Raw;
use crate::common::users::as_user;
use crate::common::{PATIENCE, eventually};
use crate::field::{Field, SOURCE_SOCKET, flow, hello, threads};
use crate::judge::{Bounds, alone};
use crate::world::{BYSTANDER, SOURCE, Setup, World};

pub const MECHANISMS: &[Mechanism] = &[Mechanism {
    // Rings that are being mapped, or wait for the ringer.
    bounds: Bounds { grown_kib_max: 136 << 10, ..Bounds::DEFAULT },
    ..Mechanism::new("kept-files", "files of rings count until nobody holds them", keep_files)
}];

/// Of one ring.
const RING_MIB: u64 = 29;
/// Of each user.
const QUOTA_MIB: u64 = 128;
const QUOTA: &str = "request_share_per_user_max = \"100%\"\nbuffers_per_user_max = \"128MiB\"";
/// What other programs of the machine may take meanwhile.
const OTHERS_MIB: u64 = 256;
/// Many times the quota.
const RINGS: usize = 40;

fn shape() -> RingShape {
    RingShape::new(RING_MIB as u32, 1 << 20).expect("a shape")
}

/// Rings that are opened, closed at once, and whose files are never released.
fn keep_files(field: &Field) {
    let own = field.own;
    threads(1, move |_| {
        if own {
            drop(Field { own, page: None }.files());
            return;
        }
        let raw = Raw::greeted(SOURCE_SOCKET.as_ref());
        loop {
            // Waits for ever when the quota is used up.
            let (channel, _, files) = flow(&raw, shape());
            raw.ask(Request::Close { channel }).0.expect("closed");
            std::mem::forget(files);
        }
    });
}

/// Memory of files without a name, of the whole system.
fn shared_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("/proc");
    let line = text.lines().find_map(|line| line.strip_prefix("Shmem:")).expect("a line");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("a number") / 1_024
}

/// Opens rings and closes them, one after the other, and keeps their files; why it got no more.
fn keep(raw: &Raw) -> (Vec<OwnedFd>, Option<ApiError>) {
    let mut kept = Vec::new();
    for _ in 0..RINGS {
        let to = "nobody@b".parse().expect("an address");
        match raw.ask(Request::OpenBestEffort { to, ring: shape() }) {
            (Ok(Answer::Ring { channel, .. }), mut files) => {
                raw.ask(Request::Close { channel }).0.expect("closed");
                files.truncate(2);
                kept.extend(files);
            }
            (Err(error), _) => return (kept, Some(error)),
            (answer, _) => panic!("{answer:?}"),
        }
    }
    (kept, None)
}

fn world(name: &str, without: &'static str, daemon: &'static str) -> World {
    World::start(name, Setup { without, daemon, ..Setup::DEFAULT })
}

fn intruder(world: &World) -> Raw {
    let path = world.daemons[SOURCE].socket.clone();
    as_user(NOBODY, || Raw::greeted(&path)).expect("it is root's test")
}

fn counted_bytes(world: &World) -> u64 {
    let users = world.watch[SOURCE].status().expect("status").users;
    users.iter().find(|held| held.user == UserId(NOBODY)).map_or(0, |held| held.buffer_bytes)
}

/// Found with 50 rings of 30 MiB in half a second, of which the user's quota knew nothing.
#[test]
fn files_of_closed_rings_count_until_their_last_holder_is_gone() {
    let _alone = alone();
    let world = world("kept-files", "", QUOTA);
    let raw = intruder(&world);
    let before_mib = shared_mib();
    let (kept, refused) = keep(&raw);
    let grown_mib = shared_mib().saturating_sub(before_mib);
    let rings = kept.len() as u64 / 2;
    eprintln!("{rings} rings kept, {grown_mib} MiB more of files, then {refused:?}");
    assert!(matches!(refused, Some(ApiError::Quota { what: Resource::BufferBytes, .. })), "{refused:?}");
    assert!(rings * RING_MIB <= QUOTA_MIB && grown_mib <= QUOTA_MIB + OTHERS_MIB, "{rings} {grown_mib}");
    // Its connection makes no difference to files that are kept.
    drop(raw);
    eventually("its flows are gone", || world.watch[SOURCE].status().expect("status").api.clients <= 2);
    assert!(counted_bytes(&world) >= (rings * RING_MIB) << 20, "they count");
    let raw = intruder(&world);
    assert!(keep(&raw).0.is_empty(), "and leave no room");
    drop(kept);
    eventually("they are let go", || counted_bytes(&world) == 0);
    let (kept, _) = keep(&raw);
    assert_eq!(kept.len() as u64 / 2, rings, "all of it is there again");
    drop((kept, raw));
    world.end();
}

/// Rings are small, and requests take no share: what is attacked is another bound.
const UNSHARED: &str =
    "request_share_per_user_max = \"100%\"\nchannels_per_user_max = 1000\ndescriptors_per_user_max = 1000";
/// Descriptors that the daemon may have beyond those that it has: more than one user may.
const ROOM: u64 = 1_500;
/// Connections that are cut, and flows of each whose rings are never taken out of the socket: twice as many descriptors as the
/// room, if they did not count.
const CUT: usize = 12;
const FLOWS: usize = 60;

/// As many descriptors as the daemon at the source has now, and so many more.
fn limit_descriptors(world: &World, more: u64) {
    let pid = world.daemons[SOURCE].pid();
    let most = Some(descriptors(pid) as u64 + more);
    prlimit(Some(pid), rustix::process::Resource::Nofile, Rlimit { current: most, maximum: most })
        .expect("a limit");
}

fn small_flow() -> Packet {
    let ring = RingShape::new(1, 64).expect("a shape");
    let request = Request::OpenBestEffort { to: "nobody@b".parse().expect("an address"), ring };
    Packet::new(&Call { id: 7, request }, Vec::new()).expect("short")
}

/// A connection that has flows opened, reads nothing, and is cut for nonsense; `None` if its user's quota has no room for
/// another connection.
fn cut_unread(world: &World) -> Option<Raw> {
    let path = world.daemons[SOURCE].socket.clone();
    let raw = as_user(NOBODY, || Raw::connect(&path)).expect("it is root's test");
    raw.send(&hello());
    match raw.receive() {
        Some((FromDaemon::Answer { result: Ok(_), .. }, _)) => {}
        Some((FromDaemon::Answer { result: Err(ApiError::Quota { .. }), .. }, _)) => return None,
        other => panic!("{other:?}"),
    }
    for _ in 0..FLOWS {
        raw.send(&small_flow().bytes);
    }
    raw.send(b"}");
    let until = Instant::now() + PATIENCE;
    let is_cut = || {
        let mut set = [PollFd::new(&raw, PollFlags::RDHUP)];
        poll(&mut set, Some(&timespec(Duration::from_millis(10)))).expect("a look") > 0
    };
    while !is_cut() {
        assert!(Instant::now() < until, "it is not cut");
    }
    Some(raw)
}

/// Whether a user gets a flow with its descriptors.
fn gets_a_flow(world: &World, user: u32) -> bool {
    let path = world.daemons[SOURCE].socket.clone();
    let raw = as_user(user, || Raw::greeted(&path)).expect("it is root's test");
    raw.send(&small_flow().bytes);
    let answer = raw.receive();
    eprintln!("user {user}: {:?}", answer.as_ref().map(|(answer, descriptors)| (answer, descriptors.len())));
    matches!(answer, Some((FromDaemon::Answer { result: Ok(Answer::Ring { .. }), .. }, ring)) if ring.len() == 4)
}

fn counted_descriptors(world: &World) -> u64 {
    let users = world.watch[SOURCE].status().expect("status").users;
    users.iter().find(|held| held.user == UserId(NOBODY)).map_or(0, |held| held.descriptors)
}

/// Found with 86 connections that were cut: the daemon's user had as many descriptors on their way as it may have, and a program that
/// was to get some, root too, was cut.
#[test]
fn answers_in_sockets_that_are_kept_take_no_descriptors_from_others() {
    let _alone = alone();
    let world = world("aloft", "", UNSHARED);
    limit_descriptors(&world, ROOM);
    let kept: Vec<Raw> = (0..CUT).filter_map(|_| cut_unread(&world)).collect();
    assert!([BYSTANDER, 0].iter().all(|user| gets_a_flow(&world, *user)), "descriptors of others");
    let counted = counted_descriptors(&world);
    // What was sent is still there, in sockets that only the program holds.
    let aloft: usize = kept
        .iter()
        .map(|raw| std::iter::from_fn(|| raw.receive()).map(|(_, ring)| ring.len()).sum::<usize>())
        .sum();
    eprintln!("{aloft} descriptors were on their way, {counted} counted");
    assert!(aloft >= 2 * FLOWS && aloft as u64 <= counted && counted <= 1_000, "{aloft} {counted}");
    eventually("what is read counts no more", || counted_descriptors(&world) == 0);
    let kept: Vec<Raw> = kept.into_iter().chain(cut_unread(&world)).collect();
    assert!(counted_descriptors(&world) > FLOWS as u64, "what is unread counts");
    drop(kept);
    eventually("what is closed does not", || counted_descriptors(&world) == 0);
    world.end();
}

/// Root's programs share one count of descriptors on their way, whichever daemon is theirs.
#[test]
fn a_program_that_cannot_get_descriptors_gets_an_error_and_continues() {
    const MORE: usize = 200;
    let _alone = alone();
    let world = world("too-many-aloft", "", "");
    limit_descriptors(&world, MORE as u64);
    let raw = intruder(&world);
    let most = descriptors(world.daemons[SOURCE].pid()) + MORE;
    let kind = SocketType::SEQPACKET;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a pair");
    for _ in 0..=most / DESCRIPTORS_MAX {
        let descriptors = (0..DESCRIPTORS_MAX).map(|_| theirs_copy(&raw)).collect();
        send(&ours, &Packet { bytes: vec![1], descriptors }, SendFlags::DONTWAIT).expect("root may");
    }
    let flow =
        || raw.ask(Request::OpenBestEffort { to: "nobody@b".parse().expect("an address"), ring: shape() });
    let (refused, ring) = flow();
    assert!(matches!(&refused, Err(ApiError::Ring(why)) if why.contains("LimitNOFILE")), "{refused:?}");
    assert!(ring.is_empty());
    eventually("nothing is left of it", || counted_bytes(&world) == 0);
    drop((ours, theirs));
    let (answer, ring) = flow();
    assert!(answer.is_ok() && ring.len() == 4, "the same connection: {answer:?}");
    drop((raw, ring));
    world.end();
}

fn theirs_copy(of: &Raw) -> OwnedFd {
    of.as_fd().try_clone_to_owned().expect("a copy")
}

#[cfg(feature = "trials")]
pub const ROWS: &[crate::measured::Measured] = &[
    crate::measured::Measured {
        name: "kept-files",
        without: "kept-files",
        what: "MiB of files of rings beside a quota of 128",
        most: (QUOTA_MIB + OTHERS_MIB) as f64,
        measure: |without| {
            let world = world("kept-files", without, QUOTA);
            let raw = intruder(&world);
            let before_mib = shared_mib();
            let (kept, _) = keep(&raw);
            let grown_mib = shared_mib().saturating_sub(before_mib);
            drop((kept, raw));
            world.end();
            grown_mib as f64
        },
    },
    crate::measured::Measured {
        name: "kept-answers",
        without: "descriptors-aloft",
        what: "flows of another user refused",
        most: 0.0,
        measure: |without| {
            let world = world("aloft", without, UNSHARED);
            limit_descriptors(&world, ROOM);
            let kept: Vec<Raw> = (0..CUT).filter_map(|_| cut_unread(&world)).collect();
            let granted = gets_a_flow(&world, BYSTANDER);
            drop(kept);
            world.end();
            crate::measured::yes(!granted)
        },
    },
];
