//! Descriptions to bytes.

use super::label::write_label;
use super::{INDIRECTION, Named, Open, TypeCode, kind};
use crate::{Encode, Encoder, Error};

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
