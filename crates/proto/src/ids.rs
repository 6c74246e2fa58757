//! Identifiers of nodes, channels, paths, links and handlers. Each has its own type, so that they cannot be confused.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::NAME_BYTES_MAX;

/// A node of the domain; unique, from the configuration. 0 is never a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Identifies one run of a node between two restarts: a boot count, or 64 random bits if no count can be
/// kept. It distinguishes a restart from a delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// A channel's number at its source: guaranteed channels have the lower half, flows of best effort the upper one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChannelNumber(pub u32);

impl ChannelNumber {
    /// Size of each half.
    const COUNT: u32 = 1 << 31;

    /// The next guaranteed channel number after this one that is not taken: calls `is_taken` once for each
    /// number that is. After the last number they begin again at the first, which is 1, so a user who opens
    /// and closes repeatedly gets no number of another user's channel.
    pub fn next_free(self, is_taken: impl Fn(Self) -> bool) -> Self {
        let mut number = self;
        loop {
            number = Self(((number.0 + 1) % Self::COUNT).max(1));
            if !is_taken(number) {
                return number;
            }
        }
    }

    /// Whether a flow may have the same number as another flow, because handles were given more than 2^31
    /// times.
    pub const fn comes_again(flow: ChannelId) -> bool {
        flow.0 >= Self::COUNT as u64
    }

    /// The number of a best-effort flow. The numbers of 2^31 consecutive handles differ.
    pub const fn of_flow(flow: ChannelId) -> Self {
        Self(Self::COUNT | (flow.0 % Self::COUNT as u64) as u32)
    }
}

/// Names a channel on every hop: (source node, channel number, epoch of the source).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PathId {
    /// The source.
    pub node: NodeId,
    /// The channel's number there.
    pub channel: ChannelNumber,
    /// Epoch of the source.
    pub epoch: Epoch,
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.channel.0)
    }
}

/// 32 random bits of a channel that the source chooses and the hops store: every data packet carries them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cookie(pub u32);

/// A link of this node: its index in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LinkId(pub u16);

/// A handler of the processor's executor; valid from the handler's addition to its removal, and given again afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandlerId(pub u32);

/// A local handle of a channel's or best-effort flow's end at this node; never reused before the node
/// restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChannelId(pub u64);

/// A local handle of a listener; never reused before the node restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ListenerId(pub u64);

/// A name of a host or a port: 1 to 63 bytes of letters, digits, `-`, `_`, `.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// The text is no valid name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is no name: use 1 to 63 letters, digits, '-', '_' or '.'")]
pub struct NameError {
    /// The beginning of the text.
    pub text: String,
}

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// If it is empty, too long or has other characters.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let fits = (1..=NAME_BYTES_MAX).contains(&text.len());
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if fits && plain {
            Ok(Self(text.into()))
        } else {
            Err(NameError { text: text.chars().take(NAME_BYTES_MAX).collect() })
        }
    }
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// The one of `names` of which this is probably a misspelling: one letter in three, two at most, differ.
    pub fn slip_of<'a>(&self, names: impl Iterator<Item = &'a Self>) -> Option<&'a Self> {
        let slips_max = (self.0.len() / 3).min(2);
        let near = names.map(|name| (slips(&self.0, &name.0), name)).min_by_key(|(slips, _)| *slips);
        near.filter(|(slips, _)| *slips <= slips_max).map(|(_, name)| name)
    }
    /// 32 bits of the name for the header of best-effort packets (FNV-1a).
    pub fn port_hash(&self) -> u32 {
        self.0.bytes().fold(0x811c_9dc5, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193))
    }
}

/// Edit distance: letters to change, add or leave out (Levenshtein).
fn slips(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = core::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.bytes().enumerate() {
            let change = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

impl TryFrom<String> for Name {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        Self::new(&text)
    }
}
impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Address of a listener: `port@host`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address {
    /// The listener's name.
    pub port: Name,
    /// The host's name.
    pub host: Name,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.port, self.host)
    }
}
impl core::str::FromStr for Address {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let (port, host) = text.split_once('@').ok_or_else(|| NameError { text: text.into() })?;
        Ok(Self { port: Name::new(port)?, host: Name::new(host)? })
    }
}

/// Role of a node for a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The channel starts here.
    Source,
    /// The channel passes through.
    Forwarder,
    /// The channel ends here.
    Sink,
}

/// One life of one end of a link: a node that gives up a neighbour starts a new session with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Epoch of the host.
    pub epoch: Epoch,
    /// Number of the host's session with this neighbour.
    pub session: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_channels_and_flows_never_meet() {
        let last = ChannelNumber((1 << 31) - 1);
        assert_eq!(ChannelNumber(0).next_free(|_| false), ChannelNumber(1));
        assert_eq!(ChannelNumber(last.0 - 1).next_free(|_| false), last);
        let taken = [1, 2, 4].map(ChannelNumber);
        assert_eq!(
            last.next_free(|number| taken.contains(&number)),
            ChannelNumber(3),
            "those in use are kept"
        );
        assert_eq!(ChannelNumber::of_flow(ChannelId(5)), ChannelNumber((1 << 31) + 5));
        assert_eq!(ChannelNumber::of_flow(ChannelId((7 << 31) + 5)), ChannelNumber((1 << 31) + 5));
        let again =
            [1, (1 << 31) - 1, 1 << 31, 7 << 31].map(|flow| ChannelNumber::comes_again(ChannelId(flow)));
        assert_eq!(again, [false, false, true, true]);
    }

    #[test]
    fn a_slip_is_near_and_anything_else_is_another_name() {
        let name = |text: &str| Name::new(text).expect("a name");
        let known = ["camera", "hostb", "hostc", "a"].map(name);
        let slip_of = |text: &str| name(text).slip_of(known.iter()).map(Name::as_str);
        assert_eq!(slip_of("hotsb"), None, "two letters of five");
        assert_eq!(slip_of("hstb"), Some("hostb"));
        assert_eq!(slip_of("camrea"), Some("camera"));
        assert_eq!(slip_of("kamera"), Some("camera"));
        assert_eq!(slip_of("b"), None, "too short to tell");
        assert_eq!(slip_of("somewhere"), None);
        let long = [name("observatory")];
        let slip_of = |text: &str| name(text).slip_of(long.iter()).is_some();
        assert!(
            slip_of("observatxxy") && !slip_of("observaxxxy"),
            "two letters at most, however long the name is"
        );
        assert_eq!((slips("kitten", "sitting"), slips("", "abc"), slips("abc", "")), (3, 3, 3));
    }

    #[test]
    fn a_name_has_1_to_63_letters_digits_and_marks() {
        for (length, fits) in [(0, false), (1, true), (2, true), (62, true), (63, true), (64, false)] {
            assert_eq!(Name::new(&"x".repeat(length)).is_ok(), fits, "{length}");
        }
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        let taken = |byte: u8| Name::new(&alloc::format!("a{}", char::from(byte))).is_ok();
        assert!((0..=u8::MAX).all(|byte| taken(byte) == plain(&byte)));
        let long = Name::new(&"@".repeat(70)).expect_err("no name");
        assert_eq!(long.text.len(), 63, "its beginning");
    }

    /// The number of changes from the definition: drop a letter of either, or go on behind both.
    fn slips_by_definition(a: &[u8], b: &[u8]) -> usize {
        let ([first, rest @ ..], [other, others @ ..]) = (a, b) else { return a.len() + b.len() };
        let both = slips_by_definition(rest, others) + usize::from(first != other);
        let one = slips_by_definition(rest, b).min(slips_by_definition(a, others)) + 1;
        both.min(one)
    }

    #[test]
    fn slips_are_the_fewest_changes_that_make_one_text_of_another() {
        let mut texts = alloc::vec![String::new()];
        for at in 0.. {
            let text: String = texts[at].clone();
            if text.len() == 4 {
                break;
            }
            texts.extend(["a", "b"].map(|letter| text.clone() + letter));
        }
        texts.extend(["abcd", "dcba", "bcda", "abd", "cabd"].map(String::from));
        for (a, b) in texts.iter().flat_map(|a| texts.iter().map(move |b| (a, b))) {
            assert_eq!(slips(a, b), slips_by_definition(a.as_bytes(), b.as_bytes()), "{a:?} {b:?}");
        }
    }

    /// The values that the authors of FNV-1a publish for 32 bits.
    #[test]
    fn a_port_is_hashed_as_published() {
        let hash = |text: &str| Name::new(text).expect("a name").port_hash();
        assert_eq!(["a", "b", "foobar"].map(hash), [0xe40c_292c, 0xe70c_2de5, 0xbf9c_f968]);
    }
}
