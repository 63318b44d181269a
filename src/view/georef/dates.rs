//! CF times (`days since 1850-01-01`; CF 1.11, 4.4) as ISO 8601 dates.

use std::fmt::Write as _;

use crate::view::number::Value;

/// The unit, epoch and calendar of a time axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeUnits {
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Calendar {
    /// Julian until 4 October 1582, Gregorian from the next day, 15 October.
    Standard,
    Gregorian,
    Julian,
    /// Years of a constant length: 365 or 366 days.
    Constant(i128),
    /// Months of 30 days.
    Days360,
}

const DAY: i128 = 86_400_000_000;
const MONTHS: [i128; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
/// Day 0 of the Julian and Gregorian calendars is here 1 March of year 0 of the Gregorian calendar.
const GREGORIAN_BEGINS: i128 = gregorian_day(1582, 10, 15);
pub(super) const UNIX_EPOCH: i128 = gregorian_day(1970, 1, 1);

impl TimeUnits {
    /// Parses the attributes `units` and `calendar`; `None` if they do not define dates.
    pub fn of(units: &str, calendar: Option<&str>) -> Option<Self> {
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
        let calendar = match calendar.map(str::to_ascii_lowercase).as_deref() {
            None | Some("standard" | "gregorian") => Calendar::Standard,
            Some("proleptic_gregorian") => Calendar::Gregorian,
            Some("julian") => Calendar::Julian,
            Some("noleap" | "365_day") => Calendar::Constant(365),
            Some("all_leap" | "366_day") => Calendar::Constant(366),
            Some("360_day") => Calendar::Days360,
            Some(_) => return None,
        };
        let rest: Vec<&str> = words.collect();
        let start = start(&rest.join(" "), calendar)?;
        Some(Self {
            calendar,
            unit,
            start,
        })
    }

    /// Returns the date and time of a number; `None` outside of the years 1 to 9999.
    pub fn date(&self, value: Value) -> Option<String> {
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
    let number = calendar.day(year, month, day);
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

/// Returns the day number, with years that begin in March, in eras of 400 years (H. Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms").
const fn gregorian_day(year: i128, month: i128, day: i128) -> i128 {
    let year = if month <= 2 { year - 1 } else { year };
    365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + day_of_year(month, day)
}

/// Returns the day number. Both calendars have the same date on 1 March of the year 200.
const fn julian_day(year: i128, month: i128, day: i128) -> i128 {
    let year = if month <= 2 { year - 1 } else { year };
    365 * year + year.div_euclid(4) - 2 + day_of_year(month, day)
}

const fn day_of_year(month: i128, day: i128) -> i128 {
    let month = if month > 2 { month - 3 } else { month + 9 };
    (153 * month + 2) / 5 + day - 1
}

/// Returns the year, month and day of a day in the proleptic Gregorian calendar; `None` outside of the years
/// 1 to 9999.
pub(super) fn gregorian_date(day: i128) -> Option<(i128, i128, i128)> {
    Calendar::Gregorian.date(day)
}

impl Calendar {
    fn day(self, year: i128, month: i128, day: i128) -> i128 {
        match self {
            Self::Gregorian => gregorian_day(year, month, day),
            Self::Julian => julian_day(year, month, day),
            Self::Standard if (year, month, day) >= (1582, 10, 15) => {
                gregorian_day(year, month, day)
            }
            Self::Standard => julian_day(year, month, day),
            Self::Days360 => year * 360 + (month - 1) * 30 + day - 1,
            Self::Constant(days) => {
                let before = MONTHS.iter().zip(1..month).map(|(days, _)| days);
                let leap = i128::from(days == 366 && month > 2);
                year * days + before.sum::<i128>() + leap + day - 1
            }
        }
    }

    /// Returns the date of a day.
    fn date(self, number: i128) -> Option<(i128, i128, i128)> {
        let (year, rest) = match self {
            Self::Days360 => (number.div_euclid(360), number.rem_euclid(360)),
            Self::Constant(days) => (number.div_euclid(days), number.rem_euclid(days)),
            Self::Standard if number >= GREGORIAN_BEGINS => return Self::Gregorian.date(number),
            Self::Standard => return Self::Julian.date(number),
            Self::Gregorian | Self::Julian => {
                let (day, length) = match self {
                    Self::Julian => (number + 2, 1461),
                    _ => (number, 146_097),
                };
                let (era, in_era) = (day.div_euclid(length), day.rem_euclid(length));
                let centuries = match self {
                    Self::Julian => 0,
                    _ => in_era / 36_524 - in_era / 146_096,
                };
                let year = (in_era - in_era / 1460 + centuries) / 365;
                let century = match self {
                    Self::Julian => 0,
                    _ => year / 100,
                };
                let in_year = in_era - (365 * year + year / 4 - century);
                let month = (5 * in_year + 2) / 153;
                let day = in_year - (153 * month + 2) / 5 + 1;
                let month = if month < 10 { month + 3 } else { month - 9 };
                let years = if length == 1461 { 4 } else { 400 };
                let year = year + years * era + i128::from(month <= 2);
                return (1..=9999).contains(&year).then_some((year, month, day));
            }
        };
        if !(1..=9999).contains(&year) {
            return None;
        }
        if self == Self::Days360 {
            return Some((year, rest / 30 + 1, rest % 30 + 1));
        }
        let mut rest = rest;
        for (month, days) in (1..).zip(MONTHS) {
            let days = days + i128::from(self == Self::Constant(366) && month == 2);
            if rest < days {
                return Some((year, month, rest + 1));
            }
            rest -= days;
        }
        None
    }
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
