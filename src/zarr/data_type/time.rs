//! Units of `datetime64` and `timedelta64`.

use std::fmt;

/// The unit of a `datetime64` or `timedelta64`: a multiple of a base unit, as in `M8[25us]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeUnit {
    /// Number of base units per step, 1 to 2^31 - 1.
    pub count: u32,
    /// The base unit.
    pub base: TimeBase,
}

/// The maximum number of base units per step, which is numpy's.
pub(super) const MAX_STEP: u32 = i32::MAX.cast_unsigned();

/// numpy's units of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub enum TimeBase {
    Year,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
    Picosecond,
    Femtosecond,
    Attosecond,
    /// No unit.
    Generic,
}

impl fmt::Display for TimeUnit {
    /// Writes the unit as in a numpy type: `[ns]`, `[25us]`; nothing for a generic unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.base, self.count) {
            (TimeBase::Generic, _) => Ok(()),
            (base, 1) => write!(f, "[{}]", base.symbol()),
            (base, count) => write!(f, "[{count}{}]", base.symbol()),
        }
    }
}

impl TimeBase {
    /// Returns numpy's abbreviation.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Year => "Y",
            Self::Month => "M",
            Self::Week => "W",
            Self::Day => "D",
            Self::Hour => "h",
            Self::Minute => "m",
            Self::Second => "s",
            Self::Millisecond => "ms",
            Self::Microsecond => "us",
            Self::Nanosecond => "ns",
            Self::Picosecond => "ps",
            Self::Femtosecond => "fs",
            Self::Attosecond => "as",
            Self::Generic => "generic",
        }
    }

    /// Returns the unit of an abbreviation; `μs` is an alias.
    pub fn from_symbol(symbol: &str) -> Option<Self> {
        Some(match symbol {
            "Y" => Self::Year,
            "M" => Self::Month,
            "W" => Self::Week,
            "D" => Self::Day,
            "h" => Self::Hour,
            "m" => Self::Minute,
            "s" => Self::Second,
            "ms" => Self::Millisecond,
            "us" | "\u{3bc}s" | "\u{b5}s" => Self::Microsecond,
            "ns" => Self::Nanosecond,
            "ps" => Self::Picosecond,
            "fs" => Self::Femtosecond,
            "as" => Self::Attosecond,
            "generic" => Self::Generic,
            _ => return None,
        })
    }
}

impl TimeUnit {
    /// Parses `[ns]`, `[25us]`, `[generic]`, or an empty text for a generic unit.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self {
                count: 1,
                base: TimeBase::Generic,
            });
        }
        let text = text.strip_prefix('[')?.strip_suffix(']')?;
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (count, symbol) = text.split_at(digits);
        let count = match count {
            "" => 1,
            count => count
                .parse()
                .ok()
                .filter(|count| (1..=MAX_STEP).contains(count))?,
        };
        Some(Self {
            count,
            base: TimeBase::from_symbol(symbol)?,
        })
    }
}
