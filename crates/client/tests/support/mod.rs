//! Two engines inside this process, joined by a memory link.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::Path;
use std::time::{Duration, Instant};

use punctual::{Endsystem, HostConfig};
use punctual_host::config::parse;
use punctual_link::{Link, MemoryLink, MemoryOptions};

/// Longer than anything that happens here, on however loaded a host.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// `prediction_error`: ordinary threads on a busy machine may be late by any time, which is not under test
/// here. An engine whose leader does not drive it is considered down after five HELLOs.
pub fn config(name: &str, neighbour: &str) -> HostConfig {
    let text = format!(
        r#"
        node.name = "{name}"
        processor.best_effort_host = true
        processor.profile_measure = false
        signalling = {{ key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", hello = "1s" }}
        host = [{{ name = "a", id = 1 }}, {{ name = "b", id = 2 }}]
        link = [{{ name = "l", neighbour = "{neighbour}", driver = "memory", rate = "400Mbit/s",
                  prediction_error = "500ms" }}]
        "#
    );
    parse(&text, Path::new("embedded.toml")).expect("a configuration")
}

/// Hosts a and b, which see one another.
pub fn pair() -> (Endsystem, Endsystem) {
    let (to_b, to_a) = MemoryLink::pair(MemoryOptions::default()).expect("a link");
    let start = |name, neighbour, link: MemoryLink| {
        Endsystem::embedded_with(&config(name, neighbour), vec![Box::new(link) as Box<dyn Link>])
            .expect("an engine")
    };
    let (a, b) = (start("a", "b", to_b), start("b", "a", to_a));
    let until = Instant::now() + PATIENCE;
    while ![&a, &b].iter().all(|host| host.status().expect("status").node.links[0].alive) {
        assert!(Instant::now() < until, "the hosts never saw one another");
        std::thread::yield_now();
    }
    (a, b)
}
