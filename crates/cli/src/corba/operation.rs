//! Operations of an IDL file, as they are called.

use punctual_idl::model::{
    Attribute, DefinitionId, Direction, Kind, Operation as Declared, Primitive, Specification, Type,
};

use crate::output::Usage;

/// An operation as it is called.
#[derive(Debug)]
pub struct Operation {
    /// Name of the operation in GIOP messages.
    pub wire: String,
    pub is_oneway: bool,
    pub inputs: Vec<(String, Type)>,
    pub returns: Option<Type>,
    pub outputs: Vec<(String, Type)>,
    pub raises: Vec<DefinitionId>,
}

/// What is called.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Name of the operation or attribute.
    pub name: &'a str,
    /// Whether it gets arguments: attributes are set then.
    pub has_arguments: bool,
    /// The interface, as the command line says it.
    pub interface: Option<&'a str>,
    /// The repository identifier in the object's reference.
    pub type_id: &'a str,
}

/// The operation that all objects have, if it is one.
pub fn of_all_objects(name: &str) -> Option<Operation> {
    let (inputs, returns) = match name {
        "_is_a" => {
            (vec![("logical_type_id".to_owned(), Type::String(None))], Type::Primitive(Primitive::Boolean))
        }
        "_non_existent" => (vec![], Type::Primitive(Primitive::Boolean)),
        "_repository_id" => (vec![], Type::String(None)),
        "_interface" | "_component" => (vec![], Type::Object),
        _ => return None,
    };
    let wire = name.to_owned();
    Some(Operation {
        wire,
        is_oneway: false,
        inputs,
        returns: Some(returns),
        outputs: vec![],
        raises: vec![],
    })
}

impl Asked<'_> {
    /// The operation in the interface that the command line names, or the reference, or in the only one that has it.
    ///
    /// # Errors
    /// [`Usage`] if there is none, or more than one.
    pub fn find(self, specification: &Specification) -> Result<Operation, Usage> {
        let is_meant = |id: DefinitionId, repository_id: &str| match self.interface {
            Some(name) => specification.path(id).join("::") == name.trim_start_matches("::"),
            None => repository_id == self.type_id,
        };
        let interfaces = || {
            let all = specification.all();
            all.filter(|(_, definition)| matches!(definition.kind(), Kind::Interface(of) if of.is_defined))
        };
        let meant = interfaces().find(|(id, definition)| is_meant(*id, definition.repository_id()));
        let found: Vec<Operation> = match (meant, self.interface) {
            (Some((id, _)), _) => self.of_interface(specification, id)?.into_iter().collect(),
            (None, Some(name)) => return Err(Usage(format!("the IDL file has no interface {name}"))),
            (None, None) => {
                let own = interfaces().map(|(id, _)| self.own(specification, id));
                own.filter_map(Result::transpose).collect::<Result<_, _>>()?
            }
        };
        let count = found.len();
        let mut found = found.into_iter();
        match (found.next(), count) {
            (Some(one), 1) => Ok(one),
            (None, _) => Err(Usage(format!("no such operation or attribute: {}", self.name))),
            _ => Err(Usage(format!("{count} interfaces have {}: say --interface", self.name))),
        }
    }

    /// The operation in an interface or in what it inherits from.
    fn of_interface(
        self,
        specification: &Specification,
        id: DefinitionId,
    ) -> Result<Option<Operation>, Usage> {
        let Kind::Interface(of) = specification.get(id).kind() else { return Ok(None) };
        let mut all = [id].into_iter().chain(of.ancestors.iter().copied());
        all.find_map(|id| self.own(specification, id).transpose()).transpose()
    }

    fn own(self, specification: &Specification, id: DefinitionId) -> Result<Option<Operation>, Usage> {
        let children = specification.get(id).children().iter().map(|child| specification.get(*child));
        let mut named = children.filter(|child| child.name() == self.name);
        let found = named.find_map(|child| match child.kind() {
            Kind::Operation(of) => Some(Ok(self.operation(of))),
            Kind::Attribute(of) => Some(self.attribute(of)),
            _ => None,
        });
        found.transpose()
    }

    fn operation(self, of: &Declared) -> Operation {
        let parameters = |other: Direction| -> Vec<(String, Type)> {
            let passing = of.parameters.iter().filter(move |one| one.direction != other);
            passing.map(|one| (one.name.clone(), one.type_.clone())).collect()
        };
        let mut inputs = parameters(Direction::Out);
        if !of.context.is_empty() {
            // Names and values of properties, in turns.
            inputs.push(("context".into(), Type::Sequence(Box::new(Type::String(None)), None)));
        }
        Operation {
            wire: self.name.to_owned(),
            is_oneway: of.is_oneway,
            inputs,
            returns: of.returns.clone(),
            outputs: parameters(Direction::In),
            raises: of.raises.clone(),
        }
    }

    fn attribute(self, of: &Attribute) -> Result<Operation, Usage> {
        let is_set = self.has_arguments;
        if is_set && of.is_readonly {
            return Err(Usage(format!("the attribute {} is readonly: it cannot be set", self.name)));
        }
        Ok(Operation {
            wire: format!("_{}_{}", if is_set { "set" } else { "get" }, self.name),
            is_oneway: false,
            inputs: if is_set { vec![("value".into(), of.type_.clone())] } else { vec![] },
            returns: if is_set { None } else { Some(of.type_.clone()) },
            outputs: vec![],
            raises: if is_set { of.set_raises.clone() } else { of.get_raises.clone() },
        })
    }
}
