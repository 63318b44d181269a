//! URLs of the Hub: `hf://[TYPE/]OWNER/NAME[@REVISION][/PATH]` (`huggingface_hub`, "HF URIs").

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use reqwest::Url;

use super::token::Token;
use crate::store::Key;
use crate::store::remote::protocol::Variables;
use crate::store::remote::request::RequestError;

/// The endpoint, unless `--endpoint-url` or `HF_ENDPOINT` has another one.
const ENDPOINT: &str = "https://huggingface.co";
/// The branch of URLs without a revision.
const BRANCH: &str = "main";
/// Characters that are escaped in a component of a path (RFC 3986, 2.3: all but `unreserved`).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The type of a repository: the first component of its URL, and of the paths of the API.
const TYPES: [&str; 4] = ["models", "datasets", "spaces", BUCKETS];
/// The type of buckets, which have no revisions.
const BUCKETS: &str = "buckets";
/// The type of URLs without one. Its files have paths without the type.
const MODELS: &str = "models";

/// A directory or file of a repository or bucket, and the user who reads it.
#[derive(Clone)]
pub(super) struct HfUrl {
    /// The URL of the Hub, without a slash at its end.
    pub(super) endpoint: String,
    /// The URL for messages.
    pub(super) label: String,
    pub(super) token: Token,
    kind: &'static str,
    /// The owner and the name.
    id: String,
    /// `None` in a bucket.
    revision: Option<String>,
    /// The path in the repository, without slashes at its ends.
    path: String,
}

impl fmt::Debug for HfUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

/// Returns the number of components of the repository, with its revision, at the start of a text after `hf://`.
pub(super) fn components(rest: &str) -> usize {
    let mut names = rest.split('/');
    let has_type = names.next().is_some_and(|first| TYPES.contains(&first));
    let of_name = 2 + usize::from(has_type);
    let name = rest.split('/').nth(of_name - 1).unwrap_or_default();
    // Pull requests and conversions are revisions with two slashes.
    match name.split_once('@') {
        Some((_, "refs")) => of_name + 2,
        _ => of_name,
    }
}

fn is_dots(name: &str) -> bool {
    matches!(name, "." | "..")
}

impl HfUrl {
    /// Parses `hf://[TYPE/]OWNER/NAME[@REVISION][/PATH]`; `TYPE` is `datasets`, `spaces`, `models` (the default) or
    /// `buckets`.
    ///
    /// # Errors
    /// The wrong part of the URL.
    pub(super) fn parse(text: &str, variables: Variables<'_>) -> Result<Self, String> {
        let rest = text.strip_prefix("hf://").unwrap_or(text).trim_matches('/');
        let count = components(rest);
        let mut names = rest.split('/');
        let first = names.clone().next().unwrap_or_default();
        let kind = TYPES.into_iter().find(|kind| *kind == first);
        if kind.is_some() {
            names.next();
        }
        if TYPES
            .iter()
            .any(|kind| kind.strip_suffix('s') == Some(first))
        {
            return Err(format!("the type is `{first}s`: hf://{first}s/OWNER/NAME"));
        }
        let kind = kind.unwrap_or(MODELS);
        let place: Vec<&str> = names
            .by_ref()
            .take(count - usize::from(first == kind))
            .collect();
        let path: Vec<&str> = names.collect();
        let place = place.join("/");
        let (id, revision) = match place.split_once('@') {
            Some((id, revision)) => (id, Some(revision)),
            None => (&*place, None),
        };
        // URLs are normalized, so a component with dots alone, also escaped, would lead to another repository.
        let is_name = |name: &str| {
            let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_known)
        };
        if path.iter().copied().chain(revision).any(is_dots) {
            return Err("`.` and `..` are no names in a repository".into());
        }
        let mut parts = id.split('/');
        if !(parts.next().is_some_and(is_name) && parts.next().is_some_and(is_name)) {
            return Err("no owner and name of a repository: hf://datasets/OWNER/NAME/PATH".into());
        }
        let revision = match (kind, revision) {
            (BUCKETS, None) => None,
            (BUCKETS, Some(_)) => return Err("a bucket has no revisions".into()),
            (_, Some("")) => return Err("no revision behind `@`".into()),
            (_, Some(text)) => {
                let text = percent_decode_str(text).decode_utf8();
                let text = text.map_err(|_| "the revision is not UTF-8")?;
                if is_dots(&text) {
                    return Err("no revision behind `@`".into());
                }
                Some(text.into_owned())
            }
            (_, None) => Some(BRANCH.to_owned()),
        };
        let variable = |name: &str| variables(name).filter(|value| !value.is_empty());
        let endpoint = variable("HF_ENDPOINT");
        let endpoint = endpoint.as_deref().unwrap_or(ENDPOINT);
        Ok(Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            label: format!("hf://{rest}"),
            token: Token::find(variables),
            kind,
            id: id.to_owned(),
            revision,
            path: path.join("/"),
        })
    }

    /// Returns the same location at another Hub.
    ///
    /// # Errors
    /// The endpoint is no URL.
    pub(super) fn at(self, endpoint: &str) -> Result<Self, String> {
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let moved = Self { endpoint, ..self };
        moved.files()?;
        Ok(moved)
    }

    /// Returns the hash of the commit that is the revision; `None` for a branch or a tag, which can move, and for a
    /// bucket.
    pub(super) fn commit(&self) -> Option<&str> {
        let is_hash = |text: &&str| {
            text.len() == 40
                && text
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        self.revision.as_deref().filter(is_hash)
    }

    /// Returns the URL below which files are resolved.
    ///
    /// # Errors
    /// The endpoint is no URL.
    pub(super) fn files(&self) -> Result<Url, String> {
        let kind = match self.kind {
            MODELS => "",
            kind => &format!("{kind}/"),
        };
        let mut text = format!("{}/{kind}{}/resolve", self.endpoint, self.id);
        if let Some(revision) = &self.revision {
            text = format!("{text}/{}", utf8_percent_encode(revision, ESCAPED));
        }
        for name in self.path.split('/').filter(|name| !name.is_empty()) {
            text = format!("{text}/{}", utf8_percent_encode(name, ESCAPED));
        }
        self.url(&text)
    }

    /// Returns whether listings are of all keys that begin with a text, as in a bucket, and not of a directory.
    pub(super) fn lists_by_text(&self) -> bool {
        self.kind == BUCKETS
    }

    /// Returns the URL of the listing of a directory. As in `huggingface_hub`, the slashes of the path are escaped.
    pub(super) fn tree(&self, prefix: &Key) -> Result<Url, RequestError> {
        let mut text = format!("{}/api/{}/{}/tree", self.endpoint, self.kind, self.id);
        if let Some(revision) = &self.revision {
            text = format!("{text}/{}", utf8_percent_encode(revision, ESCAPED));
        }
        let mut path = self.path_of(prefix);
        if !path.is_empty() {
            if self.lists_by_text() {
                path.push(b'/');
            }
            text = format!(
                "{text}/{}",
                percent_encoding::percent_encode(&path, ESCAPED)
            );
        }
        self.url(&text).map_err(RequestError::lasting)
    }

    fn url(&self, text: &str) -> Result<Url, String> {
        let url = Url::parse(text).ok();
        let url = url.filter(|url| url.has_host() && matches!(url.scheme(), "http" | "https"));
        url.ok_or_else(|| {
            "the endpoint of Hugging Face is not a URL such as https://huggingface.co".into()
        })
    }

    /// Returns the path of a key in the repository.
    pub(super) fn path_of(&self, key: &Key) -> Vec<u8> {
        let parts = [self.path.as_bytes(), key.as_bytes()];
        let parts: Vec<&[u8]> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(&b'/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> HfUrl {
        HfUrl::parse(text, &|_| None).unwrap()
    }

    #[test]
    fn a_url_is_divided_as_huggingface_hub_divides_it() {
        for (text, files, path) in [
            ("hf://o/n", "o/n/resolve/main", ""),
            ("hf://models/o/n/a", "o/n/resolve/main/a", "a"),
            (
                "hf://datasets/o/n@v1/a b/c",
                "datasets/o/n/resolve/v1/a%20b/c",
                "a b/c",
            ),
            (
                "hf://datasets/o/n@refs/pr/3/a",
                "datasets/o/n/resolve/refs%2Fpr%2F3/a",
                "a",
            ),
            (
                "hf://datasets/o/n@refs%2Fpr%2F3/a",
                "datasets/o/n/resolve/refs%2Fpr%2F3/a",
                "a",
            ),
            (
                "hf://spaces/o/n/x@1.zarr/",
                "spaces/o/n/resolve/main/x%401.zarr",
                "x@1.zarr",
            ),
            ("hf://buckets/o/n/a/b", "buckets/o/n/resolve/a/b", "a/b"),
        ] {
            let url = parse(text);
            let expected = format!("https://huggingface.co/{files}");
            assert_eq!(url.files().unwrap().as_str(), expected, "{text}");
            assert_eq!(url.path_of(&Key::root()), path.as_bytes(), "{text}");
        }
        let key = Key::new(b"c/0").unwrap();
        let tree = parse("hf://datasets/o/n@v1/a").tree(&key).unwrap();
        assert_eq!(tree.path(), "/api/datasets/o/n/tree/v1/a%2Fc%2F0");
        // All keys of a bucket that begin with a text are listed, so the directory ends with a slash.
        let tree = parse("hf://buckets/o/n/a").tree(&key).unwrap();
        assert_eq!(tree.path(), "/api/buckets/o/n/tree/a%2Fc%2F0%2F");
    }

    #[test]
    fn the_origin_of_a_url_is_the_repository_with_its_revision() {
        for (rest, count) in [
            ("o/n/a/b", 2),
            ("datasets/o/n/a", 3),
            ("datasets/o/n@v1/a", 3),
            ("datasets/o/n@refs/pr/3/a", 5),
        ] {
            assert_eq!(components(rest), count, "{rest}");
        }
    }

    #[test]
    fn a_wrong_url_is_refused_and_only_a_commit_is_immutable() {
        for wrong in [
            "hf://",
            "hf://gpt2",
            "hf://datasets/o",
            "hf://dataset/o/n",
            "hf://datasets/o/n@",
            "hf://buckets/o/n@main",
            "hf://datasets/../n",
            "hf://datasets/o/%2e%2e",
            "hf://datasets/o/n/../../../../victim/private",
            "hf://datasets/o/n/a/./b",
            "hf://datasets/o/n@../a",
            "hf://datasets/o/n@%2e%2e/a",
        ] {
            assert!(HfUrl::parse(wrong, &|_| None).is_err(), "{wrong}");
        }
        assert_eq!(parse("hf://o/n@main").commit(), None);
        assert_eq!(parse("hf://buckets/o/n").commit(), None);
        let hash = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(parse(&format!("hf://o/n@{hash}/a")).commit(), Some(hash));
        let url = parse("hf://o/n").at("http://127.0.0.1:80/hub/").unwrap();
        assert_eq!(
            url.files().unwrap().as_str(),
            "http://127.0.0.1/hub/o/n/resolve/main"
        );
        assert!(parse("hf://o/n").at("ftp://x").is_err());
    }
}
