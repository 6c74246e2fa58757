//! The samples of a measurement: one series of times for each step, and the unit costs that follow from them.

use punctual_proto::Nanos;
use punctual_proto::words::counted;

use super::super::file::Costs;
use super::super::summary::{BLOCK_UNITS, HOLE_NS, Summary};
use super::{LARGE_BYTES, MeasureError, Plan, SMALL_BYTES, WARM_UP};

/// Declares the series: each with its name in profiles.
macro_rules! series {
    ($($(#[$doc:meta])* $series:ident = $name:literal,)*) => {
        /// A step whose time is measured.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Series {
            $($(#[$doc])* $series,)*
        }

        impl Series {
            /// Every series.
            pub const ALL: &[Self] = &[$(Self::$series,)*];
            const COUNT: usize = Self::ALL.len();

            /// Its name in a profile.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$series => $name,)*
                }
            }
        }
    };
}

series! {
    /// The application puts a small message into its ring.
    ApiSend = "api_send",
    /// The application takes a small message out of its ring.
    ApiReceive = "api_receive",
    /// The source takes a message out of the ring and polices it.
    SendMessage = "send_message",
    /// The first packet of a message, small: fragment, schedule, hand to the driver.
    SendFirstSmall = "send_first_small",
    /// The first packet of a message, largest: fragment, schedule, hand to the driver.
    SendFirstLarge = "send_first_large",
    /// Later packets of a message, largest.
    SendLaterLarge = "send_later_large",
    /// A small packet through the forwarder: from the driver to the driver.
    ForwardSmall = "forward_small",
    /// A largest packet through the forwarder: from the driver to the driver.
    ForwardLarge = "forward_large",
    /// A largest packet that does not complete a message: from the driver to reassembly.
    ReceiveMiddleLarge = "receive_middle_large",
    /// A small packet that is a message: from the driver to the receiver's ring.
    ReceiveLastSmall = "receive_last_small",
    /// A largest packet that is a message: from the driver to the receiver's ring.
    ReceiveSingleLarge = "receive_single_large",
    /// Part of [`Self::SendFirstSmall`] that the link scheduler and the driver take.
    TransmitSmall = "transmit_small",
    /// Part of [`Self::SendFirstLarge`] that the link scheduler and the driver take.
    TransmitLarge = "transmit_large",
    /// Part of [`Self::ReceiveLastSmall`] that the driver and the classification take.
    InputFirst = "input_first",
    /// Time of the driver and the classification for later packets of a message, largest.
    InputLater = "input_later",
    /// A turn without its work: a check of the descriptors, at the node and at the clock.
    Turn = "turn",
    /// The first message after an idle time: taken out of the ring, and its packet out of the source.
    ColdSend = "cold_send",
    /// The packet of [`Self::ColdSend`] through the forwarder, whose code and data are still cold.
    ColdForward = "cold_forward",
    /// The packet of [`Self::ColdSend`] into the sink, whose code and data are still cold.
    ColdReceive = "cold_receive",
    /// Waking the receiver, which sleeps.
    ColdWake = "cold_wake",
    /// The four cold times together.
    ColdAll = "cold_all",
    /// The output handler of a TCP connection makes a largest segment of what its program has written.
    SegmentOut = "segment_out",
    /// The input handler of a TCP connection processes such a segment, up to the program's ring.
    SegmentIn = "segment_in",
    /// The output handler makes an acknowledgement.
    AckOut = "ack_out",
    /// The input handler processes an acknowledgement.
    AckIn = "ack_in",
    /// The input handler, without a segment, hands over as much as one call may.
    SegmentCall = "segment_call",
}

/// The times of every step, in ns, in the order in which they were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathSamples {
    /// By [`Series`].
    times: [Vec<u64>; Series::COUNT],
    /// Messages that did not come.
    lost: u64,
}

impl PathSamples {
    /// The times of one series.
    pub fn of(&self, series: Series) -> &[u64] {
        &self.times[series as usize]
    }

    /// Every series with its times.
    pub fn series(&self) -> impl Iterator<Item = (Series, &[u64])> {
        Series::ALL.iter().map(|series| (*series, self.of(*series)))
    }

    /// Adds what another measurement took.
    pub fn extend(&mut self, other: &Self) {
        for (ours, theirs) in self.times.iter_mut().zip(&other.times) {
            ours.extend(theirs);
        }
        self.lost += other.lost;
    }

    /// Adds a time to a series.
    pub(super) fn push(&mut self, series: Series, ns: u64) {
        self.times[series as usize].push(ns);
    }

    /// Adds times to a series.
    pub(super) fn add(&mut self, series: Series, times: impl IntoIterator<Item = u64>) {
        self.times[series as usize].extend(times);
    }

    /// Counts a message that did not come.
    pub(super) fn lose(&mut self) {
        self.lost += 1;
    }

    /// Cold samples outside holes.
    pub(super) fn cold_that_count(&self) -> usize {
        self.of(Series::ColdAll).iter().filter(|ns| **ns < HOLE_NS).count()
    }

    /// Whether enough came through to charge by; `taken` is how long it took.
    pub(super) fn check(&self, plan: &Plan, taken: Nanos) -> Result<(), MeasureError> {
        let short = |came: u64, of: &str| {
            let (lost, why) = (self.lost, "were lost: the machine is overloaded");
            Err(MeasureError::Failed(format!(
                "only {} {of} in {taken}, {lost} {why}",
                counted(came, "message")
            )))
        };
        let fewest = |a, b| self.of(a).len().min(self.of(b).len());
        let came = fewest(Series::SendFirstSmall, Series::ReceiveMiddleLarge) as u64;
        if came < WARM_UP as u64 || self.lost > came {
            return short(came, "came through");
        }
        // Without a full block of cold samples the profile would state no cost of a cold processor.
        let cold = self.cold_that_count();
        if cold < plan.cold.min(BLOCK_UNITS) {
            return short(cold as u64, "after idle times came through");
        }
        let segments = fewest(Series::SegmentIn, Series::SegmentCall);
        if segments < BLOCK_UNITS {
            return short(segments as u64, "of TCP came through");
        }
        Ok(())
    }

    /// The unit costs that produce the measured times: the copy from the difference between small and largest
    /// packets (on the most expensive path), later packets without their copy, delivery from the additional
    /// time of completing a message.
    pub fn costs(&self) -> Costs {
        use Series::{
            AckIn, AckOut, ColdAll, ForwardLarge, ForwardSmall, ReceiveLastSmall, ReceiveMiddleLarge,
            ReceiveSingleLarge, SegmentCall, SegmentIn, SegmentOut, SendFirstLarge, SendFirstSmall,
            SendLaterLarge, SendMessage,
        };
        let block = |series| Summary::of(self.of(series)).block_ns;
        let median = |series| Summary::of(self.of(series)).median_ns;
        let copied = (LARGE_BYTES - SMALL_BYTES) as u64;
        let per_kib = |small, large| (median(large).saturating_sub(median(small)) * 1_024).div_ceil(copied);
        let copy_kib_ns = per_kib(SendFirstSmall, SendFirstLarge)
            .max(per_kib(ForwardSmall, ForwardLarge))
            .max(per_kib(ReceiveLastSmall, ReceiveSingleLarge));
        let less_copy = |ns: u64| ns.saturating_sub(copy_kib_ns * copied / 1_024).max(1);
        // Times of the same message between others.
        let hot = [SendMessage, SendFirstSmall, ForwardSmall, ReceiveLastSmall].map(block).iter().sum();
        let first = block(SendFirstSmall).max(1);
        let middle = less_copy(block(ReceiveMiddleLarge));
        let segments = [SegmentOut, SegmentIn, AckOut, AckIn].map(block);
        Costs {
            send_message_ns: block(SendMessage).max(1),
            send_packet_ns: first,
            send_packet_later_ns: less_copy(block(SendLaterLarge)).min(first),
            forward_packet_ns: block(ForwardSmall).max(1),
            receive_packet_ns: middle,
            deliver_message_ns: block(ReceiveLastSmall).saturating_sub(middle),
            copy_kib_ns,
            cold_start_ns: block(ColdAll).saturating_sub(hot),
            segment_ns: segments.into_iter().max().unwrap_or(0).max(1),
            segment_call_ns: block(SegmentCall).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cold: &[u64], segments: usize) -> Result<(), String> {
        let mut samples = PathSamples::default();
        for (series, times) in [
            (Series::SendFirstSmall, vec![1_000; WARM_UP]),
            (Series::ReceiveMiddleLarge, vec![1_000; WARM_UP]),
            (Series::ColdAll, cold.to_vec()),
            (Series::SegmentIn, vec![1_000; segments]),
            (Series::SegmentCall, vec![1_000; segments]),
        ] {
            samples.add(series, times);
        }
        samples.check(&Plan::SHORT, Nanos::from_secs(1)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_cold_processor_that_was_not_measured_is_an_error() {
        assert_eq!(check(&[40_000; BLOCK_UNITS], BLOCK_UNITS), Ok(()));
        for cold in [&[][..], &[40_000; BLOCK_UNITS - 1], &[HOLE_NS; BLOCK_UNITS]] {
            let refused = check(cold, BLOCK_UNITS).expect_err("nothing to charge by");
            assert!(refused.contains("after idle times"), "{refused}");
        }
    }

    #[test]
    fn segments_that_were_not_measured_are_an_error() {
        let refused = check(&[40_000; BLOCK_UNITS], BLOCK_UNITS - 1).expect_err("nothing to charge by");
        assert!(refused.contains("of TCP"), "{refused}");
    }

    /// Each time stands in its own series, under a name that no other has.
    #[test]
    fn measurements_are_joined_series_by_series() {
        let measured = |first: u64| {
            let mut samples = PathSamples::default();
            for (place, series) in Series::ALL.iter().enumerate() {
                samples.push(*series, first + place as u64);
            }
            samples.lose();
            samples
        };
        let mut all = measured(100);
        all.extend(&measured(200));
        for (place, (series, times)) in all.series().enumerate() {
            assert_eq!((times, all.of(series)), (&[100 + place as u64, 200 + place as u64][..], times));
        }
        let names: std::collections::BTreeSet<_> = all.series().map(|(series, _)| series.name()).collect();
        assert_eq!((names.len(), all.lost), (Series::COUNT, 2));
    }
}
