//! Scripts as text.

/// When something happens, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    Absolute(u64),
    After(u64),
}

/// A packet in a script. `None`: not compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Packet {
    pub flags: String,
    pub seq: u32,
    pub payload: u32,
    pub ack: Option<u32>,
    pub window: Option<u16>,
    pub urgent: Option<u16>,
    pub mss: Option<u16>,
    pub scale: Option<u8>,
    pub sack: bool,
    pub timestamp: Option<(u32, u32)>,
    pub any_options: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    In(Packet),
    Out(Packet),
    Call { name: String, arguments: Vec<String>, result: Option<i64> },
}

pub struct Step {
    pub line: usize,
    pub when: When,
    pub action: Action,
}

/// A script without what looks into a kernel.
pub struct Script {
    pub steps: Vec<Step>,
    /// Pieces of Python that were left out: they compare fields of Linux' `tcp_info`.
    pub assertions: usize,
}

/// The steps of a script.
pub fn script(text: &str) -> Result<Script, String> {
    let (mut steps, mut assertions) = (Vec::new(), 0);
    let mut skipping = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.split("//").next().unwrap_or_default().trim();
        let was_skipping = skipping;
        if is_skipped(line, &mut skipping) || line.is_empty() || line.starts_with(['#', '-']) {
            assertions += usize::from(was_skipping.is_none() && line.contains("%{"));
            continue;
        }
        let line_number = number + 1;
        let step = step(line).map_err(|error| format!("line {line_number}: {error}"))?;
        steps.push(Step { line: line_number, when: step.0, action: step.1 });
    }
    Ok(Script { steps, assertions })
}

/// Shell commands between backquotes set up a kernel, Python looks into it, and comments explain: all are skipped.
fn is_skipped(line: &str, until: &mut Option<&'static str>) -> bool {
    if let Some(end) = *until {
        if line.ends_with(end) {
            *until = None;
        }
        return true;
    }
    let what = match line.split_once(char::is_whitespace) {
        Some((time, rest)) if time.starts_with(['+', '0', '1']) => rest.trim(),
        _ => line,
    };
    for (begin, end) in [("`", "`"), ("/*", "*/"), ("%{", "}%")] {
        if let Some(rest) = what.strip_prefix(begin) {
            *until = (!rest.contains(end)).then_some(end);
            return true;
        }
    }
    false
}

fn step(line: &str) -> Result<(When, Action), String> {
    // A call that waits has a range of times, and a packet may have one: it begins with the first.
    let begin = |time: &str| time.split(['~']).next().unwrap_or(time).split("...").next().map(str::to_owned);
    let begin = |time: &str| begin(time).unwrap_or_default();
    let is_time = |time: &str| begin(time).trim_start_matches('+').parse::<f64>().is_ok();
    let (time, rest) = match line.split_once(char::is_whitespace) {
        Some((time, rest)) if is_time(time) => (begin(time), rest.trim()),
        _ => ("+0".to_owned(), line),
    };
    let ns = |text: &str| {
        text.parse::<f64>().map(|seconds| (seconds * 1e9) as u64).map_err(|_| format!("time {text}"))
    };
    let when = match time.strip_prefix('+') {
        Some(after) => When::After(ns(after)?),
        None => When::Absolute(ns(&time)?),
    };
    let action = match rest.split_at_checked(1) {
        Some(("<", rest)) => Action::In(packet(rest)?),
        Some((">", rest)) => Action::Out(packet(rest)?),
        _ => call(rest)?,
    };
    Ok((when, action))
}

fn packet(text: &str) -> Result<Packet, String> {
    let (head, options) = match text.split_once('<') {
        Some((head, options)) => (head, Some(options.trim().trim_end_matches('>'))),
        None => (text, None),
    };
    let mut words = head.split_whitespace();
    let flags = words.next().ok_or("a packet without flags")?.to_owned();
    let range = words.next().ok_or("a packet without numbers")?;
    let (from, rest) = range.split_once(':').ok_or_else(|| format!("numbers {range}"))?;
    let payload = rest.split(['(', ')']).nth(1).ok_or_else(|| format!("numbers {range}"))?;
    let mut packet = Packet {
        flags,
        seq: number(from)?,
        payload: number(payload)?,
        ack: None,
        window: None,
        urgent: None,
        mss: None,
        scale: None,
        sack: false,
        timestamp: None,
        any_options: options.is_none_or(|text| text == "..."),
    };
    while let (Some(word), Some(value)) = (words.next(), words.next()) {
        match word {
            "ack" => packet.ack = Some(number(value)?),
            "win" => packet.window = Some(number(value)?),
            "urg" => packet.urgent = Some(number(value)?),
            _ => return Err(format!("unknown: {word}")),
        }
    }
    for option in options.filter(|text| *text != "...").into_iter().flat_map(|text| text.split(',')) {
        read_option(&mut packet, option.trim())?;
    }
    Ok(packet)
}

fn read_option(packet: &mut Packet, option: &str) -> Result<(), String> {
    let words: Vec<_> = option.split_whitespace().collect();
    match words.as_slice() {
        // The stack does not act on them as a sender, and those that it sends are not compared.
        ["nop" | "eol"] | ["sack", ..] => (),
        ["sackOK"] => packet.sack = true,
        ["mss", value] => packet.mss = Some(number(value)?),
        ["wscale", value] => packet.scale = Some(number(value)?),
        ["TS", "val", value, "ecr", echo] => packet.timestamp = Some((number(value)?, number(echo)?)),
        _ => return Err(format!("unknown option: {option}")),
    }
    Ok(())
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("not a number: {text}"))
}

fn call(text: &str) -> Result<Action, String> {
    let (name, rest) = text.split_once('(').ok_or_else(|| format!("unknown: {text}"))?;
    let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !name.is_empty();
    let (arguments, rest) =
        rest.rsplit_once(')').filter(|_| is_name).ok_or_else(|| format!("unknown: {text}"))?;
    let result = match rest.trim().strip_prefix('=') {
        Some(result) => {
            let word = result.split_whitespace().next().unwrap_or_default();
            if word == "?" { None } else { Some(number(word)?) }
        }
        None => None,
    };
    let arguments = arguments.split(',').map(|argument| argument.trim().to_owned()).collect();
    Ok(Action::Call { name: name.to_owned(), arguments, result })
}
