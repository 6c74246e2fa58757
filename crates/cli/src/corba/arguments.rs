//! Arguments of the command line to those of an operation.

use std::cell::RefCell;

use anyhow::{anyhow, bail};
use punctual_giop::typecode::kind;
use punctual_giop::{ByteOrder, Encoder, TypeCode, Version};
use punctual_idl::Specification;
use punctual_orb::SystemException;
use serde_json::Value;

use super::operation::Operation;
use super::types::Types;
use super::{encode, json, real};
use crate::output::Usage;

/// Arguments with their types, known to have bytes in the latest version of GIOP.
pub struct Arguments<'a> {
    all: Vec<(Value, TypeCode)>,
    specification: &'a Specification,
    /// Why they have none in the version of the object.
    failure: RefCell<Option<String>>,
}

impl<'a> Arguments<'a> {
    /// The arguments of an operation, as the command line has them.
    ///
    /// # Errors
    /// [`Usage`] if there are more or less than it has, or one is no value of its type.
    pub fn new(given: &[String], of: &Operation, specification: &'a Specification) -> anyhow::Result<Self> {
        let expected = of.inputs.len();
        if given.len() != expected {
            let names: Vec<&str> = of.inputs.iter().map(|(name, _)| &**name).collect();
            let needed = if expected == 0 { "none".into() } else { names.join(", ") };
            let plural = if given.len() == 1 { "" } else { "s" };
            bail!(Usage(format!("{} argument{plural}, expected {expected}: {needed}", given.len())));
        }
        let mut all = Vec::new();
        for (text, (name, type_)) in given.iter().zip(&of.inputs) {
            let code = Types::new(specification).of(type_).map_err(Usage)?;
            let wrong = |error: String| Usage(format!("{name}: {error}"));
            let value = argument(text, &code).map_err(wrong)?;
            let mut scratch = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
            encode::write(&value, &code, specification, &mut scratch).map_err(wrong)?;
            all.push((value, code));
        }
        Ok(Self { all, specification, failure: RefCell::default() })
    }

    /// Writes them.
    ///
    /// # Errors
    /// If the version of GIOP has no bytes for one: [`Arguments::explain`] says why.
    pub fn write(&self, to: &mut Encoder) -> Result<(), punctual_giop::Error> {
        let mut all = self.all.iter();
        all.try_for_each(|(value, code)| encode::write(value, code, self.specification, to)).map_err(
            |error| {
                let (major, minor) = to.version().numbers();
                *self.failure.borrow_mut() =
                    Some(format!("GIOP {major}.{minor}, as the reference says it: {error}"));
                punctual_giop::Error::Type
            },
        )
    }

    /// The exception, or why there are no bytes.
    pub fn explain(&self, exception: SystemException) -> anyhow::Error {
        match self.failure.take() {
            Some(why) => anyhow!("the arguments cannot be sent with {why}"),
            None => anyhow!(exception),
        }
    }
}

/// JSON, or the text itself if the type is one that has text as its values.
fn argument(text: &str, code: &TypeCode) -> Result<Value, String> {
    let is_text = match code.unaliased() {
        TypeCode::Simple(kind::FLOAT | kind::DOUBLE | kind::LONGDOUBLE) => real::is_word(text),
        TypeCode::Reference(..) => !text.starts_with('"') && text != "null",
        TypeCode::String(..)
        | TypeCode::Enum(..)
        | TypeCode::Fixed(..)
        | TypeCode::Simple(kind::CHAR | kind::WCHAR | kind::TYPE_CODE) => {
            !text.starts_with('"') || text == "\""
        }
        _ => false,
    };
    if is_text {
        return Ok(Value::String(text.to_owned()));
    }
    json::parse(text).map_err(|error| format!("`{text}` is no JSON: {error}"))
}
