//! The code of docs/ORB.md is that of this example.

use std::path::Path;

const SOURCES: [&str; 7] = [
    "echo.idl",
    "build.rs",
    "src/lib.rs",
    "src/bin/server.rs",
    "src/bin/client.rs",
    "src/bin/bind.rs",
    "values.idl",
];

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a file")
}

#[test]
fn the_document_shows_the_code_of_the_example() {
    let (document, sources) = (text("../../docs/ORB.md"), SOURCES.map(text));
    let blocks = document.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let code: Vec<&str> = blocks
        .filter(|(language, _)| !matches!(*language, "sh" | "toml"))
        .map(|(_, code)| code.trim_end())
        .collect();
    assert_eq!(code.len(), SOURCES.len());
    for (block, source) in code.iter().zip(&sources) {
        assert!(source.contains(block), "not in the example:\n{block}");
    }
}

#[test]
fn the_document_names_crates_that_are_there() {
    let document = text("../../docs/ORB.md");
    let (_, block) = document.split_once("```toml\n").expect("a block");
    let (block, _) = block.split_once("```").expect("its end");
    let mut count = 0;
    for (name, path) in block.lines().filter_map(|line| line.split_once(" = { path = \"../punctual/")) {
        let manifest = text(&format!("../../{}/Cargo.toml", path.trim_end_matches("\" }")));
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}: {path}");
        count += 1;
    }
    assert_eq!(count, 3, "{block}");
}
