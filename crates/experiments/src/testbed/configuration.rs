//! The configuration of a daemon for its place in a network.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use punctual_engine::os::random_u64;

use super::network::{NetworkSpec, address};

/// How late a packet may come after what its slack predicts before its neighbour is taken to misbehave. A platform
/// hole of a few milliseconds is no misbehaviour: with less, the messages that it delayed a little would be
/// demoted and then wait behind the flood. It costs buffers, not time.
const PREDICTION_ERROR: &str = "10ms";

/// What differs between experiments.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether the processors run in the real-time class. Where not, nothing is guaranteed.
    pub real_time: bool,
    /// Further lines for `[node]`.
    pub node: String,
    /// Further lines for every `[[link]]`.
    pub link: String,
}

/// A key for a domain that lives as long as the run, in hexadecimal.
///
/// # Errors
/// Where the kernel gives no random bytes.
pub fn domain_key() -> anyhow::Result<String> {
    let words: Result<Vec<String>, _> =
        (0..4).map(|_| random_u64().map(|word| format!("{word:016x}"))).collect();
    Ok(words.context("no random bytes for a domain key")?.concat())
}

/// What carries the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Kernel sockets between network namespaces.
    Udp,
    /// Memory between engines in one process.
    Memory,
}

/// The TOML of host number `place` of the line.
pub fn text(
    spec: &NetworkSpec,
    place: usize,
    driver: Driver,
    options: &Options,
    key: &str,
    socket: &Path,
) -> String {
    let mut text = format!(
        "[node]\nname = \"{}\"\n{}\n\n[processor]\nbest_effort_host = {}\n\n[daemon]\nsocket = \"{}\"\n\n\
         [signalling]\nkey = \"{key}\"\nhello = \"250ms\"\n",
        spec.hosts[place],
        options.node,
        !options.real_time,
        socket.display(),
    );
    for (index, name) in spec.hosts.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(text, "\n[[host]]\nname = \"{name}\"\nid = {}\n", index + 1);
    }
    for neighbour in neighbours(place, spec.hosts.len()) {
        text += &link(spec, place, neighbour, driver, &options.link);
    }
    for target in (0..spec.hosts.len()).filter(|&target| target != place) {
        let via: Vec<String> = way(place, target).map(|hop| format!("\"{}\"", spec.hosts[hop])).collect();
        let _ = write!(text, "\n[[route]]\nvia = [{}]\n", via.join(", "));
    }
    text
}

fn link(spec: &NetworkSpec, place: usize, neighbour: usize, driver: Driver, more: &str) -> String {
    let rightwards = neighbour > place;
    let number = place.min(neighbour);
    let device = if rightwards { "right" } else { "left" };
    let (own, other) = if rightwards { (1, 2) } else { (2, 1) };
    let transport = match driver {
        Driver::Udp => format!(
            "driver = \"udp\"\ndevice = \"{device}\"\nlocal = \"{}\"\npeer = \"{}\"",
            address(number, own),
            address(number, other)
        ),
        Driver::Memory => "driver = \"memory\"".into(),
    };
    format!(
        "\n[[link]]\nname = \"{device}\"\nneighbour = \"{}\"\n{transport}\nrate = \"{}bit/s\"\n\
         prediction_error = \"{PREDICTION_ERROR}\"\n{more}\n",
        spec.hosts[neighbour], spec.links[number].rate.0,
    )
}

/// Who is next to `place` in a line of `hosts`.
pub fn neighbours(place: usize, hosts: usize) -> impl Iterator<Item = usize> {
    [place.checked_sub(1), Some(place + 1).filter(|&next| next < hosts)].into_iter().flatten()
}

/// The hops from `place` to `target` in a line, without `place`.
fn way(place: usize, target: usize) -> Box<dyn Iterator<Item = usize>> {
    if target > place { Box::new(place + 1..=target) } else { Box::new((target..place).rev()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_walked_both_ways() {
        assert_eq!(way(0, 2).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(way(2, 0).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(neighbours(0, 3).collect::<Vec<_>>(), [1]);
        assert_eq!(neighbours(1, 3).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(neighbours(2, 3).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn keys_differ_and_have_their_length() {
        let (one, other) = (domain_key().expect("a key"), domain_key().expect("a key"));
        assert_eq!(one.len(), 64);
        assert_ne!(one, other);
    }
}
