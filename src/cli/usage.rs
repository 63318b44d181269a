//! `zarrfs --json-usage`: all commands, arguments and options as one JSON document, from the declarations that the
//! help, the manual pages and the completions have.

use clap::{Arg, ArgAction, Command, CommandFactory};
use serde_json::{Map, Value, json};

use super::Cli;

/// The option that prints the document.
pub(super) const OPTION: &str = "--json-usage";

/// Returns the document: the program, with its commands inside.
pub(super) fn document() -> Value {
    let mut program = Cli::command();
    program.build();
    let mut document = Map::new();
    document.insert("schema".into(), "zarrfs.usage/1".into());
    document.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    document.extend(command(&program));
    document.into()
}

fn command(command: &Command) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("name".into(), command.get_name().into());
    members.extend(text("about", command.get_about()));
    let all = |is_positional: bool| {
        let arguments = command.get_arguments();
        let shown = arguments.filter(|argument| {
            argument.is_positional() == is_positional && !argument.is_hide_set()
        });
        shown.map(argument).collect::<Value>()
    };
    members.insert("arguments".into(), all(true));
    members.insert("options".into(), all(false));
    let commands = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let commands: Vec<Value> = commands.map(|found| self::command(found).into()).collect();
    if !commands.is_empty() {
        members.insert("commands".into(), commands.into());
    }
    members
}

fn argument(argument: &Arg) -> Value {
    let mut members = Map::new();
    members.insert("name".into(), argument.get_id().as_str().into());
    members.extend(
        argument
            .get_long()
            .map(|long| ("long".into(), format!("--{long}").into())),
    );
    members.extend(
        argument
            .get_short()
            .map(|short| ("short".into(), format!("-{short}").into())),
    );
    members.extend(text("help", argument.get_help()));
    if argument.get_action().takes_values() {
        let names = argument.get_value_names().unwrap_or_default();
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        members.insert("value".into(), names.join(" ").into());
        let choices = argument.get_possible_values();
        let choices: Vec<Value> = (choices.iter())
            .filter(|choice| !choice.is_hide_set())
            .map(|choice| {
                let mut members = Map::from_iter([("name".to_owned(), choice.get_name().into())]);
                members.extend(text("help", choice.get_help()));
                members.into()
            })
            .collect();
        if !choices.is_empty() {
            members.insert("choices".into(), choices.into());
        }
        let defaults = argument.get_default_values().iter();
        let defaults: Vec<String> = defaults.map(|text| text.to_string_lossy().into()).collect();
        if let [default] = &defaults[..] {
            members.insert("default".into(), default.as_str().into());
        }
    }
    members.insert("required".into(), argument.is_required_set().into());
    let is_repeated = matches!(argument.get_action(), ArgAction::Append | ArgAction::Count)
        || argument
            .get_num_args()
            .is_some_and(|count| count.max_values() > 1);
    members.insert("repeated".into(), is_repeated.into());
    members.extend(text("heading", argument.get_help_heading()));
    json!(members)
}

fn text(name: &str, text: Option<impl ToString>) -> Option<(String, Value)> {
    Some((name.to_owned(), text?.to_string().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
        let mut all = list.as_array().unwrap().iter();
        all.find(|found| found["name"] == name).unwrap()
    }

    #[test]
    fn every_command_and_option_is_in_the_document() {
        let document = document();
        let declared = Cli::command();
        for command in declared
            .get_subcommands()
            .filter(|found| !found.is_hide_set())
        {
            let found = named(&document["commands"], command.get_name());
            for argument in command.get_arguments().filter(|found| !found.is_hide_set()) {
                let place = if argument.is_positional() {
                    "arguments"
                } else {
                    "options"
                };
                named(&found[place], argument.get_id().as_str());
            }
        }
        let views = named(&named(&document["commands"], "mount")["options"], "views");
        assert_eq!(
            (&views["long"], &views["default"]),
            (&json!("--views"), &json!("hidden"))
        );
        assert_eq!(named(&views["choices"], "list")["help"], "It is listed");
    }
}
