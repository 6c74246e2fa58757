//! The code of docs/ORB.md is that of this example.

use std::path::Path;

const SOURCES: [&str; 5] = ["echo.idl", "build.rs", "src/lib.rs", "src/bin/server.rs", "src/bin/client.rs"];

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a file")
}

#[test]
fn the_document_shows_the_code_of_the_example() {
    let (document, sources) = (text("../../docs/ORB.md"), SOURCES.map(text));
    let blocks = document.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let code: Vec<&str> =
        blocks.filter(|(language, _)| *language != "sh").map(|(_, code)| code.trim_end()).collect();
    assert_eq!(code.len(), SOURCES.len());
    for (block, source) in code.iter().zip(&sources) {
        assert!(source.contains(block), "not in the example:\n{block}");
    }
}
