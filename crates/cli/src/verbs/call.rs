//! `punctual call`: calls an operation of an object whose interface an IDL file describes, which is read at run time.

use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::{Args, ValueEnum};
use punctual::Nanos;
use punctual_giop::{Completion, Kept, SystemExceptionKind, TypeCode};
use punctual_idl::model::Specification;
use punctual_orb::naming::FindError;
use punctual_orb::naming::cos_naming::naming_context;
use punctual_orb::{Object, Options, Orb, Outcome as CallOutcome, Reference, SyncScope, SystemException};
use serde_json::{Map, Value, json};

use crate::corba::arguments::Arguments;
use crate::corba::decode;
use crate::corba::idl::IdlFile;
use crate::corba::operation::{Asked, Operation, of_all_objects};
use crate::corba::types::Types;
use crate::output::{Outcome, Output, Usage};
use crate::values;

/// Call an operation of a CORBA object. The IDL file of the object's interface describes the operation.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  punctual call corbaloc::host:2809/NameService list 10 --idl CosNaming.idl --include /usr/share/idl/omniORB/COS\n  \
                  punctual call \"$(cat echo.ior)\" echoString hello --idl echo.idl --json\n  \
                  punctual call \"$(cat sums.ior)\" add -1 -2 --idl sums.idl\n  \
                  punctual call corbaloc::host:2809/NameService _is_a IDL:omg.org/CosNaming/NamingContext:1.0\n\n\
                  Give the arguments for parameters 'in' and 'inout', in the order of the IDL file. Each is JSON; strings, characters \
                  and enumerators may be written without quotes. Write text that begins with '-' behind '--' (-Infinity, too). Unions are \
                  {\"label\": L, \"value\": V}, references are IOR:... or null, values of type any {\"type\": T, \"value\": V}. \
                  docs/ORB.md has an example of each type. To read an attribute, give no argument; to set it, give one.\n\n\
                  All objects have the operations _is_a and _non_existent, some also _repository_id, _interface and _component. They need no IDL file."
)]
pub struct Call {
    /// Reference to the object: IOR:..., corbaloc:... or corbaname:...
    reference: String,
    /// Name of the operation or attribute.
    operation: String,
    /// Values of the operation's parameters.
    #[arg(allow_negative_numbers = true)]
    arguments: Vec<String>,
    #[command(flatten)]
    idl: IdlFile,
    /// Interface of the object (A::B), if the reference does not name it and several interfaces have the operation.
    #[arg(long)]
    interface: Option<String>,
    /// Longest time of the call, including the time to connect.
    #[arg(long, default_value = "10s", value_parser = values::span)]
    timeout: Nanos,
    /// What a oneway operation waits for [default: transport]. Other operations wait for their reply.
    #[arg(long, value_enum)]
    sync: Option<Sync>,
}

/// What a oneway operation waits for.
#[derive(Clone, Copy, ValueEnum)]
enum Sync {
    /// Nothing: also if the request cannot be sent, it is no error.
    None,
    /// That the request is written to the connection.
    Transport,
    /// That the server has found the object.
    Server,
    /// That the object has performed the operation.
    Target,
}

impl Sync {
    fn scope(self) -> SyncScope {
        match self {
            Self::None => SyncScope::None,
            Self::Transport => SyncScope::WithTransport,
            Self::Server => SyncScope::WithServer,
            Self::Target => SyncScope::WithTarget,
        }
    }

    /// What is known after the call, as a word of JSON and as a line.
    fn known(self) -> (&'static str, &'static str) {
        match self {
            Self::None => ("nothing", "not known whether it was sent"),
            Self::Transport => ("sent", "sent; not known whether the object exists"),
            Self::Server => ("accepted", "accepted: the server has found the object"),
            Self::Target => ("performed", "performed"),
        }
    }
}

/// What came back, with what is needed to read it.
enum Answer {
    Result(Kept),
    Raised(String, Kept),
}

fn answer(outcome: CallOutcome<'_>) -> Result<Answer, SystemException> {
    match outcome {
        CallOutcome::Result(from) => Ok(Answer::Result(from.keep())),
        CallOutcome::Raised { id, members } => Ok(Answer::Raised(id.into(), members.keep())),
        CallOutcome::System(exception) => Err(exception),
    }
}

impl Call {
    /// Reads the file, calls, and prints what came back.
    ///
    /// # Errors
    /// [`Usage`] if the reference, the file, the operation or an argument is wrong; system exceptions.
    pub fn run(self, output: Output) -> anyhow::Result<Outcome> {
        self.call(output).map_err(|error| explained(error, output))
    }

    fn call(self, output: Output) -> anyhow::Result<Outcome> {
        let general = of_all_objects(&self.operation);
        let specification = match &general {
            Some(_) if !self.idl.is_given() => Specification::default(),
            _ => self.idl.read(output)?,
        };
        let orb =
            Orb::new(Options { timeout: Some(Duration::from_nanos(self.timeout.0)), ..Options::default() })?;
        let reference = find(&orb, &self.reference)?;
        if reference.is_nil() {
            bail!(Usage("the reference is nil: it leads to no object".into()));
        }
        let operation = match general {
            Some(operation) => operation,
            None => self.asked(&reference).find(&specification)?,
        };
        if self.sync.is_some() && !operation.is_oneway {
            let name = &self.operation;
            bail!(Usage(format!("--sync is for oneway operations: {name} is none, and waits for its reply")));
        }
        let arguments = Arguments::new(&self.arguments, &operation, &specification)?;
        let object = orb.object(&reference)?;
        if operation.wire == "_non_existent" {
            output.print(&json!({ "result": object.is_non_existent()? }), text)?;
            return Ok(Outcome::Done);
        }
        if operation.is_oneway {
            return self.send(&object, &operation, &arguments, output);
        }
        let sent = object.call(&operation.wire, |to| arguments.write(to), answer);
        match sent.map_err(|exception| arguments.explain(exception))? {
            Answer::Result(body) => {
                output.print(&result(&operation, &specification, &body)?, text)?;
                Ok(Outcome::Done)
            }
            Answer::Raised(id, body) => {
                output.print(&raised(&operation, &specification, &id, &body)?, text)?;
                Ok(Outcome::Refused)
            }
        }
    }

    fn asked<'a>(&'a self, reference: &'a Reference) -> Asked<'a> {
        Asked {
            name: &self.operation,
            has_arguments: !self.arguments.is_empty(),
            interface: self.interface.as_deref(),
            type_id: &reference.type_id,
        }
    }

    fn send(
        &self,
        object: &Object,
        operation: &Operation,
        arguments: &Arguments<'_>,
        output: Output,
    ) -> anyhow::Result<Outcome> {
        let sync = self.sync.unwrap_or(Sync::Transport);
        let object = object.with_sync_scope(sync.scope())?;
        let sent = object.send::<SystemException>(&operation.wire, |to| arguments.write(to));
        sent.map_err(|exception| arguments.explain(exception))?;
        if let Sync::None = sync {
            // The program ends now, and with it the thread that sends.
            object.flush();
        }
        let (word, line) = sync.known();
        output.print(&json!({ "known": word }), |_| line.into())?;
        Ok(Outcome::Done)
    }
}

/// With JSON, a system exception is printed with its parts.
fn explained(error: anyhow::Error, output: Output) -> anyhow::Error {
    let of_service = |error: &FindError| match error {
        FindError::Service(exception) | FindError::Name(naming_context::ResolveError::System(exception)) => {
            Some(*exception)
        }
        _ => None,
    };
    let exception = error.downcast_ref::<SystemException>().copied();
    let exception = exception.or_else(|| error.downcast_ref::<FindError>().and_then(of_service));
    let Some(exception) = exception.filter(|_| output.json) else { return error };
    let mut shown = punctual::failure(&punctual::one_line(error.as_ref()), 1);
    shown["exception"] = exception.kind.id().into();
    shown["minor"] = exception.minor.into();
    shown["completed"] = exception.completed.name().into();
    shown["cause"] = exception.cause().into();
    match output.print(&json!({ "error": shown }), |_| String::new()) {
        Ok(()) => error,
        Err(unprinted) => unprinted,
    }
}

/// The reference that text stands for; a naming service may be asked for it.
fn find(orb: &Orb, text: &str) -> anyhow::Result<Reference> {
    punctual_orb::naming::find(orb, text).map_err(|error| match error {
        FindError::Reference(_) | FindError::Resolve(_) => Usage(error.to_string()).into(),
        FindError::Name(_) | FindError::Service(_) => anyhow!(error),
    })
}

fn result(of: &Operation, specification: &Specification, body: &Kept) -> anyhow::Result<Value> {
    let mut types = Types::new(specification);
    let mut from = body.decoder();
    let mut shown = Map::new();
    if let Some(type_) = &of.returns {
        let code = types.of(type_).map_err(anyhow::Error::msg)?;
        shown.insert("result".into(), decode::read(&code, &mut from).map_err(malformed)?);
    }
    let mut outputs = Map::new();
    for (name, type_) in &of.outputs {
        let code = types.of(type_).map_err(anyhow::Error::msg)?;
        outputs.insert(name.clone(), decode::read(&code, &mut from).map_err(malformed)?);
    }
    if !outputs.is_empty() {
        shown.insert("out".into(), Value::Object(outputs));
    }
    Ok(Value::Object(shown))
}

/// An exception of the interface; its members if the file declares it for this operation.
fn raised(of: &Operation, specification: &Specification, id: &str, body: &Kept) -> anyhow::Result<Value> {
    let declared = of.raises.iter().find(|raised| specification.get(**raised).repository_id() == id);
    let mut members = Value::Null;
    if let Some(declared) = declared
        && let TypeCode::Exception(_, of) =
            Types::new(specification).named(*declared).map_err(anyhow::Error::msg)?
    {
        members = decode::read_members(&of, &mut body.decoder()).map_err(malformed)?;
    }
    Ok(json!({ "exception": id, "members": members }))
}

/// The bytes of a reply are no values of the types in the IDL file.
fn malformed(error: punctual_giop::Error) -> anyhow::Error {
    let exception = SystemException::new(SystemExceptionKind::Marshal, 0, Completion::Yes);
    let why = format!("the reply does not have the types of the IDL file: {error}");
    anyhow::Error::new(exception).context(why)
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
