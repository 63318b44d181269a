//! The table of protocols: which URLs name a remote source, and what its server can do.
//!
//! A protocol is a module with a [`Protocol`], and one line in [`PROTOCOLS`]. The table is the only place that
//! maps schemes to modules: sources, targets of references, messages, `--help` and `--version` read it.

#[cfg(feature = "cloud")]
pub(super) mod bucket;
mod credential_command;
pub(super) mod error;
mod hdfs;
pub(super) mod hf;
#[cfg(any(feature = "mongodb", feature = "redis"))]
mod keyvalue;
pub(super) mod options;
mod subprocess;
pub(super) mod web;

pub use credential_command::CredentialCommand;

use std::fmt::{self, Debug};
use std::sync::Arc;

use crate::store::KeyClasses;
use crate::store::remote::protocol::options::RemoteOptions;
use crate::store::remote::request::Remote;

/// All protocols, in the order of messages and of `--help`.
pub(in crate::store) static PROTOCOLS: &[Protocol] = &[
    web::PROTOCOL,
    #[cfg(feature = "cloud")]
    bucket::S3,
    #[cfg(feature = "cloud")]
    bucket::GOOGLE,
    #[cfg(feature = "cloud")]
    bucket::AZURE,
    hdfs::PROTOCOL,
    hf::PROTOCOL,
    #[cfg(feature = "redis")]
    keyvalue::REDIS,
    #[cfg(feature = "mongodb")]
    keyvalue::MONGODB,
];

/// The cargo features that this build lacks, with the schemes of their protocols.
static NOT_BUILT_IN: &[(&str, &[&str])] = &[
    #[cfg(not(feature = "cloud"))]
    (
        "cloud",
        &["s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "azure"],
    ),
    #[cfg(not(feature = "redis"))]
    ("redis", &["redis", "rediss", "redis+unix", "unix"]),
    #[cfg(not(feature = "mongodb"))]
    ("mongodb", &["mongodb"]),
];

/// Returns the value of an environment variable.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Parses a URL. The error is the reason why it is invalid, without secrets.
pub(super) type Parse = fn(&str, Variables<'_>) -> Result<Box<dyn Location>, String>;

/// How a kind of remote source is named and spoken to.
pub(in crate::store) struct Protocol {
    /// The schemes of its URLs; the first one stands for all in short lists.
    pub(in crate::store) schemes: &'static [&'static str],
    /// A URL whose words in capitals stand for its parts.
    pub(in crate::store) example: &'static str,
    /// What its URLs mean, and what its servers can do.
    pub(in crate::store) traits: Traits,
    /// Parses a URL with one of the schemes.
    pub(super) parse: Parse,
    /// What users can do about a refusal with this HTTP status, in parentheses; `None` if no request was sent.
    pub(super) denied: fn(Option<u16>) -> &'static str,
}

/// What the URLs of a protocol mean, and what its servers can do.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Traits {
    /// How a URL is divided.
    pub(in crate::store) syntax: Syntax,
    /// Whether all schemes mean the same.
    pub(in crate::store) has_aliases: bool,
    /// Which names a server lists.
    pub(in crate::store) listing: NameListing,
    /// Whether requests can have the credentials of a command.
    pub(in crate::store) has_credentials: bool,
    /// Whether a part of a known version of a value can be requested. Otherwise, values are fetched whole, and
    /// neither archives nor references can be in the source.
    pub(in crate::store) reads_ranges: bool,
}

/// How a URL is divided into the origin, which may share credentials, and a key.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) enum Syntax {
    /// RFC 3986: a host, a path with escapes, and perhaps a query.
    Escaped,
    /// The text after `://` is an origin, a slash and a key, all without escapes. The origin is a host.
    Host,
    /// The same, where the origin is a name at a provider. The number of components of the origin is that of a
    /// text after `://`.
    Name { components: fn(&str) -> usize },
}

/// The names that servers of a protocol list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum NameListing {
    /// Some servers list some names of a directory.
    Pages,
    /// All names of one directory.
    Directories,
    /// All keys that begin with a prefix.
    Keys,
}

/// The location that a URL names.
pub(super) trait Location: Debug {
    /// Returns the URL for messages, without secrets. Its scheme is one of the protocol.
    fn label(&self) -> String;

    /// Returns the text that identifies the source, as this user sees it, in a disk cache.
    fn identity(&self, _options: &RemoteOptions) -> String {
        self.label()
    }

    /// Returns the last component of the path, which can show that the source is an archive.
    fn file_name(&self) -> String {
        self.label()
    }

    /// Whether the URL names contents that never change.
    fn is_immutable(&self) -> bool {
        false
    }

    /// Returns the message for a source with none of the `documents` and no keys.
    fn nothing_there(&self, documents: &[&str]) -> String {
        format!(
            "the server has nothing at this URL, and none of {} below it; check the URL, which must be that of \
             the hierarchy itself",
            documents.join(", ")
        )
    }

    /// Creates the client, which sends requests with one attempt each.
    ///
    /// # Errors
    /// The reason why no request can ever succeed.
    fn open(&self, options: &RemoteOptions, classes: KeyClasses)
    -> Result<Arc<dyn Remote>, String>;
}

impl Debug for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.example)
    }
}

impl Protocol {
    /// Returns the protocol of a scheme in lower case.
    pub(in crate::store) fn of_scheme(scheme: &str) -> Option<&'static Self> {
        PROTOCOLS
            .iter()
            .find(|protocol| protocol.schemes.contains(&scheme))
    }

    /// Returns the protocol of a URL, whose scheme is in lower case; `None` for other texts.
    pub(in crate::store) fn of_url(url: &str) -> Option<&'static Self> {
        Self::of_scheme(url.split_once("://")?.0)
    }

    /// Whether the path in a URL is percent-encoded.
    pub(in crate::store) fn has_escapes(&self) -> bool {
        matches!(self.traits.syntax, Syntax::Escaped)
    }

    /// Returns the scheme that stands for all schemes with the same meaning.
    pub(in crate::store) fn canonical_scheme<'a>(&self, scheme: &'a str) -> &'a str {
        match self.schemes.first() {
            Some(first) if self.traits.has_aliases => first,
            _ => scheme,
        }
    }

    /// Whether credentials sign requests, or are sent only to the provider itself: any source may have them.
    pub(in crate::store) fn signs_requests(&self) -> bool {
        matches!(self.schemes.first(), Some(&("s3" | "gs")))
    }

    /// Divides the text after `://` of a URL without escapes into the origin and the key.
    pub(in crate::store) fn divide<'a>(&self, rest: &'a str) -> (&'a str, &'a str) {
        let components = match self.traits.syntax {
            Syntax::Name { components } => components(rest),
            Syntax::Escaped | Syntax::Host => 1,
        };
        let mut slashes = rest.match_indices('/').map(|(at, _)| at);
        let end = slashes.nth(components.saturating_sub(1));
        end.and_then(|end| Some((rest.get(..end)?, rest.get(end + 1..)?)))
            .unwrap_or((rest, ""))
    }
}

/// The number of components of an origin that is a host or a bucket.
pub(super) fn one_component(_rest: &str) -> usize {
    1
}

/// Returns the schemes of the URLs of remote sources.
pub fn remote_schemes() -> impl Iterator<Item = &'static str> + Clone {
    PROTOCOLS
        .iter()
        .flat_map(|protocol| protocol.schemes)
        .copied()
}

/// Returns the schemes of remote sources that this build lacks, each with the cargo feature that adds it.
pub fn schemes_without_feature() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = NOT_BUILT_IN.iter();
    rows.flat_map(|(feature, schemes)| schemes.iter().map(move |scheme| (*scheme, *feature)))
}

/// Returns the cargo feature that this build lacks for a scheme in lower case.
pub(in crate::store) fn missing_feature(scheme: &str) -> Option<&'static str> {
    let mut rows = schemes_without_feature();
    rows.find_map(|(own, feature)| (own == scheme).then_some(feature))
}

/// Returns an example of the URLs of each kind of remote source, with words in capitals for the parts.
pub(in crate::store) fn remote_examples() -> impl Iterator<Item = &'static str> {
    PROTOCOLS.iter().map(|protocol| protocol.example)
}

/// Whether the servers of a URL list all names of a directory, unless they deny it.
pub(in crate::store) fn lists_all_names(url: &str) -> bool {
    Protocol::of_url(url).is_some_and(|protocol| protocol.traits.listing != NameListing::Pages)
}

/// Whether a text is the URL of a remote source.
pub fn is_remote_url(text: &str) -> bool {
    Protocol::of_url(text).is_some()
}

/// Whether a text is the URL of a remote source whose path is percent-encoded.
pub fn has_escaped_path(text: &str) -> bool {
    Protocol::of_url(text).is_some_and(Protocol::has_escapes)
}

/// The URL for messages, without secrets.
pub(in crate::store) fn label(url: &str) -> String {
    let parsed = Protocol::of_url(url).map(|protocol| (protocol.parse)(url, &|_| None));
    match parsed {
        Some(Ok(location)) => location.label(),
        Some(Err(_)) | None => hidden(url),
    }
}

/// The part of a URL that can be shown if secrets may be anywhere in it.
pub(super) fn hidden(url: &str) -> String {
    let scheme = url.split("://").next().unwrap_or_default();
    format!("{scheme}://...")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_scheme_is_in_one_line_of_the_table_and_in_the_manual() {
        let manual = include_str!("../../manual/sources.md");
        let mut seen = HashSet::new();
        for protocol in PROTOCOLS {
            let first = protocol.schemes[0];
            assert!(protocol.example.starts_with(&format!("{first}://")));
            assert!(manual.contains(&format!("{first}://")), "{first}");
            for scheme in protocol.schemes {
                assert!(seen.insert(scheme), "{scheme}");
                assert!(manual.contains(&format!("`{scheme}")), "{scheme}");
                assert!(std::ptr::eq(Protocol::of_scheme(scheme).unwrap(), protocol));
            }
        }
    }

    #[test]
    fn a_label_has_a_scheme_of_the_same_protocol_and_no_secret() {
        for protocol in PROTOCOLS {
            let own = label(protocol.example);
            let of_label = Protocol::of_url(&own).unwrap();
            assert!(std::ptr::eq(of_label, protocol), "{own}");
            for scheme in protocol.schemes {
                let label = label(&format!("{scheme}://user:secret@host/a"));
                assert!(!label.contains("secret"), "{label}");
            }
        }
        assert_eq!(label("ftp://u:secret@h"), "ftp://...");
    }
}
