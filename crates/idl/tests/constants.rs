//! Constant expressions: their values, and what is out of range.

mod common;

use common::{accepted, errors};
use punctual_idl::model::{Constant, Fixed, Kind};

/// The value of `const TYPE x = EXPRESSION`.
fn value(declaration: &str) -> Constant {
    let specification = accepted(&format!("enum E {{ a, b }}; const {declaration};"));
    let constant = specification.all().find(|(_, one)| one.name() == "x").expect("x").1;
    match constant.kind() {
        Kind::Constant(_, value) => value.clone(),
        other => panic!("{declaration}: {other:?}"),
    }
}

fn integer(declaration: &str, expected: i128) {
    assert_eq!(value(declaration), Constant::Integer(expected), "{declaration}");
}

#[test]
fn integers_have_the_values_of_c() {
    for (expression, expected) in [
        ("1 + 2 * 3 - 4", 3),
        ("(1 + 2) * 3", 9),
        ("-8 / 3", -2),
        ("-8 % 3", -2),
        ("017 % -3", 0),
        ("1 | 2 ^ 3 & 6", 1),
        ("1 << 4 >> 2", 4),
        ("0xFF - 0x0f", 240),
        ("~0", -1),
        ("- -1", 1),
        ("3000000000 - 2999999999", 1),
    ] {
        integer(&format!("long x = {expression}"), expected);
    }
    integer("unsigned long x = ~0", 4_294_967_295);
    integer("unsigned short x = ~0", 65_535);
    integer("octet x = ~1", 254);
    integer("long long x = -9223372036854775808", i64::MIN.into());
    integer("unsigned long long x = 18446744073709551615", u64::MAX.into());
    integer("octet x = 300 - 100", 200);
}

#[test]
fn other_types_have_their_values() {
    assert_eq!(value("double x = 1.5e3 / 2."), Constant::Float(750.0));
    assert_eq!(value("float x = .25 + -1.0"), Constant::Float(-0.75));
    assert_eq!(value("boolean x = TRUE"), Constant::Boolean(true));
    assert_eq!(value("char x = '\\xFf'"), Constant::Char(255));
    assert_eq!(value("char x = 'é'"), Constant::Char(0xE9));
    assert_eq!(value("wchar x = L'\\u20aC'"), Constant::WChar(0x20AC));
    assert_eq!(value("string x = \"a\\n\" \"\\101\\\"\""), Constant::String(b"a\nA\""[..].into()));
    assert_eq!(value("wstring x = L\"€\""), Constant::WString([0x20AC][..].into()));
    assert!(matches!(value("E x = b"), Constant::Enumerator(_)));
    assert!(matches!(value("E x = ::b"), Constant::Enumerator(_)));
    assert_eq!(value("fixed x = 1.50d * 2.25D"), Constant::Fixed(Fixed { unscaled: 3375, scale: 3 }));
    assert_eq!(value("fixed x = 10d / 4d - 0.5d"), Constant::Fixed(Fixed { unscaled: 2, scale: 0 }));
    assert_eq!(
        value("fixed x = 1d / 3d"),
        Constant::Fixed(Fixed { unscaled: 3_333_333_333_333_333_333_333_333_333_333, scale: 31 })
    );
}

#[test]
fn values_that_do_not_fit_are_refused() {
    for (declaration, expected) in [
        (
            "long x = 3000000000",
            "3000000000 is out of range for long: its values are -2147483648 to 2147483647",
        ),
        ("short x = 1 << 40", "1099511627776 is out of range for short: its values are -32768 to 32767"),
        ("unsigned long x = -1", "-1 is out of range for unsigned long: its values are 0 to 4294967295"),
        ("octet x = 256", "256 is out of range for octet: its values are 0 to 255"),
        ("long x = 1.0", "expected a value of the type long, found a floating-point number"),
        ("char x = 65", "expected a char, found an integer"),
        ("boolean x = 1", "expected a boolean, found an integer"),
        ("wchar x = 'a'", "expected a value of the type wchar, found a character"),
        ("wstring x = \"a\"", "expected a wide string, found a string"),
        ("string<3> x = \"abcd\"", "a string of 4 characters for a type of at most 3"),
        ("E x = 0", "expected an enumerator of E, found an integer"),
        ("float x = 1e39", "1000000000000000000000000000000000000000 is too large for a float"),
        ("fixed x = 1.5", "expected a fixed-point number, found a floating-point number"),
    ] {
        let column = declaration.find('=').expect("a value") + 26;
        let file = format!("enum E {{ a, b }}; const {declaration};");
        assert_eq!(errors(&file), [format!("1:{column}: {expected}")], "{file}");
    }
}

#[test]
fn wrong_expressions_are_refused() {
    for (declaration, expected) in [
        ("long x = 7 / 0", "division by zero"),
        ("short x = 1 << 64", "a shift is by 0 to 63 bits"),
        (
            "boolean x = TRUE | FALSE",
            "\"|\" needs two integers, two floating-point or two fixed-point numbers",
        ),
        ("double x = 1.0 + 1", "\"+\" needs two integers, two floating-point or two fixed-point numbers"),
        ("unsigned long long x = 18446744073709551616", "18446744073709551616 has more than 64 bits"),
        ("unsigned long long x = 18446744073709551615 + 1", "the result has more than 64 bits"),
        ("long x = 08", "not a number: 08"),
        ("double x = 1e309", "1e309 is too large for a floating-point number"),
        ("fixed x = 12345678901234567890123456789012.0d", "a fixed-point number has at most 31 digits"),
        ("string x = \"a\\0b\"", "a string has no character 0"),
        ("char x = 'ab'", "a character literal has one character"),
        ("char x = '\\u0041'", "\\u outside of a wide string or character"),
        ("string x = \"€\"", "a character that needs a wide string or character (L)"),
        ("string x = \"a", "this string or character does not end on its line"),
        ("any x = 1", "a constant cannot have this type"),
        ("long x = E", "\"E\" is not a constant"),
    ] {
        let file = format!("enum E {{ a, b }}; const {declaration};");
        let found = errors(&file);
        let message = found.first().and_then(|first| first.splitn(3, ':').nth(2));
        assert_eq!(message.map(str::trim_start), Some(expected), "{file}");
    }
}
