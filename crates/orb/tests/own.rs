//! Our client and our server.

#[path = "common/checks.rs"]
mod checks;
#[allow(dead_code, clippy::module_inception)]
#[path = "generated/demo.rs"]
mod demo;
#[path = "common/echo.rs"]
mod echo;

use demo::demo::{EchoClient, EchoSkeleton};
use echo::Echo;
use punctual_orb::{Endpoint, Options, Orb};

/// A server, and its object's reference as text.
fn server(options: Options) -> (Orb, String) {
    let orb = Orb::new(options).expect("it listens");
    let reference = orb.root_poa().serve(EchoSkeleton::new(Echo::new(&orb))).expect("it is active");
    orb.root_poa().manager().activate().expect("it is not inactive");
    let text = orb.stringify(&reference).expect("it has bytes");
    (orb, text)
}

fn check(text: &str) {
    let client = checks::client();
    let echo: EchoClient = client.resolve(text).expect("it is an echo");
    checks::values(&echo);
    checks::calls(&echo);
    checks::calls_later(&echo);
}

#[test]
fn values_and_calls_over_tcp() {
    let (_server, text) = server(Options::listening(Endpoint::tcp("127.0.0.1", 0)));
    check(&text);
}

#[test]
fn values_and_calls_over_ipv6() {
    let (_server, text) = server(Options::listening(Endpoint::tcp("::1", 0)));
    check(&text);
}

#[test]
fn values_and_calls_over_a_unix_socket() {
    let path = std::env::temp_dir().join(format!("punctual-orb-{}", std::process::id()));
    let (_server, text) = server(Options::listening(Endpoint::Unix(path)));
    check(&text);
}

#[test]
fn values_and_calls_within_a_process() {
    let (server, text) = server(Options::listening(Endpoint::tcp("127.0.0.1", 0)));
    let echo: EchoClient = server.resolve(&text).expect("it is an echo");
    checks::values(&echo);
    checks::calls(&echo);
    checks::calls_later(&echo);
}

#[test]
fn a_servant_that_panics_raises_an_exception() {
    let (_server, text) = server(Options::listening(Endpoint::tcp("127.0.0.1", 0)));
    let client = checks::client();
    let echo: EchoClient = client.resolve(&text).expect("it is an echo");
    let failed = echo.fail(2).expect_err("it panics");
    assert_eq!(failed.kind, punctual_giop::SystemExceptionKind::Unknown);
    assert_eq!(echo.echo_octet(1), Ok(1));
}

/// The code of the tests is what the generator makes of `demo.idl`. `PUNCTUAL_PIN=1` writes it again.
#[test]
fn the_generated_code_is_current() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let idl = folder.join("idl/demo.idl");
    let outcome =
        punctual_idl::read(&idl, &Default::default(), &mut punctual_idl::Disk).expect("it is there");
    let specification = outcome.specification.expect("it is accepted");
    let generated = punctual_idl::generate::generate(&specification, "demo.idl");
    assert_eq!(generated.skipped, []);
    let place = folder.join("generated/demo.rs");
    let new = std::env::temp_dir().join(format!("punctual-orb-{}.rs", std::process::id()));
    std::fs::write(&new, &generated.code).expect("it is written");
    let mut format = std::process::Command::new("rustfmt");
    let root = folder.join("../../..");
    let formatted = format.args(["--edition", "2024", "--config-path"]).arg(root).arg(&new).status();
    assert!(formatted.expect("rustfmt is installed").success());
    let code = std::fs::read_to_string(&new).expect("it was written");
    std::fs::remove_file(&new).expect("it was written");
    if std::env::var_os("PUNCTUAL_PIN").is_some() {
        std::fs::write(&place, &code).expect("it is written");
    }
    let there = std::fs::read_to_string(place).expect("it is there");
    assert!(there == code, "write it again with PUNCTUAL_PIN=1");
}
