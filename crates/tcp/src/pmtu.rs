//! The largest packet of the path: from ICMP errors (RFC 1191, RFC 8201), and where a router drops large packets without an error (a
//! black hole, RFC 4821 7.7) from what passes in their place. Loss alone shows no black hole: an outage drops packets of all sizes.

use punctual_analysis::{Instant, Nanos};

/// Sizes to step down through when large segments are lost (RFC 1191 7.1, and IPv6's minimum).
const PLATEAUS: &[u16] = &[32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_400, 1_280, 1_024, 576];
/// Time after which a larger value is tried again (RFC 1191 6.3, RFC 8201 4).
const RAISE_AFTER: Nanos = Nanos::from_secs(600);
/// How often in a row a full segment is lost and a short one in its place passes until that counts as a black hole.
const SHORT_ONES: u8 = 3;

/// State of the path.
#[derive(Debug)]
pub(crate) struct PathMtu {
    device: u16,
    floor: u16,
    current: u16,
    raise_at: Option<Instant>,
    /// Short packets in a row that passed in place of full ones.
    short_ones: u8,
    /// The shortest of those full ones. One of as many bytes that passes ends the row.
    lost_bytes: usize,
}

impl PathMtu {
    /// A path over a device that carries `device` bytes; never below the minimum of IPv6 or IPv4.
    pub(crate) fn new(device: u16, is_v6: bool) -> Self {
        let floor = if is_v6 { 1280 } else { 576 };
        Self { device, floor, current: device.max(floor), raise_at: None, short_ones: 0, lost_bytes: 0 }
    }

    pub(crate) const fn current(&self) -> u16 {
        self.current
    }

    /// Handles a router's report that the next hop carries only `mtu` bytes. Returns whether that changes the
    /// size: a value that is not smaller is ignored, and one below the minimum counts as the minimum (RFC
    /// 8201 4). A router that predates RFC 1191 reports 0.
    pub(crate) fn too_big(&mut self, mtu: u16, now: Instant) -> bool {
        let next = if mtu == 0 { self.plateau_below(self.current) } else { mtu };
        self.short_ones = 0;
        self.lower(next.max(self.floor), now)
    }

    /// The device, or the route that the kernel has over it, carries packets of `device` bytes from now on. Returns whether that
    /// changes the size: what a router has reported as less stays until a larger one is tried again.
    pub(crate) fn device_changed(&mut self, device: u16) -> bool {
        let (before, device) = (self.current, device.max(self.floor));
        let was_lowered = self.raise_at.is_some();
        self.current = if was_lowered { self.current.min(device) } else { device };
        self.device = device;
        self.short_ones = 0;
        self.current != before
    }

    /// The smallest size that is ever used.
    pub(crate) const fn floor(&self) -> u16 {
        self.floor
    }

    /// A packet of `lost_bytes` was lost, at least once, and a short one in its place has passed. Returns whether the path now counts
    /// as smaller: at the third time in a row, and at each further one.
    pub(crate) fn short_passed(&mut self, lost_bytes: usize, now: Instant) -> bool {
        self.lost_bytes = if self.short_ones == 0 { lost_bytes } else { self.lost_bytes.min(lost_bytes) };
        self.short_ones = self.short_ones.saturating_add(1);
        let too_large = usize::from(self.current).min(self.lost_bytes) as u16;
        let is_lowered = self.short_ones >= SHORT_ONES && self.lower(self.plateau_below(too_large), now);
        if is_lowered {
            self.lost_bytes = usize::from(self.current);
        }
        is_lowered
    }

    /// Whether a packet of so many bytes, if it passes, shows that the path carries what seemed to be lost for its size.
    pub(crate) const fn is_in_doubt(&self, packet_bytes: usize) -> bool {
        self.short_ones > 0 && packet_bytes >= self.lost_bytes
    }

    /// Such a packet has passed.
    pub(crate) const fn full_passed(&mut self) {
        self.short_ones = 0;
    }

    /// Time at which the device's size is tried again.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.raise_at
    }

    /// Tries the device's size again if it is due. Returns whether the size changed.
    pub(crate) fn raise(&mut self, now: Instant) -> bool {
        if self.raise_at.is_none_or(|at| now < at) {
            return false;
        }
        (self.raise_at, self.short_ones) = (None, 0);
        self.current = self.device;
        true
    }

    fn lower(&mut self, mtu: u16, now: Instant) -> bool {
        if mtu >= self.current {
            return false;
        }
        self.current = mtu;
        self.raise_at = Some(now + RAISE_AFTER);
        true
    }

    fn plateau_below(&self, too_large: u16) -> u16 {
        let below = PLATEAUS.iter().copied().find(|size| *size < too_large);
        below.unwrap_or(self.floor).max(self.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(0);

    #[test]
    fn a_router_lowers_within_the_minimum_and_never_raises() {
        let mut path = PathMtu::new(1500, false);
        assert!(!path.too_big(1500, NOW));
        assert!(!path.too_big(9000, NOW));
        assert!(path.too_big(1300, NOW));
        assert!(path.too_big(68, NOW));
        assert_eq!(path.current(), 576);
        let mut path = PathMtu::new(1500, true);
        assert!(path.too_big(600, NOW));
        assert_eq!(path.current(), 1280);
    }

    #[test]
    fn an_old_router_does_not_report_the_size() {
        let mut path = PathMtu::new(1500, false);
        assert!(path.too_big(0, NOW));
        assert_eq!(path.current(), 1492);
    }

    /// On a path that loses packets of all sizes a full one passes now and then.
    #[test]
    fn three_short_packets_in_place_of_full_ones_show_a_black_hole() {
        let mut path = PathMtu::new(1500, false);
        assert!(!path.is_in_doubt(1500));
        assert!(!path.short_passed(1500, NOW) && !path.short_passed(1450, NOW));
        assert_eq!([1449, 1450, 1500].map(|bytes| path.is_in_doubt(bytes)), [false, true, true]);
        path.full_passed();
        assert!(!path.is_in_doubt(1500));
        assert!(!path.short_passed(1500, NOW) && !path.short_passed(1500, NOW));
        assert!(!path.is_in_doubt(1450) && path.is_in_doubt(1500), "an older row counts no more");
        assert_eq!(path.current(), 1500);
        assert!(path.short_passed(1500, NOW));
        assert_eq!(path.current(), 1492);
        assert!(path.is_in_doubt(1492), "what is sent now ends the row if it passes");
        assert!(path.short_passed(1492, NOW), "it does not pass either");
        assert_eq!(path.current(), 1400);
        path.full_passed();
        assert!(!path.short_passed(1400, NOW), "a size that passes ends the search");
        assert!(!path.short_passed(1300, NOW) && path.short_passed(1400, NOW));
        assert_eq!(path.current(), 1280, "1,300 bytes did not pass");
    }

    /// What is told of the path by others, and a new attempt, end the search.
    #[test]
    fn a_new_size_begins_without_doubt() {
        let changes: [fn(&mut PathMtu); 3] = [
            |path| assert!(path.too_big(1_450, NOW)),
            |path| assert!(path.device_changed(1_450)),
            |path| assert!(path.short_passed(1_500, NOW) && path.raise(Instant(600_000_000_000))),
        ];
        for change in changes {
            let mut path = PathMtu::new(1500, false);
            assert!(!path.short_passed(1500, NOW) && !path.short_passed(1500, NOW));
            change(&mut path);
            assert!(!path.is_in_doubt(1500));
            assert!(!path.short_passed(1500, NOW) && !path.short_passed(1500, NOW));
        }
    }

    #[test]
    fn the_search_ends_with_the_smallest_size() {
        for (is_v6, floor) in [(false, 576), (true, 1280)] {
            let mut path = PathMtu::new(9000, is_v6);
            while path.short_passed(9000, NOW) || path.current() == 9000 {}
            assert_eq!((path.current(), path.floor()), (floor, floor));
            assert!(!path.short_passed(9000, NOW));
        }
    }

    #[test]
    fn a_path_that_was_never_lowered_is_not_raised() {
        let mut path = PathMtu::new(1500, false);
        assert!(!path.raise(Instant(u64::MAX)));
        assert_eq!(path.deadline(), None);
    }

    /// A device that shrinks and grows takes the size along; a router's report stays until it is over.
    #[test]
    fn the_size_follows_the_device() {
        let mut path = PathMtu::new(1500, false);
        assert!(path.device_changed(1000) && !path.device_changed(1000));
        assert_eq!((path.current(), path.deadline()), (1000, None));
        assert!(path.device_changed(1400) && path.too_big(1200, NOW));
        assert!(!path.device_changed(1500), "the router's report stays");
        assert!(path.device_changed(800) && !path.device_changed(1500));
        assert_eq!(path.current(), 800);
        assert!(path.raise(Instant(600_000_000_000)));
        assert_eq!(path.current(), 1500);
        assert!(path.device_changed(100));
        assert_eq!(path.current(), 576, "no less than IP requires");
        assert!(path.device_changed(1400) && path.too_big(1200, NOW));
        assert!(path.raise(Instant(1_300_000_000_000)));
        assert_eq!(path.current(), 1400, "what is tried again is the size of the device as it is now");
    }

    #[test]
    fn the_old_size_is_tried_again_after_ten_minutes() {
        let mut path = PathMtu::new(1500, false);
        assert!(path.too_big(1000, NOW));
        assert!(!path.raise(Instant(599_000_000_000)));
        assert!(path.raise(Instant(600_000_000_000)));
        assert_eq!((path.current(), path.deadline()), (1500, None));
    }
}
