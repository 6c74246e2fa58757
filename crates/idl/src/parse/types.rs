//! Types and declarators.

use super::{Parsed, Parser};
use crate::limits::{ARRAY_ELEMENTS_MAX, DIMENSIONS_MAX, FIXED_DIGITS_MAX};
use crate::model::{Annotation, Constant, Kind, Primitive, Type};
use crate::scope::Name;
use crate::source::Location;

/// Where a type is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Behind `typedef`, in a member: anything, definitions too.
    Declaration,
    /// In a sequence: anything but definitions.
    Element,
    /// In an operation or an attribute: what needs no name.
    Parameter,
}

impl Parser<'_> {
    /// A type.
    pub(super) fn type_(&mut self, place: Place) -> Parsed<Type> {
        self.deeper(|parser| parser.type_inside(place))
    }

    fn type_inside(&mut self, place: Place) -> Parsed<Type> {
        let annotations = self.annotations()?;
        let Some(word) = self.word() else { return self.name_of_type() };
        let at = self.here();
        match &*word {
            "struct" | "union" | "enum" if place == Place::Declaration => {
                let id = self.constructed(annotations)?;
                return Ok(Type::Named(id));
            }
            "struct" | "union" | "enum" => return self.fail("a type cannot be defined here"),
            "any" => return self.simple(Type::Any),
            "Object" => return self.simple(Type::Object),
            "ValueBase" => return self.simple(Type::ValueBase),
            "string" => return self.string_type(Type::String),
            "wstring" => return self.string_type(Type::WString),
            "void" => return self.fail("void is not a type of a value"),
            _ => {}
        }
        let is_template = *self.ahead(1) == crate::token::TokenKind::Sign('<');
        let template = match &*word {
            "sequence" => self.sequence()?,
            "fixed" => self.fixed()?,
            "map" if is_template => self.map()?,
            _ => return self.primitive_or_name(),
        };
        if place == Place::Parameter {
            self.note_error(at, format!("a {word} needs a name here: use typedef"))?;
        }
        Ok(template)
    }

    fn simple(&mut self, type_: Type) -> Parsed<Type> {
        self.take();
        Ok(type_)
    }

    /// A primitive type, or the name of a type.
    fn primitive_or_name(&mut self) -> Parsed<Type> {
        match self.primitive()? {
            Some(primitive) => Ok(Type::Primitive(primitive)),
            None => self.name_of_type(),
        }
    }

    /// A primitive type, if there is one here.
    pub(super) fn primitive(&mut self) -> Parsed<Option<Primitive>> {
        let word = self.word().unwrap_or_default();
        let plain = match &*word {
            "float" => Primitive::Float,
            "double" => Primitive::Double,
            "boolean" => Primitive::Boolean,
            "char" => Primitive::Char,
            "wchar" => Primitive::WChar,
            "octet" => Primitive::Octet,
            "short" => Primitive::Short,
            "long" => return self.long().map(Some),
            "unsigned" => return self.unsigned().map(Some),
            _ => return Ok(self.sized_integer(&word)),
        };
        self.take();
        Ok(Some(plain))
    }

    fn long(&mut self) -> Parsed<Primitive> {
        self.take();
        Ok(match (self.eat_word("long"), self.is_word("double")) {
            (true, _) => Primitive::LongLong,
            (false, true) => {
                self.take();
                Primitive::LongDouble
            }
            _ => Primitive::Long,
        })
    }

    fn unsigned(&mut self) -> Parsed<Primitive> {
        self.take();
        if self.eat_word("short") {
            return Ok(Primitive::UShort);
        }
        if !self.eat_word("long") {
            return self.unexpected("\"short\" or \"long\" behind \"unsigned\"");
        }
        Ok(if self.eat_word("long") { Primitive::ULongLong } else { Primitive::ULong })
    }

    /// `int8` ... `uint64` (IDL 4.2, 7.4.13.4.4), unless the file declares such a name.
    fn sized_integer(&mut self, word: &str) -> Option<Primitive> {
        let primitive = match word {
            "int8" => Primitive::Int8,
            "uint8" => Primitive::UInt8,
            "int16" => Primitive::Short,
            "uint16" => Primitive::UShort,
            "int32" => Primitive::Long,
            "uint32" => Primitive::ULong,
            "int64" => Primitive::LongLong,
            "uint64" => Primitive::ULongLong,
            _ => return None,
        };
        let name = Name { text: word.into(), at: self.here() };
        if self.scopes.is_declared(&name) {
            return None;
        }
        self.take();
        Some(primitive)
    }

    /// The name of a type that is declared.
    fn name_of_type(&mut self) -> Parsed<Type> {
        if !self.is_scoped_name() {
            return self.unexpected("a type");
        }
        let name = self.scoped_name("a type")?;
        let found = self.scopes.resolve(&name);
        self.scopes.session.is_full()?;
        let Some(id) = found else { return Ok(Type::Unknown) };
        let is_type = match self.scopes.kind(id) {
            Kind::Native if self.scopes.full_name(id) == "CORBA::TypeCode" => return Ok(Type::TypeCode),
            Kind::Interface(_) if self.scopes.full_name(id) == "CORBA::TypeCode" => {
                return Ok(Type::TypeCode);
            }
            Kind::Native if self.scopes.full_name(id) == "CORBA::Principal" => return Ok(Type::Principal),
            Kind::Component(what) => matches!(*what, "component" | "home"),
            Kind::Alias(Type::Unknown) => return Ok(Type::Unknown),
            Kind::Interface(_)
            | Kind::Value(_)
            | Kind::ValueBox(_)
            | Kind::Struct(_)
            | Kind::Union(_)
            | Kind::Enum(_)
            | Kind::Alias(_)
            | Kind::Native
            | Kind::Bitset(_)
            | Kind::Bitmask(_) => true,
            _ => false,
        };
        if !is_type {
            let notes = self.scopes.note(id, "it is declared here");
            let message = format!("\"{}\" is not a type", name.text());
            self.scopes.session.error_with(name.at(), message, &notes);
            return Ok(Type::Unknown);
        }
        Ok(Type::Named(id))
    }

    /// `string`, `string<N>`
    fn string_type(&mut self, make: fn(Option<u32>) -> Type) -> Parsed<Type> {
        self.take();
        if !self.eat_sign('<') {
            return Ok(make(None));
        }
        let bound = self.bound("the length of a string")?;
        self.close_template()?;
        Ok(make(Some(bound)))
    }

    fn close_template(&mut self) -> Parsed<()> {
        self.expect_sign('>', "behind the parameters of the type")
    }

    /// `sequence<TYPE>`, `sequence<TYPE, N>`
    fn sequence(&mut self) -> Parsed<Type> {
        self.take();
        self.expect_sign('<', "behind \"sequence\"")?;
        let element = self.type_(Place::Element)?;
        let bound = self.optional_bound()?;
        self.close_template()?;
        Ok(Type::Sequence(Box::new(element), bound))
    }

    fn optional_bound(&mut self) -> Parsed<Option<u32>> {
        if self.eat_sign(',') { self.bound("the length of a sequence").map(Some) } else { Ok(None) }
    }

    /// `map<KEY, VALUE>`, `map<KEY, VALUE, N>`
    fn map(&mut self) -> Parsed<Type> {
        self.take();
        self.expect_sign('<', "behind \"map\"")?;
        let key = self.type_(Place::Element)?;
        self.expect_sign(',', "behind the type of the keys")?;
        let value = self.type_(Place::Element)?;
        let bound = self.optional_bound()?;
        self.close_template()?;
        Ok(Type::Map(Box::new(key), Box::new(value), bound))
    }

    /// `fixed<DIGITS, SCALE>`
    fn fixed(&mut self) -> Parsed<Type> {
        self.take();
        self.expect_sign('<', "behind \"fixed\"")?;
        let at = self.here();
        let digits = self.bound("the digits of a fixed-point type")?;
        self.expect_sign(',', "behind the digits")?;
        let scale_at = self.here();
        let scale = self.integer("the scale of a fixed-point type", 0)?;
        self.close_template()?;
        if digits > FIXED_DIGITS_MAX {
            self.note_error(at, format!("a fixed-point type has at most {FIXED_DIGITS_MAX} digits"))?;
        } else if scale > digits {
            self.note_error(scale_at, "the scale is greater than the number of digits")?;
        }
        Ok(Type::Fixed(Some((digits, scale))))
    }

    /// A length from 1.
    fn bound(&mut self, what: &str) -> Parsed<u32> {
        self.integer(what, 1)
    }

    /// An integer from `least` to 2^32 - 1. After an error in its value, `least`.
    pub(super) fn integer(&mut self, what: &str, least: u32) -> Parsed<u32> {
        let at = self.here();
        let outer = std::mem::replace(&mut self.is_in_template, true);
        let value = self.constant_value(&Type::Primitive(Primitive::LongLong));
        self.is_in_template = outer;
        let value = value?;
        let Some(Constant::Integer(value)) = value else { return Ok(least) };
        match u32::try_from(value) {
            Ok(value) if value >= least => Ok(value),
            _ => {
                self.note_error(at, format!("{what} is from {least} to {}, not {value}", u32::MAX))?;
                Ok(least)
            }
        }
    }

    pub(super) fn typedef(&mut self, annotations: Vec<Annotation>) -> Parsed<()> {
        self.take();
        let type_ = self.type_(Place::Declaration)?;
        loop {
            let (name, type_) = self.declarator(&type_, "the name of a type")?;
            let id = self.scopes.declare(&name, Kind::Alias(type_))?;
            self.scopes.draft(id).annotations = annotations.clone();
            if !self.eat_sign(',') {
                return Ok(());
            }
        }
    }

    /// A name, and the dimensions of an array.
    pub(super) fn declarator(&mut self, type_: &Type, what: &str) -> Parsed<(Name, Type)> {
        let name = self.identifier(what)?;
        let mut dimensions = Vec::new();
        while self.eat_sign('[') {
            dimensions.push(self.bound("the length of an array")?);
            self.expect_sign(']', "behind the length of the array")?;
            if dimensions.len() > DIMENSIONS_MAX {
                return self.fail(format!("an array has at most {DIMENSIONS_MAX} dimensions"));
            }
        }
        let elements = dimensions.iter().try_fold(1u64, |all, &length| all.checked_mul(u64::from(length)));
        if elements.is_none_or(|elements| elements > ARRAY_ELEMENTS_MAX) {
            self.note_error(name.at, format!("an array has at most {ARRAY_ELEMENTS_MAX} elements"))?;
        }
        let type_ = match dimensions.is_empty() {
            true => type_.clone(),
            false => Type::Array(Box::new(type_.clone()), dimensions),
        };
        Ok((name, type_))
    }

    /// The type of a member is complete: a structure cannot have itself as a member, except in a sequence.
    pub(super) fn check_complete(&mut self, at: Location, type_: &Type) -> Parsed<()> {
        let element = match self.scopes.behind_aliases(type_) {
            Type::Array(element, _) => return self.deeper(|parser| parser.check_complete(at, &element)),
            Type::Named(id) => id,
            _ => return Ok(()),
        };
        let is_defined = match self.scopes.kind(element) {
            Kind::Struct(of) => of.is_defined,
            Kind::Union(of) => of.is_defined,
            _ => true,
        };
        if !is_defined {
            let name = self.scopes.full_name(element);
            let message = format!("{name} is not complete here: only a sequence of it can be a member");
            let notes = self.scopes.note(element, format!("{name} is declared here"));
            self.scopes.session.error_with(at, message, &notes);
        }
        Ok(())
    }
}
