//! Every limit of the protocol, in one place. Related limits are asserted at compile time.

use punctual_analysis::{CATCH_UP, Nanos, Ppm};

/// Burst of the caps on best-effort processing: what a processor would do in this time.
pub const CPU_CAP_WINDOW: Nanos = Nanos::from_millis(10);
/// How long best effort waits when a program that precedes it was woken: enough for the wake-up, an answer and the sleep after it.
/// Programs run below the processor, whose best effort would come first otherwise (RTU 4.3: application handlers are in the run
/// queue, before best effort).
pub const BEST_EFFORT_PAUSE: Nanos = Nanos::from_micros(50);
/// Longest name of a host or port.
pub const NAME_BYTES_MAX: usize = 63;
/// Bytes of the data header on the wire (ADR 0004).
pub const HEADER_BYTES: usize = 64;
/// Payload of a packet unless configured otherwise.
pub const FRAGMENT_BYTES_DEFAULT: u32 = 1_400;
/// Smallest payload of a packet that can be configured.
pub const FRAGMENT_BYTES_MIN: u32 = 64;
/// Largest payload of a packet (a UDP datagram less our header).
pub const FRAGMENT_BYTES_MAX: u32 = 65_507 - HEADER_BYTES as u32;
/// Most fragments of a message.
pub const FRAGMENTS_MAX: u32 = u16::MAX as u32;
/// Message numbers behind the newest one that a sink stores one by one.
pub const NUMBERS_REMEMBERED: u32 = 1_024;
/// Time for which sinks of slow channels store message numbers. They store at least
/// [`NUMBERS_REMEMBERED_MIN`].
pub const NUMBERS_REMEMBERED_FOR: Nanos = Nanos::from_secs(10);
/// Fewest message numbers that a sink stores, however slow its channel is.
pub const NUMBERS_REMEMBERED_MIN: u32 = 64;
/// Most message numbers that a sink stores. A channel with more messages under way may deliver a message
/// twice, if the network duplicated it and one copy was demoted on the route.
pub const NUMBERS_REMEMBERED_MAX: u32 = 65_536;
/// Most nodes on a route, both ends included.
pub const ROUTE_NODES_MAX: usize = 32;
/// Most links of a node.
pub const LINKS_MAX: usize = 64;
/// Largest signalling message, before its UDP header.
pub const SIGNAL_BYTES_MAX: usize = 1_400;
/// Time after which a reservation without a refresh is freed.
pub const LEASE_DEFAULT: Nanos = Nanos::from_secs(20);
/// Refreshes within a lease (at least four).
pub const REFRESHES_PER_LEASE: u64 = 5;
/// Interval between HELLOs to a neighbour: an idle node wakes less than five times a second.
pub const HELLO_INTERVAL_DEFAULT: Nanos = Nanos::from_secs(1);
/// A bound on a neighbour's clock expires after this time, however good it was: it is wrong if the clock ran
/// faster than its tolerance, or was stepped by less than the error. A queue in one direction for longer than
/// that makes the error as large as the queue.
pub const CLOCK_BOUND_AGE_MAX: Nanos = Nanos::from_secs(60);
/// Missed HELLOs after which a neighbour counts as down.
pub const HELLOS_MISSED_MAX: u64 = 4;
/// Probes of a neighbour's clock and of the link in a HELLO's interval, while channels use the link.
pub const PROBES_PER_HELLO: u64 = 10;
/// Divisor of the signalling budget: probes take at most this part of it.
pub const PROBES_BUDGET_DIVISOR: u64 = 5;
/// Length of the slots in which late events are counted.
pub const WATCH_SLOT: Nanos = Nanos::from_millis(100);
/// Number of slots in which a stage is monitored: a second in all.
pub const WATCH_SLOTS: usize = 10;
/// A stage that was late in this many of the slots is broken.
pub const WATCH_SLOTS_LATE: usize = 3;
/// Length of the long slots, which store the late events of about a minute.
pub const WATCH_LONG_SLOT: Nanos = Nanos::from_secs(10);
/// Number of long slots in which a stage is monitored: a minute in all.
pub const WATCH_LONG_SLOTS: usize = 6;
/// Interval between two reports of a stage that was late and is not broken.
pub const LATE_REPORT_INTERVAL: Nanos = Nanos::from_secs(60);
/// Bound of signalling, in its periods, on a link whose kernel traffic follows admission; one period on other
/// links.
pub const SIGNAL_PERIODS_BESIDE_KERNEL: u64 = 3;
/// Time within which a shaper of kernel traffic must shrink. After that the channel that waits for it is
/// refused.
pub const SHAPER_PATIENCE: Nanos = Nanos::from_millis(250);
/// Kernel traffic is given more once the larger share has been possible for this long.
pub const SHAPER_GROWS_AFTER: Nanos = Nanos::from_secs(1);
/// Smallest increase of the kernel's share that is worth a change, in ppm of the link.
pub const SHAPER_STEP_PPM: u32 = 10_000;
/// Best effort that still waits after this time takes the kernel's part beyond its least share.
pub const SHAPER_CONTENTION: Nanos = Nanos::from_millis(20);
/// Best effort is checked again after this time.
pub const SHAPER_CONTENTION_KEPT: Nanos = Nanos::from_secs(1);
/// Interval between checks whether queue 1 is empty.
pub const SHAPER_RETRY: Nanos = Nanos::from_millis(1);
/// Interval between two messages to a neighbour about its late packets.
pub const LATE_ARRIVALS_INTERVAL: Nanos = Nanos::from_secs(1);
/// Broken stages of other hosts that a node stores.
pub const STAGES_BROKEN_MAX: usize = 1_024;
/// Best-effort and demoted packets that may wait for a node's processor.
pub const ARRIVALS_PACKETS_MAX: usize = 1_024;
/// While this many packets wait, drivers that can hold packets back are not polled for more.
pub const ARRIVALS_AHEAD_MAX: usize = 64;
/// Best-effort and demoted packets of one path that may wait for a node's processor.
pub const ARRIVALS_OF_PATH_MAX: u32 = 128;
/// Places that hold the processor shares of incoming flows: a power of two.
pub const ARRIVALS_SHARES: usize = 1_024;
/// Time for which a link is filled to measure its drain rate.
pub const RATE_TIME: Nanos = Nanos::from_millis(300);
/// Most bytes of the wire that a measurement sends.
pub const RATE_BYTES_MAX: u64 = 256 << 20;
/// Filler packets of a measurement that wait for the link scheduler at once.
pub const RATE_QUEUED_MAX: u32 = 8;
/// Interval between two packets whose times are stored.
pub const RATE_MARK_INTERVAL: Nanos = Nanos::from_millis(5);
/// Most packets whose times are stored.
pub const RATE_MARKS_MAX: usize = 96;
/// Fewest packets whose times give a result.
pub const RATE_MARKS_MIN: usize = 12;
/// Time of a neighbour to reply that it counts.
pub const RATE_ANSWER_TIME: Nanos = Nanos::from_secs(2);
/// Time for the queues on the link to drain, and for the report to arrive.
pub const RATE_DRAIN_TIME: Nanos = Nanos::from_secs(5);
/// Interval between checks whether the last packet was handed over.
pub const RATE_STEP: Nanos = Nanos::from_millis(1);
/// Most attempts for a smaller error.
pub const RATE_ATTEMPTS_MAX: u8 = 4;
/// Error of a measured rate that is good enough at once, in ppm.
pub const RATE_ERROR_GOOD: Ppm = Ppm(20_000);
/// Largest error of a measured rate that is of use, in ppm.
pub const RATE_ERROR_MAX: Ppm = Ppm(250_000);
/// If the driver had no room this often in a measurement, it sets the pace.
pub const RATE_FULL_TIMES: u32 = 8;
/// Interval between two attempts of a link that measures itself.
pub const RATE_AGAIN: Nanos = Nanos::from_millis(500);
/// Interval between two measurements of an unused link that was found to be slower than configured.
pub const RATE_PROOF_AGAIN: Nanos = Nanos::from_secs(60);
/// Shortest interval between two observations of a link's drain rate.
pub const RATE_LOOK_MIN: Nanos = Nanos::from_millis(200);
/// Longest interval of one observation.
pub const RATE_LOOK_MAX: Nanos = Nanos::from_secs(3);
/// Channels that may wait for links that are being measured.
pub const RATE_WAITING_MAX: usize = 1_024;
/// Frames of a link's driver unless configured otherwise.
pub const FRAMES_DEFAULT: u32 = 8_192;
/// Fewest frames of a link's driver.
pub const FRAMES_MIN: u32 = 256;
/// Divisor of a link's frames that gives the part which channels may reserve.
pub const FRAMES_GUARANTEED_DIVISOR: u32 = 2;
/// Divisor of a link's frames that gives the part which best effort may hold. The rest is for packets that
/// are not processed yet.
pub const FRAMES_BEST_EFFORT_DIVISOR: u32 = 4;
/// Signalling packets of one link that may wait for the processor.
pub const SIGNALS_WAITING_MAX: usize = 64;
/// Best-effort senders whose messages are put together at a bound port at once.
pub const BEST_EFFORT_SENDERS_MAX: usize = 16;
/// Messages of one best-effort sender in progress at once.
pub const BEST_EFFORT_MESSAGES_MAX: u32 = 4;
/// Messages of a best-effort flow or of a demoted channel that wait at their source.
pub const BEST_EFFORT_OUTGOING_MAX: u32 = 64;
/// Messages that one call takes out of an application's ring at most: a ring may hold 65,536, and this many take some
/// microseconds, as long as a unit of work (ADR 0047).
pub const RING_MESSAGES_MAX: u32 = 32;
/// Messages that one doorbell, one message that begins and one message that was sent each take out of a ring
/// that is known to hold more. One replaces the present message; the second makes the queue in the ring
/// shorter.
pub const RING_MESSAGES_BEHIND: u32 = 2;
/// Limit of channels that one call ends because their time is over, because their last message has left, or
/// because their listener has ended: each takes some microseconds.
pub const ENDS_MAX: usize = 32;
/// Messages and packets of ended channels that one call frees; the rest is left to the next turns.
pub const LEFTOVERS_MAX: u32 = 64;
/// Most packets' worth of bytes that may be handed to an adapter at once.
pub const PIPELINE_DEPTH_MAX: u32 = 64;
/// Channels that one call of a link scheduler moves from queue 3 to queue 1, and flows that it refills.
pub const LINK_MOVES_MAX: u32 = 64;
/// Packets handed to an adapter that have not completed.
pub const IN_FLIGHT_PACKETS_MAX: usize = 1_024;
/// Best-effort flows that a link stores.
pub const BEST_EFFORT_FLOWS_MAX: u32 = 4_096;
/// Best-effort packets that a link queues, all flows together.
pub const BEST_EFFORT_PACKETS_MAX: u32 = 8_192;
/// Largest packets that a capped best-effort flow may send in one go.
pub const BEST_EFFORT_CAP_BURST_PACKETS: u64 = 4;
/// Handlers that one call of an executor makes ready.
pub const EXECUTOR_MOVES_MAX: u32 = 64;
/// Levels of fixed priority: the highest for signalling, the lowest for best effort, channels between.
pub const PRIORITY_LEVELS: u8 = 32;
/// Default tolerance of one host's clock in ppm; rho is twice this.
pub const CLOCK_TOLERANCE_PPM_DEFAULT: u32 = 100;
/// Largest tolerance: rho stays below the margin of I over I' that remains to a source which catches up.
pub const CLOCK_TOLERANCE_PPM_MAX: u32 = 1_900;

const _: () = assert!(SIGNALS_WAITING_MAX * 4 <= FRAMES_MIN as usize);
const _: () = assert!(ARRIVALS_SHARES.is_power_of_two());
const _: () = assert!(1 < RING_MESSAGES_BEHIND && RING_MESSAGES_BEHIND < RING_MESSAGES_MAX);
const _: () = assert!(REFRESHES_PER_LEASE >= 4);
const _: () = assert!(2 * CLOCK_TOLERANCE_PPM_MAX as u64 * CATCH_UP <= 1_000_000);
const _: () = assert!(FRAGMENT_BYTES_DEFAULT as usize + HEADER_BYTES + 28 <= 1_500);

/// Largest RTCOP message; it may span several packets. Holds the grants of a longest route.
pub const SIGNAL_MESSAGE_BYTES_MAX: usize = 8_192;
/// Packets of RTCOP under way to a neighbour and not acknowledged.
pub const SIGNAL_WINDOW_SEGMENTS: usize = 32;
/// Packets' worth of RTCOP that a stream to a neighbour holds.
pub const SIGNAL_SEGMENTS_MAX: usize = 256;
/// Bytes of RTCOP without requests that may wait for a neighbour before it is given up. While half of them
/// wait, nothing new is begun and no request is answered.
pub const SIGNAL_WAITING_BYTES_MAX: usize = 2 << 20;
/// Packets' worth of RTCOP that may be unsent in the stream to a neighbour. Urgent messages wait behind them;
/// the rest waits where it has turns.
pub const SIGNAL_AHEAD_SEGMENTS: usize = 2;
/// Channels and requests that may wait for their turn to be sent over a link. If no place is left, of these
/// and of [`ANSWERS_WAITING_MAX`], the last item of the host and user with the most gives way to one with
/// fewer.
pub const ASKS_WAITING_MAX: usize = 2_048;
/// How long each of these channels and requests may wait before it is refused.
pub const ASK_WAIT_MAX: Nanos = Nanos::from_secs(5);
/// Replies that may wait for their turn. The user with the most of them gets no replies to further probes and
/// requests.
pub const ANSWERS_WAITING_MAX: usize = 2_048;
/// Smallest packet that every link must carry on the signalling port.
pub const SIGNAL_PACKET_BYTES_MIN: usize = 192;
/// Largest number of bytes of a signalling packet beside its segment.
pub const SIGNAL_OVERHEAD_BYTES_MAX: usize = 116;
/// Smallest part of a message in such a packet.
pub const SIGNAL_SEGMENT_BYTES_MIN: usize = SIGNAL_PACKET_BYTES_MIN - SIGNAL_OVERHEAD_BYTES_MAX;
/// Smallest bound on the best-effort packets of a link; signalling keeps to it too.
pub const BEST_EFFORT_PACKET_BYTES_MIN: u32 = SIGNAL_PACKET_BYTES_MIN as u32;
/// Channels of a neighbour that are being established here at once.
pub const HALF_OPEN_PER_NEIGHBOUR_MAX: usize = 1_024;
/// Channels that start, pass or end at a node.
pub const CHANNELS_MAX: usize = 65_536;
/// Questions of admission that are answered together if that is done outside the processor's thread.
pub const DECISIONS_AT_ONCE_MAX: usize = 4;
/// Receivers' requests that wait for a reply, in either direction.
pub const REQUESTS_MAX: usize = 1_024;
/// Programs' handlers of a node.
pub const RTU_HANDLERS_MAX: usize = 32_768;
/// Bytes behind an IP packet of a program's handler by which the node's driver knows where it goes.
pub const RAW_TAG_BYTES: usize = 8;
/// Programs' handlers that one call makes ready because their time has come.
pub const RTUS_DUE_MAX: usize = 64;
/// Data units in the budget of a program's handler, and in one call of it.
pub const RTU_UNITS_MAX: u32 = 1_024;
/// Packets that the PDUs of a handler's budget may send.
pub const RTU_PACKETS_MAX: u32 = 4_096;
/// Reports of a handler in another process that are read at once: it has one call at a time, and few that say that there is
/// work.
pub const UPCALL_REPORTS_MAX: u32 = 8;
/// Priorities of low-delay handlers. Each is a rate group before all periods.
pub const RTU_PRIORITIES: u8 = 64;
/// Overruns and ignored yields of a program's handler within [`RTU_VIOLATION_SPAN`] after which it is demoted.
pub const RTU_VIOLATIONS_MAX: u32 = 8;
/// Time for which the misconduct of a program's handler counts; that of the span before counts, too.
pub const RTU_VIOLATION_SPAN: Nanos = Nanos::from_secs(10);
/// Listeners of a node.
pub const LISTENERS_MAX: usize = 4_096 + LISTENERS_FOR_ROOT;
/// Listeners among [`LISTENERS_MAX`] that a daemon keeps for programs of root and of its own user.
pub const LISTENERS_FOR_ROOT: usize = 128;
/// Longest reason that an application may give for a refusal; the rest is cut off.
pub const REASON_BYTES_MAX: usize = 200;

const _: () = assert!(SIGNAL_PACKET_BYTES_MIN <= SIGNAL_BYTES_MAX);
const _: () = assert!(SIGNAL_AHEAD_SEGMENTS < SIGNAL_WINDOW_SEGMENTS);
// Packets under way, unsent ones, and one longest message in the smallest packets.
const _: () = assert!(
    SIGNAL_WINDOW_SEGMENTS + SIGNAL_AHEAD_SEGMENTS + SIGNAL_MESSAGE_BYTES_MAX / SIGNAL_SEGMENT_BYTES_MIN + 2
        <= SIGNAL_SEGMENTS_MAX
);
const _: () = assert!(ASK_WAIT_MAX.0 < LEASE_DEFAULT.0);
const _: () = assert!(SIGNAL_MESSAGE_BYTES_MAX <= u16::MAX as usize);
// Two stages a node, at most 111 bytes each on the wire, and a kilobyte for the rest.
const _: () = assert!(ROUTE_NODES_MAX * 2 * 111 + 1_024 <= SIGNAL_MESSAGE_BYTES_MAX);
