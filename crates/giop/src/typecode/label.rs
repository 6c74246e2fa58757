//! Labels of unions: each has the form of its discriminator.

use super::{TypeCode, kind};
use crate::{Decode, Decoder, Encode, Encoder, Error};

pub(super) fn write_label(discriminator: &TypeCode, label: i64, to: &mut Encoder) -> Result<(), Error> {
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
