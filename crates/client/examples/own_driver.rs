//! A link driver that the program implements itself: hosts of this process exchange packets through a room
//! with a name.
//!
//! Run it with `cargo run -p punctual --example own_driver`. A driver describes itself in a [`DriverKind`]
//! and keeps a link's configuration in a [`LinkDriver`]. The configuration selects it by its name (`driver =
//! "room"`).

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use punctual::config::drivers::{DriverKind, LinkDriver, LinkInput, OpeningLink, OpeningLinks};
use punctual::config::{ConfigError, Driver, parse_with};
use punctual::{Consent, Contract, Endsystem, HostConfig, Nanos, Rate};
use punctual_link::{Link, MemoryLink, MemoryOptions};
use serde::Deserialize;

/// The drivers that the configuration may name in addition to Punctual's own.
pub const DRIVERS: [Driver; 1] = [ROOM];

const ROOM: Driver = Driver::new(&RoomKind);

/// The first ends of links whose neighbours have not been started yet, by their rooms.
static WAITING: Mutex<BTreeMap<String, MemoryLink>> = Mutex::new(BTreeMap::new());

struct RoomKind;

/// Driver-specific configuration of a link: the key `room`, which no other driver accepts.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Room {
    room: String,
}

impl DriverKind for RoomKind {
    fn name(&self) -> &'static str {
        "room"
    }

    fn medium(&self) -> &'static str {
        "rooms of this process"
    }

    fn has_wire(&self) -> bool {
        false
    }

    fn own_keys(&self) -> &'static [&'static str] {
        &["room"]
    }

    fn read(&self, input: &LinkInput<'_>) -> Result<Box<dyn LinkDriver>, ConfigError> {
        let room: Room = input.own()?;
        if room.room.is_empty() {
            return Err(input.refuse("room is empty: give the name that the neighbour gives"));
        }
        Ok(Box::new(room))
    }

    fn open(&self, opening: OpeningLinks<'_>) -> Result<Vec<Box<dyn Link>>, ConfigError> {
        let enter = |link: OpeningLink<'_>| {
            let room = link.settings.settings::<Room>()?.room.clone();
            let failed = |error| ConfigError::Link { name: link.name.to_owned(), error };
            Some(enter(room).map_err(failed).map(|end| Box::new(end) as Box<dyn Link>))
        };
        opening.links.into_iter().filter_map(enter).collect()
    }

    fn packet_cost(&self) -> u8 {
        1
    }
}

impl LinkDriver for Room {
    fn driver(&self) -> Driver {
        ROOM
    }
}

/// The first to come leaves the other end of its link for the second.
fn enter(room: String) -> Result<MemoryLink, punctual_link::LinkError> {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(end) = waiting.remove(&room) {
        return Ok(end);
    }
    let (own, other) = MemoryLink::pair(MemoryOptions::default())?;
    waiting.insert(room, other);
    Ok(own)
}

/// The configuration of one host of this process. The host runs without a real-time class, so any user may
/// run this example. `link` holds the lines of its link that belong to the driver.
pub fn config(name: &str, neighbour: &str, link: &str) -> Result<HostConfig, ConfigError> {
    let text = format!(
        "node.name = \"{name}\"\n\
         processor = {{ best_effort_host = true, profile_measure = false }}\n\
         signalling.key = \"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"\n\
         host = [{{ name = \"a\", id = 1 }}, {{ name = \"b\", id = 2 }}]\n\
         [[link]]\nname = \"l\"\nneighbour = \"{neighbour}\"\nrate = \"100Mbit/s\"\nprediction_error = \"500ms\"\n{link}\n"
    );
    parse_with(&text, Path::new("own_driver.toml"), &DRIVERS)
}

/// Sends a message from host a to host b, who meet in a room: what b received.
pub fn send_and_receive(message: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let link = "driver = \"room\"\nroom = \"kitchen\"";
    let a = Endsystem::embedded(&config("a", "b", link)?)?;
    let b = Endsystem::embedded(&config("b", "a", link)?)?;
    let until = Instant::now() + Duration::from_secs(20);
    while !(a.status()?.node.links[0].alive && b.status()?.node.links[0].alive) {
        if Instant::now() > until {
            return Err("the hosts never saw one another".into());
        }
        std::thread::yield_now();
    }
    let listener = b.listen("sink", |_| Consent::Accept)?;
    let rate = Rate::per_second(10).ok_or("a rate")?;
    let mut channel = a.open("sink@b", Contract::new(100, rate, 1, Nanos::from_millis(1_500))?)?;
    let mut receiver = listener.accept()?;
    channel.send(message)?;
    let mut bytes = vec![0; 100];
    let info = receiver.recv(&mut bytes)?;
    bytes.truncate(info.len as usize);
    Ok(bytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let received = send_and_receive(b"a message from room to room")?;
    println!("{}", String::from_utf8_lossy(&received));
    Ok(())
}
