//! References as text (CORBA 13.6.9 and 13.6.10).

use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;

use super::Reference;
use super::corbaloc::Corbaloc;
use super::corbaname::Corbaname;
use super::error::Error;
use super::escape::digit;
use crate::limits::REFERENCE_TEXT_BYTES_MAX;
use crate::{ByteOrder, Decode, Decoder, Encode, Encoder, Error as CdrError, Version};

/// What text can say of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// `IOR:`: the reference itself.
    Reference(Reference),
    /// `corbaloc:`: an address and a key, or a service that the ORB knows.
    Corbaloc(Corbaloc),
    /// `corbaname:`: a name in a naming context.
    Corbaname(Corbaname),
}

/// The text behind a scheme, which has no case.
fn behind<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let (begin, rest) = text.split_at_checked(scheme.len())?;
    begin.eq_ignore_ascii_case(scheme).then_some(rest)
}

impl FromStr for Link {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > REFERENCE_TEXT_BYTES_MAX {
            return Err(Error::Long(text.len()));
        }
        if let Some(digits) = behind(text, "IOR:") {
            return reference(digits).map(Self::Reference);
        }
        if let Some(rest) = behind(text, "corbaloc:") {
            return Corbaloc::parse(rest).map(Self::Corbaloc);
        }
        let rest = behind(text, "corbaname:").ok_or(Error::Scheme)?;
        Corbaname::parse(rest).map(Self::Corbaname)
    }
}

/// Reads the digits behind `IOR:`. White space behind them is not part of the reference.
fn reference(digits: &str) -> Result<Reference, Error> {
    let (pairs, []) = digits.trim_ascii_end().as_bytes().as_chunks::<2>() else {
        return Err(Error::Hexadecimal);
    };
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    let bytes: Vec<u8> = pairs.iter().map(byte).collect::<Option<_>>().ok_or(Error::Hexadecimal)?;
    let mut from = Decoder::of_encapsulation(&bytes)?;
    Ok(Reference::decode(&mut from)?)
}

/// A reference as `IOR:` and hexadecimal digits.
///
/// # Errors
/// If the reference has no bytes.
pub fn stringify(reference: &Reference) -> Result<String, CdrError> {
    let mut to = Encoder::new(ByteOrder::NATIVE, Version::V1_2);
    to.write(&[ByteOrder::NATIVE.flag()]);
    reference.encode(&mut to)?;
    let bytes = to.into_bytes();
    let digit = |digit: u8| char::from_digit(digit.into(), 16);
    let digits = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).flatten();
    Ok("IOR:".chars().chain(digits).collect())
}
