//! Methods of an interface as its clients and its servants have them.
//!
//! A method has what goes to the object as parameters (`in` and `inout`), and what comes back as its result:
//! what the operation returns, then `inout` and `out` in the order of the text.

use std::collections::HashSet;

use super::Generator;
use super::names::{camel, method, snake, unique};
use crate::model::{Attribute, DefinitionId, Direction, Interface, Kind, Operation, Primitive, Type};

/// Names of generated functions' own variables: a parameter with such a name gets an underscore.
const VARIABLES: &[&str] =
    &["arguments", "error", "exception", "from", "operation", "outcome", "reply", "to"];

/// How a servant gets a parameter from a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Passing {
    /// By value.
    Value,
    /// Borrowed from the message if its form allows that.
    Text,
    /// As `Text`, for numbers.
    Numbers,
    /// A reference to a value that is decoded.
    Reference,
}

/// What goes to the object.
pub(super) struct Input {
    pub name: String,
    /// The parameter's type.
    pub passed: String,
    /// The type that is decoded.
    pub owned: String,
    pub passing: Passing,
}

/// What comes back.
pub(super) struct Output {
    pub owned: String,
    /// The type that a servant gives.
    pub given: String,
}

/// An exception that may come instead.
pub(super) struct Raised {
    pub variant: String,
    pub path: String,
}

/// An operation, or reading or setting an attribute.
pub(super) struct Method {
    /// Its definition.
    pub id: DefinitionId,
    /// How messages name it.
    pub wire: String,
    pub name: String,
    pub is_oneway: bool,
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
    pub raises: Vec<Raised>,
    /// The definitions of these exceptions.
    pub exceptions: Vec<DefinitionId>,
    /// The type of its errors.
    pub error: String,
}

impl Method {
    /// Types as a tuple, one type alone as itself.
    fn tuple<'a>(types: impl Iterator<Item = &'a str>) -> String {
        let types: Vec<&str> = types.collect();
        match types[..] {
            [one] => one.to_owned(),
            _ => format!("({})", types.join(", ")),
        }
    }

    /// As documentation names it. Messages have `_get_` and `_set_` for attributes, and no operation begins so.
    pub fn title(&self) -> String {
        match (self.wire.strip_prefix("_get_"), self.wire.strip_prefix("_set_")) {
            (Some(attribute), _) => format!("Attribute `{attribute}`"),
            (_, Some(attribute)) => format!("Sets the attribute `{attribute}`"),
            _ => format!("Operation `{}`", self.wire),
        }
    }

    /// What a client gets.
    pub fn result(&self) -> String {
        Self::tuple(self.outputs.iter().map(|output| &*output.owned))
    }

    /// What a servant gives.
    pub fn given(&self) -> String {
        Self::tuple(self.outputs.iter().map(|output| &*output.given))
    }

    /// Whether what a servant gives may be a part of a parameter.
    pub fn borrows(&self) -> bool {
        self.outputs.iter().any(|output| output.given != output.owned)
    }
}

impl Generator<'_> {
    /// The methods that an interface itself declares, in code beside `from`.
    pub(super) fn own_methods(&self, from: DefinitionId, interface: DefinitionId) -> Vec<Method> {
        let mut methods = Vec::new();
        for &id in self.specification.get(interface).children() {
            if self.absent.contains(&id) {
                continue;
            }
            match self.specification.get(id).kind() {
                Kind::Operation(operation) => methods.push(self.operation(from, id, operation)),
                Kind::Attribute(attribute) => {
                    methods.push(self.getter(from, id, attribute));
                    if !attribute.is_readonly {
                        methods.push(self.setter(from, id, attribute));
                    }
                }
                _ => {}
            }
        }
        let mut taken = HashSet::new();
        for method in &mut methods {
            method.name = unique(&mut taken, std::mem::take(&mut method.name));
        }
        methods
    }

    /// All methods of an interface, with the interfaces that declare them: those of its ancestors first.
    pub(super) fn all_methods(
        &self,
        id: DefinitionId,
        interface: &Interface,
    ) -> Vec<(DefinitionId, Vec<Method>)> {
        let all = interface.ancestors.iter().copied().chain([id]);
        all.filter(|of| !self.absent.contains(of)).map(|of| (of, self.own_methods(id, of))).collect()
    }

    fn operation(&self, from: DefinitionId, id: DefinitionId, operation: &Operation) -> Method {
        let mut taken: HashSet<String> = VARIABLES.iter().map(|&name| name.to_owned()).collect();
        let mut inputs = Vec::new();
        let mut outputs: Vec<Output> =
            operation.returns.iter().map(|type_| self.output(from, type_)).collect();
        for parameter in &operation.parameters {
            if parameter.direction != Direction::Out {
                let name = unique(&mut taken, snake(&parameter.name));
                inputs.push(self.input(from, name, &parameter.type_));
            }
            if parameter.direction != Direction::In {
                outputs.push(self.output(from, &parameter.type_));
            }
        }
        if !operation.context.is_empty() {
            let strings = Type::Sequence(Box::new(Type::String(None)), None);
            inputs.push(self.input(from, unique(&mut taken, "context".into()), &strings));
        }
        let name = self.specification.get(id).name();
        Method {
            id,
            wire: name.to_owned(),
            name: method(name),
            is_oneway: operation.is_oneway,
            inputs,
            outputs,
            raises: self.raised(from, &operation.raises),
            exceptions: operation.raises.clone(),
            error: self.error(from, id, &operation.raises),
        }
    }

    fn getter(&self, from: DefinitionId, id: DefinitionId, attribute: &Attribute) -> Method {
        let name = self.specification.get(id).name();
        Method {
            id,
            wire: format!("_get_{name}"),
            name: method(name),
            is_oneway: false,
            inputs: Vec::new(),
            outputs: vec![self.output(from, &attribute.type_)],
            raises: self.raised(from, &attribute.get_raises),
            exceptions: self.all_raises(id),
            error: self.error(from, id, &attribute.get_raises),
        }
    }

    fn setter(&self, from: DefinitionId, id: DefinitionId, attribute: &Attribute) -> Method {
        let name = self.specification.get(id).name();
        Method {
            id,
            wire: format!("_set_{name}"),
            name: snake(&format!("set_{name}")),
            is_oneway: false,
            inputs: vec![self.input(from, "value".into(), &attribute.type_)],
            outputs: Vec::new(),
            raises: self.raised(from, &attribute.set_raises),
            exceptions: self.all_raises(id),
            error: self.error(from, id, &attribute.set_raises),
        }
    }

    fn error(&self, from: DefinitionId, id: DefinitionId, raises: &[DefinitionId]) -> String {
        match raises {
            [] => "orb::SystemException".into(),
            _ => self.names.path(self.specification, from, id),
        }
    }

    /// Exceptions in code beside `from`, each once.
    fn raised(&self, from: DefinitionId, raises: &[DefinitionId]) -> Vec<Raised> {
        let (mut ids, mut taken) = (HashSet::new(), HashSet::from(["System".to_owned()]));
        let each_once = raises.iter().filter(|id| ids.insert(**id));
        each_once
            .map(|&id| Raised {
                variant: unique(&mut taken, camel(self.specification.get(id).name())),
                path: self.names.path(self.specification, from, id),
            })
            .collect()
    }

    fn input(&self, from: DefinitionId, name: String, type_: &Type) -> Input {
        let owned = self.rust(from, type_);
        let (passed, passing) = match self.specification.resolve(type_) {
            Type::Primitive(Primitive::LongDouble) => (format!("&{owned}"), Passing::Reference),
            Type::Primitive(_) => (owned.clone(), Passing::Value),
            Type::String(None) => ("&str".into(), Passing::Text),
            Type::Sequence(element, None) => {
                let slice = format!("&[{}]", self.rust(from, element));
                let passing = if self.is_number(element) { Passing::Numbers } else { Passing::Reference };
                (slice, passing)
            }
            Type::Named(id) if matches!(self.specification.get(*id).kind(), Kind::Enum(_)) => {
                (owned.clone(), Passing::Value)
            }
            _ => (format!("&{owned}"), Passing::Reference),
        };
        Input { name, passed, owned, passing }
    }

    fn output(&self, from: DefinitionId, type_: &Type) -> Output {
        let owned = self.rust(from, type_);
        let given = match self.specification.resolve(type_) {
            Type::String(None) => "orb::Cow<'a, str>".into(),
            Type::Sequence(element, None) if self.is_number(element) => {
                format!("orb::Cow<'a, [{}]>", self.rust(from, element))
            }
            _ => owned.clone(),
        };
        Output { owned, given }
    }

    /// Whether sequences of it are used where they are in a message.
    fn is_number(&self, type_: &Type) -> bool {
        use Primitive::{Boolean, Char, LongDouble, WChar};
        match self.specification.resolve(type_) {
            Type::Primitive(primitive) => !matches!(primitive, Boolean | Char | LongDouble | WChar),
            _ => false,
        }
    }

    /// What an operation or attribute of an interface raises: reading and setting together.
    fn all_raises(&self, id: DefinitionId) -> Vec<DefinitionId> {
        match self.specification.get(id).kind() {
            Kind::Operation(operation) => operation.raises.clone(),
            Kind::Attribute(of) => of.get_raises.iter().chain(&of.set_raises).copied().collect(),
            _ => Vec::new(),
        }
    }

    /// Whether an operation has an error type of its own.
    pub(super) fn has_errors(&self, id: DefinitionId) -> bool {
        !self.absent.contains(&id) && !self.all_raises(id).is_empty()
    }

    /// The error type of an operation or attribute, in its interface's module.
    pub(super) fn errors(&mut self, id: DefinitionId) {
        let raises = self.raised(id, &self.all_raises(id));
        let name = self.names.item(id).to_owned();
        let idl = self.specification.get(id).name();
        self.line(&format!("/// Why `{idl}` fails."));
        self.line("#[derive(Clone, Debug, PartialEq)]");
        let largest = self.all_raises(id).iter().filter_map(|id| self.memory.get(id)).max().copied();
        self.allow_variants(largest.unwrap_or_default());
        self.open(&format!("pub enum {name} {{"));
        for raised in &raises {
            self.line("/// The exception of the same name.");
            self.line(&format!("{}({}),", raised.variant, raised.path));
        }
        self.line("/// What the ORB says, here or there.");
        self.line("System(orb::SystemException),");
        self.close("}");
        self.line("");
        let system = Raised { variant: "System".into(), path: "orb::SystemException".into() };
        let all: Vec<&Raised> = raises.iter().chain([&system]).collect();
        self.show_errors(&name, &all);
        for raised in all {
            self.open(&format!("impl From<{}> for {name} {{", raised.path));
            self.open(&format!("fn from(exception: {}) -> Self {{", raised.path));
            self.line(&format!("Self::{}(exception)", raised.variant));
            self.close("}");
            self.close("}");
            self.line("");
        }
    }

    fn show_errors(&mut self, name: &str, all: &[&Raised]) {
        self.open(&format!("impl core::fmt::Display for {name} {{"));
        self.open("fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {");
        self.open("match self {");
        for raised in all {
            self.line(&format!("Self::{}(exception) => exception.fmt(f),", raised.variant));
        }
        self.close("}");
        self.close("}");
        self.close("}");
        self.line("");
        self.line(&format!("impl core::error::Error for {name} {{}}"));
        self.line("");
    }
}
