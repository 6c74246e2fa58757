//! Every limit of the protocol, in one place. Related limits are asserted at compile time.

use punctual_analysis::{CATCH_UP, Nanos, Ppm};

/// Burst of the caps on best-effort processing: what a processor would do in this time.
pub const CPU_CAP_WINDOW: Nanos = Nanos::from_millis(10);
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
/// Numbers of messages behind the newest one that a sink remembers one by one.
pub const NUMBERS_REMEMBERED: u32 = 1_024;
/// Time for which sinks of slow channels remember message numbers. They remember at least
/// [`NUMBERS_REMEMBERED_MIN`].
pub const NUMBERS_REMEMBERED_FOR: Nanos = Nanos::from_secs(10);
/// Fewest message numbers that a sink remembers, however slow its channel is.
pub const NUMBERS_REMEMBERED_MIN: u32 = 64;
/// Most message numbers that a sink remembers. A channel with more messages under way may hear a message
/// twice, if the network duplicated it and one copy was demoted on the way.
pub const NUMBERS_REMEMBERED_MAX: u32 = 65_536;
/// Most nodes on a route, both ends included.
pub const ROUTE_NODES_MAX: usize = 32;
/// Most links of a node.
pub const LINKS_MAX: usize = 64;
/// Largest signalling message, before its UDP header.
pub const SIGNAL_BYTES_MAX: usize = 1_400;
/// How long a reservation lives without a refresh.
pub const LEASE_DEFAULT: Nanos = Nanos::from_secs(20);
/// Refreshes within a lease (at least four).
pub const REFRESHES_PER_LEASE: u64 = 5;
/// Interval between HELLOs to a neighbour: an idle node wakes less than five times a second.
pub const HELLO_INTERVAL_DEFAULT: Nanos = Nanos::from_secs(1);
/// What one packet told of a neighbour's clock is forgotten after so long, however good it was: where the clock ran faster than
/// it may, or was stepped by less than the error, it is wrong. A queue that is in one direction for longer than that makes
/// the error as large as itself.
pub const CLOCK_BOUND_AGE_MAX: Nanos = Nanos::from_secs(60);
/// HELLOs missed until a neighbour is taken for dead.
pub const HELLOS_MISSED_MAX: u64 = 4;
/// Probes of a neighbour's clock and of the link in a HELLO's interval, while channels use the link.
pub const PROBES_PER_HELLO: u64 = 10;
/// Divisor of the signalling budget: probes take at most this part of it.
pub const PROBES_BUDGET_DIVISOR: u64 = 5;
/// Length of the slots in which late events are counted.
pub const WATCH_SLOT: Nanos = Nanos::from_millis(100);
/// Number of slots in which a stage is watched: a second in all.
pub const WATCH_SLOTS: usize = 10;
/// A stage that was late in this many of the slots is broken.
pub const WATCH_SLOTS_LATE: usize = 3;
/// Length of the long slots, which remember for about a minute what was late.
pub const WATCH_LONG_SLOT: Nanos = Nanos::from_secs(10);
/// Number of long slots in which a stage is watched: a minute in all.
pub const WATCH_LONG_SLOTS: usize = 6;
/// Interval between two lines about a stage that was late and is not broken.
pub const LATE_TOLD_INTERVAL: Nanos = Nanos::from_secs(60);
/// Bound of signalling on a link whose kernel traffic follows admission, in its periods; elsewhere one.
pub const SIGNAL_PERIODS_BESIDE_KERNEL: u64 = 3;
/// Time within which a shaper of kernel traffic must shrink. After that the channel that waits for it is
/// refused.
pub const SHAPER_PATIENCE: Nanos = Nanos::from_millis(250);
/// Kernel traffic is given more once the larger share has been possible for this long.
pub const SHAPER_GROWS_AFTER: Nanos = Nanos::from_secs(1);
/// Smallest increase of the kernel's share that is worth a change, in ppm of the link.
pub const SHAPER_STEP_PPM: u32 = 10_000;
/// Best effort that still waits after this time wants what the kernel has beyond its least share.
pub const SHAPER_CONTENTION: Nanos = Nanos::from_millis(20);
/// Best effort is asked again after this time.
pub const SHAPER_CONTENTION_KEPT: Nanos = Nanos::from_secs(1);
/// How soon to look again whether queue 1 is empty.
pub const SHAPER_RETRY: Nanos = Nanos::from_millis(1);
/// Interval between two messages to a neighbour about what comes late from it.
pub const LATE_ARRIVALS_INTERVAL: Nanos = Nanos::from_secs(1);
/// Broken stages of other hosts that a node remembers.
pub const STAGES_BROKEN_MAX: usize = 1_024;
/// Best-effort and demoted packets that may wait for a node's processor.
pub const ARRIVALS_PACKETS_MAX: usize = 1_024;
/// While this many packets wait, drivers that can hold packets back are asked for no more.
pub const ARRIVALS_AHEAD_MAX: usize = 64;
/// Best-effort and demoted packets of one path that may wait for a node's processor.
pub const ARRIVALS_OF_PATH_MAX: u32 = 128;
/// Places in which flows that come in keep their share of the processor: a power of two.
pub const ARRIVALS_SHARES: usize = 1_024;
/// How long a link is filled to measure what it drains.
pub const RATE_TIME: Nanos = Nanos::from_millis(300);
/// Most bytes of the wire that this takes.
pub const RATE_BYTES_MAX: u64 = 256 << 20;
/// Packets of it that wait for the link scheduler at once.
pub const RATE_QUEUED_MAX: u32 = 8;
/// Interval between two packets whose times are kept.
pub const RATE_MARK_INTERVAL: Nanos = Nanos::from_millis(5);
/// Most of them.
pub const RATE_MARKS_MAX: usize = 96;
/// Fewer say nothing.
pub const RATE_MARKS_MIN: usize = 12;
/// How long a neighbour may take to answer that it counts.
pub const RATE_ANSWER_TIME: Nanos = Nanos::from_secs(2);
/// How long the queues on the way may take to drain, and the report to come.
pub const RATE_DRAIN_TIME: Nanos = Nanos::from_secs(5);
/// How often it is looked whether the last packet is handed over.
pub const RATE_STEP: Nanos = Nanos::from_millis(1);
/// Attempts at a better figure.
pub const RATE_ATTEMPTS_MAX: u8 = 4;
/// Error of a measured rate that is good enough at once, in ppm.
pub const RATE_ERROR_GOOD: Ppm = Ppm(20_000);
/// Largest error of a measured rate that is of use, in ppm.
pub const RATE_ERROR_MAX: Ppm = Ppm(250_000);
/// A driver that had no room so often in a measurement is what sets the pace.
pub const RATE_FULL_TIMES: u32 = 8;
/// Interval between two attempts of a link that measures itself.
pub const RATE_AGAIN: Nanos = Nanos::from_millis(500);
/// Interval between two measurements of an unused link that was found to be slower than configured.
pub const RATE_PROOF_AGAIN: Nanos = Nanos::from_secs(60);
/// What a link drains is looked at no more often than this ...
pub const RATE_LOOK_MIN: Nanos = Nanos::from_millis(200);
/// ... and what lies further back says nothing.
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
/// nobody has looked at yet.
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
/// that is known to hold more. One replaces the message at hand; the second makes the queue in the ring
/// shorter.
pub const RING_MESSAGES_BEHIND: u32 = 2;
/// Channels that end by themselves, because their time is over or their last message has left, which one call ends: each takes
/// some microseconds. And channels that wait for a listener that ends.
pub const ENDS_MAX: usize = 32;
/// Messages and packets of channels that are gone which one call gives back; the rest is another turn's.
pub const LEFTOVERS_MAX: u32 = 64;
/// Most packets' worth of bytes that may be handed to an adapter at once.
pub const PIPELINE_DEPTH_MAX: u32 = 64;
/// Channels that one call of a link scheduler moves from queue 3 to queue 1, and flows that it refills.
pub const LINK_MOVES_MAX: u32 = 64;
/// Packets handed to an adapter that have not completed.
pub const IN_FLIGHT_PACKETS_MAX: usize = 1_024;
/// Best-effort flows that a link remembers.
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
/// Most of it: rho stays below what a source that makes up for time leaves of I above I'.
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
/// Bytes of RTCOP that may wait for a neighbour before it is given up, asks apart. While half of them do, nothing new is
/// begun and nobody's ask is answered.
pub const SIGNAL_WAITING_BYTES_MAX: usize = 2 << 20;
/// Packets' worth of RTCOP that may stand unsent in the stream to a neighbour. Urgent messages wait behind
/// them; the rest waits where it has turns.
pub const SIGNAL_AHEAD_SEGMENTS: usize = 2;
/// Channels and requests that may wait for their turn to be asked for over a link. If no place is left, of
/// these and of [`ANSWERS_WAITING_MAX`], the last item of the host and user who have the most gives way to
/// one who has less.
pub const ASKS_WAITING_MAX: usize = 2_048;
/// How long each of these channels and requests may wait before it is refused.
pub const ASK_WAIT_MAX: Nanos = Nanos::from_secs(5);
/// Answers that may wait for their turn. The user who has the most of them waiting is not told about more
/// probes and requests.
pub const ANSWERS_WAITING_MAX: usize = 2_048;
/// Smallest packet that every link must carry on the signalling port.
pub const SIGNAL_PACKET_BYTES_MIN: usize = 192;
/// Most bytes of a signalling packet that are not a segment's.
pub const SIGNAL_OVERHEAD_BYTES_MAX: usize = 116;
/// Least of a message that it carries.
pub const SIGNAL_SEGMENT_BYTES_MIN: usize = SIGNAL_PACKET_BYTES_MIN - SIGNAL_OVERHEAD_BYTES_MAX;
/// Smallest bound on the best-effort packets of a link; signalling keeps to it too.
pub const BEST_EFFORT_PACKET_BYTES_MIN: u32 = SIGNAL_PACKET_BYTES_MIN as u32;
/// Channels of a neighbour that are being established here at once.
pub const HALF_OPEN_PER_NEIGHBOUR_MAX: usize = 1_024;
/// Channels that start, pass or end at a node.
pub const CHANNELS_MAX: usize = 65_536;
/// Questions of admission that are answered together if that is done beside the processor.
pub const DECISIONS_AT_ONCE_MAX: usize = 4;
/// Requests of receivers that wait for an answer, in either direction.
pub const REQUESTS_MAX: usize = 1_024;
/// Programs' handlers of a node.
pub const RTU_HANDLERS_MAX: usize = 4_096;
/// Data units in the budget of a program's handler, and in one call of it.
pub const RTU_UNITS_MAX: u32 = 1_024;
/// Packets that the PDUs of a handler's budget may send.
pub const RTU_PACKETS_MAX: u32 = 4_096;
/// Reports of a handler in another process that are read at once: it has one call at a time, and few that say that there is
/// work.
pub const UPCALL_REPORTS_MAX: u32 = 8;
/// Priorities of low-delay handlers. Each stands for a rate group before all periods.
pub const RTU_PRIORITIES: u8 = 64;
/// Overruns and ignored yields of a program's handler within [`RTU_SPELL`] after which it is demoted.
pub const RTU_STRIKES_MAX: u32 = 8;
/// Time for which the misconduct of a program's handler counts; that of the spell before counts, too.
pub const RTU_SPELL: Nanos = Nanos::from_secs(10);
/// Listeners of a node.
pub const LISTENERS_MAX: usize = 4_096 + LISTENERS_FOR_ROOT;
/// Listeners among [`LISTENERS_MAX`] that a daemon keeps for programs of root and of its own user.
pub const LISTENERS_FOR_ROOT: usize = 128;
/// Longest reason that an application may give for a refusal; the rest is cut off.
pub const REASON_BYTES_MAX: usize = 200;

const _: () = assert!(SIGNAL_PACKET_BYTES_MIN <= SIGNAL_BYTES_MAX);
const _: () = assert!(SIGNAL_AHEAD_SEGMENTS < SIGNAL_WINDOW_SEGMENTS);
// What is under way, what stands unsent, and one longest message in the smallest packets.
const _: () = assert!(
    SIGNAL_WINDOW_SEGMENTS + SIGNAL_AHEAD_SEGMENTS + SIGNAL_MESSAGE_BYTES_MAX / SIGNAL_SEGMENT_BYTES_MIN + 2
        <= SIGNAL_SEGMENTS_MAX
);
const _: () = assert!(ASK_WAIT_MAX.0 < LEASE_DEFAULT.0);
const _: () = assert!(SIGNAL_MESSAGE_BYTES_MAX <= u16::MAX as usize);
// Two stages a node, at most 111 bytes each on the wire, and a kilobyte for the rest.
const _: () = assert!(ROUTE_NODES_MAX * 2 * 111 + 1_024 <= SIGNAL_MESSAGE_BYTES_MAX);
