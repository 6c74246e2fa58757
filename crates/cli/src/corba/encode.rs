//! JSON to bytes.

use punctual_giop::reference::Link;
use punctual_giop::typecode::{Arm, Member, kind};
use punctual_giop::{Encode, Encoder, Reference, TypeCode, WChar, WString, fixed};
use punctual_idl::Specification;
use serde_json::{Map, Value};

use super::names::{called, described};
use super::{Around, INT8, known, real, text_length};

/// Writes a value of this type. An `any` may have types of the specification.
///
/// # Errors
/// One line that says what is wrong where.
pub fn write(
    value: &Value,
    code: &TypeCode,
    specification: &Specification,
    to: &mut Encoder,
) -> Result<(), String> {
    Writer { specification, to }.any_depth(value, code, &Around::new())
}

struct Writer<'w> {
    specification: &'w Specification,
    to: &'w mut Encoder,
}

/// The discriminator's type, the arms, and the default.
type Parts<'a> = (&'a TypeCode, &'a [Arm], Option<u32>);

impl Writer<'_> {
    fn any_depth<'a>(
        &mut self,
        value: &Value,
        code: &'a TypeCode,
        around: &Around<'a>,
    ) -> Result<(), String> {
        let (code, mut around) = known(code, around).ok_or("a type that refers to nowhere")?;
        around.push(code);
        match code {
            TypeCode::Simple(kind) => self.simple(value, *kind),
            TypeCode::String(bound, is_wide) => self.text(value, *bound, *is_wide),
            TypeCode::Fixed(digits, scale) => self.fixed(value, *digits, *scale),
            TypeCode::Reference(..) => self.encode(&reference(value)?),
            TypeCode::Enum(named, names) => {
                let number = names.iter().position(|name| value.as_str() == Some(name));
                let expected = || wrong(value, &format!("one of {} ({})", names.join(", "), named.name));
                self.encode(&(number.ok_or_else(expected)? as u32))
            }
            TypeCode::Sequence(element, bound) => {
                let all = list(value)?;
                if *bound > 0 && all.len() > *bound as usize {
                    return Err(format!("{} elements, where at most {bound} are allowed", all.len()));
                }
                self.to.length(all.len()).map_err(|error| error.to_string())?;
                self.each(all, element, &around)
            }
            TypeCode::Array(element, length) => {
                let all = list(value)?;
                if all.len() != *length as usize {
                    return Err(format!("{} elements, where {length} are expected", all.len()));
                }
                self.each(all, element, &around)
            }
            TypeCode::Struct(_, members) => self.structure(value, members, &around),
            TypeCode::Exception(named, members) => {
                // Its identifier precedes its members (CORBA 15.3.5).
                self.encode(&named.id)?;
                self.structure(value, members, &around)
            }
            TypeCode::Union(_, discriminator, arms, default) => {
                self.union(value, (discriminator, arms, *default), &around)
            }
            TypeCode::Alias(..) | TypeCode::Recursive(_) => Err("a type that refers to nowhere".into()),
        }
    }

    fn encode(&mut self, value: &impl Encode) -> Result<(), String> {
        value.encode(self.to).map_err(|error| error.to_string())
    }

    fn each<'a>(&mut self, all: &[Value], element: &'a TypeCode, around: &Around<'a>) -> Result<(), String> {
        all.iter().enumerate().try_for_each(|(number, value)| {
            self.any_depth(value, element, around).map_err(|error| within(&format!("[{number}]"), &error))
        })
    }

    fn structure<'a>(
        &mut self,
        value: &Value,
        members: &'a [Member],
        around: &Around<'a>,
    ) -> Result<(), String> {
        let object = value.as_object().ok_or_else(|| wrong(value, "an object"))?;
        known_keys(object, |key| members.iter().any(|member| member.name == key))?;
        members.iter().try_for_each(|member| {
            let value = object.get(&member.name).ok_or(format!("`{}` is missing", member.name))?;
            self.any_depth(value, &member.type_, around).map_err(|error| within(&member.name, &error))
        })
    }

    /// `{"label": ..., "value": ...}`; an arm that is not there has no value. As results have it, `member` may name the arm.
    fn union<'a>(
        &mut self,
        value: &Value,
        (discriminator, arms, default): Parts<'a>,
        around: &Around<'a>,
    ) -> Result<(), String> {
        let expected = || wrong(value, "an object with `label` and `value`");
        let object = value.as_object().ok_or_else(expected)?;
        let label = object.get("label").ok_or_else(expected)?;
        known_keys(object, |key| ["label", "member", "value"].contains(&key))?;
        self.any_depth(label, discriminator, around).map_err(|error| within("label", &error))?;
        let number = label_number(label, discriminator);
        let is_default = |index: usize| default.is_some_and(|default| default as usize == index);
        let labelled =
            arms.iter().enumerate().find(|(index, arm)| !is_default(*index) && Some(arm.label) == number);
        let arm = labelled.map(|(_, arm)| arm).or_else(|| arms.get(default? as usize));
        let Some(arm) = arm else { return without_arm(object, label) };
        if let Some(member) = object.get("member").filter(|member| **member != arm.member.name) {
            return Err(format!("`member` is {member}, but the label {label} selects `{}`", arm.member.name));
        }
        let inner = object.get("value").ok_or("`value` is missing")?;
        self.any_depth(inner, &arm.member.type_, around).map_err(|error| within(&arm.member.name, &error))
    }

    fn simple(&mut self, value: &Value, kind: u32) -> Result<(), String> {
        let number = || real::of_json(value).ok_or_else(|| wrong(value, "a number"));
        match kind {
            kind::SHORT => self.integer::<i16>(value),
            kind::USHORT => self.integer::<u16>(value),
            kind::LONG => self.integer::<i32>(value),
            kind::ULONG => self.integer::<u32>(value),
            kind::LONGLONG => self.integer::<i64>(value),
            kind::ULONGLONG => self.integer::<u64>(value),
            kind::OCTET => self.integer::<u8>(value),
            INT8 => self.integer::<i8>(value),
            kind::FLOAT => self.encode(&real::float(number()?)?),
            kind::DOUBLE => self.encode(&number()?),
            kind::LONGDOUBLE => self.encode(&real::long_double(number()?)),
            kind::BOOLEAN => self.encode(&value.as_bool().ok_or_else(|| wrong(value, "true or false"))?),
            kind::CHAR => self.encode(&character(value)?),
            kind::WCHAR => {
                let unit = u16::try_from(u32::from(character(value)?));
                self.encode(&WChar(unit.map_err(|_| wrong(value, "one unit of UTF-16"))?))
            }
            kind::ANY => self.any(value),
            kind::TYPE_CODE => {
                let name = value.as_str().ok_or_else(|| wrong(value, "the name of a type"))?;
                self.encode(&described(name, self.specification)?)
            }
            _ => Err("values of this type cannot be given".into()),
        }
    }

    /// An integer in the range of its type.
    fn integer<T: TryFrom<i128> + Encode>(&mut self, value: &Value) -> Result<(), String> {
        // JSON reads `-0` as a real number.
        let zero = || value.as_f64().filter(|real| *real == 0.0 && real.is_sign_negative()).map(|_| 0);
        let number = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
        let number = number.or_else(zero).and_then(|number| T::try_from(number).ok());
        self.encode(&number.ok_or_else(|| wrong(value, "an integer in the range of the type"))?)
    }

    /// `{"type": NAME, "value": ...}`; without it, the type is that of the JSON value: boolean, long long (unsigned where it must
    /// be), double or string.
    fn any(&mut self, value: &Value) -> Result<(), String> {
        let of = |simple: u32| (TypeCode::Simple(simple), TypeCode::Simple(simple));
        let (code, sent) = match value {
            Value::Bool(_) => of(kind::BOOLEAN),
            Value::String(_) => (TypeCode::String(0, false), TypeCode::String(0, false)),
            Value::Number(number) if number.is_i64() => of(kind::LONGLONG),
            Value::Number(number) if number.is_u64() => of(kind::ULONGLONG),
            Value::Number(_) => of(kind::DOUBLE),
            Value::Object(typed) => {
                known_keys(typed, |key| ["type", "value"].contains(&key))?;
                let name = typed.get("type").and_then(Value::as_str);
                let name = name.ok_or("`type` is missing: write {\"type\": NAME, \"value\": V}")?;
                (called(name, self.specification)?, described(name, self.specification)?)
            }
            other => return Err(wrong(other, "an any: write {\"type\": NAME, \"value\": V}")),
        };
        let inner = if value.is_object() { value.get("value") } else { Some(value) };
        let is_empty = matches!(code, TypeCode::Simple(kind::NULL | kind::VOID));
        self.encode(&sent)?;
        match inner {
            None | Some(Value::Null) if is_empty => Ok(()),
            Some(_) if is_empty => Err("the type has no values: write null, or no `value`".into()),
            Some(inner) => self.any_depth(inner, &code, &Around::new()),
            None => Err("`value` is missing".into()),
        }
    }

    fn text(&mut self, value: &Value, bound: u32, is_wide: bool) -> Result<(), String> {
        let text = value.as_str().ok_or_else(|| wrong(value, "a string"))?;
        let length = text_length(text, is_wide);
        if bound > 0 && length > bound as usize {
            return Err(format!("{length} characters, where at most {bound} are allowed"));
        }
        if is_wide { self.encode(&WString::from(text)) } else { self.encode(&text.to_owned()) }
    }

    fn fixed(&mut self, value: &Value, digits: u16, scale: i16) -> Result<(), String> {
        let behind = usize::try_from(scale).unwrap_or(0);
        let before = usize::from(digits).saturating_sub(behind);
        let too_long = || {
            format!(
                "`{value}` is too long: fixed<{digits}, {scale}> has {before} digits before the point and {behind} behind it"
            )
        };
        match unscaled(value, behind).ok_or_else(|| wrong(value, "a fixed-point number"))? {
            Some(unscaled) => fixed::write(unscaled, digits, self.to).map_err(|_| too_long()),
            None => Err(too_long()),
        }
    }
}

/// Refuses what would be dropped.
fn known_keys(object: &Map<String, Value>, is_known: impl Fn(&str) -> bool) -> Result<(), String> {
    match object.keys().find(|key| !is_known(key)) {
        Some(key) => Err(format!("there is no member `{key}`")),
        None => Ok(()),
    }
}

/// A union whose label selects no arm has nothing else.
fn without_arm(object: &Map<String, Value>, label: &Value) -> Result<(), String> {
    match object.keys().find(|key| *key != "label") {
        Some(key) => Err(format!("the label {label} selects no arm: there is no `{key}`")),
        None => Ok(()),
    }
}

fn within(name: &str, error: &str) -> String {
    format!("{name}: {error}")
}

fn wrong(value: &Value, expected: &str) -> String {
    format!("`{value}` is not {expected}")
}

fn list(value: &Value) -> Result<&[Value], String> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| wrong(value, "a list"))
}

fn character(value: &Value) -> Result<char, String> {
    let mut characters = value.as_str().unwrap_or_default().chars();
    match (characters.next(), characters.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(wrong(value, "one character")),
    }
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

/// All digits of `-12.50` as an integer, with so many of them behind the point. `Some(None)` if there are more.
fn unscaled(value: &Value, behind: usize) -> Option<Option<i128>> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (sign, digits) = text.strip_prefix('-').map_or((1, &*text), |digits| (-1, digits));
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    let mut all = whole.bytes().chain(rest.bytes()).peekable();
    let is_number = all.peek().is_some() && all.all(|digit| digit.is_ascii_digit());
    let rest = rest.trim_end_matches('0');
    let missing = behind.checked_sub(rest.len());
    let unscaled =
        missing.and_then(|missing| format!("{whole}{rest}{}", "0".repeat(missing)).parse::<i128>().ok());
    is_number.then_some(unscaled.map(|unscaled| sign * unscaled))
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
