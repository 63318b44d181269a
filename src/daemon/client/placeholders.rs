//! The placeholders in the command of `zarrfs run`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::Failure;

/// Replaces `{NAME}` by the value of NAME, and `{{` and `}}` by `{` and `}`.
///
/// # Errors
/// If a brace is unbalanced, or a name has no value.
pub(super) fn expand(
    argument: &OsStr,
    value: impl Fn(&str) -> Result<OsString, Failure>,
) -> Result<OsString, Failure> {
    let shown = argument.display();
    let mut expanded = Vec::new();
    let mut rest = argument.as_bytes();
    while let Some(at) = rest.iter().position(|byte| b"{}".contains(byte)) {
        let (before, braces) = rest.split_at(at);
        expanded.extend_from_slice(before);
        rest = match braces {
            [b'{', b'{', behind @ ..] | [b'}', b'}', behind @ ..] => {
                expanded.extend(braces.first());
                behind
            }
            [b'{', behind @ ..] => {
                let end = behind.iter().position(|byte| b"{}".contains(byte));
                let end = end.filter(|end| behind.get(*end) == Some(&b'}'));
                let end = end.ok_or_else(|| {
                    format!("{shown}: a {{ without its }} (write {{{{ for the character itself)")
                })?;
                let (name, behind) = behind.split_at(end);
                let name = std::str::from_utf8(name).map_err(|e| format!("{shown}: {e}"))?;
                let value = value(name).map_err(|e| {
                    format!("{{{name}}}: {e} (write {{{{ and }}}} for the characters themselves)")
                })?;
                expanded.extend_from_slice(value.as_bytes());
                behind.get(1..).unwrap_or_default()
            }
            _ => {
                return Err(format!(
                    "{shown}: a }} without its {{ (write }}}} for the character itself)"
                )
                .into());
            }
        };
    }
    expanded.extend_from_slice(rest);
    Ok(OsString::from_vec(expanded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(argument: &str) -> Result<String, String> {
        let value = |name: &str| match name {
            "nc" => Ok("/m/.zarrfs/a b.nc".into()),
            "g/x.tif" => Ok("/m/g/.zarrfs/x.tif".into()),
            name => Err(format!("no {name}").into()),
        };
        let expanded = expand(OsStr::new(argument), value);
        expanded
            .map(|text| text.into_string().unwrap())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn names_in_braces_are_replaced_and_doubled_braces_are_braces() {
        for (argument, expected) in [
            ("-h", "-h"),
            ("{nc}", "/m/.zarrfs/a b.nc"),
            (
                "--in={nc}:{g/x.tif}",
                "--in=/m/.zarrfs/a b.nc:/m/g/.zarrfs/x.tif",
            ),
            ("{{print $1}}", "{print $1}"),
            ("{{{nc}}}", "{/m/.zarrfs/a b.nc}"),
            ("", ""),
        ] {
            assert_eq!(expanded(argument).as_deref(), Ok(expected), "{argument}");
        }
        let bytes = OsStr::from_bytes(b"\xff{{");
        let kept = expand(bytes, |_| Err("none".into())).unwrap();
        assert_eq!(kept.as_bytes(), b"\xff{");
    }

    #[test]
    fn an_unknown_name_and_a_single_brace_are_errors() {
        for (argument, named) in [
            ("{nope}", "{nope}: no nope"),
            ("{}", "{}: no "),
            ("a{b", "a { without its }"),
            ("a{b{c}", "a { without its }"),
            ("a}b", "a } without its {"),
            ("{print $1}", "{{ and }}"),
        ] {
            let error = expanded(argument).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
