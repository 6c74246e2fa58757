//! Constant expressions: read and computed at once, then checked against the type of the constant.

use std::rc::Rc;

use super::{Parsed, Parser, literal, operators};
use crate::model::{Constant, DefinitionId, Kind, Primitive, Type};
use crate::source::Location;
use crate::token::TokenKind;

/// What an expression is computed for.
#[derive(Clone, Copy, Debug)]
struct Target {
    bits: u32,
    is_signed: bool,
    /// An enumeration, whose enumerators need not be visible.
    of: Option<DefinitionId>,
}

/// Binary operators, and how strongly they bind. Longer ones first.
const OPERATORS: &[(&str, u8)] =
    &[("<<", 4), (">>", 4), ("|", 1), ("^", 2), ("&", 3), ("+", 5), ("-", 5), ("*", 6), ("/", 6), ("%", 6)];

/// The least and the greatest value of an integer type, and its bits.
fn integers(primitive: Primitive) -> Option<(i128, i128, u32)> {
    let signed = |bits: u32| Some((-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1, bits));
    let unsigned = |bits: u32| Some((0, (1i128 << bits) - 1, bits));
    match primitive {
        Primitive::Int8 => signed(8),
        Primitive::Short => signed(16),
        Primitive::Long => signed(32),
        Primitive::LongLong => signed(64),
        Primitive::UInt8 | Primitive::Octet => unsigned(8),
        Primitive::UShort => unsigned(16),
        Primitive::ULong => unsigned(32),
        Primitive::ULongLong => unsigned(64),
        _ => None,
    }
}

fn primitive_name(primitive: Primitive) -> &'static str {
    match primitive {
        Primitive::Int8 => "int8",
        Primitive::UInt8 => "uint8",
        Primitive::Short => "short",
        Primitive::UShort => "unsigned short",
        Primitive::Long => "long",
        Primitive::ULong => "unsigned long",
        Primitive::LongLong => "long long",
        Primitive::ULongLong => "unsigned long long",
        Primitive::Float => "float",
        Primitive::Double => "double",
        Primitive::LongDouble => "long double",
        Primitive::Boolean => "boolean",
        Primitive::Char => "char",
        Primitive::WChar => "wchar",
        Primitive::Octet => "octet",
    }
}

fn kind_of(value: &Constant) -> &'static str {
    match value {
        Constant::Integer(_) => "an integer",
        Constant::Float(_) => "a floating-point number",
        Constant::Fixed(_) => "a fixed-point number",
        Constant::Boolean(_) => "a boolean",
        Constant::Char(_) => "a character",
        Constant::WChar(_) => "a wide character",
        Constant::String(_) => "a string",
        Constant::WString(_) => "a wide string",
        Constant::Enumerator(_) => "an enumerator",
    }
}

impl Parser<'_> {
    /// The type behind `const`.
    pub(super) fn constant_type(&mut self) -> Parsed<Type> {
        let at = self.here();
        let type_ = match self.is_word("fixed") && *self.ahead(1) != TokenKind::Sign('<') {
            true => {
                self.take();
                Type::Fixed(None)
            }
            false => self.type_(super::types::Place::Parameter)?,
        };
        let may_be = match self.scopes.behind_aliases(&type_) {
            Type::Primitive(_) | Type::String(_) | Type::WString(_) | Type::Fixed(_) | Type::Unknown => true,
            Type::Named(id) => matches!(self.scopes.kind(id), Kind::Enum(_)),
            _ => false,
        };
        if may_be { Ok(type_) } else { self.fail_at(at, "a constant cannot have this type") }
    }

    /// An expression for a constant of this type. `None`: its value is wrong, and that is reported.
    pub(super) fn constant_value(&mut self, type_: &Type) -> Parsed<Option<Constant>> {
        let at = self.here();
        let type_ = self.scopes.behind_aliases(type_);
        let mut target = Target { bits: 64, is_signed: true, of: None };
        match type_ {
            Type::Primitive(primitive) => {
                if let Some((least, _, bits)) = integers(primitive) {
                    target = Target { bits, is_signed: least < 0, of: None };
                }
            }
            Type::Named(id) => target.of = Some(id),
            _ => {}
        }
        let value = self.expression(target, 1)?;
        let Some(value) = value else { return Ok(None) };
        if type_ == Type::Unknown {
            return Ok(None);
        }
        match self.fit(&type_, value) {
            Ok(value) => Ok(Some(value)),
            Err(why) => {
                self.note_error(at, why)?;
                Ok(None)
            }
        }
    }

    /// `value` as a constant of this type.
    fn fit(&self, type_: &Type, value: Constant) -> Result<Constant, String> {
        match (type_, value) {
            (Type::Primitive(primitive), value) => fit_primitive(*primitive, value),
            (Type::String(bound), Constant::String(text)) => {
                fit_length(text.len(), *bound).map(|()| Constant::String(text))
            }
            (Type::WString(bound), Constant::WString(text)) => {
                fit_length(text.len(), *bound).map(|()| Constant::WString(text))
            }
            (Type::Fixed(_), Constant::Fixed(value)) => Ok(Constant::Fixed(value)),
            (Type::Named(of), Constant::Enumerator(id)) => match self.scopes.kind(id) {
                Kind::Enumerator(parent, _) if parent == of => Ok(Constant::Enumerator(id)),
                _ => Err(format!(
                    "{} is no enumerator of {}",
                    self.scopes.full_name(id),
                    self.scopes.full_name(*of)
                )),
            },
            (Type::Named(of), value) => Err(format!(
                "expected an enumerator of {}, found {}",
                self.scopes.full_name(*of),
                kind_of(&value)
            )),
            (Type::String(_), value) => Err(format!("expected a string, found {}", kind_of(&value))),
            (Type::WString(_), value) => Err(format!("expected a wide string, found {}", kind_of(&value))),
            (_, value) => Err(format!("expected a fixed-point number, found {}", kind_of(&value))),
        }
    }

    fn operator(&mut self) -> Option<(&'static str, u8)> {
        self.token();
        let tokens = &self.tokens[self.at..];
        let closes = |operator: &str| operator == ">>" && self.is_in_template;
        OPERATORS.iter().copied().filter(|(operator, _)| !closes(operator)).find(|(operator, _)| {
            operator.chars().enumerate().all(|(number, sign)| {
                tokens
                    .get(number)
                    .is_some_and(|t| t.kind == TokenKind::Sign(sign) && (number == 0 || t.is_glued))
            })
        })
    }

    fn expression(&mut self, target: Target, least: u8) -> Parsed<Option<Constant>> {
        let mut left = self.deeper(|parser| parser.unary(target))?;
        while let Some((operator, strength)) = self.operator()
            && strength >= least
        {
            let at = self.here();
            operator.chars().for_each(|_| {
                self.take();
            });
            let right = self.deeper(|parser| parser.expression(target, strength + 1))?;
            let (Some(one), Some(other)) = (left.take(), right) else { continue };
            left = self.computed(at, operators::binary(operator, one, other))?;
        }
        Ok(left)
    }

    fn computed(&mut self, at: Location, value: Result<Constant, String>) -> Parsed<Option<Constant>> {
        match value {
            Ok(value) => Ok(Some(value)),
            Err(why) => {
                self.note_error(at, why)?;
                Ok(None)
            }
        }
    }

    fn unary(&mut self, target: Target) -> Parsed<Option<Constant>> {
        let at = self.here();
        match self.token().kind.clone() {
            TokenKind::Sign(operator @ ('+' | '-' | '~')) => {
                self.take();
                let value = self.deeper(|parser| parser.unary(target))?;
                let Some(value) = value else { return Ok(None) };
                self.computed(at, operators::unary(operator, value, target.bits, target.is_signed))
            }
            TokenKind::Sign('(') => {
                self.take();
                let outer = std::mem::take(&mut self.is_in_template);
                let value = self.expression(target, 1);
                self.is_in_template = outer;
                self.expect_sign(')', "behind the expression")?;
                value
            }
            TokenKind::Number(text) => {
                self.take();
                self.computed(at, literal::number(&text))
            }
            TokenKind::Character { is_wide, units } => {
                self.take();
                self.computed(at, character(is_wide, &units))
            }
            TokenKind::Text { is_wide, .. } => self.texts(is_wide).map(Some),
            TokenKind::Word(word) if matches!(&*word, "TRUE" | "FALSE") => {
                self.take();
                Ok(Some(Constant::Boolean(&*word == "TRUE")))
            }
            _ if self.is_scoped_name() => self.named(target),
            _ => self.unexpected("a value"),
        }
    }

    /// Strings side by side are one.
    fn texts(&mut self, wide: bool) -> Parsed<Constant> {
        let mut all = Vec::new();
        while let TokenKind::Text { is_wide, units } = &self.token().kind {
            if *is_wide != wide {
                return self.fail("a wide string beside one that is not");
            }
            all.extend_from_slice(units);
            if units.contains(&0) {
                return self.fail("a string has no character 0");
            }
            self.take();
        }
        // The lexer allows wide units in wide strings only.
        let narrow = || all.iter().map(|&unit| unit as u8).collect::<Rc<[u8]>>();
        Ok(if wide { Constant::WString(all.into()) } else { Constant::String(narrow()) })
    }

    fn named(&mut self, target: Target) -> Parsed<Option<Constant>> {
        let name = self.scoped_name("a value")?;
        let found = match target.of {
            Some(of) => self.scopes.resolve_enumerator(&name, of),
            None => self.scopes.resolve(&name),
        };
        self.scopes.session.is_full()?;
        let Some(id) = found else { return Ok(None) };
        match self.scopes.kind(id) {
            Kind::Constant(_, value) => Ok(Some(value.clone())),
            Kind::Enumerator(..) => Ok(Some(Constant::Enumerator(id))),
            Kind::Alias(Type::Unknown) => Ok(None),
            _ => {
                let notes = self.scopes.note(id, "it is declared here");
                let message = format!("\"{}\" is not a constant", name.text());
                self.scopes.session.error_with(name.at(), message, &notes);
                Ok(None)
            }
        }
    }
}

fn character(is_wide: bool, units: &[u16]) -> Result<Constant, String> {
    match (units, is_wide) {
        ([unit], true) => Ok(Constant::WChar(*unit)),
        ([unit], false) => Ok(Constant::Char(*unit as u8)),
        _ => Err("a character literal has one character".into()),
    }
}

fn fit_length(length: usize, bound: Option<u32>) -> Result<(), String> {
    match bound {
        Some(bound) if length > bound as usize => {
            Err(format!("a string of {length} characters for a type of at most {bound}"))
        }
        _ => Ok(()),
    }
}

fn fit_primitive(primitive: Primitive, value: Constant) -> Result<Constant, String> {
    let name = primitive_name(primitive);
    match (primitive, value) {
        (Primitive::Boolean, value @ Constant::Boolean(_)) => Ok(value),
        (Primitive::Char, value @ Constant::Char(_)) => Ok(value),
        (Primitive::WChar, value @ Constant::WChar(_)) => Ok(value),
        (Primitive::Float | Primitive::Double | Primitive::LongDouble, value) => {
            let value = match value {
                Constant::Float(value) => value,
                Constant::Integer(value) => value as f64,
                other => return Err(format!("expected a {name}, found {}", kind_of(&other))),
            };
            match primitive == Primitive::Float && (value as f32).is_infinite() {
                true => Err(format!("{value} is too large for a float")),
                false => Ok(Constant::Float(value)),
            }
        }
        (_, Constant::Integer(value)) => match integers(primitive) {
            Some((least, most, _)) if !(least..=most).contains(&value) => {
                Err(format!("{value} is out of range for {name}: its values are {least} to {most}"))
            }
            Some(_) => Ok(Constant::Integer(value)),
            None => Err(format!("expected a {name}, found an integer")),
        },
        (_, other) => Err(format!("expected a value of the type {name}, found {}", kind_of(&other))),
    }
}
