//! Passwords of web servers from the file `.netrc`, as curl, wget and GDAL read it.

use std::io;
use std::path::PathBuf;

use http::HeaderValue;
use netrc_rs::Netrc;

use super::address::basic;
use crate::machine::read_file;

/// Size limit of the file in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Returns the header `Authorization` for a host that has an entry of its own in the file that `NETRC` names, or in
/// `~/.netrc`. The entry `default` is for no server that the user names.
pub(super) fn authorization(host: &str) -> Option<HeaderValue> {
    let named = std::env::var_os("NETRC").map(PathBuf::from);
    let file = named.or_else(|| Some(std::env::home_dir()?.join(".netrc")))?;
    let unusable = |why: &str| log::warn!("{}: {why}", file.display());
    match read_file(&file, MAX_FILE_BYTES) {
        // The message of the library can contain a password.
        Ok(bytes) => of_host(&String::from_utf8_lossy(&bytes), host)
            .inspect_err(|()| unusable("it cannot be read as a netrc file"))
            .unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            unusable(&error.to_string());
            None
        }
    }
}

/// Returns the header for a host from the text of a file, which may be invalid.
fn of_host(text: &str, host: &str) -> Result<Option<HeaderValue>, ()> {
    let lines = text.lines().map(str::trim_start);
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
    let netrc = Netrc::parse(lines.join("\n"), true).map_err(drop)?;
    let mut entries = netrc.machines.iter();
    let entry = entries.find(|entry| entry.name.as_deref() == Some(host));
    Ok(entry.and_then(|entry| {
        let user = entry.login.as_ref().filter(|user| !user.is_empty())?;
        let password = entry.password.as_deref().unwrap_or_default();
        basic(user.as_bytes(), password.as_bytes())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_its_own_entry_and_not_the_default() {
        let text = "# machine c.org login x\nmachine a.org login u password p@\nmachine b.org password x\ndefault login d password e\n";
        let found = of_host(text, "a.org").unwrap().unwrap();
        assert!(found.is_sensitive());
        assert_eq!(found.to_str().unwrap(), "Basic dTpwQA==");
        for host in ["b.org", "c.org", "default"] {
            assert_eq!(of_host(text, host), Ok(None), "{host}");
        }
        assert_eq!(of_host("login a password b", "a.org"), Err(()));
    }
}
