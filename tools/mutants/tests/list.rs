//! The list of equivalent mutants as it is in this workspace.

use std::path::Path;

use punctual_mutants::equivalent::Equivalents;

/// A list that cannot be read ends every `make mutants` before it has begun.
#[test]
fn the_list_of_this_workspace_can_be_read_and_names_existing_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let list = Equivalents::read(&root.join("mutants/equivalent.toml")).expect("a list");
    assert!(list.entries().len() > 10, "it is not the list");
    for entry in list.entries() {
        let text = std::fs::read_to_string(root.join(&entry.file));
        let text = text.unwrap_or_else(|cause| panic!("{}: {cause}", entry.file));
        let name = entry.function.rsplit("::").next().expect("a name");
        let begins = if entry.file.ends_with(".c") { format!("{name}(") } else { format!("fn {name}") };
        assert!(text.contains(&begins), "{}: no {}", entry.file, entry.function);
        assert!(!entry.reason.trim().is_empty() && entry.original != entry.mutated, "{entry:?}");
    }
}
