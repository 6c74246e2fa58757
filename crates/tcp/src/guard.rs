//! Checks of a segment before the machine gets it: the rules of RFC 9293 3.10.7.4, RFC 5961 and RFC 7323 that
//! smoltcp lacks. The guard owns the timestamps of a connection and the last window update that it accepted.

use punctual_analysis::{Instant, Nanos};

use crate::sequence::{at_or_after, before, earlier, later, within};
use crate::wire::Segment;

/// A timestamp older than this may be from before a wrap, so it is not compared (RFC 7323 5.5: 24 days).
const TIMESTAMP_LIFE: Nanos = Nanos::from_secs(24 * 24 * 3600);

/// State of a connection; numbers as on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Oldest byte that is not acknowledged (SND.UNA).
    pub(crate) una: u32,
    /// End of what was ever sent (SND.MAX).
    pub(crate) sent: u32,
    /// Next byte expected (RCV.NXT).
    pub(crate) next: u32,
    /// End of the window that was announced to the peer.
    pub(crate) edge: u32,
}

/// Decision about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Pass it to the machine with these changes.
    Pass(Changes),
    /// Drop it.
    Drop,
    /// Drop it, and send the peer our state.
    Challenge,
    /// It is outside of the window: the machine answers it, and nobody reads its acknowledgement, window or timestamp (RFC 9293 3.10.7.4,
    /// first; RFC 7323 5.3, R2).
    Outside,
}

/// Changes to a segment before the machine gets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Replacement of the acknowledgement: the machine would drop the data of a segment whose acknowledgement
    /// is old.
    pub(crate) ack: Option<u32>,
    /// Replacement of the sequence number: an acknowledgement at the window's very end, from a peer that has
    /// filled it.
    pub(crate) seq: Option<u32>,
    /// Replacement of the window: the segment is older than the last window update.
    pub(crate) window: Option<u16>,
}

/// The checks of one connection after its SYNs were exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    has_timestamps: bool,
    recent: (u32, Instant),
    last_ack_sent: u32,
    update: (u32, u32, u16),
    max_window: u32,
    granted: Option<u32>,
    scale: u8,
}

impl Guard {
    /// A guard after `syn`, the peer's SYN, on a connection that offers timestamps or not. Windows are scaled if
    /// the SYN has a scale: this end always offers one (RFC 7323 2.3).
    pub(crate) fn new(syn: &Segment, has_timestamps: bool, now: Instant) -> Self {
        let recent = syn.timestamp.map_or(0, |(value, _)| value);
        let next = syn.seq.wrapping_add(1);
        Self {
            has_timestamps: has_timestamps && syn.timestamp.is_some(),
            recent: (recent, now),
            last_ack_sent: next,
            update: (syn.seq, syn.ack.unwrap_or(0), syn.window),
            max_window: u32::from(syn.window),
            granted: syn.ack.map(|ack| ack.wrapping_add(u32::from(syn.window))),
            scale: syn.scale.unwrap_or(0),
        }
    }

    /// The peer's latest timestamp, to be echoed (TS.Recent).
    pub(crate) const fn echo(&self) -> u32 {
        self.recent.0
    }

    /// Whether both ends use timestamps.
    pub(crate) const fn has_timestamps(&self) -> bool {
        self.has_timestamps
    }

    /// Notes that an acknowledgement was sent (Last.ACK.sent).
    pub(crate) fn acknowledged(&mut self, ack: u32) {
        self.last_ack_sent = ack;
    }

    /// Whether a timestamp is older than the peer's latest.
    pub(crate) fn is_stale(&self, value: u32, now: Instant) -> bool {
        let (recent, at) = self.recent;
        before(value, recent) && now.since(at) < TIMESTAMP_LIFE
    }

    /// Judges a segment of a synchronized connection, in the order of RFC 9293 3.10.7.4.
    pub(crate) fn judge(&mut self, segment: &Segment, place: Place, now: Instant) -> Verdict {
        if segment.flags.rst {
            return judge_reset(segment, place);
        }
        if let Some(verdict) = self.judge_timestamp(segment, now) {
            return verdict;
        }
        // RFC 5961 4.2: a SYN is challenged at any sequence number.
        if segment.flags.syn {
            return Verdict::Challenge;
        }
        let Some(ack) = segment.ack else { return Verdict::Drop };
        if !self.is_ack_acceptable(ack, place) {
            return Verdict::Challenge;
        }
        // The peer has been announced the window's edge. smoltcp scales the window of its own SYN, and so
        // would accept more than fits.
        let data_end = segment.seq.wrapping_add(u32::from(segment.payload_bytes));
        if segment.payload_bytes > 0 && before(place.edge, data_end) {
            return Verdict::Challenge;
        }
        if is_old(segment, place) || before(place.edge, segment.seq) {
            return Verdict::Outside;
        }
        self.note_timestamp(segment, now);
        Verdict::Pass(self.changes(segment, ack, place))
    }

    /// RFC 7323 5.3 (R1): an old timestamp is answered and dropped; a segment without one is dropped (3.2).
    fn judge_timestamp(&self, segment: &Segment, now: Instant) -> Option<Verdict> {
        if !self.has_timestamps {
            return None;
        }
        let Some((value, _)) = segment.timestamp else { return Some(Verdict::Drop) };
        self.is_stale(value, now).then_some(Verdict::Challenge)
    }

    /// RFC 7323 4.3 (2): the latest timestamp is taken from a segment at or before what was acknowledged last.
    fn note_timestamp(&mut self, segment: &Segment, now: Instant) {
        let Some((value, _)) = segment.timestamp.filter(|_| self.has_timestamps) else { return };
        if at_or_after(value, self.recent.0) && at_or_after(self.last_ack_sent, segment.seq) {
            self.recent = (value, now);
        }
    }

    /// RFC 5961 5.2: SND.UNA - MAX.SND.WND <= SEG.ACK <= SND.NXT.
    fn is_ack_acceptable(&self, ack: u32, place: Place) -> bool {
        let oldest = place.una.wrapping_sub(self.max_window);
        at_or_after(ack, oldest) && at_or_after(place.sent, ack)
    }

    fn changes(&mut self, segment: &Segment, ack: u32, place: Place) -> Changes {
        let mut changes = Changes::default();
        let current = later(ack, place.una);
        if current != ack {
            changes.ack = Some(current);
        }
        if segment.length() == 0 && segment.seq == place.edge {
            changes.seq = Some(place.next);
        }
        // RFC 9293 3.10.7.4, fifth: SND.WL1 and SND.WL2 keep old segments from changing the window.
        let (seq, acked, window) = self.update;
        // Of two segments with the same numbers the one with the larger window is newer, because a window
        // does not shrink without reason. If the smaller one were applied, data in flight would be beyond it,
        // and smoltcp then neither retransmits it nor probes.
        let is_same = seq == segment.seq && ack == acked;
        let is_newer = before(seq, segment.seq)
            || (seq == segment.seq && before(acked, ack))
            || (is_same && window < segment.window);
        if is_newer && current == ack {
            self.update = (segment.seq, ack, segment.window);
            self.max_window = self.max_window.max(u32::from(segment.window) << self.scale);
        } else if window != segment.window {
            changes.window = Some(window);
        }
        self.keep_edge(&mut changes, segment, current, place);
        changes
    }

    /// The number of a segment without data, in place of `seq`: one beyond the peer's window would be ignored, with its acknowledgement
    /// and its window (RFC 9293 3.10.7.4, first). A probe of a closed window is beyond it. What left while there was room is not, whatever
    /// the peer takes back: it may have arrived.
    pub(crate) fn bare(&self, seq: u32) -> u32 {
        self.granted.map_or(seq, |granted| earlier(seq, granted))
    }

    /// The window field that repeats what the machine was given last, beside an acknowledgement of `una`.
    pub(crate) fn repeated_window(&self, una: u32) -> u16 {
        u16::try_from(self.window(una) >> self.scale).unwrap_or(u16::MAX)
    }

    /// The number that was acknowledged last.
    pub(crate) const fn last_ack_sent(&self) -> u32 {
        self.last_ack_sent
    }

    /// Bytes beyond `una`, the oldest that is not acknowledged, that the peer takes.
    pub(crate) fn window(&self, una: u32) -> u32 {
        self.granted.map_or(0, |granted| later(granted, una).wrapping_sub(una))
    }

    /// RFC 9293 3.8.6 (MUST-34, MAY-7): data in flight stays in the window when the peer takes the window back,
    /// and its retransmissions probe the new one. The machine would neither retransmit nor probe.
    fn keep_edge(&mut self, changes: &mut Changes, segment: &Segment, ack: u32, place: Place) {
        let field = changes.window.unwrap_or(segment.window);
        let edge_of = |field: u16| ack.wrapping_add(u32::from(field) << self.scale);
        let kept = self.granted.map(|granted| earlier(granted, place.sent));
        if let Some(kept) = kept.filter(|kept| before(edge_of(field), *kept)) {
            let units = kept.wrapping_sub(ack).div_ceil(1 << self.scale);
            changes.window = Some(u16::try_from(units).unwrap_or(u16::MAX));
        }
        self.granted = Some(edge_of(changes.window.unwrap_or(segment.window)));
    }
}

/// Whether a segment is before everything that is expected.
pub(crate) fn is_old(segment: &Segment, place: Place) -> bool {
    before(segment.seq, place.next) && at_or_after(place.next, segment.end())
}

/// RFC 5961 3.2: a reset at exactly RCV.NXT ends the connection, another in the window is challenged, all others are dropped.
fn judge_reset(segment: &Segment, place: Place) -> Verdict {
    if segment.seq == place.next {
        return Verdict::Pass(Changes::default());
    }
    if within(segment.seq, place.next, place.edge) { Verdict::Challenge } else { Verdict::Drop }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Flags, Flow, bare};

    const PLACE: Place = Place { una: 1000, sent: 3000, next: 500, edge: 900 };
    const NOW: Instant = Instant(0);

    fn segment() -> Segment {
        let flow = Flow { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], 5000).into() };
        Segment { seq: 500, ack: Some(2000), window: 100, ..bare(flow) }
    }

    fn guard(timestamp: Option<(u32, u32)>) -> Guard {
        let syn = Segment { seq: 499, ack: None, timestamp, ..segment() };
        Guard::new(&syn, true, NOW)
    }

    /// RFC 7323 5.5: after 24 days without a segment the peer's clock may have wrapped.
    #[test]
    fn a_timestamp_is_compared_for_24_days() {
        let known = guard(Some((1_000, 0)));
        let life = Nanos::from_secs(24 * 24 * 3600);
        assert!(known.is_stale(999, NOW + Nanos(life.0 - 1)) && !known.is_stale(1_000, NOW));
        assert!(!known.is_stale(999, NOW + life));
    }

    /// RFC 5961 3.2.
    #[test]
    fn resets() {
        let verdict = |seq| {
            let rst = Segment { seq, flags: Flags { rst: true, ..Flags::default() }, ..segment() };
            guard(None).judge(&rst, PLACE, NOW)
        };
        assert_eq!(verdict(500), Verdict::Pass(Changes::default()));
        for seq in [501, 899] {
            assert_eq!(verdict(seq), Verdict::Challenge, "{seq}");
        }
        for seq in [499, 900, 0, 2_000_000_000] {
            assert_eq!(verdict(seq), Verdict::Drop, "{seq}");
        }
    }

    /// RFC 5961 4.2: irrespective of the sequence number.
    #[test]
    fn every_syn_is_challenged() {
        for seq in [499, 500, 700, 5_000_000] {
            let syn = Segment { seq, flags: Flags { syn: true, ..Flags::default() }, ..segment() };
            assert_eq!(guard(None).judge(&syn, PLACE, NOW), Verdict::Challenge, "{seq}");
        }
    }

    /// RFC 5961 5.2: the range of acknowledgements, the largest window below SND.UNA to SND.MAX.
    #[test]
    fn acknowledgements() {
        let verdict = |ack| guard(None).judge(&Segment { ack: Some(ack), ..segment() }, PLACE, NOW);
        for ack in [1000 - 101, 3001, 500_000_000] {
            assert_eq!(verdict(ack), Verdict::Challenge, "{ack}");
        }
        let old = Changes { ack: Some(1000), ..Changes::default() };
        assert_eq!(verdict(1000 - 100), Verdict::Pass(old), "its data still counts");
        for ack in [1000, 3000] {
            assert_eq!(verdict(ack), Verdict::Pass(Changes::default()), "{ack}");
        }
        assert_eq!(guard(None).judge(&Segment { ack: None, ..segment() }, PLACE, NOW), Verdict::Drop);
    }

    /// RFC 7323 5.3: PAWS, and its end after 24 days.
    #[test]
    fn old_timestamps() {
        let mut guard = guard(Some((100, 0)));
        let mut verdict = |timestamp, now| guard.judge(&Segment { timestamp, ..segment() }, PLACE, now);
        assert_eq!(verdict(Some((99, 0)), NOW), Verdict::Challenge);
        assert_eq!(verdict(None, NOW), Verdict::Drop);
        assert!(matches!(verdict(Some((101, 0)), NOW), Verdict::Pass(_)));
        assert_eq!(verdict(Some((100, 0)), NOW), Verdict::Challenge);
        let later = NOW + TIMESTAMP_LIFE;
        assert!(matches!(verdict(Some((100, 0)), later), Verdict::Pass(_)));
    }

    /// RFC 7323 4.3: a segment beyond what was acknowledged does not set the echo.
    #[test]
    fn the_echo_is_of_the_segment_that_moves_the_window() {
        let mut guard = guard(Some((100, 0)));
        for seq in [501, 600] {
            guard.judge(&Segment { seq, timestamp: Some((105, 0)), ..segment() }, PLACE, NOW);
            assert_eq!(guard.echo(), 100, "the SYN alone is acknowledged");
        }
        guard.judge(&Segment { seq: 500, timestamp: Some((103, 0)), ..segment() }, PLACE, NOW);
        assert_eq!(guard.echo(), 103);
    }

    /// RFC 9293 3.10.7.4: an older segment, by its number and then by its acknowledgement, does not change the window.
    #[test]
    fn old_windows() {
        let mut guard = guard(None);
        let mut verdict = |seq, ack, window| {
            let it = Segment { seq, ack: Some(ack), window, ..segment() };
            guard.judge(&it, PLACE, NOW)
        };
        assert_eq!(verdict(600, 2000, 7), Verdict::Pass(Changes::default()));
        let old = Verdict::Pass(Changes { window: Some(7), ..Changes::default() });
        assert_eq!(verdict(500, 2000, 90), old);
        let same_edge = Verdict::Pass(Changes { window: Some(8), ..Changes::default() });
        assert_eq!(verdict(600, 1999, 90), same_edge);
        assert_eq!(verdict(600, 2001, 90), Verdict::Pass(Changes::default()));
        let shrunk = Verdict::Pass(Changes { window: Some(90), ..Changes::default() });
        assert_eq!(verdict(600, 2001, 0), shrunk, "it was overtaken");
    }

    /// RFC 9293 3.8.6, MUST-34: the window shrinks for new data alone. A probe beyond a closed window is not data
    /// that fitted once.
    #[test]
    fn data_in_flight_stays_in_a_window_that_shrinks() {
        let mut guard = guard(None);
        let mut window_at = |seq, ack, window, sent| {
            let it = Segment { seq, ack: Some(ack), window, ..segment() };
            match guard.judge(&it, Place { una: ack, sent, ..PLACE }, NOW) {
                Verdict::Pass(changes) => changes.window.unwrap_or(window),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(window_at(501, 1000, 2500, 3000), 2500);
        assert_eq!(window_at(502, 1000, 700, 3000), 2000, "in flight up to 3000");
        assert_eq!(window_at(503, 1500, 0, 3000), 1500);
        assert_eq!(window_at(504, 3000, 0, 3000), 0, "nothing is in flight");
        assert_eq!(window_at(505, 3000, 0, 3001), 0, "a probe");
        assert_eq!(window_at(506, 3000, 100, 3001), 100);
        assert_eq!(window_at(507, 3000, 0, 3001), 1, "its byte fitted");
    }

    /// The window of a SYN-ACK counts: data may be in flight before any other segment comes.
    #[test]
    fn the_window_of_a_syn_does_not_shrink_over_data_either() {
        let syn = Segment { seq: 499, ack: Some(1000), window: 1_500, ..segment() };
        let closed = Segment { seq: 500, ack: Some(1000), window: 0, ..segment() };
        for (sent, kept) in [(3000, 1_500), (2200, 1_200), (1000, 0)] {
            let verdict = Guard::new(&syn, true, NOW).judge(&closed, Place { sent, ..PLACE }, NOW);
            let window = Some(kept).filter(|kept| *kept > 0);
            assert_eq!(verdict, Verdict::Pass(Changes { window, ..Changes::default() }), "{sent}");
        }
    }

    /// The field counts units of the scale (RFC 7323 2.2): the kept window is rounded up to the next.
    #[test]
    fn a_kept_window_is_in_units_of_the_scale() {
        let syn = Segment { seq: 499, ack: None, scale: Some(4), ..segment() };
        let mut guard = Guard::new(&syn, true, NOW);
        let mut changes_at =
            |seq, window| guard.judge(&Segment { seq, ack: Some(1000), window, ..segment() }, PLACE, NOW);
        assert_eq!(changes_at(501, 200), Verdict::Pass(Changes::default()));
        let kept = Verdict::Pass(Changes { window: Some(125), ..Changes::default() });
        assert_eq!(changes_at(502, 10), kept);
        let mut odd = Guard::new(&syn, true, NOW);
        let place = Place { sent: 3001, ..PLACE };
        let mut judge =
            |seq, window| odd.judge(&Segment { seq, ack: Some(1000), window, ..segment() }, place, NOW);
        judge(501, 200);
        assert_eq!(judge(502, 0), Verdict::Pass(Changes { window: Some(126), ..Changes::default() }));
    }

    /// RFC 9293 3.10.7.4, first: what does not fit into the window is answered and not taken.
    #[test]
    fn data_beyond_the_window_is_answered() {
        let verdict = |payload_bytes| guard(None).judge(&Segment { payload_bytes, ..segment() }, PLACE, NOW);
        assert_eq!(verdict(400), Verdict::Pass(Changes::default()));
        assert_eq!(verdict(401), Verdict::Challenge);
    }

    /// RFC 9293 3.10.7.4, first: what is outside of the window, with data or without, changes neither the timestamp nor the window nor the
    /// range of acknowledgements. A host off the path could stop a connection otherwise: it need not guess the window.
    #[test]
    fn what_is_outside_of_the_window_changes_nothing() {
        let (half, base) = (1 << 31, segment());
        for seq in [499, 500 - 300, 901, 1_000, 500 + half - 1, 500_u32.wrapping_sub(half - 500)] {
            for payload_bytes in [0, 1].into_iter().filter(|bytes| *bytes == 0 || super::before(seq, 500)) {
                let mut guard = guard(Some((100, 0)));
                let before = guard;
                let timestamp = Some((100 + (1 << 30), 0));
                let forged = Segment { seq, payload_bytes, timestamp, window: 9_000, ..base };
                assert_eq!(guard.judge(&forged, PLACE, NOW), Verdict::Outside, "{seq}");
                assert_eq!(guard, before, "{seq}");
                let next = Segment { timestamp: Some((100, 0)), ..base };
                assert_eq!(guard.judge(&next, PLACE, NOW), Verdict::Pass(Changes::default()), "{seq}");
            }
        }
        for seq in [500, 501, 899] {
            let inside = guard(None).judge(&Segment { seq, ..base }, PLACE, NOW);
            assert_eq!(inside, Verdict::Pass(Changes::default()), "{seq}");
        }
        let partly_new = guard(None).judge(&Segment { seq: 499, payload_bytes: 2, ..base }, PLACE, NOW);
        assert_eq!(partly_new, Verdict::Pass(Changes::default()));
    }

    /// A peer that has filled the window acknowledges from the window's end, also while its first segment is missing. The
    /// machine would drop that segment as outside the window, so it reads it as one at the next number.
    #[test]
    fn an_acknowledgement_at_the_end_of_the_window_is_read() {
        let at_end = Segment { seq: PLACE.edge, ..segment() };
        let moved = Changes { seq: Some(PLACE.next), ..Changes::default() };
        assert_eq!(guard(None).judge(&at_end, PLACE, NOW), Verdict::Pass(moved));
        let fin = Segment { flags: Flags { fin: true, ..Flags::default() }, ..at_end };
        assert_eq!(guard(None).judge(&fin, PLACE, NOW), Verdict::Pass(Changes::default()));
    }

    /// RFC 7323 2.3: the window is scaled if both ends offered a scale; how far back RFC 5961 5.2 reads depends on it.
    #[test]
    fn the_largest_window_is_scaled() {
        for (scale, oldest) in [(None, 1000 - 100), (Some(4), 1000_u32.wrapping_sub(100 << 4))] {
            let syn = Segment { seq: 499, ack: None, scale, ..segment() };
            let mut guard = Guard::new(&syn, true, NOW);
            let mut is_taken = |ack| {
                let verdict = guard.judge(&Segment { ack: Some(ack), seq: 501, ..segment() }, PLACE, NOW);
                matches!(verdict, Verdict::Pass(_))
            };
            assert!(is_taken(1000), "the window of this segment counts");
            assert!(is_taken(oldest));
            assert!(!is_taken(oldest.wrapping_sub(1)));
        }
    }
}
