//! A processor's thread that is confined to its system calls, and one that is not.

mod support;

use std::io::ErrorKind;
use std::net::UdpSocket;

use punctual_engine::{Engine, EngineConfig};
use punctual_link::{Link, MemoryLink, MemoryOptions};
use punctual_os::calls::{Forbidden, refused};
use punctual_os::heap::Sizes;
use punctual_os::realtime::RealTime;
use punctual_proto::Nanos;
use support::{Handle, node};

/// An engine whose neighbour never answers.
fn engine(forbidden_calls: Forbidden) -> Handle {
    let links: Vec<Box<dyn Link>> =
        vec![Box::new(MemoryLink::pair(MemoryOptions::default()).expect("a pair").0)];
    Engine::start(EngineConfig {
        node: node(1),
        links,
        real_time: RealTime::BEST_EFFORT_HOST,
        spin: Nanos::ZERO,
        seed: 1,
        forbidden_calls,
        heap: None,
    })
    .expect("an engine")
}

/// The error that the processor's thread gets if it creates a socket.
fn socket_on(engine: &Handle) -> Option<ErrorKind> {
    let asked = engine.call(|_, _| {
        let socket = UdpSocket::bind("127.0.0.1:0");
        // Closing it is for others.
        socket.map(std::mem::forget).err().map(|error| error.kind())
    });
    asked.expect("the engine answers")
}

/// A single test, because the counters belong to the whole process.
#[test]
fn a_processor_is_held_to_its_calls_where_its_host_asks_for_that() {
    let free = engine(Forbidden::Allow);
    assert_eq!(socket_on(&free), None);
    assert_eq!((free.stop(), refused()), (Ok(()), 0));

    let confined = engine(Forbidden::Refuse);
    assert_eq!(socket_on(&confined), Some(ErrorKind::PermissionDenied));
    assert_eq!(refused(), 1, "seen");
    assert_eq!(confined.link_reports().expect("it goes on").len(), 1);
    assert_eq!(confined.stop(), Ok(()));
    assert_eq!(refused(), 1, "its own end needs none that it does not have");
}

#[test]
fn a_heap_of_its_own_is_refused_where_the_program_has_another_allocator() {
    let links: Vec<Box<dyn Link>> =
        vec![Box::new(MemoryLink::pair(MemoryOptions::default()).expect("a pair").0)];
    let heap = Some(Sizes { small: 1 << 20, large: 1 << 20 });
    let config = EngineConfig { heap, ..EngineConfig::new(node(1), links, 1) };
    let started: Result<Handle, _> = Engine::start(config);
    let error = started.err().expect("another allocator").to_string();
    assert!(error.contains("allocator"), "{error}");
}
