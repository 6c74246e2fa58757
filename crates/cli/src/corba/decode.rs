//! Bytes to JSON.

use punctual_giop::reference::stringify;
use punctual_giop::typecode::{Arm, Member, kind};
use punctual_giop::value::LongDouble;
use punctual_giop::{Decode, Decoder, Error, Reference, TypeCode, WChar, WString, fixed};
use serde_json::{Map, Value, json};

use super::names::name;
use super::{Around, INT8, known, real, text_length};

/// Reads a value of this type.
///
/// # Errors
/// If the bytes are no such value.
pub fn read(code: &TypeCode, from: &mut Decoder<'_>) -> Result<Value, Error> {
    any_depth(code, &Around::new(), from)
}

/// Reads the members of an exception, behind its identifier.
///
/// # Errors
/// As [`read`].
pub fn read_members(members: &[Member], from: &mut Decoder<'_>) -> Result<Value, Error> {
    structure(members, &Around::new(), from)
}

fn any_depth<'a>(code: &'a TypeCode, around: &Around<'a>, from: &mut Decoder<'_>) -> Result<Value, Error> {
    let (code, mut around) = known(code, around).ok_or(Error::TypeCode)?;
    around.push(code);
    from.deeper(|from| match code {
        TypeCode::Simple(kind) => simple(*kind, from),
        TypeCode::String(bound, is_wide) => {
            let text = if *is_wide { WString::decode(from)?.0 } else { String::decode(from)? };
            within(text_length(&text, *is_wide), *bound)?;
            Ok(Value::String(text))
        }
        TypeCode::Fixed(digits, scale) => {
            fixed::read(*digits, from).map(|unscaled| Value::String(decimal(unscaled, *scale)))
        }
        TypeCode::Reference(..) => reference(from),
        TypeCode::Enum(_, names) => {
            let number = u32::decode(from)?;
            names.get(number as usize).map(|name| json!(name)).ok_or(Error::Enumerator(number))
        }
        TypeCode::Sequence(element, bound) => {
            let count = from.length(1)?;
            within(count, *bound)?;
            elements(element, count, &around, from)
        }
        TypeCode::Array(element, length) => elements(element, *length as usize, &around, from),
        TypeCode::Struct(_, members) => structure(members, &around, from),
        TypeCode::Exception(_, members) => {
            String::decode(from)?;
            structure(members, &around, from)
        }
        TypeCode::Union(_, discriminator, arms, default) => {
            union((discriminator, arms, *default), &around, from)
        }
        TypeCode::Alias(..) | TypeCode::Recursive(_) => Err(Error::TypeCode),
    })
}

/// No more than the bound, if there is one: 0 is none.
fn within(length: usize, bound: u32) -> Result<(), Error> {
    if bound > 0 && length > bound as usize { Err(Error::Length(length as u64)) } else { Ok(()) }
}

fn simple(kind: u32, from: &mut Decoder<'_>) -> Result<Value, Error> {
    Ok(match kind {
        kind::NULL | kind::VOID => Value::Null,
        kind::SHORT => json!(i16::decode(from)?),
        kind::USHORT => json!(u16::decode(from)?),
        kind::LONG => json!(i32::decode(from)?),
        kind::ULONG => json!(u32::decode(from)?),
        kind::LONGLONG => json!(i64::decode(from)?),
        kind::ULONGLONG => json!(u64::decode(from)?),
        kind::OCTET => json!(u8::decode(from)?),
        INT8 => json!(i8::decode(from)?),
        kind::FLOAT => real::float_to_json(f32::decode(from)?),
        kind::DOUBLE => real::to_json(f64::decode(from)?),
        kind::LONGDOUBLE => real::to_json(real::double(LongDouble::decode(from)?)),
        kind::BOOLEAN => json!(bool::decode(from)?),
        kind::CHAR => json!(char::decode(from)?),
        kind::WCHAR => json!(String::from_utf16_lossy(&[WChar::decode(from)?.0])),
        kind::TYPE_CODE => json!(name(&TypeCode::decode(from)?)),
        kind::PRINCIPAL => json!(Vec::<u8>::decode(from)?),
        kind::ANY => {
            let code = TypeCode::decode(from)?;
            json!({ "type": name(&code), "value": read(&code, from)? })
        }
        _ => return Err(Error::TypeCode),
    })
}

fn decimal(unscaled: i128, scale: i16) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let scale = usize::try_from(scale).unwrap_or(0);
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, rest) = digits.split_at(digits.len() - scale);
    if rest.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest}") }
}

/// Nil is `null`.
fn reference(from: &mut Decoder<'_>) -> Result<Value, Error> {
    let reference = Reference::decode(from)?;
    if reference.is_nil() { Ok(Value::Null) } else { stringify(&reference).map(Value::String) }
}

/// Elements without bytes could be any number: there are not more than bytes.
fn elements<'a>(
    element: &'a TypeCode,
    count: usize,
    around: &Around<'a>,
    from: &mut Decoder<'_>,
) -> Result<Value, Error> {
    if count > from.remaining() {
        return Err(Error::Length(count as u64));
    }
    (0..count).map(|_| any_depth(element, around, from)).collect::<Result<_, _>>().map(Value::Array)
}

fn structure<'a>(members: &'a [Member], around: &Around<'a>, from: &mut Decoder<'_>) -> Result<Value, Error> {
    let member = |member: &'a Member| Ok((member.name.clone(), any_depth(&member.type_, around, from)?));
    members.iter().map(member).collect::<Result<Map<_, _>, Error>>().map(Value::Object)
}

/// The discriminator's type, the arms, and the default.
type Parts<'a> = (&'a TypeCode, &'a [Arm], Option<u32>);

fn union<'a>(
    (discriminator, arms, default): Parts<'a>,
    around: &Around<'a>,
    from: &mut Decoder<'_>,
) -> Result<Value, Error> {
    let label = any_depth(discriminator, around, from)?;
    let number = super::encode::label_number(&label, discriminator);
    let is_default = |index: usize| default.is_some_and(|default| default as usize == index);
    let labelled =
        arms.iter().enumerate().find(|(index, arm)| !is_default(*index) && Some(arm.label) == number);
    let arm = labelled.map(|(_, arm)| arm).or_else(|| arms.get(default? as usize));
    let Some(arm) = arm else { return Ok(json!({ "label": label })) };
    let value = any_depth(&arm.member.type_, around, from)?;
    Ok(json!({ "label": label, "member": arm.member.name, "value": value }))
}
