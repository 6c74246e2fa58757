//! Every constant of `limits` with a test that reaches and exceeds it. This test fails for a constant without
//! one, for a test that does not exist or does not use the constant any more, and for a changed constant,
//! whose test must then be reviewed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use punctual_proto::limits::*;
use punctual_proto::{Nanos, Ppm};

/// A constant's value.
trait Value {
    fn value(self) -> u64;
}

macro_rules! values {
    ($($type:ty: $of:expr;)*) => {
        $(impl Value for $type {
            fn value(self) -> u64 {
                let of: fn($type) -> u64 = $of;
                of(self)
            }
        })*
    };
}

values! {
    u8: u64::from;
    u32: u64::from;
    u64: |value| value;
    usize: |value| value as u64;
    Nanos: |span| span.0;
    Ppm: |share| u64::from(share.0);
}

/// A constant, and where it is crossed.
struct Crossed {
    name: &'static str,
    /// Present value, and value when its test was reviewed.
    value: [u64; 2],
    /// The file and the function of the run.
    run: (&'static str, &'static str),
    /// Text in the test that refers to it: its name, or a number derived from it.
    uses: &'static str,
}

/// `NAME = value: "file", function` if the test names the constant, `, contains "word"` if it has a number in its
/// place.
macro_rules! crossed {
    ($($name:ident = $value:expr => $file:literal $function:ident $(uses $word:literal)?;)*) => {
        const CROSSED: &[fn() -> Crossed] = &[$(|| Crossed {
            name: stringify!($name),
            value: [$name.value(), $value],
            run: ($file, stringify!($function)),
            uses: crossed!(@word $name $($word)?),
        }),*];
    };
    (@word $name:ident) => { stringify!($name) };
    (@word $name:ident $word:literal) => { $word };
}

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

crossed! {
    CPU_CAP_WINDOW = 10 * MS => "tests/sched.rs" caps_hold_best_effort_back_and_never_guaranteed_work;
    BEST_EFFORT_PAUSE = 50_000 => "tests/sched.rs" best_effort_gives_way_for_a_while_and_half_of_the_time_at_most;
    NAME_BYTES_MAX = 63 => "tests/limits.rs" a_configuration_may_go_to_each_limit_and_not_beyond;
    HEADER_BYTES = 64 => "tests/wire.rs" golden_bytes;
    FRAGMENT_BYTES_DEFAULT = 1_400 => "tests/limits.rs" a_packet_of_the_default_size_fits_and_a_byte_more_does_not;
    FRAGMENT_BYTES_MIN = 64 => "tests/limits.rs" a_configuration_may_go_to_each_limit_and_not_beyond;
    FRAGMENT_BYTES_MAX = 65_443 => "tests/limits.rs" a_configuration_may_go_to_each_limit_and_not_beyond;
    FRAGMENTS_MAX = 65_535 => "tests/fragment.rs" the_last_of_the_most_fragments_has_its_place;
    NUMBERS_REMEMBERED = 1_024 => "tests/fragment.rs" a_sink_stores_numbers_in_flight_and_of_ten_seconds_within_limits;
    NUMBERS_REMEMBERED_FOR = 10 * S => "tests/fragment.rs" a_sink_stores_numbers_in_flight_and_of_ten_seconds_within_limits;
    NUMBERS_REMEMBERED_MIN = 64 => "tests/fragment.rs" a_sink_stores_numbers_in_flight_and_of_ten_seconds_within_limits;
    NUMBERS_REMEMBERED_MAX = 65_536 => "tests/fragment.rs" a_sink_stores_numbers_in_flight_and_of_ten_seconds_within_limits;
    ROUTE_NODES_MAX = 32 => "tests/signalling/limits.rs" the_longest_route_opens_and_refuses_with_an_offer;
    LINKS_MAX = 64 => "tests/limits.rs" a_configuration_may_go_to_each_limit_and_not_beyond;
    SIGNAL_BYTES_MAX = 1_400 => "src/signalling/packet.rs" the_largest_packets_fit_their_limits;
    LEASE_DEFAULT = 20 * S => "tests/signalling/faults.rs" a_receiver_of_an_unrefreshed_channel_gets_lease_over;
    REFRESHES_PER_LEASE = 5 => "tests/signalling/faults.rs" a_receiver_of_an_unrefreshed_channel_gets_lease_over;
    HELLO_INTERVAL_DEFAULT = S => "tests/signalling/establishment.rs" a_host_without_channels_sends_no_probes;
    CLOCK_BOUND_AGE_MAX = 60 * S => "src/signalling/clock.rs" information_of_one_packet_expires;
    HELLOS_MISSED_MAX = 4 => "tests/signalling/properties.rs" one_way_silence;
    PROBES_PER_HELLO = 10 => "tests/signalling/establishment.rs" probes_come_ten_times_in_an_interval_and_take_a_fifth_of_the_budget;
    PROBES_BUDGET_DIVISOR = 5 => "tests/signalling/establishment.rs" probes_come_ten_times_in_an_interval_and_take_a_fifth_of_the_budget;
    WATCH_SLOT = 100 * MS => "src/node/late.rs" lateness_is_reported_within_two_slots_and_once_a_minute_unless_it_doubles;
    WATCH_SLOTS = 10 => "src/breach.rs" a_slot_counts_for_a_second_and_a_long_one_for_a_minute;
    WATCH_SLOTS_LATE = 3 => "src/breach.rs" what_is_late_again_and_again_is_broken_until_it_keeps_its_promise_for_a_lease;
    WATCH_LONG_SLOT = 10 * S => "src/breach.rs" a_slot_counts_for_a_second_and_a_long_one_for_a_minute;
    WATCH_LONG_SLOTS = 6 => "src/breach.rs" a_slot_counts_for_a_second_and_a_long_one_for_a_minute;
    LATE_REPORT_INTERVAL = 60 * S => "src/node/late.rs" lateness_is_reported_within_two_slots_and_once_a_minute_unless_it_doubles;
    SIGNAL_PERIODS_BESIDE_KERNEL = 3 => "tests/node_shaper.rs" signalling_beside_kernel_traffic_has_three_of_its_periods;
    SHAPER_PATIENCE = 250 * MS => "tests/node_shaper.rs" a_shaper_that_does_not_shrink_is_a_refusal_with_that_reason;
    SHAPER_GROWS_AFTER = S => "tests/node_shaper.rs" best_effort_waits_for_a_moment_before_it_takes_anything;
    SHAPER_STEP_PPM = 10_000 => "tests/node_shaper.rs" the_kernel_is_given_more_in_steps_that_are_worth_it;
    SHAPER_CONTENTION = 20 * MS => "tests/node_shaper.rs" best_effort_waits_for_a_moment_before_it_takes_anything;
    SHAPER_CONTENTION_KEPT = S => "tests/node_shaper.rs" best_effort_waits_for_a_moment_before_it_takes_anything;
    SHAPER_RETRY = MS => "src/node/plane/shaper.rs" a_busy_link_is_checked_again_soon;
    LATE_ARRIVALS_INTERVAL = S => "src/node/breach_monitor.rs" a_flow_is_measured_between_checks_at_a_suitable_distance;
    STAGES_BROKEN_MAX = 1_024 => "src/signalling/reports.rs" foreign_reports_are_bounded_and_leave_room_for_own_ones;
    ARRIVALS_PACKETS_MAX = 1_024 => "tests/limits.rs" one_path_of_best_effort_and_all_of_them_wait_in_bounded_numbers;
    ARRIVALS_AHEAD_MAX = 64 => "tests/node_host.rs" best_effort_is_taken_while_the_processor_has_time_for_it_only;
    ARRIVALS_OF_PATH_MAX = 128 => "tests/limits.rs" one_path_of_best_effort_and_all_of_them_wait_in_bounded_numbers;
    ARRIVALS_SHARES = 1_024 => "src/node/plane/best_effort.rs" more_flows_than_places_share_places;
    RATE_TIME = 300 * MS => "tests/node_rate_limits.rs" a_link_is_filled_for_so_long_and_few_packets_wait_meanwhile;
    RATE_BYTES_MAX = 256 << 20 => "tests/node_rate_bytes.rs" a_measurement_sends_so_many_bytes_and_then_none;
    RATE_QUEUED_MAX = 8 => "tests/node_rate_limits.rs" a_link_is_filled_for_so_long_and_few_packets_wait_meanwhile;
    RATE_MARK_INTERVAL = 5 * MS => "src/node/rate/arrivals.rs" times_are_kept_now_and_then_and_in_bounded_numbers;
    RATE_MARKS_MAX = 96 => "src/node/rate/arrivals.rs" times_are_kept_now_and_then_and_in_bounded_numbers;
    RATE_MARKS_MIN = 12 => "src/node/rate/arrivals.rs" times_are_kept_now_and_then_and_in_bounded_numbers;
    RATE_ANSWER_TIME = 2 * S => "tests/node_rate_limits.rs" a_silent_neighbour_is_given_up_in_time;
    RATE_DRAIN_TIME = 5 * S => "tests/node_rate_limits.rs" a_silent_neighbour_is_given_up_in_time;
    RATE_STEP = MS => "tests/node_rate_limits.rs" a_link_is_filled_for_so_long_and_few_packets_wait_meanwhile;
    RATE_ATTEMPTS_MAX = 4 => "tests/node_rate_limits.rs" what_is_too_uneven_is_tried_so_often_and_refused;
    RATE_ERROR_GOOD = 20_000 => "tests/node_rate_limits.rs" what_is_too_uneven_is_tried_so_often_and_refused;
    RATE_ERROR_MAX = 250_000 => "tests/node_rate_limits.rs" what_is_too_uneven_is_tried_so_often_and_refused;
    RATE_FULL_TIMES = 8 => "tests/node_rate_limits.rs" a_driver_that_is_full_again_and_again_sets_the_pace;
    RATE_AGAIN = 500 * MS => "tests/node_rate_limits.rs" a_link_that_measures_its_rate_retries_a_busy_neighbour;
    RATE_PROOF_AGAIN = 60 * S => "tests/node_rate_slow.rs" a_link_that_was_measured_slow_promises_nothing_until_a_measurement_finds_it_whole;
    RATE_LOOK_MIN = 200 * MS => "src/node/rate/watch.rs" checks_too_soon_or_too_late_give_no_result;
    RATE_LOOK_MAX = 3 * S => "src/node/rate/watch.rs" checks_too_soon_or_too_late_give_no_result;
    RATE_WAITING_MAX = 1_024 => "tests/node_rate_limits.rs" the_number_of_waiters_of_a_measurement_is_bounded;
    FRAMES_DEFAULT = 8_192 => "tests/limits.rs" a_packet_of_the_default_size_fits_and_a_byte_more_does_not;
    FRAMES_MIN = 256 => "tests/limits.rs" a_configuration_may_go_to_each_limit_and_not_beyond;
    FRAMES_GUARANTEED_DIVISOR = 2 => "tests/node_host.rs" channels_are_refused_once_a_links_frames_are_given_away_and_not_before;
    FRAMES_BEST_EFFORT_DIVISOR = 4 => "tests/limits.rs" best_effort_holds_its_part_of_a_links_frames_and_no_more;
    SIGNALS_WAITING_MAX = 64 => "tests/limits.rs" signalling_that_waits_for_the_processor_is_bounded;
    BEST_EFFORT_SENDERS_MAX = 16 => "tests/limits.rs" a_port_puts_a_bounded_number_of_messages_together;
    BEST_EFFORT_MESSAGES_MAX = 4 => "tests/limits.rs" a_port_puts_a_bounded_number_of_messages_together;
    BEST_EFFORT_OUTGOING_MAX = 64 => "tests/limits.rs" a_flow_of_best_effort_keeps_a_bounded_number_of_messages;
    RING_MESSAGES_MAX = 32 => "tests/node_slices.rs" the_greatest_burst_is_taken_in_slices_and_keeps_its_bounds;
    RING_MESSAGES_BEHIND = 2 => "tests/node_slices.rs" the_greatest_burst_is_taken_in_slices_and_keeps_its_bounds;
    ENDS_MAX = 32 => "tests/signalling/limits.rs" many_channels_that_end_together_end_in_slices;
    LEFTOVERS_MAX = 64 => "tests/node_slices.rs" what_a_burst_leaves_behind_is_given_back_in_slices;
    PIPELINE_DEPTH_MAX = 64 => "tests/limits.rs" a_configuration_may_go_to_each_limit_and_not_beyond;
    LINK_MOVES_MAX = 64 => "tests/limits.rs" a_crowd_that_becomes_current_goes_by_deadline;
    IN_FLIGHT_PACKETS_MAX = 1_024 => "tests/limits.rs" packets_in_flight_are_bounded_however_small_they_are;
    BEST_EFFORT_FLOWS_MAX = 4_096 => "tests/limits.rs" flows_beyond_the_limit_wait_for_a_place_and_go;
    BEST_EFFORT_PACKETS_MAX = 8_192 => "tests/limits.rs" flows_and_packets_of_best_effort_are_bounded_and_what_is_idle_makes_room;
    BEST_EFFORT_CAP_BURST_PACKETS = 4 => "tests/linksched.rs" a_capped_flow_gets_its_share_and_no_more;
    EXECUTOR_MOVES_MAX = 64 => "tests/sched.rs" a_crowd_that_becomes_eligible_at_once_is_moved_in_bounded_steps_before_any_handler_runs;
    PRIORITY_LEVELS = 32 => "tests/sched.rs" the_thirty_levels_between_are_for_channels_however_large_the_rank;
    CLOCK_TOLERANCE_PPM_DEFAULT = 100 => "tests/signalling/establishment.rs" the_clock_error_bound_holds;
    CLOCK_TOLERANCE_PPM_MAX = 1_900 => "tests/limits.rs" a_configuration_may_go_to_each_limit_and_not_beyond;
    SIGNAL_MESSAGE_BYTES_MAX = 8_192 => "src/signalling/reliable_stream.rs" what_is_not_acknowledged_is_bounded;
    SIGNAL_WINDOW_SEGMENTS = 32 => "src/signalling/reliable_stream.rs" what_is_under_way_is_bounded uses "WINDOW_SEGMENTS";
    SIGNAL_SEGMENTS_MAX = 256 => "src/signalling/reliable_stream.rs" what_is_not_acknowledged_is_bounded uses "SEGMENTS_MAX";
    SIGNAL_WAITING_BYTES_MAX = 2 << 20 => "src/signalling/peer/tests.rs" what_waits_for_a_neighbour_begins_nothing_new_and_then_ends_it;
    SIGNAL_OVERHEAD_BYTES_MAX = 116 => "src/signalling/packet.rs" the_largest_packets_fit_their_limits;
    SIGNAL_AHEAD_SEGMENTS = 2 => "src/signalling/outbox/tests.rs" what_goes_first_waits_for_a_few_packets;
    ASKS_WAITING_MAX = 2_048 => "tests/signalling/faults.rs" what_waits_for_a_slow_neighbour_is_bounded_and_the_rest_refused;
    ASK_WAIT_MAX = 5 * S => "src/signalling/outbox/tests.rs" requests_wait_for_their_time_and_no_longer;
    ANSWERS_WAITING_MAX = 2_048 => "src/signalling/outbox/tests.rs" answers_wait_in_bounded_numbers;
    SIGNAL_PACKET_BYTES_MIN = 192 => "src/signalling/packet.rs" the_largest_packets_fit_their_limits;
    SIGNAL_SEGMENT_BYTES_MIN = 76 => "src/signalling/reliable_stream.rs" the_longest_message_has_room_in_the_smallest_packets_behind_all_that_may_be_ahead;
    BEST_EFFORT_PACKET_BYTES_MIN = 192 => "tests/limits.rs" a_configuration_may_go_to_each_limit_and_not_beyond;
    HALF_OPEN_PER_NEIGHBOUR_MAX = 1_024 => "tests/signalling/limits.rs" all_neighbours_may_begin_as_many_as_there_is_room_for_and_no_more;
    CHANNELS_MAX = 65_536 => "tests/signalling/limits.rs" a_node_full_of_channels_keeps_and_frees_them;
    DECISIONS_AT_ONCE_MAX = 4 => "tests/limits.rs" few_questions_are_decided_together;
    REQUESTS_MAX = 1_024 => "tests/signalling/limits.rs" requests_of_receivers_are_bounded_at_both_ends;
    LISTENERS_MAX = 4_224 => "tests/limits.rs" listeners_are_bounded_and_each_that_closes_makes_room;
    LISTENERS_FOR_ROOT = 128 => "../host/src/service/quota.rs" listeners_are_kept_for_root_if_other_users_hold_all_others;
    RTU_HANDLERS_MAX = 32_768 => "tests/node_rtu.rs" handlers_are_bounded_and_each_that_goes_makes_room;
    RAW_TAG_BYTES = 8 => "tests/node_rtu_sending.rs" a_packet_that_leaves_as_it_is_has_no_header;
    RTUS_DUE_MAX = 64 => "tests/node_rtu.rs" timers_that_expire_together_are_noticed_in_parts;
    RTU_UNITS_MAX = 1_024 => "tests/node_rtu.rs" numbers_go_to_their_limits_and_not_beyond;
    RTU_PACKETS_MAX = 4_096 => "tests/node_rtu_sending.rs" packets_of_a_budget_go_to_their_limit_and_not_beyond;
    UPCALL_REPORTS_MAX = 8 => "tests/node_rtu_remote.rs" few_reports_are_read_at_once;
    RTU_PRIORITIES = 64 => "tests/node_rtu.rs" numbers_go_to_their_limits_and_not_beyond;
    RTU_VIOLATIONS_MAX = 8 => "tests/node_rtu.rs" overruns_are_counted_then_demoted_and_delay_no_other_handler;
    RTU_VIOLATION_SPAN = 10 * S => "tests/node_rtu.rs" misconduct_expires_after_two_spans;
    REASON_BYTES_MAX = 200 => "tests/signalling/limits.rs" a_long_reason_arrives_cut_between_characters;
}

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Identifiers of code, without comments.
fn words(code: &str) -> BTreeSet<&str> {
    let code = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_')).collect()
}

/// The lines of an item that begins with `begins` in `source`, up to the end by indentation, and the lines
/// directly above it.
fn item<'a>(source: &'a str, begins: &str) -> Option<(String, &'a str)> {
    let lines: Vec<&str> = source.lines().collect();
    let is_it = |line: &&str| line.trim_start().trim_start_matches("pub ").starts_with(begins);
    let first = lines.iter().position(is_it)?;
    let indent = lines[first].len() - lines[first].trim_start().len();
    let closes = format!("{}}}", " ".repeat(indent));
    let is_last = |line: &&str| **line == closes || line.ends_with(';') && begins.starts_with("const");
    let last = first + lines[first..].iter().position(is_last)?;
    let above = lines[..first].iter().rev().find(|line| !line.trim_start().starts_with("///"));
    Some((lines[first..=last].join("\n"), above.map_or("", |line| line.trim())))
}

/// The code of a test: the function, and the functions and constants of its file that it uses, transitively.
fn code_of(source: &str, function: &str) -> String {
    let (mut code, mut seen) = (String::new(), BTreeSet::new());
    let mut next = vec![format!("fn {function}(")];
    while let Some(begins) = next.pop() {
        if !seen.insert(begins.clone()) {
            continue;
        }
        let Some((text, _)) = item(source, &begins) else { continue };
        for word in words(&text) {
            next.extend([format!("fn {word}("), format!("const {word}:")]);
        }
        code += &text;
        code.push('\n');
    }
    code
}

/// The violation in the test of a constant.
fn wrong(crossed: &Crossed) -> Option<String> {
    let Crossed { name, value: [is, was], run: (file, function), uses } = crossed;
    let source = read(&here().join(file));
    let of = |what: &str| Some(format!("{name}: {file}, {function}: {what}"));
    if is != was {
        return of(&format!("{name} is {is} now and was {was}: does the run still cross it?"));
    }
    let Some((_, above)) = item(&source, &format!("fn {function}(")) else { return of("it is gone") };
    // A property of seeds is called by a test of its file.
    let is_run =
        above.contains("#[test]") || words(&source).contains(function) && source.contains("fn holds(");
    if !is_run {
        return of("nobody runs it");
    }
    let code = code_of(&source, function);
    let is_named = words(&code).contains(uses);
    (!is_named).then(|| of(&format!("it says nothing of {uses}"))).flatten()
}

#[test]
fn every_limit_is_crossed_by_a_run() {
    let source = read(&here().join("src/limits.rs"));
    let constants = source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next());
    let constants: BTreeSet<&str> = constants.collect();
    assert!(constants.len() > 90, "{}", constants.len());
    let crossed: Vec<Crossed> = CROSSED.iter().map(|crossed| crossed()).collect();
    let named: BTreeSet<&str> = crossed.iter().map(|crossed| crossed.name).collect();
    assert_eq!(named.len(), crossed.len(), "one run for each");
    let without: Vec<_> = constants.symmetric_difference(&named).collect();
    assert!(without.is_empty(), "no run crosses these: {without:?}");
    let wrong: Vec<String> = crossed.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `make branches` measures the runs that go to limits, too: a limit that a run crosses is a branch that it decides.
#[test]
fn the_runs_that_cross_limits_are_those_whose_branches_are_measured() {
    let list = read(&here().join("../../scripts/branches.list"));
    let is_measured = |what: &str, filter: &str| {
        list.lines().any(|line| {
            let words: Vec<&str> = line.split('|').map(str::trim).collect();
            words.get(1..) == Some(&["punctual-proto", what, filter])
        })
    };
    for crossed in CROSSED.iter().map(|crossed| crossed()) {
        let (file, _) = crossed.run;
        let there = match file.strip_prefix("tests/").map(|file| file.trim_end_matches(".rs").split_once('/'))
        {
            Some(Some((folder, module))) => is_measured(&format!("--test {folder}"), &format!("{module}::")),
            Some(None) => is_measured(&format!("--test {}", &file[6..file.len() - 3]), ""),
            // Tests beside the code; one limit is crossed in another crate.
            None => file.starts_with("../host/") || is_measured("--lib", ""),
        };
        assert!(there, "{}: {file} is not in scripts/branches.list", crossed.name);
    }
}

#[test]
fn what_a_run_does_not_do_is_not_found_in_it() {
    let source = "const LONG: u32 = LIMIT + 1;\n\nuse x::OTHER;\n\nfn helps() {\n    f(LONG); // NOT\n}\n\n#[test]\nfn runs() {\n    \
                  helps();\n}\n";
    let code = code_of(source, "runs");
    let words = words(&code);
    assert!(words.contains("LIMIT"), "{code}");
    assert!(!words.contains("OTHER") && !words.contains("NOT"), "{code}");
    let crossed = |run, uses| Crossed { name: "X", value: [1, 1], run, uses };
    let gone = crossed(("tests/limits.rs", "nobody_wrote_this"), "X");
    assert!(wrong(&gone).is_some_and(|text| text.contains("gone")));
    let run = ("tests/limits.rs", "listeners_are_bounded_and_each_that_closes_makes_room");
    assert_eq!(wrong(&crossed(run, "LISTENERS_MAX")), None);
    assert!(wrong(&crossed(run, "REQUESTS_MAX")).is_some_and(|text| text.contains("says nothing")));
    assert!(wrong(&Crossed { value: [1, 2], ..crossed(run, "LISTENERS_MAX") }).is_some());
}
