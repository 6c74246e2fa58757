//! Mistakes are found exactly where they can be made, and the rewritten text is valid Rust.

use std::collections::BTreeSet;
use std::path::Path;

use punctual_mutants::operators::Operator;
use punctual_mutants::rewrite::{Numbered, blame, rewrite};
use punctual_mutants::sites::{Site, find};

/// Each kind of mistake at least once.
const ALL_KINDS: &str = r#"
impl Queue {
    fn take(&mut self, count: u32, flags: u32) -> bool {
        self.taken.push(count);
        if count < self.limit && !self.closed {
            self.left = (self.left - count).min(flags & MASK);
        }
        self.left == 7
    }
}
"#;

fn sites(text: &str) -> Vec<Site> {
    find(Path::new("text.rs"), text).expect("Rust").sites
}

fn numbered(sites: &[Site]) -> Vec<Numbered<'_>> {
    (1..).zip(sites).map(|(id, site)| Numbered { id, site }).collect()
}

/// The mistakes found, as `original -> mutated`.
fn found(text: &str) -> Vec<String> {
    sites(text).iter().map(|site| format!("{} -> {}", site.original, site.mutated)).collect()
}

#[test]
fn every_kind_of_mistake_is_found_and_each_makes_other_code() {
    let sites = sites(ALL_KINDS);
    let kinds: BTreeSet<_> = sites.iter().map(|site| site.operator).collect();
    assert_eq!(kinds, BTreeSet::from(Operator::ALL));
    let texts: BTreeSet<_> =
        sites.iter().map(|site| rewrite(ALL_KINDS, &numbered(std::slice::from_ref(site)), "on")).collect();
    assert_eq!(texts.len(), sites.len(), "two mistakes are written alike");
    for text in texts {
        assert_ne!(text, ALL_KINDS);
        syn::parse_file(&text).expect("one mistake is Rust");
    }
}

#[test]
fn all_mistakes_together_are_rust_and_each_is_written_once() {
    let sites = sites(ALL_KINDS);
    let text = rewrite(ALL_KINDS, &numbered(&sites), "on");
    syn::parse_file(&text).expect("all mistakes are Rust");
    for id in 1..=sites.len() {
        assert_eq!(text.matches(&format!("on({id})")).count(), 1, "{id} in {text}");
    }
}

#[test]
fn the_same_place_has_the_same_number_among_its_like() {
    let text = "fn f() -> u64 { g(1); g(1); h() }";
    let literals: Vec<_> = sites(text)
        .into_iter()
        .filter(|site| site.operator == Operator::Literal && site.mutated == "2")
        .collect();
    assert_eq!(literals.iter().map(|site| site.nth).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_mistake_is_the_one_that_is_reported() {
    assert_eq!(
        found("fn f(a: S) { a.b.max(c); }"),
        [
            " -> ".trim_start().to_owned().replace("-> ", "the body -> return"),
            "a.b.max(c); -> ".into(),
            "a.b.max(c) -> a.b.min(c)".into(),
        ]
    );
    assert_eq!(found("fn f(a: S) -> S { a * b }"), ["a * b -> (a) / (b)"]);
    assert_eq!(found("fn f(a: S) -> S { 0x10u64 }"), ["0x10u64 -> 17u64", "0x10u64 -> 15u64"]);
    assert_eq!(found("fn f(a: S) -> Option<S> { None }"), [] as [&str; 0]);
    assert_eq!(found("fn f(a: S) -> Result<(), E> { g(a) }"), ["the body -> return Ok(())"]);
}

#[test]
fn what_a_compiler_evaluates_what_is_only_shown_and_tests_stay() {
    let none: [&str; 0] = [];
    for text in [
        "const A: u64 = 1 + 2;",
        "static A: [u8; 4] = [0; 4];",
        "enum A { B = 1 }",
        "const fn f(a: u64) -> bool { a < 2 }",
        "impl A { const B: u64 = 3; const fn f(&self) -> u64 { self.0 + 1 } }",
        "impl fmt::Display for A { fn fmt(&self, f: &mut F) -> R { f.pad(1 + 2) } }",
        "impl fmt::Debug for A { fn fmt(&self, f: &mut F) -> R { f.pad(1 + 2) } }",
        "#[cfg(test)] mod tests { fn f() -> u64 { 1 } }",
        "#[test] fn f() { assert_eq!(g(), 1); }",
        "#[cfg(feature = \"mutations\")] fn f() { g(); }",
        "fn f() -> S { match a { 1 => b, 2..=3 => c, _ => d } }",
        "fn f() -> S { g::<{ 1 + 2 }>() }",
        "fn f() -> S { const A: u64 = 1; const { 1 + 2 } }",
        "fn f() -> S { debug_assert!(a < b); c }",
        "/// ```\n/// assert!(1 < 2);\n/// ```\nfn f() -> S { a }",
        "fn f() -> S { if active(Mutation::A) { a + b } else { c } }",
        "fn f() -> S { g(!active(Mutation::A)) }",
    ] {
        assert_eq!(found(text), none, "{text}");
    }
}

#[test]
fn conditions_that_bind_stay_and_their_neighbours_do_not() {
    let found = found("fn f() -> S { if a < b && let Some(c) = d { e } else { g } }");
    assert_eq!(found, ["a < b -> (a) <= (b)"]);
}

#[test]
fn modules_that_only_tests_compile_are_named() {
    let found = find(Path::new("lib.rs"), "#[cfg(test)] mod tests; mod other;").expect("Rust");
    assert_eq!(found.test_modules, ["tests"]);
}

#[test]
fn an_error_is_the_innermost_mutants() {
    let text = "fn f() -> S { a * b + c }";
    let sites = sites(text);
    let written = rewrite(text, &numbered(&sites), "on");
    let of = |operator: &str| {
        let id = 1 + sites.iter().position(|site| site.mutated.contains(operator)).expect("is found");
        (written.find(&format!("/*[{id}*/")).expect("is marked") + 6, id as u32)
    };
    for operator in [") - (", ") / ("] {
        let (at, id) = of(operator);
        assert_eq!(blame(&written, at, &[1, 2]), Some(id), "{operator}");
    }
    assert_eq!(blame(&written, 0, &[1, 2]), None);
}
