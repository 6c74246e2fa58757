//! omniORB and this ORB, each as client and as server of the other: every type there and back, exceptions, attributes, oneway
//! calls, messages in fragments, callbacks, references, each version of GIOP, a server that restarts, forwarding.
//!
//! The C++ program of the tests is compiled once (`peer.cc`); the tests need `omniidl`, `g++` and `libomniorb4-dev`.

mod checks;
#[allow(dead_code, reason = "each test uses a part of it")]
mod generated;
mod peer;
mod servant;

use std::num::NonZeroUsize;
use std::sync::Arc;

use generated::interop::{Peer, PeerClient, PeerSkeleton};
use peer::Process;
use punctual_giop::{Reference, SystemExceptionKind as Kind, Version};
use punctual_orb::poa::{
    Cookie, Diversion, IdAssignment, Lifespan, ObjectId, Poa, Policies, RequestProcessing, ServantLocator,
    ServantRetention,
};
use punctual_orb::{Concurrency, Endpoint, Options, Orb, Pool};
use servant::Echo;

/// What omniORB is told so that it speaks this version.
fn in_version(version: Version) -> [String; 2] {
    let (major, minor) = version.numbers();
    ["-ORBmaxGIOPVersion".into(), format!("{major}.{minor}")]
}

const LOOPBACK: [&str; 2] = ["-ORBendPoint", "giop:tcp:127.0.0.1:"];

fn omniorb_server(more: &[String]) -> Option<Process> {
    let arguments: Vec<String> =
        LOOPBACK.map(str::to_owned).into_iter().chain(more.iter().cloned()).collect();
    Process::serving(&["server"], &arguments)
}

/// An ORB that listens, for its own objects.
fn own(endpoint: Endpoint) -> Orb {
    let orb = Orb::new(Options::listening(endpoint)).expect("it listens");
    orb.root_poa().manager().activate().expect("it is not inactive");
    orb
}

/// Serves what the tests call: its reference as text.
fn serve(orb: &Orb) -> String {
    let servant = PeerSkeleton::new(Echo::new(orb));
    let reference = orb.root_poa().serve(servant).expect("it is active");
    orb.stringify(&reference).expect("it has bytes")
}

fn our_client_calls_omniorb(version: Version) {
    let Some(server) = omniorb_server(&in_version(version)) else { return };
    let orb = own(Endpoint::tcp("127.0.0.1", 0));
    let peer: PeerClient = orb.resolve(server.reference()).expect("it is a peer");
    checks::all(&orb, &peer, version);
}

#[test]
fn our_client_calls_omniorb_with_1_0() {
    our_client_calls_omniorb(Version::V1_0);
}

#[test]
fn our_client_calls_omniorb_with_1_1() {
    our_client_calls_omniorb(Version::V1_1);
}

#[test]
fn our_client_calls_omniorb_with_1_2() {
    our_client_calls_omniorb(Version::V1_2);
}

fn omniorb_calls_our_server(version: Version) {
    let orb = own(Endpoint::tcp("127.0.0.1", 0));
    let text = serve(&orb);
    let more: Vec<String> = LOOPBACK.map(str::to_owned).into_iter().chain(in_version(version)).collect();
    if let Some(said) = Process::finished(&["client", &text], &more) {
        assert_eq!(said.trim(), "all right");
    }
}

#[test]
fn omniorb_calls_our_server_with_1_0() {
    omniorb_calls_our_server(Version::V1_0);
}

#[test]
fn omniorb_calls_our_server_with_1_1() {
    omniorb_calls_our_server(Version::V1_1);
}

#[test]
fn omniorb_calls_our_server_with_1_2() {
    omniorb_calls_our_server(Version::V1_2);
}

/// The models that read all connections in one thread. That with a thread for each connection is in the other tests.
fn reactors() -> [Concurrency; 2] {
    let two = NonZeroUsize::new(2).expect("some");
    [Concurrency::Reactive, Concurrency::Pool(Pool::of(two))]
}

#[test]
fn omniorb_calls_our_servers_that_read_in_one_thread() {
    for concurrency in reactors() {
        for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
            let listening = Options::listening(Endpoint::tcp("127.0.0.1", 0));
            let options = Options { concurrency: concurrency.clone(), ..listening };
            let orb = Orb::new(options).expect("it listens");
            orb.root_poa().manager().activate().expect("it is not inactive");
            let more: Vec<String> =
                LOOPBACK.map(str::to_owned).into_iter().chain(in_version(version)).collect();
            let Some(said) = Process::finished(&["client", &serve(&orb)], &more) else { return };
            assert_eq!(said.trim(), "all right", "{concurrency:?} {version:?}");
        }
    }
}

#[test]
fn calls_go_over_unix_sockets_in_both_directions() {
    let folder = peer::folder("unix");
    let socket = folder.join("omniorb");
    let endpoint = ["-ORBendPoint".to_owned(), format!("giop:unix:{}", socket.display())];
    let Some(server) = Process::serving(&["server"], &endpoint) else { return };
    let orb = own(Endpoint::Unix(folder.join("punctual")));
    let peer: PeerClient = orb.resolve(server.reference()).expect("it is a peer");
    checks::all(&orb, &peer, Version::V1_2);
    let said = Process::finished(&["client", &serve(&orb)], &endpoint_of(&folder.join("client")));
    assert_eq!(said.as_deref().map(str::trim), Some("all right"));
}

fn endpoint_of(socket: &std::path::Path) -> [String; 2] {
    ["-ORBendPoint".into(), format!("giop:unix:{}", socket.display())]
}

/// A port of loopback that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn our_client_finds_a_server_that_restarted() {
    let port = free_port();
    let endpoint = ["-ORBendPoint".to_owned(), format!("giop:tcp:127.0.0.1:{port}")];
    let Some(first) = Process::serving(&["server"], &endpoint) else { return };
    let orb = Orb::new(Options::default()).expect("an ORB");
    let peer: PeerClient =
        orb.resolve(&format!("corbaloc:iiop:1.2@127.0.0.1:{port}/peer")).expect("it is a peer");
    assert_eq!(peer.echo("one").as_deref(), Ok("one"));
    first.end();
    let gone = peer.echo("nobody").expect_err("nobody is there");
    assert!(matches!(gone.kind, Kind::Transient | Kind::CommFailure), "{gone}");
    let second = Process::serving(&["server"], &endpoint).expect("it started before");
    assert_eq!(peer.echo("two").as_deref(), Ok("two"));
    second.end();
}

#[test]
fn our_client_follows_where_omniorb_forwards() {
    let orb = own(Endpoint::tcp("127.0.0.1", 0));
    let text = serve(&orb);
    let Some(forwarder) = Process::serving(&["forward", &text], &LOOPBACK.map(str::to_owned)) else { return };
    // A client of its own: the object is in another process for it.
    let client = own(Endpoint::tcp("127.0.0.1", 0));
    let peer: PeerClient = client.resolve(forwarder.reference()).expect("it is a peer");
    checks::all(&client, &peer, Version::V1_2);
}

/// Sends every caller to another object.
struct Elsewhere(Reference);

impl ServantLocator for Elsewhere {
    fn preinvoke(
        &self,
        _: &ObjectId,
        _: &Poa,
        _: &str,
    ) -> Result<(Arc<dyn punctual_orb::Servant>, Cookie), Diversion> {
        Err(Diversion::Forward(self.0.clone()))
    }

    fn postinvoke(&self, _: &ObjectId, _: &Poa, _: &str, _: Cookie, _: Arc<dyn punctual_orb::Servant>) {}
}

#[test]
fn omniorb_follows_where_we_forward() {
    let orb = own(Endpoint::tcp("127.0.0.1", 0));
    let target = orb.reference(&serve(&orb)).expect("a reference");
    let policies = Policies {
        lifespan: Lifespan::Transient,
        id_assignment: IdAssignment::User,
        servant_retention: ServantRetention::NonRetain,
        request_processing: RequestProcessing::ServantManager,
        ..Policies::default()
    };
    let manager = orb.root_poa().manager().clone();
    let poa = orb.root_poa().create_poa("forward", policies, Some(&manager)).expect("a new name");
    poa.set_servant_locator(Arc::new(Elsewhere(target))).expect("its policies allow it");
    let interface = Peer::REPOSITORY_ID;
    let reference =
        poa.create_reference_with_id(&ObjectId::from(&b"x"[..]), interface).expect("it has an address");
    let text = orb.stringify(&reference).expect("it has bytes");
    if let Some(said) = Process::finished(&["client", &text], &LOOPBACK.map(str::to_owned)) {
        assert_eq!(said.trim(), "all right");
    }
}

/// An address of this host at which nobody listens.
fn unreachable() -> Endpoint {
    Endpoint::tcp("127.0.0.1", 1)
}

#[test]
fn omniorb_calls_us_back_over_our_connection() {
    let accepting = ["-ORBacceptBiDirectionalGIOP", "1", "-ORBserverTransportRule", "* tcp,bidir"];
    let Some(server) = omniorb_server(&accepting.map(str::to_owned)) else { return };
    let behind_a_wall = |offer_bidirectional| {
        let listening = Options::listening(Endpoint::tcp("127.0.0.1", 0));
        let orb = Orb::new(Options { published: vec![unreachable()], offer_bidirectional, ..listening });
        let orb = orb.expect("it listens");
        orb.root_poa().manager().activate().expect("it is not inactive");
        orb
    };
    let orb = behind_a_wall(true);
    let peer: PeerClient = orb.resolve(server.reference()).expect("it is a peer");
    checks::all(&orb, &peer, Version::V1_2);
    // Otherwise it cannot.
    let orb = behind_a_wall(false);
    let peer: PeerClient = orb.resolve(server.reference()).expect("it is a peer");
    let listener = orb.root_poa().serve(generated::interop::ListenerSkeleton::new(servant::Ear));
    let listener = generated::interop::Listener(listener.expect("it is active"));
    assert_eq!(peer.call_back(&listener, 1).expect_err("nobody listens").kind, Kind::Transient);
}

#[test]
fn we_call_omniorb_back_over_its_connection() {
    // The client accepts no connections.
    let more = ["-ORBclientTransportRule", "* tcp,bidir", "-ORBserverTransportRule", "* none"];
    let said_with = |concurrency: &Concurrency, accept_bidirectional, offered: &str| {
        let listening = Options::listening(Endpoint::tcp("127.0.0.1", 0));
        let orb = Orb::new(Options {
            accept_bidirectional,
            concurrency: concurrency.clone(),
            timeout: Some(std::time::Duration::from_secs(30)),
            ..listening
        });
        let orb = orb.expect("it listens");
        orb.root_poa().manager().activate().expect("it is not inactive");
        let offer = ["-ORBofferBiDirectionalGIOP", offered];
        let arguments: Vec<String> =
            LOOPBACK.into_iter().chain(more).chain(offer).map(str::to_owned).collect();
        Process::finished(&["client", &serve(&orb)], &arguments)
    };
    let threads = Concurrency::ThreadPerConnection;
    for concurrency in [threads.clone()].into_iter().chain(reactors()) {
        let Some(said) = said_with(&concurrency, true, "1") else { return };
        assert_eq!(said.trim(), "all right", "{concurrency:?}");
    }
    // Otherwise we cannot.
    for (accept, offered) in [(false, "1"), (true, "0")] {
        let said = said_with(&threads, accept, offered).expect("it ran before");
        assert_ne!(said.trim(), "all right", "{accept} {offered}");
    }
}

#[test]
fn omniorb_puts_our_fragments_together() {
    let Some(server) = omniorb_server(&[]) else { return };
    let fragmenting = |bytes| {
        let listening = Options::listening(Endpoint::tcp("127.0.0.1", 0));
        let orb = Orb::new(Options { fragment_bytes: Some(bytes), ..listening }).expect("it listens");
        orb.root_poa().manager().activate().expect("it is not inactive");
        orb
    };
    for bytes in [1_000, 60_000] {
        let orb = fragmenting(bytes);
        let peer: PeerClient = orb.resolve(server.reference()).expect("it is a peer");
        checks::all(&orb, &peer, Version::V1_2);
        for version in [Version::V1_1, Version::V1_2] {
            let more: Vec<String> =
                LOOPBACK.map(str::to_owned).into_iter().chain(in_version(version)).collect();
            let said = Process::finished(&["client", &serve(&orb)], &more).expect("it ran before");
            assert_eq!(said.trim(), "all right");
        }
    }
}

/// The code of the tests is what the generator makes of `interop.idl`. `PUNCTUAL_PIN=1` writes it again.
#[test]
fn the_generated_code_is_current() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop");
    let options = punctual_idl::Options {
        defines: vec![("PUNCTUAL".into(), "1".into())],
        ..punctual_idl::Options::default()
    };
    let idl = folder.join("interop.idl");
    let outcome = punctual_idl::read(&idl, &options, &mut punctual_idl::Disk).expect("it is there");
    let specification = outcome.specification.expect("it is accepted");
    let generated = punctual_idl::generate::generate(&specification, "interop.idl");
    assert_eq!(generated.skipped, []);
    let place = folder.join("generated.rs");
    let code = peer::formatted(&generated.code);
    if std::env::var_os("PUNCTUAL_PIN").is_some() {
        std::fs::write(&place, &code).expect("it is written");
    }
    let recorded = std::fs::read_to_string(&place).expect("it is there");
    assert!(code == recorded, "generated.rs differs: set PUNCTUAL_PIN=1, and review git diff");
}
