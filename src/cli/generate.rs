//! Texts that are generated from the declaration of the command line.

use std::io;

use clap::{Arg, Args, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{Cli, MountArgs};

/// The sections that no declaration of options contains.
const MANUAL: &[u8] = include_bytes!("manual.man");

/// Returns the completions for a shell.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "zarrfs", &mut text);
    text
}

/// Returns the options of a mount as a Markdown table for the manual.
pub fn options() -> String {
    let command = MountArgs::augment_args(clap::Command::new("zarrfs"));
    let mut headings: Vec<&str> = Vec::new();
    for heading in command.get_arguments().filter_map(Arg::get_help_heading) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    let mut text = String::new();
    for heading in headings {
        let mut rows = command
            .get_arguments()
            .filter(|arg| arg.get_help_heading() == Some(heading))
            .map(row)
            .collect::<String>();
        rows.insert_str(0, &format!("| {heading} | |\n|---|---|\n"));
        text.push_str(&rows);
        text.push('\n');
    }
    text
}

/// Returns the row of an option: its name, text and default.
fn row(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let choices: Vec<_> = arg
        .get_possible_values()
        .iter()
        .map(|choice| choice.get_name().to_owned())
        .collect();
    let value = match (arg.get_action().takes_values(), choices.as_slice()) {
        (false, _) => String::new(),
        (true, []) => format!(" {}", names.join(" ")),
        (true, choices) => format!(" {}", choices.join("\\|")),
    };
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let name = [short, long].into_iter().flatten().collect::<Vec<_>>();
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let given = arg.get_default_values().iter();
    let default = given
        .map(|value| value.to_string_lossy().into_owned())
        .filter(|value| !value.is_empty() && arg.get_action().takes_values())
        .map(|value| format!(" [default: {value}]"))
        .collect::<String>();
    let help = help.replace('|', "\\|").replace('\n', " ");
    format!("| `{}{value}` | {help}{default} |\n", name.join(", "))
}

/// Returns the manual page of zarrfs with all its commands, or of one command; None if there is no such
/// command.
///
/// # Errors
/// None: the page is rendered in memory.
pub fn man(command: Option<&str>) -> io::Result<Option<Vec<u8>>> {
    let mut whole = Cli::command();
    // Gives each command its full name.
    whole.build();
    if let Some(name) = command {
        return match whole.find_subcommand(name) {
            Some(found) => Ok(Some(rendered(|text| page(found.clone()).render(text))?)),
            None => Ok(None),
        };
    }
    let man = page(whole.clone());
    let mut text = rendered(|text| {
        man.render_title(text)?;
        man.render_name_section(text)?;
        man.render_synopsis_section(text)?;
        man.render_description_section(text)?;
        man.render_options_section(text)
    })?;
    let commands = rendered(|text| man.render_subcommands_section(text))?;
    text.extend_from_slice(&without_pages(&commands));
    for found in whole.get_subcommands() {
        let man = page(found.clone());
        let name = found.get_name().to_uppercase();
        text.extend_from_slice(format!(".SH ZARRFS {name}\n").as_bytes());
        let sections = rendered(|text| {
            man.render_synopsis_section(text)?;
            man.render_description_section(text)?;
            man.render_options_section(text)
        })?;
        text.extend_from_slice(&below_a_section(&sections));
    }
    text.extend_from_slice(MANUAL);
    text.extend_from_slice(&rendered(|text| man.render_version_section(text))?);
    Ok(Some(text))
}

fn page(command: clap::Command) -> Man {
    let version = concat!("zarrfs ", env!("CARGO_PKG_VERSION"));
    Man::new(command).source(version).manual("zarrfs")
}

fn rendered(render: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    render(&mut text)?;
    Ok(text)
}

/// Replaces references to pages of commands, such as `zarrfs-mount(1)`, which do not exist.
fn without_pages(commands: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(commands.len());
    for line in commands.split_inclusive(|byte| *byte == b'\n') {
        let name = line.strip_prefix(br"zarrfs\-");
        match name.and_then(|name| name.strip_suffix(b"(1)\n")) {
            Some(name) => text.extend([b".B zarrfs ", name, b"\n"].concat()),
            None => text.extend_from_slice(line),
        }
    }
    text
}

/// Turns sections into subsections.
fn below_a_section(sections: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(sections.len());
    for line in sections.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_prefix(b".SH ") {
            Some(title) => text.extend([b".SS ", title].concat()),
            None => text.extend_from_slice(line),
        }
    }
    text
}
