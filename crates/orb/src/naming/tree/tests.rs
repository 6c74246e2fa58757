//! Names, contexts that give way, and what is bounded.

use super::*;
use crate::limits::NAMING_CONTEXT_IDLE;

fn part(id: &str) -> NameComponent {
    NameComponent { id: id.into(), kind: String::new() }
}

fn object() -> Bound {
    Bound::Object(Reference::default())
}

fn context(number: ContextNumber) -> Bound {
    Bound::Context(Reference::default(), Some(number))
}

#[test]
fn names_are_bound_once_and_replaced_by_their_kind() {
    let mut tree = Tree::default();
    let root = tree.create().expect("the first one");
    assert_eq!(tree.bind(root, &part("a"), object(), false), Ok(()));
    assert_eq!(tree.bind(root, &part("a"), object(), false), Err(Refused::AlreadyBound));
    assert_eq!(tree.bind(root, &part("a"), object(), true), Ok(()));
    let context = Bound::Context(Reference::default(), None);
    assert_eq!(tree.bind(root, &part("a"), context, true), Err(Refused::OtherKind));
    assert_eq!(tree.destroy(root), Err(Refused::NotEmpty));
    assert_eq!(tree.unbind(root, &part("a")), Ok(()));
    assert_eq!(tree.unbind(root, &part("a")), Err(Refused::Missing));
    assert_eq!(tree.destroy(root), Ok(()));
    assert_eq!(tree.destroy(root), Err(Refused::Gone));
    assert_eq!(tree.bind(root, &part("a"), object(), false), Err(Refused::Gone));
    assert_eq!((tree.bytes, tree.bindings), (0, 0));
}

#[test]
fn contexts_without_a_name_give_way_and_others_do_not() {
    let mut tree = Tree::default();
    let root = tree.create().expect("the first one");
    let inner = tree.create().expect("there is room");
    assert_eq!(tree.bind(root, &part("inner"), context(inner), false), Ok(()));
    // It leads to itself, but no name leads to it.
    let kept = tree.create().expect("there is room");
    assert_eq!(tree.bind(kept, &part("itself"), context(kept), false), Ok(()));
    while tree.create().is_ok() {}
    assert_eq!(tree.contexts.len(), NAMING_CONTEXTS_MAX);
    let gone = tree.make_room(Instant::now(), NAMING_CONTEXT_IDLE);
    assert_eq!(gone.len(), (NAMING_CONTEXTS_MAX - 3).div_ceil(2));
    assert!([root, inner, kept].iter().all(|number| tree.has(*number)));
    tree.create().expect("there is room");
    let later = Instant::now() + NAMING_CONTEXT_IDLE;
    tree.get(inner, &part("nothing")).expect_err("nothing is there");
    assert!(tree.make_room(later, NAMING_CONTEXT_IDLE).contains(&kept));
    assert!(tree.has(root) && tree.has(inner));
}

#[test]
fn names_and_their_memory_are_bounded() {
    let mut tree = Tree::default();
    let root = tree.create().expect("the first one");
    let long = "x".repeat(NAMING_PART_BYTES_MAX);
    assert_eq!(tree.bind(root, &part(&long), object(), false), Ok(()));
    assert_eq!(tree.bind(root, &part(&format!("{long}x")), object(), false), Err(Refused::LongName));
    let of_bytes =
        |bytes: usize| Bound::Object(Reference { type_id: "x".repeat(bytes), ..Reference::default() });
    let large = of_bytes(NAMING_REFERENCE_BYTES_MAX);
    let larger = of_bytes(NAMING_REFERENCE_BYTES_MAX + 1);
    assert_eq!(tree.bind(root, &part("a"), larger, false), Err(Refused::Full));
    let mut count = 0;
    while tree.bind(root, &part(&count.to_string()), large.clone(), false).is_ok() {
        count += 1;
    }
    assert!(tree.bytes <= NAMING_BYTES_MAX && tree.bytes + (20 << 10) > NAMING_BYTES_MAX, "{}", tree.bytes);
    assert_eq!(tree.bind(root, &part("0"), large, true), Ok(()));
    assert_eq!(tree.unbind(root, &part("0")), Ok(()));
    assert_eq!(tree.bind(root, &part("b"), object(), false), Ok(()));
}

#[test]
fn lists_come_in_pages_that_miss_and_repeat_nothing() {
    let mut tree = Tree::default();
    let root = tree.create().expect("the first one");
    let names: Vec<String> = (0..3_000).map(|number| format!("{number:0>1000}")).collect();
    names.iter().for_each(|name| tree.bind(root, &part(name), object(), false).expect("there is room"));
    let (mut listed, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = tree.list(root, after.as_ref(), usize::MAX).expect("it is there");
        assert!(page.all.len() <= NAMING_LIST_BYTES_MAX / 1_000);
        listed.extend(page.all.into_iter().map(|(part, _)| part.id));
        pages += 1;
        match page.continues {
            Some(last) => after = last,
            None => break,
        }
    }
    assert_eq!(listed, names);
    assert!(pages > 3, "{pages}");
    assert_eq!(tree.list(root, None, 0).map(|page| page.continues), Ok(Some(None)));
}
