//! Credentials for S3, found like the AWS tools do, through `reqsign`: environment, profiles, SSO, web
//! identity, a command, and those of the container or machine. They are refreshed before they expire.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ini::Ini;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use reqsign_aws_core::{Credential, DefaultCredentialProvider};
use reqsign_core::{CommandExecute, CommandOutput, Context, FileRead, HttpSend, OsEnv};
use reqsign_core::{Error, ErrorKind, ProvideCredential};
use tokio::sync::Mutex;

use super::service::record_no_credentials;
use crate::clock::Instant;
use crate::store::remote::protocol::subprocess;

/// How long credentials are used before they are requested again. Credential services renew them some
/// minutes before they expire.
const REFRESH: Duration = Duration::from_secs(240);
/// Size limit of responses from credential services in bytes.
const MAX_ANSWER_BYTES: u64 = 1 << 20;
/// How long the `credential_process` of a profile may run. It may wait for a person, as for a second factor.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// Settings of a profile besides credentials.
#[derive(Debug, Default)]
pub(super) struct Profile {
    pub(super) region: Option<String>,
    pub(super) endpoint_url: Option<String>,
}

impl Profile {
    /// Reads the profile with this name, or the default profile if `name` is `None`.
    pub(super) fn read(name: Option<&str>) -> Self {
        let from_env = || std::env::var("AWS_PROFILE").ok();
        let name = name.map(str::to_owned).or_else(from_env);
        let name = name.as_deref().unwrap_or("default");
        let file = std::env::var_os("AWS_CONFIG_FILE").map(PathBuf::from);
        let home = || std::env::home_dir().map(|home| home.join(".aws/config"));
        let Some(config) = file
            .or_else(home)
            .and_then(|file| Ini::load_from_file(file).ok())
        else {
            return Self::default();
        };
        let section = config
            .section(Some(format!("profile {name}")))
            .or_else(|| config.section(Some(name)));
        let get = |key| {
            section
                .and_then(|section| section.get(key))
                .map(str::to_owned)
        };
        Self {
            region: get("region"),
            endpoint_url: get("endpoint_url"),
        }
    }
}

/// Returns the paths of the configuration file and the credentials file of the AWS tools.
fn files() -> [PathBuf; 2] {
    let named = [
        ("AWS_CONFIG_FILE", ".aws/config"),
        ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
    ];
    named.map(|(variable, path)| match std::env::var_os(variable) {
        Some(file) => file.into(),
        None => std::env::home_dir().unwrap_or_default().join(path),
    })
}

/// Returns the message for missing credentials; the named profile may not exist.
fn no_credentials(profile: Option<&str>) -> String {
    match profile {
        None => "no credentials were found".to_owned(),
        Some(name) => missing_profile(name)
            .unwrap_or_else(|| format!("the profile {name} has no credentials")),
    }
}

/// Returns the message for a profile that neither file has.
fn missing_profile(name: &str) -> Option<String> {
    let files = files();
    let sections = [format!("profile {name}"), name.to_owned()];
    let has_profile = |file: &PathBuf| {
        let file = Ini::load_from_file(file).ok();
        file.is_some_and(|file| {
            let mut sections = sections.iter();
            sections.any(|section| file.section(Some(section)).is_some())
        })
    };
    if files.iter().any(has_profile) {
        return None;
    }
    let [config, credentials] = files.map(|file| file.display().to_string());
    Some(format!(
        "the profile {name} is neither in {config} nor in {credentials}"
    ))
}

/// Finds credentials, and caches them for [`REFRESH`].
#[derive(Debug)]
pub(super) struct Chain {
    provider: DefaultCredentialProvider,
    context: Context,
    /// The name of the profile, from an option or the environment.
    profile: Option<String>,
    /// Whether an option named the profile; it must exist then, and the environment is ignored.
    is_explicit: bool,
    kept: Mutex<Option<(Arc<AwsCredential>, Instant)>>,
}

impl Chain {
    pub(super) fn new(profile: Option<&str>, client: reqwest::Client) -> Self {
        let mut builder = DefaultCredentialProvider::builder();
        let named = profile.map(str::to_owned);
        let named = named.or_else(|| std::env::var("AWS_PROFILE").ok());
        if let Some(profile) = profile {
            // Like `aws --profile`.
            builder = builder.with_profile(profile).no_env();
        }
        let context = Context::new()
            .with_file_read(Files)
            .with_http_send(Http(client))
            .with_env(OsEnv)
            .with_command_execute(Commands);
        Self {
            provider: builder.build(),
            context,
            profile: named,
            is_explicit: profile.is_some(),
            kept: Mutex::new(None),
        }
    }
}

impl Chain {
    /// Drops credentials that were found before `asked`, so that they are requested again. Newer ones were
    /// found by another request in the meantime, and stay.
    pub(super) async fn invalidate_older_than(&self, asked: Instant) {
        let mut kept = self.kept.lock().await;
        *kept = kept.take().filter(|(_, since)| *since > asked);
    }
}

#[async_trait]
impl CredentialProvider for Chain {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut kept = self.kept.lock().await;
        if let Some((credential, since)) = &*kept
            && since.elapsed() < REFRESH
        {
            return Ok(Arc::clone(credential));
        }
        let failed = |what: String| {
            record_no_credentials(&what);
            object_store::Error::Generic {
                store: "S3",
                source: what.into(),
            }
        };
        let explicit = self.profile.as_deref().filter(|_| self.is_explicit);
        if let Some(missing) = explicit.and_then(missing_profile) {
            return Err(failed(missing));
        }
        let found: Option<Credential> = self
            .provider
            .provide_credential(&self.context)
            .await
            .map_err(|error| failed(format!("credentials: {error}")))?;
        let found = found.ok_or_else(|| failed(no_credentials(self.profile.as_deref())))?;
        let credential = Arc::new(AwsCredential {
            key_id: found.access_key_id,
            secret_key: found.secret_access_key,
            token: found.session_token,
        });
        *kept = Some((Arc::clone(&credential), Instant::now()));
        Ok(credential)
    }
}

fn unexpected(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unexpected, what.to_string())
}

#[derive(Debug)]
struct Files;

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> reqsign_core::Result<Vec<u8>> {
        std::fs::read(path).map_err(|error| unexpected(format!("{path}: {error}")))
    }
}

#[derive(Debug)]
struct Http(reqwest::Client);

impl HttpSend for Http {
    async fn http_send(
        &self,
        request: http::Request<Bytes>,
    ) -> reqsign_core::Result<http::Response<Bytes>> {
        let (parts, body) = request.into_parts();
        let send = self.0.request(parts.method, parts.uri.to_string());
        let sent = send.headers(parts.headers).body(body).send().await;
        let sent = sent.map_err(|error| unexpected(error.without_url()))?;
        let response: http::Response<reqwest::Body> = sent.into();
        let (parts, body) = response.into_parts();
        let most = usize::try_from(MAX_ANSWER_BYTES).unwrap_or(usize::MAX);
        let body = http_body_util::Limited::new(body, most);
        let body = http_body_util::BodyExt::collect(body).await;
        let body = body.map_err(unexpected)?.to_bytes();
        Ok(http::Response::from_parts(parts, body))
    }
}

/// Runs the `credential_process` of a profile.
#[derive(Debug)]
struct Commands;

impl CommandExecute for Commands {
    async fn command_execute<'a>(
        &'a self,
        program: &'a str,
        args: &'a [&'a str],
    ) -> reqsign_core::Result<CommandOutput> {
        let mut command = std::process::Command::new(program);
        command.args(args);
        let output = subprocess::output(command, COMMAND_TIMEOUT).await;
        let output = output.map_err(|why| unexpected(format!("{program}: {why}")))?;
        Ok(CommandOutput {
            status: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: output.stderr,
        })
    }
}
