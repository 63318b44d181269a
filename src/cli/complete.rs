//! Shell completions. The script of a shell passes the words of the command line to `zarrfs __complete`.
//! This command prints the candidates for the word at the cursor.
//!
//! The first line of the output tells which file names the shell adds, see [`FileNames`]. Each
//! other line is a candidate, a whole word, followed by a tab and a description.

mod word;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::Shell;

use super::help::TOPICS;
use super::{Cli, DEMO, man_pages};
use crate::translate::Target;
use crate::view::Format;
use word::{first_sentence, home, unquoted};

/// The scripts of the shells that run `zarrfs __complete`.
const BASH: &str = include_str!("complete/zarrfs.bash");
const ZSH: &str = include_str!("complete/zarrfs.zsh");
const FISH: &str = include_str!("complete/zarrfs.fish");

/// Returns the completions for a shell: a script that runs zarrfs, or, for other shells, a script
/// with only the commands and options.
pub fn completions(shell: Shell) -> Vec<u8> {
    match shell {
        Shell::Bash => BASH.into(),
        Shell::Zsh => ZSH.into(),
        Shell::Fish => FISH.into(),
        _ => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "zarrfs", &mut text);
            text
        }
    }
}

/// Candidates that the declaration of the command line does not contain.
pub trait CompletionSource {
    /// Returns the nodes in a group of a local source; groups end with `/`.
    fn children(&self, source: &Path, group: &str) -> Vec<String>;
    /// Returns the mountpoints of all mounts.
    fn mountpoints(&self) -> Vec<PathBuf>;
}

/// The file names that a shell adds to the candidates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum FileNames {
    #[default]
    None,
    All,
    Directories,
}

/// The candidates for the word at the cursor.
#[derive(Debug, Default)]
pub struct Completion {
    files: FileNames,
    /// The candidate words with their descriptions.
    candidates: Vec<(String, String)>,
}

impl fmt::Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = match self.files {
            FileNames::None => "none",
            FileNames::All => "files",
            FileNames::Directories => "directories",
        };
        writeln!(f, "{files}")?;
        let has_line = |text: &str| text.contains(char::is_control);
        let shown = self.candidates.iter();
        for (word, about) in shown.filter(|(word, _)| !has_line(word)) {
            writeln!(f, "{word}\t{about}")?;
        }
        Ok(())
    }
}

/// Completes the last one of `words`, the command line up to the cursor. `is_quoted` tells whether
/// they contain the quotes and backslashes of a shell.
pub fn complete(words: &[OsString], is_quoted: bool, source: &dyn CompletionSource) -> Completion {
    let words: Vec<String> = words.iter().map(|word| plain(word, is_quoted)).collect();
    let Some((current, before)) = words.split_last() else {
        return Completion::default();
    };
    let mut program = Cli::command();
    program.build();
    let Some((command, arguments)) = command_of(&program, before) else {
        return first_word(&program, current, source);
    };
    let line = CommandLine::read(command, arguments);
    Completer {
        program: &program,
        line,
        source,
    }
    .complete(current)
}

fn plain(word: &OsStr, is_quoted: bool) -> String {
    let word = word.to_string_lossy();
    match is_quoted {
        true => unquoted(&word),
        false => word.into_owned(),
    }
}

/// Returns the command of a line and the words after it; `None` if its first word is not complete.
fn command_of<'a>(
    program: &'a Command,
    before: &'a [String],
) -> Option<(&'a Command, &'a [String])> {
    let (_, rest) = before.split_first()?;
    let (first, behind) = rest.split_first()?;
    match program.find_subcommand(first) {
        Some(command) => Some((command, behind)),
        // The short form, without a command.
        None => Some((program.find_subcommand("mount")?, rest)),
    }
}

/// Completes a command, a source, or an option of the short form.
fn first_word(program: &Command, current: &str, source: &dyn CompletionSource) -> Completion {
    let mut completion = Completion::default();
    if current.starts_with('-')
        && let Some(command) = program.find_subcommand("mount")
    {
        let line = CommandLine::read(command, &[]);
        completion = Completer {
            program,
            line,
            source,
        }
        .complete(current);
        let own = program.get_arguments();
        completion.push_options(own, current);
        return completion;
    }
    completion.files = FileNames::All;
    completion.push_commands(program, current);
    completion.push("", DEMO, "the store inside the binary", current);
    completion
}

impl Completion {
    /// Adds `word` with the prefix `lead`, if `word` begins with `current`.
    fn push(&mut self, lead: &str, word: &str, about: &str, current: &str) {
        if word.starts_with(current) {
            self.candidates
                .push((format!("{lead}{word}"), first_sentence(about)));
        }
    }

    fn push_commands(&mut self, program: &Command, current: &str) {
        for command in program
            .get_subcommands()
            .filter(|found| !found.is_hide_set())
        {
            let about = command.get_about().map(ToString::to_string);
            self.push("", command.get_name(), &about.unwrap_or_default(), current);
        }
    }

    fn push_options<'a>(&mut self, arguments: impl Iterator<Item = &'a Arg>, current: &str) {
        for arg in arguments.filter(|arg| !arg.is_hide_set()) {
            let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
            if let Some(long) = arg.get_long() {
                self.push("", &format!("--{long}"), &about, current);
            } else if let Some(short) = arg.get_short() {
                self.push("", &format!("-{short}"), &about, current);
            }
        }
    }
}

/// The part of a command line before the cursor.
struct CommandLine<'a> {
    command: &'a Command,
    /// The values of positional arguments.
    positional: Vec<&'a str>,
    /// The option whose value is the current word.
    pending: Option<&'a Arg>,
    /// Whether a word `--` precedes the current word.
    is_past_options: bool,
}

impl<'a> CommandLine<'a> {
    fn read(command: &'a Command, words: &'a [String]) -> Self {
        let mut line = Self {
            command,
            positional: Vec::new(),
            pending: None,
            is_past_options: false,
        };
        for word in words {
            line.word(word);
        }
        line
    }

    fn word(&mut self, word: &'a str) {
        if self.pending.take().is_some() {
            return;
        }
        if self.is_past_options || !word.starts_with('-') || word == "-" {
            self.positional.push(word);
        } else if word == "--" {
            self.is_past_options = true;
        } else if let Some(long) = word.strip_prefix("--") {
            self.pending = self.long(long);
        } else if let Some(short) = word.chars().last().filter(|_| word.len() == 2) {
            let mut arguments = self.command.get_arguments();
            let found = arguments.find(|arg| arg.get_short() == Some(short));
            self.pending = found.filter(|arg| arg.get_action().takes_values());
        }
    }

    /// Returns the option with a value that has this name.
    fn long(&self, name: &str) -> Option<&'a Arg> {
        let mut arguments = self.command.get_arguments();
        let found = arguments.find(|arg| arg.get_long() == Some(name));
        found.filter(|arg| arg.get_action().takes_values())
    }

    /// Returns the argument of the next positional word.
    fn next_positional(&self) -> Option<&'a Arg> {
        let arguments: Vec<&Arg> = self.command.get_positionals().collect();
        let takes_more = |arg: &&&Arg| {
            let range = arg.get_num_args();
            matches!(arg.get_action(), clap::ArgAction::Append)
                || range.is_some_and(|range| range.max_values() > 1)
        };
        let next = arguments.get(self.positional.len());
        next.or_else(|| arguments.last().filter(takes_more))
            .copied()
    }
}

struct Completer<'a> {
    program: &'a Command,
    line: CommandLine<'a>,
    source: &'a dyn CompletionSource,
}

impl Completer<'_> {
    fn complete(&self, current: &str) -> Completion {
        let mut completion = Completion::default();
        let line = &self.line;
        if let Some(arg) = line.pending {
            self.value(arg, "", current, &mut completion);
        } else if line.is_past_options || !current.starts_with('-') {
            if let Some(arg) = line.next_positional() {
                self.value(arg, "", current, &mut completion);
            }
        } else if let Some(list) = current.strip_prefix("-o") {
            self.mount_options("-o", list, &mut completion);
        } else if let Some((name, value)) = current.split_once('=') {
            let long = name.strip_prefix("--").unwrap_or_default();
            if let Some(arg) = line.long(long) {
                self.value(arg, &format!("{name}="), value, &mut completion);
            }
        } else {
            completion.push_options(line.command.get_arguments(), current);
        }
        completion
    }

    /// Adds values of an option or a positional argument, each prefixed with `lead`.
    fn value(&self, arg: &Arg, lead: &str, current: &str, completion: &mut Completion) {
        let command = self.line.command.get_name();
        match arg.get_id().as_str() {
            "path" | "key" => self.keys(lead, current, completion),
            "formats" => {
                let (listed, last) = split_list(current);
                let lead = format!("{lead}{listed}");
                for word in format_words() {
                    completion.push(&lead, word, "", last);
                }
            }
            "format" => {
                for format in Format::all().filter(|format| !format.is_directory()) {
                    completion.push(lead, format.name(), "", current);
                }
            }
            "mount_options" => self.mount_options(lead, current, completion),
            "mountpoint" | "mountpoints" if ["umount", "stats"].contains(&command) => {
                for path in self.source.mountpoints() {
                    completion.push(lead, &path.to_string_lossy(), "", current);
                }
            }
            "mountpoint" => completion.files = FileNames::Directories,
            "source" => {
                completion.files = FileNames::All;
                completion.push(lead, DEMO, "the store inside the binary", current);
            }
            "topic" => {
                completion.push_commands(self.program, current);
                for topic in TOPICS {
                    completion.push("", topic.name, topic.title(), current);
                }
            }
            "page" => {
                for page in man_pages() {
                    completion.push("", &page, "", current);
                }
            }
            _ => of_declaration(arg, lead, current, completion),
        }
    }

    /// Adds the nodes of the group that `current` names.
    fn keys(&self, lead: &str, current: &str, completion: &mut Completion) {
        let is_demo = self.line.command.get_name() == "demo";
        let source = match self.line.positional.first() {
            _ if is_demo => PathBuf::from(DEMO),
            Some(source) => home(source),
            None => return,
        };
        let (group, _) = match current.rfind('/') {
            Some(end) => current.split_at(end.saturating_add(1)),
            None => ("", current),
        };
        for name in self.source.children(&source, group) {
            completion.push(lead, &format!("{group}{name}"), "", current);
        }
    }

    /// Adds options of `-o name=value,...`.
    fn mount_options(&self, lead: &str, current: &str, completion: &mut Completion) {
        let (listed, last) = split_list(current);
        let lead = format!("{lead}{listed}");
        if let Some((name, value)) = last.split_once('=') {
            let arg = self.line.long(&name.replace('_', "-"));
            if let Some(arg) = arg.filter(|arg| arg.get_long().is_some()) {
                self.value(arg, &format!("{lead}{name}="), value, completion);
            }
            return;
        }
        let arguments = self.line.command.get_arguments();
        let options =
            arguments.filter(|arg| !super::expand::NOT_IN_O.contains(&arg.get_id().as_str()));
        for arg in options {
            let Some(long) = arg.get_long() else { continue };
            let mut name = long.replace('-', "_");
            if arg.get_action().takes_values() {
                name.push('=');
            }
            let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
            completion.push(&lead, &name, &about, last);
        }
    }
}

/// Adds the possible values of an argument, from its declaration.
fn of_declaration(arg: &Arg, lead: &str, current: &str, completion: &mut Completion) {
    let values = arg.get_possible_values();
    if values.is_empty()
        && matches!(
            arg.get_value_hint(),
            ValueHint::AnyPath | ValueHint::FilePath | ValueHint::DirPath
        )
    {
        completion.files = FileNames::All;
    }
    for value in values.iter().filter(|value| !value.is_hide_set()) {
        let about = value
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        completion.push(lead, value.get_name(), &about, current);
    }
}

/// Returns the names of views and translations.
fn format_words() -> impl Iterator<Item = &'static str> {
    let translations = Target::ALL.into_iter().map(Target::name);
    Format::all().map(Format::name).chain(translations)
}

/// Splits a list after its last comma.
fn split_list(list: &str) -> (&str, &str) {
    match list.rfind(',') {
        Some(end) => list.split_at(end.saturating_add(1)),
        None => ("", list),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl CompletionSource for Fixed {
        fn children(&self, source: &Path, group: &str) -> Vec<String> {
            match (source.to_str(), group) {
                (Some("a b.zarr" | "demo:"), "") => vec!["ocean 1/".into(), "lat".into()],
                (Some("a b.zarr"), "ocean 1/") => vec!["sst".into()],
                _ => Vec::new(),
            }
        }

        fn mountpoints(&self) -> Vec<PathBuf> {
            vec!["/mnt/a".into(), "/mnt/b c".into()]
        }
    }

    /// Returns the completions without descriptions.
    fn answer(words: &[&str]) -> (FileNames, Vec<String>) {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let completion = complete(&words, true, &Fixed);
        let found = completion.candidates.into_iter().map(|(word, _)| word);
        (completion.files, found.collect())
    }

    #[test]
    fn the_preceding_words_select_the_completions_of_the_last_word() {
        for (words, wanted) in [
            (&["zarrfs", "umou"][..], &["umount"][..]),
            (&["zarrfs", "--vers"], &["--version"]),
            (&["zarrfs", "--memory-l"], &["--memory-limit"]),
            (&["zarrfs", "src", "mnt", "--vi"], &["--views"]),
            (&["zarrfs", "src", "mnt", "--views", "l"], &["list"]),
            (
                &["zarrfs", "mount", "src", "mnt", "--views=l"],
                &["--views=list"],
            ),
            (
                &["zarrfs", "src", "mnt", "-o", "ttl=1s,allow_o"],
                &["ttl=1s,allow_other"],
            ),
            (
                &["zarrfs", "src", "mnt", "-o", "memory"],
                &["memory_limit="],
            ),
            (&["zarrfs", "src", "mnt", "-oviews=o"], &["-oviews=off"]),
            (
                &["zarrfs", "src", "mnt", "--formats", "npy,chu"],
                &["npy,chunks"],
            ),
            (&["zarrfs", "export", "src", "x", "--as", "np"], &["npy"]),
            (
                &["zarrfs", "a\\ b.zarr", "mnt", "--path", "oc"],
                &["ocean 1/"],
            ),
            (
                &["zarrfs", "tree", "'a b.zarr'", "\"ocean 1/s"],
                &["ocean 1/sst"],
            ),
            (
                &["zarrfs", "info", "a\\ b.zarr", "--path=la"],
                &["--path=lat"],
            ),
            (&["zarrfs", "demo", "mnt", "--path", "la"], &["lat"]),
            (&["zarrfs", "umount", "/mnt/b"], &["/mnt/b c"]),
            (&["zarrfs", "umount", "/mnt/a", "/mnt/b"], &["/mnt/b c"]),
            (&["zarrfs", "stats", "/mnt/a"], &["/mnt/a"]),
            (&["zarrfs", "help", "netc"], &["netcdf"]),
            (&["zarrfs", "man", "zarrfs-netc"], &["zarrfs-netcdf.7"]),
            (&["zarrfs", "completions", "b"], &["bash"]),
            (&["zarrfs", "tree", "src", "key", "x"], &[]),
            (&["zarrfs", "tree", "src", "--depth", ""], &[]),
        ] {
            assert_eq!(answer(words).1, wanted, "{words:?}");
        }
    }

    #[test]
    fn the_shell_completes_file_names() {
        for (words, wanted) in [
            (&["zarrfs", "oc"][..], FileNames::All),
            (&["zarrfs", "src", "m"], FileNames::Directories),
            (
                &["zarrfs", "src", "--ttl", "1s", "m"],
                FileNames::Directories,
            ),
            (&["zarrfs", "src", "mnt", "--log-file", "x"], FileNames::All),
            (
                &["zarrfs", "src", "mnt", "-o", "env_file=x"],
                FileNames::All,
            ),
            (&["zarrfs", "tree", "--", "-x"], FileNames::All),
            (&["zarrfs", "export", "src", "x"], FileNames::All),
        ] {
            assert_eq!(answer(words), (wanted, Vec::new()), "{words:?}");
        }
        assert_eq!(answer(&["zarrfs", "tree", "de"]).1, ["demo:"]);
    }

    #[test]
    fn a_line_of_the_answer_is_a_word_and_a_description() {
        let words = ["zarrfs".into(), "--view".into()];
        let text = complete(&words, false, &Fixed).to_string();
        let (kind, rest) = text.split_once('\n').unwrap();
        assert_eq!(kind, "none");
        assert!(
            rest.starts_with("--views\tThe directory `.zarrfs` of views"),
            "{text}"
        );
        assert_eq!(rest.lines().count(), 1);
    }
}
