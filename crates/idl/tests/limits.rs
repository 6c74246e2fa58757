//! Input that is too large, too deep or never ends is refused with the limit, quickly and without a panic.

mod common;

use common::{errors, errors_of, read_files};
use punctual_idl::limits::*;

/// The first error.
fn first(text: &str) -> String {
    errors(text).first().cloned().unwrap_or_default()
}

#[test]
fn nesting_is_limited() {
    let levels = 100_000;
    let limit = format!("more than {NESTING_MAX} levels of nesting");
    let files = [
        "module a { ".repeat(levels),
        format!("const long x = {}1", "(".repeat(levels)),
        format!("const long x = {}1", "-".repeat(levels)),
        format!("typedef {}long", "sequence<".repeat(levels)),
        "struct a { ".repeat(levels),
        "struct b { union c switch (long) { case 1: ".repeat(levels / 10),
    ];
    for file in files {
        let found = errors(&file);
        assert!(found.iter().any(|error| error.ends_with(&limit)), "{found:?}");
    }
    let deep =
        format!("typedef {}long{} x;", "sequence<".repeat(NESTING_MAX / 2), " >".repeat(NESTING_MAX / 2));
    assert_eq!(errors(&deep), Vec::<String>::new());
}

#[test]
fn names_arrays_and_conditions_are_limited() {
    let name = "a".repeat(IDENTIFIER_BYTES_MAX + 1);
    assert!(first(&format!("typedef long {name};")).ends_with("an identifier longer than 1024 bytes"));
    let array = format!("typedef long a{};", "[1]".repeat(DIMENSIONS_MAX + 1));
    assert!(first(&array).ends_with("an array has at most 32 dimensions"));
    assert!(first(&"#if 1\n".repeat(CONDITIONS_MAX + 1)).ends_with("more than 256 nested conditions"));
    assert!(first(&format!("#if {}1\n#endif", "(".repeat(100_000))).contains("more than 64 levels"));
    assert!(first(&format!("typedef {}a b;", "a::".repeat(1_000))).contains("more than 64 parts"));
}

#[test]
fn macros_that_explode_end() {
    let mut text = String::from("#define a0 x x x x x x x x x x\n");
    for level in 1..20 {
        let one = format!("a{} ", level - 1);
        text.push_str(&format!("#define a{level} {}\n", one.repeat(10)));
    }
    assert!(first(&(text + "a19")).ends_with("macros produce more than 1048576 tokens"));
    let nested = format!("#define f(x) x x\n{}1{};", "f(".repeat(1_000), ")".repeat(1_000));
    assert!(first(&nested).ends_with("more than 64 nested uses of macros"));
    let mut doubling = String::from("#define b0(x) x x x x\n");
    for level in 1..30 {
        doubling.push_str(&format!("#define b{level}(x) b{0}(x) b{0}(x)\n", level - 1));
    }
    assert!(!errors(&(doubling + "b29(1)")).is_empty());
}

#[test]
fn inclusion_is_limited() {
    // Each file includes the next one twice: 2^40 files without a limit.
    let files: Vec<(String, String)> = (0..40)
        .map(|level| {
            let name = if level == 0 { "a.idl".to_owned() } else { format!("/inc/f{level}.idl") };
            (name, format!("#include <f{0}.idl>\n#include <f{0}.idl>\n", level + 1))
        })
        .chain([("/inc/f40.idl".to_owned(), String::new())])
        .collect();
    let borrowed: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&**name, &**text)).collect();
    assert!(errors_of(&read_files(&borrowed, &[]))[0].ends_with("more than 4096 included files"));
    let files: Vec<(String, String)> = (0..100)
        .map(|level| {
            let name = if level == 0 { "a.idl".to_owned() } else { format!("/inc/f{level}.idl") };
            (name, format!("#include <f{}.idl>\n", level + 1))
        })
        .collect();
    let borrowed: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&**name, &**text)).collect();
    assert!(
        errors_of(&read_files(&borrowed, &[]))[0].ends_with("more than 64 files that include each other")
    );
}

#[test]
fn a_run_ends_after_so_many_errors() {
    assert_eq!(errors(&"typedef a b;\n".repeat(10_000)).len(), ERRORS_MAX);
    assert_eq!(errors(&"} ".repeat(10_000)).len(), ERRORS_MAX);
    assert_eq!(errors(&"#error\n".repeat(10_000)).len(), ERRORS_MAX);
}

#[test]
fn ancestors_are_limited() {
    let mut text = String::from("interface i0 {};\n");
    for number in 1..=ANCESTORS_MAX + 1 {
        text.push_str(&format!("interface i{number} : i{} {{}};\n", number - 1));
    }
    assert!(first(&text).ends_with("an interface inherits from at most 256 others"));
}

#[test]
fn bases_of_structures_are_limited() {
    let mut text = String::from("struct s0 { long m0; };\n");
    for number in 1..=STRUCTURE_BASES_MAX + 1 {
        text.push_str(&format!("struct s{number} : s{} {{ long m{number}; }};\n", number - 1));
    }
    assert!(first(&text).ends_with("a structure inherits from at most 64 others"), "{}", first(&text));
}

#[test]
fn interfaces_with_very_many_operations_have_no_code_and_the_others_have() {
    let operations = |count: usize| (0..count).map(|number| format!("void o{number}();")).collect::<String>();
    let largest = GENERATED_OPERATIONS_MAX - 2;
    let text = format!(
        "interface base {{ attribute long a; }};\ninterface good : base {{ {} }};\n\
         interface bad : good {{ void more(); }};\n",
        operations(largest)
    );
    let specification = common::read(&text).specification.expect("it is accepted");
    let generated = punctual_idl::generate::generate(&specification, "many.idl");
    let why: Vec<&str> = generated.skipped.iter().map(|(_, why)| &**why).collect();
    assert_eq!(why, ["it has more than 1024 operations and attributes"]);
    assert!(generated.code.contains("GoodSkeleton") && !generated.code.contains("BadSkeleton"));
    assert!(generated.code.len() < 16 << 20, "{}", generated.code.len());
}

#[test]
fn a_long_line_is_shown_in_part() {
    let text = format!("{}typedef M N;", " ".repeat(1 << 20));
    let outcome = common::read(&text);
    assert!(outcome.diagnostics[0].to_string().len() < 1_000);
    assert!(outcome.diagnostics[0].to_string().ends_with('^'));
}

#[test]
fn any_part_of_a_file_is_read_without_a_panic() {
    let text = "#define f(a) #a a##b\n#if defined(X) || 1\nmodule M { union U switch (enum E { a }) { case a: string<3 + 4> x[2]; };\n\
        interface I : J { attribute fixed<3, 1> f; oneway void g(in sequence<any> x) raises (e); };\n\
        const wchar c = L'\\u0041'; valuetype V : W { private long b; }; @n(f(1, (2))) struct S { S s; }; };\n#endif\n";
    for end in 0..text.len() {
        common::read(&text[..end]);
        common::read(&text[end..]);
    }
}
