//! How requests of a simulation fail.

use crate::runtime::simulated::below;

/// How one request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// The server does not accept the connection.
    Refused,
    /// The connection ends before the response.
    Reset,
    /// The response has this status, and asks to wait for this number of seconds.
    Status(u16, Option<u64>),
    /// No response arrives.
    StalledHeaders,
    /// The rest of a body never arrives.
    StalledBody,
    /// The connection breaks within a body.
    BrokenBody,
    /// A body ends early, without an error.
    ShortBody,
    /// A body is longer than the server says.
    LongBody,
    /// The server ignores the range of the request (200).
    WholeValue,
    /// The server sends another range, and says so.
    OtherRange,
    /// The server says that the range does not exist.
    NoSuchRange,
    /// The server ignores `If-Match` and `If-None-Match`.
    NoConditions,
}

const FAULTS: [Fault; 16] = [
    Fault::Refused,
    Fault::Reset,
    Fault::Status(503, None),
    Fault::Status(503, Some(1)),
    Fault::Status(429, None),
    Fault::Status(500, None),
    Fault::Status(403, None),
    Fault::StalledHeaders,
    Fault::StalledBody,
    Fault::BrokenBody,
    Fault::ShortBody,
    Fault::LongBody,
    Fault::WholeValue,
    Fault::OtherRange,
    Fault::NoSuchRange,
    Fault::NoConditions,
];

/// Which faults occur, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Faults {
    kinds: Vec<Fault>,
    /// The number of requests in a thousand that fail.
    per_mille: u64,
    /// Whether some responses take long.
    is_slow: bool,
}

impl Faults {
    /// Returns that no request fails.
    pub(crate) fn none() -> Self {
        Self {
            kinds: Vec::new(),
            per_mille: 0,
            is_slow: false,
        }
    }

    /// Returns random kinds of faults of a random frequency.
    pub(crate) fn random() -> Self {
        let share = 1 + below(4);
        let kinds = FAULTS.into_iter().filter(|_| below(4) < share);
        let mut kinds: Vec<Fault> = kinds.collect();
        // What arrives in several parts is seldom replaced between two of them, unless many bodies end early.
        if below(4) == 0 {
            kinds = vec![Fault::BrokenBody, Fault::ShortBody];
        }
        let per_mille = match kinds.is_empty() {
            true => 0,
            false => [0, 30, 100, 300][usize::try_from(below(4)).unwrap_or(0)],
        };
        Self {
            kinds,
            per_mille,
            is_slow: below(2) == 0,
        }
    }

    /// Returns whether no request fails.
    pub(crate) fn is_none(&self) -> bool {
        self.per_mille == 0 && !self.is_slow
    }

    /// Returns whether some responses take long.
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow
    }

    /// Returns how the next request fails.
    pub(super) fn next(&self) -> Fault {
        let is_faulty = below(1000) < self.per_mille;
        let index = usize::try_from(below(self.kinds.len() as u64)).unwrap_or(0);
        let fault = self.kinds.get(index).filter(|_| is_faulty);
        fault.copied().unwrap_or(Fault::None)
    }
}
