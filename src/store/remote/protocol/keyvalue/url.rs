//! URLs of Redis.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use reqwest::Url;

/// The default prefix of zarr-python's store.
const PREFIX: &str = "zarr";
const PORT: u16 = 6379;

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Tcp {
        host: String,
        port: u16,
        is_tls: bool,
    },
    Unix(PathBuf),
}

/// The keys of a Redis database that begin with a prefix, and the user who reads them.
#[derive(Clone)]
pub(super) struct RedisUrl {
    pub(super) address: Address,
    pub(super) database: i64,
    /// The part before the colon in every key.
    pub(super) prefix: String,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

fn decoded(text: &str, what: &str) -> Result<String, String> {
    let text = percent_decode_str(text).decode_utf8();
    let text = text.map_err(|_| format!("{what} is not UTF-8"))?;
    Ok(text.into_owned())
}

fn database_number(text: &str) -> Result<i64, String> {
    let number = text.parse().ok().filter(|number| *number >= 0);
    number.ok_or_else(|| "the database is not a number".to_owned())
}

impl RedisUrl {
    /// Parses `redis://[[USER]:PASSWORD@]HOST[:PORT][/DB][?prefix=PREFIX]`, `rediss://...` (over TLS),
    /// `redis+unix:///PATH?db=DB&prefix=PREFIX` or `unix://...`, as redis-py does.
    pub(super) fn parse(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let is_unix = matches!(scheme, "redis+unix" | "unix");
        let rest = match rest.split_once('/') {
            // Only a user may precede the path. A URL with a user needs a host, so `unix` is inserted.
            Some((user, path)) if is_unix && (user.is_empty() || user.ends_with('@')) => {
                format!("{user}unix/{path}")
            }
            _ if is_unix => {
                return Err("behind the scheme stands the path of a socket: unix:///path".into());
            }
            _ => rest.to_owned(),
        };
        let parsed = Url::parse(&format!("redis://{rest}")).map_err(|error| error.to_string())?;
        let mut url = Self {
            address: Address::Unix(PathBuf::new()),
            database: 0,
            prefix: PREFIX.to_owned(),
            user: Some(decoded(parsed.username(), "the user")?),
            password: parsed
                .password()
                .map(|password| decoded(password, "the password"))
                .transpose()?,
        };
        let path = decoded(parsed.path(), "the path")?;
        let host = parsed.host_str().unwrap_or_default();
        if is_unix {
            url.address = Address::Unix(path.into());
        } else {
            if host.is_empty() {
                return Err("no host in the URL".into());
            }
            url.address = Address::Tcp {
                host: host.trim_matches(['[', ']']).to_owned(),
                port: parsed.port().unwrap_or(PORT),
                is_tls: scheme == "rediss",
            };
            if let number @ [_, ..] = path.trim_matches('/').as_bytes() {
                url.database = database_number(&String::from_utf8_lossy(number))?;
            }
        }
        for (name, value) in parsed.query_pairs() {
            match &*name {
                "prefix" => url.prefix = value.into_owned(),
                "db" => url.database = database_number(&value)?,
                "username" => url.user = Some(value.into_owned()),
                "password" => url.password = Some(value.into_owned()),
                _ => {
                    let name = name.escape_debug();
                    return Err(format!(
                        "`{name}` behind `?`: only `prefix` and `db` are known"
                    ));
                }
            }
        }
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        url.user = url.user.filter(|user| !user.is_empty());
        if url.password.is_none() {
            url.password = variable("REDIS_PASSWORD");
            url.user = url.user.or_else(|| variable("REDIS_USERNAME"));
        }
        Ok(url)
    }

    /// The URL for messages, without user and password.
    pub(super) fn label(&self) -> String {
        let (prefix, database) = (&self.prefix, self.database);
        match &self.address {
            Address::Unix(path) => {
                let path = path.display();
                format!("redis+unix://{path}?db={database}&prefix={prefix}")
            }
            Address::Tcp { host, port, is_tls } => {
                let scheme = if *is_tls { "rediss" } else { "redis" };
                let host = match host.contains(':') {
                    true => format!("[{host}]"),
                    false => host.clone(),
                };
                format!("{scheme}://{host}:{port}/{database}?prefix={prefix}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, variables: &[(&str, &str)]) -> Result<RedisUrl, String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(one, _)| *one == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        RedisUrl::parse(text, variable)
    }

    #[test]
    fn urls_of_redis_are_read_as_redis_py_reads_them() {
        for (text, label) in [
            ("redis://h", "redis://h:6379/0?prefix=zarr"),
            ("redis://h:1/", "redis://h:1/0?prefix=zarr"),
            (
                "redis://u:secret@h:1/3?prefix=a%20b",
                "redis://h:1/3?prefix=a b",
            ),
            (
                "rediss://:secret@[::1]/2",
                "rediss://[::1]:6379/2?prefix=zarr",
            ),
            ("redis://h?db=4&prefix=", "redis://h:6379/4?prefix="),
            (
                "unix:///run/r%20s.sock?db=2",
                "redis+unix:///run/r s.sock?db=2&prefix=zarr",
            ),
            (
                "unix://u@/r.sock?password=secret",
                "redis+unix:///r.sock?db=0&prefix=zarr",
            ),
            (
                "redis+unix:///r.sock?prefix=x",
                "redis+unix:///r.sock?db=0&prefix=x",
            ),
        ] {
            let url = parse(text, &[]).unwrap();
            assert_eq!(url.label(), label, "{text}");
            assert!(!format!("{url:?}").contains("secret"));
        }
        for wrong in [
            "redis://",
            "redis:///0",
            "redis://:secret@h/secret",
            "redis://:secret@h/-1",
            "redis://:secret@h/0?secret=1x&y=secret",
            "unix://host/path",
            "unix://",
        ] {
            let error = parse(wrong, &[]).unwrap_err();
            assert!(
                !error.contains("secret") || wrong.contains("?secret"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_password_comes_from_the_url_or_else_from_the_environment() {
        let variables = [("REDIS_PASSWORD", "p"), ("REDIS_USERNAME", "u")];
        let credentials = |text: &str| {
            let url = parse(text, &variables).unwrap();
            (url.user, url.password)
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(credentials("redis://h"), (some("u"), some("p")));
        assert_eq!(credentials("redis://v@h"), (some("v"), some("p")));
        assert_eq!(credentials("redis://v:q%40@h"), (some("v"), some("q@")));
        assert_eq!(credentials("redis://:q@h"), (None, some("q")));
        assert_eq!(parse("redis://h", &[]).unwrap().password, None);
    }
}
