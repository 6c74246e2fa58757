//! Where the IDL asks for what clippy warns of, generated code says that it is meant.

use std::collections::HashMap;

use super::Generator;
use super::interface::Method;
use crate::model::{DefinitionId, Kind, Member, Primitive, Specification, Type};

/// Parameters with `self` up to which clippy says nothing.
const PARAMETERS_MAX: usize = 7;

/// Bytes of an error, and of a variant more than of others, from which clippy may warn. Its own limits are 128 and
/// 200; sizes here are estimates, and too many attributes do no harm.
const BYTES_MAX: u64 = 96;

/// About how many bytes values of each definition have in memory. A type is declared before it is a member.
pub(super) fn memory(specification: &Specification) -> HashMap<DefinitionId, u64> {
    let mut memory = HashMap::new();
    for (id, definition) in specification.all() {
        let members = |members: &[Member]| {
            let sizes = members.iter().map(|member| size(specification, &memory, &member.type_));
            sizes.fold(0, u64::saturating_add)
        };
        let bytes = match definition.kind() {
            Kind::Struct(of) => {
                let base = of.base.and_then(|base| memory.get(&base).copied()).unwrap_or_default();
                members(&of.members).saturating_add(base)
            }
            Kind::Exception(of) => members(of),
            Kind::Union(of) => {
                let arms = of.cases.iter().map(|case| size(specification, &memory, &case.member.type_));
                arms.max().unwrap_or_default().saturating_add(16)
            }
            _ => continue,
        };
        memory.insert(id, bytes);
    }
    memory
}

fn size(specification: &Specification, memory: &HashMap<DefinitionId, u64>, type_: &Type) -> u64 {
    match specification.resolve(type_) {
        Type::Primitive(Primitive::LongDouble) | Type::Fixed(_) => 16,
        Type::Primitive(_) => 8,
        Type::Array(element, dimensions) => dimensions
            .iter()
            .fold(size(specification, memory, element), |all, &count| all.saturating_mul(count.into())),
        Type::Any | Type::TypeCode => 128,
        Type::Object => 48,
        Type::Named(id) => memory.get(id).copied().unwrap_or(48),
        _ => 24,
    }
}

impl Generator<'_> {
    /// Allows what a method with this name may break; one without a name has no parameters.
    pub(super) fn allow_for(&mut self, name: &str, method: &Method) {
        let error = method.exceptions.iter().map(|id| self.memory.get(id).copied().unwrap_or_default()).max();
        let is_conversion = name == "new" || name.starts_with("from_") || name.starts_with("into_");
        let lints = [
            ("too_many_arguments", !name.is_empty() && method.inputs.len() + 1 > PARAMETERS_MAX),
            ("wrong_self_convention", is_conversion),
            ("new_ret_no_self", name == "new"),
            ("type_complexity", method.outputs.len() > 2),
            ("result_large_err", error.is_some_and(|bytes| bytes > BYTES_MAX)),
        ];
        self.allow(&lints);
    }

    /// Allows variants of very different sizes, if there may be such.
    pub(super) fn allow_variants(&mut self, bytes_max: u64) {
        self.allow(&[("large_enum_variant", bytes_max > BYTES_MAX)]);
    }

    fn allow(&mut self, lints: &[(&str, bool)]) {
        let lints: Vec<String> = lints
            .iter()
            .filter(|(_, is_meant)| *is_meant)
            .map(|(lint, _)| format!("clippy::{lint}"))
            .collect();
        if !lints.is_empty() {
            self.line(&format!("#[allow({})]", lints.join(", ")));
        }
    }
}
