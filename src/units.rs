//! Parsers of sizes, times and modes on the command line, names like a mistyped one, and the format of dates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest edit distance between similar names.
const MAX_EDITS: usize = 2;

/// Returns the name that is most similar to `word`, if any is similar.
#[must_use]
pub fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distances = names.map(|name| (strsim::damerau_levenshtein(word, name), name));
    let (edits, name) = distances.min()?;
    (edits <= MAX_EDITS).then_some(name)
}

/// Parses a size: `4096`, `64k`, `64KiB`, `1.5G`; the units are powers of 1024.
///
/// # Errors
/// A message with examples.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let scale: u64 = match unit
        .to_ascii_lowercase()
        .trim_end_matches("ib")
        .trim_end_matches('b')
    {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return Err(format!("`{text}` is not a size such as 4096, 64KiB or 2G")),
    };
    scaled(number, scale).ok_or_else(|| format!("`{text}` is not a size such as 4096, 64KiB or 2G"))
}

/// The smallest memory limit in bytes: documents and text files of views would not fit in less.
const MIN_MEMORY_LIMIT_BYTES: u64 = 1 << 20;

/// Parses a memory limit, as [`parse_size`].
///
/// # Errors
/// A message with examples, or with the smallest limit.
pub fn parse_memory_limit(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < MIN_MEMORY_LIMIT_BYTES => Err(format!("`{text}` is less than 1MiB")),
        bytes => Ok(bytes),
    }
}

/// Parses the ID of a user or a group.
///
/// # Errors
/// A message with the expected form.
pub fn parse_id(text: &str) -> Result<u32, String> {
    // chown(2) interprets the largest value as "unchanged".
    match text.parse() {
        Ok(number) if number < u32::MAX => Ok(number),
        _ => Err(format!(
            "`{text}` is not the number of a user or a group; names are not accepted (`id -u NAME` and \
             `getent group NAME` print the numbers)"
        )),
    }
}

/// Parses a time: `30`, `1.5s`, `500ms`, `2m`, `1h`, `1d`, or `inf`, which is [`FOREVER`].
///
/// # Errors
/// A message with examples.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    if text == "inf" {
        return Ok(FOREVER);
    }
    let (number, unit) = split(text);
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => {
            return Err(format!(
                "`{text}` is not a time such as 500ms, 30s, 2m or inf"
            ));
        }
    };
    scaled(number, milliseconds)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is not a time such as 500ms, 30s, 2m or inf"))
}

/// Parses a time limit, which must not be 0.
///
/// # Errors
/// The errors of [`parse_time`], and an error for 0.
pub fn parse_timeout(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        Duration::ZERO => Err("a time limit of 0 is not possible".into()),
        time => Ok(time),
    }
}

/// The value of `inf`: 10 years, longer than a mount is likely to last.
pub const FOREVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Checks a log level, or log filters in the syntax of env_logger.
///
/// # Errors
/// If a word is not a log level. env_logger would interpret it as a module and log nothing.
pub fn parse_log_filter(text: &str) -> Result<String, String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let is_level = |word: &str| LEVELS.iter().any(|level| word.eq_ignore_ascii_case(level));
    let mut filters = text.split(',').map(str::trim);
    let is_good = filters.all(|filter| match filter.rsplit_once('=') {
        Some((module, level)) => !module.is_empty() && is_level(level),
        None => is_level(filter) || filter.contains("::") || filter == "zarrfs",
    });
    match is_good {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "`{text}` is neither one of {} nor a filter such as zarrfs::store=debug",
            LEVELS.join(", ")
        )),
    }
}

/// Parses permission bits in octal.
///
/// # Errors
/// A message with an example.
pub fn parse_umask(text: &str) -> Result<u16, String> {
    match u16::from_str_radix(text, 8) {
        Ok(mask) if mask <= 0o777 => Ok(mask),
        _ => Err(format!("`{text}` is not a mask such as 022")),
    }
}

fn split(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text.split_at(end)
}

/// Returns `number` times `scale`, rounded down.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    if fraction.is_empty() {
        return (!number.contains('.')).then_some(whole);
    }
    let digits = u32::try_from(fraction.len())
        .ok()
        .filter(|digits| *digits <= 6)?;
    let part = fraction
        .parse::<u64>()
        .ok()?
        .checked_mul(scale)?
        .checked_div(10_u64.checked_pow(digits)?)?;
    whole.checked_add(part)
}

/// Formats a time in UTC with a resolution of one second, as in RFC 3339.
pub fn date(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // Days in eras of 400 years, which begin on 1 March 0000.
    let days = days.saturating_add(719_468);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = match month {
        0..=9 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    let year = era * 400 + year + next;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_limit_has_room_for_documents() {
        assert_eq!(parse_memory_limit("1M"), Ok(1 << 20));
        assert_eq!(parse_memory_limit("0"), Err("`0` is less than 1MiB".into()));
        assert!(parse_memory_limit("x").is_err());
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            ("64k", 65536),
            ("64KiB", 65536),
            ("1.5G", 3 << 29),
            ("2MB", 2 << 20),
        ] {
            assert_eq!(parse_size(text), Ok(size), "{text}");
        }
        for text in [
            "",
            "k",
            "-1",
            "1x",
            "1.",
            "99999999999999999999",
            "99999999999T",
            "1 k",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_have_units() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("1", 1000),
            ("1.5s", 1500),
            ("2m", 120_000),
            ("0", 0),
        ] {
            assert_eq!(
                parse_time(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        assert_eq!(parse_time("inf"), Ok(FOREVER));
        assert!(
            parse_time("soon").is_err() && parse_time("1y").is_err() && parse_time("").is_err()
        );
    }

    #[test]
    fn an_invalid_log_filter_is_refused() {
        for text in [
            "debug",
            "WARN",
            "zarrfs::store=trace",
            "info,zarrfs::fuse=off",
            "zarrfs",
        ] {
            assert_eq!(parse_log_filter(text).as_deref(), Ok(text));
        }
        for text in ["", "nonsense", "debg", "zarrfs=loud", "=debug", "debug,"] {
            assert!(parse_log_filter(text).is_err(), "{text}");
        }
    }

    #[test]
    fn masks_are_octal() {
        assert_eq!(parse_umask("022"), Ok(0o22));
        assert!(
            parse_umask("9").is_err() && parse_umask("1777").is_err() && parse_umask("-1").is_err()
        );
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_795_373_499, "2026-11-22T18:51:39Z"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}
