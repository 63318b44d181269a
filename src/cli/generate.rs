//! Texts that are made of the declaration of the command line.

use std::io;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use super::Cli;

/// The completions for a shell.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "zarrfs", &mut text);
    text
}

/// The manual page of zarrfs with all its commands, or of one of these; none if there is no such
/// command.
///
/// # Errors
/// None: the page is made in memory.
pub fn man(command: Option<&str>) -> io::Result<Option<Vec<u8>>> {
    let mut whole = Cli::command().disable_help_subcommand(true);
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
        man.render_options_section(text)?;
        man.render_subcommands_section(text)
    })?;
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

/// Sections as parts of another section.
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
