//! Structures, exceptions, enumerations and typed references.

use std::collections::HashSet;

use super::Generator;
use super::names::{snake, unique};
use crate::model::{DefinitionId, Kind, Member};

/// A member with Rust's name and type.
pub(super) struct Field {
    pub name: String,
    idl: String,
    type_: String,
    pub call: String,
}

impl Generator<'_> {
    /// Members of a structure, those of its bases first.
    pub(super) fn all_members(&self, id: DefinitionId) -> Vec<Member> {
        match self.specification.get(id).kind() {
            Kind::Struct(of) => {
                let mut members = of.base.map_or(Vec::new(), |base| self.all_members(base));
                members.extend(of.members.iter().cloned());
                members
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn fields(&self, id: DefinitionId, members: &[Member]) -> Vec<Field> {
        let mut taken = HashSet::new();
        let field = |member: &Member| Field {
            name: unique(&mut taken, snake(&member.name)),
            idl: member.name.clone(),
            type_: self.rust(id, &member.type_),
            call: self.rust_call(id, &member.type_),
        };
        members.iter().map(field).collect()
    }

    pub(super) fn structure(&mut self, id: DefinitionId) {
        let fields = self.fields(id, &self.all_members(id));
        if self.is_flat(id) {
            self.declare(id, &fields, "#[derive(Clone, Copy, Debug, PartialEq)]");
            self.flat_fields(id, &fields);
        } else {
            self.declare(id, &fields, "#[derive(Clone, Debug, PartialEq)]");
            self.encode_fields(id, &fields);
            self.decode_fields(id, &fields);
        }
        self.describe_fields(id, &fields, "Struct");
    }

    pub(super) fn exception(&mut self, id: DefinitionId, members: &[Member]) {
        let fields = self.fields(id, members);
        let name = self.names.item(id).to_owned();
        self.declare(id, &fields, "#[derive(Clone, Debug, PartialEq)]");
        self.open(&format!("impl {name} {{"));
        self.line("/// How messages name it.");
        let identifier = self.specification.get(id).repository_id().to_owned();
        self.line(&format!("pub const REPOSITORY_ID: &'static str = {identifier:?};"));
        self.close("}");
        self.line("");
        self.open(&format!("impl core::fmt::Display for {name} {{"));
        self.open("fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {");
        self.line("f.write_str(Self::REPOSITORY_ID)");
        self.close("}");
        self.close("}");
        self.line("");
        self.line(&format!("impl core::error::Error for {name} {{}}"));
        self.line("");
        self.encode_fields(id, &fields);
        self.decode_fields(id, &fields);
        self.describe_fields(id, &fields, "Exception");
    }

    fn declare(&mut self, id: DefinitionId, fields: &[Field], derive: &str) {
        self.document(id);
        self.line(derive);
        let name = self.names.item(id).to_owned();
        if fields.is_empty() {
            self.line(&format!("pub struct {name} {{}}"));
            self.line("");
            return;
        }
        self.open(&format!("pub struct {name} {{"));
        for field in fields {
            self.line(&format!("/// Member `{}`.", field.idl));
            self.line(&format!("pub {}: {},", field.name, field.type_));
        }
        self.close("}");
        self.line("");
    }

    /// The head of `Encode::encode`; its argument is called `to` if it is used.
    pub(super) fn open_encode(&mut self, name: &str, is_used: bool) {
        let to = if is_used { "to" } else { "_" };
        self.open(&format!("impl giop::Encode for {name} {{"));
        self.open(&format!("fn encode(&self, {to}: &mut giop::Encoder) -> Result<(), giop::Error> {{"));
    }

    fn encode_fields(&mut self, id: DefinitionId, fields: &[Field]) {
        let name = self.names.item(id).to_owned();
        self.open_encode(&name, !fields.is_empty());
        for (number, field) in fields.iter().enumerate() {
            let end = if number + 1 == fields.len() { "" } else { "?;" };
            self.line(&format!("self.{}.encode(to){end}", field.name));
        }
        if fields.is_empty() {
            self.line("Ok(())");
        }
        self.close("}");
        self.close("}");
        self.line("");
    }

    /// The head of `Decode`, up to the begin of its function's body.
    pub(super) fn open_decode(&mut self, name: &str, bytes_min: &str, is_used: bool) {
        let from = if is_used { "from" } else { "_" };
        self.open(&format!("impl giop::Decode for {name} {{"));
        self.line(&format!("const BYTES_MIN: usize = {bytes_min};"));
        self.line("");
        self.open(&format!("fn decode({from}: &mut giop::Decoder<'_>) -> Result<Self, giop::Error> {{"));
    }

    fn decode_fields(&mut self, id: DefinitionId, fields: &[Field]) {
        let name = self.names.item(id).to_owned();
        let bytes_min: Vec<String> =
            fields.iter().map(|field| format!("{}::BYTES_MIN", field.call)).collect();
        let bytes_min = if fields.is_empty() { "0".to_owned() } else { bytes_min.join(" + ") };
        self.open_decode(&name, &bytes_min, !fields.is_empty());
        if fields.is_empty() {
            self.line("Ok(Self {})");
        } else {
            self.open("Ok(Self {");
            for field in fields {
                self.line(&format!("{}: giop::Decode::decode(from)?,", field.name));
            }
            self.close("})");
        }
        self.close("}");
        self.close("}");
        self.line("");
    }

    /// The head of `Typed`, up to the begin of the closure that describes.
    pub(super) fn open_describe(&mut self, id: DefinitionId, arguments: &str) {
        let (name, definition) = (self.names.item(id).to_owned(), self.specification.get(id));
        self.open(&format!("impl giop::typecode::Typed for {name} {{"));
        self.open("fn describe(within: &mut giop::typecode::Describing) -> giop::TypeCode {");
        let (identifier, idl) = (definition.repository_id().to_owned(), definition.name().to_owned());
        self.open(&format!("within.once({identifier:?}, {idl:?}, |{arguments}| {{"));
    }

    pub(super) fn close_describe(&mut self) {
        self.close("})");
        self.close("}");
        self.close("}");
        self.line("");
    }

    /// The description of a member.
    pub(super) fn describe_member(call: &str, idl: &str) -> String {
        format!("giop::typecode::member({idl:?}, {call}::describe(within))")
    }

    fn describe_fields(&mut self, id: DefinitionId, fields: &[Field], kind: &str) {
        let arguments = if fields.is_empty() { "_, named" } else { "within, named" };
        self.open_describe(id, arguments);
        self.open("let members = vec![");
        for field in fields {
            self.line(&format!("{},", Self::describe_member(&field.call, &field.idl)));
        }
        self.close("];");
        self.line(&format!("giop::TypeCode::{kind}(named, members)"));
        self.close_describe();
    }

    pub(super) fn enumeration(&mut self, id: DefinitionId, enumerators: &[DefinitionId]) {
        let name = self.names.item(id).to_owned();
        let variants: Vec<(String, String)> = enumerators
            .iter()
            .map(|&one| (self.names.item(one).to_owned(), self.specification.get(one).name().to_owned()))
            .collect();
        self.document(id);
        self.line("#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]");
        self.open(&format!("pub enum {name} {{"));
        for (variant, idl) in &variants {
            self.line(&format!("/// `{idl}`"));
            self.line(&format!("{variant},"));
        }
        self.close("}");
        self.line("");
        self.open(&format!("impl TryFrom<u32> for {name} {{"));
        self.line("type Error = giop::Error;");
        self.line("");
        self.open("fn try_from(number: u32) -> Result<Self, giop::Error> {");
        self.open("match number {");
        for (number, (variant, _)) in variants.iter().enumerate() {
            self.line(&format!("{number} => Ok(Self::{variant}),"));
        }
        self.line("other => Err(giop::Error::Enumerator(other)),");
        self.close("}");
        self.close("}");
        self.close("}");
        self.line("");
        self.flat_enumeration(&name);
        self.open_describe(id, "_, named");
        let names: Vec<String> = variants.iter().map(|(_, idl)| format!("{idl:?}.into()")).collect();
        self.line(&format!("giop::TypeCode::Enum(named, vec![{}])", names.join(", ")));
        self.close_describe();
    }

    /// A typed reference to an object.
    pub(super) fn reference(&mut self, id: DefinitionId) {
        let name = self.names.item(id).to_owned();
        let definition = self.specification.get(id);
        let (identifier, path) =
            (definition.repository_id().to_owned(), self.specification.path(id).join("::"));
        self.line(&format!("/// A reference to an object with the interface `{path}` (`{identifier}`)."));
        self.line("#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]");
        self.line(&format!("pub struct {name}(pub giop::Reference);"));
        self.line("");
        self.open(&format!("impl {name} {{"));
        self.line("/// How references name the interface.");
        self.line(&format!("pub const REPOSITORY_ID: &'static str = {identifier:?};"));
        self.close("}");
        self.line("");
        self.open_encode(&name, true);
        self.line("self.0.encode(to)");
        self.close("}");
        self.close("}");
        self.line("");
        self.open_decode(&name, "giop::Reference::BYTES_MIN", true);
        self.line("giop::Decode::decode(from).map(Self)");
        self.close("}");
        self.close("}");
        self.line("");
        self.open_describe(id, "_, named");
        self.line("giop::TypeCode::Reference(giop::typecode::kind::OBJREF, named)");
        self.close_describe();
    }
}
