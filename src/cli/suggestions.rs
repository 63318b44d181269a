//! Suggestions for an invalid command line: the probable command or option, and its correct form.

use std::ffi::OsString;
use std::path::Path;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

use super::{Cli, Command};
use crate::units::nearest;

/// Returns whether the first argument was probably meant as a command: it looks like one, and no
/// file has its name.
pub(super) fn is_unknown_word(first: &OsString) -> bool {
    is_word(first) && !Path::new(first).exists()
}

/// Returns whether an argument consists of letters and dashes, like a command.
fn is_word(argument: &OsString) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'-';
    let bytes = argument.as_encoded_bytes();
    !bytes.starts_with(b"-") && bytes.iter().all(is_letter)
}

/// Returns the command or option for which other programs use this word.
fn other_word(word: &str) -> Option<&'static str> {
    Some(match word {
        "ls" | "dir" => "tree",
        "list" | "ps" | "status" => "mounts",
        "open" | "mnt" => "mount",
        "show" | "dump" | "cat" => "info",
        "verify" | "validate" => "check",
        "copy" | "cp" | "convert" => "export",
        "version" => "--version",
        _ => return None,
    })
}

/// Returns the equivalent of a short option of other programs.
fn other_option(option: &str) -> Option<&'static str> {
    Some(match option {
        "-v" | "-d" => "--log-level debug --foreground shows each step; -V is the version",
        "-r" => "each mount is read-only, without an option",
        "-l" => "`zarrfs umount -l` detaches a mount, `zarrfs mounts` lists all",
        "-t" => "mount(8) has a type: mount -t zarrfs SOURCE MOUNTPOINT",
        _ => return None,
    })
}

/// Returns an error of clap with a suggestion.
pub(super) fn with_suggestion(error: Error, arguments: &[OsString]) -> Error {
    let message = match error.kind() {
        ErrorKind::InvalidSubcommand => unknown_command(&error),
        ErrorKind::UnknownArgument => unknown_argument(&error, arguments),
        _ => None,
    };
    let Some(message) = message else {
        return error;
    };
    let mut program = Cli::command();
    // Gives the commands their full names, for the usage after the message.
    program.build();
    let first = arguments.get(1).and_then(|word| word.to_str());
    match first.and_then(|word| program.find_subcommand_mut(word)) {
        Some(command) => command.error(error.kind(), message),
        None => program.error(error.kind(), message),
    }
}

/// Returns a text from the context of an error.
fn text(error: &Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text),
        // The last name is the most similar one.
        ContextValue::Strings(all) => all.last().map(String::as_str),
        _ => None,
    }
}

fn unknown_command(error: &Error) -> Option<String> {
    let word = text(error, ContextKind::InvalidSubcommand)?;
    let suggested = text(error, ContextKind::SuggestedSubcommand);
    let hint = other_word(word).or(suggested).map_or_else(
        || "; `zarrfs --help` lists the commands".to_owned(),
        |name| format!("; did you mean `{name}`?"),
    );
    Some(format!("`{word}` is neither a command nor a file{hint}"))
}

fn unknown_argument(error: &Error, arguments: &[OsString]) -> Option<String> {
    let argument = text(error, ContextKind::InvalidArg)?;
    if error.get(ContextKind::SuggestedArg).is_some() {
        return None;
    }
    let commands = Cli::command();
    let is_command = |word: &str| commands.find_subcommand(word).is_some();
    let first = arguments.get(1)?;
    let command = first.to_str().filter(|word| is_command(word));
    let hint = match (command, argument) {
        (None, option) if option.starts_with('-') => {
            let mut words = arguments.iter().filter_map(|word| word.to_str());
            match words.find(|word| is_command(word)) {
                Some(word) => format!("the command comes first: zarrfs {word} ..."),
                None => option_hint(option, "mount"),
            }
        }
        (Some(command), option) if option.starts_with('-') => option_hint(option, command),
        (Some("run"), _) => {
            format!("`--` stands before the command: zarrfs run SOURCE -- {argument} ...")
        }
        (Some("export"), _) => {
            "a key stands behind the source: zarrfs export SOURCE:KEY FILE".to_owned()
        }
        (None | Some("mount"), _) => {
            let word = first
                .to_str()
                .filter(|_| command.is_none() && is_word(first));
            let names = commands.get_subcommands().map(clap::Command::get_name);
            let meant = word.and_then(|word| other_word(word).or_else(|| nearest(word, names)));
            match (word, meant) {
                (Some(word), Some(name)) => {
                    format!("`{word}` is no command; did you mean `{name}`?")
                }
                _ => "a mount has a SOURCE and a MOUNTPOINT; quote names with spaces".to_owned(),
            }
        }
        (Some(_), _) => return None,
    };
    Some(format!("unexpected argument `{argument}`: {hint}"))
}

fn option_hint(option: &str, command: &str) -> String {
    other_option(option).map_or_else(
        || format!("`zarrfs {command} --help` lists the options"),
        str::to_owned,
    )
}

/// Rejects options before a command, because clap parses that command as the SOURCE of a mount.
///
/// # Errors
/// If the source of a mount has the name of a command and is not a file.
pub(super) fn command_first(cli: &Cli) -> Result<(), Error> {
    let Command::Mount(mount) = &cli.command else {
        return Ok(());
    };
    let mut program = Cli::command();
    let source = mount.source.to_str().filter(|_| !mount.source.exists());
    match source.filter(|word| program.find_subcommand(word).is_some()) {
        Some(word) => {
            let message = format!("`{word}` is a command and comes first: zarrfs {word} ...");
            Err(program.error(ErrorKind::UnknownArgument, message))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::with_command;

    /// Returns the error message of a command line.
    fn message(line: &str) -> String {
        let words = std::iter::once("zarrfs").chain(line.split(' '));
        let arguments: Vec<OsString> = words.map(OsString::from).collect();
        match Cli::try_parse_from(with_command(arguments.clone())) {
            Ok(cli) => command_first(&cli).unwrap_err().to_string(),
            Err(error) => with_suggestion(error, &arguments).to_string(),
        }
    }

    #[test]
    fn an_invalid_command_line_gets_a_suggestion() {
        for (line, words) in [
            (
                "treee",
                "`treee` is neither a command nor a file; did you mean `tree`?",
            ),
            ("xyzzy", "neither a command nor a file; `zarrfs --help`"),
            ("list", "did you mean `mounts`?"),
            ("a.zarr m -v", "`-v`: --log-level debug"),
            ("a.zarr m -x", "`-x`: `zarrfs mount --help` lists"),
            (
                "umount m --forse",
                "`--forse`: `zarrfs umount --help` lists",
            ),
            ("a.zarr m --allow-othr", "'--allow-other'"),
            ("--json info a.zarr", "`info` is a command and comes first"),
            (
                "--depth 1 tree a.zarr",
                "the command comes first: zarrfs tree",
            ),
            ("run a.zarr ls -l", "`ls`: `--` stands before the command"),
            (
                "export a.zarr sst sst.tif x",
                "zarrfs export SOURCE:KEY FILE",
            ),
            ("a.zarr my dir", "quote names with spaces"),
            // `src` is a directory of the repository.
            ("src a.zarr m", "a mount has a SOURCE and a MOUNTPOINT"),
        ] {
            let message = message(line);
            assert!(message.contains(words), "{line}: {message}");
            assert!(!message.contains("as a value"), "{line}: {message}");
        }
    }

    #[test]
    fn a_similar_name_has_few_other_letters() {
        let names = || ["views", "netcdf"].into_iter();
        assert_eq!(nearest("vews", names()), Some("views"));
        assert_eq!(nearest("netcfd", names()), Some("netcdf"));
        assert_eq!(nearest("xyz", names()), None);
    }
}
