//! Descriptions of types (CORBA 15.3.5.1).
//!
//! | module | owns |
//! |---|---|
//! | `describe` | which Rust type has which description |
//! | `write`, `read` | descriptions as bytes |
//! | `label` | labels of unions |

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::ByteOrder;

mod describe;
mod label;
mod read;
mod write;

pub use describe::{Describing, Typed, member};
pub(crate) use label::read_label;

/// A name and its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name, which may be empty.
    pub name: String,
    /// Its type.
    pub type_: TypeCode,
}

/// An arm of a union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// The discriminator; of the default arm, 0.
    pub label: i64,
    /// Its member.
    pub member: Member,
}

/// What a named type is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The repository identifier.
    pub id: String,
    /// The name, which may be empty.
    pub name: String,
}

/// A description of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeCode {
    /// A kind without parameters: null, void, numbers, boolean, characters, octet, any, TypeCode, Principal.
    Simple(u32),
    /// A string with at most so many characters, or 0; wide or not.
    String(u32, bool),
    /// Fixed-point numbers: digits and scale.
    Fixed(u16, i16),
    /// A reference to an object; kinds 14, 31, 32 and 33.
    Reference(u32, Named),
    /// A structure.
    Struct(Named, Vec<Member>),
    /// An exception.
    Exception(Named, Vec<Member>),
    /// A union: the discriminator's type, the arms, and which is the default.
    Union(Named, Box<TypeCode>, Vec<Arm>, Option<u32>),
    /// An enumeration: its enumerators.
    Enum(Named, Vec<String>),
    /// A sequence with at most so many elements, or 0.
    Sequence(Box<TypeCode>, u32),
    /// An array.
    Array(Box<TypeCode>, u32),
    /// Another name for a type.
    Alias(Named, Box<TypeCode>),
    /// A structure or union around this one, by its repository identifier.
    Recursive(String),
}

/// Kinds (CORBA 4.11.1).
pub mod kind {
    #![allow(missing_docs, reason = "the names are those of the standard")]
    pub const NULL: u32 = 0;
    pub const VOID: u32 = 1;
    pub const SHORT: u32 = 2;
    pub const LONG: u32 = 3;
    pub const USHORT: u32 = 4;
    pub const ULONG: u32 = 5;
    pub const FLOAT: u32 = 6;
    pub const DOUBLE: u32 = 7;
    pub const BOOLEAN: u32 = 8;
    pub const CHAR: u32 = 9;
    pub const OCTET: u32 = 10;
    pub const ANY: u32 = 11;
    pub const TYPE_CODE: u32 = 12;
    pub const PRINCIPAL: u32 = 13;
    pub const OBJREF: u32 = 14;
    pub const STRUCT: u32 = 15;
    pub const UNION: u32 = 16;
    pub const ENUM: u32 = 17;
    pub const STRING: u32 = 18;
    pub const SEQUENCE: u32 = 19;
    pub const ARRAY: u32 = 20;
    pub const ALIAS: u32 = 21;
    pub const EXCEPT: u32 = 22;
    pub const LONGLONG: u32 = 23;
    pub const ULONGLONG: u32 = 24;
    pub const LONGDOUBLE: u32 = 25;
    pub const WCHAR: u32 = 26;
    pub const WSTRING: u32 = 27;
    pub const FIXED: u32 = 28;
    pub const NATIVE: u32 = 31;
    pub const LOCAL_INTERFACE: u32 = 33;
}

/// An indirection instead of a kind.
const INDIRECTION: u32 = u32::MAX;

impl TypeCode {
    /// The type behind aliases.
    pub fn unaliased(&self) -> &Self {
        let mut here = self;
        while let Self::Alias(_, of) = here {
            here = of;
        }
        here
    }

    fn kind(&self) -> u32 {
        match self {
            Self::Simple(kind) | Self::Reference(kind, _) => *kind,
            Self::String(_, false) => kind::STRING,
            Self::String(_, true) => kind::WSTRING,
            Self::Fixed(..) => kind::FIXED,
            Self::Struct(..) => kind::STRUCT,
            Self::Exception(..) => kind::EXCEPT,
            Self::Union(..) => kind::UNION,
            Self::Enum(..) => kind::ENUM,
            Self::Sequence(..) => kind::SEQUENCE,
            Self::Array(..) => kind::ARRAY,
            Self::Alias(..) => kind::ALIAS,
            Self::Recursive(_) => INDIRECTION,
        }
    }

    /// The repository identifier, empty if the type has none.
    pub fn id(&self) -> &str {
        match self {
            Self::Reference(_, named)
            | Self::Struct(named, _)
            | Self::Exception(named, _)
            | Self::Union(named, ..)
            | Self::Enum(named, _)
            | Self::Alias(named, _) => &named.id,
            Self::Recursive(id) => id,
            _ => "",
        }
    }
}

/// Descriptions around the present one: where they begin, and their identifiers.
type Open = Vec<(usize, String)>;

/// The order of encapsulated values.
pub(crate) const ORDER: ByteOrder = ByteOrder::NATIVE;
