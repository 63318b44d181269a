//! Conversion of `-o name[=value],...` of mount(8) to `--name[=value]` for clap.

use std::ffi::{OsStr, OsString};

use clap::Args;

use super::MountArgs;

/// Options of mount(8) that have no effect: the mount is always read-only, nosuid, nodev and
/// noexec.
const GENERIC: &[&str] = &[
    "ro",
    "rw",
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "users",
    "nouser",
    "owner",
    "group",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "diratime",
    "nodiratime",
    "sync",
    "async",
    "dirsync",
    "lazytime",
    "nolazytime",
    "mand",
    "nomand",
    "iversion",
    "noiversion",
    "silent",
    "loud",
    "quiet",
    "symfollow",
    "nosymfollow",
    "noowner",
    "nogroup",
    "nousers",
    "default_permissions",
];

/// Options that are not available as `-o`.
pub(super) const NOT_IN_O: &[&str] = &["foreground", "help", "json", "version"];

/// The largest edit distance between similar names.
const MAX_EDITS: usize = 2;

/// The handling of unknown options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnknownOptions {
    /// Unknown options are an error.
    Rejected,
    /// Unknown options are ignored, for `-s` of mount(8).
    Ignored,
}

/// Converts `-o a,b=c` to `--a --b=c` and drops the generic options.
///
/// # Errors
/// An option that does not exist, or that lacks its value.
pub fn expand_mount_options(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Vec<OsString>, String> {
    let mut expanded = Vec::new();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        if argument == OsStr::new("--") {
            expanded.push(argument);
            expanded.extend(arguments.by_ref());
            break;
        }
        let list = match argument.to_str() {
            Some("-o") => arguments.next().ok_or("-o needs options behind it")?,
            Some(text) if text.starts_with("-o") => text.get(2..).unwrap_or_default().into(),
            _ => {
                expanded.push(argument);
                continue;
            }
        };
        expanded.extend(expand_list(&list, UnknownOptions::Rejected)?);
    }
    Ok(expanded)
}

/// Returns the long options of one `-o` list.
pub(super) fn expand_list(list: &OsStr, unknown: UnknownOptions) -> Result<Vec<OsString>, String> {
    let list = list.to_str().ok_or("-o: options must be UTF-8")?;
    let mut expanded = Vec::new();
    for option in split(list).into_iter().filter(|option| !option.is_empty()) {
        expanded.extend(expand_one(option, unknown)?);
    }
    Ok(expanded)
}

/// Splits at commas that are not between double quotes, as mount(8) does.
fn split(list: &str) -> Vec<&str> {
    let mut is_quoted = false;
    let at_comma = |c: char| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    };
    list.split(at_comma).collect()
}

fn expand_one(option: &str, unknown: UnknownOptions) -> Result<Option<OsString>, String> {
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(unquoted(value))),
        None => (option, None),
    };
    if GENERIC.contains(&name)
        || name.starts_with("x-")
        || name.starts_with("X-")
        || matches!(
            name,
            "comment" | "subtype" | "fsname" | "helper" | "uhelper"
        )
    {
        return Ok(None);
    }
    if name == "remount" {
        return Err("`remount` is not possible: unmount, and mount with other options".into());
    }
    let long = name.replace('_', "-");
    let command = MountArgs::augment_args(clap::Command::new("zarrfs"));
    let known = command
        .get_arguments()
        .find(|arg| arg.get_long() == Some(&long))
        .filter(|_| !NOT_IN_O.contains(&long.as_str()));
    match (known, value) {
        (None, _) if unknown == UnknownOptions::Ignored => Ok(None),
        (None, _) => Err(unknown_option(name, &command)),
        (Some(arg), None) if arg.get_action().takes_values() => {
            Err(format!("mount option `{name}` needs a value: {name}=..."))
        }
        (Some(arg), Some(_)) if !arg.get_action().takes_values() => {
            Err(format!("mount option `{name}` takes no value"))
        }
        (Some(_), Some(value)) => Ok(Some(format!("--{long}={value}").into())),
        (Some(_), None) => Ok(Some(format!("--{long}").into())),
    }
}

/// Returns the message for an unknown option, with the most similar one.
fn unknown_option(name: &str, command: &clap::Command) -> String {
    let names = command.get_arguments().filter_map(clap::Arg::get_long);
    let names = names.filter(|long| !NOT_IN_O.contains(long));
    let names = names.map(|long| long.replace('-', "_"));
    let near = names.map(|long| (strsim::damerau_levenshtein(name, &long), long));
    match near.min() {
        Some((0..=MAX_EDITS, near)) => {
            format!("unknown mount option `{name}`; did you mean `{near}`?")
        }
        _ => format!("unknown mount option `{name}`; `zarrfs mount --help` lists them"),
    }
}

fn unquoted(value: &str) -> &str {
    let inner = value.strip_prefix('"');
    let inner = inner.and_then(|value| value.strip_suffix('"'));
    inner.unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command, with_command};
    use clap::Parser;

    fn expand(arguments: &[&str]) -> Result<Vec<String>, String> {
        let expanded = expand_mount_options(arguments.iter().map(OsString::from))?;
        Ok(expanded
            .into_iter()
            .map(|argument| argument.into_string().unwrap())
            .collect())
    }

    #[test]
    fn mount_options_become_long_options() {
        let given = [
            "zarrfs",
            "a.zarr",
            "b",
            "-o",
            "ro,allow_other,ttl=5s",
            "-ocache_size=1G,x-foo=bar,dev",
        ];
        let expanded = [
            "zarrfs",
            "a.zarr",
            "b",
            "--allow-other",
            "--ttl=5s",
            "--cache-size=1G",
        ];
        assert_eq!(expand(&given).unwrap(), expanded);
        let arguments = with_command(expanded.map(OsString::from).to_vec());
        let Command::Mount(mount) = Cli::parse_from(arguments).command else {
            panic!("mount is the default command");
        };
        assert!(mount.options.allow_other);
        assert_eq!(mount.options.cache_size, Some(1 << 30));
    }

    #[test]
    fn a_comma_between_quotes_is_a_part_of_the_value() {
        let list = r#"ro,formats="npy,chunks",header="Accept: a, b",ttl=1s"#;
        let expanded = expand(&["zarrfs", "-o", list]).unwrap();
        let wanted = [
            "zarrfs",
            "--formats=npy,chunks",
            "--header=Accept: a, b",
            "--ttl=1s",
        ];
        assert_eq!(expanded, wanted);
        // A single quote is an ordinary character.
        assert_eq!(expand(&["-o", "path=a\"b"]).unwrap(), ["--path=a\"b"]);
    }

    #[test]
    fn an_error_in_mount_options_names_the_option() {
        for (options, named) in [
            ("bogus", "`zarrfs mount --help` lists"),
            ("allow_othr", "did you mean `allow_other`?"),
            ("ttl", "ttl"),
            ("verify=1", "verify"),
            ("foreground", "foreground"),
            ("remount,ro", "unmount"),
        ] {
            let message = expand(&["zarrfs", "-o", options]).unwrap_err();
            assert!(message.contains(named), "{message}");
        }
        assert!(expand(&["zarrfs", "-o"]).is_err());
        let dropped = expand_list(OsStr::new("bogus=1,ttl=2s"), UnknownOptions::Ignored);
        assert_eq!(dropped, Ok(vec!["--ttl=2s".into()]));
    }
}
