//! The verbs as a script sees them: standard output, one line of error, exit code.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn punctual(arguments: &[&str]) -> Output {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    Command::new(env!("CARGO_BIN_EXE_punctual")).args(arguments).current_dir(root).output().unwrap()
}

fn json_of(arguments: &[&str]) -> Value {
    let output = punctual(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The verb fails with `code`, with one line on standard error and nothing on standard output.
fn complaint(arguments: &[&str], code: i32) -> String {
    let output = punctual(arguments);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{line}");
    assert!(line.starts_with("punctual: ") && line.trim_end().lines().count() == 1, "{line}");
    assert!(output.stdout.is_empty());
    line
}

/// A separate file for each test.
fn file(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

const DAVIS: &str = "
[[task]]
cost_ns = 1000000
period_ns = 2500000
deadline_ns = 2500000
[[task]]
cost_ns = 1000000
period_ns = 3500000
deadline_ns = 3250000
[[task]]
cost_ns = 1000000
period_ns = 3500000
deadline_ns = 3250000
";

#[test]
fn analyze_prints_the_json_that_scripts_rely_on() {
    let path = file("davis.toml", &format!("policy = \"np-fp\"\n{DAVIS}"));
    let expected = json!({
        "tasks": [
            {"response_ns": 2_000_000, "schedulable": true},
            {"response_ns": 3_000_000, "schedulable": true},
            {"response_ns": 3_500_000, "schedulable": false},
        ],
        "schedulable": false,
    });
    assert_eq!(json_of(&["analyze", &path, "--json"]), expected);
    let text = String::from_utf8(punctual(&["analyze", &path]).stdout).unwrap();
    assert!(text.contains("MISSES") && text.ends_with("not schedulable\n"), "{text}");
}

#[test]
fn analyze_handles_every_policy_blocking_and_unbounded_sets() {
    let first = |policy: &str| {
        let path = file(
            &format!("{policy}.toml"),
            &format!("policy = \"{policy}\"\nblocking_ns = 1500000\n{DAVIS}"),
        );
        json_of(&["analyze", &path, "--json"])["tasks"][0]["response_ns"].as_u64()
    };
    assert_eq!(first("np-fp"), Some(2_500_000));
    assert_eq!(first("fp"), Some(2_500_000));
    assert!(first("edf") >= Some(2_500_000));
    let task = "[[task]]\ncost_ns = 6\nperiod_ns = 10\ndeadline_ns = 10\n";
    let path = file("overload.toml", &format!("policy = \"edf\"\n{task}{task}"));
    assert_eq!(json_of(&["analyze", &path, "--json"])["tasks"][1]["response_ns"], Value::Null);
}

#[test]
fn analyze_refuses_what_makes_no_sense_in_one_line() {
    let unknown = file("unknown.toml", &format!("policy = \"fp\"\ncolour = 1\n{DAVIS}"));
    assert!(complaint(&["analyze", &unknown], 1).contains("line 2: unknown field `colour`"));
    let in_task = file("in_task.toml", &format!("policy = \"fp\"\n{DAVIS}prio = 1\n"));
    assert!(complaint(&["analyze", &in_task], 1).contains("prio"));
    let policy = file("policy.toml", &format!("policy = \"rr\"\n{DAVIS}"));
    assert!(complaint(&["analyze", &policy], 1).contains("rr"));
    let empty = file("empty.toml", "policy = \"fp\"\n");
    assert!(complaint(&["analyze", &empty], 1).contains("no [[task]]"));
    let zero = file("zero.toml", "policy = \"fp\"\n[[task]]\ncost_ns = 0\nperiod_ns = 1\ndeadline_ns = 1\n");
    assert!(complaint(&["analyze", &zero], 1).contains("cost_ns = 0"));
    assert!(complaint(&["analyze", "/no/such/file"], 1).contains("/no/such/file"));
}

#[test]
fn sim_refuses_a_wrong_topology_in_one_line() {
    let unknown = file("topology.toml", "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\ncolour = 1\n");
    assert!(complaint(&["sim", "--seed", "1", "--topology", &unknown], 1).contains("line 5: unknown field"));
    let foreign = file(
        "stranger.toml",
        "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n[[link]]\nbetween = [\"a\", \"z\"]\n",
    );
    assert!(complaint(&["sim", "--seed", "1", "--topology", &foreign], 1).contains("\"z\""));
    assert!(complaint(&["sim", "--seed", "1", "--topology", "/no/such/file"], 1).contains("/no/such/file"));
}

#[test]
fn sim_refuses_a_wrong_case_in_one_line() {
    let colour = file("colour.toml", "[[case]]\nseed = 1\nlesson = \"x\"\ncolour = 1\n");
    assert!(complaint(&["sim", "--case", &colour], 1).contains("line 4: unknown field"));
    let network = file("network.toml", "[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\ncolour = 1\n");
    let case = file("case.toml", &format!("[[case]]\nseed = 1\nlesson = \"x\"\ntopology = \"{network}\"\n"));
    assert!(complaint(&["sim", "--case", &case], 1).contains("line 5: unknown field"));
}

/// The figures of the whole plan are printed if nothing was removed.
#[test]
fn sim_reports_its_runs_if_there_is_nothing_to_minimise() {
    let small = ["--size", "small", "--faults", "none", "--traffic-ms", "200", "--json"];
    let found = json_of(&[&["sim", "--minimise", "3"], &small[..]].concat());
    let whole = json_of(&[&["sim", "--seed", "3"], &small[..]].concat());
    for key in ["seeds", "seed_first", "messages", "digest"] {
        assert_eq!(found[key], whole[key], "{key}");
    }
    assert!(found["case"].is_null() && found["runs"] == 1, "{found}");
}

#[test]
fn suggest_shows_what_each_choice_reserves() {
    for trace in ["bigbuckbunny-720p25-h264", "bikes-640x272-h264", "bigbuckbunny-352x240p30-mpeg1"] {
        let path = format!("examples/traces/{trace}.csv");
        let found =
            json_of(&["suggest", &path, "--deadline", "80ms", "--contract", "110KB,25/s,1", "--json"]);
        let choices = found["choices"].as_array().unwrap();
        assert!(choices.len() >= 3, "{trace}");
        for choice in choices {
            assert_eq!(choice["fare"]["messages_delayed"], 0, "{trace}");
            assert!(choice["reserves"]["bits_per_second"].as_u64() > found["bits_per_second_mean"].as_u64());
        }
        let reserved = found["given"]["reserves"]["bits_per_second"].as_u64().unwrap();
        assert!((24_000_000..24_500_000).contains(&reserved), "{reserved}");
    }
}

#[test]
fn suggest_reads_the_stream_itself_and_what_ffprobe_prints() {
    let of = |path: &str| json_of(&["suggest", path, "--deadline", "80ms", "--json"]);
    let film = of("examples/media/bigbuckbunny-720p25.h264");
    let trace = of("examples/traces/bigbuckbunny-720p25-h264.csv");
    for key in ["frames", "frame_bytes_max", "bits_per_second_mean"] {
        assert_eq!(film[key], trace[key], "{key}");
    }
    assert_eq!(
        film["choices"][0]["send_flags"],
        "--rate 25/s --size 105256B --burst 1 --deadline 80ms --split h264"
    );
    assert_eq!(trace["choices"][0]["send_flags"], "--rate 25/s --size 105256B --burst 1 --deadline 80ms");
    let rows = std::fs::read_to_string("../../examples/traces/bigbuckbunny-720p25-h264.csv").unwrap();
    let fields = |row: &str| row.split(',').map(str::to_owned).collect::<Vec<_>>();
    let print = |line: fn(&[String]) -> String| -> String {
        rows.lines().skip(1).map(|row| line(&fields(row))).collect()
    };
    let compact = file("compact.csv", &print(|row| format!("packet,{},{}\n", row[1], row[2])));
    let whole = print(|row| {
        format!(
            "packet,video,0,1,{0},1,{0},1,0.04,{1},48,K__\npacket,audio,1,1,{0},1,{0},1,0.02,9,1,K__\n",
            row[1], row[2]
        )
    });
    for path in [compact, file("whole.csv", &whole)] {
        assert_eq!(of(&path), trace, "{path}");
    }
    let text =
        String::from_utf8(punctual(&["suggest", &file("copy.csv", &rows), "--deadline", "80ms"]).stdout)
            .unwrap();
    assert!(text.contains("send      punctual send NAME@HOST --rate 25/s --size 105256B "), "{text}");
}

#[test]
fn suggest_reports_what_a_recording_lacks() {
    let film = "examples/media/bigbuckbunny-720p25.h264";
    let faster = json_of(&["suggest", film, "--deadline", "80ms", "--rate", "50/s", "--json"]);
    assert!(
        faster["choices"][0]["send_flags"].as_str().is_some_and(|flags| flags.starts_with("--rate 50/s "))
    );
    // Two frames without a parameter set.
    let silent = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("silent.h264");
    std::fs::write(&silent, [0, 0, 0, 1, 0x65, 0x88, 0, 0, 0, 1, 0x41, 0x9a]).unwrap();
    let silent = silent.display().to_string();
    assert!(complaint(&["suggest", &silent, "--deadline", "80ms"], 2).contains("give --rate, as 25/s"));
    let trace = "examples/traces/bikes-640x272-h264.csv";
    assert!(
        complaint(&["suggest", trace, "--deadline", "80ms", "--rate", "25/s"], 2).contains("leave it out")
    );
    let nothing = file("prose.csv", "Once upon a time\n");
    assert!(complaint(&["suggest", &nothing, "--deadline", "80ms"], 1).contains("ffprobe -v error"));
    std::fs::write(&nothing, [0xff, 0xd8, 0xff]).unwrap();
    assert!(complaint(&["suggest", &nothing, "--deadline", "80ms"], 1).contains("h264_mp4toannexb"));
}

#[test]
fn long_runs_check_their_output_path_first() {
    let place = file("no-directory", "");
    let began = std::time::Instant::now();
    let profile = complaint(&["profile", "--output", &format!("{place}/profile.toml")], 1);
    assert!(
        profile.contains("--output: cannot write") && profile.contains("choose another place"),
        "{profile}"
    );
    let folder = std::env::temp_dir().display().to_string();
    assert!(complaint(&["profile", "--output", &folder], 1).contains("is not a regular file"));
    let plot = complaint(&["profile", "--output", &file("new-profile.toml", ""), "--plot", &folder], 1);
    assert!(plot.contains("--plot: cannot write"), "{plot}");
    let bench = complaint(&["bench", "sim-scale", "--directory", &place], 1);
    assert!(bench.contains("--directory: cannot write") && bench.contains("sim-scale.svg"), "{bench}");
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "nothing was measured");
}

#[test]
fn usage_is_one_line_and_exit_code_2() {
    assert!(complaint(&[], 2).contains("--help"));
    assert!(complaint(&["fly"], 2).contains("fly"));
    assert!(complaint(&["suggest", "x.csv"], 2).contains("--deadline"));
    let trace = "examples/traces/bikes-640x272-h264.csv";
    assert!(complaint(&["suggest", trace, "--deadline", "80"], 2).contains("80ms"));
    assert!(complaint(&["suggest", trace, "--deadline", "0ms"], 2).contains("more than 0"));
    assert!(
        complaint(&["suggest", trace, "--deadline", "80ms", "--fragment", "0B"], 2)
            .contains("64 B to 65443 B")
    );
    assert!(complaint(&["sim"], 2).contains("see 'punctual sim --help'"));
    assert!(complaint(&["bench", "sim-speed", "--driver", "xdp"], 2).contains("leave --driver out"));
    assert!(
        complaint(&["suggest", trace, "--deadline", "80ms", "--contract", "0B,25/s,1"], 2)
            .contains("message size")
    );
}

/// Arguments come from scripts, too: bytes that are no text are a mistake, and no reason to panic.
#[test]
fn arguments_that_are_no_text_are_wrong_usage() {
    use std::os::unix::ffi::OsStrExt;
    for verb in ["ior", "call", "status"] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_punctual"));
        let output = command.arg(verb).arg(std::ffi::OsStr::from_bytes(b"\xff")).output().unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{verb}: {line}");
        assert!(line.starts_with("punctual: ") && line.trim_end().lines().count() == 1, "{line}");
    }
}

#[test]
fn a_relay_checks_its_ends_before_it_connects_to_a_daemon() {
    let class = ["--class", "guaranteed", "--rate", "20Mbit/s", "--period", "5ms"];
    let refused = |ends: &[&str]| complaint(&[&["relay"], ends, &class].concat(), 2);
    let from = ["--from", "127.0.0.1:7000", "--connect"];
    for peer in ["nonsense", "6379", "6379@", "0@b", "b@6379", "65536@b"] {
        let line = refused(&[&from[..], &[peer, "--reserve"]].concat());
        assert!(line.contains(&format!("--connect {peer}: with --reserve, give a port and")), "{line}");
    }
    for port in ["0", "6379@b", "10.0.0.1:80"] {
        let line = refused(&["--listen", port, "--to", "127.0.0.1:80", "--reserve"]);
        assert!(
            line.contains(&format!("--listen {port}: with --reserve, give a port of 1 to 65535")),
            "{line}"
        );
    }
    assert!(refused(&[&from[..], &["6379@b"]].concat()).contains("a host's name needs --reserve"));
    assert!(complaint(&["relay"], 2).contains("--listen and --to"));
}

#[test]
fn every_verb_shows_an_example() {
    let output = punctual(&["--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, commands) = text.split_once("Commands:\n").expect("a list of verbs");
    let verbs: Vec<&str> = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|verb| !verb.is_empty()))
        .filter(|verb| *verb != "help")
        .collect();
    assert!(verbs.len() > 15, "{verbs:?}");
    for verb in verbs {
        let output = punctual(&[verb, "--help"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("Example") && text.contains("--json"), "{text}");
        // An example stands at the beginning of a line only if it follows the word.
        assert!(!text.lines().any(|line| line.starts_with("punctual ")), "{text}");
    }
}

#[test]
fn plan_orders_flows_and_suggests_changes_where_they_do_not_fit() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/plan/flows.toml");
    let plan = json_of(&["plan", example, "--json"]);
    assert_eq!(plan["schedulable"], true);
    assert!(plan["margin"].as_f64().expect("a number") > 1.0, "{plan}");
    let flows = plan["hosts"][0]["flows"].as_array().expect("flows");
    let priority = |name: &str| {
        let flow = flows.iter().find(|flow| flow["name"] == name);
        flow.and_then(|flow| flow["priority"].as_u64()).expect("planned")
    };
    assert!(priority("filter") < priority("control") && priority("control") < priority("camera"));
    let text = std::fs::read_to_string(example).unwrap();
    let tight = file("tight-flows.toml", &text.replace("deadline = \"3ms\"", "deadline = \"0.5ms\""));
    let output = punctual(&["plan", &tight]);
    let late = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && late.trim_end().lines().count() == 1, "{late}");
    assert!(late.contains("give \"control\" a deadline of"), "{late}");
}
