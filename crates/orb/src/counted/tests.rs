//! Locks and look-ups of a call in steady state, by a client that leads its calls and a servant that is active.

use std::path::Path;

use crossbeam_utils::atomic::AtomicCell;
use punctual_giop::{Decoder, Encode, Encoder, Error};

use super::COUNTS;
use crate::link::Link;
use crate::operations::Operations;
use crate::tick::tick;
use crate::{
    Endpoint, Object, Options, Orb, Outcome, Reply, Servant, SystemException, argument, numbers, result,
};

/// Its operations answer what the thread that serves them has counted.
struct Counts;

/// Arguments of `octet`: it answers at once, or after the kernel's next tick. Then the ORB looks whether the request was cancelled.
const SHORT: u8 = 7;
const LONG: u8 = 8;

static OPERATIONS: Operations = Operations::new(0, &[1, 2], &["sequence", "octet"]);

impl Servant for Counts {
    fn interfaces(&self) -> &'static [&'static str] {
        &["IDL:punctual/Counts:1.0"]
    }

    fn operations(&self) -> &'static Operations {
        &OPERATIONS
    }

    fn dispatch(
        &self,
        operation: usize,
        arguments: &mut Decoder<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SystemException> {
        match operation {
            0 => assert_eq!(numbers::<i32>(arguments)?.len(), 1_000),
            _ => match argument::<u8>(arguments)? {
                SHORT => {}
                long => {
                    assert_eq!(long, LONG);
                    let begun = tick();
                    while tick() == begun {
                        std::hint::spin_loop();
                    }
                }
            },
        }
        reply.result(|to| COUNTS.get().encode(to))
    }
}

type Pair = [[u64; 4]; 2];

/// Calls so often: what client and server have counted meanwhile.
fn counted(
    object: &Object,
    operation: &str,
    write: impl Fn(&mut Encoder) -> Result<(), Error>,
    calls: u64,
) -> Pair {
    let read = |outcome: Outcome<'_>| result::<[u64; 4]>(&mut outcome.result()?);
    let call = || object.call::<_, SystemException>(operation, &write, read).expect("it answers");
    let (server, client) = (call(), COUNTS.get());
    let last = (0..calls).fold(server, |_, _| call());
    let since = |now: [u64; 4], then: [u64; 4]| std::array::from_fn(|number| now[number] - then[number]);
    [since(COUNTS.get(), client), since(last, server)]
}

#[test]
fn a_call_takes_no_lock_and_looks_up_adapter_object_and_operation_once() {
    let orb = Orb::new(Options::listening(Endpoint::tcp("127.0.0.1", 0))).expect("it listens");
    let mut poa = orb.root_poa();
    for depth in ["a", "b", "c"] {
        poa = poa.create_poa(depth, poa.policies(), Some(poa.manager())).expect("a new one");
    }
    let reference = poa.serve(Counts).expect("it is active");
    poa.manager().activate().expect("it is not inactive");
    let client = Orb::new(Options::default()).expect("a client");
    let object = client.object(&reference).expect("it is there");
    let longs = vec![5i32; 1_000];
    let once = [[0, 0, 0, 0], [0, 100, 100, 100]];
    assert_eq!(counted(&object, "octet", |to| SHORT.encode(to), 100), once);
    let long = [[0, 0, 0, 0], [0, 20, 20, 20]];
    assert_eq!(counted(&object, "octet", |to| LONG.encode(to), 20), long);
    assert_eq!(counted(&object, "sequence", |to| longs.encode(to), 100), once);
    // The counter counts: a call that waits for another thread takes locks.
    let before = COUNTS.get();
    let pending = object.call_async::<_, SystemException>(
        "octet",
        |to| SHORT.encode(to),
        |outcome| result::<[u64; 4]>(&mut outcome.result()?),
    );
    pending.wait().expect("it answers");
    assert!(COUNTS.get()[0] > before[0]);
}

/// Slots of idle connections are exchanged by one instruction.
#[test]
fn idle_connections_are_behind_no_lock() {
    assert!(AtomicCell::<Option<Box<Link>>>::is_lock_free());
}

/// Else they would not be counted.
#[test]
fn all_locks_are_those_that_count() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("counted") {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).expect("text");
                let uses = text.lines().filter(|line| line.contains("std::sync"));
                let other = |line: &&str| {
                    line.contains("Mutex,")
                        || line.contains("Mutex}")
                        || line.contains("Mutex;")
                        || line.contains("RwLock")
                };
                let found: Vec<&str> = uses.filter(other).collect();
                assert!(found.is_empty(), "{}: {found:?}: use crate::counted", path.display());
                files += 1;
            }
        }
    }
    assert!(files > 40);
}
