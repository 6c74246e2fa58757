//! Messages that pass two processors cause no allocation.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use punctual_engine::{Engine, EngineConfig, EngineHandle};
use punctual_link::{Link, MemoryLink, MemoryOptions};
use punctual_os::wait::Doorbell;
use punctual_proto::api::{Event, OpenRequest, UserId};
use punctual_proto::ids::Address;
use punctual_proto::memory::{Inbox, MessageInfo, MessageRead, MessageWrite, Outbox};
use punctual_proto::{Contract, Instant, Nanos, Rate};

use support::{expect, name, node};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MESSAGE_BYTES: u32 = 4_000;
const WARM_UP: u32 = 64;
const MEASURED: u32 = 400;

/// A source with the number of messages that are left; all messages are alike.
struct Source(Arc<AtomicU32>);
struct Alike;

impl MessageRead for Alike {
    fn len(&self) -> u32 {
        MESSAGE_BYTES
    }
    fn copy_to(&self, _: u32, out: &mut [u8]) {
        out.fill(7);
    }
}

impl Outbox for Source {
    type Message = Alike;
    fn take(&mut self, now: Instant) -> Option<(Alike, Instant)> {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).ok()?;
        Some((Alike, now))
    }
    fn is_ready(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

/// A sink that counts.
struct Sink(Arc<AtomicU32>);
struct Scrap;

impl MessageWrite for Scrap {
    fn copy_from(&mut self, _: u32, bytes: &[u8]) {
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}

impl Inbox for Sink {
    type Slot = Scrap;
    fn reserve(&mut self) -> Option<Scrap> {
        Some(Scrap)
    }
    fn publish(&mut self, _: Scrap, info: MessageInfo) {
        assert_eq!(info.len, MESSAGE_BYTES);
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

type Handle = EngineHandle<Source, Sink>;

fn start(id: u32, link: MemoryLink) -> Handle {
    let links: Vec<Box<dyn Link>> = vec![Box::new(link)];
    Engine::start(EngineConfig::new(node(id), links, 1)).expect("it starts")
}

/// Allocations of the processor's thread until now, those of this question not among them.
fn allocations(handle: &Handle) -> u64 {
    handle.call(|_, _| ALLOCATIONS.with(Cell::get)).expect("it runs")
}

#[test]
fn messages_allocate_nothing_on_their_way() {
    let (a, b) = MemoryLink::pair(MemoryOptions::default()).expect("a pair");
    let (a, b) = (start(1, a), start(2, b));
    let (waiting, arrived) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let doorbell = open(&a, &b, &waiting, &arrived);
    let send = |count: u32| {
        let until = std::time::Instant::now() + support::PATIENCE;
        let wanted = arrived.load(Ordering::SeqCst) + count;
        waiting.store(count, Ordering::SeqCst);
        while arrived.load(Ordering::SeqCst) < wanted {
            doorbell.ring();
            std::thread::yield_now();
            assert!(std::time::Instant::now() < until, "the messages never came");
        }
    };
    send(WARM_UP);
    let before = (allocations(&a), allocations(&b));
    send(MEASURED);
    let after = (allocations(&a), allocations(&b));
    // HELLOs and refreshes are sent beside the messages and may allocate: a few each second, and none per
    // message.
    let (source, sink) = (after.0 - before.0, after.1 - before.1);
    assert!(source < u64::from(MEASURED) / 4 && sink < u64::from(MEASURED) / 4, "{source} and {sink}");
}

fn open(a: &Handle, b: &Handle, waiting: &Arc<AtomicU32>, arrived: &Arc<AtomicU32>) -> Doorbell {
    b.call(|node, _| node.listen(name("sink"))).expect("b runs").expect("a free name");
    let rate = Rate::per_second(500).expect("a rate");
    let contract = Contract::new(MESSAGE_BYTES, rate, 4, Nanos::from_millis(50)).expect("a contract");
    let to = Address { port: name("sink"), host: name("b") };
    let request = OpenRequest { to, contract, user: UserId(1), probe: false, token: None };
    let source = a.call(move |node, now| node.open(request, now)).expect("a runs").expect("can be tried");
    let sink = expect(&b.events(), |event| match event {
        Event::Incoming(incoming) => Some(incoming.channel),
        _ => None,
    });
    let inbox = Sink(Arc::clone(arrived));
    b.call(move |node, now| node.consent(sink, inbox, now)).expect("b runs").expect("it waits for consent");
    expect(&a.events(), |event| matches!(event, Event::Opened { .. }).then_some(()));
    let outbox = Source(Arc::clone(waiting));
    a.call(move |node, now| node.attach_outbox(source, outbox, now)).expect("a runs").expect("it is open");
    let doorbell = Doorbell::new().expect("an eventfd");
    let copy = Arc::new(doorbell.as_fd().try_clone_to_owned().expect("a descriptor"));
    a.watch(source, copy, None).expect("watched");
    doorbell
}
