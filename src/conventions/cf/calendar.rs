//! The calendars of CF (CF 1.11, 4.4.1). Day 0 of the Gregorian and Julian calendars is 1 March of the Gregorian
//! year 0.

/// A year, month and day.
pub(crate) type Date = (i128, i128, i128);

/// A calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calendar {
    /// Julian until 4 October 1582, Gregorian from the next day, 15 October.
    Standard,
    /// The proleptic Gregorian calendar.
    Gregorian,
    Julian,
    /// Years of a constant length: 365 or 366 days.
    Constant(i128),
    /// Months of 30 days.
    Days360,
}

const MONTHS: [i128; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
const GREGORIAN_BEGINS: i128 = gregorian_day(1582, 10, 15);
/// The day 1 January 1970 of the Gregorian calendar.
pub(crate) const UNIX_EPOCH: i128 = gregorian_day(1970, 1, 1);

impl Calendar {
    /// Parses the attribute `calendar`; `None` for any other name.
    pub(crate) fn parse(name: Option<&str>) -> Option<Self> {
        Some(match name.map(str::to_ascii_lowercase).as_deref() {
            None | Some("standard" | "gregorian") => Self::Standard,
            Some("proleptic_gregorian") => Self::Gregorian,
            Some("julian") => Self::Julian,
            Some("noleap" | "365_day") => Self::Constant(365),
            Some("all_leap" | "366_day") => Self::Constant(366),
            Some("360_day") => Self::Days360,
            Some(_) => return None,
        })
    }

    /// Returns the day of a date, which need not exist in the calendar.
    pub(crate) fn day(self, (year, month, day): Date) -> i128 {
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

    /// Returns the date of a day; `None` outside of the years 1 to 9999.
    pub(crate) fn date(self, day: i128) -> Option<Date> {
        let date = match self {
            Self::Gregorian => gregorian_date(day),
            Self::Standard if day >= GREGORIAN_BEGINS => gregorian_date(day),
            Self::Standard | Self::Julian => julian_date(day),
            Self::Days360 => {
                let in_year = day.rem_euclid(360);
                (day.div_euclid(360), in_year / 30 + 1, in_year % 30 + 1)
            }
            Self::Constant(days) => constant_date(days, day),
        };
        (1..=9999).contains(&date.0).then_some(date)
    }
}

/// Returns the day of a date in the proleptic Gregorian calendar, with years that begin in March (H. Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms").
const fn gregorian_day(year: i128, month: i128, day: i128) -> i128 {
    let year = if month <= 2 { year - 1 } else { year };
    365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + day_of_year(month, day)
}

/// Returns the day of a date in the Julian calendar. It has the dates of the Gregorian calendar on 1 March of
/// the year 200.
const fn julian_day(year: i128, month: i128, day: i128) -> i128 {
    let year = if month <= 2 { year - 1 } else { year };
    365 * year + year.div_euclid(4) - 2 + day_of_year(month, day)
}

/// Returns the day of a year that begins in March.
const fn day_of_year(month: i128, day: i128) -> i128 {
    let month = if month > 2 { month - 3 } else { month + 9 };
    (153 * month + 2) / 5 + day - 1
}

/// Returns the date of a day in the proleptic Gregorian calendar, which has eras of 400 years.
pub(crate) fn gregorian_date(day: i128) -> Date {
    let (era, in_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    date_of_year(400 * era + year, in_year)
}

/// Returns the date of a day in the Julian calendar, which has eras of 4 years.
fn julian_date(day: i128) -> Date {
    let day = day + 2;
    let (era, in_era) = (day.div_euclid(1461), day.rem_euclid(1461));
    let year = (in_era - in_era / 1460) / 365;
    date_of_year(4 * era + year, in_era - 365 * year)
}

/// Returns the date of a day of a year that begins in March.
fn date_of_year(year: i128, day: i128) -> Date {
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + i128::from(month <= 2), month, day)
}

/// Returns the date of a day in a calendar whose years have 365 or 366 days.
fn constant_date(days: i128, day: i128) -> Date {
    let (mut month, mut in_month) = (1, day.rem_euclid(days));
    for length in MONTHS {
        let length = length + i128::from(days == 366 && month == 2);
        if in_month < length {
            break;
        }
        in_month -= length;
        month += 1;
    }
    (day.div_euclid(days), month, in_month + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_days_of_dates_follow_each_other() {
        for calendar in [
            Calendar::Standard,
            Calendar::Gregorian,
            Calendar::Julian,
            Calendar::Constant(365),
            Calendar::Constant(366),
            Calendar::Days360,
        ] {
            let first = calendar.day((1560, 1, 1));
            let days = first..first + 100_000;
            let dates: Vec<Date> = days.clone().filter_map(|day| calendar.date(day)).collect();
            assert!(dates.is_sorted_by(|a, b| a < b), "{calendar:?}");
            assert!(dates.iter().map(|date| calendar.day(*date)).eq(days));
            let [first, last] = [(1, 1, 1), (9999, 12, 30)].map(|date| calendar.day(date));
            assert_eq!(calendar.date(first - 1), None);
            assert_eq!(calendar.date(last + 2), None);
        }
        assert_eq!(gregorian_date(UNIX_EPOCH), (1970, 1, 1));
        assert_eq!(gregorian_date(-1), (0, 2, 29));
    }
}
