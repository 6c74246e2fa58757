//! Object keys: how this ORB's references name an object.
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | `PKO` and the version 1 |
//! | 1 | bit 0: persistent; bit 1: the application chose the identifier |
//! | 3 | 0 |
//! | 8 | the process that made the reference |
//! | 8 | the adapter's place |
//! | 8 | the object's place; all ones: none |
//! | 2 | persistent only: how many names the adapter has, then each with its length (2) |
//! | rest | the object's identifier |
//!
//! Places have a generation in them: one that is used again does not answer to old keys. A key of an earlier
//! process is found by names and identifier.

/// The identifier of an object within its adapter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectId {
    /// A number that the adapter chose.
    System(u64),
    /// Bytes that the application chose.
    User(Box<[u8]>),
}

impl From<&str> for ObjectId {
    fn from(name: &str) -> Self {
        Self::User(name.as_bytes().into())
    }
}

impl From<&[u8]> for ObjectId {
    fn from(bytes: &[u8]) -> Self {
        Self::User(bytes.into())
    }
}

impl ObjectId {
    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::System(number) => to.extend_from_slice(&number.to_le_bytes()),
            Self::User(bytes) => to.extend_from_slice(bytes),
        }
    }
}

const MAGIC: [u8; 4] = *b"PKO\x01";
const PERSISTENT: u8 = 1;
const USER_ID: u8 = 2;
/// Bytes before the names and the identifier.
const HEAD: usize = 32;
/// The place of objects that have none.
pub(crate) const NOWHERE: usize = usize::MAX;

/// What a key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key<'a> {
    pub process: u64,
    pub adapter: usize,
    pub object: usize,
    is_user_id: bool,
    /// Names of the adapter, as they are in the key; `None` if it is transient.
    names: Option<&'a [u8]>,
    id: &'a [u8],
}

impl<'a> Key<'a> {
    /// Reads a key. `None` if it is none of this kind of ORB.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>()?;
        let (magic, numbers) = head.split_first_chunk::<8>()?;
        let flags = magic[4];
        if magic[..4] != MAGIC || flags > PERSISTENT | USER_ID {
            return None;
        }
        let number = |at: usize| Some(u64::from_le_bytes(*numbers[at * 8..].first_chunk()?));
        let (names, id) = if flags & PERSISTENT == 0 { (None, rest) } else { split_names(rest)? };
        let is_user_id = flags & USER_ID != 0;
        if !is_user_id && id.len() != 8 {
            return None;
        }
        Some(Self {
            process: number(0)?,
            adapter: number(1)? as usize,
            object: number(2)? as usize,
            is_user_id,
            names,
            id,
        })
    }

    /// Whether bytes begin as keys of this kind of ORB do.
    pub fn is(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// The object's identifier.
    pub fn id(&self) -> ObjectId {
        match self.id.first_chunk() {
            Some(number) if !self.is_user_id => ObjectId::System(u64::from_le_bytes(*number)),
            _ => ObjectId::User(self.id.into()),
        }
    }

    /// The names of the adapter from the root on, if it is persistent.
    pub fn names(&self) -> Option<impl Iterator<Item = &'a str>> {
        let mut rest = self.names?;
        Some(std::iter::from_fn(move || {
            let (name, behind) = split_name(rest)?;
            rest = behind;
            str::from_utf8(name).ok()
        }))
    }
}

fn split_name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u16::from_le_bytes(*length).into())
}

/// The bytes of all names, and what is behind.
fn split_names(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (count, begin) = bytes.split_first_chunk()?;
    let mut rest = begin;
    for _ in 0..u16::from_le_bytes(*count) {
        let (name, behind) = split_name(rest)?;
        str::from_utf8(name).ok()?;
        rest = behind;
    }
    Some((Some(&begin[..begin.len() - rest.len()]), rest))
}

/// The identifier of the object with this key.
pub(crate) fn id_of_key(bytes: &[u8]) -> Option<ObjectId> {
    Key::parse(bytes).map(|key| key.id())
}

/// The bytes of a key. `names` are those of a persistent adapter.
pub(crate) fn write(
    process: u64,
    adapter: usize,
    object: usize,
    names: Option<&[Box<str>]>,
    id: &ObjectId,
) -> Vec<u8> {
    let mut to = MAGIC.to_vec();
    let persistent = if names.is_some() { PERSISTENT } else { 0 };
    let user = if matches!(id, ObjectId::User(_)) { USER_ID } else { 0 };
    to.extend_from_slice(&[persistent | user, 0, 0, 0]);
    for number in [process, adapter as u64, object as u64] {
        to.extend_from_slice(&number.to_le_bytes());
    }
    if let Some(names) = names {
        to.extend_from_slice(&(names.len() as u16).to_le_bytes());
        for name in names {
            to.extend_from_slice(&(name.len() as u16).to_le_bytes());
            to.extend_from_slice(name.as_bytes());
        }
    }
    id.write(&mut to);
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_and_every_shorter_one_is_refused_or_another() {
        let names = ["one".into(), "zwei".into()];
        for (names, id) in [
            (None, ObjectId::System(7)),
            (Some(&names[..]), ObjectId::System(7)),
            (Some(&names[..]), "x".into()),
        ] {
            let bytes = write(1, 2, 3, names, &id);
            let key = Key::parse(&bytes).expect("a key");
            assert_eq!((key.process, key.adapter, key.object, key.id()), (1, 2, 3, id));
            let read: Option<Vec<&str>> = key.names().map(Iterator::collect);
            assert_eq!(read, names.map(|_| vec!["one", "zwei"]));
            for end in 0..HEAD {
                assert_eq!(Key::parse(&bytes[..end]), None);
            }
        }
    }
}
