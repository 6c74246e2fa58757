//! Unions as enumerations of Rust.
//!
//! An arm with one label is a variant with its member. An arm with several labels, or the default, has the
//! discriminator, too. If values of the discriminator have no arm, `Nothing` has them.

use std::collections::HashSet;

use super::Generator;
use super::names::{camel, unique};
use crate::model::{Constant, DefinitionId, Kind, Primitive, Type, Union};

/// An arm as a variant.
struct Variant {
    name: String,
    idl: String,
    type_: String,
    call: String,
    /// Labels as patterns.
    patterns: Vec<String>,
    /// Labels in descriptions.
    numbers: Vec<i128>,
    is_default: bool,
}

impl Variant {
    fn has_label(&self) -> bool {
        self.is_default || self.patterns.len() > 1
    }
}

/// A union as it is generated.
struct Parts {
    name: String,
    discriminator: String,
    /// A suffix that gives literals their type.
    suffix: String,
    variants: Vec<Variant>,
    /// All values of the discriminator have a label.
    is_complete: bool,
}

impl Parts {
    fn default(&self) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.is_default)
    }

    fn labels(&self) -> Vec<&str> {
        self.variants.iter().flat_map(|variant| &variant.patterns).map(String::as_str).collect()
    }

    /// Whether discriminators exist without an arm.
    fn has_nothing(&self) -> bool {
        !self.is_complete && self.default().is_none()
    }
}

impl Generator<'_> {
    fn parts(&self, id: DefinitionId, of: &Union) -> Parts {
        let discriminator = of.discriminator.clone().unwrap_or(Type::Unknown);
        let resolved = self.specification.resolve(&discriminator).clone();
        let mut taken = HashSet::new();
        let variants: Vec<Variant> = of
            .cases
            .iter()
            .map(|case| Variant {
                name: unique(&mut taken, camel(&case.member.name)),
                idl: case.member.name.clone(),
                type_: self.rust(id, &case.member.type_),
                call: self.rust_call(id, &case.member.type_),
                patterns: case.labels.iter().map(|label| self.value(id, &resolved, label)).collect(),
                numbers: case.labels.iter().map(|label| self.number(label)).collect(),
                is_default: case.is_default,
            })
            .collect();
        let count: usize = variants.iter().map(|variant| variant.patterns.len()).sum();
        let values = match &resolved {
            Type::Primitive(Primitive::Boolean) => Some(2),
            Type::Primitive(Primitive::Octet | Primitive::UInt8 | Primitive::Int8) => Some(256),
            Type::Named(of) => match self.specification.get(*of).kind() {
                Kind::Enum(enumerators) => Some(enumerators.len()),
                _ => None,
            },
            _ => None,
        };
        let is_number = !matches!(
            resolved,
            Type::Named(_) | Type::Primitive(Primitive::Boolean | Primitive::Char | Primitive::WChar)
        );
        Parts {
            name: self.names.item(id).to_owned(),
            discriminator: self.rust(id, &discriminator),
            suffix: if is_number { self.rust(id, &resolved) } else { String::new() },
            variants,
            is_complete: values == Some(count),
        }
    }

    /// A label as descriptions have it.
    fn number(&self, label: &Constant) -> i128 {
        match label {
            Constant::Integer(value) => *value,
            Constant::Boolean(value) => i128::from(*value),
            Constant::Char(value) => i128::from(*value),
            Constant::WChar(value) => i128::from(*value),
            Constant::Enumerator(id) => match self.specification.get(*id).kind() {
                Kind::Enumerator(_, number) => i128::from(*number),
                _ => 0,
            },
            _ => 0,
        }
    }

    pub(super) fn union(&mut self, id: DefinitionId, of: &Union) {
        let parts = self.parts(id, of);
        self.declare_union(id, &parts);
        self.encode_union(&parts);
        self.decode_union(&parts);
        self.describe_union(id, &parts);
    }

    fn declare_union(&mut self, id: DefinitionId, parts: &Parts) {
        self.document(id);
        self.line("#[derive(Clone, Debug, PartialEq)]");
        self.open(&format!("pub enum {} {{", parts.name));
        for variant in &parts.variants {
            self.line(&format!("/// Arm `{}`.", variant.idl));
            if !variant.has_label() {
                self.line(&format!("{}({}),", variant.name, variant.type_));
                continue;
            }
            self.open(&format!("{} {{", variant.name));
            self.line("/// The discriminator.");
            self.line(&format!("label: {},", parts.discriminator));
            self.line("/// The member.");
            self.line(&format!("value: {},", variant.type_));
            self.close("},");
        }
        if parts.has_nothing() {
            self.line("/// A discriminator without an arm.");
            self.open("Nothing {");
            self.line("/// The discriminator.");
            self.line(&format!("label: {},", parts.discriminator));
            self.close("},");
        }
        self.close("}");
        self.line("");
    }

    fn encode_union(&mut self, parts: &Parts) {
        let labels = parts.labels().join(" | ");
        self.open_encode(&parts.name, true);
        self.open("match self {");
        for variant in &parts.variants {
            if !variant.has_label() {
                let label = format!("{}{}", variant.patterns[0], parts.suffix);
                let label = if label.starts_with('-') { format!("({label})") } else { label };
                self.open(&format!("Self::{}(value) => {{", variant.name));
                self.line(&format!("{label}.encode(to)?;"));
                self.line("value.encode(to)");
                self.close("}");
                continue;
            }
            self.open(&format!("Self::{} {{ label, value }} => {{", variant.name));
            let own = variant.patterns.join(" | ");
            let others: Vec<&str> = parts
                .labels()
                .into_iter()
                .filter(|one| !variant.patterns.iter().any(|own| own == one))
                .collect();
            match (variant.is_default, others.is_empty()) {
                (true, true) => {}
                (true, false) => self.refuse_label(&is_one_of(&others.join(" | "), true)),
                (false, _) => self.refuse_label(&is_one_of(&own, false)),
            }
            self.line("label.encode(to)?;");
            self.line("value.encode(to)");
            self.close("}");
        }
        if parts.has_nothing() {
            self.open("Self::Nothing { label } => {");
            self.refuse_label(&is_one_of(&labels, true));
            self.line("label.encode(to)");
            self.close("}");
        }
        self.close("}");
        self.close("}");
        self.close("}");
        self.line("");
    }

    fn refuse_label(&mut self, condition: &str) {
        self.open(&format!("if {condition} {{"));
        self.line("return Err(giop::Error::Discriminator);");
        self.close("}");
    }

    fn decode_union(&mut self, parts: &Parts) {
        let least = format!("{}::BYTES_MIN", parts.discriminator);
        self.open_decode(&parts.name, &least, true);
        self.line(&format!("let label: {} = giop::Decode::decode(from)?;", parts.discriminator));
        self.open("Ok(match label {");
        let value = "giop::Decode::decode(from)?";
        for variant in parts.variants.iter().filter(|variant| !variant.is_default) {
            let patterns = variant.patterns.join(" | ");
            match variant.has_label() {
                true => {
                    self.line(&format!("{patterns} => Self::{} {{ label, value: {value} }},", variant.name))
                }
                false => self.line(&format!("{patterns} => Self::{}({value}),", variant.name)),
            }
        }
        match parts.default() {
            Some(variant) if !parts.is_complete || !variant.patterns.is_empty() => {
                self.line(&format!("_ => Self::{} {{ label, value: {value} }},", variant.name));
            }
            None if !parts.is_complete => self.line("_ => Self::Nothing { label },"),
            _ => {}
        }
        self.close("})");
        self.close("}");
        self.close("}");
        self.line("");
    }

    fn describe_union(&mut self, id: DefinitionId, parts: &Parts) {
        self.open_describe(id, "within, named");
        self.line(&format!("let discriminator = Box::new({}::describe(within));", parts.discriminator));
        self.open("let arms = vec![");
        let (mut count, mut default) = (0, None);
        for variant in &parts.variants {
            let mut numbers = variant.numbers.clone();
            if variant.is_default {
                default = Some(count + numbers.len());
                numbers.push(0);
            }
            count += numbers.len();
            for number in numbers {
                let member = Self::describe_member(&variant.call, &variant.idl);
                self.line(&format!("giop::typecode::Arm {{ label: {}, member: {member} }},", number as i64));
            }
        }
        self.close("];");
        let default = default.map_or("None".to_owned(), |index| format!("Some({index})"));
        self.line(&format!("giop::TypeCode::Union(named, discriminator, arms, {default})"));
        self.close_describe();
    }
}

/// The condition that `label` is one of these, or is not.
fn is_one_of(patterns: &str, expected: bool) -> String {
    match (patterns, expected) {
        ("true", true) | ("false", false) => "*label".into(),
        ("true", false) | ("false", true) => "!*label".into(),
        (_, true) => format!("matches!(label, {patterns})"),
        (_, false) => format!("!matches!(label, {patterns})"),
    }
}
