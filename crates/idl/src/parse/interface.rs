//! Interfaces, operations and attributes.

use std::collections::HashSet;

use super::types::Place;
use super::{Parsed, Parser};
use crate::model::{
    Annotation, Attribute, DefinitionId, Direction, Flavour, Interface, Kind, Operation, Parameter, Type,
};
use crate::scope::{Name, ScopedName};
use crate::source::Location;

/// A flavour as messages name it.
fn flavour_name(flavour: Flavour) -> &'static str {
    match flavour {
        Flavour::Unconstrained => "an interface",
        Flavour::Abstract => "an abstract interface",
        Flavour::Local => "a local interface",
    }
}

impl Parser<'_> {
    /// An interface or its declaration, without its semicolon.
    pub(super) fn interface(&mut self, flavour: Flavour, annotations: Vec<Annotation>) -> Parsed<()> {
        self.expect_word("interface")?;
        let name = self.identifier("the name of an interface")?;
        let begins = self.is_sign('{') || self.is_sign(':');
        let declared = Kind::Interface(Interface { flavour, ..Interface::default() });
        let known = self
            .scopes
            .forward(&name, |kind| matches!(kind, Kind::Interface(of) if !of.is_defined || !begins));
        let id = match known.or_else(|| self.scopes.replaces_native(&name)) {
            Some(id) => {
                self.check_flavour(&name, id, flavour)?;
                id
            }
            None => self.scopes.declare(&name, declared.clone())?,
        };
        self.scopes.redeclared(id, &name, &declared);
        self.scopes.draft(id).annotations.extend(annotations);
        if !begins {
            return Ok(());
        }
        self.scopes.defined(id, &name);
        let at = self.here();
        let bases = if self.eat_sign(':') { self.bases(id, flavour)? } else { Vec::new() };
        let ancestors = self.scopes.ancestors(at, &bases);
        self.scopes.draft(id).kind =
            Kind::Interface(Interface { flavour, bases, ancestors, is_defined: false });
        let read = self.inside(id, |parser| {
            parser.body("behind the name of the interface", |parser, annotations| {
                parser.export(flavour != Flavour::Local, annotations)
            })
        });
        if let Kind::Interface(interface) = &mut self.scopes.draft(id).kind {
            interface.is_defined = true;
        }
        read
    }

    fn check_flavour(&mut self, name: &Name, id: DefinitionId, flavour: Flavour) -> Parsed<()> {
        match self.scopes.kind(id) {
            Kind::Interface(before) if before.flavour != flavour => {
                let message = format!("\"{}\" was declared as {}", name.text, flavour_name(before.flavour));
                self.note_error(name.at, message)
            }
            _ => Ok(()),
        }
    }

    /// Interfaces that are defined, and that an interface of this flavour may inherit from.
    fn bases(&mut self, of: DefinitionId, flavour: Flavour) -> Parsed<Vec<DefinitionId>> {
        self.names("the name of an interface", |parser, name, id| {
            let wrong = match parser.scopes.kind(id) {
                Kind::Interface(_) if id == of => "it cannot inherit from itself".to_owned(),
                Kind::Interface(base) if !base.is_defined => {
                    format!("\"{}\" is only declared, and a base must be defined", name.text())
                }
                Kind::Interface(base) => match (flavour, base.flavour) {
                    (Flavour::Abstract, Flavour::Unconstrained | Flavour::Local)
                    | (Flavour::Unconstrained, Flavour::Local) => format!(
                        "{} cannot inherit from {}",
                        flavour_name(flavour),
                        flavour_name(base.flavour)
                    ),
                    _ => return true,
                },
                _ => format!("\"{}\" is not an interface", name.text()),
            };
            let notes = parser.scopes.note(id, "it is declared here");
            parser.scopes.session.error_with(name.at(), wrong, &notes);
            false
        })
    }

    /// What interfaces and value types have: a definition, an attribute or an operation, and its semicolon.
    pub(super) fn export(&mut self, is_remote: bool, annotations: Vec<Annotation>) -> Parsed<()> {
        match &*self.word().unwrap_or_default() {
            "const" | "exception" | "typedef" | "struct" | "union" | "enum" | "native" => {
                return self.local_definition(annotations);
            }
            "bitset" | "bitmask" if self.is_extended() => return self.local_definition(annotations),
            "typeid" | "typeprefix" | "import" => return self.definition(annotations),
            "readonly" | "attribute" => self.attribute(is_remote, annotations)?,
            _ => self.operation(is_remote, annotations)?,
        }
        self.expect_sign(';', "behind the declaration")
    }

    /// `[readonly] attribute TYPE NAME ...`
    pub(super) fn attribute(&mut self, is_remote: bool, annotations: Vec<Annotation>) -> Parsed<()> {
        let is_readonly = self.eat_word("readonly");
        self.expect_word("attribute")?;
        let at = self.here();
        let type_ = self.type_(Place::Parameter)?;
        self.check_remote(at, &type_, is_remote)?;
        let mut names = vec![self.identifier("the name of an attribute")?];
        while self.eat_sign(',') {
            names.push(self.identifier("the name of an attribute")?);
        }
        let (mut get_raises, mut set_raises) = (Vec::new(), Vec::new());
        if is_readonly {
            if self.eat_word("raises") {
                get_raises = self.exceptions()?;
            }
        } else {
            if self.eat_word("getraises") {
                get_raises = self.exceptions()?;
            }
            if self.eat_word("setraises") {
                set_raises = self.exceptions()?;
            }
        }
        let attribute = Attribute { is_readonly, type_, get_raises, set_raises };
        for name in names {
            let id = self.scopes.declare(&name, Kind::Attribute(attribute.clone()))?;
            self.scopes.draft(id).annotations = annotations.clone();
        }
        Ok(())
    }

    /// `[oneway] TYPE NAME(PARAMETERS) [raises (...)] [context (...)]`
    fn operation(&mut self, is_remote: bool, annotations: Vec<Annotation>) -> Parsed<()> {
        let is_oneway = self.eat_word("oneway");
        let at = self.here();
        let returns = match self.eat_word("void") {
            true => None,
            false => Some(self.type_(Place::Parameter)?),
        };
        if let Some(type_) = &returns {
            self.check_remote(at, type_, is_remote)?;
            if is_oneway {
                self.note_error(at, "a oneway operation returns nothing (void)")?;
            }
        }
        let name = self.identifier("the name of an operation")?;
        let (parameters, raises, context) = (Vec::new(), Vec::new(), Vec::new());
        let mut operation = Operation { is_oneway, returns, parameters, raises, context };
        let id = self.scopes.declare(&name, Kind::Operation(operation.clone()))?;
        self.scopes.draft(id).annotations = annotations;
        self.inside(id, |parser| {
            operation.parameters = parser.parameters(is_oneway, is_remote)?;
            let at = parser.here();
            if parser.eat_word("raises") {
                operation.raises = parser.exceptions()?;
                if is_oneway {
                    parser.note_error(at, "a oneway operation raises nothing")?;
                }
            }
            if parser.eat_word("context") {
                operation.context = parser.context()?;
            }
            Ok(())
        })?;
        self.scopes.draft(id).kind = Kind::Operation(operation);
        Ok(())
    }

    /// Parameters in parentheses.
    pub(super) fn parameters(&mut self, is_oneway: bool, is_remote: bool) -> Parsed<Vec<Parameter>> {
        self.expect_sign('(', "behind the name")?;
        let mut parameters = Vec::new();
        if self.eat_sign(')') {
            return Ok(parameters);
        }
        loop {
            self.annotations()?;
            let at = self.here();
            let direction = match &*self.word().unwrap_or_default() {
                "in" => Direction::In,
                "out" => Direction::Out,
                "inout" => Direction::InOut,
                _ => return self.unexpected("\"in\", \"out\" or \"inout\""),
            };
            self.take();
            if is_oneway && direction != Direction::In {
                self.note_error(at, "a oneway operation has only \"in\" parameters")?;
            }
            let at = self.here();
            let type_ = self.type_(Place::Parameter)?;
            self.check_remote(at, &type_, is_remote)?;
            let name = self.identifier("the name of a parameter")?;
            self.scopes.declare_instance(&name);
            parameters.push(Parameter { direction, name: name.text.to_string(), type_ });
            if !self.eat_sign(',') {
                self.expect_sign(')', "behind the parameters")?;
                return Ok(parameters);
            }
        }
    }

    /// Names of properties: letters, digits, points and underscores, and perhaps an asterisk at the end.
    fn context(&mut self) -> Parsed<Vec<String>> {
        self.expect_sign('(', "behind \"context\"")?;
        let mut names = Vec::new();
        loop {
            let at = self.here();
            let name = self.string("the name of a property as a string")?;
            let stem = name.strip_suffix('*').unwrap_or(&name);
            let is_plain = stem.chars().all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '_');
            if !is_plain || !stem.starts_with(|c: char| c.is_ascii_alphabetic()) {
                self.note_error(at, format!("\"{name}\" is not the name of a property"))?;
            }
            names.push(name);
            if !self.eat_sign(',') {
                self.expect_sign(')', "behind the context")?;
                return Ok(names);
            }
        }
    }

    /// Local types must not be passed to other processes.
    fn check_remote(&mut self, at: Location, type_: &Type, is_remote: bool) -> Parsed<()> {
        if is_remote && let Some(local) = self.local_part(type_, &mut HashSet::new()) {
            let message =
                format!("{} is local: only local interfaces can use it", self.scopes.full_name(local));
            self.note_error(at, message)?;
        }
        Ok(())
    }

    /// A local interface in the type.
    fn local_part(&self, type_: &Type, seen: &mut HashSet<DefinitionId>) -> Option<DefinitionId> {
        let mut open = vec![type_];
        while let Some(type_) = open.pop() {
            let id = match type_ {
                Type::Sequence(element, _) | Type::Array(element, _) => {
                    open.push(element);
                    continue;
                }
                Type::Map(key, value, _) => {
                    open.extend([&**key, &**value]);
                    continue;
                }
                Type::Named(id) if seen.insert(*id) => *id,
                _ => continue,
            };
            match self.scopes.kind(id) {
                Kind::Interface(Interface { flavour: Flavour::Local, .. }) => return Some(id),
                Kind::Alias(of) => open.push(of),
                Kind::Struct(of) => open.extend(of.members.iter().map(|member| &member.type_)),
                Kind::Exception(members) => open.extend(members.iter().map(|member| &member.type_)),
                Kind::Union(of) => open.extend(of.cases.iter().map(|case| &case.member.type_)),
                _ => {}
            }
        }
        None
    }

    /// A list of interfaces that are defined.
    pub(super) fn interfaces(&mut self) -> Parsed<Vec<DefinitionId>> {
        self.names("the name of an interface", |parser, name: &ScopedName, id| {
            let is_interface = matches!(parser.scopes.kind(id), Kind::Interface(_));
            if !is_interface {
                parser.scopes.session.error(name.at(), format!("\"{}\" is not an interface", name.text()));
            }
            is_interface
        })
    }
}
