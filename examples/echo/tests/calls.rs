//! The client calls the server, each in its process.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};

use punctual_orb::{Endpoint, Options, Orb, naming};

/// The server; it ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

fn call(reference: &str, words: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_client")).args([reference, words]).output().expect("it runs")
}

#[test]
fn the_client_gets_its_words_back_and_exceptions_by_name() {
    let server = Command::new(env!("CARGO_BIN_EXE_server")).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut server = Server(server);
    let mut reference = String::new();
    let output = server.0.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut reference).expect("it prints its reference");
    let called = call(reference.trim(), "hello");
    assert_eq!((called.status.code(), &*called.stdout), (Some(0), &b"hello\ncalls: 1\n"[..]), "{called:?}");
    let refused = call(reference.trim(), "");
    assert_eq!((refused.status.code(), &*refused.stdout), (Some(1), &b""[..]));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no words"), "{refused:?}");
    assert_eq!(call("IOR:00", "hello").status.code(), Some(1));
    let names = Orb::new(Options::listening(Endpoint::tcp("127.0.0.1", 0))).expect("it listens");
    let service = names.stringify(&naming::serve(&names).expect("it serves")).expect("text");
    let bind =
        Command::new(env!("CARGO_BIN_EXE_bind")).args([&*service, "an/echo", reference.trim()]).output();
    assert!(bind.as_ref().is_ok_and(|bound| !bound.status.success()), "there is no context `an`: {bind:?}");
    let bind =
        Command::new(env!("CARGO_BIN_EXE_bind")).args([&*service, "echo.x", reference.trim()]).output();
    assert!(bind.as_ref().is_ok_and(|bound| bound.status.success()), "{bind:?}");
    let named = format!("corbaname:iiop:1.2@{}#echo.x", names.published()[0]);
    assert_eq!(call(&named, "again").status.code(), Some(0));
}
