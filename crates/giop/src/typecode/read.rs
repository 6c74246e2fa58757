//! Bytes to descriptions.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::label::read_label;
use super::{Arm, INDIRECTION, Member, Named, Open, TypeCode, kind};
use crate::limits::{TYPE_NAMES_BYTES_MAX, TYPE_NODES_MAX};
use crate::{Decode, Decoder, Error};

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
        let bytes = from.string()?;
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
