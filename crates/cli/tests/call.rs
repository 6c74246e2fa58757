//! `punctual call` with all types, over all versions of GIOP, and its errors.

mod mirror;

use std::process::{Command, Output};

use mirror::{echo, reply, start};
use punctual_giop::message::Request;
use punctual_giop::{ByteOrder, Decoder};
use serde_json::Value;

const PUNCTUAL: &str = env!("CARGO_BIN_EXE_punctual");
const IDL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/echo/values.idl");

/// No type, and no address.
const NIL: &str = "IOR:00000000000000010000000000000000";

fn punctual(arguments: &[&str]) -> Output {
    Command::new(PUNCTUAL).args(arguments).output().expect("it starts")
}

/// Exit code, standard output and standard error.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = punctual(arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn reference(version: &str, port: u16) -> String {
    format!("corbaloc:iiop:{version}@127.0.0.1:{port}/values")
}

#[test]
fn the_document_shows_what_each_type_looks_like() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ORB.md");
    let document = std::fs::read_to_string(path).expect("the document");
    let reference = reference("1.2", start(echo));
    let mut count = 0;
    for line in document.lines().filter(|line| line.starts_with("call ")) {
        let (call, expected) = line.split_once(" # ").unwrap_or_else(|| panic!("no result: {line}"));
        let script = format!("call() {{ '{PUNCTUAL}' call --idl '{IDL}' '{reference}' \"$@\"; }}\n{call}");
        let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(printed.trim_end(), expected.trim(), "{call}: {output:?}");
        count += 1;
    }
    assert!(count >= 25, "only {count} calls in the document");
}

#[test]
fn numbers_that_are_too_large_and_wrong_values_are_refused() {
    let reference = reference("1.2", start(echo));
    for (operation, argument, expected) in [
        ("weight", "1e39", "value: 1e39 is out of the range of float, at most 3.4028235e38"),
        ("weight", "-1e39", "value: -1e39 is out of the range of float"),
        ("distance", "1e999", "number out of range"),
        ("weight", "inf", "`inf` is no JSON"),
        ("cost", "123456.78", "is too long: fixed<7, 2> has 5 digits before the point and 2 behind it"),
        ("cost", "1.234", "is too long: fixed<7, 2>"),
        ("cost", "1x", "`\"1x\"` is not a fixed-point number"),
        ("paint", "pink", "is not one of red, green, blue (Colour)"),
        ("table", "[[1, 2]]", "1 elements, where 2 are expected"),
        ("anything", r#"{"type": "Example::None", "value": 1}"#, "no type is called `Example::None`"),
        ("anything", r#"{"type": "short"}"#, "`value` is missing"),
        ("kind", "sequence<nothing>", "no type is called `nothing`"),
        ("neighbour", "corbaloc::127.0.0.1:0/x", "is no address"),
        ("byte", "-1", "`-1` is not an integer in the range of the type"),
        (
            "draw",
            r#"{"label": "blue", "value": 5}"#,
            "the label \"blue\" selects no arm: there is no `value`",
        ),
        ("draw", r#"{"label": "red", "value": "x", "vlaue": 1}"#, "there is no member `vlaue`"),
        ("draw", r#"{"label": "red", "member": "at", "value": "x"}"#, "the label \"red\" selects `name`"),
        ("move", r#"{"x": 1, "x": 2, "y": 3}"#, "the key `x` is there twice"),
        ("anything", r#"{"type": "short", "value": 1, "z": 1}"#, "there is no member `z`"),
        ("anything", r#"{"type": "null", "value": 1}"#, "the type has no values"),
    ] {
        let (code, _, said) = run(&["call", &reference, operation, argument, "--idl", IDL]);
        assert_eq!(code, Some(2), "{operation} {argument}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{operation} {argument}: {said}");
    }
}

#[test]
fn minus_zero_is_an_integer_and_a_real_number() {
    let reference = reference("1.2", start(echo));
    for (operation, expected) in [("byte", "0"), ("distance", "-0.0")] {
        let (code, printed, said) = run(&["call", &reference, operation, "-0", "--idl", IDL]);
        assert_eq!((code, printed.trim()), (Some(0), expected), "{said}");
    }
}

#[test]
fn arguments_that_a_version_of_giop_cannot_carry_are_named() {
    let (code, _, said) = run(&["call", &reference("1.0", start(echo)), "wide_words", "x", "--idl", IDL]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("GIOP 1.0") && said.contains("cannot carry the value"), "{said}");
}

#[test]
fn wrong_files_and_references_are_wrong_usage() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    let reference = reference("1.2", start(echo));
    for (arguments, expected) in [
        (&["call", "nowhere", "flag", "true", "--idl", IDL][..], "a reference begins with"),
        (&["call", "corbaloc:rir:/X", "flag", "true", "--idl", IDL], "has no `X`"),
        (&["call", &reference, "flag", "true", "--idl", "/nonexistent.idl"], "there is no such file"),
        (&["call", &reference, "flag", "true", "--idl", folder], "it is a folder"),
        (&["call", &reference, "flag", "true"], "say --idl FILE"),
        (&["call", &reference, "flag", "--idl", IDL], "0 arguments, expected 1: value"),
        (&["call", NIL, "flag", "true", "--idl", IDL], "the reference is nil: it leads to no object"),
        (&["ior", "nowhere"], "a reference begins with"),
        (&["ior", "corbaloc::host:0/x"], "a port from 1 to 65535"),
        (&["naming", "--listen", "::1:28100"], "square brackets, as [::1]:28100"),
        (&["naming", "--listen", "[::1]"], "square brackets, as [::1]:2809"),
        (&["naming", "--listen", "::1"], "square brackets, as [::1]:2809"),
        (&["ior", "corbaloc::[::g]/x"], "is no address"),
        (&["call", &reference, "flag", "true", "--idl", IDL, "--sync", "server"], "flag is none, and waits"),
        (&["naming", "--listen", "nowhere"], "write HOST:PORT or unix:PATH"),
        (&["naming", "--listen", "unix:/a:b"], "is no path of a socket"),
    ] {
        let (code, _, said) = run(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}

#[test]
fn all_errors_of_an_idl_file_are_shown_with_their_lines() {
    let path = format!("{}/refused.idl", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, "interface A {\n  void f(in None x);\n  void g(in Nobody x);\n};\n")
        .expect("written");
    let (code, printed, said) = run(&["call", "corbaloc::127.0.0.1:1/x", "f", "--idl", &path, "--json"]);
    assert_eq!(code, Some(2), "{said}");
    for expected in [
        &format!("{path}:2:13: error: ") as &str,
        "      void f(in None x);\n                ^",
        &format!("{path}:3:13: error: "),
        "is refused: it has 2 errors",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let error: Value = serde_json::from_str(&printed).expect("one object");
    let lines: Vec<_> = [0, 1].iter().map(|n| error["error"]["diagnostics"][n]["line"].as_u64()).collect();
    assert_eq!((lines, error["error"]["exit_code"].as_u64()), (vec![Some(2), Some(3)], Some(2)));
}

/// A point in two fragments of GIOP 1.1. The second begins with padding, which is counted from its header.
fn in_fragments(request: &Request<'_>, arguments: Decoder<'_>) -> Vec<Vec<u8>> {
    let whole = reply(request.id, &arguments, &[]);
    let number = |number: i64| match arguments.order() {
        ByteOrder::Big => number.to_be_bytes(),
        ByteOrder::Little => number.to_le_bytes(),
    };
    let mut first = [&whole[..], &number(0)].concat();
    let size = (first.len() - 12) as u32;
    let mut second = whole[..12].to_vec();
    second.extend([&[0; 4][..], &number(7)].concat());
    let size_of = |size: u32| match arguments.order() {
        ByteOrder::Big => size.to_be_bytes(),
        ByteOrder::Little => size.to_le_bytes(),
    };
    first[8..12].copy_from_slice(&size_of(size));
    second[8..12].copy_from_slice(&size_of(12));
    // More follows the first; the second is a fragment.
    first[6] |= 2;
    second[7] = 7;
    vec![first, second]
}

#[test]
fn results_in_fragments_of_giop_1_1_are_aligned_by_fragment() {
    let path = format!("{}/pair.idl", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, "interface Pair { long long both(out long long second); };\n").expect("written");
    let reference = reference("1.1", start(in_fragments));
    let (code, printed, said) = run(&["call", &reference, "both", "--idl", &path]);
    assert_eq!((code, &*printed), (Some(0), "0\nsecond = 7"), "{said}");
}

/// GIOP has no description of `int8`: it goes as an octet does, and is a signed number here.
#[test]
fn integers_of_eight_bits_have_their_sign() {
    let path = format!("{}/bytes.idl", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(
        &path,
        "typedef sequence<int8> Bytes; interface B { int8 one(in int8 v); uint8 two(in uint8 v); Bytes all(in Bytes v); \
         any thing(in any v); };\n",
    )
    .expect("written");
    let reference = reference("1.2", start(echo));
    let call =
        |operation: &str, argument: &str| run(&["call", &reference, operation, argument, "--idl", &path]);
    for (operation, argument, expected) in [
        ("one", "-1", "-1"),
        ("one", "127", "127"),
        ("two", "255", "255"),
        ("all", "[-128, 1]", "[-128,1]"),
        ("thing", r#"{"type": "int8", "value": -1}"#, r#"{"type":"octet","value":255}"#),
        ("thing", r#"{"type": "Bytes", "value": [-1]}"#, r#"{"type":"IDL:Bytes:1.0","value":[255]}"#),
    ] {
        let (code, printed, said) = call(operation, argument);
        assert_eq!((code, &*printed), (Some(0), expected), "{operation} {argument}: {said}");
    }
    assert_eq!(call("one", "128").0, Some(2));
    assert_eq!(call("two", "-1").0, Some(2));
}

/// The identifier of an exception precedes its members, also within an `any`; a number is one of the type that has it.
#[test]
fn values_of_type_any_come_back_as_they_were_sent() {
    let path = format!("{}/anything.idl", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(
        &path,
        "exception Late { long by; string<4> who; }; interface A { any thing(in any v); };\n",
    )
    .expect("written");
    let reference = reference("1.2", start(echo));
    for (sent, expected) in [
        (
            r#"{"type": "Late", "value": {"by": 7, "who": "host"}}"#,
            r#"{"type":"IDL:Late:1.0","value":{"by":7,"who":"host"}}"#,
        ),
        ("18446744073709551615", r#"{"type":"unsigned long long","value":18446744073709551615}"#),
        ("9223372036854775807", r#"{"type":"long long","value":9223372036854775807}"#),
    ] {
        let (code, printed, said) = run(&["call", &reference, "thing", sent, "--idl", &path]);
        assert_eq!((code, &*printed), (Some(0), expected), "{sent}: {said}");
    }
}

/// What a server returns is checked against the IDL file as what is sent, and a wrong reply is told from a wrong argument.
#[test]
fn replies_with_other_types_are_malformed() {
    let file = |name: &str, text: &str| {
        let path = format!("{}/{name}.idl", env!("CARGO_TARGET_TMPDIR"));
        std::fs::write(&path, text).expect("written");
        path
    };
    let reference = reference("1.2", start(echo));
    // The operation sends by one type and reads by another.
    for (number, (sent, returned, value, why)) in [
        ("sequence<long>", "sequence<long, 3>", "[1, 2, 3, 4]", "the length 4 is too large"),
        ("string", "string<4>", "abcde", "the length 5 is too large"),
        ("wstring", "wstring<4>", "abcde", "the length 5 is too large"),
        ("long", "Colour", "7", "no enumerator has the number 7"),
        ("octet", "boolean", "9", "a boolean is 0 or 1"),
        ("long", "double", "9", "ends within a value"),
    ]
    .into_iter()
    .enumerate()
    {
        let types = format!(
            "enum Colour {{ red }}; typedef {sent} Sent; typedef {returned} Returned; \
             interface A {{ Returned turn(in Sent v); }};\n"
        );
        let path = file(&format!("other{number}"), &types);
        let (code, printed, said) = run(&["call", &reference, "turn", value, "--idl", &path, "--json"]);
        assert_eq!(code, Some(1), "{returned}: {said}");
        let shown: Value = serde_json::from_str(&printed).expect("one object");
        assert_eq!(shown["error"]["exception"], "IDL:omg.org/CORBA/MARSHAL:1.0", "{shown}");
        assert!(
            said.contains("the reply does not have the types of the IDL file") && said.contains(why),
            "{said}"
        );
    }
    for (sent, returned, value) in
        [("sequence<long>", "sequence<long, 4>", "[1,2,3,4]"), ("string", "string<4>", "abcd")]
    {
        let types = format!(
            "typedef {sent} Sent; typedef {returned} Returned; interface A {{ Returned turn(in Sent v); }};\n"
        );
        let path = file("same", &types);
        let (code, printed, said) = run(&["call", &reference, "turn", value, "--idl", &path]);
        assert_eq!((code, &*printed), (Some(0), value), "{said}");
    }
}

/// Each says what is wrong, and with JSON the parts of the exception, too.
#[test]
fn system_exceptions_are_printed_with_their_cause() {
    let unused =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    let refused = format!("corbaloc::127.0.0.1:{unused}/x");
    for (reference, kind, cause) in [
        (&*refused, "TRANSIENT", "nothing listens at the address: the connection was refused"),
        ("corbaloc::no-such-host.invalid:1/x", "TRANSIENT", "the host is not known: its name has no address"),
        ("corbaloc:omniunix:/no/such/socket:/x", "TRANSIENT", "there is no Unix socket with this path"),
    ] {
        let (code, printed, said) = run(&["call", reference, "_is_a", "IDL:X:1.0", "--json"]);
        assert_eq!(code, Some(1), "{reference}: {said}");
        assert!(said.contains(cause) && said.lines().count() == 1, "{reference}: {said}");
        let shown: Value = serde_json::from_str(&printed).expect("one object");
        let error = &shown["error"];
        assert_eq!(error["exception"], format!("IDL:omg.org/CORBA/{kind}:1.0"), "{shown}");
        assert_eq!(
            (&error["cause"], &error["completed"]),
            (&cause.into(), &"COMPLETED_NO".into()),
            "{shown}"
        );
        assert!(error["minor"].is_u64() && error["exit_code"] == 1, "{shown}");
    }
}

/// A reference whose texts are orders to a terminal, and lines.
#[test]
fn references_are_explained_in_lines_of_their_own() {
    use punctual_giop::reference::{Address, IiopProfile, stringify};
    let address = Address { host: "a\nprofile    IIOP".into(), port: 1 };
    let version = punctual_giop::Version::V1_2;
    let profile = IiopProfile { version, address, object_key: b"x".to_vec(), components: vec![] };
    let mut reference = punctual_giop::Reference::iiop("IDL:\x1b[2J\nX:1.0", &profile).expect("it has bytes");
    // The version 1.3 is read as 1.2.
    reference.profiles[0].data[2] = 3;
    let (code, printed, _) = run(&["ior", &stringify(&reference).expect("it has bytes")]);
    assert_eq!(code, Some(0));
    assert_eq!(printed.lines().count(), 4, "{printed}");
    assert!(!printed.contains('\x1b') && printed.contains("IIOP 1.3 "), "{printed}");
}

#[test]
fn standard_input_has_one_reference() {
    let script = format!("printf 'corbaloc::a/x\\n\\ncorbaloc::b/x\\n' | '{PUNCTUAL}' ior -");
    let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("standard input has 2 lines"), "{output:?}");
}

#[test]
fn long_arguments_are_shortened_in_errors() {
    let (code, _, said) = run(&["call", &"x".repeat(100_000), "flag", "true", "--idl", &"y".repeat(100_000)]);
    assert!(code == Some(2) && said.len() < 1_100, "{} characters", said.len());
    let (code, _, said) = run(&["naming", "--listen", &"x".repeat(100_000)]);
    assert!(code == Some(2) && said.len() < 1_100, "{} characters", said.len());
}

#[test]
fn readonly_attributes_cannot_be_set() {
    let path = format!("{}/readonly.idl", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(&path, "interface R { readonly attribute long a; };\n").expect("written");
    let (code, _, said) = run(&["call", "corbaloc::127.0.0.1:1/x", "a", "5", "--idl", &path]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("the attribute a is readonly: it cannot be set"), "{said}");
}
