//! What a program can do with its own rings and descriptors, and with those of others: it gets no data of
//! others, and harms only itself. Two daemons as processes, so that their resources can be counted.

mod common;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use common::eventually;
use common::hosts::{Hosts, Wanted};
use common::program::folder;
use common::raw::Raw;
use punctual_ipc::api::{Answer, Request};
use punctual_ipc::ring::RingShape;
use punctual_ipc::shm::Region;
use punctual_ipc::wake::Doorbell;
use punctual_proto::ids::ChannelId;

/// A ring of the client's own, as it was handed out.
struct Own {
    channel: ChannelId,
    shape: RingShape,
    descriptors: Vec<OwnedFd>,
    doorbell: Doorbell,
}

impl Own {
    fn new((answer, descriptors): (Result<Answer, punctual_ipc::api::ApiError>, Vec<OwnedFd>)) -> Self {
        match answer {
            Ok(Answer::Ring { channel, ring: shape }) => {
                let doorbell = Doorbell::new(descriptors[3].try_clone().expect("a descriptor"));
                Self { channel, shape, descriptors, doorbell }
            }
            other => panic!("{other:?}"),
        }
    }

    /// The client's own file of the ring, sealed as required.
    fn attach(&self, raw: &Raw) -> Region {
        let region = Region::take(&self.descriptors[1], self.shape.file_bytes()).expect("its own ring");
        assert_eq!(raw.ask(Request::Attached { channel: self.channel }).0, Ok(Answer::Done));
        region
    }
}

fn inode(file: impl AsFd) -> u64 {
    rustix::fs::fstat(file).expect("a file").st_ino
}

/// A flow of the client, whose ring has this many slots of 100 B.
fn flow(slots: u32) -> Request {
    let ring = RingShape::new(slots, 100).expect("a shape");
    Request::OpenBestEffort { to: "bulk@b".parse().expect("an address"), ring }
}

/// The client has a ring and a bell for each of its own channels; no request gives it another's.
#[test]
fn no_client_gets_the_ring_of_another() {
    let folder = folder("rings-handed");
    let mut hosts = Hosts::start(&folder, 0, &Wanted::default(), str::to_owned);
    let raw = Raw::greeted(&hosts.a.socket);
    let (first, second) = (Own::new(raw.ask(flow(4))), Own::new(raw.ask(flow(64))));
    assert_ne!(inode(&first.descriptors[0]), inode(&second.descriptors[0]), "a file each");
    let channel = hosts.channel.id();
    let thread = std::process::id();
    for request in [
        Request::Consent { channel, stall: None },
        Request::Refuse { channel, why: String::new() },
        Request::Close { channel },
        Request::Channel { channel },
        Request::CoSchedule { channel, thread },
        Request::Alternate { channel },
        Request::Status,
    ] {
        let (answer, descriptors) = raw.ask(request);
        assert!(descriptors.is_empty(), "{answer:?} brought descriptors");
    }
    // A file of its own ring in place of that of its second ring: the size is wrong, and no memory of others
    // lies behind its end.
    for file in &first.descriptors[..2] {
        assert!(Region::map(file, second.shape.file_bytes()).is_err(), "longer than it is");
        assert!(rustix::fs::ftruncate(file, second.shape.file_bytes() + 4_096).is_err(), "it cannot grow");
        assert!(rustix::fs::ftruncate(file, 0).is_err(), "nor be cut");
    }
    hosts.are_undisturbed();
    std::fs::remove_dir_all(folder).expect("removed");
}

/// Every position, length and offset of the client's own rings is set to extreme values: memory outside of a
/// ring is neither read nor written. Broken rings of this client end. No message of another client changes,
/// is late or comes twice.
#[test]
fn positions_that_point_out_of_a_ring_reach_nothing() {
    let folder = folder("rings-hostile");
    let mut hosts = Hosts::start(&folder, 2, &Wanted::default(), str::to_owned);
    let listener = hosts.connections[1].bind_best_effort("bulk", 100).expect("a receiver");
    let raw = Raw::greeted(&hosts.a.socket);
    let values = [1, 3, 5, 64, 1 << 12, 1 << 31, 1 << 32, 1 << 63, u64::MAX / 3, u64::MAX - 7, u64::MAX];
    for (round, value) in values.into_iter().enumerate() {
        let broken = hosts.a.connect().status().expect("status").api.broken_rings;
        let own = Own::new(raw.ask(flow(4)));
        let region = own.attach(&raw);
        for at in 0..own.shape.file_bytes() as usize / 8 {
            region.word(at * 8).store(value, Ordering::SeqCst);
            // The daemon reads the ring while it changes.
            if at % 8 == round % 8 {
                own.doorbell.ring();
            }
        }
        own.doorbell.ring();
        hosts.are_undisturbed();
        eventually("its ring is given up, or had nothing in it", || {
            let status = hosts.a.connect().status().expect("status");
            status.api.broken_rings > broken || value <= 4
        });
    }
    drop((listener, raw));
    let watcher = hosts.a.connect();
    eventually("only the bystander is left", || watcher.status().expect("status").node.channels == 1);
    let state = hosts.receiver.state().expect("state");
    assert_eq!((state.misses, state.policed, state.status.counters.demoted), (0, 0, 0), "{state:?}");
    std::fs::remove_dir_all(folder).expect("removed");
}
