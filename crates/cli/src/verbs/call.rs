//! `punctual call`: calls an operation of an object whose interface an IDL file describes, which is read at run time.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use punctual::Nanos;
use punctual_giop::characters::CharacterSet;
use punctual_giop::{ByteOrder, Decoder, Encoder, TypeCode, Version};
use punctual_idl::model::{DefinitionId, Direction, Kind, Specification, Type};
use punctual_orb::{Options, Orb, Outcome as CallOutcome, SystemException};
use serde_json::{Map, Value, json};

use crate::corba::types::Types;
use crate::corba::{decode, encode};
use crate::output::{Outcome, Output, Usage};
use crate::values;

/// Call an operation of a CORBA object. The IDL file of the object's interface describes the operation.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  punctual call corbaloc::host:2809/NameService list 10 --idl CosNaming.idl --include /usr/share/idl/omniORB/COS\n  \
                  punctual call \"$(cat echo.ior)\" echoString hello --idl echo.idl --json\n\n\
                  Give the arguments for parameters 'in' and 'inout', in the order of the IDL file. Each is JSON; strings, characters \
                  and enumerators may be written without quotes. Unions are {\"label\": L, \"value\": V}, references are IOR:... or \
                  null. To read an attribute, give no argument; to set it, give one."
)]
pub struct Call {
    /// Reference to the object: IOR:..., corbaloc:... or corbaname:...
    reference: String,
    /// Name of the operation or attribute.
    operation: String,
    /// Values of the operation's parameters.
    arguments: Vec<String>,
    /// IDL file that declares the interface.
    #[arg(long)]
    idl: PathBuf,
    /// Folder with files that the IDL file includes; may be repeated.
    #[arg(long)]
    include: Vec<PathBuf>,
    /// Interface of the object (A::B), if the reference does not name it and several interfaces have the operation.
    #[arg(long)]
    interface: Option<String>,
    /// Longest time of the call, including the time to connect.
    #[arg(long, default_value = "10s", value_parser = values::span)]
    timeout: Nanos,
}

/// An operation as it is called.
struct Operation {
    /// Name of the operation in GIOP messages.
    wire: String,
    is_oneway: bool,
    inputs: Vec<(String, Type)>,
    returns: Option<Type>,
    outputs: Vec<(String, Type)>,
    raises: Vec<DefinitionId>,
}

/// What came back, with what is needed to read it.
enum Answer {
    Result(Body),
    Raised(String, Body),
}

/// The rest of a message: its bytes begin at a multiple of 8 bytes, and the values behind `skipped` of them.
struct Body {
    bytes: Vec<u8>,
    skipped: usize,
    order: ByteOrder,
    version: Version,
    characters: CharacterSet,
}

impl Body {
    fn of(from: &mut Decoder<'_>) -> Self {
        let skipped = from.offset() % 8;
        let mut bytes = vec![0; skipped];
        // It reads what is there.
        bytes.extend_from_slice(from.read(from.remaining()).unwrap_or_default());
        let (order, version, characters) = (from.order(), from.version(), from.characters());
        Self { bytes, skipped, order, version, characters }
    }

    fn decoder(&self) -> anyhow::Result<Decoder<'_>> {
        let mut from = Decoder::new(&self.bytes, self.order, self.version);
        from.set_characters(self.characters);
        from.read(self.skipped)?;
        Ok(from)
    }
}

fn answer(outcome: CallOutcome<'_>) -> Result<Answer, SystemException> {
    match outcome {
        CallOutcome::Result(mut from) => Ok(Answer::Result(Body::of(&mut from))),
        CallOutcome::Raised { id, mut members } => Ok(Answer::Raised(id.into(), Body::of(&mut members))),
        CallOutcome::System(exception) => Err(exception),
    }
}

impl Call {
    /// Reads the file, calls, and prints what came back.
    ///
    /// # Errors
    /// [`Usage`] if the operation or an argument is wrong; system exceptions.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        let specification = self.specification()?;
        let orb =
            Orb::new(Options { timeout: Some(Duration::from_nanos(self.timeout.0)), ..Options::default() })?;
        let reference = punctual_orb::naming::find(&orb, &self.reference)?;
        let operation = self.operation(&specification, &reference.type_id)?;
        let mut types = Types::new(&specification);
        let arguments = self.arguments(&operation, &mut types)?;
        let object = orb.object(&reference)?;
        let write = |to: &mut Encoder| write(&arguments, to).map_err(|_| punctual_giop::Error::Type);
        if operation.is_oneway {
            object.send::<SystemException>(&operation.wire, write)?;
            output.print(&json!({}), |_| "sent".into())?;
            return Ok(Outcome::Done);
        }
        match object.call(&operation.wire, write, answer)? {
            Answer::Result(body) => {
                let shown = result(&operation, &mut types, &body)?;
                output.print(&shown, text)?;
                Ok(Outcome::Done)
            }
            Answer::Raised(id, body) => {
                let shown = raised(&operation, &specification, &id, &body)?;
                output.print(&shown, text)?;
                Ok(Outcome::Refused)
            }
        }
    }

    fn specification(&self) -> anyhow::Result<Specification> {
        let options =
            punctual_idl::Options { include_dirs: self.include.clone(), ..punctual_idl::Options::default() };
        let read = punctual_idl::read(&self.idl, &options, &mut punctual_idl::Disk);
        let outcome = read.map_err(|error| anyhow!("{}: {error}", self.idl.display()))?;
        let first = outcome.diagnostics.first().map(ToString::to_string).unwrap_or_default();
        outcome.specification.ok_or_else(|| anyhow!("{}", first.lines().next().unwrap_or("it is refused")))
    }

    /// The operation in the interface that the command line names, or the reference, or in the only one that has it.
    fn operation(&self, specification: &Specification, type_id: &str) -> anyhow::Result<Operation> {
        let is_meant = |id: DefinitionId, repository_id: &str| match &self.interface {
            Some(name) => specification.path(id).join("::") == name.trim_start_matches("::"),
            None => repository_id == type_id,
        };
        let interfaces = || {
            let all = specification.all();
            all.filter(|(_, definition)| matches!(definition.kind(), Kind::Interface(of) if of.is_defined))
        };
        let meant = interfaces().find(|(id, definition)| is_meant(*id, definition.repository_id()));
        let found: Vec<Operation> = match (meant, &self.interface) {
            (Some((id, _)), _) => self.of_interface(specification, id).into_iter().collect(),
            (None, Some(name)) => bail!(Usage(format!("{} has no interface {name}", self.idl.display()))),
            (None, None) => interfaces().filter_map(|(id, _)| self.own(specification, id)).collect(),
        };
        let count = found.len();
        let mut found = found.into_iter();
        match (found.next(), count) {
            (Some(one), 1) => Ok(one),
            (None, _) => bail!(Usage(format!("no such operation or attribute: {}", self.operation))),
            _ => bail!(Usage(format!("{count} interfaces have {}: say --interface", self.operation))),
        }
    }

    /// The operation in an interface or in what it inherits from.
    fn of_interface(&self, specification: &Specification, id: DefinitionId) -> Option<Operation> {
        let Kind::Interface(of) = specification.get(id).kind() else { return None };
        [id].iter().chain(&of.ancestors).find_map(|id| self.own(specification, *id))
    }

    fn own(&self, specification: &Specification, id: DefinitionId) -> Option<Operation> {
        let children = specification.get(id).children().iter().map(|child| specification.get(*child));
        let mut named = children.filter(|child| child.name() == self.operation);
        named.find_map(|child| match child.kind() {
            Kind::Operation(of) => {
                let parameters = |out: bool| {
                    let passes = move |direction| match direction {
                        Direction::In => !out,
                        Direction::Out => out,
                        Direction::InOut => true,
                    };
                    let passing = of.parameters.iter().filter(move |one| passes(one.direction));
                    passing.map(|one| (one.name.clone(), one.type_.clone())).collect()
                };
                Some(Operation {
                    wire: self.operation.clone(),
                    is_oneway: of.is_oneway,
                    inputs: parameters(false),
                    returns: of.returns.clone(),
                    outputs: parameters(true),
                    raises: of.raises.clone(),
                })
            }
            Kind::Attribute(of) => {
                let is_set = !self.arguments.is_empty() && !of.is_readonly;
                Some(Operation {
                    wire: format!("_{}_{}", if is_set { "set" } else { "get" }, self.operation),
                    is_oneway: false,
                    inputs: if is_set { vec![("value".into(), of.type_.clone())] } else { vec![] },
                    returns: if is_set { None } else { Some(of.type_.clone()) },
                    outputs: vec![],
                    raises: if is_set { of.set_raises.clone() } else { of.get_raises.clone() },
                })
            }
            _ => None,
        })
    }

    /// The arguments with their types, known to have bytes.
    fn arguments(&self, of: &Operation, types: &mut Types<'_>) -> anyhow::Result<Vec<(Value, TypeCode)>> {
        let (given, expected) = (self.arguments.len(), of.inputs.len());
        if given != expected {
            let names: Vec<&str> = of.inputs.iter().map(|(name, _)| &**name).collect();
            let needed = if expected == 0 { "none".into() } else { names.join(", ") };
            bail!(Usage(format!("{given} arguments, where {expected} are expected: {needed}")));
        }
        let mut all = Vec::new();
        for (text, (name, type_)) in self.arguments.iter().zip(&of.inputs) {
            let code = types.of(type_).map_err(Usage)?;
            let value = argument(text, &code).map_err(|error| Usage(format!("{name}: {error}")))?;
            let mut scratch = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
            encode::write(&value, &code, &mut scratch).map_err(|error| Usage(format!("{name}: {error}")))?;
            all.push((value, code));
        }
        Ok(all)
    }
}

fn write(arguments: &[(Value, TypeCode)], to: &mut Encoder) -> Result<(), String> {
    arguments.iter().try_for_each(|(value, code)| encode::write(value, code, to))
}

/// JSON, or the text itself if the type is one that has text as its values.
fn argument(text: &str, code: &TypeCode) -> Result<Value, String> {
    use punctual_giop::typecode::kind;
    let is_text = matches!(
        code.unaliased(),
        TypeCode::String(..)
            | TypeCode::Enum(..)
            | TypeCode::Reference(..)
            | TypeCode::Fixed(..)
            | TypeCode::Simple(kind::CHAR | kind::WCHAR)
    );
    if is_text && !text.starts_with('"') && text != "null" {
        return Ok(Value::String(text.to_owned()));
    }
    serde_json::from_str(text).map_err(|error| format!("`{text}` is no JSON: {error}"))
}

fn result(of: &Operation, types: &mut Types<'_>, body: &Body) -> anyhow::Result<Value> {
    let mut from = body.decoder()?;
    let mut shown = Map::new();
    if let Some(type_) = &of.returns {
        let code = types.of(type_).map_err(anyhow::Error::msg)?;
        shown.insert("result".into(), decode::read(&code, &mut from)?);
    }
    let mut outputs = Map::new();
    for (name, type_) in &of.outputs {
        let code = types.of(type_).map_err(anyhow::Error::msg)?;
        outputs.insert(name.clone(), decode::read(&code, &mut from)?);
    }
    if !outputs.is_empty() {
        shown.insert("out".into(), Value::Object(outputs));
    }
    Ok(Value::Object(shown))
}

/// An exception of the interface; its members if the file declares it for this operation.
fn raised(of: &Operation, specification: &Specification, id: &str, body: &Body) -> anyhow::Result<Value> {
    let declared = of.raises.iter().find(|raised| specification.get(**raised).repository_id() == id);
    let mut members = Value::Null;
    if let Some(declared) = declared
        && let TypeCode::Exception(_, of) =
            Types::new(specification).named(*declared).map_err(anyhow::Error::msg)?
    {
        members = decode::read_members(&of, &mut body.decoder()?)?;
    }
    Ok(json!({ "exception": id, "members": members }))
}

fn text(shown: &Value) -> String {
    if let Some(id) = shown.get("exception") {
        return format!("raised {}: {}", id.as_str().unwrap_or_default(), shown["members"]);
    }
    let line = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let result = shown.get("result").map(line);
    let out = shown.get("out").and_then(Value::as_object);
    let out = out.into_iter().flatten().map(|(name, value)| format!("{name} = {}", line(value)));
    let lines: Vec<String> = result.into_iter().chain(out).collect();
    if lines.is_empty() { "done".into() } else { lines.join("\n") }
}

#[cfg(test)]
mod tests {
    use punctual_giop::{Decode as _, Encode as _};

    use super::*;

    #[test]
    fn an_answer_is_read_in_the_code_set_of_its_connection() {
        for characters in [CharacterSet::Utf8, CharacterSet::Latin1] {
            let mut to = Encoder::new(ByteOrder::Big, Version::V1_2);
            to.set_characters(characters);
            String::from("\u{fc}1").encode(&mut to).expect("it has bytes");
            let mut reply = Decoder::new(to.as_bytes(), ByteOrder::Big, Version::V1_2);
            reply.set_characters(characters);
            let body = Body::of(&mut reply);
            let read = String::decode(&mut body.decoder().expect("it begins there"));
            assert_eq!(read.as_deref(), Ok("\u{fc}1"), "{characters:?}");
        }
    }
}
