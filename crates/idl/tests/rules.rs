//! What is accepted and what is refused, rule by rule. omniidl 4.2.5 agrees with each line, but for those that
//! say otherwise.

mod common;

use common::{accepted, errors};

/// Files without an error.
fn all_accepted(files: &[&str]) {
    for file in files {
        accepted(file);
    }
}

/// Files with exactly these errors.
fn refused(files: &[(&str, &[&str])]) {
    for (file, expected) in files {
        assert_eq!(errors(file), *expected, "{file}");
    }
}

#[test]
fn names_that_are_the_same_in_any_case_clash() {
    refused(&[
        (
            "struct S { long x; long X; };",
            &["1:25: \"X\" is already declared in this scope, names that differ only in case are the same"],
        ),
        ("enum E { a, b }; enum F { b, c };", &["1:27: \"b\" is already declared in this scope"]),
        (
            "interface I { void f(in long a, in long a); };",
            &["1:41: \"a\" is already declared in this scope"],
        ),
        ("module M { typedef long X; }; interface M {};", &["1:41: \"M\" is already declared in this scope"]),
        ("const long E = 1; enum E { x };", &["1:24: \"E\" is already declared in this scope"]),
        ("interface I {}; interface I {};", &["1:27: \"I\" is already declared in this scope"]),
        (
            "module M { typedef long A; }; module M { typedef short A; };",
            &["1:56: \"A\" is already declared in this scope"],
        ),
    ]);
}

#[test]
fn the_name_of_a_scope_cannot_be_declared_in_it() {
    let message =
        |column: u32, name: &str| format!("1:{column}: \"{name}\" is the name of the scope that it is in");
    let cases = [
        ("module A { typedef long a; };", 25, "a"),
        ("interface I { void i(); };", 20, "i"),
        ("struct S { long s; };", 17, "s"),
        ("interface I { exception i {}; };", 25, "i"),
        ("module A { module A { typedef long x; }; };", 19, "A"),
        ("module A { enum E { x, a }; };", 24, "a"),
    ];
    for (file, column, name) in cases {
        assert_eq!(errors(file), [message(column, name)], "{file}");
    }
    all_accepted(&["interface I { void f(in long f); };", "module A { struct B { long a; }; };"]);
}

#[test]
fn a_name_that_was_used_in_a_scope_cannot_be_declared_there_afterwards() {
    let used = |column: u32, name: &str, full: &str| {
        format!("1:{column}: \"{name}\" was used in this scope for {full}: it cannot be declared afterwards")
    };
    let cases = [
        ("typedef long T; struct S { T t; };", 30, "t", "T"),
        ("module A { typedef long T; module B { typedef T U; typedef short T; }; };", 66, "T", "A::T"),
        ("typedef long T; interface B { struct S { T x; }; typedef short T; };", 64, "T", "T"),
        ("typedef long X; interface I { X x(); };", 33, "x", "X"),
        ("interface I { void g(in I i); };", 27, "i", "I"),
        ("typedef long X; interface I { void f(in X x); };", 43, "x", "X"),
        (
            "interface A { struct S { long x; }; }; interface B : A { S f(); struct S { long y; }; };",
            72,
            "S",
            "A::S",
        ),
    ];
    for (file, column, name, full) in cases {
        assert_eq!(errors(file), [used(column, name, full)], "{file}");
    }
    all_accepted(&[
        "typedef long X; module M { interface I { void op(in X a); }; typedef short X; };",
        "typedef long X; struct S { ::X x; };",
    ]);
}

#[test]
fn names_are_searched_in_bases_first_and_then_outwards() {
    all_accepted(&[
        "typedef string T; interface A { typedef long T; }; interface B : A { const T x = 1; };",
        "interface A { typedef long T; }; interface B : A { typedef short T; }; interface C : B { typedef T U; };",
        "interface A { typedef long T; }; interface B { typedef long T; }; interface C : A, B { typedef A::T U; };",
        "interface A { typedef long T; }; interface B : A {}; interface C : A {}; interface D : B, C { typedef T U; };",
        "module A { typedef long T; }; module A { typedef T U; }; typedef A::U V; typedef ::A::V2 W;"
            .split(" typedef ::A::V2")
            .next()
            .expect("the first part"),
    ]);
    refused(&[
        ("typedef x T;", &["1:9: \"x\" is not declared"]),
        (
            "typedef long Foo; typedef foo Bar;",
            &["1:27: \"foo\" is declared as \"Foo\": names are used in the same case"],
        ),
        ("module M { typedef long T; }; typedef M::U V;", &["1:42: \"U\" is not declared in M"]),
        (
            "interface A { typedef long T; }; interface B { typedef long T; }; interface C : A, B { typedef T U; };",
            &["1:96: \"T\" is ambiguous: several bases declare it"],
        ),
        // A module hides one of the same name around it (TAO's invalid_scoping1.idl).
        (
            "module A { typedef long L; module B { module A2 { typedef short S; }; typedef A2::L X; }; };",
            &["1:83: \"L\" is not declared in A::B::A2"],
        ),
        ("const long a = b; const long b = 1;", &["1:16: \"b\" is not declared"]),
    ]);
}

#[test]
fn interfaces_inherit_by_the_rules() {
    all_accepted(&[
        "interface A { void f(); }; interface B : A {}; interface C : A {}; interface D : B, C {};",
        "abstract interface A {}; interface B : A {}; local interface C : B {};",
        "interface A; interface A; interface A {}; interface A;",
        "interface A { const long x = 1; }; interface B : A { const long x = 2; };",
    ]);
    refused(&[
        (
            "interface A { void f(); }; interface B { void F(); }; interface C : A, B {};",
            &["1:67: two bases have \"F\""],
        ),
        (
            "interface A { attribute long x; }; interface B : A { void x(); };",
            &["1:59: \"x\" is inherited from A"],
        ),
        ("interface A; interface B : A {};", &["1:28: \"A\" is only declared, and a base must be defined"]),
        ("interface A {}; interface B : A, A {};", &["1:34: \"A\" is named twice"]),
        ("interface A : A {};", &["1:15: it cannot inherit from itself"]),
        ("struct S { long x; }; interface B : S {};", &["1:37: \"S\" is not an interface"]),
        (
            "local interface A {}; interface B : A {};",
            &["1:37: an interface cannot inherit from a local interface"],
        ),
        (
            "interface B {}; abstract interface C : B {};",
            &["1:40: an abstract interface cannot inherit from an interface"],
        ),
        ("interface A; local interface A {};", &["1:30: \"A\" was declared as an interface"]),
    ]);
}

#[test]
fn operations_and_attributes_follow_the_rules() {
    all_accepted(&[
        "exception E {}; interface I { void f(in long a, inout string<5> b, out any c) raises (E) context (\"a*\", \"b.c\"); };",
        "interface I { oneway void f(in long a); attribute long a, b; readonly attribute Object c, d; };",
        "exception E {}; exception F {}; interface I { attribute long a getraises (E) setraises (F, E); readonly attribute long b raises (E); };",
        "local interface L { void f(in L a); };",
    ]);
    refused(&[
        ("interface I { oneway long f(); };", &["1:22: a oneway operation returns nothing (void)"]),
        (
            "interface I { oneway void f(out long a); };",
            &["1:29: a oneway operation has only \"in\" parameters"],
        ),
        (
            "exception E {}; interface I { oneway void f() raises (E); };",
            &["1:47: a oneway operation raises nothing"],
        ),
        ("interface I { void f() raises (I); };", &["1:32: \"I\" is not an exception"]),
        ("interface I { void f() raises (); };", &["1:32: expected the name of an exception, found \")\""]),
        ("interface I { void f() context (\"1a\"); };", &["1:33: \"1a\" is not the name of a property"]),
        (
            "interface I { void f(in sequence<long> a); };",
            &["1:25: a sequence needs a name here: use typedef"],
        ),
        (
            "interface I { void f(long a); };",
            &["1:22: expected \"in\", \"out\" or \"inout\", found \"long\""],
        ),
        (
            "local interface L {}; struct S { L x; }; interface I { void f(in S a); };",
            &["1:66: L is local: only local interfaces can use it"],
        ),
        ("exception E {}; interface I { void f(in E a); };", &["1:41: \"E\" is not a type"]),
    ]);
}

#[test]
fn structures_unions_and_enumerations_follow_the_rules() {
    all_accepted(&[
        "struct S { sequence<S> a; sequence<S> b[3]; struct T { sequence<S> x; } y; };",
        "struct S; typedef sequence<S> Ss; struct S { Ss all; };",
        "union U switch (long) { case 1: case 2: long a; default: short b; };",
        "union U switch (enum E { a, b }) { case a: long x; };",
        "module M { enum E { a, b }; }; union U switch (M::E) { case M::a: long x; case b: short y; };",
        "typedef char C; union U switch (C) { case 'a': case '\\377': long x; };",
        "typedef long A[2][3]; struct S { A x, b[4]; };",
        // IDL 4.2; omniidl knows neither.
        "struct S {}; struct T : S { long a; }; union U switch (octet) { case 255: long x; }; union V switch (wchar) { case L'a': long x; };",
    ]);
    refused(&[
        ("struct S { S x; };", &["1:12: S is not complete here: only a sequence of it can be a member"]),
        ("struct S { S x[2]; };", &["1:12: S is not complete here: only a sequence of it can be a member"]),
        ("struct S; typedef sequence<S> X;", &["1:8: \"S\" is declared and never defined"]),
        ("union U switch (long) {};", &["1:23: a union has at least one member"]),
        (
            "union U switch (float) { case 1: long a; };",
            &["1:17: a discriminator is an integer, a character, a boolean or an enumeration"],
        ),
        ("union U switch (long) { case 1: long a; case 1: long b; };", &["1:46: this label is used already"]),
        (
            "union U switch (long) { default: long a; default: long b; };",
            &["1:42: this union already has a default"],
        ),
        ("union U switch (long) { long a; };", &["1:25: expected \"case\" or \"default\", found \"long\""]),
        ("enum E { a, };", &["1:13: expected an enumerator, found \"}\""]),
        ("struct S { void x; };", &["1:12: void is not a type of a value"]),
        ("typedef sequence<long, 0> S;", &["1:24: the length of a sequence is from 1 to 4294967295, not 0"]),
        ("typedef long A[0];", &["1:16: the length of an array is from 1 to 4294967295, not 0"]),
        ("typedef long A[65536][65537];", &["1:14: an array has at most 4294967295 elements"]),
        ("typedef fixed<32, 2> F;", &["1:15: a fixed-point type has at most 31 digits"]),
        ("typedef fixed<3, 4> F;", &["1:18: the scale is greater than the number of digits"]),
    ]);
}

#[test]
fn keywords_are_no_names_unless_escaped() {
    all_accepted(&[
        "typedef long _long; typedef _long2 b;".split(" typedef _long2").next().expect("the first part"),
        "module CosX { typedef Object _Factory; typedef sequence<Factory> Factories; };",
        // Names of older files that later versions of IDL made keywords.
        "struct S { unsigned short port; long home, component, int8, map; };",
        "typedef long int32; struct S { int32 a; }; struct T { int8 a; uint64 b; };",
    ]);
    refused(&[
        (
            "typedef long module;",
            &["1:14: expected the name of a type; \"module\" is a keyword: as a name it is written _module"],
        ),
        (
            "struct S { long Attribute; };",
            &[
                "1:17: \"Attribute\" differs from the keyword \"attribute\" only in case: as a name it is written _Attribute",
            ],
        ),
        (
            "interface PortType {};",
            &[
                "1:11: \"PortType\" differs from the keyword \"porttype\" only in case: as a name it is written _PortType",
            ],
        ),
        ("typedef _1 x;", &["1:9: \"1\" does not begin with a letter"]),
    ]);
}

#[test]
fn what_every_file_knows_of_corba_can_be_declared_too() {
    all_accepted(&[
        "typedef CORBA::TypeCode T; typedef CORBA::Principal P;",
        "module CORBA { interface TypeCode; enum K { l }; }; typedef CORBA::TypeCode T;",
        "module CORBA { struct S { TypeCode t; }; };",
    ]);
    refused(&[("typedef TypeCode T;", &["1:9: \"TypeCode\" is not declared"])]);
}

#[test]
fn value_types_and_components_are_checked() {
    all_accepted(&[
        "valuetype V { private long a; public V b; factory make(in long x); };",
        "valuetype W sequence<long>; valuetype X struct T { long a; };",
        "abstract valuetype A { void f(); }; custom valuetype B : A { public long x; };",
        "interface I {}; valuetype A {}; valuetype B : truncatable A supports I { boolean f(in any x); };",
        "eventtype E { public long a; };",
        "interface I {}; component C; component C supports I { provides I a; uses multiple I b; attribute long d; }; home H manages C { factory make(in long x); finder find(in long y); };",
        "interface I {}; porttype P { provides I a; uses I b; }; connector K { port P q; };",
    ]);
    refused(&[
        ("valuetype V : truncatable W {};", &["1:27: \"W\" is not declared"]),
        ("abstract valuetype A { public long x; };", &["1:24: an abstract value type has no state"]),
        ("struct S { long x; }; valuetype V : S {};", &["1:37: \"S\" is not a value type"]),
        ("interface I {}; home H manages I {};", &["1:32: I is not a component"]),
        ("component C { provides X a; };", &["1:24: \"X\" is not declared"]),
    ]);
}

#[test]
fn extended_types_and_annotations_are_read() {
    let file = "@a module M { @id(3 + 4) @b::c(x = \"y\", z = 'oo') struct S { @key long x; }; };
        bitset B { bitfield<1> a; bitfield<3>; bitfield<10, short> c, d; };
        @bit_bound(8) bitmask K { p, @position(5) q, r };
        @annotation note { string text default \"\"; };
        typedef map<long, sequence<string>, 10> Map; typedef sequence<sequence<long, 5>> Nested;";
    let specification = accepted(file);
    let find = |name: &str| specification.all().find(|(_, one)| one.name() == name).expect(name).1;
    let annotations = find("S").annotations();
    assert_eq!((annotations[0].name.as_str(), annotations[0].parameters.as_str()), ("id", "3 + 4"));
    assert_eq!(
        (annotations[1].name.as_str(), annotations[1].parameters.as_str()),
        ("b::c", "x = \"y\" , z = 'oo'")
    );
    assert_eq!(format!("{:?}", find("K").kind()), "Bitmask([(\"p\", 0), (\"q\", 5), (\"r\", 6)])");
    refused(&[("bitset B { bitfield<65> a; };", &["1:12: a bit set has at most 64 bits"])]);
}

#[test]
fn several_errors_are_found_in_one_run() {
    let file = "module M {\n  struct S { long a long b; short c; };\n  typedef nothing T;\n  interface I {\n    void f(in long);\n    void g();\n  };\n}\n";
    assert_eq!(
        errors(file),
        [
            "2:21: expected \";\" behind the member, found \"long\"",
            "3:11: \"nothing\" is not declared",
            "5:19: expected the name of a parameter, found \")\"",
            "9:1: expected \";\" behind the definition, found the end of the file",
        ]
    );
    refused(&[
        ("};", &["1:1: expected a definition, found \"}\""]),
        (
            "module A { typedef long x; }",
            &["1:29: expected \";\" behind the definition, found the end of the file"],
        ),
    ]);
}
