//! Text for users.

use alloc::format;
use alloc::string::String;
use core::fmt::Display;

/// A count with its noun in the right number: "1 link", "2 links", "3 misses".
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let ending = match (count == N::from(1), noun.ends_with('s')) {
        (true, _) => "",
        (false, true) => "es",
        (false, false) => "s",
    };
    format!("{count} {noun}{ending}")
}

/// A rate in bits a second as text for users.
pub fn rate_text(bps: u64) -> String {
    match bps {
        0..1_000_000 => format!("{} kbit/s", bps.div_ceil(1_000)),
        _ => format!("{} Mbit/s", (bps + 500_000) / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::{counted, rate_text};

    #[test]
    fn rates_are_round() {
        let rates = [0, 95_001, 999_999, 1_499_999, 60_200_000].map(rate_text);
        assert_eq!(rates, ["0 kbit/s", "96 kbit/s", "1000 kbit/s", "1 Mbit/s", "60 Mbit/s"]);
    }

    #[test]
    fn only_one_is_singular() {
        assert_eq!([0_u32, 1, 2].map(|count| counted(count, "link")), ["0 links", "1 link", "2 links"]);
        assert_eq!([1_usize, 3].map(|count| counted(count, "miss")), ["1 miss", "3 misses"]);
    }
}
