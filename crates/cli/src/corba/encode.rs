//! JSON to bytes.

use punctual_giop::reference::Link;
use punctual_giop::typecode::{Arm, kind};
use punctual_giop::{Encode, Encoder, Reference, TypeCode, WChar, WString, fixed};
use serde_json::Value;

use super::{Around, known};

/// Writes a value of this type.
///
/// # Errors
/// One line that says what is wrong where.
pub fn write(value: &Value, code: &TypeCode, to: &mut Encoder) -> Result<(), String> {
    any_depth(value, code, &Around::new(), to)
}

fn any_depth<'a>(
    value: &Value,
    code: &'a TypeCode,
    around: &Around<'a>,
    to: &mut Encoder,
) -> Result<(), String> {
    let (code, mut around) = known(code, around).ok_or("a type that refers to nowhere")?;
    around.push(code);
    match code {
        TypeCode::Simple(kind) => simple(value, *kind, to),
        TypeCode::String(bound, is_wide) => text(value, *bound, *is_wide, to),
        TypeCode::Fixed(digits, scale) => {
            let unscaled = unscaled(value, *scale).ok_or_else(|| wrong(value, "a fixed-point number"))?;
            fixed::write(unscaled, *digits, to).map_err(|error| error.to_string())
        }
        TypeCode::Reference(..) => encode(&reference(value)?, to),
        TypeCode::Enum(named, names) => {
            let number = names.iter().position(|name| value.as_str() == Some(name));
            let number = number
                .ok_or_else(|| wrong(value, &format!("one of {} ({})", names.join(", "), named.name)))?;
            encode(&(number as u32), to)
        }
        TypeCode::Sequence(element, bound) => {
            let all = list(value)?;
            if *bound > 0 && all.len() > *bound as usize {
                return Err(format!("{} elements, where at most {bound} are allowed", all.len()));
            }
            to.length(all.len()).map_err(|error| error.to_string())?;
            each(all, element, &around, to)
        }
        TypeCode::Array(element, length) => {
            let all = list(value)?;
            if all.len() != *length as usize {
                return Err(format!("{} elements, where {length} are expected", all.len()));
            }
            each(all, element, &around, to)
        }
        TypeCode::Struct(_, members) | TypeCode::Exception(_, members) => {
            let object = value.as_object().ok_or_else(|| wrong(value, "an object"))?;
            let unknown = object.keys().find(|key| members.iter().all(|member| member.name != **key));
            if let Some(key) = unknown {
                return Err(format!("there is no member `{key}`"));
            }
            members.iter().try_for_each(|member| {
                let value = object.get(&member.name).ok_or(format!("`{}` is missing", member.name))?;
                any_depth(value, &member.type_, &around, to).map_err(|error| within(&member.name, &error))
            })
        }
        TypeCode::Union(_, discriminator, arms, default) => {
            union(value, (discriminator, arms, *default), &around, to)
        }
        TypeCode::Alias(..) | TypeCode::Recursive(_) => Err("a type that refers to nowhere".into()),
    }
}

fn within(name: &str, error: &str) -> String {
    format!("{name}: {error}")
}

fn wrong(value: &Value, expected: &str) -> String {
    format!("`{value}` is not {expected}")
}

fn encode(value: &impl Encode, to: &mut Encoder) -> Result<(), String> {
    value.encode(to).map_err(|error| error.to_string())
}

fn list(value: &Value) -> Result<&[Value], String> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| wrong(value, "a list"))
}

fn each<'a>(
    all: &[Value],
    element: &'a TypeCode,
    around: &Around<'a>,
    to: &mut Encoder,
) -> Result<(), String> {
    all.iter().enumerate().try_for_each(|(number, value)| {
        any_depth(value, element, around, to).map_err(|error| within(&format!("[{number}]"), &error))
    })
}

/// An integer of the type that the range has.
fn integer<T: TryFrom<i128> + Encode>(value: &Value, to: &mut Encoder) -> Result<(), String> {
    let number = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    let number = number.and_then(|number| T::try_from(number).ok());
    encode(&number.ok_or_else(|| wrong(value, "an integer in the range of the type"))?, to)
}

fn simple(value: &Value, kind: u32, to: &mut Encoder) -> Result<(), String> {
    let number = || value.as_f64().ok_or_else(|| wrong(value, "a number"));
    match kind {
        kind::SHORT => integer::<i16>(value, to),
        kind::USHORT => integer::<u16>(value, to),
        kind::LONG => integer::<i32>(value, to),
        kind::ULONG => integer::<u32>(value, to),
        kind::LONGLONG => integer::<i64>(value, to),
        kind::ULONGLONG => integer::<u64>(value, to),
        kind::OCTET => integer::<u8>(value, to),
        kind::FLOAT => encode(&(number()? as f32), to),
        kind::DOUBLE => encode(&number()?, to),
        kind::BOOLEAN => encode(&value.as_bool().ok_or_else(|| wrong(value, "true or false"))?, to),
        kind::CHAR => encode(&character(value)?, to),
        kind::WCHAR => {
            let unit = u16::try_from(u32::from(character(value)?));
            encode(&WChar(unit.map_err(|_| wrong(value, "one unit of UTF-16"))?), to)
        }
        kind::ANY => any(value, to),
        _ => Err("values of this type cannot be given".into()),
    }
}

fn character(value: &Value) -> Result<char, String> {
    let mut characters = value.as_str().unwrap_or_default().chars();
    match (characters.next(), characters.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(wrong(value, "one character")),
    }
}

/// The type of an `any` is that of the JSON value: boolean, long long, double or string.
fn any(value: &Value, to: &mut Encoder) -> Result<(), String> {
    let code = match value {
        Value::Bool(_) => TypeCode::Simple(kind::BOOLEAN),
        Value::String(_) => TypeCode::String(0, false),
        Value::Number(number) if number.is_i64() => TypeCode::Simple(kind::LONGLONG),
        Value::Number(_) => TypeCode::Simple(kind::DOUBLE),
        other => return Err(wrong(other, "true, false, a number or a string, which an any can have here")),
    };
    encode(&code, to)?;
    write(value, &code, to)
}

fn text(value: &Value, bound: u32, is_wide: bool, to: &mut Encoder) -> Result<(), String> {
    let text = value.as_str().ok_or_else(|| wrong(value, "a string"))?;
    let length = if is_wide { text.encode_utf16().count() } else { text.chars().count() };
    if bound > 0 && length > bound as usize {
        return Err(format!("{length} characters, where at most {bound} are allowed"));
    }
    if is_wide { encode(&WString::from(text), to) } else { encode(&text.to_owned(), to) }
}

/// A reference as text; `null` is nil.
fn reference(value: &Value) -> Result<Reference, String> {
    if value.is_null() {
        return Ok(Reference::default());
    }
    let text = value.as_str().ok_or_else(|| wrong(value, "a reference"))?;
    let not_one = || wrong(value, "a reference that leads to an object: `IOR:` or `corbaloc:`");
    match text.parse::<Link>().map_err(|error| error.to_string())? {
        Link::Reference(reference) => Ok(reference),
        Link::Corbaloc(at) => at.reference("").ok().flatten().ok_or_else(not_one),
        Link::Corbaname(_) => Err(not_one()),
    }
}

/// All digits of `-12.50` as an integer, with so many of them behind the point.
fn unscaled(value: &Value, scale: i16) -> Option<i128> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (sign, digits) = text.strip_prefix('-').map_or((1, &*text), |digits| (-1, digits));
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    let missing = usize::try_from(scale).ok()?.checked_sub(rest.len())?;
    let digits = format!("{whole}{rest}{}", "0".repeat(missing));
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if is_number { Some(sign * digits.parse::<i128>().ok()?) } else { None }
}

/// The discriminator's type, the arms, and the default.
type Parts<'a> = (&'a TypeCode, &'a [Arm], Option<u32>);

/// `{"label": ..., "value": ...}`; an arm that is not there has no value.
fn union<'a>(
    value: &Value,
    (discriminator, arms, default): Parts<'a>,
    around: &Around<'a>,
    to: &mut Encoder,
) -> Result<(), String> {
    let label = value.get("label").ok_or_else(|| wrong(value, "an object with `label` and `value`"))?;
    any_depth(label, discriminator, around, to).map_err(|error| within("label", &error))?;
    let number = label_number(label, discriminator);
    let is_default = |index: usize| default.is_some_and(|default| default as usize == index);
    let labelled =
        arms.iter().enumerate().find(|(index, arm)| !is_default(*index) && Some(arm.label) == number);
    let arm = labelled.map(|(_, arm)| arm).or_else(|| arms.get(default? as usize));
    let Some(arm) = arm else { return Ok(()) };
    let inner = value.get("value").ok_or("`value` is missing")?;
    any_depth(inner, &arm.member.type_, around, to).map_err(|error| within(&arm.member.name, &error))
}

pub(super) fn label_number(label: &Value, discriminator: &TypeCode) -> Option<i64> {
    match discriminator.unaliased() {
        TypeCode::Enum(_, names) => {
            names.iter().position(|name| label.as_str() == Some(name)).map(|number| number as i64)
        }
        TypeCode::Simple(kind::BOOLEAN) => label.as_bool().map(i64::from),
        TypeCode::Simple(kind::CHAR | kind::WCHAR) => {
            character(label).ok().map(|character| i64::from(u32::from(character)))
        }
        _ => label.as_i64().or_else(|| label.as_u64().map(|number| number as i64)),
    }
}
