//! Values that bring the description of their type.

use alloc::string::String;
use alloc::vec::Vec;

use crate::bounded::Measure;
use crate::typecode::{Describing, ORDER, TypeCode, Typed, kind, read_label};
use crate::value::LongDouble;
use crate::{Decode, Decoder, Encode, Encoder, Error, Reference, Version, WChar, WString};

/// An `any`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Any {
    type_code: TypeCode,
    /// The value in the order of this machine, in the form of GIOP 1.2, aligned from its begin.
    value: Vec<u8>,
}

impl Default for Any {
    fn default() -> Self {
        Self { type_code: TypeCode::Simple(kind::NULL), value: Vec::new() }
    }
}

impl Any {
    /// An `any` with this value.
    ///
    /// # Errors
    /// If the value has no bytes.
    pub fn new<T: Typed + Encode>(value: &T) -> Result<Self, Error> {
        let mut to = Encoder::new(ORDER, Version::V1_2);
        value.encode(&mut to)?;
        Ok(Self { type_code: T::type_code(), value: to.into_bytes() })
    }

    /// The description of its value's type.
    pub fn type_code(&self) -> &TypeCode {
        &self.type_code
    }

    /// Its value, if it is a `T`. Names of members and aliases may differ.
    ///
    /// # Errors
    /// [`Error::Type`].
    pub fn get<T: Typed + Decode>(&self) -> Result<T, Error> {
        if !is_equivalent(&self.type_code, &T::type_code()) {
            return Err(Error::Type);
        }
        T::decode(&mut Decoder::new(&self.value, ORDER, Version::V1_2))
    }
}

impl Typed for Any {
    fn describe(_: &mut Describing) -> TypeCode {
        TypeCode::Simple(kind::ANY)
    }
}

/// Whether two types have the same values (CORBA 4.11.1.2: `equivalent`).
fn is_equivalent(one: &TypeCode, other: &TypeCode) -> bool {
    let (one, other) = (one.unaliased(), other.unaliased());
    if !one.id().is_empty() && !other.id().is_empty() {
        return one.id() == other.id();
    }
    match (one, other) {
        (TypeCode::Sequence(one, bound), TypeCode::Sequence(other, other_bound))
        | (TypeCode::Array(one, bound), TypeCode::Array(other, other_bound)) => {
            bound == other_bound && is_equivalent(one, other)
        }
        _ => one == other,
    }
}

impl Encode for Any {
    fn encode(&self, to: &mut Encoder) -> Result<(), Error> {
        self.type_code.encode(to)?;
        let mut from = Decoder::new(&self.value, ORDER, Version::V1_2);
        copy(&self.type_code, &mut Vec::new(), &mut from, to)
    }
}

impl Decode for Any {
    const BYTES_MIN: usize = 4;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        from.deeper(|from| {
            let type_code = TypeCode::decode(from)?;
            let mut to = Encoder::new(ORDER, Version::V1_2);
            copy(&type_code, &mut Vec::new(), from, &mut to)?;
            Ok(Self { type_code, value: to.into_bytes() })
        })
    }
}

/// Copies a `T` from one form to another.
fn one<T: Decode + Encode>(from: &mut Decoder<'_>, to: &mut Encoder) -> Result<(), Error> {
    T::decode(from)?.encode(to)
}

/// Types around the present one, to which a recursive one refers.
type Around<'a> = Vec<&'a TypeCode>;

/// Copies a value of this type from one order, alignment and version to another.
fn copy<'a>(
    code: &'a TypeCode,
    around: &mut Around<'a>,
    from: &mut Decoder<'_>,
    to: &mut Encoder,
) -> Result<(), Error> {
    match code {
        TypeCode::Simple(kind::ANY) => from.deeper(|from| {
            let code = TypeCode::decode(from)?;
            code.encode(to)?;
            copy(&code, &mut Vec::new(), from, to)
        }),
        TypeCode::Simple(kind) => copy_simple(*kind, from, to),
        TypeCode::String(0, false) => one::<String>(from, to),
        TypeCode::String(0, true) => one::<WString>(from, to),
        TypeCode::String(bound, false) => {
            let text = String::decode(from)?;
            within(text.measure(), *bound)?;
            text.encode(to)
        }
        TypeCode::String(bound, true) => {
            let text = WString::decode(from)?;
            within(text.measure(), *bound)?;
            text.encode(to)
        }
        TypeCode::Fixed(digits, _) if *digits <= crate::limits::FIXED_DIGITS_MAX => {
            to.write(from.read(crate::fixed::bytes(*digits))?);
            Ok(())
        }
        TypeCode::Reference(kind::OBJREF, _) => one::<Reference>(from, to),
        TypeCode::Enum(_, names) => {
            let number = u32::decode(from)?;
            if number as usize >= names.len() {
                return Err(Error::Enumerator(number));
            }
            number.encode(to)
        }
        TypeCode::Alias(_, of) => copy(of, around, from, to),
        TypeCode::Sequence(..) | TypeCode::Array(..) | TypeCode::Recursive(_) => {
            copy_many(code, around, from, to)
        }
        TypeCode::Struct(_, members) => copy_inside(code, around, from, |around, from| {
            members.iter().try_for_each(|member| copy(&member.type_, around, from, to))
        }),
        TypeCode::Exception(_, members) => copy_inside(code, around, from, |around, from| {
            one::<String>(from, to)?;
            members.iter().try_for_each(|member| copy(&member.type_, around, from, to))
        }),
        TypeCode::Union(_, discriminator, arms, default) => {
            copy_inside(code, around, from, |around, from| {
                let label = read_label(discriminator, &mut from.clone())?;
                copy(discriminator, around, from, to)?;
                let is_default = |number: usize| default.is_some_and(|index| index as usize == number);
                let labelled =
                    arms.iter().enumerate().find(|(number, arm)| !is_default(*number) && arm.label == label);
                let arm =
                    labelled.map(|(_, arm)| arm).or_else(|| arms.get(default.map(|index| index as usize)?));
                arm.map_or(Ok(()), |arm| copy(&arm.member.type_, around, from, to))
            })
        }
        TypeCode::Fixed(..) | TypeCode::Reference(..) => Err(Error::TypeCode),
    }
}

/// Copies what is within `code`.
fn copy_inside<'a>(
    code: &'a TypeCode,
    around: &mut Around<'a>,
    from: &mut Decoder<'_>,
    mut act: impl FnMut(&mut Around<'a>, &mut Decoder<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    around.push(code);
    let copied = from.deeper(|from| act(around, from));
    around.pop();
    copied
}

fn copy_many<'a>(
    code: &'a TypeCode,
    around: &mut Around<'a>,
    from: &mut Decoder<'_>,
    to: &mut Encoder,
) -> Result<(), Error> {
    match code {
        TypeCode::Sequence(element, bound) => {
            let count = from.bounded_length(1, Some(*bound).filter(|bound| *bound > 0))?;
            to.length(count)?;
            copy_elements(element, count, around, from, to)
        }
        TypeCode::Array(element, length) => {
            if *length as usize > from.remaining() {
                return Err(Error::Truncated);
            }
            copy_elements(element, *length as usize, around, from, to)
        }
        TypeCode::Recursive(id) => {
            let place = around.iter().rposition(|one| one.id() == id).ok_or(Error::TypeCode)?;
            let inner = around.split_off(place + 1);
            let of = around.pop().ok_or(Error::TypeCode)?;
            let copied = from.deeper(|from| copy(of, around, from, to));
            around.push(of);
            around.extend(inner);
            copied
        }
        _ => Err(Error::TypeCode),
    }
}

fn copy_elements<'a>(
    element: &'a TypeCode,
    count: usize,
    around: &mut Around<'a>,
    from: &mut Decoder<'_>,
    to: &mut Encoder,
) -> Result<(), Error> {
    if let TypeCode::Simple(kind::OCTET | kind::CHAR) = element.unaliased() {
        to.write(from.read(count)?);
        return Ok(());
    }
    from.deeper(|from| {
        let begin = from.place();
        (0..count).try_for_each(|number| {
            // Elements without bytes could be any number.
            if number > 0 && from.place() == begin {
                return Err(Error::Length(count as u64));
            }
            copy(element, around, from, to)
        })
    })
}

fn copy_simple(kind: u32, from: &mut Decoder<'_>, to: &mut Encoder) -> Result<(), Error> {
    match kind {
        kind::NULL | kind::VOID => Ok(()),
        kind::SHORT | kind::USHORT => one::<u16>(from, to),
        kind::LONG | kind::ULONG | kind::FLOAT => one::<u32>(from, to),
        kind::LONGLONG | kind::ULONGLONG | kind::DOUBLE => one::<u64>(from, to),
        kind::LONGDOUBLE => one::<LongDouble>(from, to),
        kind::BOOLEAN => one::<bool>(from, to),
        kind::CHAR | kind::OCTET => one::<u8>(from, to),
        kind::WCHAR => one::<WChar>(from, to),
        kind::TYPE_CODE => one::<TypeCode>(from, to),
        kind::PRINCIPAL => one::<Vec<u8>>(from, to),
        _ => Err(Error::TypeCode),
    }
}

fn within(length: usize, bound: u32) -> Result<(), Error> {
    if length > bound as usize { Err(Error::Length(length as u64)) } else { Ok(()) }
}
