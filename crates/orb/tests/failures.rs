//! What clients get from servers that are silent, elsewhere or gone, and servers from bytes that are no message.

#[path = "common/checks.rs"]
#[allow(dead_code)]
mod checks;
#[allow(dead_code, clippy::module_inception)]
#[path = "generated/demo.rs"]
mod demo;
#[path = "common/echo.rs"]
#[allow(dead_code)]
mod echo;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use demo::demo::{Echo as EchoReference, EchoClient, EchoSkeleton};
use echo::Echo;
use punctual_giop::{Completion, Reference, SystemExceptionKind as Kind};
use punctual_orb::poa::{
    Cookie, Diversion, ObjectId, Poa, Policies, RequestProcessing, ServantLocator, ServantRetention,
};
use punctual_orb::{Endpoint, Options, Orb, Servant};

fn orb() -> Orb {
    let orb = Orb::new(Options::listening(Endpoint::tcp("127.0.0.1", 0))).expect("it listens");
    orb.root_poa().manager().activate().expect("it is not inactive");
    orb
}

fn client_of(reference: &Reference, timeout: Option<Duration>) -> (Orb, EchoClient) {
    let client = Orb::new(Options { timeout, ..Options::default() }).expect("a client needs nothing");
    let echo = EchoReference(reference.clone()).connect(&client).expect("a usable reference");
    (client, echo)
}

/// Sends all requests there.
struct Elsewhere(Reference);

impl ServantLocator for Elsewhere {
    fn preinvoke(&self, _: &ObjectId, _: &Poa, _: &str) -> Result<(Arc<dyn Servant>, Cookie), Diversion> {
        Err(Diversion::Forward(self.0.clone()))
    }

    fn postinvoke(&self, _: &ObjectId, _: &Poa, _: &str, _: Cookie, _: Arc<dyn Servant>) {}
}

/// An adapter whose requests a locator gets.
fn located(orb: &Orb, name: &str) -> Poa {
    let policies = Policies {
        servant_retention: ServantRetention::NonRetain,
        request_processing: RequestProcessing::ServantManager,
        ..Policies::default()
    };
    let manager = orb.root_poa().manager().clone();
    orb.root_poa().create_poa(name, policies, Some(&manager)).expect("policies that go together")
}

#[test]
fn a_call_follows_its_object() {
    let orb = orb();
    let there = orb.root_poa().serve(EchoSkeleton::new(Echo::new(&orb))).expect("it is active");
    let poa = located(&orb, "elsewhere");
    poa.set_servant_locator(Arc::new(Elsewhere(there))).expect("the policy");
    let reference = poa.create_reference(EchoReference::REPOSITORY_ID).expect("a reference");
    let (_client, echo) = client_of(&reference, None);
    assert_eq!(echo.echo_octet(7), Ok(7));
    assert_eq!(echo.echo_octet(8), Ok(8));
    let (_other, later) = client_of(&reference, None);
    assert_eq!(later.echo_octet_async(9).wait(), Ok(9));
}

#[test]
fn a_loop_of_forwarding_ends() {
    let orb = orb();
    let poa = located(&orb, "loop");
    let reference = poa.create_reference(EchoReference::REPOSITORY_ID).expect("a reference");
    poa.set_servant_locator(Arc::new(Elsewhere(reference.clone()))).expect("the policy");
    let (_client, echo) = client_of(&reference, None);
    assert_eq!(echo.echo_octet(7).expect_err("it never arrives").kind, Kind::Transient);
    assert_eq!(echo.echo_octet_async(7).wait().expect_err("it never arrives").kind, Kind::Transient);
}

#[test]
fn a_call_of_a_silent_server_ends_at_its_time() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("it has one").port();
    let client = checks::client();
    let reference = client.reference(&format!("corbaloc::1.2@127.0.0.1:{port}/key")).expect("a reference");
    let (_client, echo) = client_of(&reference, Some(Duration::from_millis(20)));
    assert_eq!(echo.echo_octet(7).expect_err("no answer").kind, Kind::Timeout);
    assert_eq!(echo.echo_octet_async(7).wait().expect_err("no answer").kind, Kind::Timeout);
}

#[test]
fn an_object_of_nowhere_or_of_no_server_is_an_exception() {
    let orb = orb();
    let Some(Endpoint::Tcp(at)) = orb.published().first().cloned() else { panic!("it listens") };
    let reference = orb.reference(&format!("corbaloc::1.2@{at}/nobody")).expect("a reference");
    let failed = client_of(&reference, None).1.echo_octet(7).expect_err("no object");
    assert_eq!((failed.kind, failed.completed), (Kind::ObjectNotExist, Completion::No));
    orb.shutdown(true);
    let failed = client_of(&reference, None).1.echo_octet(7).expect_err("no server");
    assert_eq!((failed.kind, failed.completed), (Kind::Transient, Completion::No));
}

#[test]
fn bytes_that_are_no_message_end_their_connection_alone() {
    let orb = orb();
    let reference = orb.root_poa().serve(EchoSkeleton::new(Echo::new(&orb))).expect("it is active");
    let Some(Endpoint::Tcp(at)) = orb.published().first().cloned() else { panic!("it listens") };
    let long = [&b"GIOP\x01\x02\x01\x00"[..], &u32::MAX.to_le_bytes()].concat();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"GIOP\x07\x00\x01\x00\0\0\0\0", &long] {
        let mut stream = TcpStream::connect((&*at.host, at.port)).expect("it listens");
        stream.write_all(bytes).expect("it is sent");
        let mut answer = Vec::new();
        // The server may end the connection before it has read all.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"GIOP"), "{answer:?}");
    }
    assert_eq!(client_of(&reference, None).1.echo_octet(7), Ok(7));
}
