//! Texts that are generated from the declaration of the command line.

use clap::{Arg, Args};

use super::MountArgs;

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

/// Returns the table row of an option: its name, text and default.
fn row(arg: &Arg) -> String {
    let OptionText { names, value, help } = OptionText::of(arg);
    format!("| `{names}{value}` | {help} |\n")
}

/// The texts of an option for the cells of a Markdown table.
#[derive(Debug)]
pub(super) struct OptionText {
    /// The short and the long name; empty for a positional argument.
    pub(super) names: String,
    /// The name of the value, or its choices, with a space before it.
    pub(super) value: String,
    /// The description, with the default.
    pub(super) help: String,
}

impl OptionText {
    pub(super) fn of(arg: &Arg) -> Self {
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
        let names = [short, long].into_iter().flatten().collect::<Vec<_>>();
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let given = arg.get_default_values().iter();
        let default = given
            .map(|value| value.to_string_lossy().into_owned())
            .filter(|value| !value.is_empty() && arg.get_action().takes_values())
            .map(|value| format!(" [default: {value}]"))
            .collect::<String>();
        let help = help.replace('|', "\\|").replace('\n', " ");
        Self {
            names: names.join(", "),
            value,
            help: help + &default,
        }
    }
}
