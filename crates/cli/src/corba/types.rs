//! Descriptions of the types of an IDL file.

use punctual_giop::TypeCode;
use punctual_giop::typecode::{Arm, Member, Named, kind};
use punctual_idl::model::{self, Constant, DefinitionId, Kind, Primitive, Specification, Type};

use super::INT8;

/// Makes descriptions.
#[derive(Clone)]
pub struct Types<'a> {
    specification: &'a Specification,
    /// Definitions around the present one: one that is in itself refers to its own description.
    open: Vec<DefinitionId>,
    /// What stands for an `int8`.
    int8: u32,
}

impl<'a> Types<'a> {
    /// The types of an IDL file, for values that are read and written here.
    pub fn new(specification: &'a Specification) -> Self {
        Self { specification, open: Vec::new(), int8: INT8 }
    }

    /// The same for descriptions that are sent.
    pub fn sent(specification: &'a Specification) -> Self {
        Self { int8: kind::OCTET, ..Self::new(specification) }
    }

    /// The IDL file.
    pub fn specification(&self) -> &'a Specification {
        self.specification
    }

    /// The description of a type.
    ///
    /// # Errors
    /// One line that names the type, if GIOP has no description of it.
    pub fn of(&mut self, type_: &Type) -> Result<TypeCode, String> {
        Ok(match type_ {
            Type::Primitive(primitive) => TypeCode::Simple(self.simple(*primitive)),
            Type::String(bound) => TypeCode::String(bound.unwrap_or(0), false),
            Type::WString(bound) => TypeCode::String(bound.unwrap_or(0), true),
            Type::Fixed(Some((digits, scale))) => TypeCode::Fixed(*digits as u16, *scale as i16),
            Type::Sequence(element, bound) => {
                TypeCode::Sequence(Box::new(self.of(element)?), bound.unwrap_or(0))
            }
            Type::Array(element, dimensions) => {
                let element = self.of(element)?;
                dimensions
                    .iter()
                    .rev()
                    .fold(element, |inner, length| TypeCode::Array(Box::new(inner), *length))
            }
            Type::Any => TypeCode::Simple(kind::ANY),
            Type::TypeCode => TypeCode::Simple(kind::TYPE_CODE),
            Type::Principal => TypeCode::Simple(kind::PRINCIPAL),
            Type::Object => TypeCode::Reference(
                kind::OBJREF,
                Named { id: "IDL:omg.org/CORBA/Object:1.0".into(), name: "Object".into() },
            ),
            Type::Named(id) => return self.named(*id),
            Type::Map(..) => return Err(cannot("map")),
            Type::ValueBase => return Err(cannot("ValueBase")),
            Type::Fixed(None) | Type::Unknown => return Err(cannot("a type without bytes")),
        })
    }

    /// The description of a definition.
    ///
    /// # Errors
    /// As [`Types::of`].
    pub fn named(&mut self, id: DefinitionId) -> Result<TypeCode, String> {
        let definition = self.specification.get(id);
        let named = Named { id: definition.repository_id().into(), name: definition.name().into() };
        if self.open.contains(&id) {
            return Ok(TypeCode::Recursive(named.id));
        }
        self.open.push(id);
        let code = self.definition(definition.kind(), named);
        self.open.pop();
        code
    }

    fn definition(&mut self, of: &Kind, named: Named) -> Result<TypeCode, String> {
        Ok(match of {
            Kind::Alias(of) => TypeCode::Alias(named, Box::new(self.of(of)?)),
            Kind::Struct(of) => TypeCode::Struct(named, self.structure(of)?),
            Kind::Exception(members) => TypeCode::Exception(named, self.members(members)?),
            Kind::Union(of) => self.union(of, named)?,
            Kind::Enum(enumerators) => {
                let name = |id: &DefinitionId| self.specification.get(*id).name().to_owned();
                TypeCode::Enum(named, enumerators.iter().map(name).collect())
            }
            Kind::Interface(_) => TypeCode::Reference(kind::OBJREF, named),
            _ => return Err(cannot(&named.name)),
        })
    }

    /// The members of its base are first.
    fn structure(&mut self, of: &model::Struct) -> Result<Vec<Member>, String> {
        let mut all = Vec::new();
        if let Some(base) = of.base
            && let Kind::Struct(base) = self.specification.get(base).kind()
        {
            all = self.structure(base)?;
        }
        all.extend(self.members(&of.members)?);
        Ok(all)
    }

    fn members(&mut self, members: &[model::Member]) -> Result<Vec<Member>, String> {
        members.iter().map(|member| self.member(member)).collect()
    }

    fn member(&mut self, member: &model::Member) -> Result<Member, String> {
        Ok(Member { name: member.name.clone(), type_: self.of(&member.type_)? })
    }

    fn union(&mut self, of: &model::Union, named: Named) -> Result<TypeCode, String> {
        let discriminator = of.discriminator.as_ref().ok_or("a union without a discriminator")?;
        let discriminator = self.of(discriminator)?;
        let (mut arms, mut default) = (Vec::new(), None);
        for case in &of.cases {
            let member = self.member(&case.member)?;
            for label in &case.labels {
                arms.push(Arm { label: self.label(label), member: member.clone() });
            }
            if case.is_default {
                default = Some(arms.len() as u32);
                arms.push(Arm { label: 0, member });
            }
        }
        Ok(TypeCode::Union(named, Box::new(discriminator), arms, default))
    }

    fn label(&self, label: &Constant) -> i64 {
        match label {
            Constant::Integer(number) => *number as i64,
            Constant::Boolean(value) => i64::from(*value),
            Constant::Char(value) => i64::from(*value),
            Constant::WChar(value) => i64::from(*value),
            Constant::Enumerator(id) => match self.specification.get(*id).kind() {
                Kind::Enumerator(_, number) => i64::from(*number),
                _ => 0,
            },
            Constant::Float(_) | Constant::Fixed(_) | Constant::String(_) | Constant::WString(_) => 0,
        }
    }
}

impl Types<'_> {
    fn simple(&self, primitive: Primitive) -> u32 {
        if primitive == Primitive::Int8 { self.int8 } else { simple(primitive) }
    }
}

fn cannot(type_: &str) -> String {
    format!("values of the type {type_} cannot be sent")
}

fn simple(primitive: Primitive) -> u32 {
    match primitive {
        Primitive::Int8 | Primitive::UInt8 | Primitive::Octet => kind::OCTET,
        Primitive::Short => kind::SHORT,
        Primitive::UShort => kind::USHORT,
        Primitive::Long => kind::LONG,
        Primitive::ULong => kind::ULONG,
        Primitive::LongLong => kind::LONGLONG,
        Primitive::ULongLong => kind::ULONGLONG,
        Primitive::Float => kind::FLOAT,
        Primitive::Double => kind::DOUBLE,
        Primitive::LongDouble => kind::LONGDOUBLE,
        Primitive::Boolean => kind::BOOLEAN,
        Primitive::Char => kind::CHAR,
        Primitive::WChar => kind::WCHAR,
    }
}
