//! Our ends: a server that prints its reference, and a client as `client.cc`.

use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use punctual_orb::{Endpoint, Options, Orb};

use crate::demo::demo::{EchoClient, EchoSkeleton};
use crate::echo::{Echo, ten};
use crate::long::BYTES as LONG_BYTES;

/// Serves until the standard input ends.
pub fn serve(endpoint: Endpoint) {
    let orb = Orb::new(Options::listening(endpoint)).expect("it listens");
    let reference = orb.root_poa().serve(EchoSkeleton::new(Echo::new(&orb))).expect("it is active");
    orb.root_poa().manager().activate().expect("it is not inactive");
    println!("{}", orb.stringify(&reference).expect("it has bytes"));
    io::stdin().lines().for_each(drop);
}

/// Calls as the lines of the standard input say.
pub fn call(reference: &str) {
    let orb = Orb::new(Options::default()).expect("a client");
    let echo: EchoClient = orb.resolve(reference).expect("it is an echo");
    let (ten, text) = (ten(1), "x".repeat(64));
    let tens: Vec<_> = (0..1_000).map(crate::echo::ten).collect();
    // Only for the case that needs it.
    let mut long = Vec::new();
    for line in io::stdin().lock().lines() {
        let line = line.expect("text");
        let (name, count) = line.split_once(' ').expect("two words");
        let count = count.parse().expect("a number");
        let spans = match name {
            "octet" => timed(count, || assert_eq!(echo.echo_octet(7), Ok(7))),
            "struct" => timed(count, || assert_eq!(echo.echo_ten(&ten).map(|back| back.j), Ok(10))),
            "string" => timed(count, || {
                let back = black_box(echo.echo_string(&text).expect("a string"));
                assert_eq!(back.as_bytes()[63], b'x');
            }),
            "structs" => timed(count, || {
                let back = echo.echo_tens(&tens).expect("a sequence");
                assert!(back.len() == 1_000 && back[999].a == 999);
            }),
            "long" => {
                long.resize(LONG_BYTES, 3u8);
                timed(count, || assert_eq!(echo.length_of(&long), Ok(LONG_BYTES as u32)))
            }
            other => panic!("no case {other}"),
        };
        let bytes: Vec<u8> = spans.iter().flat_map(|span| span.to_ne_bytes()).collect();
        let mut output = io::stdout();
        output.write_all(&bytes).and_then(|()| output.flush()).expect("somebody reads");
    }
}

/// How long each call takes, ns.
pub fn timed(count: usize, mut call: impl FnMut()) -> Vec<u32> {
    let mut spans = vec![0; count];
    let mut before = Instant::now();
    for span in &mut spans {
        call();
        let after = Instant::now();
        *span = u32::try_from((after - before).as_nanos()).unwrap_or(u32::MAX);
        before = after;
    }
    spans
}
