//! Words for people.

use std::fmt::Display;

/// A count with its noun in the right number: "1 link", "2 links", "3 misses".
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let ending = match (count == N::from(1), noun.ends_with('s')) {
        (true, _) => "",
        (false, true) => "es",
        (false, false) => "s",
    };
    format!("{count} {noun}{ending}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn only_one_is_singular() {
        assert_eq!([0_u32, 1, 2].map(|count| counted(count, "link")), ["0 links", "1 link", "2 links"]);
        assert_eq!([1_usize, 3].map(|count| counted(count, "miss")), ["1 miss", "3 misses"]);
    }
}
