//! Writes mutants into a source text, each behind the switch.

use std::ops::Range;

use crate::sites::{Change, Site};

/// A site and the number by which its mistake is switched on.
#[derive(Clone, Copy, Debug)]
pub struct Numbered<'s> {
    /// From 1.
    pub id: u32,
    /// The place and the change.
    pub site: &'s Site,
}

/// Writes `mutants` of one file into its `text`; `switch` is the path of the function that takes a number and
/// returns whether that mutant is switched on. A mutated branch contains the plain text: one mutant is on at
/// a time.
///
/// Each mutated branch is between marks, and each place as well, for [`blame`].
pub fn rewrite(text: &str, mutants: &[Numbered<'_>], switch: &str) -> String {
    let mut sorted = mutants.to_vec();
    // A body begins before its content, even if both begin at the same byte.
    let inner = |site: &Site| !matches!(site.change, Change::Return(_));
    sorted.sort_by_key(|Numbered { id, site }| {
        (site.range.start, inner(site), usize::MAX - site.range.end, *id)
    });
    render(text, 0..text.len(), &sorted, switch)
}

/// The text of `range` with the `mutants` inside of it, outer ones first.
fn render(text: &str, range: Range<usize>, mutants: &[Numbered<'_>], switch: &str) -> String {
    let (mut written, mut at, mut left) = (String::new(), range.start, mutants);
    while let Some(first) = left.first() {
        let own = first.site.range.clone();
        let same = left.iter().take_while(|mutant| mutant.site.range == own).count();
        let inside = left[same..].iter().take_while(|mutant| mutant.site.range.start < own.end).count();
        written += &text[at..own.start];
        let original = render(text, own.clone(), &left[same..same + inside], switch);
        written += &guarded(&left[..same], original, switch);
        (at, left) = (own.end, &left[same + inside..]);
    }
    written + &text[at..range.end]
}

/// The mutants of one place around the original text.
fn guarded(mutants: &[Numbered<'_>], original: String, switch: &str) -> String {
    mutants.iter().rev().fold(original, |original, Numbered { id, site }| {
        let whole = match &site.change {
            Change::Expression(mutated) => {
                format!("(if {switch}({id}) {{ /*[{id}*/ {mutated} /*{id}]*/ }} else {{ {original} }})")
            }
            Change::Deletion => format!("if !{switch}({id}) {{ {original} }}"),
            Change::Return(value) => {
                format!("if {switch}({id}) {{ /*[{id}*/ return {value}; /*{id}]*/ }} {original}")
            }
        };
        format!("/*<{id}*/{whole}/*{id}>*/")
    })
}

/// The mutant that causes an error at byte `at` of a rewritten text: that of the mutated branch around it, or
/// else of the smallest place around it.
pub fn blame(rewritten: &str, at: usize, ids: &[u32]) -> Option<u32> {
    let between = |open: char, close: char, id: u32| {
        let start = rewritten.find(&format!("/*{open}{id}*/"))?;
        let end = rewritten.find(&format!("/*{id}{close}*/"))?;
        (start..=end).contains(&at).then_some((end - start, id))
    };
    let branch = ids.iter().filter_map(|&id| between('[', ']', id)).min();
    branch.or_else(|| ids.iter().filter_map(|&id| between('<', '>', id)).min()).map(|(_, id)| id)
}
