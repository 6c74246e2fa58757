//! Servants of an interface: a trait to implement, and a skeleton that calls it.

use std::collections::HashSet;

use super::Generator;
use super::hash::PerfectHash;
use super::interface::{Input, Method, Passing};
use super::names::unique;
use crate::model::{DefinitionId, Interface};

impl Generator<'_> {
    /// What implements objects with this interface.
    pub(super) fn servant(&mut self, id: DefinitionId, interface: &Interface) {
        self.servant_trait(id, interface);
        self.skeleton(id, interface);
    }

    fn servant_trait(&mut self, id: DefinitionId, interface: &Interface) {
        let path = self.specification.path(id).join("::");
        let bases: Vec<String> = interface
            .bases
            .iter()
            .filter(|base| !self.absent.contains(base))
            .map(|&base| self.names.servant_path(self.specification, id, base))
            .collect();
        let bounds = if bases.is_empty() { "Send + Sync".to_owned() } else { bases.join(" + ") };
        self.line(&format!("/// Implements objects with the interface `{path}`."));
        let name = self.names.servant(id).to_owned();
        let methods = self.own_methods(id, id);
        if methods.is_empty() {
            self.line(&format!("pub trait {name}: {bounds} {{}}"));
            self.line("");
            return;
        }
        self.open(&format!("pub trait {name}: {bounds} {{"));
        for method in &methods {
            self.line(&format!("/// {}.", method.title()));
            self.line("///");
            self.line("/// # Errors");
            self.line("/// They go to the client.");
            // Without other references, what is given can only be a part of the servant.
            let is_named =
                method.borrows() && method.inputs.iter().any(|input| input.passed.starts_with('&'));
            let lifetime = if is_named { "<'a>" } else { "" };
            let parameters: String = method
                .inputs
                .iter()
                .map(|input| format!(", {}: {}", input.name, within(&input.passed, is_named)))
                .collect();
            let receiver = if is_named { "&'a self" } else { "&self" };
            let given = if is_named { method.given() } else { method.given().replace("'a", "'_") };
            let result = format!("Result<{given}, {}>", method.error);
            self.allow_for(&method.name, method);
            self.line(&format!("fn {}{lifetime}({receiver}{parameters}) -> {result};", method.name));
            self.line("");
        }
        self.close("}");
        self.line("");
    }

    fn skeleton(&mut self, id: DefinitionId, interface: &Interface) {
        let (name, servant) = (self.names.skeleton(id).to_owned(), self.names.servant(id).to_owned());
        let operations = self.names.operations(id).to_owned();
        let methods = self.all_methods(id, interface);
        self.operations(&operations, &methods);
        self.line(&format!("/// A [`{servant}`] as an ORB calls it."));
        self.line("#[derive(Debug)]");
        self.line(&format!("pub struct {name}<S>(orb::Arc<S>);"));
        self.line("");
        self.open(&format!("impl<S: {servant}> {name}<S> {{"));
        self.line("/// For this servant.");
        self.open("pub fn new(servant: impl Into<orb::Arc<S>>) -> Self {");
        self.line("Self(servant.into())");
        self.close("}");
        self.line("");
        self.line("/// The servant.");
        self.open("pub fn servant(&self) -> &orb::Arc<S> {");
        self.line("&self.0");
        self.close("}");
        self.close("}");
        self.line("");
        self.open(&format!("impl<S: {servant} + 'static> orb::Servant for {name}<S> {{"));
        self.identifiers(id, interface);
        self.open("fn operations(&self) -> &'static orb::Operations {");
        self.line(&format!("&{operations}"));
        self.close("}");
        self.line("");
        self.dispatch(id, &methods);
        self.close("}");
        self.line("");
    }

    fn identifiers(&mut self, id: DefinitionId, interface: &Interface) {
        let all = [id].into_iter().chain(interface.ancestors.iter().rev().copied());
        let all: Vec<String> =
            all.map(|id| format!("{:?}", self.specification.get(id).repository_id())).collect();
        self.open("fn interfaces(&self) -> &'static [&'static str] {");
        self.line(&format!("&[{}]", all.join(", ")));
        self.close("}");
        self.line("");
    }

    fn operations(&mut self, name: &str, methods: &[(DefinitionId, Vec<Method>)]) {
        let names: Vec<&str> =
            methods.iter().flat_map(|(_, methods)| methods).map(|method| &*method.wire).collect();
        let PerfectHash { seed, slots } = PerfectHash::of(&names);
        let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        let slots: Vec<String> = slots.iter().map(u16::to_string).collect();
        self.line(&format!(
            "static {name}: orb::Operations = orb::Operations::new({seed}, &[{}], &[{}]);",
            slots.join(", "),
            quoted.join(", ")
        ));
        self.line("");
    }

    fn dispatch(&mut self, id: DefinitionId, methods: &[(DefinitionId, Vec<Method>)]) {
        let is_empty = methods.iter().all(|(_, methods)| methods.is_empty());
        let (operation, arguments, reply) = match is_empty {
            true => ("_", "_", "_"),
            false => ("operation", "arguments", "reply"),
        };
        let uses_arguments =
            methods.iter().flat_map(|(_, methods)| methods).any(|method| !method.inputs.is_empty());
        let arguments = if uses_arguments { arguments } else { "_" };
        self.open("fn dispatch(");
        self.line("&self,");
        self.line(&format!("{operation}: usize,"));
        self.line(&format!("{arguments}: &mut giop::Decoder<'_>,"));
        self.line(&format!("{reply}: &mut orb::Reply<'_>,"));
        self.close(") -> Result<(), orb::SystemException> {");
        self.indent += 1;
        if is_empty {
            self.line("Err(orb::bad_operation())");
            self.close("}");
            return;
        }
        self.open("match operation {");
        let mut number = 0;
        for (declared, methods) in methods {
            let of = self.names.servant_path(self.specification, id, *declared);
            for method in methods {
                self.open(&format!("{number} => {{"));
                self.upcall(&of, method);
                self.close("}");
                number += 1;
            }
        }
        self.line("_ => Err(orb::bad_operation()),");
        self.close("}");
        self.close("}");
    }

    /// Decodes parameters, calls, and encodes the result.
    fn upcall(&mut self, servant: &str, method: &Method) {
        for input in &method.inputs {
            let read = match input.passing {
                Passing::Text => "orb::text(arguments)?".to_owned(),
                Passing::Numbers => "orb::numbers(arguments)?".to_owned(),
                Passing::Value | Passing::Reference => {
                    format!("orb::argument::<{}>(arguments)?", input.owned)
                }
            };
            self.line(&format!("let {} = {read};", input.name));
        }
        let arguments: String = method
            .inputs
            .iter()
            .map(|input| match input.passing {
                Passing::Value => format!(", {}", input.name),
                _ => format!(", &{}", input.name),
            })
            .collect();
        let call = format!("{servant}::{}(&*self.0{arguments})", method.name);
        let (pattern, write) = result(method);
        if method.raises.is_empty() {
            match method.outputs[..] {
                [] => self.line(&format!("{call}?;")),
                _ => self.line(&format!("let {pattern} = {call}?;")),
            }
            self.line(&format!("reply.result({write})"));
            return;
        }
        self.open(&format!("match {call} {{"));
        self.line(&format!("Ok({pattern}) => reply.result({write}),"));
        for raised in &method.raises {
            let raise = format!("reply.raise({}::REPOSITORY_ID, &exception)", raised.path);
            self.line(&format!("Err({}::{}(exception)) => {raise},", method.error, raised.variant));
        }
        self.line(&format!("Err({}::System(exception)) => Err(exception),", method.error));
        if self.has_more_errors(method) {
            self.line("Err(_) => Err(orb::unlisted_exception()),");
        }
        self.close("}");
    }

    /// Whether the error type has variants that this method does not raise: reading an attribute, where setting
    /// raises more.
    fn has_more_errors(&self, method: &Method) -> bool {
        match self.specification.get(method.id).kind() {
            crate::model::Kind::Attribute(of) => {
                let all: HashSet<_> = of.get_raises.iter().chain(&of.set_raises).collect();
                all.len() > method.raises.len()
            }
            _ => false,
        }
    }
}

/// The pattern for what a servant gives, and a closure that writes it.
fn result(method: &Method) -> (String, String) {
    let mut taken: HashSet<String> = method.inputs.iter().map(|input: &Input| input.name.clone()).collect();
    taken.insert("to".into());
    match method.outputs.len() {
        0 => ("()".into(), "|_| Ok(())".into()),
        1 => ("result".into(), "|to| result.encode(to)".into()),
        count => {
            let names: Vec<String> =
                (0..count).map(|number| unique(&mut taken, format!("result_{number}"))).collect();
            let writes: Vec<String> = names.iter().map(|name| format!("{name}.encode(to)")).collect();
            (format!("({})", names.join(", ")), format!("|to| {{ {} }}", writes.join("?; ")))
        }
    }
}

/// A reference that lives as long as what a servant gives.
fn within(passed: &str, borrows: bool) -> String {
    match passed.strip_prefix('&') {
        Some(to) if borrows => format!("&'a {to}"),
        _ => passed.to_owned(),
    }
}
