//! Types and constants as Rust writes them.

use super::Generator;
use crate::model::{Constant, DefinitionId, Primitive, Type};

impl Generator<'_> {
    /// A type, in code beside `from`.
    pub(super) fn rust(&self, from: DefinitionId, type_: &Type) -> String {
        match type_ {
            Type::Primitive(primitive) => rust_primitive(*primitive).into(),
            Type::String(None) => "String".into(),
            Type::String(Some(bound)) => format!("giop::Bounded<String, {bound}>"),
            Type::WString(None) => "giop::WString".into(),
            Type::WString(Some(bound)) => format!("giop::Bounded<giop::WString, {bound}>"),
            Type::Fixed(Some((digits, scale))) => format!("giop::Fixed<{digits}, {scale}>"),
            Type::Sequence(element, bound) => {
                let vec = format!("Vec<{}>", self.rust(from, element));
                bound.map_or(vec.clone(), |bound| format!("giop::Bounded<{vec}, {bound}>"))
            }
            Type::Array(element, dimensions) => dimensions
                .iter()
                .rev()
                .fold(self.rust(from, element), |inner, length| format!("[{inner}; {length}]")),
            Type::Any => "giop::Any".into(),
            Type::Object => "giop::Reference".into(),
            Type::TypeCode => "giop::TypeCode".into(),
            Type::Principal => "Vec<u8>".into(),
            Type::Named(id) => self.names.path(self.specification, from, *id),
            // Refused, or without code.
            Type::Fixed(None) | Type::Map(..) | Type::ValueBase | Type::Unknown => "()".into(),
        }
    }

    /// A type in an expression: `<Vec<i32>>::f()`, `i32::f()`.
    pub(super) fn rust_call(&self, from: DefinitionId, type_: &Type) -> String {
        let name = self.rust(from, type_);
        if name.contains(['<', '[']) { format!("<{name}>") } else { name }
    }

    pub(super) fn alias(&mut self, id: DefinitionId, of: &Type) {
        self.document(id);
        let type_ = self.rust(id, of);
        self.line(&format!("pub type {} = {type_};", self.names.item(id)));
        self.line("");
    }

    pub(super) fn constant(&mut self, id: DefinitionId, type_: &Type, value: &Constant) {
        self.document(id);
        let resolved = self.specification.resolve(type_);
        let rust = match (resolved, value) {
            (Type::String(_) | Type::WString(_) | Type::Fixed(_), _) => "&str".into(),
            _ => self.rust(id, type_),
        };
        let value = self.value(id, resolved, value);
        self.line(&format!("pub const {}: {rust} = {value};", self.names.item(id)));
        self.line("");
    }

    /// A constant as an expression, and as a pattern.
    pub(super) fn value(&self, from: DefinitionId, type_: &Type, value: &Constant) -> String {
        match value {
            Constant::Integer(value) => value.to_string(),
            Constant::Float(value) if *type_ == Type::Primitive(Primitive::Float) => {
                format!("{:?}", *value as f32)
            }
            Constant::Float(value) => format!("{value:?}"),
            Constant::Fixed(value) => format!("\"{}\"", decimal(value.unscaled, value.scale)),
            Constant::Boolean(value) => value.to_string(),
            Constant::Char(value) => format!("{:?}", char::from(*value)),
            Constant::WChar(value) => format!("giop::WChar({value})"),
            Constant::String(text) => {
                format!("{:?}", text.iter().copied().map(char::from).collect::<String>())
            }
            Constant::WString(text) => format!("{:?}", String::from_utf16_lossy(text)),
            Constant::Enumerator(id) => self.enumerator(from, *id),
        }
    }

    /// `Colour::Red`
    pub(super) fn enumerator(&self, from: DefinitionId, id: DefinitionId) -> String {
        match self.specification.get(id).kind() {
            crate::model::Kind::Enumerator(of, _) => {
                format!("{}::{}", self.names.path(self.specification, from, *of), self.names.item(id))
            }
            _ => String::new(),
        }
    }
}

fn rust_primitive(primitive: Primitive) -> &'static str {
    match primitive {
        Primitive::Int8 => "i8",
        Primitive::UInt8 | Primitive::Octet => "u8",
        Primitive::Short => "i16",
        Primitive::UShort => "u16",
        Primitive::Long => "i32",
        Primitive::ULong => "u32",
        Primitive::LongLong => "i64",
        Primitive::ULongLong => "u64",
        Primitive::Float => "f32",
        Primitive::Double => "f64",
        Primitive::LongDouble => "giop::value::LongDouble",
        Primitive::Boolean => "bool",
        Primitive::Char => "char",
        Primitive::WChar => "giop::WChar",
    }
}

/// `unscaled / 10^scale` in digits.
fn decimal(unscaled: i128, scale: u32) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = scale as usize + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale as usize);
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}
