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

/// The manual page of zarrfs, or of one of its commands; none if there is no such command.
///
/// # Errors
/// None: the page is made in memory.
pub fn man(command: Option<&str>) -> io::Result<Option<Vec<u8>>> {
    let mut whole = Cli::command();
    // Gives each command its full name.
    whole.build();
    let page = match command {
        None => whole,
        Some(name) => match whole.find_subcommand(name) {
            Some(found) => found.clone(),
            None => return Ok(None),
        },
    };
    let mut text = Vec::new();
    Man::new(page).render(&mut text)?;
    Ok(Some(text))
}
