//! IDL files, as somebody writes them for `punctual-idl` and for build scripts.

use std::io;
use std::path::Path;

use punctual_idl::model::Kind;
use punctual_idl::{Loader, Options, read};

/// The input is two files: the text up to this line, which is compiled, and the rest, which it can include.
const CUT: &str = "\n//--- b.idl\n";

struct Files<'a>(&'a [u8], &'a [u8]);

impl Loader for Files<'_> {
    fn load(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        Ok(match path.to_str() {
            Some("a.idl") => Some(self.0.to_vec()),
            Some("b.idl") => Some(self.1.to_vec()),
            _ => None,
        })
    }
}

/// Refused with places that exist, or accepted with definitions that have identifiers.
pub fn run(data: &[u8]) {
    let cut = data.windows(CUT.len()).position(|window| window == CUT.as_bytes());
    let (main, included) = cut.map_or((data, &b""[..]), |at| (&data[..at], &data[at + CUT.len()..]));
    let mut files = Files(main, included);
    let outcome = read("a.idl".as_ref(), &Options::default(), &mut files).expect("a.idl is there");
    for found in &outcome.diagnostics {
        let position = &found.position;
        assert!(position.column > 0 && position.indent <= position.source_line.chars().count(), "{found}");
        assert!(!found.message.is_empty() && !found.to_string().is_empty());
        assert!(serde_json::from_str::<serde_json::Value>(&found.json()).is_ok(), "{}", found.json());
    }
    let Some(specification) = outcome.specification else {
        assert!(!outcome.diagnostics.is_empty(), "refused without a reason");
        return;
    };
    for (id, definition) in specification.all() {
        assert_eq!(specification.path(id).last(), Some(&definition.name()));
        let has_identifier = !matches!(definition.kind(), Kind::Enumerator(..));
        assert_eq!(!definition.repository_id().is_empty(), has_identifier, "{}", definition.name());
    }
}

/// Files with everything that IDL has.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "#pragma prefix \"a.b\"\nmodule M { interface I; const long n = (1 << 2) | 0x3 + ~0;\n\
         typedef sequence<string<n>, 4> S; typedef fixed<9, 2> F; exception E { S t; any a; };\n\
         interface J { attribute long a, b; readonly attribute F f raises (E); };\n\
         interface I : J { oneway void h(in Object o); S g(inout S t, out wstring w) raises (E) context (\"x*\"); }; };\n",
        "#include \"b.idl\"\nenum C { red, green }; union U switch (C) { case red: case green: B b[2][3]; default: octet o; };\n\
         struct N; typedef sequence<N> Ns; struct N { Ns all; unsigned long long u; wchar w; };\n\
         \n//--- b.idl\n#ifndef B\n#define B long double\ntypedef B _long;\n#endif\n",
        "#define ADD(a, b) a + b\n#define NAME(a) a##_t\n#if defined(ADD) && ADD(1, 2) == 3\ntypedef long NAME(x);\n#elif 0\n#error no\n#endif\n\
         const string s = \"a\\x41\\n\" \"b\"; const wchar w = L'\\u0041'; const fixed f = 1.5d / 3d; const double d = -1.5e3;\n",
        "abstract valuetype A { void f(); }; valuetype V : A { private A b; public V w; factory make(in long x); };\n\
         valuetype W sequence<V>; eventtype T { public long u; }; native N; local interface L {}; abstract interface K {};\n\
         component C supports K { provides K l; uses multiple K m; }; home H manages C {};\n\
         typeid V \"IDL:V:2.0\"; typeprefix C \"c\";\n# 12 \"x.idl\" 1\n#pragma version K 1.2\n",
        "@key(1) struct S { @id(2) long a; const long c = 3; }; bitset B { bitfield<3> a; bitfield<2>; };\n\
         @bit_bound(8) bitmask M { a, @position(3) b }; typedef map<int8, sequence<uint64>> P;\n\
         struct D : S {}; @annotation A { long x; };\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

/// Words of IDL and of its preprocessor.
pub const WORDS: &[&str] = &[
    "module ",
    "interface ",
    "struct ",
    "union ",
    "switch",
    "case ",
    "default:",
    "enum ",
    "typedef ",
    "const ",
    "exception ",
    "attribute ",
    "readonly ",
    "oneway ",
    "raises",
    "context",
    "void ",
    "in ",
    "inout ",
    "sequence<",
    "string<",
    "fixed<",
    "long ",
    "unsigned ",
    "any ",
    "Object ",
    "valuetype ",
    "abstract ",
    "local ",
    "component ",
    "home ",
    "typeid ",
    "typeprefix ",
    "native ",
    "map<",
    "bitset ",
    "bitfield<",
    "TRUE",
    "FALSE",
    "#define ",
    "#include \"b.idl\"\n",
    "#include \"a.idl\"\n",
    "#if ",
    "#ifdef ",
    "#else\n",
    "#endif\n",
    "#pragma prefix ",
    "# 1 \"a\" 1\n",
    "##",
    "::",
    "<<",
    ">>",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    ":",
    "\"",
    "'",
    "L'",
    "\\x",
    "/*",
    "*/",
    "//",
    "@",
    "_",
    "~",
    "1",
    "0x",
    "1e9",
    "1.5d",
    "\n//--- b.idl\n",
];
