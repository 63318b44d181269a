//! URLs of HDFS: the address of the name node, and the user.

use std::fmt;

use reqwest::Url;

/// Default ports of WebHDFS (`dfs.namenode.http-address` and `dfs.namenode.https-address` of
/// Hadoop 3).
const HTTP_PORT: u16 = 9870;
const HTTPS_PORT: u16 = 9871;
/// Ports of the name node's RPC, which `hdfs` URLs mostly contain; WebHDFS uses other ports.
const RPC_PORTS: [u16; 3] = [8020, 9000, 9820];
/// The root of the file system in URLs of the REST API.
const ROOT: &str = "/webhdfs/v1";

/// A directory of HDFS, and the user who reads it.
#[derive(Clone)]
pub(super) struct HdfsUrl {
    /// The directory, as a URL of the REST API.
    pub(super) http: Url,
    /// The URL for messages, with the actual port and without user and token.
    pub(super) label: String,
    credentials: Vec<(&'static str, String)>,
}

impl fmt::Debug for HdfsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

impl HdfsUrl {
    /// Parses `hdfs://[USER@]HOST[:PORT]/PATH`, `webhdfs://...` or `swebhdfs://...` (over TLS).
    /// `variable` returns environment variables.
    ///
    /// # Errors
    /// The missing part of the URL.
    pub(super) fn parse(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let (http, default_port) = match scheme {
            "swebhdfs" => ("https", HTTPS_PORT),
            _ => ("http", HTTP_PORT),
        };
        Self::with(scheme, http, default_port, rest, variable)
    }

    fn with(
        scheme: &str,
        http: &str,
        default_port: u16,
        rest: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let authority = rest.split('/').next().unwrap_or_default();
        let parsed = Url::parse(&format!("{http}://{rest}")).map_err(|error| error.to_string())?;
        // URL parsers take `http:///a` for `http://a`.
        let Some(host) = parsed.host_str().filter(|_| !authority.is_empty()) else {
            return Err(
                "no name node behind the scheme (the configuration of Hadoop is not read)".into(),
            );
        };
        if parsed.password().is_some() {
            return Err(
                "HDFS takes no password: a user, or a delegation token in WEBHDFS_DELEGATION_TOKEN"
                    .into(),
            );
        }
        // `port()` is `None` if the URL contains the default port of its scheme.
        let named = parsed.port().or_else(|| {
            let port = authority.rsplit(':').next()?.parse().ok();
            port.filter(|port| Some(*port) == parsed.port_or_known_default())
        });
        let port = named.filter(|port| scheme != "hdfs" || !RPC_PORTS.contains(port));
        let port = port.unwrap_or(default_port);
        let path = parsed.path().trim_matches('/');
        let slash = if path.is_empty() { "" } else { "/" };
        let mut base = parsed.clone();
        // These calls do not fail for a URL with a host.
        let _ = base.set_username("");
        let _ = base.set_port(Some(port));
        base.set_fragment(None);
        base.set_query(None);
        base.set_path(&format!("{ROOT}{slash}{path}"));
        let user = percent_encoding::percent_decode_str(parsed.username()).decode_utf8_lossy();
        let user = Some(user.into_owned()).filter(|user| !user.is_empty());
        let token = variable("WEBHDFS_DELEGATION_TOKEN").filter(|token| !token.is_empty());
        let names = ["HADOOP_USER_NAME", "USER", "LOGNAME"];
        let known = || {
            names
                .into_iter()
                .filter_map(&variable)
                .find(|name| !name.is_empty())
        };
        // A token identifies its user to the server.
        let credentials = match token {
            Some(token) => Some(("delegation", token)),
            None => user.or_else(known).map(|user| ("user.name", user)),
        };
        Ok(Self {
            label: format!("{scheme}://{host}:{port}/{path}"),
            http: base,
            credentials: credentials.into_iter().collect(),
        })
    }

    /// Identifies the source as this user sees it; without a token.
    pub(super) fn identity(&self) -> String {
        let user = self
            .credentials
            .iter()
            .find(|(name, _)| *name == "user.name");
        let user = user.map_or("", |(_, user)| user.as_str());
        format!("{} {user}", self.http)
    }

    /// The last component of the path.
    pub(super) fn file_name(&self) -> String {
        let name = self.http.path().rsplit('/').next().unwrap_or_default();
        let name = percent_encoding::percent_decode_str(name);
        name.decode_utf8_lossy().into_owned()
    }

    /// The query parameter with the user or the token.
    pub(super) fn credentials(&self) -> impl Iterator<Item = (&str, &str)> {
        self.credentials
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, variables: &[(&str, &str)]) -> HdfsUrl {
        let variable = |name: &str| {
            let found = variables.iter().find(|(one, _)| *one == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        HdfsUrl::parse(text, variable).unwrap()
    }

    #[test]
    fn an_rpc_port_becomes_the_http_port() {
        for (text, http) in [
            ("hdfs://nn/a/b", "http://nn:9870/webhdfs/v1/a/b"),
            ("hdfs://nn:8020/a/b/", "http://nn:9870/webhdfs/v1/a/b"),
            ("hdfs://nn:50070/", "http://nn:50070/webhdfs/v1"),
            ("webhdfs://nn:8020/a", "http://nn:8020/webhdfs/v1/a"),
            ("webhdfs://nn:80/a", "http://nn/webhdfs/v1/a"),
            ("swebhdfs://nn/a%20b", "https://nn:9871/webhdfs/v1/a%20b"),
        ] {
            assert_eq!(parse(text, &[]).http.as_str(), http, "{text}");
        }
        for wrong in ["hdfs:///a", "hdfs://user:secret@nn/a"] {
            let error = HdfsUrl::parse(wrong, |_| None).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn the_user_is_named_and_a_token_is_in_no_message() {
        let all = [("HADOOP_USER_NAME", "ada"), ("USER", "root")];
        let credentials = |url: &HdfsUrl| {
            let all = url.credentials();
            all.map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            credentials(&parse("hdfs://bob@nn/a", &all)),
            ["user.name=bob"]
        );
        assert_eq!(credentials(&parse("hdfs://nn/a", &all)), ["user.name=ada"]);
        assert!(credentials(&parse("hdfs://nn/a", &[])).is_empty());
        let url = parse("hdfs://nn/a", &[("WEBHDFS_DELEGATION_TOKEN", "secret")]);
        assert_eq!(credentials(&url), ["delegation=secret"]);
        assert!(!format!("{url:?} {} {}", url.label, url.identity()).contains("secret"));
        assert_eq!(url.label, "hdfs://nn:9870/a");
    }
}
