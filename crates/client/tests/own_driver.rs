//! A program that embeds an engine brings its own driver of links: one file, and one line that names it.

#[path = "../examples/own_driver.rs"]
#[allow(dead_code, reason = "an example has a main")]
mod example;

use std::path::Path;

use punctual::config::{Driver, parse};

#[test]
fn a_driver_of_the_programs_own_carries_messages() {
    assert_eq!(example::send_and_receive(b"hello").expect("two hosts"), b"hello");
}

#[test]
fn its_name_and_its_keys_are_known_where_it_is() {
    let refused = |link: &str| example::config("a", "b", link).expect_err(link).to_string();
    assert!(refused("driver = \"room\"").contains("missing field `room`"));
    assert!(refused("driver = \"room\"\nroom = \"\"").contains("[[link]] \"l\": room is empty"));
    let wrong = refused("driver = \"room\"\nroom = 7");
    assert!(wrong.contains("invalid type: integer `7`, expected a string"), "{wrong}");
    // The keys of other drivers are reserved for them.
    let queue = refused("driver = \"room\"\nroom = \"hall\"\nqueue = 1");
    assert!(queue.contains("queue: only for driver \"xdp\": leave it out, or change the driver"), "{queue}");
    let unknown = refused("driver = \"rom\"");
    assert!(
        unknown.contains("unknown variant `rom`, expected one of `udp`, `xdp`, `memory`, `room`"),
        "{unknown}"
    );
}

#[test]
fn no_other_crate_names_it() {
    let memory =
        example::config("a", "b", "driver = \"memory\"\nroom = \"hall\"").expect_err("a foreign key");
    assert!(memory.to_string().contains("unknown key `room`"), "{memory}");
    let text = "node.name = \"a\"\nsignalling.key = \"00\"\n[[link]]\nname = \"l\"\nneighbour = \"b\"\n\
                rate = \"1Gbit/s\"\ndriver = \"room\"\n";
    let unknown = parse(text, Path::new("host.toml")).expect_err("no such driver").to_string();
    assert!(unknown.contains("unknown variant `room`, expected one of `udp`, `xdp`, `memory`"), "{unknown}");
    assert_eq!(Driver::named("room"), None);
}
