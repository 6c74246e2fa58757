//! The mistakes: what each operator, method and type is taken for.

use serde::{Deserialize, Serialize};
use syn::{BinOp, ReturnType, Type};

/// A kind of mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operator {
    /// A comparison is its neighbour: `<` is `<=`, `==` is `!=`.
    Comparison,
    /// `+` is `-`, `*` is `/`, `%` is `/`; the same with `=`.
    Arithmetic,
    /// `&&` is `||`.
    Logic,
    /// `&` is `|`, `<<` is `>>`.
    Bits,
    /// A condition of `if`, `while` or a match arm is negated.
    Condition,
    /// A `!` is left out.
    NotLeftOut,
    /// A whole number is one more or one less.
    Literal,
    /// A function returns at once what its type has as a default.
    Return,
    /// A statement that calls or assigns is left out.
    Deletion,
    /// A method is its opposite: `min` is `max`, `saturating_add` is `saturating_sub`.
    Method,
}

impl Operator {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Comparison,
        Self::Arithmetic,
        Self::Logic,
        Self::Bits,
        Self::Condition,
        Self::NotLeftOut,
        Self::Literal,
        Self::Return,
        Self::Deletion,
        Self::Method,
    ];
}

/// The replacement of a binary operator.
pub fn binary(operator: &BinOp) -> Option<(Operator, &'static str)> {
    use Operator::{Arithmetic, Bits, Comparison, Logic};
    Some(match operator {
        BinOp::Lt(_) => (Comparison, "<="),
        BinOp::Le(_) => (Comparison, "<"),
        BinOp::Gt(_) => (Comparison, ">="),
        BinOp::Ge(_) => (Comparison, ">"),
        BinOp::Eq(_) => (Comparison, "!="),
        BinOp::Ne(_) => (Comparison, "=="),
        BinOp::Add(_) => (Arithmetic, "-"),
        BinOp::Sub(_) => (Arithmetic, "+"),
        BinOp::Mul(_) => (Arithmetic, "/"),
        BinOp::Div(_) => (Arithmetic, "*"),
        BinOp::Rem(_) => (Arithmetic, "/"),
        BinOp::AddAssign(_) => (Arithmetic, "-="),
        BinOp::SubAssign(_) => (Arithmetic, "+="),
        BinOp::MulAssign(_) => (Arithmetic, "/="),
        BinOp::DivAssign(_) => (Arithmetic, "*="),
        BinOp::And(_) => (Logic, "||"),
        BinOp::Or(_) => (Logic, "&&"),
        BinOp::BitAnd(_) => (Bits, "|"),
        BinOp::BitOr(_) => (Bits, "&"),
        BinOp::Shl(_) => (Bits, ">>"),
        BinOp::Shr(_) => (Bits, "<<"),
        BinOp::BitAndAssign(_) => (Bits, "|="),
        BinOp::BitOrAssign(_) => (Bits, "&="),
        _ => return None,
    })
}

/// Methods that are each other's opposite.
const METHODS: &[(&str, &str)] = &[
    ("min", "max"),
    ("min_by_key", "max_by_key"),
    ("saturating_add", "saturating_sub"),
    ("checked_add", "checked_sub"),
    ("wrapping_add", "wrapping_sub"),
    ("saturating_mul", "saturating_add"),
    ("checked_mul", "checked_add"),
    ("div_ceil", "wrapping_div"),
    ("is_some", "is_none"),
    ("is_some_and", "is_none_or"),
    ("is_ok", "is_err"),
    ("any", "all"),
    ("first", "last"),
    ("front", "back"),
    ("push_front", "push_back"),
    ("pop_front", "pop_back"),
    ("skip", "take"),
    ("skip_while", "take_while"),
];

/// The replacement of a method.
pub fn method(name: &str) -> Option<&'static str> {
    let of = |&(one, other): &(&str, &'static str)| (one == name).then_some(other);
    let back = |&(one, other): &(&'static str, &str)| (other == name).then_some(one);
    METHODS.iter().find_map(of).or_else(|| METHODS.iter().find_map(back))
}

const INTEGERS: &[&str] =
    &["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize"];

/// The values that a function of this type may return at once, as text after `return`.
pub fn defaults(output: &ReturnType) -> Vec<String> {
    let ReturnType::Type(_, returned) = output else {
        return vec![String::new()];
    };
    let Type::Path(path) = &**returned else {
        return Vec::new();
    };
    let Some(last) = path.path.segments.last() else {
        return Vec::new();
    };
    match last.ident.to_string().as_str() {
        "bool" => vec!["true".into(), "false".into()],
        "Nanos" => vec!["Nanos::ZERO".into()],
        "Option" => vec!["None".into()],
        "Vec" => vec!["Vec::new()".into()],
        "Result" if holds_unit(&last.arguments) => vec!["Ok(())".into()],
        name if INTEGERS.contains(&name) => vec!["0".into()],
        _ => Vec::new(),
    }
}

/// Whether the first of `Result`'s arguments is `()`.
fn holds_unit(arguments: &syn::PathArguments) -> bool {
    let syn::PathArguments::AngleBracketed(arguments) = arguments else {
        return false;
    };
    let first = arguments.args.first();
    matches!(first, Some(syn::GenericArgument::Type(Type::Tuple(tuple))) if tuple.elems.is_empty())
}
