//! Documents that name tests name tests that exist, and links lead somewhere.

mod sources;

use std::collections::BTreeSet;
use std::path::PathBuf;

use sources::{root, sources};

/// The documents that list promises and defences with the tests that check them.
const DOCUMENTS: [&str; 2] = ["docs/GUARANTEES.md", "docs/SECURITY.md"];

/// Names of all functions.
fn functions() -> BTreeSet<String> {
    let folders = ["crates", "fuzz/src", "fuzz/tests", "fuzz/models", "tests"];
    let mut names = BTreeSet::new();
    for file in folders.iter().flat_map(|folder| sources(&root().join(folder))) {
        let text = sources::text(&file);
        let of_line = |line: &str| {
            let (_, after) = line.split_once("fn ")?;
            Some(after.split(|c: char| !c.is_alphanumeric() && c != '_').next()?.to_owned())
        };
        names.extend(text.lines().filter_map(of_line));
    }
    names
}

/// Whether a quoted word reads like the name of a test: a sentence of at least four words.
fn is_sentence(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    plain && word.split('_').filter(|part| !part.is_empty()).count() >= 4
}

#[test]
fn every_test_that_a_document_names_exists() {
    let functions = functions();
    let keys = std::fs::read_to_string(root().join("docs/punctuald.example.toml")).expect("the example");
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(root().join(document)).expect("a document");
        let words: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|word| is_sentence(word)).collect();
        assert!(words.len() > 10, "{document} names its tests");
        let missing: Vec<&str> =
            words.into_iter().filter(|word| !functions.contains(*word) && !keys.contains(word)).collect();
        assert!(missing.is_empty(), "{document} names tests that do not exist: {missing:?}");
    }
}

#[test]
fn a_release_of_the_changelog_has_each_heading_once() {
    let text = std::fs::read_to_string(root().join("CHANGELOG.md")).expect("the changelog");
    for release in text.split("\n## ").skip(1) {
        let mut seen = BTreeSet::new();
        for heading in release.lines().filter(|line| line.starts_with("### ")) {
            assert!(seen.insert(heading), "{heading} occurs twice");
        }
    }
}

/// Sections of the README that other files send their readers to, as "NAME" in the README.
#[test]
fn every_section_of_the_readme_that_is_cited_exists() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the readme");
    let headings: BTreeSet<&str> = readme.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let mut cited = 0;
    for folder in
        ["docs", "docs/loopback", "examples/media", "examples/traces", "examples/plan", "examples/systemd"]
    {
        for entry in std::fs::read_dir(root().join(folder)).expect("a folder") {
            let Ok(text) = std::fs::read_to_string(entry.expect("an entry").path()) else { continue };
            for (before, _) in text.match_indices("\" in the README").map(|(at, _)| text.split_at(at)) {
                let section = before.rsplit('"').next().unwrap_or_default();
                assert!(headings.contains(section), "{folder}: no section \"{section}\" in the README");
                cited += 1;
            }
        }
    }
    assert!(cited >= 2, "docs/loopback sends its readers there");
}

/// The README's figures about losses match the defaults.
#[test]
fn the_readme_gives_the_time_and_the_key_for_reporting_path_loss() {
    use punctual_proto::limits::HELLOS_MISSED_MAX;
    let readme = std::fs::read_to_string(root().join("README.md")).expect("the readme").replace('\n', " ");
    let keys = std::fs::read_to_string(root().join("docs/punctuald.example.toml")).expect("the example");
    assert!(keys.contains("# hello = \"1s\""));
    let printed = format!(
        "channels close: {HELLOS_MISSED_MAX} to {} s after it stopped, with the default `hello = \"1s\"`",
        HELLOS_MISSED_MAX + 1
    );
    assert!(readme.contains(&printed), "{printed}");
}

/// Numbers of jobs (`%1`) are an interactive shell's.
#[test]
fn the_readme_names_jobs_by_their_process_ids() {
    let text = std::fs::read_to_string(root().join("README.md")).expect("the readme");
    let is_job = |word: &str| {
        word.strip_prefix('%').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let jobs: Vec<&str> = text.split_whitespace().filter(|word| is_job(word)).collect();
    assert!(jobs.is_empty(), "{jobs:?}");
}

/// Documents that link to others.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<_> =
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)).into();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(kind) if kind == "md" => found.push(path),
                _ => {}
            }
        }
    }
    found
}

/// The anchors of a page's headings, as hosts of repositories make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, '_' | '-' | ' ');
    headings
        .map(|line| line.trim_start_matches('#').trim().to_lowercase())
        .map(|heading| heading.chars().filter(kept).collect::<String>().replace(' ', "-"))
        .collect()
}

/// Targets of the links `[text](target)` of a page that lead to files of the project.
fn links(page: &str) -> impl Iterator<Item = &str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target).filter(|target| !target.contains("://") && !target.contains(' '))
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let mut followed = 0;
    for document in documents() {
        let page = std::fs::read_to_string(&document).expect("a document");
        for link in links(&page) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let to = match path {
                "" => document.clone(),
                path => document.parent().expect("a folder").join(path),
            };
            assert!(to.exists(), "{}: {link} leads nowhere", document.display());
            if !anchor.is_empty() {
                let there = anchors(&std::fs::read_to_string(&to).expect("a page"));
                assert!(there.contains(anchor), "{}: {link}: no such heading", document.display());
            }
            followed += 1;
        }
    }
    assert!(followed > 50, "{followed} links");
}
