//! The terminal of standard output: its size, and its protocol for pictures.
//!
//! Variables of the environment do not follow through `ssh`, so the terminal itself is asked. The last request, for its
//! device attributes, is one that every terminal answers: what is not answered before is not supported.

use std::env;
use std::io::{self, IsTerminal};
use std::time::Duration;

use super::super::Failure;
use crate::cli::PreviewProtocol;
use crate::machine::terminal;
use crate::store::ErrorKind;

/// The requests: a picture in the protocol of kitty, the version (XTVERSION), the size of a cell, and the device
/// attributes (DA1).
const REQUESTS: &[u8] = b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[>q\x1b[16t\x1b[c";
/// The time limit for the answers.
const TIME_LIMIT: Duration = Duration::from_secs(1);
/// The number of the device attribute of sixel.
const SIXEL: &str = "4";
/// Terminals with inline images of iTerm2, by their version.
const ITERM: [&str; 3] = ["iTerm2", "WezTerm", "mintty"];
/// The size of a cell in pixels, if the terminal does not tell.
const CELL: (u32, u32) = (8, 16);
/// The size of a terminal in columns and rows, if it is none or does not tell.
const SIZE: (u32, u32) = (80, 24);
/// The first words of TERM of terminals that show requests as text, or nothing but text.
const WITHOUT_REQUESTS: [&str; 3] = ["linux", "eterm", "vt"];

/// A way to write a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Kitty,
    Iterm,
    Sixel,
    Blocks,
}

/// The terminal of standard output.
#[derive(Debug, Clone)]
pub(super) struct Terminal {
    pub(super) protocol: Protocol,
    pub(super) columns: u32,
    pub(super) rows: u32,
    /// The size of a cell in pixels.
    pub(super) cell: (u32, u32),
    /// Whether half blocks have 24-bit colours; else they have those of a palette of 256.
    pub(super) has_true_color: bool,
}

/// Checks that standard output may get a picture: it is a terminal, or the protocol is named.
///
/// # Errors
/// Returns what to do instead.
pub(in crate::inspect) fn check(protocol: PreviewProtocol) -> Result<(), Failure> {
    if protocol == PreviewProtocol::Sixel && !cfg!(feature = "sixel") {
        let message = "--preview=sixel: built without the feature `sixel`";
        return Err(ErrorKind::Unsupported.failure(message));
    }
    let is_dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let reason = match io::stdout().is_terminal() {
        _ if protocol != PreviewProtocol::Auto => return Ok(()),
        true if !is_dumb => return Ok(()),
        true => "TERM names no terminal that shows pictures",
        false => "standard output is not a terminal",
    };
    Err(ErrorKind::Usage.failure(format!(
        "--preview: {reason}; --preview=blocks writes text in colours anyway, and `zarrfs export SOURCE:KEY FILE.png` \
         the picture as a file"
    )))
}

impl Terminal {
    /// Returns the terminal, which is asked for its protocol if `protocol` leaves that open.
    pub(super) fn of_stdout(protocol: PreviewProtocol) -> Self {
        let size = terminal::size_of_stdout().unwrap_or_default();
        let known = |number: u32, default: u32| match number {
            0 => default,
            number => number,
        };
        let columns = known(size.columns, SIZE.0);
        let rows = known(size.rows, SIZE.1);
        let cell = Some((size.width / columns, size.height / rows));
        let (protocol, told) = match protocol {
            PreviewProtocol::Auto => {
                let answers = ask().unwrap_or_default();
                (answers.protocol(), answers.cell)
            }
            PreviewProtocol::Kitty => (Protocol::Kitty, None),
            PreviewProtocol::Iterm => (Protocol::Iterm, None),
            PreviewProtocol::Sixel => (Protocol::Sixel, None),
            PreviewProtocol::Blocks => (Protocol::Blocks, None),
        };
        let is_size = |(width, height): &(u32, u32)| *width > 0 && *height > 0;
        let color = env::var("COLORTERM").unwrap_or_default();
        Self {
            protocol,
            columns,
            rows,
            cell: told.or(cell).filter(is_size).unwrap_or(CELL),
            has_true_color: matches!(&*color, "truecolor" | "24bit"),
        }
    }
}

/// The answers of a terminal.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answers {
    has_kitty: bool,
    has_sixel: bool,
    version: String,
    cell: Option<(u32, u32)>,
    /// Whether the last answer has arrived.
    is_complete: bool,
}

impl Answers {
    fn parse(answers: &[u8]) -> Self {
        let mut parsed = Self::default();
        let text = String::from_utf8_lossy(answers);
        for answer in text.split('\x1b').skip(1) {
            if let Some(answer) = answer.strip_prefix("_Gi=31") {
                parsed.has_kitty = answer.ends_with(";OK");
            } else if let Some(version) = answer.strip_prefix("P>|") {
                parsed.version = version.to_owned();
            } else if let Some((size, _)) =
                answer.strip_prefix("[6;").and_then(|a| a.split_once('t'))
            {
                let size = size.split_once(';');
                parsed.cell = size
                    .and_then(|(height, width)| Some((width.parse().ok()?, height.parse().ok()?)));
            } else if let Some((attributes, _)) =
                answer.strip_prefix("[?").and_then(|a| a.split_once('c'))
            {
                // The first number is the class of the terminal.
                parsed.has_sixel = attributes
                    .split(';')
                    .skip(1)
                    .any(|attribute| attribute == SIXEL);
                parsed.is_complete = true;
            }
        }
        parsed
    }

    fn protocol(&self) -> Protocol {
        match self.has_sixel && cfg!(feature = "sixel") {
            _ if self.has_kitty => Protocol::Kitty,
            _ if ITERM.iter().any(|name| self.version.starts_with(name)) => Protocol::Iterm,
            true => Protocol::Sixel,
            false => Protocol::Blocks,
        }
    }
}

/// Asks the terminal of standard output; `None` if it cannot be asked or does not answer in time.
fn ask() -> Option<Answers> {
    let term = env::var("TERM").unwrap_or_default();
    if WITHOUT_REQUESTS.iter().any(|name| term.starts_with(name)) {
        return None;
    }
    let is_complete = |answers: &[u8]| Answers::parse(answers).is_complete;
    let answers = terminal::ask_stdout(REQUESTS, TIME_LIMIT, is_complete)?;
    Some(Answers::parse(&answers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_are_known_by_their_answers() {
        let sixel = match cfg!(feature = "sixel") {
            true => Protocol::Sixel,
            false => Protocol::Blocks,
        };
        for (answers, protocol, cell) in [
            // kitty 0.26, xterm -ti vt340, foot 1.13, xterm, iTerm2, tmux, the console of Linux
            (
                "\x1b_Gi=31;OK\x1b\\\x1bP>|kitty(0.26.5)\x1b\\\x1b[6;18;9t\x1b[?62;c",
                Protocol::Kitty,
                Some((9, 18)),
            ),
            (
                "\x1bP>|XTerm(379)\x1b\\\x1b[6;13;6t\x1b[?63;1;2;4;6;9;15;22c",
                sixel,
                Some((6, 13)),
            ),
            (
                "\x1bP>|foot(1.13.1)\x1b\\\x1b[6;20;10t\x1b[?62;4;22c",
                sixel,
                Some((10, 20)),
            ),
            (
                "\x1bP>|XTerm(379)\x1b\\\x1b[?64;1;2;6;9;15;22c",
                Protocol::Blocks,
                None,
            ),
            (
                "\x1bP>|iTerm2 3.4.23\x1b\\\x1b[?62;4c",
                Protocol::Iterm,
                None,
            ),
            ("\x1bP>|tmux 3.3a\x1b\\\x1b[?1;2c", Protocol::Blocks, None),
            ("\x1b[?6c", Protocol::Blocks, None),
            // A refusal, and a class that is no attribute.
            (
                "\x1b_Gi=31;EINVAL:no\x1b\\\x1b[?4;6c",
                Protocol::Blocks,
                None,
            ),
            (
                "typed\x1b[6;x;yt\x1b[6;18t\x1b[?62;c",
                Protocol::Blocks,
                None,
            ),
        ] {
            let parsed = Answers::parse(answers.as_bytes());
            assert!(parsed.is_complete, "{answers:?}");
            assert_eq!(
                (parsed.protocol(), parsed.cell),
                (protocol, cell),
                "{answers:?}"
            );
        }
        for incomplete in ["", "\x1b", "\x1b[?62;4", "\x1b_Gi=31;OK\x1b\\", "c"] {
            assert!(
                !Answers::parse(incomplete.as_bytes()).is_complete,
                "{incomplete:?}"
            );
        }
    }
}
