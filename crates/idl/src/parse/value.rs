//! Value types and event types.

use super::types::Place;
use super::{Parsed, Parser};
use crate::model::{Annotation, DefinitionId, Kind, Member, Operation, Value};
use crate::scope::Name;

impl Parser<'_> {
    /// A value type, a box or a declaration, without its semicolon.
    pub(super) fn value(
        &mut self,
        is_abstract: bool,
        is_custom: bool,
        annotations: Vec<Annotation>,
    ) -> Parsed<()> {
        let is_event = self.eat_word("eventtype");
        if !is_event {
            self.expect_word("valuetype")?;
        }
        let name = self.identifier("the name of a value type")?;
        let begins = ['{', ':'].iter().any(|&sign| self.is_sign(sign)) || self.is_word("supports");
        if !begins && !self.is_sign(';') {
            return self.boxed(&name, annotations);
        }
        let new = Value { is_abstract, is_custom, is_event, ..Value::default() };
        let known =
            self.scopes.forward(&name, |kind| matches!(kind, Kind::Value(of) if !of.is_defined || !begins));
        let id = match known {
            Some(id) => id,
            None => self.scopes.declare(&name, Kind::Value(new.clone()))?,
        };
        self.scopes.draft(id).annotations.extend(annotations);
        if !begins {
            return Ok(());
        }
        self.scopes.defined(id, &name);
        let value = self.value_header(id, new)?;
        self.scopes.draft(id).kind = Kind::Value(value);
        let mut members = Vec::new();
        let read = self.inside(id, |parser| {
            parser.body("behind the name of the value type", |parser, annotations| {
                parser.value_part(is_abstract, annotations, &mut members)
            })
        });
        if let Kind::Value(value) = &mut self.scopes.draft(id).kind {
            value.is_defined = true;
            value.members = members;
        }
        read
    }

    /// `valuetype NAME TYPE`
    fn boxed(&mut self, name: &Name, annotations: Vec<Annotation>) -> Parsed<()> {
        let id = self.scopes.declare(name, Kind::ValueBox(crate::model::Type::Unknown))?;
        self.scopes.draft(id).annotations = annotations;
        let type_ = self.inside(id, |parser| parser.type_(Place::Declaration))?;
        self.scopes.draft(id).kind = Kind::ValueBox(type_);
        Ok(())
    }

    /// `[: [truncatable] BASES] [supports INTERFACES]`
    fn value_header(&mut self, of: DefinitionId, mut value: Value) -> Parsed<Value> {
        if self.eat_sign(':') {
            self.eat_word("truncatable");
            let is_abstract = value.is_abstract;
            value.bases = self.names("the name of a value type", |parser, name, id| {
                let wrong = match parser.scopes.kind(id) {
                    Kind::Value(_) if id == of => "it cannot inherit from itself".to_owned(),
                    Kind::Value(base) if !base.is_defined => {
                        format!("\"{}\" is only declared, and a base must be defined", name.text())
                    }
                    Kind::Value(base) if is_abstract && !base.is_abstract => {
                        format!(
                            "an abstract value type cannot inherit from \"{}\", which has state",
                            name.text()
                        )
                    }
                    Kind::Value(_) => return true,
                    _ => format!("\"{}\" is not a value type", name.text()),
                };
                parser.scopes.session.error(name.at(), wrong);
                false
            })?;
        }
        if self.eat_word("supports") {
            value.supports = self.interfaces()?;
        }
        Ok(value)
    }

    /// A state member, an initializer, or what interfaces have.
    fn value_part(
        &mut self,
        is_abstract: bool,
        annotations: Vec<Annotation>,
        members: &mut Vec<Member>,
    ) -> Parsed<()> {
        let at = self.here();
        match &*self.word().unwrap_or_default() {
            "public" | "private" => {
                self.take();
                if is_abstract {
                    self.note_error(at, "an abstract value type has no state")?;
                }
                let at = self.here();
                let type_ = self.type_(Place::Declaration)?;
                self.declared_members(at, &type_, &annotations, members)
            }
            "factory" => {
                self.initializer()?;
                self.expect_sign(';', "behind the initializer")
            }
            _ => self.export(false, annotations),
        }
    }

    /// `factory NAME(PARAMETERS) [raises (...)]`, of a value type or of a home.
    pub(super) fn initializer(&mut self) -> Parsed<()> {
        self.take();
        let name = self.identifier("the name of an initializer")?;
        let (parameters, raises, context) = (Vec::new(), Vec::new(), Vec::new());
        let mut operation = Operation { is_oneway: false, returns: None, parameters, raises, context };
        let id = self.scopes.declare(&name, Kind::Operation(operation.clone()))?;
        self.inside(id, |parser| {
            operation.parameters = parser.parameters(false, false)?;
            if parser.eat_word("raises") {
                operation.raises = parser.exceptions()?;
            }
            Ok(())
        })?;
        self.scopes.draft(id).kind = Kind::Operation(operation);
        Ok(())
    }
}
