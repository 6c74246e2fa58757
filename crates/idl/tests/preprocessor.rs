//! The preprocessor: macros, conditions, inclusion, line markers.

mod common;

use common::{errors, errors_of, read_files};

/// The values of all constants `x...` of the files.
fn constants(files: &[(&str, &str)], defines: &[(&str, &str)]) -> Vec<String> {
    let outcome = read_files(files, defines);
    assert_eq!(errors_of(&outcome), Vec::<String>::new(), "{files:?}");
    let specification = outcome.specification.expect("no error");
    specification.all().map(|(_, one)| format!("{:?}", one.kind())).collect()
}

fn value(text: &str, defines: &[(&str, &str)]) -> String {
    let all = constants(&[("a.idl", text)], defines);
    let one = all.first().cloned().unwrap_or_default();
    one.split_once("), ").map_or(one.clone(), |(_, value)| value.trim_end_matches(')').to_owned())
}

#[test]
fn macros_are_replaced() {
    for (text, expected) in [
        ("#define N 3\nconst long x = N;", "Integer(3"),
        ("#define N() 4\nconst long x = N();", "Integer(4"),
        ("#define ADD(a, b) ((a) + (b))\nconst long x = ADD(ADD(1, 2),\n (3 * 4));", "Integer(15"),
        ("#define A B\n#define B A\n#define C 7\nconst long x = C; typedef long A;", "Integer(7"),
        ("#define S(x) #x\nconst string x = S(a  b);", "String([97, 32, 98]"),
        ("#define CAT(a, b) a ## b\nconst long CAT(x, y) = CAT(1, 2);", "Integer(12"),
        ("#define T long \\\n long\nconst T x = 4294967296;", "Integer(4294967296"),
        ("#define N 1\n#undef N\n#define N 2\nconst long x = N;", "Integer(2"),
        ("#define f(a) a + 1\nconst long f = f(4);", "Integer(5"),
    ] {
        assert_eq!(value(text, &[]), expected, "{text}");
    }
    assert_eq!(value("const long x = N;", &[("N", "5")]), "Integer(5");
}

#[test]
fn conditions_choose() {
    for (condition, expected) in [
        ("#if 1", 1),
        ("#if 0", 2),
        ("#ifdef D", 1),
        ("#ifndef D", 2),
        ("#if defined(D) && !defined E", 1),
        ("#if D == 7 || 1 / 1", 1),
        ("#if (1 + 2) * 3 == 9 && 0x10 >> 2 == 4", 1),
        ("#if UNKNOWN", 2),
        ("#if 'a' == 97", 1),
        ("#if -1 < 0 ? 1", 0),
        ("#if 1 / 0", 0),
        ("#if (1", 0),
    ] {
        let text = format!("#define D 7\n{condition}\nconst long x = 1;\n#else\nconst long x = 2;\n#endif\n");
        match expected {
            0 => assert_eq!(errors(&text).len(), 1, "{condition}"),
            _ => assert_eq!(value(&text, &[]), format!("Integer({expected}"), "{condition}"),
        }
    }
    let chain = "#if 0\n#error no\n#elif 1\n#if 0\n x\n#else\nconst long x = 3;\n#endif\n#elif 1\n#error no\n#else\n\"don't\n#endif";
    assert_eq!(value(chain, &[]), "Integer(3");
    assert_eq!(errors("#if 1\n"), ["1:2: this condition has no #endif"]);
    assert_eq!(errors("#endif\n"), ["1:2: #endif without #if"]);
    assert_eq!(errors("#if 0\n#else\n#elif 1\n#endif\n"), ["3:2: #elif after #else"]);
    assert_eq!(errors("#error no \\\nway // here\n"), ["1:2: #error no way"]);
    assert_eq!(errors("#frob\n"), ["1:2: unknown directive: \"frob\""]);
}

#[test]
fn files_are_included_beside_the_file_and_from_folders() {
    let files = [
        (
            "a.idl",
            "#include \"b.idl\"\n#include <c.idl>\n#define F \"b.idl\"\n#include F\nconst long x = B + C;",
        ),
        ("b.idl", "#ifndef B_IDL\n#define B_IDL\nconst long B = 1;\n#endif"),
        ("/inc/b.idl", "#error not this one"),
        ("/inc/c.idl", "#pragma once\n#include \"sub/d.idl\"\nconst long C = D;"),
        ("/inc/sub/d.idl", "#include <c.idl>\nconst long D = 2;"),
    ];
    assert_eq!(constants(&files, &[]).len(), 4);
    assert_eq!(
        errors("#include \"b.idl\"\n#include\n"),
        [
            "1:2: cannot find the file \"b.idl\": is a folder missing (-I)?",
            "2:2: #include needs \"FILE\" or <FILE>"
        ]
    );
}

#[test]
fn errors_in_included_files_are_at_their_place() {
    let files = [("a.idl", "typedef long L;\n#include \"b.idl\"\n"), ("b.idl", "\n  typedef M N;\n")];
    let outcome = read_files(&files, &[]);
    let text = outcome.diagnostics[0].to_string();
    assert_eq!(text, "b.idl:2:11: error: \"M\" is not declared\n      typedef M N;\n              ^");
}

#[test]
fn line_markers_give_the_place_of_the_original() {
    let outcome = read_files(&[("a.idl", "# 1 \"b.idl\"\n\n#line 41\ntypedef\tM N;\n")], &[]);
    let text = outcome.diagnostics[0].to_string();
    assert_eq!(text, "b.idl:41:9: error: \"M\" is not declared\n    typedef\tM N;\n           \t^");
    let json = outcome.diagnostics[0].json();
    assert!(json.contains("\"file\":\"b.idl\",\"line\":41,\"column\":9,"), "{json}");
    assert!(json.contains("\"source_line\":\"typedef\\u0009M N;\""), "{json}");
}

#[test]
fn a_file_that_includes_itself_is_refused() {
    let outcome = read_files(&[("a.idl", "#include \"a.idl\"\n")], &[]);
    assert_eq!(errors_of(&outcome), ["1:2: a.idl includes itself (a.idl, which includes a.idl)"]);
    let pair = [("a.idl", "#include \"b.idl\"\n"), ("b.idl", "#include \"a.idl\"\n")];
    assert_eq!(
        errors_of(&read_files(&pair, &[])),
        [
            "1:2: a.idl includes itself (a.idl, which includes b.idl, which includes a.idl, which includes b.idl)"
        ]
    );
    let guarded = [("a.idl", "#ifndef A\n#define A\n#include \"a.idl\"\ntypedef long L;\n#endif")];
    assert_eq!(errors_of(&read_files(&guarded, &[])), Vec::<String>::new());
}

#[test]
fn macros_that_are_used_wrongly_are_refused() {
    for (text, expected) in [
        ("#define f(a, b) a\nconst long x = f(1);", "2:16: this macro has 2 parameters, and 1 are given"),
        ("#define f(a) a\nconst long x = f(1", "2:16: the arguments of this macro have no \")\""),
        ("#define f(1) a", "1:8: the parameters of the macro f are not names"),
        ("#define", "1:8: #define needs the name of a macro"),
        ("#pragma prefix x", "1:2: this pragma has the form: #pragma prefix \"PREFIX\""),
        ("typedef long a; /* no end", "1:17: this comment has no end"),
        ("typedef long $a;", "1:14: a character that IDL does not have: '$'"),
    ] {
        assert_eq!(errors(text).first().map(String::as_str), Some(expected), "{text}");
    }
}
