//! Locations of targets and the policy which targets may be read. This module uses names only, without I/O.

use std::path::{Component, Path, PathBuf};

use percent_encoding::percent_decode_str;
use url::Url;

use crate::store::remote::{Trust, is_public};

/// Supported schemes of targets. Their URLs name files or objects that can be read in ranges.
const SCHEMES: [&str; 13] = [
    "http", "https", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "azure", "hdfs", "webhdfs",
    "swebhdfs",
];

/// The name of the option, for messages.
const OPTION: &str = "--allow-target";

/// A target that `--allow-target` allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedTarget {
    /// All targets, except hosts with private addresses, and local files if the references are remote.
    Any,
    /// Files below a directory, or one file.
    File(PathBuf),
    /// Targets whose name begins with this one, in whole components.
    Remote(RemoteName),
}

impl AllowedTarget {
    /// Parses the option value: `any`, a path, or a URL.
    ///
    /// # Errors
    /// The reason why the value is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "any" {
            return Ok(Self::Any);
        }
        match Named::parse(text)? {
            Named::Path(path) if path.as_os_str().is_empty() => Err("an empty path".into()),
            Named::Path(path) => {
                let absolute = std::path::absolute(&path).map_err(|error| error.to_string())?;
                Ok(Self::File(lexical(&absolute)))
            }
            Named::Remote(name) => Ok(Self::Remote(name)),
        }
    }
}

/// A parsed URL whose parts can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteName {
    /// The scheme, in its canonical form for schemes with the same meaning.
    class: String,
    /// The host and port, or the bucket.
    authority: String,
    /// The decoded components of the path.
    names: Vec<Vec<u8>>,
    /// The URL as written.
    url: String,
    /// Whether the host, judged by its name, has no private address.
    is_public: bool,
}

impl RemoteName {
    /// Parses a URL with one of [`SCHEMES`].
    fn parse(scheme: &str, text: &str) -> Result<Self, String> {
        let class = match scheme {
            "s3a" => "s3",
            "gcs" => "gs",
            "abfs" | "abfss" | "azure" => "az",
            scheme => scheme,
        };
        let (authority, path, is_public) = match class {
            "http" | "https" => {
                let url = Url::parse(text).map_err(|error| error.to_string())?;
                let host = url.host_str().filter(|host| !host.is_empty());
                let host = host.ok_or("no host in the URL")?;
                let port = url.port_or_known_default().unwrap_or(0);
                let path = percent_decode_str(url.path()).collect();
                (format!("{host}:{port}"), path, is_public(&url))
            }
            _ => {
                let rest = text.split_once("://").map_or("", |(_, rest)| rest);
                let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
                if authority.is_empty() {
                    return Err("no host or bucket in the URL".into());
                }
                // The name node of HDFS is a host; a bucket is always at its provider, which is public.
                let is_public = match class {
                    "hdfs" | "webhdfs" | "swebhdfs" => {
                        let host = Url::parse(&format!("http://{authority}/"));
                        host.is_ok_and(|host| is_public(&host))
                    }
                    _ => true,
                };
                (authority.to_owned(), path.as_bytes().to_vec(), is_public)
            }
        };
        let names = path.split(|byte| *byte == b'/').map(<[u8]>::to_vec);
        let mut names: Vec<Vec<u8>> = names.collect();
        if class.starts_with("http") {
            names.remove(0);
        }
        Ok(Self {
            class: class.to_owned(),
            authority,
            names,
            url: text.to_owned(),
            is_public,
        })
    }

    fn is_same_origin(&self, other: &Self) -> bool {
        self.class == other.class && self.authority == other.authority
    }

    /// Whether the components of this name are a prefix of those of `other`.
    fn covers(&self, other: &Self) -> bool {
        let own = match self.names.split_last() {
            Some((last, names)) if last.is_empty() => names,
            _ => &self.names[..],
        };
        // A server may interpret `..` as the parent directory.
        let is_plain = other.names.iter().all(|name| name != b"..");
        self.is_same_origin(other) && is_plain && other.names.starts_with(own)
    }

    /// Returns the shortest prefix that allows this target.
    fn prefix(&self) -> String {
        let scheme = self.url.split("://").next().unwrap_or_default();
        let authority = match scheme {
            "http" => self.authority.strip_suffix(":80"),
            "https" => self.authority.strip_suffix(":443"),
            _ => None,
        };
        format!("{scheme}://{}", authority.unwrap_or(&self.authority))
    }
}

/// A parsed target.
#[derive(Debug)]
enum Named {
    /// A path, absolute or relative.
    Path(PathBuf),
    Remote(RemoteName),
}

impl Named {
    fn parse(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self::Path(PathBuf::from(text)));
        };
        match scheme {
            "file" => {
                let path = rest
                    .strip_prefix("localhost/")
                    .map(|path| format!("/{path}"));
                let path = PathBuf::from(path.unwrap_or_else(|| rest.to_owned()));
                Ok(Self::Path(path))
            }
            scheme if SCHEMES.contains(&scheme) => {
                RemoteName::parse(scheme, text).map(Self::Remote)
            }
            scheme => {
                let scheme: String = scheme.chars().take(40).collect();
                Err(format!("targets of the kind `{scheme}` are not supported"))
            }
        }
    }
}

/// Resolves `.` and `..` in a path by name, without following links.
fn lexical(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            component => clean.push(component),
        }
    }
    clean
}

/// The location of the references; relative targets are resolved against it.
#[derive(Debug, Clone)]
pub(in crate::store) enum Base {
    /// The references are in this directory.
    Directory(PathBuf),
    /// The references are at this URL; its last component is their own name.
    Url(String),
}

/// Why a target is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The target is not allowed.
    Denied(String),
    /// The target is of an unsupported kind.
    Unsupported(String),
}

/// The location of an allowed target.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A path below a directory.
    File { root: PathBuf, below: PathBuf },
    /// A URL, and the reason why it is allowed.
    Remote { url: String, trust: Trust },
}

/// The policy which targets may be read.
#[derive(Debug)]
pub(super) struct Policy {
    base: Base,
    /// The directory of the references and the allowed paths, each as written and with links resolved.
    roots: Vec<PathBuf>,
    /// The origin of the references.
    origin: Option<RemoteName>,
    allowed: Vec<AllowedTarget>,
}

impl Policy {
    pub(super) fn new(base: Base, allowed: Vec<AllowedTarget>) -> Self {
        // The daemon changes its working directory later.
        let base = match base {
            Base::Directory(path) => Base::Directory(std::path::absolute(&path).unwrap_or(path)),
            Base::Url(url) => Base::Url(url),
        };
        let mut roots = Vec::new();
        let mut add = |path: &Path| {
            let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            roots.push(lexical(&absolute));
            roots.extend(std::fs::canonicalize(path));
        };
        let mut origin = None;
        match &base {
            Base::Directory(path) => add(path),
            Base::Url(url) => {
                if let Ok(Named::Remote(name)) = Named::parse(url) {
                    origin = Some(name);
                }
            }
        }
        for target in &allowed {
            match target {
                AllowedTarget::File(path) => add(path),
                // Remote references must not learn the content of local files.
                AllowedTarget::Any if matches!(base, Base::Directory(_)) => add(Path::new("/")),
                AllowedTarget::Any | AllowedTarget::Remote(_) => {}
            }
        }
        Self {
            base,
            roots,
            origin,
            allowed,
        }
    }

    /// Whether a target can be on a network.
    pub(super) fn may_be_remote(&self) -> bool {
        let is_file = |allowed: &AllowedTarget| matches!(allowed, AllowedTarget::File(_));
        self.origin.is_some() || !self.allowed.iter().all(is_file)
    }

    /// Returns the location of a target that may be read.
    ///
    /// # Errors
    /// [`Refused`], with the reason and the option that would allow the target.
    pub(super) fn place(&self, target: &str) -> Result<Place, Refused> {
        match Named::parse(target).map_err(Refused::Unsupported)? {
            Named::Remote(name) => self.remote(name),
            Named::Path(path) if path.as_os_str().is_empty() => {
                Err(Refused::Unsupported("a target without a name".into()))
            }
            Named::Path(path) => match &self.base {
                Base::Url(base) if path.is_relative() => {
                    self.remote(beside(base, target).map_err(Refused::Unsupported)?)
                }
                Base::Directory(directory) if path.is_relative() => {
                    self.file(&directory.join(path))
                }
                _ => self.file(&path),
            },
        }
    }

    fn file(&self, path: &Path) -> Result<Place, Refused> {
        let path = lexical(path);
        for root in &self.roots {
            if let Ok(below) = path.strip_prefix(root) {
                let is_itself = below.as_os_str().is_empty();
                let (root, below) = match (is_itself, root.parent(), root.file_name()) {
                    (true, Some(parent), Some(name)) => (parent, Path::new(name)),
                    _ => (root.as_path(), below),
                };
                return Ok(Place::File {
                    root: root.to_owned(),
                    below: below.to_owned(),
                });
            }
        }
        let directory = path.parent().unwrap_or(&path);
        Err(Refused::Denied(format!(
            "it is not below the directory of the references ({OPTION} {} allows it)",
            directory.display()
        )))
    }

    fn remote(&self, name: RemoteName) -> Result<Place, Refused> {
        let found = |trust, url: String| Ok(Place::Remote { url, trust });
        if let Some(origin) = &self.origin
            && origin.is_same_origin(&name)
        {
            return found(Trust::Own, with_user(&origin.url, name));
        }
        let covers = |allowed: &AllowedTarget| match allowed {
            AllowedTarget::Remote(prefix) => prefix.covers(&name),
            _ => false,
        };
        if self.allowed.iter().any(covers) {
            return found(Trust::Named, name.url);
        }
        if name.is_public && self.allowed.contains(&AllowedTarget::Any) {
            return found(Trust::Any, name.url);
        }
        let prefix = name.prefix();
        Err(Refused::Denied(match name.is_public {
            true => format!(
                "it is not at the server or bucket of the references ({OPTION} {prefix} allows it)"
            ),
            false => format!(
                "its host has a private address, which has to be named ({OPTION} {prefix} allows it)"
            ),
        }))
    }
}

/// Resolves a relative target against the URL of the references.
fn beside(base: &str, target: &str) -> Result<RemoteName, String> {
    let scheme = base.split("://").next().unwrap_or_default();
    let url = match scheme {
        "http" | "https" => {
            let base = Url::parse(base).map_err(|error| error.to_string())?;
            let mut url = base.clone();
            url.set_query(None);
            let mut names: Vec<&str> = base.path().split('/').collect();
            names.pop();
            names.extend(target.split('/'));
            // `%` in a file name is literal and so is escaped; `set_path` resolves `..`.
            url.set_path(&names.join("/").replace('%', "%25"));
            url.to_string()
        }
        _ => {
            let directory = base
                .rsplit_once('/')
                .map_or(base, |(directory, _)| directory);
            let (bucket, path) = directory
                .split_once("://")
                .and_then(|(_, rest)| rest.split_once('/').or(Some((rest, ""))))
                .ok_or("no bucket in the URL")?;
            let joined = lexical(&Path::new("/").join(path).join(target));
            format!("{scheme}://{bucket}{}", joined.display())
        }
    };
    RemoteName::parse(scheme, &url)
}

/// Adds the user and password in the URL of the references to a target at the same origin.
fn with_user(base: &str, name: RemoteName) -> String {
    let (Ok(base), Ok(mut url)) = (Url::parse(base), Url::parse(&name.url)) else {
        return name.url;
    };
    let has_own = !url.username().is_empty() || url.password().is_some();
    let has_user = !base.username().is_empty() || base.password().is_some();
    if has_own || !has_user || !name.class.starts_with("http") {
        return name.url;
    }
    // These calls do not fail for a URL with a host.
    let _ = url.set_username(base.username());
    let _ = url.set_password(base.password());
    url.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(base: Base, allowed: &[&str]) -> Policy {
        let allowed = allowed
            .iter()
            .map(|text| AllowedTarget::parse(text).unwrap());
        Policy::new(base, allowed.collect())
    }

    fn url(base: &str, allowed: &[&str], target: &str) -> Result<String, Refused> {
        match policy(Base::Url(base.into()), allowed).place(target)? {
            Place::Remote { url, .. } => Ok(url),
            Place::File { root, below } => Ok(root.join(below).display().to_string()),
        }
    }

    fn denied(found: Result<impl std::fmt::Debug, Refused>) -> String {
        match found {
            Err(Refused::Denied(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_are_read_only_below_the_directory_of_the_references() {
        let here = || Base::Directory("/no/such/refs".into());
        let place = |allowed: &[&str], target: &str| policy(here(), allowed).place(target);
        let below = |path: &str| Place::File {
            root: "/no/such/refs".into(),
            below: path.into(),
        };
        for (target, path) in [
            ("a/b.nc", "a/b.nc"),
            ("./a//x/../b.nc", "a/b.nc"),
            ("file:///no/such/refs/c.nc", "c.nc"),
            ("file://localhost/no/such/refs/c.nc", "c.nc"),
            ("/no/such/refs/d.nc", "d.nc"),
        ] {
            assert_eq!(place(&[], target), Ok(below(path)), "{target}");
        }
        for target in [
            "file:///etc/passwd",
            "/etc/passwd",
            "../x.nc",
            "a/../../x.nc",
            "/no/such/refs-of-another/x",
            "/no/such/refs/../x",
        ] {
            assert!(
                denied(place(&[], target)).contains("--allow-target"),
                "{target}"
            );
        }
        let other = place(&["/no/such"], "../x.nc").unwrap();
        assert_eq!(
            other,
            Place::File {
                root: "/no/such".into(),
                below: "x.nc".into()
            }
        );
        assert!(place(&["/no/such/x.nc"], "../x.nc").is_ok());
        assert!(place(&["any"], "/elsewhere/x").is_ok());
        assert!(denied(place(&["https://h"], "/etc/passwd")).contains("/etc"));
    }

    #[test]
    fn urls_are_read_only_at_the_origin_of_the_references() {
        let base = "https://u:p@h/a/refs.json";
        let at = |target: &str| url(base, &[], target);
        assert_eq!(at("x%y z.nc").unwrap(), "https://u:p@h/a/x%25y%20z.nc");
        assert_eq!(at("../b/x.nc").unwrap(), "https://u:p@h/b/x.nc");
        assert_eq!(at("https://h:443/c/x").unwrap(), "https://u:p@h/c/x");
        for target in [
            "http://h/x",
            "https://h:444/x",
            "https://other/x",
            "s3://h/x",
        ] {
            assert!(denied(at(target)).contains("--allow-target"), "{target}");
        }
        assert!(denied(at("file:///etc/passwd")).contains("--allow-target /etc"));
        let bucket = |target: &str| url("s3://b/p/refs.json", &[], target);
        assert_eq!(bucket("x.nc").unwrap(), "s3://b/p/x.nc");
        assert_eq!(bucket("../x.nc").unwrap(), "s3://b/x.nc");
        assert!(bucket("s3a://b/other/x").is_ok() && bucket("s3://c/x").is_err());
        assert!(matches!(at("memory://x"), Err(Refused::Unsupported(_))));
    }

    #[test]
    fn a_prefix_allows_whole_components() {
        let base = "https://h/refs.json";
        let at = |allowed: &str, target: &str| url(base, &[allowed], target);
        assert!(at("s3://b/data", "s3://b/data/x").is_ok());
        assert!(at("s3://b/data/", "s3a://b/data/x").is_ok());
        assert!(at("s3://b/data", "s3://b/database").is_err());
        assert!(at("s3://b/data", "s3://b/data/../x").is_err());
        assert!(at("https://o/d", "https://o/d/%2e%2e/x").is_err());
        assert!(at("https://o/d", "https://o/d%2Fx").is_ok());
        assert!(at("https://o", "https://o:8443/x").is_err());
        assert!(at("any", "gs://b/x").is_ok());
    }

    #[test]
    fn private_hosts_have_to_be_named() {
        let base = "https://h/refs.json";
        for host in [
            "169.254.169.254",
            "127.0.0.1:80",
            "10.1.2.3",
            "localhost",
            "[::1]",
            "2130706433",
            "0x7f.1",
            "[::ffff:169.254.169.254]",
            "100.64.0.1",
        ] {
            let target = format!("http://{host}/latest");
            assert!(
                denied(url(base, &["any"], &target)).contains("private"),
                "{host}"
            );
            let named = format!("http://{host}");
            assert!(url(base, &[&named], &target).is_ok(), "{host}");
        }
        let any = |target: &str| url(base, &["any"], target);
        assert!(denied(any("file:///etc/passwd")).contains("--allow-target /etc"));
        assert!(denied(any("hdfs://10.0.0.1/x")).contains("private"));
        assert!(denied(any("swebhdfs://ada@localhost/x")).contains("private"));
        assert!(any("hdfs://namenode.example.org/x").is_ok());
        // URLs of databases do not name files.
        for target in ["redis://h/0", "mongodb://h/d", "unix:///run/redis.sock"] {
            assert!(
                matches!(any(target), Err(Refused::Unsupported(_))),
                "{target}"
            );
        }
    }
}
