//! `corbaname:` (CosNaming 2.5.3): a `corbaloc` of a naming context, `#`, and a name in it. And names as text (CosNaming 2.4).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::corbaloc::Corbaloc;
use super::error::Error;
use super::escape::{escape, unescape};

/// A part of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamePart {
    /// What it is called.
    pub id: String,
    /// What kind of thing it is; most have none.
    pub kind: String,
}

/// A name: the parts lead through naming contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub Vec<NamePart>);

impl Name {
    /// Reads parts `ID`, `ID.KIND`, `.KIND` or `.` with `/` between them. `\` escapes `/`, `.` and `\`.
    ///
    /// # Errors
    /// [`Error::Name`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Name(text.into());
        let mut parts = Vec::new();
        // The fields of the present part; whether anything of it was there.
        let (mut fields, mut begun) = (alloc::vec![String::new()], false);
        let mut characters = text.chars();
        while let Some(c) = characters.next() {
            match c {
                '/' if begun => {
                    parts.push(part(&mut fields).ok_or_else(wrong)?);
                    begun = false;
                    continue;
                }
                '/' => return Err(wrong()),
                '.' => fields.push(String::new()),
                '\\' => {
                    let escaped = characters.next().filter(|c| "/.\\".contains(*c)).ok_or_else(wrong)?;
                    fields.last_mut().ok_or_else(wrong)?.push(escaped);
                }
                other => fields.last_mut().ok_or_else(wrong)?.push(other),
            }
            begun = true;
        }
        if !begun {
            return Err(wrong());
        }
        parts.push(part(&mut fields).ok_or_else(wrong)?);
        Ok(Self(parts))
    }
}

/// The part with these fields, which begin anew. `ID.` is no part: the dot would be lost.
fn part(fields: &mut Vec<String>) -> Option<NamePart> {
    let found = match &mut fields[..] {
        [id] => Some(NamePart { id: core::mem::take(id), kind: String::new() }),
        [id, kind] if id.is_empty() || !kind.is_empty() => {
            Some(NamePart { id: core::mem::take(id), kind: core::mem::take(kind) })
        }
        _ => None,
    };
    *fields = alloc::vec![String::new()];
    found
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = |text: &str, f: &mut fmt::Formatter<'_>| {
            text.chars()
                .try_for_each(|c| if "/.\\".contains(c) { write!(f, "\\{c}") } else { write!(f, "{c}") })
        };
        for (number, part) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("/")?;
            }
            escaped(&part.id, f)?;
            if !part.kind.is_empty() || part.id.is_empty() {
                f.write_str(".")?;
                escaped(&part.kind, f)?;
            }
        }
        Ok(())
    }
}

/// An object by its name in a naming context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corbaname {
    /// The naming context.
    pub context: Corbaloc,
    /// The name in it; nothing for the context itself.
    pub name: Option<Name>,
}

impl Corbaname {
    /// Reads what is behind `corbaname:`. The key is `NameService` unless there is another one.
    ///
    /// # Errors
    /// All of [`Error`] about text.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (context, name) = text.split_once('#').unwrap_or((text, ""));
        let mut context = Corbaloc::parse(context)?;
        if let Corbaloc::Places(_, key) = &mut context
            && key.is_empty()
        {
            *key = b"NameService".to_vec();
        }
        let name = String::from_utf8(unescape(name)?).map_err(|_| Error::NameText)?;
        let name = if name.is_empty() { None } else { Some(Name::parse(&name)?) };
        Ok(Self { context, name })
    }
}

impl fmt::Display for Corbaname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = alloc::format!("{}", self.context);
        write!(f, "corbaname:{}", context.strip_prefix("corbaloc:").unwrap_or(&context))?;
        let Some(name) = &self.name else { return Ok(()) };
        let mut text = String::new();
        escape(alloc::format!("{name}").as_bytes(), &mut text);
        write!(f, "#{text}")
    }
}
