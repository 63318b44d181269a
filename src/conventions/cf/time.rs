//! CF times (`days since 1850-01-01`; CF 1.11, 4.4) as ISO 8601 dates.

use std::fmt::Write as _;

pub(crate) use crate::conventions::cf::calendar::UNIX_EPOCH;
use crate::conventions::cf::calendar::{Calendar, Date};
use crate::node::Value;

/// The unit, epoch and calendar of a time axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeUnits {
    calendar: Calendar,
    /// Microseconds per unit.
    unit: Unit,
    /// Microseconds from day 0 of the calendar.
    start: i128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Microseconds(i128),
    Nanoseconds,
}

const DAY: i128 = 86_400_000_000;

impl TimeUnits {
    /// Parses the attributes `units` and `calendar`; `None` if they do not define dates.
    pub(crate) fn of(units: &str, calendar: Option<&str>) -> Option<Self> {
        let mut words = units.split_whitespace();
        let unit = match &words.next()?.to_ascii_lowercase()[..] {
            "days" | "day" | "d" => Unit::Microseconds(DAY),
            "hours" | "hour" | "hrs" | "hr" | "h" => Unit::Microseconds(3_600_000_000),
            "minutes" | "minute" | "mins" | "min" => Unit::Microseconds(60_000_000),
            "seconds" | "second" | "secs" | "sec" | "s" => Unit::Microseconds(1_000_000),
            "milliseconds" | "millisecond" | "msec" | "ms" => Unit::Microseconds(1000),
            "microseconds" | "microsecond" => Unit::Microseconds(1),
            "nanoseconds" | "nanosecond" => Unit::Nanoseconds,
            _ => return None,
        };
        if !words.next()?.eq_ignore_ascii_case("since") {
            return None;
        }
        let calendar = Calendar::parse(calendar)?;
        let rest: Vec<&str> = words.collect();
        let start = start(&rest.join(" "), calendar)?;
        Some(Self {
            calendar,
            unit,
            start,
        })
    }

    /// Returns the date and time of a number; `None` outside of the years 1 to 9999.
    pub(crate) fn date(&self, value: Value) -> Option<String> {
        let since = match (value, self.unit) {
            (Value::Int(count), Unit::Microseconds(unit)) => count.checked_mul(unit)?,
            (Value::Int(count), Unit::Nanoseconds) => count.div_euclid(1000),
            (Value::Float(count), unit) => {
                let unit = match unit {
                    Unit::Microseconds(unit) => unit,
                    Unit::Nanoseconds => 0,
                };
                // The precision of a double for a time in days.
                let milliseconds = match unit {
                    0 => count / 1e6,
                    #[expect(clippy::cast_precision_loss, reason = "at most a day")]
                    unit => count * (unit as f64 / 1000.0),
                };
                if !milliseconds.is_finite() || milliseconds.abs() > 1e15 {
                    return None;
                }
                #[expect(clippy::cast_possible_truncation, reason = "checked")]
                let milliseconds = milliseconds.round() as i128;
                milliseconds * 1000
            }
        };
        let time = self.start.checked_add(since)?;
        let (year, month, day) = self.calendar.date(time.div_euclid(DAY))?;
        let time = time.rem_euclid(DAY);
        let mut text = format!("{year:04}-{month:02}-{day:02}");
        // Writing to a String is infallible.
        let second = time / 1_000_000;
        let (hour, minute) = (second / 3600, second / 60 % 60);
        let _ = write!(text, "T{hour:02}:{minute:02}:{:02}", second % 60);
        let part = time % 1_000_000;
        if part != 0 {
            let _ = write!(text, ".{}", format!("{part:06}").trim_end_matches('0'));
        }
        Some(text)
    }
}

/// Parses `2000-1-1`, with an optional time of day in UTC.
fn start(text: &str, calendar: Calendar) -> Option<i128> {
    let text = text.trim().trim_end_matches(" UTC").trim_end_matches('Z');
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, time.trim()),
        None => (text, ""),
    };
    let mut numbers = date.split('-').map(|word| word.parse::<u16>());
    let year = i128::from(numbers.next()?.ok()?);
    let month = i128::from(numbers.next()?.ok()?);
    let day = i128::from(numbers.next()?.ok()?);
    if numbers.next().is_some() || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let number = calendar.day((year, month, day));
    // The day must exist in the calendar.
    if calendar.date(number)? != (year, month, day) {
        return None;
    }
    let time = ["+00:00", "+0000", "+00", "+0:00", "-00:00"]
        .iter()
        .find_map(|zone| time.strip_suffix(zone))
        .unwrap_or(time);
    let mut seconds = 0.0;
    if !time.trim().is_empty() {
        let mut words = time.trim().split(':');
        let hour: u32 = words.next()?.parse().ok()?;
        let minute: u32 = words.next().map_or(Ok(0), str::parse).ok()?;
        let second: f64 = words.next().map_or(Ok(0.0), str::parse).ok()?;
        let is_time = hour < 24 && minute < 60 && (0.0..60.0).contains(&second);
        if words.next().is_some() || !is_time {
            return None;
        }
        seconds = f64::from(hour * 3600 + minute * 60) + second;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below a day")]
    let micros = (seconds * 1e6).round() as i128;
    Some(number * DAY + micros)
}

/// Returns the date of a day in the proleptic Gregorian calendar; `None` outside of the years 1 to 9999.
pub(crate) fn gregorian_date(day: i128) -> Option<Date> {
    Calendar::Gregorian.date(day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(units: &str, calendar: &str, value: Value) -> Option<String> {
        let calendar = (!calendar.is_empty()).then_some(calendar);
        TimeUnits::of(units, calendar)?.date(value)
    }

    #[test]
    fn times_of_cf_are_dates_of_their_calendar() {
        let int = Value::Int;
        // As in cftime 1.6.
        for (units, calendar, value, expected) in [
            (
                "days since 1850-01-01",
                "noleap",
                int(60_000),
                "2014-05-21T00:00:00",
            ),
            (
                "days since 1850-01-01",
                "360_day",
                int(59),
                "1850-02-30T00:00:00",
            ),
            (
                "days since 2001-01-01",
                "all_leap",
                int(59),
                "2001-02-29T00:00:00",
            ),
            ("days since 2000-01-01", "", int(59), "2000-02-29T00:00:00"),
            (
                "hours since 1900-01-01 00:00:00.0",
                "gregorian",
                int(1_051_896),
                "2020-01-01T00:00:00",
            ),
            (
                "days since 1582-10-04",
                "standard",
                int(1),
                "1582-10-15T00:00:00",
            ),
            (
                "days since 1582-10-04",
                "proleptic_gregorian",
                int(1),
                "1582-10-05T00:00:00",
            ),
            (
                "hours since 1-1-1 00:00:0.0",
                "standard",
                int(17_347_824),
                "1980-01-11T00:00:00",
            ),
            (
                "days since 1900-02-28",
                "julian",
                int(1),
                "1900-02-29T00:00:00",
            ),
            (
                "days since 2000-01-01T12:00:00Z",
                "",
                Value::Float(0.25),
                "2000-01-01T18:00:00",
            ),
            (
                "seconds since 1970-01-01 00:00 UTC",
                "",
                Value::Float(1.5),
                "1970-01-01T00:00:01.5",
            ),
            (
                "nanoseconds since 1970-01-01",
                "",
                int(-1000),
                "1969-12-31T23:59:59.999999",
            ),
            (
                "minutes since 2000-01-01 00:00:00 +00:00",
                "",
                int(-1),
                "1999-12-31T23:59:00",
            ),
        ] {
            let found = date(units, calendar, value);
            assert_eq!(found.as_deref(), Some(expected), "{units} {calendar}");
        }
    }

    #[test]
    fn invalid_dates_are_none() {
        let int = Value::Int;
        for (units, calendar, value) in [
            ("months since 2000-01-01", "", int(1)),
            ("days", "", int(1)),
            ("days since 2000-02-30", "", int(1)),
            ("days since 2000-01-01", "tai", int(1)),
            ("days since 2000-01-01 00:00 +02:00", "", int(1)),
            ("days since 2000-01-01", "", Value::Float(f64::NAN)),
            ("days since 2000-01-01", "", int(i128::MAX)),
            ("days since 2000-01-01", "", int(10_000_000)),
            ("days since 1582-10-10", "standard", int(0)),
        ] {
            assert_eq!(date(units, calendar, value), None, "{units} {calendar}");
        }
    }
}
