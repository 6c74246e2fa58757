//! Structures, unions and enumerations.

use std::collections::HashSet;

use super::types::Place;
use super::{Parsed, Parser};
use crate::limits::STRUCTURE_BASES_MAX;
use crate::model::{Annotation, Case, Constant, DefinitionId, Kind, Member, Primitive, Struct, Type, Union};
use crate::source::Location;

/// A union's labels as they are compared.
type Label = (u8, i128);

fn label(value: &Constant) -> Label {
    match value {
        Constant::Integer(value) => (0, *value),
        Constant::Char(value) => (1, i128::from(*value)),
        Constant::WChar(value) => (2, i128::from(*value)),
        Constant::Boolean(value) => (3, i128::from(*value)),
        Constant::Enumerator(id) => (4, i128::from(id.0)),
        // No other constant is a label.
        _ => (5, 0),
    }
}

/// The arms of a union while they are read.
#[derive(Default)]
struct Arms {
    cases: Vec<Case>,
    labels: HashSet<Label>,
    default: Option<Location>,
}

impl Parser<'_> {
    /// `struct`, `union` or `enum`, without its semicolon.
    pub(super) fn constructed(&mut self, annotations: Vec<Annotation>) -> Parsed<DefinitionId> {
        let word = self.take();
        let id = match &word.kind {
            crate::token::TokenKind::Word(word) if &**word == "struct" => self.structure()?,
            crate::token::TokenKind::Word(word) if &**word == "union" => self.union()?,
            _ => self.enumeration()?,
        };
        self.scopes.draft(id).annotations.extend(annotations);
        Ok(id)
    }

    fn structure(&mut self) -> Parsed<DefinitionId> {
        let name = self.identifier("the name of a structure")?;
        let forward = self.scopes.forward(&name, |kind| matches!(kind, Kind::Struct(of) if !of.is_defined));
        let id = match forward {
            Some(id) => id,
            None if self.is_sign(';') && self.scopes.forward(&name, is_struct).is_some() => {
                // Declared again behind its definition.
                return Ok(self.scopes.forward(&name, is_struct).unwrap_or(self.scopes.here()));
            }
            None => self.scopes.declare(&name, Kind::Struct(Struct::default()))?,
        };
        if self.is_sign(';') {
            return Ok(id);
        }
        self.scopes.defined(id, &name);
        let base = if self.eat_sign(':') { self.base_structure()? } else { None };
        self.scopes.draft(id).kind = Kind::Struct(Struct { base, ..Struct::default() });
        let members = self.inside(id, |parser| parser.members("behind the name of the structure"));
        // Defined, even if a member is wrong: its uses are no further errors.
        let (members, stop) = match members {
            Ok(members) => (members, None),
            Err(stop) => (Vec::new(), Some(stop)),
        };
        self.scopes.draft(id).kind = Kind::Struct(Struct { base, members, is_defined: true });
        stop.map_or(Ok(id), Err)
    }

    fn base_structure(&mut self) -> Parsed<Option<DefinitionId>> {
        let at = self.here();
        let Some(base) = self.resolved("the name of a structure")? else { return Ok(None) };
        match self.scopes.kind(base) {
            Kind::Struct(of) if of.is_defined => {
                if self.base_count(base) < STRUCTURE_BASES_MAX {
                    return Ok(Some(base));
                }
                self.note_error(
                    at,
                    format!("a structure inherits from at most {STRUCTURE_BASES_MAX} others"),
                )?;
                Ok(None)
            }
            _ => {
                let message = format!("{} is not a complete structure", self.scopes.full_name(base));
                self.note_error(at, message)?;
                Ok(None)
            }
        }
    }

    /// How many structures a structure inherits from.
    fn base_count(&self, id: DefinitionId) -> usize {
        let base = |id: &DefinitionId| match self.scopes.kind(*id) {
            Kind::Struct(of) => of.base,
            _ => None,
        };
        std::iter::successors(base(&id), base).count()
    }

    /// Members between braces. TAO's compiler has constants in structures, too.
    pub(super) fn members(&mut self, what: &str) -> Parsed<Vec<Member>> {
        let mut members = Vec::new();
        self.body(what, |parser, annotations| {
            if parser.is_word("const") {
                return parser.local_definition(annotations);
            }
            let at = parser.here();
            let type_ = parser.type_(Place::Declaration)?;
            parser.declared_members(at, &type_, &annotations, &mut members)
        })?;
        Ok(members)
    }

    /// The names of members of one type, and the semicolon.
    pub(super) fn declared_members(
        &mut self,
        at: Location,
        type_: &Type,
        annotations: &[Annotation],
        members: &mut Vec<Member>,
    ) -> Parsed<()> {
        self.check_complete(at, type_)?;
        loop {
            let (name, type_) = self.declarator(type_, "the name of a member")?;
            self.scopes.declare_instance(&name);
            members.push(Member { name: name.text.to_string(), type_, annotations: annotations.to_vec() });
            if !self.eat_sign(',') {
                return self.semicolon("behind the member");
            }
        }
    }

    fn union(&mut self) -> Parsed<DefinitionId> {
        let name = self.identifier("the name of a union")?;
        let forward = self.scopes.forward(&name, |kind| matches!(kind, Kind::Union(of) if !of.is_defined));
        let id = match forward {
            Some(id) => id,
            None if self.is_sign(';') && self.scopes.forward(&name, is_union).is_some() => {
                return Ok(self.scopes.forward(&name, is_union).unwrap_or(self.scopes.here()));
            }
            None => self.scopes.declare(&name, Kind::Union(Union::default()))?,
        };
        if self.is_sign(';') {
            return Ok(id);
        }
        self.scopes.defined(id, &name);
        let mut arms = Arms::default();
        let mut discriminator = Type::Unknown;
        let read = self.inside(id, |parser| {
            discriminator = parser.discriminator()?;
            let place = parser.here();
            let type_ = discriminator.clone();
            let before = parser.scopes.session.errors();
            parser.body("behind the discriminator", |parser, _| parser.arm(&type_, &mut arms))?;
            if arms.cases.is_empty() && before == parser.scopes.session.errors() {
                parser.note_error(place, "a union has at least one member")?;
            }
            parser.check_default(&type_, &arms);
            Ok(())
        });
        let discriminator = Some(discriminator);
        self.scopes.draft(id).kind =
            Kind::Union(Union { discriminator, cases: arms.cases, is_defined: true });
        read.map(|()| id)
    }

    /// `switch (TYPE)`
    fn discriminator(&mut self) -> Parsed<Type> {
        self.expect_word("switch")?;
        self.expect_sign('(', "behind \"switch\"")?;
        let at = self.here();
        let type_ = self.type_(Place::Declaration)?;
        self.expect_sign(')', "behind the discriminator")?;
        let may_be = match self.scopes.behind_aliases(&type_) {
            Type::Primitive(primitive) => {
                !matches!(primitive, Primitive::Float | Primitive::Double | Primitive::LongDouble)
            }
            Type::Named(id) => matches!(self.scopes.kind(id), Kind::Enum(_)),
            Type::Unknown => true,
            _ => false,
        };
        if may_be {
            return Ok(type_);
        }
        self.note_error(at, "a discriminator is an integer, a character, a boolean or an enumeration")?;
        Ok(Type::Unknown)
    }

    /// Labels and a member.
    fn arm(&mut self, discriminator: &Type, arms: &mut Arms) -> Parsed<()> {
        let (mut labels, mut is_default) = (Vec::new(), false);
        loop {
            let at = self.here();
            if self.eat_word("default") {
                if arms.default.replace(at).is_some() {
                    self.note_error(at, "this union already has a default")?;
                }
                is_default = true;
            } else if self.eat_word("case") {
                let at = self.here();
                if let Some(value) = self.constant_value(discriminator)? {
                    if !arms.labels.insert(label(&value)) {
                        self.note_error(at, "this label is used already")?;
                    }
                    labels.push(value);
                }
            } else {
                break;
            }
            self.expect_sign(':', "behind the label")?;
        }
        if labels.is_empty() && !is_default && *discriminator != Type::Unknown && !self.is_type_after_label()
        {
            return self.unexpected("\"case\" or \"default\"");
        }
        let annotations = self.annotations()?;
        let at = self.here();
        let type_ = self.type_(Place::Declaration)?;
        self.check_complete(at, &type_)?;
        let (name, type_) = self.declarator(&type_, "the name of a member")?;
        self.scopes.declare_instance(&name);
        let member = Member { name: name.text.to_string(), type_, annotations };
        arms.cases.push(Case { labels, is_default, member });
        self.semicolon("behind the member")
    }

    /// Whether the place is behind a label whose value was wrong, which is reported.
    fn is_type_after_label(&mut self) -> bool {
        self.at > 0 && self.tokens[self.at - 1].kind == crate::token::TokenKind::Sign(':')
    }

    /// A default for no value is superfluous: files of TAO have such, so it is no error.
    fn check_default(&mut self, discriminator: &Type, arms: &Arms) {
        let Some(at) = arms.default else { return };
        let values = match self.scopes.behind_aliases(discriminator) {
            Type::Primitive(Primitive::Boolean) => 2,
            Type::Named(id) => match self.scopes.kind(id) {
                Kind::Enum(enumerators) => enumerators.len(),
                _ => return,
            },
            _ => return,
        };
        if arms.labels.len() == values {
            self.scopes.session.warning(at, "a default that no value reaches: every value has a label");
        }
    }

    fn enumeration(&mut self) -> Parsed<DefinitionId> {
        let name = self.identifier("the name of an enumeration")?;
        let id = self.scopes.declare(&name, Kind::Enum(Vec::new()))?;
        self.expect_sign('{', "behind the name of the enumeration")?;
        let mut enumerators = Vec::new();
        loop {
            let annotations = self.annotations()?;
            let name = self.identifier("an enumerator")?;
            // Enumerators are names of the scope around the enumeration.
            let number = enumerators.len() as u32;
            let enumerator = self.scopes.declare(&name, Kind::Enumerator(id, number))?;
            self.scopes.draft(enumerator).annotations = annotations;
            enumerators.push(enumerator);
            if !self.eat_sign(',') {
                break;
            }
        }
        self.scopes.draft(id).kind = Kind::Enum(enumerators);
        self.expect_sign('}', "or \",\" behind the enumerator")?;
        Ok(id)
    }
}

fn is_struct(kind: &Kind) -> bool {
    matches!(kind, Kind::Struct(_))
}

fn is_union(kind: &Kind) -> bool {
    matches!(kind, Kind::Union(_))
}
