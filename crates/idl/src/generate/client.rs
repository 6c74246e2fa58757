//! Clients of an interface: a method for each operation that blocks, and one that does not.

use std::collections::HashSet;

use super::Generator;
use super::interface::{Input, Method};
use super::names::{snake, unique};
use crate::model::{DefinitionId, Interface};

/// `a: &str, b: i32`, each behind a comma.
fn parameters(inputs: &[Input]) -> String {
    inputs.iter().map(|input| format!(", {}: {}", input.name, input.passed)).collect()
}

impl Generator<'_> {
    /// What calls objects with this interface.
    pub(super) fn client(&mut self, id: DefinitionId, interface: &Interface) {
        let name = self.names.item(id).to_owned();
        let client = self.names.client(id).to_owned();
        let path = self.specification.path(id).join("::");
        self.open(&format!("impl {name} {{"));
        self.line("/// The object, for calls through this ORB.");
        self.line("///");
        self.line("/// # Errors");
        self.line("/// If the reference is nil, or names no object that this ORB can reach.");
        let result = format!("Result<{client}, orb::SystemException>");
        self.open(&format!("pub fn connect(&self, through: &orb::Orb) -> {result} {{"));
        self.line(&format!("through.object(&self.0).map({client})"));
        self.close("}");
        self.close("}");
        self.line("");
        self.line(&format!("/// Calls an object with the interface `{path}`."));
        self.line("#[derive(Clone, Debug)]");
        self.line(&format!("pub struct {client}(pub orb::Object);"));
        self.line("");
        self.stub(&name, &client);
        let mut methods: Vec<Method> =
            self.all_methods(id, interface).into_iter().flat_map(|(_, methods)| methods).collect();
        let mut taken = HashSet::new();
        for method in &mut methods {
            method.name = unique(&mut taken, std::mem::take(&mut method.name));
        }
        if methods.is_empty() {
            return;
        }
        self.open(&format!("impl {client} {{"));
        for method in &methods {
            self.call(method, &mut taken);
        }
        self.close("}");
        self.line("");
    }

    fn stub(&mut self, name: &str, client: &str) {
        self.open(&format!("impl orb::Stub for {client} {{"));
        self.line(&format!("const REPOSITORY_ID: &'static str = {name}::REPOSITORY_ID;"));
        self.line("");
        self.open("fn new(object: orb::Object) -> Self {");
        self.line("Self(object)");
        self.close("}");
        self.line("");
        self.open("fn object(&self) -> &orb::Object {");
        self.line("&self.0");
        self.close("}");
        self.close("}");
        self.line("");
    }

    /// The methods of one operation.
    fn call(&mut self, method: &Method, taken: &mut HashSet<String>) {
        let (result, error) = (method.result(), &method.error);
        let parameters = parameters(&method.inputs);
        let of = self.specification.get(method.id).parent();
        let of = self.specification.path(of).join("::");
        let summary = format!("/// {} of `{of}`.", method.title());
        let write = Self::write(&method.inputs);
        if method.is_oneway {
            self.line(&format!("{summary} Nothing comes back."));
            self.errors_of_calls(method);
            self.allow_for(&method.name, method);
            self.open(&format!("pub fn {}(&self{parameters}) -> Result<(), {error}> {{", method.name));
            self.line(&format!("self.0.send({:?}, {write})", method.wire));
            self.close("}");
            self.line("");
            return;
        }
        let name = method.name.trim_start_matches("r#");
        let read = unique(taken, snake(&format!("{name}_outcome")));
        self.line(&summary);
        self.errors_of_calls(method);
        self.allow_for(&method.name, method);
        self.open(&format!("pub fn {}(&self{parameters}) -> Result<{result}, {error}> {{", method.name));
        self.line(&format!("self.0.call({:?}, {write}, Self::{read})", method.wire));
        self.close("}");
        self.line("");
        let later = unique(taken, snake(&format!("{name}_async")));
        self.line(&format!("{summary} It does not wait."));
        self.allow_for(&later, method);
        self.open(&format!("pub fn {later}(&self{parameters}) -> orb::Pending<{result}, {error}> {{"));
        self.line(&format!("self.0.call_async({:?}, {write}, Self::{read})", method.wire));
        self.close("}");
        self.line("");
        self.read(&read, method);
    }

    fn errors_of_calls(&mut self, method: &Method) {
        self.line("///");
        self.line("/// # Errors");
        let what = if method.raises.is_empty() { "" } else { ", and what the operation raises" };
        self.line(&format!("/// System exceptions of this ORB and of the object's{what}."));
    }

    /// A closure that writes all parameters.
    fn write(inputs: &[Input]) -> String {
        match inputs {
            [] => "|_| Ok(())".into(),
            [one] => format!("|to| {}.encode(to)", one.name),
            [first @ .., last] => {
                let first: String =
                    first.iter().map(|input| format!("{}.encode(to)?; ", input.name)).collect();
                format!("|to| {{ {first}{}.encode(to) }}", last.name)
            }
        }
    }

    /// What a reply says.
    fn read(&mut self, name: &str, method: &Method) {
        let (result, error) = (method.result(), &method.error);
        self.allow_for("", method);
        self.open(&format!("fn {name}(outcome: orb::Outcome<'_>) -> Result<{result}, {error}> {{"));
        if !method.raises.is_empty() {
            self.open("if let orb::Outcome::Raised { id, mut members } = outcome {");
            self.line("let from = &mut members;");
            self.open("return Err(match id {");
            for raised in &method.raises {
                let read = format!("orb::result::<{}>(from)?.into()", raised.path);
                self.line(&format!("{}::REPOSITORY_ID => {read},", raised.path));
            }
            self.line("_ => orb::unlisted_exception().into(),");
            self.close("});");
            self.close("}");
        }
        let (ok, end) = if method.raises.is_empty() { ("", "") } else { ("Ok(", "?)") };
        match &method.outputs[..] {
            [] => self.line(&format!("{ok}outcome.end(){end}")),
            [_] => {
                self.line("let mut from = outcome.result()?;");
                self.line(&format!("{ok}orb::result(&mut from){end}"));
            }
            all => {
                self.line("let mut from = outcome.result()?;");
                let each = vec!["orb::result(&mut from)?"; all.len()].join(", ");
                self.line(&format!("Ok(({each}))"));
            }
        }
        self.close("}");
        self.line("");
    }
}
