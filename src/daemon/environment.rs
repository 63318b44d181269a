//! Environment variables from a file, because a mount of fstab or systemd inherits no credentials.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

use super::{Failure, reexec};

/// Set once the variables have been read.
const READ: &str = "ZARRFS_ENV_FILE_READ";
/// The size of the largest file in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Executes this command again in this process, with the variables of a file in its environment.
/// Returns at once if that has already happened.
///
/// # Errors
/// If the file is unreadable, not private or malformed. The message contains no value.
pub fn restart_with_env_file(file: &Path) -> Result<(), Failure> {
    if std::env::var_os(READ).is_some() {
        return Ok(());
    }
    let shown = file.display();
    let variables = read(file).map_err(|e| format!("--env-file {shown}: {e}"))?;
    let error = reexec::same_arguments()
        .envs(variables)
        .env(READ, "1")
        .exec();
    Err(format!("--env-file {shown}: starting again with its variables: {error}").into())
}

fn read(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err("is a directory".into());
    }
    if rustix::process::geteuid().is_root() {
        check(&metadata)?;
    }
    let mut text = String::new();
    let length = file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > MAX_BYTES {
        return Err(format!("longer than {MAX_BYTES} bytes").into());
    }
    parse(&text)
}

/// Checks that only root can read and write a file.
fn check(metadata: &Metadata) -> Result<(), Failure> {
    let mode = metadata.mode() & 0o7777;
    if metadata.uid() != 0 {
        let owner = metadata.uid();
        return Err(format!(
            "belongs to user {owner}; root accepts only a file that it owns (chown root)"
        )
        .into());
    }
    let open_to_others = match mode {
        mode if mode & 0o004 != 0 => "lets every user read it",
        mode if mode & 0o022 != 0 => "lets other users change it",
        _ => return Ok(()),
    };
    Err(
        format!("mode {mode:04o} {open_to_others}; root accepts only a private file (chmod 600)")
            .into(),
    )
}

fn parse(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut variables = Vec::new();
    for (place, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line
            .split_once('=')
            .filter(|(name, value)| is_name(name) && !value.contains('\0'))
        else {
            return Err(format!("line {}: not NAME=VALUE", place + 1).into());
        };
        // Internal variables of zarrfs select the role of a process.
        if name.starts_with("ZARRFS_") && name != "ZARRFS_LOG" {
            return Err(format!("line {}: {name} is not allowed in a file", place + 1).into());
        }
        if is_open(value) {
            return Err(format!("line {}: {name} has an unclosed quote", place + 1).into());
        }
        variables.push((name.to_owned(), unquoted(value).to_owned()));
    }
    Ok(variables)
}

fn is_name(name: &str) -> bool {
    let is_sign = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_sign)
}

/// Returns whether a value begins with an unclosed quote.
fn is_open(value: &str) -> bool {
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    quote.is_some_and(|quote| value.len() < 2 || !value.ends_with(quote))
}

/// Returns a value without the quotes around it.
fn unquoted(value: &str) -> &str {
    let inner = ['"', '\''].into_iter().find_map(|quote| {
        let inner = value.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(quote)).then_some(inner)
    });
    inner.unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_not_expanded() {
        let text = "# comment\n\nA=1\nexport B_2=x=y $HOME #z\n C='a b'\nD=\"\"\nE=it's\nA=2\r\n";
        let pairs = parse(text).unwrap();
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        let wanted = [
            ("A", "1"),
            ("B_2", "x=y $HOME #z"),
            ("C", "a b"),
            ("D", ""),
            ("E", "it's"),
            ("A", "2"),
        ];
        assert_eq!(pairs, wanted);
    }

    #[test]
    fn an_error_names_the_line_and_not_its_content() {
        for text in [
            "secret",
            "A=1\nB c=secret",
            "=secret",
            "1A=secret",
            "A=sec\0ret",
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(&format!("line {}", text.lines().count())));
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
