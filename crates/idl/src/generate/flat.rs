//! Structures and enumerations whose number of bytes the compiler knows (`giop::Flat`).

use std::collections::HashMap;

use super::Generator;
use super::data::Field;
use crate::limits::{FLAT_BYTES_MAX, FLAT_PARTS_MAX};
use crate::model::{DefinitionId, Kind, Primitive, Specification, Type};

/// What a flat type has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// Numbers and enumerators.
    parts: u64,
    /// Bytes, with the padding that they need at most.
    bytes: u64,
}

impl Size {
    fn of(bytes: u64, alignment: u64) -> Option<Self> {
        Some(Self { parts: 1, bytes: bytes + alignment - 1 })
    }

    fn times(self, count: u64) -> Option<Self> {
        Self { parts: self.parts.checked_mul(count)?, bytes: self.bytes.checked_mul(count)? }.limited()
    }

    fn limited(self) -> Option<Self> {
        (self.parts <= FLAT_PARTS_MAX && self.bytes <= FLAT_BYTES_MAX).then_some(self)
    }
}

/// The flat structures among all definitions. A type is declared before it is a member, so one pass is enough.
pub(super) fn flat_structures(specification: &Specification) -> HashMap<DefinitionId, Size> {
    let mut flat = HashMap::new();
    for (id, definition) in specification.all() {
        let Kind::Struct(of) = definition.kind() else { continue };
        let base = of.base.map_or(Some(Size::default()), |base| flat.get(&base).copied());
        let size = of.members.iter().try_fold(base, |all, member| {
            let (Some(all), Some(one)) = (all, size(specification, &flat, &member.type_)) else {
                return None;
            };
            Some(Size { parts: all.parts + one.parts, bytes: all.bytes + one.bytes }.limited())
        });
        if let Some(size) = size.flatten().filter(|size| size.parts > 0) {
            flat.insert(id, size);
        }
    }
    flat
}

fn size(specification: &Specification, flat: &HashMap<DefinitionId, Size>, type_: &Type) -> Option<Size> {
    match specification.resolve(type_) {
        Type::Primitive(primitive) => match primitive {
            Primitive::Int8 | Primitive::UInt8 | Primitive::Octet | Primitive::Boolean | Primitive::Char => {
                Size::of(1, 1)
            }
            Primitive::Short | Primitive::UShort => Size::of(2, 2),
            Primitive::Long | Primitive::ULong | Primitive::Float => Size::of(4, 4),
            Primitive::LongLong | Primitive::ULongLong | Primitive::Double => Size::of(8, 8),
            Primitive::LongDouble => Size::of(16, 8),
            // Its bytes depend on the version of GIOP.
            Primitive::WChar => None,
        },
        Type::Array(element, dimensions) => {
            let count = dimensions.iter().try_fold(1u64, |all, &one| all.checked_mul(one.into()))?;
            size(specification, flat, element)?.times(count)
        }
        Type::Named(id) => match specification.get(*id).kind() {
            Kind::Enum(_) => Size::of(4, 4),
            Kind::Struct(_) => flat.get(id).copied(),
            _ => None,
        },
        _ => None,
    }
}

impl Generator<'_> {
    /// Whether a structure is flat.
    pub(super) fn is_flat(&self, id: DefinitionId) -> bool {
        self.flat.contains_key(&id)
    }

    fn open_put(&mut self, name: &str, layout: &str) {
        self.open(&format!("impl giop::Flat for {name} {{"));
        self.line(&format!("const LAYOUT: giop::Layout = {layout};"));
        self.line("");
        self.line("#[inline(always)]");
        self.open("fn put(&self, to: &mut giop::flat::Writer<'_>) -> Result<(), giop::Error> {");
    }

    fn open_take(&mut self) {
        self.close("}");
        self.line("");
        self.line("#[inline(always)]");
        self.open("fn take(from: &mut giop::flat::Reader<'_>) -> Result<Self, giop::Error> {");
    }

    fn close_flat(&mut self, name: &str) {
        self.close("}");
        self.close("}");
        self.line("");
        self.line(&format!("giop::flat!({name});"));
        self.line("");
    }

    pub(super) fn flat_fields(&mut self, id: DefinitionId, fields: &[Field]) {
        let name = self.names.item(id).to_owned();
        let layouts: Vec<String> = fields.iter().map(|field| format!("{}::LAYOUT", field.call)).collect();
        self.open_put(&name, &format!("giop::Layout::of(&[{}])", layouts.join(", ")));
        for (number, field) in fields.iter().enumerate() {
            let end = if number + 1 == fields.len() { "" } else { "?;" };
            self.line(&format!("self.{}.put(to){end}", field.name));
        }
        self.open_take();
        self.open("Ok(Self {");
        for field in fields {
            self.line(&format!("{}: giop::Flat::take(from)?,", field.name));
        }
        self.close("})");
        self.close_flat(&name);
    }

    pub(super) fn flat_enumeration(&mut self, name: &str) {
        self.open_put(name, "<u32 as giop::Flat>::LAYOUT");
        self.line("giop::Flat::put(&(*self as u32), to)");
        self.open_take();
        self.line("<u32 as giop::Flat>::take(from)?.try_into()");
        self.close_flat(name);
    }
}
