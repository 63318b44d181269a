//! Credentials that a command of the user prints.
//!
//! The command runs once, and again when its credentials are about to expire or a server refuses them: never once per
//! request. It prints a JSON object with one of
//! - `headers`: an object of names and values, for web servers, Hugging Face and, if it is a bearer token, Google,
//! - `sas` (or `token`, as Planetary Computer calls it): a shared access signature of Azure, for `az://` and `https://`,
//! - AWS keys, as `credential_process` of the AWS tools, `aws sts assume-role` or `/s3credentials` of NASA's Earthdata
//!   print them,
//!
//! and perhaps when they expire: `expires`, `expiration` or `msft:expiry`, in RFC 3339.

use std::fmt;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use chrono::DateTime;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use super::{subprocess, web};
use crate::clock::Instant;

/// How long before they expire credentials are renewed, if they last longer than ten times this.
const EARLY: Duration = Duration::from_secs(60);
/// How long a failure of the command is returned, and how old credentials are at least before a refusal renews them.
const PAUSE: Duration = Duration::from_secs(5);
/// The same, if the refusal may have another reason than old credentials.
const LONG_PAUSE: Duration = Duration::from_secs(60);
/// The maximum length of a reason that the command prints, in characters.
const MAX_REASON: usize = 300;

/// Keys of AWS.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct AwsKeys {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) token: Option<String>,
}

/// What the command has printed.
#[derive(Clone, Default)]
pub(super) struct Credentials {
    pub(super) headers: HeaderMap,
    /// A query for URLs.
    pub(super) query: Option<String>,
    pub(super) keys: Option<AwsKeys>,
    expires: Option<SystemTime>,
}

impl fmt::Debug for Credentials {
    /// Omits secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl Credentials {
    /// Returns the bearer token in the header `Authorization`.
    pub(super) fn bearer(&self) -> Option<&str> {
        let value = self.headers.get(AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token)
    }

    /// Parses what the command prints.
    ///
    /// # Errors
    /// What is wrong, without values.
    fn parse(text: &[u8]) -> Result<Self, String> {
        let document: Value = serde_json::from_slice(text)
            .map_err(|error| format!("it prints no JSON ({:?})", error.classify()))?;
        let document = document.as_object().ok_or("it prints no JSON object")?;
        let nested =
            ["aws", "Credentials"].map(|name| document.get(name).and_then(Value::as_object));
        let keys = nested.into_iter().flatten().next().unwrap_or(document);
        let headers = match document.get("headers") {
            None => HeaderMap::new(),
            Some(headers) => parse_headers(headers)?,
        };
        let found = Self {
            headers,
            query: signature(document)?,
            keys: parse_keys(keys)?,
            expires: expiry(document)?.or(expiry(keys)?),
        };
        match found.headers.is_empty() && found.query.is_none() && found.keys.is_none() {
            true => Err("it prints neither `headers` nor `sas` nor AWS keys".into()),
            false => Ok(found),
        }
    }
}

/// Returns a member by its name, whatever its case, and with or without `_`.
fn member<'a>(document: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    let plain = |name: &str| name.replace(['_', '-'], "").to_ascii_lowercase();
    let found = document.iter().find(|(own, _)| plain(own) == name);
    found.and_then(|(_, value)| value.as_str())
}

fn parse_headers(headers: &Value) -> Result<HeaderMap, String> {
    let members = headers.as_object().ok_or("`headers` is no object")?;
    let parsed = members.iter().map(|(name, value)| {
        let value = value
            .as_str()
            .ok_or_else(|| format!("the header {name:?} is no text"))?;
        web::header(&format!("{name}: {value}"))
    });
    parsed.collect()
}

fn signature(document: &Map<String, Value>) -> Result<Option<String>, String> {
    let names = ["sas", "sastoken", "token"];
    let Some(text) = names.iter().find_map(|name| member(document, name)) else {
        return Ok(None);
    };
    let query = text.trim_start_matches('?');
    let has_signature =
        url::form_urlencoded::parse(query.as_bytes()).any(|(name, _)| name == "sig");
    match has_signature {
        true => Ok(Some(query.to_owned())),
        false => Err("`sas` is no shared access signature: it has no `sig`".into()),
    }
}

fn parse_keys(keys: &Map<String, Value>) -> Result<Option<AwsKeys>, String> {
    let (id, secret) = (member(keys, "accesskeyid"), member(keys, "secretaccesskey"));
    match (id, secret) {
        (None, None) => Ok(None),
        (Some(id), Some(secret)) => Ok(Some(AwsKeys {
            id: id.to_owned(),
            secret: secret.to_owned(),
            token: member(keys, "sessiontoken").map(str::to_owned),
        })),
        (None, _) => Err("the AWS keys have no access key ID".into()),
        (_, None) => Err("the AWS keys have no secret access key".into()),
    }
}

fn expiry(document: &Map<String, Value>) -> Result<Option<SystemTime>, String> {
    let names = [
        "expires",
        "expiration",
        "expiry",
        "msft:expiry",
        "expiresat",
    ];
    let Some(text) = names.iter().find_map(|name| member(document, name)) else {
        return Ok(None);
    };
    let date = DateTime::parse_from_rfc3339(text)
        .map_err(|error| format!("the date when they expire is none of RFC 3339: {error}"))?;
    Ok(Some(date.into()))
}

/// The result of the last run of the command.
struct Kept {
    result: Result<Arc<Credentials>, String>,
    since: Instant,
    /// When the command runs again; `None` if only a refusal makes it run.
    until: Option<Instant>,
}

/// A command that prints credentials, and those that it has printed last.
pub struct CredentialCommand {
    line: String,
    timeout: Duration,
    kept: Mutex<Option<Kept>>,
}

impl fmt::Debug for CredentialCommand {
    /// Omits the command, which can contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialCommand")
    }
}

impl CredentialCommand {
    /// Returns a command for `sh -c`, which may run for `timeout`.
    pub fn new(line: &str, timeout: Duration) -> Self {
        Self {
            line: line.to_owned(),
            timeout,
            kept: Mutex::default(),
        }
    }

    /// Returns credentials that have not expired.
    ///
    /// # Errors
    /// The reason why there are none.
    pub(super) async fn credentials(&self) -> Result<Arc<Credentials>, String> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = &*kept
            && kept.until.is_none_or(|until| Instant::now() < until)
        {
            return kept.result.clone();
        }
        let result = self.run().await.and_then(|credentials| {
            let until = renewal(credentials.expires)?;
            Ok((Arc::new(credentials), until))
        });
        let since = Instant::now();
        let (result, until) = match result {
            Ok((credentials, until)) => (Ok(credentials), until),
            Err(why) => {
                let what = format!("--credential-command: {why}");
                (Err(what), Some(since + PAUSE))
            }
        };
        *kept = Some(Kept {
            result: result.clone(),
            since,
            until,
        });
        result
    }

    /// Reacts to the refusal of a request that was sent at this time. Returns whether another attempt has other
    /// credentials: the command runs again, unless it has just done so. `is_old` says that the server takes the
    /// credentials for old ones; otherwise, those whose expiry is known are kept until then.
    pub(super) async fn renews_refused(&self, sent_at: Instant, is_old: bool) -> bool {
        let mut kept = self.kept.lock().await;
        let pause = if is_old { PAUSE } else { LONG_PAUSE };
        match &*kept {
            Some(kept) if kept.since > sent_at => kept.result.is_ok(),
            Some(kept) if kept.since.elapsed() < pause => false,
            Some(kept) if !is_old && kept.until.is_some() => false,
            _ => {
                *kept = None;
                true
            }
        }
    }

    async fn run(&self) -> Result<Credentials, String> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.line);
        let output = subprocess::output(command, self.timeout).await?;
        match output.status.success() {
            true => Credentials::parse(&output.stdout),
            false => {
                let text = String::from_utf8_lossy(&output.stderr);
                let last = text.lines().rfind(|line| !line.trim().is_empty());
                let reason: String = last.unwrap_or_default().chars().take(MAX_REASON).collect();
                Err(format!("{}: {}", output.status, reason.escape_debug()))
            }
        }
    }
}

/// Returns when credentials are renewed.
fn renewal(expires: Option<SystemTime>) -> Result<Option<Instant>, String> {
    let Some(expires) = expires else {
        return Ok(None);
    };
    let left = expires.duration_since(SystemTime::now());
    let left = left.map_err(|_| "its credentials have expired already".to_owned())?;
    let early = EARLY.min(left / 10);
    // A time that no clock reaches is never.
    Ok(Instant::now().checked_add(left - early))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime;

    fn parsed(text: &str) -> Credentials {
        Credentials::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_documents_of_services_are_understood() {
        let keys = AwsKeys {
            id: "A".into(),
            secret: "B".into(),
            token: Some("C".into()),
        };
        for text in [
            r#"{"Version":1,"AccessKeyId":"A","SecretAccessKey":"B","SessionToken":"C","Expiration":"2030-01-01T00:00:00Z"}"#,
            r#"{"accessKeyId":"A","secretAccessKey":"B","sessionToken":"C","expiration":"2030-01-01 00:00:00+00:00"}"#,
            r#"{"Credentials":{"AccessKeyId":"A","SecretAccessKey":"B","SessionToken":"C","Expiration":"2030-01-01T00:00:00+00:00"},"AssumedRoleUser":{}}"#,
            r#"{"aws":{"access_key_id":"A","secret_access_key":"B","session_token":"C"},"expires":"2030-01-01T01:00:00+01:00"}"#,
        ] {
            let found = parsed(text);
            assert!(found.keys == Some(keys.clone()), "{text}");
            let seconds = found
                .expires
                .unwrap()
                .duration_since(SystemTime::UNIX_EPOCH);
            assert_eq!(seconds.unwrap().as_secs(), 1_893_456_000, "{text}");
        }
        let found = parsed(r#"{"msft:expiry":"2030-01-01T00:00:00Z","token":"sv=1&sig=a%2Bb"}"#);
        assert_eq!(found.query.as_deref(), Some("sv=1&sig=a%2Bb"));
        assert!(found.expires.is_some());
        let found = parsed(r#"{"headers":{"Authorization":"Bearer x","X-A":"1"}}"#);
        assert_eq!((found.bearer(), found.headers.len()), (Some("x"), 2));
        assert!(found.headers.values().all(http::HeaderValue::is_sensitive));
    }

    #[test]
    fn what_is_wrong_has_a_reason_without_secrets() {
        for (text, reason) in [
            ("secret", "no JSON"),
            (r#"["secret"]"#, "no JSON object"),
            ("{}", "neither"),
            (r#"{"headers":"secret"}"#, "no object"),
            (r#"{"headers":{"Range":"secret"}}"#, "zarrfs sets"),
            (r#"{"headers":{"A":"secret\n"}}"#, ""),
            (r#"{"sas":"secret"}"#, "no `sig`"),
            (r#"{"AccessKeyId":"secret"}"#, "no secret access key"),
            (r#"{"SecretAccessKey":"secret"}"#, "no access key ID"),
            (r#"{"sas":"sig=secret","expires":"soon"}"#, "RFC 3339"),
        ] {
            match Credentials::parse(text.as_bytes()) {
                Ok(_) => assert!(reason.is_empty(), "{text}"),
                Err(why) => assert!(why.contains(reason) && !why.contains("secret\""), "{why}"),
            }
        }
        let debug = format!("{:?}", CredentialCommand::new("echo secret", PAUSE));
        assert!(!debug.contains("secret"));
    }

    #[test]
    fn a_command_runs_once_for_each_lifetime() {
        let directory = tempfile::tempdir().unwrap();
        let runs = directory.path().join("runs");
        let count = || std::fs::read(&runs).map_or(0, |bytes| bytes.len());
        let line = format!(
            r#"printf x >>'{}'; date -u -d '+2 seconds' '+{{"sas":"sig=a","expires":"%FT%TZ"}}'"#,
            runs.display()
        );
        let command = CredentialCommand::new(&line, Duration::from_secs(20));
        let network = runtime::network().unwrap();
        network.block_on(async {
            let again = Instant::now() + Duration::from_secs(3);
            while Instant::now() < again {
                let issued = command.credentials().await.unwrap();
                assert_eq!(issued.query.as_deref(), Some("sig=a"));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert!((2..=4).contains(&count()), "{}", count());
            // It has just run, so a refusal is final.
            assert!(!command.renews_refused(Instant::now(), true).await);
        });
    }

    #[test]
    fn failures_have_the_last_line_and_are_not_repeated_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let runs = directory.path().join("runs");
        let line = format!(
            "printf x >>'{}'; echo first >&2; echo no login >&2; exit 3",
            runs.display()
        );
        let command = CredentialCommand::new(&line, Duration::from_secs(20));
        let network = runtime::network().unwrap();
        network.block_on(async {
            for _ in 0..5 {
                let why = command.credentials().await.unwrap_err();
                assert_eq!(why, "--credential-command: exit status: 3: no login");
            }
        });
        assert_eq!(std::fs::read(&runs).unwrap(), b"x");
        let slow = CredentialCommand::new("sleep 60", Duration::from_millis(100));
        let why = network.block_on(slow.credentials()).unwrap_err();
        assert!(why.contains("more than 100ms"), "{why}");
        let old = CredentialCommand::new(
            r#"echo '{"sas":"sig=a","expires":"2020-01-01T00:00:00Z"}'"#,
            Duration::from_secs(20),
        );
        let why = network.block_on(old.credentials()).unwrap_err();
        assert!(why.contains("expired already"), "{why}");
    }
}
