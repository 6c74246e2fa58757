//! The configuration of a daemon for its place in a network.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Context;
use punctual_host::config::Driver;
use punctual_os::random_u64;
use serde::{Deserialize, Serialize};

use super::network::{NetworkSpec, address};

/// How late a packet may come after what its slack predicts before its neighbour is taken to misbehave. A platform
/// hole of a few milliseconds is no misbehaviour: with less, the messages that it delayed a little would be
/// demoted and then wait behind the flood. It costs buffers, not time.
const PREDICTION_ERROR: &str = "10ms";

/// One end of a link of two real machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Address of the host on the link.
    pub address: Ipv4Addr,
    /// Network interface of the host on the link.
    pub device: String,
}

/// What differs between experiments.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What carries the links.
    pub driver: Driver,
    /// The CPU of each host's processor by its place in the line; none: wherever the system puts them.
    pub cpus: Vec<u32>,
    /// Further lines for `[processor]`.
    pub processor: String,
    /// Whether processors measure the costs of their work as they start; otherwise they use assumed or given
    /// costs.
    pub measure: bool,
    /// The ends of the only link, if it does not belong to a test setup.
    pub ends: Option<[End; 2]>,
    /// Whether the processors run in the real-time class. Otherwise nothing is guaranteed.
    pub real_time: bool,
    /// Further lines for `[node]`.
    pub node: String,
    /// Further lines for every `[[link]]`.
    pub link: String,
}

/// A key for a domain that exists as long as the run, in hexadecimal.
///
/// # Errors
/// If the kernel gives no random bytes.
pub fn domain_key() -> anyhow::Result<String> {
    let words: Result<Vec<String>, _> =
        (0..4).map(|_| random_u64().map(|word| format!("{word:016x}"))).collect();
    Ok(words.context("no random bytes for a domain key")?.concat())
}

/// The TOML of host number `place` of the line.
pub fn text(spec: &NetworkSpec, place: usize, options: &Options, key: &str, socket: &Path) -> String {
    let cpu = options.cpus.get(place).map(|cpu| format!("cpu = {cpu}\n")).unwrap_or_default();
    let mut text = format!(
        "[node]\nname = \"{}\"\n{}\n\n[processor]\nbest_effort_host = {}\nprofile_measure = {}\n{cpu}{}\n[daemon]\nsocket = \"{}\"\n\n\
         [signalling]\nkey = \"{key}\"\nhello = \"250ms\"\n",
        spec.hosts[place],
        options.node,
        !options.real_time,
        options.measure,
        options.processor,
        socket.display(),
    );
    for (index, name) in spec.hosts.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(text, "\n[[host]]\nname = \"{name}\"\nid = {}\n", index + 1);
    }
    for neighbour in neighbours(place, spec.hosts.len()) {
        text += &link(spec, place, neighbour, options);
    }
    for target in (0..spec.hosts.len()).filter(|&target| target != place) {
        let via: Vec<String> = way(place, target).map(|hop| format!("\"{}\"", spec.hosts[hop])).collect();
        let _ = write!(text, "\n[[route]]\nvia = [{}]\n", via.join(", "));
    }
    text
}

fn link(spec: &NetworkSpec, place: usize, neighbour: usize, options: &Options) -> String {
    let rightwards = neighbour > place;
    let number = place.min(neighbour);
    let name = if rightwards { "right" } else { "left" };
    let mut transport = format!("driver = \"{}\"", options.driver.name());
    if options.driver.has_wire() {
        let [own, peer] = ends(number, rightwards, options);
        transport += &format!(
            "\nkernel_traffic = \"exclusive\"\ndevice = \"{}\"\nlocal = \"{}\"\npeer = \"{}\"",
            own.device, own.address, peer.address
        );
    }
    format!(
        "\n[[link]]\nname = \"{name}\"\nneighbour = \"{}\"\n{transport}\nrate = \"{}bit/s\"\n\
         prediction_error = \"{PREDICTION_ERROR}\"\n{}\n",
        spec.hosts[neighbour], spec.links[number].rate.0, options.link,
    )
}

/// Our end of link `number` and the other one.
fn ends(number: usize, rightwards: bool, options: &Options) -> [End; 2] {
    let end = |side: u8, device: &str| End { address: address(number, side), device: device.into() };
    let [left, right] = options.ends.clone().unwrap_or_else(|| [end(1, "right"), end(2, "left")]);
    if rightwards { [left, right] } else { [right, left] }
}

/// The hosts next to `place` in a line of `hosts`.
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
