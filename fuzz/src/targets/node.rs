//! Three hosts in a line, driven by a sequence of operations: applications that open, send, refuse, close and
//! vanish; hosts that restart; packets that are lost, repeated, changed and made up, with and without the
//! domain's key.
//!
//! The simulator's ledger checks each delivery of a channel that no fault and no insider touched. After the
//! last operation all channels are closed, and no state may be left.

mod operation;
mod world;

use std::collections::BTreeSet;

use punctual_proto::Nanos;
use punctual_proto::api::Port;

use crate::fault::{DIRECTIONS, Direction};
use crate::input::Input;
use crate::net::Packet;
pub use operation::{Change, Operation, Wish};
pub use world::World;

/// A sequence of operations.
pub fn run(data: &[u8]) {
    let mut world = World::new();
    let mut input = Input::new(data);
    while let Some(operation) = Operation::read(&mut input) {
        world.apply(operation);
    }
    world.finish();
}

/// All packets of a channel from `from` to `to`, from its opening to its end.
///
/// # Panics
/// If it is not opened.
pub fn honest_packets(from: usize, to: usize) -> Vec<Packet> {
    let mut world = World::new();
    world.net.journal = Some(Vec::new());
    let wish = Wish { from: from as u8, to: to as u8, ..Wish::default() };
    for operation in life(wish) {
        world.apply(operation);
    }
    world.net.journal.take().expect("a journal")
}

/// A channel is opened, used and closed.
fn life(wish: Wish) -> Vec<Operation> {
    let mut operations = vec![Operation::Open(wish), Operation::Run(Nanos::from_millis(50))];
    for _ in 0..3 {
        operations.push(Operation::Send { channel: 0, messages: 2, bytes: u16::MAX });
        operations.push(Operation::Run(Nanos::from_millis(20)));
    }
    operations
        .extend([Operation::Close { channel: 0, sink: false }, Operation::Run(Nanos::from_millis(700))]);
    operations
}

/// A channel is opened, used and closed, and another one is asked for, while one direction of a link loses or
/// delays signalling and data; then all is well again.
fn failing(way: u8, kind: u8) -> Vec<Operation> {
    let mut operations = life(Wish::default());
    operations.insert(2, Operation::Lose(0x80 | (way + 1) << 4 | kind));
    operations.insert(5, Operation::Open(Wish { from: 2, to: 0, ..Wish::default() }));
    operations.push(Operation::Lose(0));
    operations.extend(life(Wish { from: 1, to: 0, ..Wish::default() }));
    operations
}

/// Which directions of links have lost or delayed packets in a sequence of operations: of each fault in turn.
pub fn directions(data: &[u8]) -> Vec<BTreeSet<Direction>> {
    let (mut world, mut input) = (World::new(), Input::new(data));
    let mut found = Vec::new();
    let mut take = |world: &mut World| {
        let worse = std::mem::take(&mut world.net.worse);
        found.extend(Some(worse.into_keys().collect()).filter(|worse: &BTreeSet<_>| !worse.is_empty()));
    };
    while let Some(operation) = Operation::read(&mut input) {
        if matches!(operation, Operation::Lose(_)) {
            take(&mut world);
        }
        world.apply(operation);
    }
    take(&mut world);
    world.finish();
    found
}

/// Complete channels, alone and with all other kinds of traffic in between.
pub fn seeds() -> Vec<Vec<u8>> {
    let second = Operation::Run(Nanos::from_millis(1_000));
    let wish = |from, to, options| Wish { from, to, options, ..Wish::default() };
    let disturb = |operation: Operation| {
        let mut operations = life(wish(0, 2, 0));
        operations.insert(4, operation);
        operations.insert(5, Operation::Run(Nanos::from_millis(3)));
        operations
    };
    let mut scripts: Vec<Vec<Operation>> =
        vec![life(wish(0, 2, 0)), life(wish(2, 1, 0)), life(wish(1, 0, 0x40))];
    scripts.extend((0..16).map(|options| life(wish(0, 2, options))));
    let port = |data| if data { Port::Data } else { Port::Signalling };
    for data in [true, false] {
        scripts.push(disturb(Operation::Replay { back: 0, port: port(data) }));
        for signed in [false, true] {
            let change = Change { at: 30, by: 0x41 };
            scripts.push(disturb(Operation::Forge { back: 1, port: port(data), change, signed }));
        }
        let bytes = vec![1; 80];
        scripts.push(disturb(Operation::MakeUp { node: 1, link: 0, port: port(data), bytes }));
    }
    for operation in [
        Operation::Lose(3),
        Operation::Restart(1),
        Operation::Listen { node: 2, on: false },
        Operation::Answer { node: 2, refuse: true, silent: false },
        Operation::BestEffort { from: 0, to: 2, messages: 8 },
        Operation::Ask { from: 0, to: 2 },
        Operation::Stray { node: 1, what: 3, channel: 77 },
        Operation::Close { channel: 0, sink: true },
        second.clone(),
    ] {
        scripts.push(disturb(operation));
    }
    scripts.extend((0..DIRECTIONS.len() as u8).flat_map(|way| [3, 14, 15].map(|kind| failing(way, kind))));
    let many = (0..6).map(|number| Operation::Open(wish(number % 3, (number + 1) % 3, number)));
    let many = many.chain([second.clone()]);
    let used = (0..12).flat_map(|number| {
        [
            Operation::Send { channel: number % 6, messages: 1 + number % 3, bytes: 300 },
            Operation::Run(Nanos::from_millis(7)),
        ]
    });
    scripts.push(many.chain(used).chain([second]).collect());
    scripts.iter().map(|script| script.iter().flat_map(Operation::write).collect()).collect()
}
