//! Locations of targets, and the policy which targets may be read. It judges paths and URLs by their text,
//! without I/O.

use std::path::{Component, Path, PathBuf};

use percent_encoding::percent_decode_str;
use url::Url;

use crate::store::remote::{
    AllowedBy, Protocol, RedirectPolicy, Syntax, has_escaped_path, is_public, missing_feature,
};
use crate::store::url_scheme::with_lower_scheme;

/// The name of the option, for messages.
const OPTION: &str = "--allow-target";

/// A target that `--allow-target` allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedTarget {
    /// All targets, except hosts with private addresses, and local files if the references are remote.
    Any,
    /// Files below a directory, or one file.
    File(PathBuf),
    /// Targets whose URL begins with this one, in whole segments.
    Remote(RemoteUrl),
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
        match ParsedTarget::parse(text)? {
            ParsedTarget::Path(path) if path.as_os_str().is_empty() => Err("an empty path".into()),
            ParsedTarget::Path(path) => {
                let absolute = std::path::absolute(&path).map_err(|error| error.to_string())?;
                Ok(Self::File(normalize(&absolute)))
            }
            ParsedTarget::Remote(name) => Ok(Self::Remote(name)),
        }
    }
}

/// A parsed URL whose parts can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    /// The scheme; the first one of several with the same meaning.
    scheme: String,
    /// The host and port, or the bucket.
    authority: String,
    /// The decoded segments of the path.
    segments: Vec<Vec<u8>>,
    /// The URL as written.
    url: String,
    /// Whether the host, judged by its name, has no private address.
    is_public: bool,
}

impl RemoteUrl {
    /// Parses a URL of a protocol.
    fn parse(protocol: &Protocol, text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let own_host = |url: &Url| Some(url.host_str().filter(|host| !host.is_empty())?.to_owned());
        let (authority, path, is_public) = match protocol.traits.syntax {
            Syntax::Escaped => {
                let url = Url::parse(text).map_err(|error| error.to_string())?;
                let host = own_host(&url).ok_or("no host in the URL")?;
                let port = url.port_or_known_default().unwrap_or(0);
                let path: Vec<u8> = percent_decode_str(url.path()).collect();
                let path = path.strip_prefix(b"/").unwrap_or(&path).to_vec();
                (format!("{host}:{port}"), path, is_public(&url))
            }
            Syntax::Host | Syntax::Name { .. } => {
                let (origin, path) = protocol.divide(rest);
                if origin.is_empty() {
                    return Err("no host or bucket in the URL".into());
                }
                // A name is always at its provider, which is public or has been named by the user.
                let host = Url::parse(&format!("http://{origin}/"));
                let is_public = match protocol.traits.syntax {
                    Syntax::Host => host.is_ok_and(|host| is_public(&host)),
                    Syntax::Escaped | Syntax::Name { .. } => true,
                };
                (origin.to_owned(), path.as_bytes().to_vec(), is_public)
            }
        };
        let segments = path.split(|byte| *byte == b'/').map(<[u8]>::to_vec);
        Ok(Self {
            scheme: protocol.canonical_scheme(scheme).to_owned(),
            authority,
            segments: segments.collect(),
            url: text.to_owned(),
            is_public,
        })
    }

    fn is_same_origin(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.authority == other.authority
    }

    /// Whether the segments of this URL are a prefix of those of `other`.
    fn covers(&self, other: &Self) -> bool {
        let own = match self.segments.split_last() {
            Some((last, names)) if last.is_empty() => names,
            _ => &self.segments[..],
        };
        // A server may interpret `..` as the parent directory.
        let is_plain = other.segments.iter().all(|name| name != b"..");
        self.is_same_origin(other) && is_plain && other.segments.starts_with(own)
    }

    /// Returns the shortest prefix that allows this target.
    fn prefix(&self) -> String {
        let scheme = self.url.split("://").next().unwrap_or_default();
        // The port is left out if it is that of the scheme.
        let url = Url::parse(&self.url)
            .ok()
            .filter(|_| has_escaped_path(&self.url));
        let plain = url.filter(|url| url.port().is_none());
        let host = plain.as_ref().and_then(Url::host_str);
        format!("{scheme}://{}", host.unwrap_or(&self.authority))
    }
}

/// A parsed target.
#[derive(Debug)]
enum ParsedTarget {
    /// A path, absolute or relative.
    Path(PathBuf),
    Remote(RemoteUrl),
}

impl ParsedTarget {
    fn parse(text: &str) -> Result<Self, String> {
        let lower = with_lower_scheme(text);
        let text = lower.as_ref();
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
            scheme => {
                let known = Protocol::of_scheme(scheme);
                if let Some(protocol) = known.filter(|protocol| protocol.traits.reads_ranges) {
                    return RemoteUrl::parse(protocol, text).map(Self::Remote);
                }
                if let Some(feature) = missing_feature(scheme) {
                    return Err(format!(
                        "this build lacks targets of the kind `{scheme}`: build zarrfs with `--features {feature}`"
                    ));
                }
                let scheme: String = scheme.chars().take(40).collect();
                Err(format!("targets of the kind `{scheme}` are not supported"))
            }
        }
    }
}

/// Resolves `.` and `..` in a path by name, without following links.
fn normalize(path: &Path) -> PathBuf {
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
pub(in crate::store) enum BaseLocation {
    /// The references are in this directory.
    Directory(PathBuf),
    /// The references are at this URL; its last component is their own name.
    Url(String),
}

/// Why a target may not or cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store) enum TargetError {
    /// The target is not allowed.
    Denied(String),
    /// The target is of an unsupported kind.
    Unsupported(String),
}

/// The location of an allowed target.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store) enum TargetLocation {
    /// A path below a directory.
    File { root: PathBuf, below: PathBuf },
    /// A URL, and the reason why it is allowed.
    Remote { url: String, allowed_by: AllowedBy },
}

/// The policy which targets may be read.
#[derive(Debug)]
pub(in crate::store) struct TargetPolicy {
    base: BaseLocation,
    /// What names the targets, for messages.
    named_by: &'static str,
    /// The directory of the references and the allowed paths, each as written and with links resolved.
    roots: Vec<PathBuf>,
    /// The origin of the references.
    origin: Option<RemoteUrl>,
    allowed: Vec<AllowedTarget>,
}

impl TargetPolicy {
    /// Returns the policy for targets that `named_by`, such as "the references", names.
    pub(in crate::store) fn new(
        base: BaseLocation,
        allowed: Vec<AllowedTarget>,
        named_by: &'static str,
    ) -> Self {
        // The daemon changes its working directory later.
        let base = match base {
            BaseLocation::Directory(path) => {
                BaseLocation::Directory(std::path::absolute(&path).unwrap_or(path))
            }
            BaseLocation::Url(url) => BaseLocation::Url(url),
        };
        let mut roots = Vec::new();
        let mut add = |path: &Path| {
            let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            roots.push(normalize(&absolute));
            roots.extend(std::fs::canonicalize(path));
        };
        let mut origin = None;
        match &base {
            BaseLocation::Directory(path) => add(path),
            BaseLocation::Url(url) => {
                if let Ok(ParsedTarget::Remote(name)) = ParsedTarget::parse(url) {
                    origin = Some(name);
                }
            }
        }
        for target in &allowed {
            match target {
                AllowedTarget::File(path) => add(path),
                // Remote references must not learn the content of local files.
                AllowedTarget::Any if matches!(base, BaseLocation::Directory(_)) => {
                    add(Path::new("/"))
                }
                AllowedTarget::Any | AllowedTarget::Remote(_) => {}
            }
        }
        Self {
            base,
            named_by,
            roots,
            origin,
            allowed,
        }
    }

    /// Whether a target can be on a network.
    pub(in crate::store) fn may_be_remote(&self) -> bool {
        let is_file = |allowed: &AllowedTarget| matches!(allowed, AllowedTarget::File(_));
        self.origin.is_some() || !self.allowed.iter().all(is_file)
    }

    /// Returns the location of a target that may be read.
    ///
    /// # Errors
    /// [`TargetError`], with the reason and the option that would allow the target.
    pub(in crate::store) fn resolve(&self, target: &str) -> Result<TargetLocation, TargetError> {
        match ParsedTarget::parse(target).map_err(TargetError::Unsupported)? {
            ParsedTarget::Remote(name) => self.remote(name),
            ParsedTarget::Path(path) if path.as_os_str().is_empty() => {
                Err(TargetError::Unsupported("a target without a name".into()))
            }
            ParsedTarget::Path(path) => match &self.base {
                BaseLocation::Url(base) if path.is_relative() => {
                    self.remote(resolve_relative(base, target).map_err(TargetError::Unsupported)?)
                }
                BaseLocation::Directory(directory) if path.is_relative() => {
                    self.file(&directory.join(path))
                }
                _ => self.file(&path),
            },
        }
    }

    /// Returns the location of a file that may be read.
    ///
    /// # Errors
    /// As [`TargetPolicy::resolve`].
    pub(in crate::store) fn file(&self, path: &Path) -> Result<TargetLocation, TargetError> {
        let path = normalize(path);
        for root in &self.roots {
            if let Ok(below) = path.strip_prefix(root) {
                let is_itself = below.as_os_str().is_empty();
                let (root, below) = match (is_itself, root.parent(), root.file_name()) {
                    (true, Some(parent), Some(name)) => (parent, Path::new(name)),
                    _ => (root.as_path(), below),
                };
                return Ok(TargetLocation::File {
                    root: root.to_owned(),
                    below: below.to_owned(),
                });
            }
        }
        let directory = path.parent().unwrap_or(&path);
        Err(TargetError::Denied(format!(
            "it is not below the directory of {} ({OPTION} {} allows it)",
            self.named_by,
            directory.display()
        )))
    }

    fn remote(&self, name: RemoteUrl) -> Result<TargetLocation, TargetError> {
        let found = |allowed_by, url: String| Ok(TargetLocation::Remote { url, allowed_by });
        if let Some(origin) = &self.origin
            && origin.is_same_origin(&name)
        {
            return found(AllowedBy::SameOrigin, with_credentials(&origin.url, name));
        }
        let covers = |allowed: &AllowedTarget| match allowed {
            AllowedTarget::Remote(prefix) => prefix.covers(&name),
            _ => false,
        };
        if self.allowed.iter().any(covers) {
            return found(AllowedBy::Name, name.url);
        }
        if name.is_public && self.allowed.contains(&AllowedTarget::Any) {
            return found(AllowedBy::Any, name.url);
        }
        let prefix = name.prefix();
        Err(TargetError::Denied(match name.is_public {
            true => format!(
                "it is not at the server or bucket of {} ({OPTION} {prefix} allows it)",
                self.named_by
            ),
            false => format!(
                "its host has a private address, which has to be named ({OPTION} {prefix} allows it)"
            ),
        }))
    }
}

impl RedirectPolicy for TargetPolicy {
    fn judge(&self, url: &str) -> Result<bool, String> {
        match self.resolve(url) {
            Ok(TargetLocation::Remote { allowed_by, .. }) => Ok(allowed_by == AllowedBy::Any),
            Ok(TargetLocation::File { .. }) => Err("it is a file".into()),
            Err(TargetError::Denied(reason) | TargetError::Unsupported(reason)) => Err(reason),
        }
    }
}

/// Resolves a relative target against the URL of the references.
fn resolve_relative(base: &str, target: &str) -> Result<RemoteUrl, String> {
    let protocol = Protocol::of_url(base).ok_or("references without a URL")?;
    let url = match protocol.has_escapes() {
        true => {
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
        false => {
            let (scheme, rest) = base.split_once("://").unwrap_or_default();
            let (origin, path) = protocol.divide(rest);
            let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
            let joined = normalize(&Path::new("/").join(directory).join(target));
            format!("{scheme}://{origin}{}", joined.display())
        }
    };
    RemoteUrl::parse(protocol, &url)
}

/// Adds the user and password in the URL of the references to a target at the same origin.
fn with_credentials(base: &str, name: RemoteUrl) -> String {
    let (Ok(base), Ok(mut url)) = (Url::parse(base), Url::parse(&name.url)) else {
        return name.url;
    };
    let has_own = !url.username().is_empty() || url.password().is_some();
    let has_user = !base.username().is_empty() || base.password().is_some();
    if has_own || !has_user || !has_escaped_path(&name.url) {
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

    fn policy(base: BaseLocation, allowed: &[&str]) -> TargetPolicy {
        let allowed = allowed
            .iter()
            .map(|text| AllowedTarget::parse(text).unwrap());
        TargetPolicy::new(base, allowed.collect(), "the references")
    }

    fn url(base: &str, allowed: &[&str], target: &str) -> Result<String, TargetError> {
        match policy(BaseLocation::Url(base.into()), allowed).resolve(target)? {
            TargetLocation::Remote { url, .. } => Ok(url),
            TargetLocation::File { root, below } => Ok(root.join(below).display().to_string()),
        }
    }

    fn denied(found: Result<impl std::fmt::Debug, TargetError>) -> String {
        match found {
            Err(TargetError::Denied(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_are_read_only_below_the_directory_of_the_references() {
        let here = || BaseLocation::Directory("/no/such/refs".into());
        let resolve = |allowed: &[&str], target: &str| policy(here(), allowed).resolve(target);
        let below = |path: &str| TargetLocation::File {
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
            assert_eq!(resolve(&[], target), Ok(below(path)), "{target}");
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
                denied(resolve(&[], target)).contains("--allow-target"),
                "{target}"
            );
        }
        let other = resolve(&["/no/such"], "../x.nc").unwrap();
        assert_eq!(
            other,
            TargetLocation::File {
                root: "/no/such".into(),
                below: "x.nc".into()
            }
        );
        assert!(resolve(&["/no/such/x.nc"], "../x.nc").is_ok());
        assert!(resolve(&["any"], "/elsewhere/x").is_ok());
        assert!(denied(resolve(&["https://h"], "/etc/passwd")).contains("/etc"));
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
        assert!(matches!(at("memory://x"), Err(TargetError::Unsupported(_))));
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
                matches!(any(target), Err(TargetError::Unsupported(_))),
                "{target}"
            );
        }
    }
}
