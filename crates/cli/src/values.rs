//! Values as people write them: `25/s`, `110KB`, `80ms`. One parser for all verbs.

use punctual::{Activation, Address, FlowName, Name, Ppb};
use punctual_analysis::{BitRate, Nanos, Rate};

/// Smallest and largest payload of a packet ([node] fragment).
const FRAGMENT_BYTES_MIN: u32 = 64;
const FRAGMENT_BYTES_MAX: u32 = 65_443;

/// Splits "12.5KB" into its number and its unit.
fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number = text[..end].parse::<f64>().map_err(|_| match text.starts_with('-') {
        true => format!("\"{text}\" is negative: give it without the '-'"),
        false => format!("\"{text}\" does not begin with a number"),
    })?;
    Ok((number, text[end..].trim()))
}

fn whole(number: f64, factor: f64, text: &str, most: f64) -> Result<u64, String> {
    let value = (number * factor).round();
    if value.is_finite() && (0.0..=most).contains(&value) {
        Ok(value as u64)
    } else {
        Err(format!("\"{text}\" is out of range: give less"))
    }
}

/// Bytes, with their unit: `1400B`, `110KB` (1,000), `64KiB` (1,024), `1MB`, `1MiB`.
///
/// # Errors
/// The expected form.
pub fn bytes(text: &str) -> Result<u32, String> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "B" => 1.0,
        "KB" | "kB" | "K" | "k" => 1e3,
        "KiB" => 1024.0,
        "MB" | "M" => 1e6,
        "MiB" => 1_048_576.0,
        "GB" | "G" => 1e9,
        "GiB" => 1_073_741_824.0,
        _ => return Err(format!("\"{text}\": give bytes with their unit as 256B, 110KB, 64KiB or 1MB")),
    };
    whole(number, factor, text, f64::from(u32::MAX)).map(|bytes| bytes as u32)
}

/// A span of time: `80ms`, `200us`, `1s`, `500ns`, `2min`.
///
/// # Errors
/// The expected form.
pub fn span(text: &str) -> Result<Nanos, String> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3_600e9,
        _ => return Err(format!("\"{text}\": give a time as 80ms, 200us, 1s or 2min")),
    };
    whole(number, factor, text, 1e18).map(Nanos)
}

/// A message rate: `25/s`, `30000/1001/s`, `10/min`, or the time between messages: `40ms`.
///
/// # Errors
/// The expected form.
pub fn rate(text: &str) -> Result<Rate, String> {
    let help =
        || format!("\"{text}\": give a rate as 25/s, 10/min or 30000/1001/s, or the time between as 40ms");
    let Some((count, unit)) = text.trim().rsplit_once('/') else {
        return span(text).ok().and_then(Rate::every).ok_or_else(help);
    };
    let seconds = match unit.trim() {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return Err(help()),
    };
    let count = match count.split_once('/') {
        Some((over, under)) => number(over).zip(number(under)).map(|(over, under)| over / under),
        None => number(count),
    };
    let interval = count.filter(|count| *count > 0.0).map(|count| seconds * 1e9 / count).ok_or_else(help)?;
    Rate::every(Nanos(whole(interval, 1.0, text, 1e18)?)).ok_or_else(help)
}

/// A bit rate: `20Mbit/s`, `1Gbit/s`.
///
/// # Errors
/// The expected form.
pub fn bit_rate(text: &str) -> Result<BitRate, String> {
    let help = || format!("\"{text}\": give a rate as 20Mbit/s (bit/s, kbit/s, Mbit/s, Gbit/s)");
    let at = text.trim().find(|c: char| c.is_ascii_alphabetic()).ok_or_else(help)?;
    let (count, unit) = text.trim().split_at(at);
    let factor = match unit {
        "bit/s" => 1.0,
        "kbit/s" => 1e3,
        "Mbit/s" => 1e6,
        "Gbit/s" => 1e9,
        _ => return Err(help()),
    };
    let count = number(count).filter(|count| *count > 0.0).ok_or_else(help)?;
    whole(count, factor, text, 1e18).map(BitRate)
}

/// A listener: `cam@hostb`.
///
/// # Errors
/// The expected form.
pub fn address(text: &str) -> Result<Address, String> {
    let Some((port, host)) = text.split_once('@').filter(|(port, host)| !port.is_empty() && !host.is_empty())
    else {
        return Err(format!("\"{text}\": give a listener and its host as cam@hostb"));
    };
    Ok(Address { port: name(port)?, host: name(host)? })
}

/// The name of a listener or of a host.
///
/// # Errors
/// The expected form.
pub fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}

/// The activation of handlers: `deadline`, `low-latency:10ms,4`, `periodic:10ms,8`.
///
/// # Errors
/// The expected form.
pub fn activation(text: &str) -> Result<Activation, String> {
    if text == "deadline" {
        return Ok(Activation::Deadline);
    }
    let help =
        || format!("\"{text}\": give deadline, low-latency:10ms,4 or periodic:10ms,8 (a time and packets)");
    let (kind, rest) = text.split_once(':').ok_or_else(help)?;
    let (every, packets) = rest.split_once(',').ok_or_else(help)?;
    let every = span(every).map_err(|_| help())?;
    let packets =
        count(packets.trim()).ok().and_then(|packets| u32::try_from(packets).ok()).ok_or_else(help)?;
    match kind.trim() {
        "low-latency" => Ok(Activation::LowLatency { interarrival: every, packets }),
        "periodic" => Ok(Activation::Periodic { period: every, packets }),
        _ => Err(help()),
    }
}

/// The name of a planned flow.
///
/// # Errors
/// The expected form.
pub fn flow(text: &str) -> Result<FlowName, String> {
    FlowName::new(text).map_err(|error| error.to_string())
}

/// A share of a whole: `0.1%`, `1e-4`.
///
/// # Errors
/// The expected form.
pub fn share(text: &str) -> Result<Ppb, String> {
    let help = || format!("\"{text}\": give a share as 0.1% or 1e-4, above 0 and below 1");
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    };
    let parts = share.map(|share| (share * 1e9).round()).filter(|parts| *parts < 1e9);
    parts.and_then(|parts| Ppb::new(parts as u32)).ok_or_else(help)
}

/// A count of at least one.
///
/// # Errors
/// The expected form.
pub fn count(text: &str) -> Result<u64, String> {
    let help = || format!("\"{text}\": give a whole number of at least 1");
    text.parse::<u64>().ok().filter(|count| *count > 0).ok_or_else(help)
}

/// Payload of a packet, as the configuration allows it.
///
/// # Errors
/// The expected form.
pub fn fragment(text: &str) -> Result<u32, String> {
    let range = FRAGMENT_BYTES_MIN..=FRAGMENT_BYTES_MAX;
    let help = || format!("\"{text}\": give {} B to {} B", range.start(), range.end());
    bytes(text).and_then(|bytes| Some(bytes).filter(|bytes| range.contains(bytes)).ok_or_else(help))
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_rates_have_their_unit() {
        let bits = |text| bit_rate(text).map(|rate| rate.0);
        assert_eq!(bits("20Mbit/s"), Ok(20_000_000));
        assert_eq!(bits(" 1.5 Gbit/s "), Ok(1_500_000_000));
        assert_eq!([bits("8kbit/s"), bits("1bit/s")], [Ok(8_000), Ok(1)]);
        for wrong in ["20", "0Mbit/s", "-1Mbit/s", "20MB/s", "Mbit/s", "nan bit/s", ""] {
            let error = bit_rate(wrong).expect_err(wrong);
            assert!(error.contains("20Mbit/s"), "{error}");
        }
    }

    #[test]
    fn what_people_write() {
        assert_eq!(bytes("110KB"), Ok(110_000));
        assert_eq!(bytes("64 KiB"), Ok(65_536));
        assert_eq!(bytes("1400B"), Ok(1_400));
        assert_eq!(address("cam@hostb").map(|address| address.to_string()), Ok("cam@hostb".into()));
        assert_eq!(count("7"), Ok(7));
        assert_eq!(
            (share("0.1%"), share("1e-4")),
            (Ok(Ppb::new(1_000_000).unwrap()), Ok(Ppb::new(100_000).unwrap()))
        );
        assert!(share("0").is_err() && share("100%").is_err() && share("few").is_err());
        assert_eq!(fragment("1400B"), Ok(1_400));
        assert_eq!(span("80ms"), Ok(Nanos::from_millis(80)));
        assert_eq!(span("1.5s"), Ok(Nanos::from_millis(1_500)));
        assert_eq!(rate("25/s"), Ok(Rate::per_second(25).unwrap()));
        assert_eq!(rate("40ms"), Ok(Rate::per_second(25).unwrap()));
        assert_eq!(rate("30000/1001/s").unwrap().interval(), Nanos(33_366_667));
        assert_eq!(rate("6/min").unwrap().interval(), Nanos::from_secs(10));
        let interarrival = Nanos::from_millis(10);
        assert_eq!(activation("low-latency:10ms,4"), Ok(Activation::LowLatency { interarrival, packets: 4 }));
        assert!(matches!(activation("periodic:2ms, 8"), Ok(Activation::Periodic { packets: 8, .. })));
        assert_eq!(activation("deadline"), Ok(Activation::Deadline));
    }

    #[test]
    fn what_they_should_not() {
        for text in ["", "ms", "12", "-5ms", "5 parsecs", "1e400s"] {
            assert!(span(text).is_err(), "{text}");
        }
        for text in ["0/s", "x/s", "5/fortnight", "1/0/s", "0ms"] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["cam", "cam@", "@hostb", "c/m@hostb", "cam@host b"] {
            assert!(address(text).is_err(), "{text}");
        }
        for text in ["0", "-1", "x", ""] {
            assert!(count(text).is_err(), "{text}");
        }
        for text in ["0B", "1400", "63B", "64KiB"] {
            assert!(fragment(text).is_err(), "{text}");
        }
        for text in ["", "periodic", "periodic:10ms", "periodic:10ms,0", "rmdp:10ms,1", "low-latency:4,10ms"]
        {
            assert!(activation(text).is_err(), "{text}");
        }
        for text in ["", "110", "0", "110 bytes", "-1B"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert!(bytes("110").is_err_and(|why| why.contains("110KB")));
        assert!(bytes("5GB").is_err());
        assert!(bytes("99999MB").is_err());
    }
}
