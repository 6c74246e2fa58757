//! omniORB's client and server, and ours. They are built from Debian's packages (`make setup`).

#[path = "common/checks.rs"]
mod checks;
#[allow(dead_code, clippy::module_inception)]
#[path = "generated/demo.rs"]
mod demo;
#[path = "common/echo.rs"]
mod echo;
#[path = "common/programs.rs"]
mod programs;

use demo::demo::{EchoClient, EchoSkeleton};
use echo::Echo;
use punctual_orb::{Endpoint, Options, Orb};

fn server(endpoint: Endpoint) -> (Orb, String) {
    let orb = Orb::new(Options::listening(endpoint)).expect("it listens");
    let reference = orb.root_poa().serve(EchoSkeleton::new(Echo::new(&orb))).expect("it is active");
    orb.root_poa().manager().activate().expect("it is not inactive");
    let text = orb.stringify(&reference).expect("it has bytes");
    (orb, text)
}

/// Versions of GIOP, as omniORB is configured to speak.
const VERSIONS: [&str; 3] = ["1.0", "1.1", "1.2"];

#[test]
fn our_client_calls_its_server() {
    let Some(programs) = programs::build() else { return };
    let server = programs.server(&["-ORBendPoint", "giop:tcp:127.0.0.1:"]);
    let client = checks::client();
    let echo: EchoClient = client.resolve(server.reference()).expect("it is an echo");
    checks::values(&echo);
    checks::calls(&echo);
    checks::calls_later(&echo);
}

#[test]
fn our_client_calls_its_server_at_a_unix_socket() {
    let Some(programs) = programs::build() else { return };
    let path = std::env::temp_dir().join(format!("punctual-omni-{}", std::process::id()));
    let endpoint = format!("giop:unix:{}", path.display());
    let server = programs.server(&["-ORBendPoint", &endpoint]);
    let client = checks::client();
    let echo: EchoClient = client.resolve(server.reference()).expect("it is an echo");
    checks::values(&echo);
    checks::calls(&echo);
}

#[test]
fn its_client_calls_our_server_with_each_version() {
    let Some(programs) = programs::build() else { return };
    let (_server, reference) = server(Endpoint::tcp("127.0.0.1", 0));
    for version in VERSIONS {
        programs.client(&["-ORBmaxGIOPVersion", version], version == "1.2", &reference);
    }
}

#[test]
fn its_client_calls_our_server_at_a_unix_socket() {
    let Some(programs) = programs::build() else { return };
    let path = std::env::temp_dir().join(format!("punctual-omni-ours-{}", std::process::id()));
    let (_server, reference) = server(Endpoint::Unix(path));
    programs.client(&[], true, &reference);
}

#[test]
fn a_server_of_it_that_is_started_again_is_called_again() {
    let Some(programs) = programs::build() else { return };
    let first = programs.server(&["-ORBendPoint", "giop:tcp:127.0.0.1:"]);
    let client = checks::client();
    let echo: EchoClient = client.resolve(first.reference()).expect("it is an echo");
    assert_eq!(echo.echo_octet(1), Ok(1));
    drop(first);
    let gone = echo.echo_octet(2).expect_err("no server");
    assert_eq!(gone.completed, punctual_giop::Completion::No, "{gone}");
}
