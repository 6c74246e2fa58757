//! Modules, constants, exceptions, identifiers, and which definition comes next.

use super::{Parsed, Parser, Stop};
use crate::diagnostic::TooMany;
use crate::model::{Annotation, DefinitionId, Flavour, Kind, Type};
use crate::token::TokenKind;

impl Parser<'_> {
    /// The whole file.
    pub(super) fn specification(&mut self) -> Result<(), TooMany> {
        while self.token().kind != TokenKind::End {
            let before = self.at;
            if self.is_sign('}') {
                self.unexpected::<()>("a definition").ok();
                self.take();
                self.eat_sign(';');
                self.scopes.session.is_full()?;
                continue;
            }
            let read = self.annotations().and_then(|annotations| match self.token().kind {
                // What defined an annotation was the last.
                TokenKind::End | TokenKind::Sign('}') if annotations.is_empty() => Ok(()),
                _ => self.definition(annotations),
            });
            self.recover(read, before).map_err(|_| TooMany)?;
        }
        Ok(())
    }

    /// A definition in a module, and its semicolon.
    pub(super) fn definition(&mut self, annotations: Vec<Annotation>) -> Parsed<()> {
        let Some(word) = self.word() else { return self.unexpected("a definition") };
        match &*word {
            "module" => self.module(annotations)?,
            "interface" => self.interface(Flavour::Unconstrained, annotations)?,
            "local" => {
                self.take();
                self.interface(Flavour::Local, annotations)?;
            }
            "abstract" => {
                self.take();
                match self.is_word("interface") {
                    true => self.interface(Flavour::Abstract, annotations)?,
                    false => self.value(true, false, annotations)?,
                }
            }
            "custom" => {
                self.take();
                self.value(false, true, annotations)?;
            }
            "valuetype" | "eventtype" => self.value(false, false, annotations)?,
            "component" | "home" | "porttype" | "connector" => self.component(annotations)?,
            "typeid" => self.type_id()?,
            "typeprefix" => self.type_prefix()?,
            "import" => self.import()?,
            _ => return self.local_definition(annotations),
        }
        self.expect_sign(';', "behind the definition")
    }

    /// A definition that interfaces and value types may have, too, and its semicolon.
    pub(super) fn local_definition(&mut self, annotations: Vec<Annotation>) -> Parsed<()> {
        let word = self.word().unwrap_or_default();
        match &*word {
            "const" => self.constant(annotations)?,
            "exception" => self.exception(annotations)?,
            "typedef" => self.typedef(annotations)?,
            "struct" | "union" | "enum" => {
                self.constructed(annotations)?;
            }
            "native" => {
                self.take();
                let name = self.identifier("the name of a native type")?;
                let id = self.scopes.declare(&name, Kind::Native)?;
                self.scopes.draft(id).annotations = annotations;
            }
            "bitset" | "bitmask" if self.is_extended() => self.extended(&word, annotations)?,
            _ => return self.unexpected("a definition"),
        }
        self.expect_sign(';', "behind the definition")
    }

    fn module(&mut self, annotations: Vec<Annotation>) -> Parsed<()> {
        self.take();
        let name = self.identifier("the name of a module")?;
        if self.is_sign('<') {
            return self.fail("template modules are not supported");
        }
        let id = self.scopes.module(&name)?;
        self.scopes.draft(id).annotations.extend(annotations);
        let at = self.here();
        let mut is_empty = true;
        self.inside(id, |parser| {
            parser.body("behind the name of the module", |parser, annotations| {
                is_empty = false;
                parser.definition(annotations)
            })
        })?;
        if is_empty {
            self.scopes.session.warning(at, "a module without definitions");
        }
        Ok(())
    }

    fn constant(&mut self, annotations: Vec<Annotation>) -> Parsed<()> {
        self.take();
        let type_ = self.constant_type()?;
        let name = self.identifier("the name of a constant")?;
        self.expect_sign('=', "behind the name of the constant")?;
        let value = self.constant_value(&type_)?;
        if let Some(value) = value {
            let id = self.scopes.declare(&name, Kind::Constant(type_, value))?;
            self.scopes.draft(id).annotations = annotations;
        } else {
            // Its uses are no further errors.
            self.scopes.declare(&name, Kind::Alias(Type::Unknown))?;
        }
        Ok(())
    }

    fn exception(&mut self, annotations: Vec<Annotation>) -> Parsed<()> {
        self.take();
        let name = self.identifier("the name of an exception")?;
        let id = self.scopes.declare(&name, Kind::Exception(Vec::new()))?;
        self.scopes.draft(id).annotations = annotations;
        let members = self.inside(id, |parser| parser.members("behind the name of the exception"))?;
        self.scopes.draft(id).kind = Kind::Exception(members);
        Ok(())
    }

    /// `typeid NAME "ID"`
    fn type_id(&mut self) -> Parsed<()> {
        self.take();
        let at = self.here();
        let of = self.resolved("the name of a definition")?;
        let id = self.string("the identifier as a string")?;
        if let Some(of) = of {
            self.scopes.set_id(at, of, &id);
        }
        Ok(())
    }

    /// `typeprefix NAME "PREFIX"`
    fn type_prefix(&mut self) -> Parsed<()> {
        self.take();
        let at = self.here();
        let of = self.resolved("the name of a scope")?;
        let prefix = self.string("the prefix as a string")?;
        if let Some(of) = of {
            self.check_prefix_scope(at, of)?;
            self.scopes.set_type_prefix(of, &prefix);
        }
        Ok(())
    }

    fn check_prefix_scope(&mut self, at: crate::source::Location, of: DefinitionId) -> Parsed<()> {
        match self.scopes.kind(of) {
            Kind::Module
            | Kind::Interface(_)
            | Kind::Struct(_)
            | Kind::Union(_)
            | Kind::Value(_)
            | Kind::Exception(_)
            | Kind::Component(_) => Ok(()),
            _ => self.fail_at(at, format!("{} is not a scope", self.scopes.full_name(of))),
        }
    }

    /// `import NAME`: nothing is imported, because all files are included.
    fn import(&mut self) -> Parsed<()> {
        let at = self.here();
        self.take();
        match self.token().kind {
            TokenKind::Text { .. } => {
                self.string("a scope")?;
            }
            _ => {
                self.resolved("the name of a scope")?;
            }
        }
        self.scopes.session.warning(at, "import has no effect: include the file");
        Ok(())
    }

    /// A list of exceptions in parentheses.
    pub(super) fn exceptions(&mut self) -> Parsed<Vec<DefinitionId>> {
        self.expect_sign('(', "before the exceptions")?;
        let names = self.names("the name of an exception", |parser, name, id| {
            let is_exception = matches!(parser.scopes.kind(id), Kind::Exception(_));
            if !is_exception {
                let notes = parser.scopes.note(id, "it is declared here");
                let message = format!("\"{}\" is not an exception", name.text());
                parser.scopes.session.error_with(name.at(), message, &notes);
            }
            is_exception
        })?;
        self.expect_sign(')', "behind the exceptions")?;
        Ok(names)
    }

    /// An error that does not end the definition.
    pub(super) fn note_error(
        &mut self,
        at: crate::source::Location,
        message: impl Into<String>,
    ) -> Parsed<()> {
        self.scopes.session.error(at, message);
        self.scopes.session.is_full().map_err(Stop::from)
    }
}
