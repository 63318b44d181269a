//! Manual pages: zarrfs(1), one for each command, mount.zarrfs(8), and one for each topic of the manual.
//!
//! A page is composed in Markdown, from the pages of `src/manual` and the declaration of the
//! options, and then converted.
//!
//! `clap_mangen` does not render the options (read in version 0.3.3). Its `render::option_help` prints no text of an
//! option that is hidden in the short help and has no second, long text, which is most of the options here. It makes
//! each heading a section beside OPTIONS, and prints the backquotes of a text as they are. It would replace the forty
//! lines of `command` and `row`, and nothing of the conversion, which the pages of the manual need.

mod markdown;
mod roff;

use std::fmt::Write;

use clap::{Arg, CommandFactory};

use super::generate::OptionText;
use super::help::{TOPICS, Topic, find_topic};
use super::{Cli, HelperArgs};
use roff::{Font, Roff};

/// The date of the pages, changed with the version.
const DATE: &str = "2026-11-22";
/// The name and the version, for the footer of each page.
const VERSION: &str = concat!("zarrfs ", env!("CARGO_PKG_VERSION"));
/// The sections of man(1) for commands, for topics and for the mount(8) helper.
const COMMANDS: u8 = 1;
const TOPICS_SECTION: u8 = 7;
const ADMINISTRATION: u8 = 8;

/// Pages of other programs that zarrfs(1) refers to.
const OTHERS: [(&str, u8); 6] = [
    ("fstab", 5),
    ("fuse", 4),
    ("fusermount3", 1),
    ("mount", 8),
    ("systemd.automount", 5),
    ("umount", 8),
];

/// A manual page.
struct Page {
    name: String,
    section: u8,
    about: String,
    content: PageContent,
}

enum PageContent {
    Program,
    Command(Box<clap::Command>),
    Topic(Topic),
}

/// Returns the file names of all manual pages, such as `zarrfs-mount.1`.
pub fn man_pages() -> Vec<String> {
    pages().iter().map(Page::file).collect()
}

/// Returns a manual page by the name of a command, of a topic, or of a file in [`man_pages`];
/// without a name, zarrfs(1). `None` if the page does not exist.
pub fn man(name: Option<&str>) -> Option<String> {
    let name = name.unwrap_or("zarrfs");
    let pages = pages();
    let own = format!("zarrfs-{name}");
    let mut found = pages.iter();
    found
        .find(|page| page.file() == name || page.name == name || page.name == own)
        .map(|page| page.render(&pages))
}

fn pages() -> Vec<Page> {
    let mut program = Cli::command();
    // Gives each command its full name.
    program.build();
    let mut pages = vec![Page {
        name: "zarrfs".into(),
        section: COMMANDS,
        about: about(&program),
        content: PageContent::Program,
    }];
    let commands = program.get_subcommands();
    pages.extend(
        commands
            .filter(|found| !found.is_hide_set())
            .map(|found| Page {
                name: format!("zarrfs-{}", found.get_name()),
                section: COMMANDS,
                about: about(found),
                content: PageContent::Command(Box::new(found.clone())),
            }),
    );
    let helper = HelperArgs::command();
    pages.push(Page {
        name: helper.get_name().into(),
        section: ADMINISTRATION,
        about: about(&helper),
        content: PageContent::Command(Box::new(helper)),
    });
    pages.extend(TOPICS.iter().map(|topic| Page {
        name: format!("zarrfs-{}", topic.name),
        section: TOPICS_SECTION,
        about: topic.title().into(),
        content: PageContent::Topic(*topic),
    }));
    pages
}

fn about(command: &clap::Command) -> String {
    let about = command.get_about();
    about.map(ToString::to_string).unwrap_or_default()
}

impl Page {
    fn file(&self) -> String {
        format!("{}.{}", self.name, self.section)
    }

    fn render(&self, pages: &[Self]) -> String {
        let mut roff = Roff::new(&self.name, self.section, DATE, VERSION);
        roff.section("Name");
        roff.text(&format!("{} - {}", self.name, self.about));
        let (text, mut seen) = match &self.content {
            PageContent::Program => (program(pages), all(self, pages)),
            PageContent::Command(found) => (command(found), Vec::new()),
            PageContent::Topic(topic) => (titled(topic.text), Vec::new()),
        };
        let topics = markdown::append(&mut roff, &text);
        if seen.is_empty() {
            seen.push(("zarrfs".to_owned(), COMMANDS));
            let topics = topics.iter().map(|topic| format!("zarrfs-{topic}"));
            seen.extend(topics.map(|name| (name, TOPICS_SECTION)));
            seen.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
            seen.dedup();
            seen.retain(|(name, _)| *name != self.name);
        }
        roff.section("See also");
        for (place, (name, section)) in seen.iter().enumerate() {
            roff.text(if place > 0 { ", " } else { "" });
            roff.in_font(Font::Bold, name);
            roff.text(&format!("({section})"));
        }
        roff.finish()
    }
}

/// Returns the references of zarrfs(1): all other pages.
fn all(this: &Page, pages: &[Page]) -> Vec<(String, u8)> {
    let own = pages.iter().filter(|page| page.name != this.name);
    let own = own.map(|page| (page.name.clone(), page.section));
    let others = OTHERS
        .iter()
        .map(|(name, section)| ((*name).to_owned(), *section));
    own.chain(others).collect()
}

/// Returns the text of zarrfs(1).
fn program(pages: &[Page]) -> String {
    let mut text = "## Synopsis\n\n```\nzarrfs [mount] SOURCE [MOUNTPOINT] [OPTIONS]\nzarrfs COMMAND ...\n```\n\n".to_owned();
    text.push_str(&titled(before_sections(topic_text("commands"))));
    text.push_str("\n\n## Commands\n\n");
    text.push_str(&listed(pages, COMMANDS));
    text.push_str("\n## Topics\n\n");
    text.push_str(&listed(pages, TOPICS_SECTION));
    text.push('\n');
    let environment = topic_text("environment");
    let sections = environment.get(before_sections(environment).len()..);
    text.push_str(sections.unwrap_or_default());
    text
}

/// Returns a table of the pages of a section.
fn listed(pages: &[Page], section: u8) -> String {
    let mut table = "| | |\n|---|---|\n".to_owned();
    let listed = pages
        .iter()
        .filter(|page| page.section == section && page.name != "zarrfs");
    for Page { name, about, .. } in listed {
        // Writing to a String cannot fail.
        let _ = writeln!(table, "| **{name}**({section}) | {about} |");
    }
    table
}

/// Returns the text of a command: examples and remarks of the manual, and the options.
fn command(command: &clap::Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let usage = command.clone().render_usage().to_string();
    let usage = usage
        .trim_start_matches("Usage: ")
        .replace("\n      ", "\n");
    let mut text = format!("## Synopsis\n\n```\n{usage}\n```\n\n");
    text.push_str(&titled(section_of(topic_text("commands"), name)));
    text.push_str("\n\n");
    let is_mount = name == "zarrfs mount";
    let has_mount_options = command
        .get_arguments()
        .any(|arg| arg.get_id() == "mount_options");
    let mut groups: Vec<(String, String)> = Vec::new();
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let heading = match arg.get_help_heading() {
            Some(_) if has_mount_options && !is_mount => continue,
            Some(heading) => format!("### {heading}"),
            None if arg.is_positional() => "## Arguments".to_owned(),
            None => "## Options".to_owned(),
        };
        let row = row(arg);
        match groups.iter_mut().find(|(known, _)| *known == heading) {
            Some((_, rows)) => rows.push_str(&row),
            None => groups.push((heading, row)),
        }
    }
    // Options without a heading precede those with a heading.
    groups.sort_by_key(|(heading, _)| heading.starts_with("###"));
    if !groups.iter().any(|(heading, _)| heading == "## Options")
        && let Some(first) = groups
            .iter_mut()
            .find(|(heading, _)| heading.starts_with("###"))
    {
        first.0.insert_str(0, "## Options\n\n");
    }
    for (heading, rows) in groups {
        // Writing to a String cannot fail.
        let _ = write!(text, "{heading}\n\n| | |\n|---|---|\n{rows}\n");
    }
    if has_mount_options && !is_mount {
        text.push_str("All options of **zarrfs-mount**(1) are taken as well.\n\n");
    }
    text
}

/// Returns the row of an argument in a Markdown table.
fn row(arg: &Arg) -> String {
    let OptionText { names, value, help } = OptionText::of(arg);
    let names = match names.is_empty() {
        true => String::new(),
        false => format!("**{names}** "),
    };
    let value = match value.trim() {
        "" => String::new(),
        value => format!("*{value}*"),
    };
    format!("| {names}{value} | {help} |\n")
}

/// Returns the text of a topic; empty if the topic does not exist.
fn topic_text(name: &str) -> &'static str {
    find_topic(name).map_or("", |topic| topic.text)
}

/// Returns the part of a page before its first section.
fn before_sections(text: &str) -> &str {
    text.find("\n## ")
        .and_then(|end| text.get(..end))
        .unwrap_or(text)
}

/// Returns the text of a section without its heading; empty if the section does not exist.
fn section_of<'a>(text: &'a str, title: &str) -> &'a str {
    let heading = format!("\n## {title}\n");
    let found = text
        .find(&heading)
        .and_then(|start| text.get(start + heading.len()..));
    before_sections(found.unwrap_or_default())
}

/// Adds headings to a page: EXAMPLES before code at its beginning, DESCRIPTION before the rest.
fn titled(text: &str) -> String {
    let text = match text.strip_prefix("# ") {
        Some(titled) => titled.split_once('\n').map_or("", |(_, rest)| rest),
        None => text,
    };
    let text = text.trim();
    let (examples, rest) = match text.strip_prefix("```").and_then(|code| code.find("\n```")) {
        // 7 bytes: two fences of three characters, and the newline before the second.
        Some(end) => text.split_at(end + 7),
        None => ("", text),
    };
    let mut titled = String::new();
    if !examples.is_empty() {
        titled = format!("## Examples\n\n{examples}\n\n");
    }
    let rest = rest.trim_start();
    if !rest.is_empty() && !rest.starts_with("## ") {
        titled.push_str("## Description\n\n");
    }
    titled + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_begins_with_its_name_and_examples() {
        for file in man_pages() {
            let page = man(Some(&file)).unwrap();
            let (stem, section) = file.rsplit_once('.').unwrap();
            let title = format!(".TH {} {section} ", stem.to_uppercase().replace('-', "\\-"));
            assert!(page.starts_with(&title), "{file}: {page}");
            let sections = page.lines().filter_map(|line| line.strip_prefix(".SH "));
            let sections: Vec<&str> = sections.filter(|title| *title != "\"SYNOPSIS\"").collect();
            assert_eq!(sections[..2], ["\"NAME\"", "\"EXAMPLES\""], "{file}");
            assert_eq!(sections.last(), Some(&"\"SEE ALSO\""), "{file}");
            assert!(page.is_ascii(), "{file}");
        }
    }

    #[test]
    fn a_page_has_the_names_of_its_command_or_topic() {
        let page = |name: &str| man(Some(name)).unwrap();
        assert!(man(None).unwrap().starts_with(".TH ZARRFS 1 "));
        assert_eq!(page("mount"), page("zarrfs-mount.1"));
        assert_eq!(page("netcdf"), page("zarrfs-netcdf"));
        assert!(page("mount").contains("\\fB\\-f, \\-\\-foreground\\fR"));
        assert!(page("mount.zarrfs").contains("\\fB\\-N\\fR \\fINAMESPACE\\fR"));
        assert!(page("demo").contains("zarrfs\\-mount") && !page("demo").contains("ttl"));
        assert!(man(Some("nothing")).is_none());
    }

    #[test]
    fn examples_at_the_beginning_get_a_title() {
        let text = "# T\n\n```sh\nls\n```\n\ntext\n";
        let wanted = "## Examples\n\n```sh\nls\n```\n\n## Description\n\ntext";
        assert_eq!(titled(text), wanted);
        assert_eq!(titled("# T\n\n## A\n"), "## A");
        assert_eq!(
            section_of("# T\n\n## a\n\nx\n\n## b\n\ny\n", "a").trim(),
            "x"
        );
    }
}
