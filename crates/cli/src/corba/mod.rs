//! Values of CORBA whose types are known at run time only: between JSON and bytes, by the description of their type.

pub mod arguments;
pub mod decode;
mod encode;
pub mod idl;
mod json;
mod names;
pub mod operation;
mod real;
pub mod types;

use punctual_giop::TypeCode;

/// A signed integer of 8 bits, to tell it from an octet where JSON is read and written. GIOP has no description of
/// it: the types that are sent have an octet instead.
const INT8: u32 = u32::MAX;

/// Length of a string as its bound counts it: in characters, or in units of a wide string.
fn text_length(text: &str, is_wide: bool) -> usize {
    if is_wide { text.encode_utf16().count() } else { text.chars().count() }
}

/// Types around the present one, to which a recursive one refers.
type Around<'a> = Vec<&'a TypeCode>;

/// The type that a description stands for, which may be one around it; and those around that.
fn known<'a>(code: &'a TypeCode, around: &Around<'a>) -> Option<(&'a TypeCode, Around<'a>)> {
    let code = code.unaliased();
    let TypeCode::Recursive(id) = code else { return Some((code, around.clone())) };
    let place = around.iter().rposition(|outer| outer.id() == id)?;
    Some((around[place], around[..place].to_vec()))
}
