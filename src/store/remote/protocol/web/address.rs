//! The URLs of keys, and the redirects that may be followed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use reqwest::Url;

use super::RequestError;
use super::scope::{NetworkScope, scope_of_host};
use crate::store::Key;

/// Characters that are escaped in a path (RFC 3986, 3.3: all but `unreserved` and those that are
/// frequent in keys).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'(')
    .remove(b')')
    .remove(b',')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// The root of a tree of keys on a web server.
#[derive(Clone)]
pub(in crate::store::remote) struct Address {
    /// Without user, password and fragment; the path ends without a slash.
    base: Url,
    authorization: Option<HeaderValue>,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.label())
    }
}

impl Address {
    /// Whether a redirect from the URL of a key leads to the same key. The host must be the same. The
    /// scheme or port may differ, as from http to https, and so may the path before the key, as for a
    /// tree that was moved.
    pub(super) fn is_same_key(&self, url: &Url, end: &Url) -> bool {
        let base = self.base.path().trim_end_matches('/');
        let key = url.path().strip_prefix(base);
        url.host() == end.host()
            && url.query() == end.query()
            && key.is_some_and(|key| decoded(end.path()).ends_with(&decoded(key)))
    }

    /// Parses the URL; a user and a password in it become a header.
    pub(in crate::store::remote) fn new(url: &Url) -> Self {
        let mut base = url.clone();
        let user = percent_decode_str(url.username()).collect::<Vec<u8>>();
        let authorization = (!user.is_empty() || url.password().is_some()).then(|| {
            let password = percent_decode_str(url.password().unwrap_or_default());
            basic(&user, &password.collect::<Vec<u8>>())
        });
        // These calls do not fail for a URL with a host.
        let _ = base.set_username("");
        let _ = base.set_password(None);
        base.set_fragment(None);
        let path = base.path().trim_end_matches('/').to_owned();
        base.set_path(&path);
        Self {
            base,
            authorization: authorization.flatten(),
        }
    }

    /// Whether the URL has a query, such as a signature.
    pub(super) fn has_query(&self) -> bool {
        self.base.query().is_some()
    }

    /// The URL for messages, without parts that may be secret: user, password, query.
    pub(in crate::store::remote) fn label(&self) -> String {
        let mut url = self.base.clone();
        url.set_query(None);
        url.to_string()
    }

    /// Identifies the source.
    pub(in crate::store::remote) fn identity(&self) -> String {
        self.base.to_string()
    }

    /// The last component of the path.
    pub(in crate::store::remote) fn file_name(&self) -> String {
        let name = self.base.path().rsplit('/').next().unwrap_or_default();
        percent_decode_str(name).decode_utf8_lossy().into_owned()
    }

    /// The host.
    pub(super) fn host(&self) -> &str {
        self.base.host_str().unwrap_or_default()
    }

    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        self.authorization.clone()
    }

    /// Returns the URL of a key; for the root, the URL of the tree itself.
    pub(in crate::store::remote) fn of(&self, key: &Key) -> Result<Url, RequestError> {
        self.with(key, "")
    }

    /// Returns the URL of a prefix, which ends with a slash.
    pub(super) fn of_directory(&self, key: &Key) -> Result<Url, RequestError> {
        self.with(key, "/")
    }

    fn with(&self, key: &Key, end: &str) -> Result<Url, RequestError> {
        let mut path = self.base.path().trim_end_matches('/').to_owned();
        if !key.is_root() {
            for name in key.as_bytes().split(|byte| *byte == b'/') {
                path.push('/');
                path.extend(percent_encode(name, ESCAPED));
            }
        }
        path.push_str(end);
        let mut url = self.base.clone();
        url.set_path(&path);
        // A URL parser takes a name like `%2e%2e` for the parent directory.
        if url.path().trim_end_matches('/') != path.trim_end_matches('/') {
            return Err(RequestError::lasting("no URL stands for this key"));
        }
        Ok(url)
    }
}

/// Returns the value of `Authorization` for a user with a password (RFC 7617).
pub(super) fn basic(user: &[u8], password: &[u8]) -> Option<HeaderValue> {
    let both = [user, b":", password].concat();
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(both))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Whether headers for one URL may be sent to the other.
pub(in crate::store::remote) fn is_same_host(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host() == other.host()
        && one.port_or_known_default() == other.port_or_known_default()
}

/// Whether a redirect leads from http to https at the same host, both at their usual ports.
pub(super) fn is_upgrade(from: &Url, to: &Url) -> bool {
    from.scheme() == "http"
        && to.scheme() == "https"
        && from.host() == to.host()
        && from.port().is_none()
        && to.port().is_none()
}

/// Whether a redirect from `url` to `next`, whose header is `location`, appends a slash. Servers escape
/// other characters than this module, or none.
pub(super) fn is_directory_of(url: &Url, next: &Url, location: &str) -> bool {
    let path = decoded(url.path());
    if path.ends_with(b"/") {
        return false;
    }
    // nginx and Caddy redirect to a URL with fewer escapes (`+`, `[`, `'`, `#`), so paths are compared without them.
    // Behind a proxy, a server may not know its own scheme and port.
    let next_path = decoded(next.path());
    let is_slashed = url.host() == next.host() && next_path.strip_suffix(b"/") == Some(&path[..]);
    // Without escapes, a name that contains `#`, `?` or `%` is no part of the path of `next`.
    let unescaped = location.as_bytes().strip_suffix(b"/");
    is_slashed || unescaped == Some(&path[..])
}

/// Returns the bytes that a path of a URL stands for.
pub(super) fn decoded(path: &str) -> Vec<u8> {
    percent_decode_str(path).collect()
}

/// Checks whether a redirect may be followed. `is_named` means that the user has named its end.
///
/// # Errors
/// The reason why it may not.
pub(super) fn is_allowed(first: &Url, from: &Url, to: &Url, is_named: bool) -> Result<(), String> {
    let host = to.host_str().unwrap_or_default();
    match to.scheme() {
        "https" => {}
        "http" if from.scheme() == "http" => {}
        "http" => return Err(format!("it leads from https to http at {host}")),
        scheme => return Err(format!("it leads to a URL of the kind {scheme}")),
    }
    // The first host is the one that the user has named, or that `--allow-target` allows.
    if is_named || first.host() == to.host() {
        return Ok(());
    }
    match (scope_of_host(first), scope_of_host(to)) {
        (_, NetworkScope::Local) => Err(format!(
            "it leads to {host}, where machines keep credentials"
        )),
        (NetworkScope::Public, NetworkScope::Private) => {
            Err(format!("it leads to the private address {host}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    fn key(text: &str) -> Key {
        Key::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_key_has_one_url_and_the_query_stays() {
        let address = Address::new(&url("https://u:p%40@h:8/a%20b/?sig=x#f"));
        assert_eq!(address.label(), "https://h:8/a%20b");
        assert_eq!(
            address.of(&key("t/0.0")).unwrap().as_str(),
            "https://h:8/a%20b/t/0.0?sig=x"
        );
        assert_eq!(
            address.of(&key("50%/x y?z#")).unwrap().as_str(),
            "https://h:8/a%20b/50%25/x%20y%3Fz%23?sig=x"
        );
        assert_eq!(
            address.of_directory(&key("t")).unwrap().as_str(),
            "https://h:8/a%20b/t/?sig=x"
        );
        let authorization = address.authorization().unwrap();
        assert_eq!(authorization.to_str().unwrap(), "Basic dTpwQA==");
        assert!(!format!("{address:?}").contains("p@"));
    }

    #[test]
    fn a_directory_is_the_same_url_with_a_slash() {
        let leads = |from: &str, location: &str| {
            let from = url(from);
            is_directory_of(&from, &from.join(location).unwrap(), location)
        };
        assert!(leads("http://h:1/a", "http://h/a/"));
        assert!(!leads("http://h/a", "http://h/b/"));
        assert!(!leads("http://h/a", "http://other/a/"));
        assert!(!leads("http://h/a/", "http://h/a/"));
        // nginx escapes fewer characters.
        assert!(leads("http://h/x%2By%5B%27", "http://h/x+y['/"));
        // Caddy escapes nothing.
        for (name, location) in [("h%23y", "/h#y/"), ("q%3Fx", "/q?x/"), ("%2520", "/%20/")] {
            assert!(leads(&format!("http://h/{name}"), location), "{location}");
        }
        assert!(!leads("http://h/h%23y", "/h/"));
    }

    #[test]
    fn redirects_lead_neither_down_nor_inside() {
        let allowed =
            |from: &str, to: &str| is_allowed(&url(from), &url(from), &url(to), false).is_ok();
        assert!(allowed("http://a/x", "https://b/x"));
        assert!(allowed("http://127.0.0.1:1/x", "http://127.0.0.1:2/x"));
        assert!(allowed("http://10.0.0.1/x", "http://192.168.0.1/x"));
        assert!(!allowed("https://a/x", "http://a/x"));
        assert!(!allowed("http://a/x", "http://127.0.0.1/x"));
        assert!(!allowed("http://a/x", "http://[::1]/x"));
        assert!(!allowed("http://a/x", "http://localhost/x"));
        assert!(!allowed("http://127.0.0.1/x", "http://169.254.169.254/x"));
        assert!(!allowed("http://a/x", "http://[::ffff:169.254.169.254]/x"));
        assert!(!allowed("http://a/x", "file:///etc/passwd"));
        // A private network may use addresses that are special elsewhere.
        assert!(!allowed("http://100.64.0.5/x", "http://100.64.0.6/x"));
        assert!(allowed("http://100.64.0.5/x", "http://100.64.0.5/y"));
    }

    #[test]
    fn redirects_to_a_host_that_the_user_names_lead_anywhere_but_down() {
        let named = |from: &str, to: &str| is_allowed(&url(from), &url(from), &url(to), true);
        named("http://a/x", "http://100.64.0.6/x").unwrap();
        named("http://a/x", "http://127.0.0.1/x").unwrap();
        named("https://a/x", "http://100.64.0.6/x").unwrap_err();
        named("http://a/x", "file:///etc/passwd").unwrap_err();
    }
}
