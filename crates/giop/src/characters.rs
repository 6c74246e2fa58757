//! The code sets of characters that this ORB understands.

/// The number of a code set in the registry of OSF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CodeSetId(pub u32);

impl CodeSetId {
    /// ISO 8859-1, Latin-1.
    pub const ISO_8859_1: Self = Self(0x0001_0001);
    /// UTF-8.
    pub const UTF_8: Self = Self(0x0501_0001);
    /// UTF-16.
    pub const UTF_16: Self = Self(0x0001_0109);

    /// Its name, if this ORB understands it.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::ISO_8859_1 => Some("ISO 8859-1"),
            Self::UTF_8 => Some("UTF-8"),
            Self::UTF_16 => Some("UTF-16"),
            _ => None,
        }
    }
}

/// The code set of characters on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CharacterSet {
    /// Each character of Unicode.
    #[default]
    Utf8,
    /// The first 256 characters of Unicode, each a byte. The one without negotiation (CORBA 13.10.2.5).
    Latin1,
}

impl CharacterSet {
    /// Its number.
    pub fn id(self) -> CodeSetId {
        match self {
            Self::Utf8 => CodeSetId::UTF_8,
            Self::Latin1 => CodeSetId::ISO_8859_1,
        }
    }

    /// The one with this number, if this ORB understands it.
    pub fn from_id(id: CodeSetId) -> Option<Self> {
        [Self::Utf8, Self::Latin1].into_iter().find(|set| set.id() == id)
    }
}
