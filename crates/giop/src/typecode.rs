//! Descriptions of types (CORBA 15.3.5.1).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::limits::{TYPE_NAMES_BYTES_MAX, TYPE_NODES_MAX};
use crate::value::{Decode, Encode, string_bytes};
use crate::{Bounded, ByteOrder, Decoder, Encoder, Error, Reference};

/// Types that are being described: one that is in itself refers to its own description.
#[derive(Debug, Default)]
pub struct Describing {
    ids: Vec<&'static str>,
}

impl Describing {
    /// The description that `describe` gives of the type `id`, or a reference if it is being described.
    pub fn once(
        &mut self,
        id: &'static str,
        name: &str,
        describe: impl FnOnce(&mut Self, Named) -> TypeCode,
    ) -> TypeCode {
        if self.ids.contains(&id) {
            return TypeCode::Recursive(id.into());
        }
        self.ids.push(id);
        let code = describe(self, Named { id: id.into(), name: name.into() });
        self.ids.pop();
        code
    }
}

/// A member of a description.
pub fn member(name: &str, type_: TypeCode) -> Member {
    Member { name: name.into(), type_ }
}

/// A value whose type has a description.
pub trait Typed {
    /// The description, within those that are being described.
    fn describe(within: &mut Describing) -> TypeCode;

    /// The description.
    fn type_code() -> TypeCode {
        Self::describe(&mut Describing::default())
    }
}

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
}

/// Descriptions around the present one: where they begin, and their identifiers.
type Open = Vec<(usize, String)>;

impl Encode for TypeCode {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        write(self, to, &mut Open::new())
    }
}

fn write(code: &TypeCode, to: &mut Encoder, open: &mut Open) -> Result<(), Error> {
    to.align(4);
    let begin = to.place();
    match code {
        TypeCode::Simple(kind) => kind.encode(to),
        TypeCode::String(bound, is_wide) => {
            let kind = if *is_wide { kind::WSTRING } else { kind::STRING };
            kind.encode(to)?;
            bound.encode(to)
        }
        TypeCode::Fixed(digits, scale) => {
            kind::FIXED.encode(to)?;
            digits.encode(to)?;
            scale.encode(to)
        }
        TypeCode::Recursive(id) => {
            let of = open.iter().rev().find(|(_, open)| open == id).ok_or(Error::TypeCode)?.0;
            INDIRECTION.encode(to)?;
            let back = i32::try_from(to.place() - of).map_err(|_| Error::TypeCode)?;
            (-back).encode(to)
        }
        complex => {
            complex.kind().encode(to)?;
            open.push((begin, complex.id().into()));
            let written = to.encapsulation(|to| write_parameters(complex, to, open));
            open.pop();
            written
        }
    }
}

impl TypeCode {
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

fn write_parameters(code: &TypeCode, to: &mut Encoder, open: &mut Open) -> Result<(), Error> {
    let named = |named: &Named, to: &mut Encoder| {
        named.id.encode(to)?;
        named.name.encode(to)
    };
    match code {
        TypeCode::Reference(_, of) => named(of, to),
        TypeCode::Struct(of, members) | TypeCode::Exception(of, members) => {
            named(of, to)?;
            to.length(members.len())?;
            members.iter().try_for_each(|member| {
                member.name.encode(to)?;
                write(&member.type_, to, open)
            })
        }
        TypeCode::Union(of, discriminator, arms, default) => {
            named(of, to)?;
            write(discriminator, to, open)?;
            default.map_or(-1, |index| index as i32).encode(to)?;
            to.length(arms.len())?;
            for (number, arm) in arms.iter().enumerate() {
                match default {
                    // The label of the default arm is the octet 0.
                    Some(index) if *index as usize == number => 0u8.encode(to)?,
                    _ => write_label(discriminator, arm.label, to)?,
                }
                arm.member.name.encode(to)?;
                write(&arm.member.type_, to, open)?;
            }
            Ok(())
        }
        TypeCode::Enum(of, names) => {
            named(of, to)?;
            names.encode(to)
        }
        TypeCode::Sequence(element, length) | TypeCode::Array(element, length) => {
            write(element, to, open)?;
            length.encode(to)
        }
        TypeCode::Alias(of, aliased) => {
            named(of, to)?;
            write(aliased, to, open)
        }
        _ => Ok(()),
    }
}

fn write_label(discriminator: &TypeCode, label: i64, to: &mut Encoder) -> Result<(), Error> {
    match discriminator.unaliased() {
        TypeCode::Simple(kind::SHORT) => (label as i16).encode(to),
        TypeCode::Simple(kind::USHORT) => (label as u16).encode(to),
        TypeCode::Simple(kind::LONG) => (label as i32).encode(to),
        TypeCode::Simple(kind::ULONG) | TypeCode::Enum(..) => (label as u32).encode(to),
        TypeCode::Simple(kind::LONGLONG | kind::ULONGLONG) => label.encode(to),
        TypeCode::Simple(kind::BOOLEAN | kind::CHAR | kind::OCTET) => (label as u8).encode(to),
        TypeCode::Simple(kind::WCHAR) => crate::WChar(label as u16).encode(to),
        _ => Err(Error::TypeCode),
    }
}

/// Reads a label, or the discriminator of a value.
pub(crate) fn read_label(discriminator: &TypeCode, from: &mut Decoder<'_>) -> Result<i64, Error> {
    Ok(match discriminator.unaliased() {
        TypeCode::Simple(kind::SHORT) => i16::decode(from)?.into(),
        TypeCode::Simple(kind::USHORT) => u16::decode(from)?.into(),
        TypeCode::Simple(kind::LONG) => i32::decode(from)?.into(),
        TypeCode::Simple(kind::ULONG) | TypeCode::Enum(..) => u32::decode(from)?.into(),
        TypeCode::Simple(kind::LONGLONG | kind::ULONGLONG) => i64::decode(from)?,
        TypeCode::Simple(kind::BOOLEAN) => bool::decode(from)?.into(),
        TypeCode::Simple(kind::CHAR | kind::OCTET) => u8::decode(from)?.into(),
        TypeCode::Simple(kind::WCHAR) => crate::WChar::decode(from)?.0.into(),
        _ => return Err(Error::TypeCode),
    })
}

/// Reads descriptions of somebody else.
struct Reader {
    open: Open,
    nodes: usize,
    names_bytes: usize,
}

impl Decode for TypeCode {
    const BYTES_MIN: usize = 4;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        Reader { open: Open::new(), nodes: 0, names_bytes: 0 }.code(from)
    }
}

impl Reader {
    fn code(&mut self, from: &mut Decoder<'_>) -> Result<TypeCode, Error> {
        self.nodes += 1;
        if self.nodes > TYPE_NODES_MAX {
            return Err(Error::TypeCode);
        }
        from.align(4)?;
        let begin = from.place();
        match u32::decode(from)? {
            kind @ (kind::NULL..=kind::PRINCIPAL | kind::LONGLONG..=kind::WCHAR) => {
                Ok(TypeCode::Simple(kind))
            }
            kind @ (kind::STRING | kind::WSTRING) => {
                Ok(TypeCode::String(u32::decode(from)?, kind == kind::WSTRING))
            }
            kind::FIXED => Ok(TypeCode::Fixed(u16::decode(from)?, i16::decode(from)?)),
            INDIRECTION => self.indirection(from),
            kind => from.encapsulation(|from| self.complex(begin, kind, from)),
        }
    }

    /// A description that is there already: around this one, or before it.
    fn indirection(&mut self, from: &mut Decoder<'_>) -> Result<TypeCode, Error> {
        let here = from.place();
        let offset = i64::from(i32::decode(from)?);
        let target = usize::try_from(here as i64 + offset).map_err(|_| Error::TypeCode)?;
        if target >= here {
            return Err(Error::TypeCode);
        }
        if let Some((_, id)) = self.open.iter().find(|(begin, _)| *begin == target) {
            // Without an identifier nothing could refer to it.
            return if id.is_empty() { Err(Error::TypeCode) } else { Ok(TypeCode::Recursive(id.clone())) };
        }
        let mut before = from.back_to(target)?;
        before.deeper(|before| self.code(before))
    }

    fn complex(&mut self, begin: usize, kind: u32, from: &mut Decoder<'_>) -> Result<TypeCode, Error> {
        if let kind::SEQUENCE | kind::ARRAY = kind {
            self.open.push((begin, String::new()));
            let element = self.code(from);
            self.open.pop();
            let (element, length) = (Box::new(element?), u32::decode(from)?);
            return Ok(match kind {
                kind::SEQUENCE => TypeCode::Sequence(element, length),
                _ => TypeCode::Array(element, length),
            });
        }
        let named = Named { id: self.text(from)?, name: self.text(from)? };
        self.open.push((begin, named.id.clone()));
        let read = self.named(kind, named, from);
        self.open.pop();
        read
    }

    fn named(&mut self, kind: u32, named: Named, from: &mut Decoder<'_>) -> Result<TypeCode, Error> {
        Ok(match kind {
            kind::OBJREF | kind::NATIVE..=kind::LOCAL_INTERFACE => TypeCode::Reference(kind, named),
            kind::STRUCT => TypeCode::Struct(named, self.members(from)?),
            kind::EXCEPT => TypeCode::Exception(named, self.members(from)?),
            kind::UNION => self.union(named, from)?,
            kind::ENUM => {
                let count = from.length(4)?;
                TypeCode::Enum(named, (0..count).map(|_| self.text(from)).collect::<Result<_, _>>()?)
            }
            kind::ALIAS => TypeCode::Alias(named, Box::new(self.code(from)?)),
            _ => return Err(Error::TypeCode),
        })
    }

    /// Names are in Latin-1 or UTF-8.
    fn text(&mut self, from: &mut Decoder<'_>) -> Result<String, Error> {
        let bytes = string_bytes(from)?;
        self.names_bytes += bytes.len();
        if self.names_bytes > TYPE_NAMES_BYTES_MAX {
            return Err(Error::TypeCode);
        }
        let text = core::str::from_utf8(bytes).map(String::from);
        Ok(text.unwrap_or_else(|_| bytes.iter().copied().map(char::from).collect()))
    }

    fn members(&mut self, from: &mut Decoder<'_>) -> Result<Vec<Member>, Error> {
        let count = from.length(8)?;
        (0..count).map(|_| self.member(from)).collect()
    }

    fn member(&mut self, from: &mut Decoder<'_>) -> Result<Member, Error> {
        Ok(Member { name: self.text(from)?, type_: self.code(from)? })
    }

    fn union(&mut self, named: Named, from: &mut Decoder<'_>) -> Result<TypeCode, Error> {
        let discriminator = self.code(from)?;
        let default = i32::decode(from)?;
        let count = from.length(9)?;
        let default = u32::try_from(default).ok();
        let mut arms = Vec::new();
        for number in 0..count {
            let is_default = default.is_some_and(|index| index as usize == number);
            let label = if is_default { u8::decode(from)?.into() } else { read_label(&discriminator, from)? };
            arms.push(Arm { label, member: self.member(from)? });
        }
        match default {
            Some(index) if index as usize >= count => Err(Error::TypeCode),
            _ => Ok(TypeCode::Union(named, Box::new(discriminator), arms, default)),
        }
    }
}

/// The order of encapsulated values.
pub(crate) const ORDER: ByteOrder = ByteOrder::NATIVE;

macro_rules! typed {
    ($($type:ty => $kind:ident),*) => { $(
        impl Typed for $type {
            fn describe(_: &mut Describing) -> TypeCode {
                TypeCode::Simple(kind::$kind)
            }
        }
    )* };
}

typed!(
    i16 => SHORT, u16 => USHORT, i32 => LONG, u32 => ULONG, i64 => LONGLONG, u64 => ULONGLONG, f32 => FLOAT,
    f64 => DOUBLE, crate::value::LongDouble => LONGDOUBLE, bool => BOOLEAN, char => CHAR, crate::WChar => WCHAR,
    u8 => OCTET, i8 => OCTET, crate::Any => ANY, TypeCode => TYPE_CODE
);

impl Typed for String {
    fn describe(_: &mut Describing) -> TypeCode {
        TypeCode::String(0, false)
    }
}

impl Typed for crate::WString {
    fn describe(_: &mut Describing) -> TypeCode {
        TypeCode::String(0, true)
    }
}

impl<const DIGITS: u16, const SCALE: i16> Typed for crate::Fixed<DIGITS, SCALE> {
    fn describe(_: &mut Describing) -> TypeCode {
        TypeCode::Fixed(DIGITS, SCALE)
    }
}

impl<T: Typed> Typed for Vec<T> {
    fn describe(within: &mut Describing) -> TypeCode {
        TypeCode::Sequence(Box::new(T::describe(within)), 0)
    }
}

impl<T: Typed, const N: u32> Typed for Bounded<Vec<T>, N> {
    fn describe(within: &mut Describing) -> TypeCode {
        TypeCode::Sequence(Box::new(T::describe(within)), N)
    }
}

impl<const N: u32> Typed for Bounded<String, N> {
    fn describe(_: &mut Describing) -> TypeCode {
        TypeCode::String(N, false)
    }
}

impl<const N: u32> Typed for Bounded<crate::WString, N> {
    fn describe(_: &mut Describing) -> TypeCode {
        TypeCode::String(N, true)
    }
}

impl Typed for Reference {
    fn describe(_: &mut Describing) -> TypeCode {
        TypeCode::Reference(
            kind::OBJREF,
            Named { id: "IDL:omg.org/CORBA/Object:1.0".into(), name: "Object".into() },
        )
    }
}

impl<T: Typed, const N: usize> Typed for [T; N] {
    fn describe(within: &mut Describing) -> TypeCode {
        TypeCode::Array(Box::new(T::describe(within)), N as u32)
    }
}
