//! What types are called: by `any` values and TypeCodes in JSON.

use punctual_giop::TypeCode;
use punctual_giop::typecode::kind;
use punctual_idl::Specification;
use punctual_idl::model::{Primitive, Type};

use super::types::Types;

/// Nested sequences in a name at most.
const DEPTH_MAX: usize = 32;

const SIMPLE: [(u32, &str); 18] = [
    (kind::NULL, "null"),
    (kind::VOID, "void"),
    (kind::SHORT, "short"),
    (kind::LONG, "long"),
    (kind::USHORT, "unsigned short"),
    (kind::ULONG, "unsigned long"),
    (kind::FLOAT, "float"),
    (kind::DOUBLE, "double"),
    (kind::BOOLEAN, "boolean"),
    (kind::CHAR, "char"),
    (kind::OCTET, "octet"),
    (kind::ANY, "any"),
    (kind::TYPE_CODE, "TypeCode"),
    (kind::PRINCIPAL, "Principal"),
    (kind::LONGLONG, "long long"),
    (kind::ULONGLONG, "unsigned long long"),
    (kind::LONGDOUBLE, "long double"),
    (kind::WCHAR, "wchar"),
];

/// What a type is called: its repository identifier, or its form.
pub fn name(code: &TypeCode) -> String {
    match code {
        TypeCode::Simple(kind) => {
            let found = SIMPLE.iter().find(|(simple, _)| simple == kind);
            found.map_or("unknown", |(_, name)| name).to_owned()
        }
        TypeCode::String(0, is_wide) => if *is_wide { "wstring" } else { "string" }.to_owned(),
        TypeCode::String(bound, is_wide) => format!("{}string<{bound}>", if *is_wide { "w" } else { "" }),
        TypeCode::Fixed(digits, scale) => format!("fixed<{digits}, {scale}>"),
        TypeCode::Sequence(element, 0) => format!("sequence<{}>", name(element)),
        TypeCode::Sequence(element, bound) => format!("sequence<{}, {bound}>", name(element)),
        TypeCode::Array(element, length) => format!("{}[{length}]", name(element)),
        named => named.id().to_owned(),
    }
}

/// The type that is called so: a primitive one, `string`, `wstring`, `sequence<...>`, or one of the IDL file by its name
/// (`A::B`) or its repository identifier.
///
/// # Errors
/// One line, if there is none, or GIOP has no description of it.
pub fn called(text: &str, specification: &Specification) -> Result<TypeCode, String> {
    at_depth(text, &Types::new(specification), DEPTH_MAX)
}

/// The same, as it is sent.
///
/// # Errors
/// As [`called`].
pub fn described(text: &str, specification: &Specification) -> Result<TypeCode, String> {
    at_depth(text, &Types::sent(specification), DEPTH_MAX)
}

fn at_depth(text: &str, types: &Types<'_>, depth: usize) -> Result<TypeCode, String> {
    let element = text.strip_prefix("sequence<").and_then(|rest| rest.strip_suffix('>'));
    if let (Some(element), Some(depth)) = (element, depth.checked_sub(1)) {
        let element = at_depth(element.trim(), types, depth)?;
        return Ok(TypeCode::Sequence(Box::new(element), 0));
    }
    if let Some((kind, _)) = SIMPLE.iter().find(|(_, simple)| *simple == text) {
        return Ok(TypeCode::Simple(*kind));
    }
    match text {
        "int8" => return types.clone().of(&Type::Primitive(Primitive::Int8)),
        "string" | "wstring" => return Ok(TypeCode::String(0, text == "wstring")),
        "Object" => return types.clone().of(&Type::Object),
        _ => {}
    }
    let (path, specification) = (text.trim_start_matches("::"), types.specification());
    let mut all = specification.all();
    let found = all.find(|(id, definition)| {
        definition.repository_id() == text || specification.path(*id).join("::") == path
    });
    let (id, _) = found.ok_or_else(|| {
        format!(
            "no type is called `{text}`: write a primitive type, string, sequence<...>, or the name of a type of the IDL file (A::B)"
        )
    })?;
    types.clone().named(id)
}
