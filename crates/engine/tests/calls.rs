//! A processor's thread that is confined to its system calls, and one that is not.

mod support;

use std::io::ErrorKind;
use std::net::UdpSocket;

use punctual_engine::{Engine, EngineConfig};
use punctual_os::calls::{Forbidden, refused};
use punctual_os::heap::Sizes;
use support::{Handle, alone};

/// An engine whose neighbour never answers.
fn engine(forbidden_calls: Forbidden) -> Handle {
    Engine::start(EngineConfig { forbidden_calls, ..alone() }).expect("an engine")
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
fn a_processor_is_limited_to_its_calls_if_its_host_requests_it() {
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
    let heap = Some(Sizes { small: 1 << 20, large: 1 << 20 });
    let started: Result<Handle, _> = Engine::start(EngineConfig { heap, ..alone() });
    let error = started.err().expect("another allocator").to_string();
    assert!(error.contains("allocator"), "{error}");
}
