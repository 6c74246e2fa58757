//! Arithmetic of sequence numbers and timestamps: modulo 2^32, ordered within half of that (RFC 9293 3.4, RFC 7323 5.2).

/// Whether `a` comes before `b`.
pub(crate) const fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Whether `a` is `b` or comes after it.
pub(crate) const fn at_or_after(a: u32, b: u32) -> bool {
    !before(a, b)
}

/// Whether `from <= x < to`, counting upwards from `from`.
pub(crate) const fn within(x: u32, from: u32, to: u32) -> bool {
    x.wrapping_sub(from) < to.wrapping_sub(from)
}

/// The later of two numbers.
pub(crate) const fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}

/// The earlier of two numbers.
pub(crate) const fn earlier(a: u32, b: u32) -> u32 {
    if before(a, b) { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        assert!(before(u32::MAX, 0));
        assert!(!before(0, u32::MAX));
        assert!(at_or_after(5, 5));
        assert_eq!((later(u32::MAX - 1, 3), earlier(u32::MAX - 1, 3)), (3, u32::MAX - 1));
        assert_eq!((later(3, u32::MAX - 1), earlier(3, u32::MAX - 1)), (3, u32::MAX - 1));
    }

    #[test]
    fn a_window_across_the_wrap_holds_what_is_in_it() {
        let (from, to) = (u32::MAX - 1, 2);
        for x in [u32::MAX - 1, u32::MAX, 0, 1] {
            assert!(within(x, from, to), "{x}");
        }
        assert!(!within(2, from, to));
        assert!(!within(u32::MAX - 2, from, to));
        assert!(!within(7, 7, 7), "an empty window holds nothing");
    }
}
