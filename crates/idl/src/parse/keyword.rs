//! Words that are no identifiers.

/// Keywords of CORBA 2.3 and later.
const KEYWORDS: &[&str] = &[
    "abstract",
    "any",
    "attribute",
    "boolean",
    "case",
    "char",
    "const",
    "context",
    "custom",
    "default",
    "double",
    "enum",
    "exception",
    "factory",
    "FALSE",
    "fixed",
    "float",
    "in",
    "inout",
    "interface",
    "local",
    "long",
    "module",
    "native",
    "Object",
    "octet",
    "oneway",
    "out",
    "private",
    "public",
    "raises",
    "readonly",
    "sequence",
    "short",
    "string",
    "struct",
    "supports",
    "switch",
    "TRUE",
    "truncatable",
    "typedef",
    "union",
    "unsigned",
    "ValueBase",
    "valuetype",
    "void",
    "wchar",
    "wstring",
];

/// Keywords of CORBA 3's component model. Older files use them as names.
const COMPONENTS: &[&str] = &[
    "component",
    "consumes",
    "emits",
    "eventtype",
    "finder",
    "getraises",
    "home",
    "import",
    "manages",
    "multiple",
    "primarykey",
    "provides",
    "publishes",
    "setraises",
    "typeid",
    "typeprefix",
    "uses",
];

/// Keywords of the ports of CORBA 3.1. `port` is a name in IIOP itself.
const PORTS: &[&str] = &["connector", "mirrorport", "port", "porttype"];

/// What is wrong with a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Clash {
    /// It is a keyword.
    Error(String),
    /// It is a keyword of a part of IDL that the file does not use.
    Warning(String),
}

/// Whether `text` is a keyword where a name is used. A name may be declared with an underscore and used without.
pub(super) fn is_keyword(text: &str) -> bool {
    KEYWORDS.contains(&text)
}

/// What is wrong with declaring the name `text`. Words that IDL 4 added (`int8`, `map`, `bitset` ...) are names
/// where a file uses them as names.
pub(super) fn clash(text: &str) -> Option<Clash> {
    let find = |of: &[&'static str]| of.iter().find(|keyword| keyword.eq_ignore_ascii_case(text)).copied();
    let message = |keyword: &str| match keyword == text {
        true => format!("\"{text}\" is a keyword: as a name it is written _{text}"),
        false => {
            format!(
                "\"{text}\" differs from the keyword \"{keyword}\" only in case: as a name it is written _{text}"
            )
        }
    };
    if let Some(keyword) = find(KEYWORDS) {
        return Some(Clash::Error(message(keyword)));
    }
    if let Some(keyword) = find(COMPONENTS) {
        return Some(Clash::Warning(message(keyword)));
    }
    let keyword = find(PORTS)?;
    Some(if keyword == text { Clash::Warning(message(keyword)) } else { Clash::Error(message(keyword)) })
}
