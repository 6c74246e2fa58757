//! Components, homes, port types and connectors (IDL 4.2, 7.4.8 to 7.4.11): read and checked, generated nowhere.

use super::{Parsed, Parser};
use crate::model::{Annotation, DefinitionId, Kind};

impl Parser<'_> {
    /// One of them or its declaration, without its semicolon.
    pub(super) fn component(&mut self, annotations: Vec<Annotation>) -> Parsed<()> {
        let what = match &*self.word().unwrap_or_default() {
            "component" => "component",
            "home" => "home",
            "porttype" => "port type",
            _ => "connector",
        };
        self.take();
        let name = self.identifier(&format!("the name of a {what}"))?;
        let known = self.scopes.forward(&name, |kind| *kind == Kind::Component(what));
        let id = match known.filter(|id| !self.scopes.has_children(*id)) {
            Some(id) => id,
            None => self.scopes.declare(&name, Kind::Component(what))?,
        };
        self.scopes.draft(id).annotations.extend(annotations);
        if self.is_sign(';') && matches!(what, "component" | "port type") {
            return Ok(());
        }
        if self.eat_sign(':') {
            self.component_base(what)?;
        }
        if matches!(what, "component" | "home") && self.eat_word("supports") {
            self.interfaces()?;
        }
        if what == "home" {
            self.home_header()?;
        }
        self.inside(id, |parser| {
            parser.body(&format!("behind the name of the {what}"), |parser, annotations| match what {
                "home" => parser.home_part(annotations),
                _ => parser.port(annotations),
            })
        })
    }

    fn component_base(&mut self, what: &'static str) -> Parsed<Option<DefinitionId>> {
        let at = self.here();
        let base = self.resolved(&format!("the name of a {what}"))?;
        if let Some(id) = base
            && *self.scopes.kind(id) != Kind::Component(what)
        {
            let message = format!("{} is not a {what}", self.scopes.full_name(id));
            self.note_error(at, message)?;
        }
        Ok(base)
    }

    /// `manages COMPONENT [primarykey VALUE]`
    fn home_header(&mut self) -> Parsed<()> {
        self.expect_word("manages")?;
        self.component_base("component")?;
        if self.eat_word("primarykey") {
            self.resolved("the name of a value type")?;
        }
        Ok(())
    }

    fn home_part(&mut self, annotations: Vec<Annotation>) -> Parsed<()> {
        if self.is_word("factory") || self.is_word("finder") {
            self.initializer()?;
            return self.expect_sign(';', "behind the declaration");
        }
        self.export(false, annotations)
    }

    /// `provides`, `uses [multiple]`, `emits`, `publishes`, `consumes`, `port`, `mirrorport`, or an attribute.
    fn port(&mut self, annotations: Vec<Annotation>) -> Parsed<()> {
        match &*self.word().unwrap_or_default() {
            "readonly" | "attribute" => self.attribute(false, annotations)?,
            "provides" | "uses" | "emits" | "publishes" | "consumes" | "port" | "mirrorport" => {
                self.take();
                self.eat_word("multiple");
                match self.is_word("Object") {
                    true => {
                        self.take();
                    }
                    false => {
                        self.resolved("the type of a port")?;
                    }
                }
                let name = self.identifier("the name of a port")?;
                self.scopes.declare_instance(&name);
            }
            _ => return self.unexpected("a port"),
        }
        self.expect_sign(';', "behind the port")
    }
}
