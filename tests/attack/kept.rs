//! What programs keep of what they have given back: files of rings that they have closed, and answers with descriptors on
//! connections that were cut. Each is memory, or a place, that this daemon has asked the system for.

use std::os::fd::OwnedFd;

use punctual_ipc::api::{Answer, ApiError, Request, Resource};
use punctual_ipc::ring::RingShape;
use punctual_proto::node::api::UserId;

use crate::attacker::{Mechanism, NOBODY};
use crate::common::eventually;
use crate::common::raw::Raw;
use crate::common::users::as_user;
use crate::field::{Field, SOURCE_SOCKET, flow, threads};
use crate::judge::{Bounds, alone};
use crate::world::{SOURCE, Setup, World};

pub const MECHANISMS: &[Mechanism] = &[Mechanism {
    // Rings that are being mapped, or wait for the ringer.
    bounds: Bounds { grown_kib_max: 136 << 10, ..Bounds::DEFAULT },
    ..Mechanism::new("kept-files", "files of rings count until nobody holds them", keep_files)
}];

/// Of one ring.
const RING_MIB: u64 = 30;
/// Of each user, unless the configuration says otherwise.
const QUOTA_MIB: u64 = 128;
/// What other programs of the machine may take meanwhile.
const OTHERS_MIB: u64 = 256;
/// Many times the quota.
const RINGS: usize = 40;

fn shape() -> RingShape {
    RingShape::new(RING_MIB as u32 - 1, 1 << 20).expect("a shape")
}

/// Rings that are opened, closed at once, and whose files nobody lets go of.
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
fn files_of_closed_rings_count_until_nobody_holds_them() {
    let _alone = alone();
    let world = world("kept-files", "", "");
    let raw = intruder(&world);
    let before_mib = shared_mib();
    let (kept, refused) = keep(&raw);
    let grown_mib = shared_mib().saturating_sub(before_mib);
    let rings = kept.len() as u64 / 2;
    eprintln!("{rings} rings kept, {grown_mib} MiB more of files, then {refused:?}");
    assert!(matches!(refused, Some(ApiError::Quota { what: Resource::BufferBytes, .. })), "{refused:?}");
    assert!(rings * RING_MIB <= QUOTA_MIB && grown_mib <= QUOTA_MIB + OTHERS_MIB, "{rings} {grown_mib}");
    // Whoever keeps them: its connection makes no difference.
    drop(raw);
    eventually("its flows are gone", || world.watch[SOURCE].status().expect("status").api.clients <= 2);
    assert!(counted_bytes(&world) >= rings * RING_MIB << 20, "they count");
    let raw = intruder(&world);
    assert!(keep(&raw).0.is_empty(), "and leave no room");
    drop(kept);
    eventually("they are let go", || counted_bytes(&world) == 0);
    let (kept, _) = keep(&raw);
    assert_eq!(kept.len() as u64 / 2, rings, "all of it is there again");
    drop((kept, raw));
    world.end();
}

#[cfg(feature = "trials")]
pub const ROWS: &[crate::measured::Measured] = &[crate::measured::Measured {
    name: "kept-files",
    without: "kept-files",
    what: "MiB of files of rings beside a quota of 128",
    most: (QUOTA_MIB + OTHERS_MIB) as f64,
    measure: |without| {
        let world = world("kept-files", without, "request_share_per_user_max = \"100%\"");
        let raw = intruder(&world);
        let before_mib = shared_mib();
        let (kept, _) = keep(&raw);
        let grown_mib = shared_mib().saturating_sub(before_mib);
        drop((kept, raw));
        world.end();
        grown_mib as f64
    },
}];
