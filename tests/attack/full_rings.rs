//! Rings of channels of the greatest bursts, all of whose places are filled at one moment, with one ring of each doorbell: how
//! much of that one turn of the processor takes is not the program's to say. Nor is how much is left when the program dies.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use punctual::{Contract, Nanos, Policing, Rate};
use punctual_ipc::api::{Answer, Request};
use punctual_ipc::ring::RingShape;
use punctual_ipc::shm::Offer;
use punctual_ipc::wake::Doorbell;

use crate::attacker::Mechanism;
use crate::common::raw::Raw;
use crate::field::{Field, SOURCE_SOCKET, listen, map_and_seal, repeat, ring};
use crate::judge::Bounds;
use crate::world::Setup;

const BURST: u32 = 65_536;
const BYTES: u32 = 8;
/// As many as a user's quota of bytes has room for.
const CHANNELS: usize = 4;
/// Between two times at which all that was taken is put in again.
const PERIOD: Duration = Duration::from_millis(2);
/// Where the ring's places begin in the program's file, and how long each is: its head and eight bytes.
const PLACES_AT: usize = 256;
const PLACE_BYTES: usize = 128;
const SLICED: &str =
    "a call takes 32 messages of a ring, and all of a turn 128; what is left is given back in slices";
/// The rings, and what the channels take.
const BOUNDS: Bounds = Bounds { grown_kib_max: 96 << 10, ..Bounds::DEFAULT };
/// Channels open as fast as can be: the share of requests and the budget of signalling are not what is attacked.
const SETUP: Setup = Setup {
    daemon: "request_share_per_user_max = \"50%\"",
    signalling: "packets_per_second = 2000",
    ..Setup::DEFAULT
};

pub const MECHANISMS: &[Mechanism] =
    &[Mechanism { bounds: BOUNDS, setup: SETUP, ..Mechanism::new("full-rings", SLICED, fill_again) }];

/// What breaks the contract is dropped at once, so that its place can be filled again.
fn greatest() -> Contract {
    let rate = Rate::per_second(10).expect("a rate");
    let contract = Contract::new(BYTES, rate, BURST, Nanos::from_millis(900)).expect("a contract");
    Contract { policing: Policing::Drop, ..contract }
}

/// The program's end of a ring: of a channel, or of none.
struct Ring {
    /// Where its own file is mapped, and the other side's: how much of it is free.
    own: usize,
    theirs: usize,
    slots: u64,
    doorbell: OwnedFd,
}

impl Ring {
    /// Of a channel at the source.
    fn of_channel(raw: &Raw) -> Self {
        let to = "full@b".parse().expect("an address");
        let (answer, mut files) = raw.ask(Request::Open { to, contract: greatest(), token: None });
        let Ok(Answer::Opened { channel, ring: shape, .. }) = answer else { panic!("{answer:?}") };
        let doorbell = files.remove(3);
        let own = map_and_seal(&files[1], shape.file_bytes() as usize);
        raw.ask(Request::Attached { channel }).0.expect("attached");
        Self { own, theirs: map_to_read(&files[0]), slots: shape.slots.into(), doorbell }
    }

    /// Of the program's own, in the control.
    fn own() -> Self {
        let shape = RingShape::new(BURST, BYTES).expect("a shape");
        let (file, offer) = Offer::create(shape.file_bytes()).expect("a file");
        let (ours, doorbell) = Doorbell::pair().expect("sockets");
        std::mem::forget((offer, ours));
        let own = map_and_seal(&file, shape.file_bytes() as usize);
        Self { own, theirs: own, slots: shape.slots.into(), doorbell }
    }

    /// Every place holds a message from now on.
    fn lay(&self) {
        for place in 0..self.slots as usize {
            let at = (self.own + PLACES_AT + place * PLACE_BYTES) as *mut u32;
            // SAFETY: within the mapping, which stays, and which no other thread writes.
            unsafe { at.write_volatile(BYTES) };
        }
    }

    /// Puts in as many as there is room for, at once, and rings.
    fn fill(&self) {
        // SAFETY: the heads of two mappings that stay.
        let (freed, produced) =
            unsafe { (&*(self.theirs as *const AtomicU64), &*(self.own as *const AtomicU64)) };
        produced.store(freed.load(Ordering::SeqCst) + self.slots, Ordering::SeqCst);
        ring(&self.doorbell);
    }
}

/// The head of what the daemon writes.
fn map_to_read(file: &OwnedFd) -> usize {
    let (protection, flags) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
    // SAFETY: a fresh mapping.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4_096, protection, flags, file, 0) };
    base.expect("mapped") as usize
}

fn fill_again(field: &Field) {
    let rings: Vec<_> = if field.own {
        (0..CHANNELS).map(|_| Ring::own()).collect()
    } else {
        let sink = listen("full");
        let raw = Raw::greeted(std::path::Path::new(SOURCE_SOCKET));
        let rings = (0..CHANNELS).map(|_| Ring::of_channel(&raw)).collect();
        std::mem::forget((sink, raw));
        rings
    };
    rings.iter().for_each(Ring::lay);
    repeat(PERIOD, move || rings.iter().for_each(Ring::fill));
}
